//! The daemons of a lab: started, remembered, recognised, stopped.
//!
//! In: a [`Start`] (program, arguments, namespace, log). Out: a [`Record`] per daemon
//! in `pids/`, which the supervisor watches. Invariant: a signal is only ever sent to
//! a process whose number *and* start time are those of the record, or that stands in
//! a namespace of this lab.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::run::{tool, until};
use crate::state::{Lab, text, write_whole};

/// How a daemon is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    /// Node it belongs to, or `underlay`.
    pub(crate) node: String,
    /// Its name, unique on the node.
    pub(crate) name: String,
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
    /// Additional environment.
    pub(crate) env: Vec<(String, String)>,
    /// Where its last words are.
    pub(crate) log: PathBuf,
    /// Set where the daemon puts itself into the background and writes its number here.
    pub(crate) pidfile: Option<PathBuf>,
}

/// A daemon that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// How.
    pub(crate) start: Start,
    /// Process number.
    pub(crate) pid: i32,
    /// Start time in clock ticks since boot (proc(5), field 22).
    pub(crate) born: u64,
    /// How often the supervisor started it again.
    pub(crate) restarts: u32,
    /// Stopped on purpose: its absence is no death.
    pub(crate) stopped: bool,
}

/// Starts a daemon and remembers it.
pub(crate) fn start(lab: &Lab, start: Start, restarts: u32) -> Result<Record> {
    let pid = launch(lab, &start)?;
    let Some(born) = born(pid) else {
        bail!(
            "{} of {} ended at once:\n{}",
            start.name,
            start.node,
            tail(&start.log, 10)
        );
    };
    let record = Record {
        start,
        pid,
        born,
        restarts,
        stopped: false,
    };
    remember(lab, &record)?;
    Ok(record)
}

fn launch(lab: &Lab, start: &Start) -> Result<i32> {
    // setsid: a terminal's Ctrl-C or hang-up is not for the daemons.
    let namespace = lab.namespace(&start.node);
    let mut command = tool("setsid")
        .args(["ip", "netns", "exec", &namespace])
        .args(&start.argv);
    for (key, value) in &start.env {
        command = command.env(key, value);
    }
    let mut log = File::options().create(true).append(true).open(&start.log)?;
    let again = log.try_clone()?;
    if let Some(pidfile) = &start.pidfile {
        drop(std::fs::remove_file(pidfile));
        // The parent's own output goes beside the log that the daemon opens itself.
        log = File::create(start.log.with_extension("start"))?;
    }
    let mut child = command
        .with(|c| {
            c.stdin(Stdio::null())
                .stdout(log)
                .stderr(again)
                .current_dir("/");
        })
        .spawn()?;
    let Some(pidfile) = &start.pidfile else {
        return i32::try_from(child.id()).context("process number");
    };
    let status = child.wait()?;
    if !status.success() {
        bail!(
            "{} of {}: {status}:\n{}",
            start.name,
            start.node,
            tail(&start.log, 10)
        );
    }
    let pid = until(Duration::from_secs(5), Duration::from_millis(10), || {
        std::fs::read_to_string(pidfile).ok()?.trim().parse().ok()
    });
    pid.with_context(|| {
        format!(
            "{} of {} wrote no {}",
            start.name,
            start.node,
            pidfile.display()
        )
    })
}

/// All daemons of the lab.
pub(crate) fn records(lab_dir: &Path) -> Vec<Record> {
    let mut found: Vec<Record> = std::fs::read_dir(lab_dir.join("pids"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|e| e == "json"))
        .filter_map(|entry| read(&entry.path()))
        .collect();
    found.sort_by(|a, b| (&a.start.node, &a.start.name).cmp(&(&b.start.node, &b.start.name)));
    found
}

/// One daemon of the lab.
pub(crate) fn record(lab: &Lab, node: &str, name: &str) -> Result<Record> {
    read(&file(lab, node, name)).with_context(|| {
        let on_node = records(&lab.dir())
            .into_iter()
            .filter(|r| r.start.node == node);
        let names: Vec<String> = on_node.map(|r| r.start.name).collect();
        format!(
            "no daemon {name} on {node}; there are: {}",
            names.join(", ")
        )
    })
}

fn read(path: &Path) -> Option<Record> {
    serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
}

fn file(lab: &Lab, node: &str, name: &str) -> PathBuf {
    lab.dir().join("pids").join(format!("{node}.{name}.json"))
}

fn remember(lab: &Lab, record: &Record) -> Result<()> {
    let path = file(lab, &record.start.node, &record.start.name);
    write_whole(&path, &serde_json::to_string(record)?)
}

