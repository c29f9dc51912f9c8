//! What is left when a lab is gone: nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::harness::{Standing, able, name, wait};

#[test]
fn down_leaves_no_process_namespace_mount_or_file() {
    if !able() {
        return;
    }
    let before = traces();
    let lab = Standing::up(&[]);
    assert!(
        traces().iter().any(|trace| trace.contains("ovs-vswitchd")),
        "processes are looked for in vain"
    );
    drop(lab);
    // What other programs of the machine do meanwhile passes.
    let mut left = Vec::new();
    let clean = wait(Duration::from_secs(10), || {
        left = traces().difference(&before).cloned().collect();
        left.is_empty()
    });
    assert!(clean, "left behind: {left:#?}");
}

/// Everything that a lab could leave.
fn traces() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    files(Path::new("/run"), 6, &mut found);
    files(Path::new("/tmp"), 1, &mut found);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    found.extend(
        mounts
            .lines()
            .filter_map(|line| Some(format!("mount {}", line.split(' ').nth(4)?))),
    );
    found.extend(processes());
    for level in 1..=3 {
        let file = format!("/proc/sys/net/ipv4/neigh/default/gc_thresh{level}");
        let value = std::fs::read_to_string(&file).unwrap_or_default();
        found.insert(format!("{file} {}", value.trim()));
    }
    found
}

fn files(dir: &Path, depth: usize, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if depth > 1 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files(&path, depth - 1, found);
        }
        found.insert(path.to_string_lossy().into_owned());
    }
}

/// Processes whose command line or namespace is this lab's.
fn processes() -> BTreeSet<String> {
    let name = name();
    let marks = [
        format!("/noverlay-lab/{name}/"),
        format!("nvl-{name}-"),
        format!("--name {name} supervise"),
    ];
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry
            .file_name()
            .into_string()
            .unwrap_or_default()
            .parse::<u32>()
        else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if marks.iter().any(|mark| line.contains(mark)) {
            found.insert(format!("process {pid} {line}"));
        }
    }
    found
}
