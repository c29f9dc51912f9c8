//! A dump of the kernel's routes that cannot be made removes nothing; alone in its program, because it takes its files away.
//!
//! In: a program that may open no file. Out: passes that fail, rows that stay, and the right ones as soon as it may again.
//! Invariant: the kernel lost routes meanwhile. Not here: dumps that the kernel breaks off (`netlink`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use import_tests::{Testbed, absent, until};
use netns_tests::in_namespace;

/// A shell that was started while files could be opened, and reads commands a line at a time.
struct Shell(Child);

impl Shell {
    fn start() -> Self {
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    fn tell(&mut self, line: &str) {
        let stdin = self.0.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Files that this program may have open.
fn limit() -> String {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    line.unwrap().split_whitespace().nth(3).unwrap().to_owned()
}

#[test]
fn a_dump_that_fails_removes_nothing_and_the_next_one_that_does_not_does() {
    if absent() || netns_tests::absent(&["prlimit", "sh"]) {
        return;
    }
    in_namespace(|| async {
        let testbed = Testbed::build().await;
        let agent = testbed.agent();
        testbed.until_settled(Duration::from_millis(300)).await;
        let steady = testbed.guard_steady();
        netns_tests::ip("route add 20.1.1.0/24 via 172.30.9.1 proto bgp");
        netns_tests::ip("route add 20.1.2.0/24 via 198.51.100.2 proto bgp");
        let before = testbed.until_settled(Duration::from_millis(1500)).await;
        let mut shell = Shell::start();
        let (whole, itself) = (limit(), std::process::id());
        // Files that are open stay open; numbers below the limit are all taken.
        shell.tell(&format!("prlimit --pid {itself} --nofile=3:"));
        until("no file can be opened", || {
            std::fs::File::open("/dev/null").is_err()
        })
        .await;
        // A link's change asks for a dump, and only once; until there is one, events tell nothing that can be believed.
        shell.tell("ip link set d1 mtu 1400");
        until("dumps go on failing", || agent.errors().len() > 2).await;
        shell.tell("ip route del 20.1.1.0/24");
        let count = agent.errors().len();
        until("dumps go on failing", || agent.errors().len() > count + 1).await;
        let meanwhile = testbed.observer.observe();
        shell.tell(&format!("prlimit --pid {itself} --nofile={whole}:"));
        until("files can be opened", || {
            std::fs::File::open("/dev/null").is_ok()
        })
        .await;
        let failed = agent.errors().len();
        let of_kernel = |error: &String| error.contains("cannot read the kernel's routes");
        assert!(agent.errors().iter().all(of_kernel), "{:?}", agent.errors());
        assert_eq!(meanwhile.imported(), before.imported(), "while dumps fail");
        assert_eq!(meanwhile.updates, before.updates, "while dumps fail");
        let after = testbed.until_settled(Duration::from_millis(300)).await;
        assert_eq!(after.imported().len(), before.imported().len() - 1);
        testbed.assert_steady(&steady);
        println!("{failed} passes failed: {:?}", agent.errors().first());
    });
}
