//! What is left when a lab is gone: nothing.
//!
//! The lab comes up in a mount namespace with a /run and a /tmp of its own, so that files of other programs are none of
//! its traces; processes are those that the lab had.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{able, command, name, wait};

/// Lists of what is there before, meanwhile and afterwards.
const SCRIPT: &str = r#"
set -eu
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
# Every machine with FRR's package has it from its boot on; its daemons make it otherwise.
mkdir /run/frr
seen() {
    find /run /tmp | sort
    cut -d ' ' -f 5 /proc/self/mountinfo | sed 's/^/mount /' | sort
    for level in 1 2 3; do
        file=/proc/sys/net/ipv4/neigh/default/gc_thresh$level
        if [ -e $file ]; then echo "$file $(cat $file)"; fi
    done
}
seen > "$OUT/before"
"$@" up --no-prove >&2
seen > "$OUT/meanwhile"
for space in $(ip netns list | cut -d ' ' -f 1); do ip netns pids "$space"; done > "$OUT/pids"
cat /run/noverlay-lab/*/supervisor.pid | cut -d ' ' -f 1 >> "$OUT/pids"
# Number, and when it was started: the number may be another's later.
for pid in $(sort -u "$OUT/pids"); do cut -d ' ' -f 1,22 "/proc/$pid/stat"; done > "$OUT/processes"
"$@" down >&2
seen > "$OUT/after"
"#;

#[test]
fn down_leaves_no_process_namespace_mount_or_file() {
    if !able() {
        return;
    }
    let out = tempfile();
    let lab = command(&[]);
    let status = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            SCRIPT,
            "sh",
        ])
        .arg(lab.get_program())
        .args(["--name", name()])
        .env("OUT", &out.0)
        .stdin(Stdio::null())
        .status()
        .expect("unshare");
    assert!(status.success(), "{status}");
    let seen = |file: &str| -> BTreeSet<String> {
        let text = std::fs::read_to_string(Path::new(&out.0).join(file)).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let (before, meanwhile) = (seen("before"), seen("meanwhile"));
    let socket = format!("/run/noverlay-lab/{}/n1/ovs/br-ex.mgmt", name());
    let mount = format!("mount /run/netns/nvl-{}-n1", name());
    for trace in [socket, mount] {
        assert!(meanwhile.contains(&trace), "{trace} was looked for in vain");
    }
    let left: Vec<String> = seen("after").difference(&before).cloned().collect();
    assert!(left.is_empty(), "left behind: {left:#?}");
    let processes = seen("processes");
    assert!(processes.len() > 30, "only {} processes", processes.len());
    let gone = || living(&processes).is_empty();
    assert!(
        wait(Duration::from_secs(10), gone),
        "still there: {:#?}",
        living(&processes)
    );
}

/// Those of the lab's processes that run still: the same number, started at the same moment.
fn living(processes: &BTreeSet<String>) -> Vec<String> {
    let is = |process: &&String| {
        let pid = process.split(' ').next().unwrap_or_default();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let words: Vec<&str> = stat.split(' ').collect();
        let word = |number: usize| words.get(number).copied().unwrap_or_default();
        format!("{} {}", word(0), word(21)) == **process && word(2) != "Z"
    };
    processes.iter().filter(is).cloned().collect()
}

/// A folder outside of /run and /tmp that goes with the test.
struct Folder(String);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn tempfile() -> Folder {
    let folder = format!("{}/traces-{}", env!("CARGO_TARGET_TMPDIR"), name());
    std::fs::create_dir_all(&folder).unwrap();
    Folder(folder)
}