/// Forgets a daemon, so that its end is no death.
pub(crate) fn forget(lab: &Lab, record: &Record) {
    drop(std::fs::remove_file(file(
        lab,
        &record.start.node,
        &record.start.name,
    )));
}

/// Stops a daemon on purpose and waits until it is gone.
pub(crate) fn stop(lab: &Lab, node: &str, name: &str, signal: Signal) -> Result<()> {
    let mut record = record(lab, node, name)?;
    record.stopped = true;
    remember(lab, &record)?;
    send(&record, signal)?;
    let gone = until(Duration::from_secs(5), Duration::from_millis(5), || {
        (!record.alive()).then_some(())
    });
    gone.with_context(|| format!("{name} of {node} did not end within 5 s of {signal}"))
}

/// Sends a signal to a daemon, if it still is the one of the record.
pub(crate) fn send(record: &Record, signal: Signal) -> Result<()> {
    if !record.alive() {
        bail!(
            "{} of {} is not running",
            record.start.name,
            record.start.node
        );
    }
    kill(Pid::from_raw(record.pid), signal).with_context(|| {
        format!(
            "{signal} for {} of {}",
            record.start.name, record.start.node
        )
    })
}

impl Record {
    /// Is this very process still running (and not merely unburied)?
    pub(crate) fn alive(&self) -> bool {
        born(self.pid) == Some(self.born)
    }

    /// Does it run, neither stopped on purpose nor frozen?
    pub(crate) fn at_work(&self) -> bool {
        let frozen = stat(self.pid).is_some_and(|(state, _)| state == "T");
        self.alive() && !self.stopped && !frozen
    }

    /// Has the program been built again since this process started?
    pub(crate) fn outdated(&self) -> bool {
        std::fs::read_link(format!("/proc/{}/exe", self.pid))
            .is_ok_and(|path| text(&path).ends_with(" (deleted)"))
    }
}

/// Start time of a process; `None` when there is none or it is dead and unburied. One whose first thread alone is dead still holds
/// its sockets.
pub(crate) fn born(pid: i32) -> Option<u64> {
    let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    stat(pid)
        .filter(|(state, _)| match state.as_str() {
            "Z" => tasks() > 1,
            state => state != "X",
        })
        .map(|(_, at)| at)
}

/// State letter and start time of a process (proc(5)).
fn stat(pid: i32) -> Option<(String, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything, so begin after the last bracket.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.to_owned();
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Ends processes: asks first, then does not ask.
pub(crate) fn end_all(pids: &[(i32, u64)], patience: Duration) {
    let living = || {
        pids.iter()
            .filter(|(pid, at)| born(*pid) == Some(*at))
            .collect::<Vec<_>>()
    };
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        for (pid, _) in living() {
            kill(Pid::from_raw(*pid), signal).ok();
            // A frozen process hears nothing but SIGKILL.
            kill(Pid::from_raw(*pid), Signal::SIGCONT).ok();
        }
        until(patience, Duration::from_millis(20), || {
            living().is_empty().then_some(())
        });
    }
}

/// The last lines of a log, without those that say the same as a later one but for the time.
pub(crate) fn tail(log: &Path, lines: usize) -> String {
    let content = std::fs::read(log).unwrap_or_default();
    last(&String::from_utf8_lossy(&content), lines)
}

/// The same of its text.
fn last(log: &str, lines: usize) -> String {
    /// Our daemons' lines begin with it: `{"timestamp":"2026-11-26T22:42:13.046642Z",`.
    const TIME: &str = "{\"timestamp\":";
    let said = |line: &str| {
        let rest = line
            .strip_prefix(TIME)
            .and_then(|rest| rest.split_once(','));
        rest.map_or(line, |(_, rest)| rest).to_owned()
    };
    let mut seen = BTreeSet::new();
    let new = log.lines().rev().filter(|line| seen.insert(said(line)));
    let mut kept: Vec<&str> = new.take(lines).collect();
    kept.reverse();
    kept.iter().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_and_again_hides_nothing_else() {
        let line = |second: u32, what: &str| {
            format!("{{\"timestamp\":\"2026-11-26T22:42:{second:02}Z\",\"message\":\"{what}\"}}\n")
        };
        let mut log = line(1, "started") + "plain\n";
        for second in 2..40 {
            log.push_str(&line(second, "cannot connect"));
        }
        let started = format!("    {}", line(1, "started"));
        let again = format!("    {}", line(39, "cannot connect"));
        assert_eq!(last(&log, 3), format!("{started}    plain\n{again}"));
        assert_eq!(last(&log, 1), again);
    }
}
