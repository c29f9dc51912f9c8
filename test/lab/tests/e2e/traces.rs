//! What is left when a lab is gone: nothing.
//!
//! The lab comes up in a mount namespace with a /run and a /tmp of its own, so that files of other programs are none of
//! its traces; what it needs and lies below those (a checkout, a cache) is still there. Processes are those that it had.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{able, command, name, wait};

/// Lists of what is there before, meanwhile and afterwards.
const SCRIPT: &str = r#"
set -eu
fd=3
for folder in $KEEP; do
    eval "exec $fd<\"\$folder\""
    fd=$((fd + 1))
done
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
fd=3
for folder in $KEEP; do
    mkdir -p "$folder"
    # Not by its name, which leads to the new one.
    mount --no-canonicalize --bind "/proc/$$/fd/$fd" "$folder"
    eval "exec $fd<&-"
    fd=$((fd + 1))
done
# Every machine with FRR's package has it from its boot on; its daemons make it otherwise.
mkdir /run/frr
seen() {
    find /run /tmp -xdev | sort
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
        .env(
            "KEEP",
            hidden(&[out.0.as_ref(), lab.get_program().as_ref()]).join(" "),
        )
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

/// Folders of what the lab needs, and of these files, that a new /run and /tmp would hide.
fn hidden(files: &[&Path]) -> Vec<String> {
    let checkout = "../..";
    let tools = std::env::var("NOVERLAY_TOOLS_DIR").unwrap_or_default();
    let target = concat!(env!("CARGO_TARGET_TMPDIR"), "/..");
    let cache =
        ["NOVERLAY_CACHE", "XDG_CACHE_HOME"].map(|name| std::env::var(name).unwrap_or_default());
    let folders = files.iter().filter_map(|file| file.parent());
    let folders = folders.chain([checkout, tools.as_str(), target].map(Path::new));
    let folders = folders.chain(cache.iter().map(Path::new));
    let real = folders.filter_map(|folder| folder.canonicalize().ok());
    let below = real.filter(|path| path.starts_with("/tmp/") || path.starts_with("/run/"));
    let text = below.map(|path| path.to_str().expect("a path of text").to_owned());
    let all: BTreeSet<String> = text.collect();
    assert!(
        all.iter().all(|path| !path.contains(char::is_whitespace)),
        "{all:?}"
    );
    // What holds others comes before them.
    all.into_iter().collect()
}

/// A folder that goes with the test.
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
