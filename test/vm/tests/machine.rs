//! The virtual machine as a tool: what goes in comes out, and nothing is left of it.
//!
//! In: commands. Out: output, exit status, and what is still there afterwards.
//! Invariant: none of these tests is needed, nor run, where no test needs the virtual machine.
//! Not here: what the machine is for (`vrf.rs`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::process::{Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use vm_tests::{has_ipv6, has_vrf, lacks_vm, vm};

/// Whether there is no virtual machine to be tested.
fn without_vm() -> bool {
    if has_vrf() && !has_ipv6() {
        println!("skipped: this kernel has VRF and no IPv6, no other is needed");
        return true;
    }
    lacks_vm()
}

/// A folder for the machine's temporary files, so that what is left of them can be seen.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nvl-vm-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }

    /// Whether a process has the folder's path among its arguments.
    fn in_use(&self) -> bool {
        let path = self.0.to_str().unwrap();
        std::fs::read_dir("/proc").unwrap().any(|entry| {
            let arguments = std::fs::read(entry.unwrap().path().join("cmdline"));
            String::from_utf8_lossy(&arguments.unwrap_or_default()).contains(path)
        })
    }

    fn assert_clean(&self) {
        let clean = (0..100).any(|_| {
            sleep(Duration::from_millis(50));
            self.is_empty() && !self.in_use()
        });
        assert!(clean, "something is left of it in {:?}", self.0);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn output_and_exit_status_come_back_and_files_cannot_be_written() {
    if without_vm() {
        return;
    }
    let folder = Folder::new("run");
    let here = std::env::current_dir().unwrap();
    let probe = here.join("written-by-a-test");
    let script = r#"echo "$GREETING|$1|$(pwd)"; echo wrong >&2; touch written-by-a-test; ip link add d type dummy; exit 7"#;
    let done = vm()
        .env("TMPDIR", &folder.0)
        .current_dir(&here)
        .args(["GREETING=good day", "bash", "-c", script, "bash", "a  b"])
        .output()
        .unwrap();
    let (out, err) = text(&done);
    assert_eq!(done.status.code(), Some(7), "{err}");
    let here = here.to_str().unwrap();
    // A checkout in a folder that the machine mounts itself is found below the machine's own files.
    let anew = ["/run/", "/tmp/", "/var/tmp/", "/var/log/"];
    let above = if anew.iter().any(|folder| here.starts_with(folder)) {
        "/run/machine"
    } else {
        ""
    };
    assert_eq!(out, format!("good day|a  b|{above}{here}\n"));
    assert!(
        err.contains("\nwrong\n") && err.contains("Read-only"),
        "{err}"
    );
    assert!(!probe.exists());
    folder.assert_clean();
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_its_machine() {
    if without_vm() {
        return;
    }
    let folder = Folder::new("late");
    let done = vm()
        .env("TMPDIR", &folder.0)
        .args(["--timeout", "2", "sleep", "60"])
        .output()
        .unwrap();
    let (_, err) = text(&done);
    assert_eq!(done.status.code(), Some(124), "{err}");
    assert!(err.contains("not done after 2 s"), "{err}");
    folder.assert_clean();
}

#[test]
fn a_machine_whose_script_is_killed_leaves_nothing() {
    if without_vm() {
        return;
    }
    let folder = Folder::new("killed");
    let mut script = vm()
        .env("TMPDIR", &folder.0)
        .args(["sleep", "60"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !folder.in_use() || folder.is_empty() {
        assert!(script.try_wait().unwrap().is_none(), "it ended by itself");
        sleep(Duration::from_millis(50));
    }
    sleep(Duration::from_secs(1));
    script.kill().unwrap();
    script.wait().unwrap();
    folder.assert_clean();
}

#[test]
fn a_wrong_call_prints_what_is_right() {
    for (arguments, wanted) in [
        (vec![], "usage: hack/vm"),
        (vec!["A=1"], "usage: hack/vm"),
        (vec!["--timeout", "soon", "ls"], "from 1 to 999999"),
        (vec!["--kernel", "a b", "ls"], "one parameter is wanted"),
    ] {
        let done = vm().args(arguments).output().unwrap();
        let (_, err) = text(&done);
        assert_eq!(done.status.code(), Some(125));
        assert!(err.contains(wanted), "{err}");
    }
}
