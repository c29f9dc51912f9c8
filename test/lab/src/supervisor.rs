//! The one process that stays with a lab.
//!
//! In: the records in `pids/`. Out: `deaths.log`, with the last ten lines of each dead
//! daemon's log, and ovn-controller started again, once per node. Starts nothing else.
//!
//! ovn-controller has been seen to go away in the second after its start, right after its
//! connection to br-int, for no known reason and without a last line (a few in a hundred
//! starts of OVN 23.03). Such a start is repeated and reported in `early.log`; it is part of
//! bringing the lab up, not a death since.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::{self, Record, Start, born, records, tail};
use crate::run::tool;
use crate::state::{Lab, text, write_whole};

/// How long a death may stay unnoticed.
const PACE: Duration = Duration::from_millis(200);

/// ovn-controller that ends sooner than this after its start has not started.
const EARLY: Duration = Duration::from_secs(3);

/// How often a start is repeated.
pub(crate) const REPEATS: usize = 3;

/// Starts of ovn-controller that had to be repeated; empty when none had.
pub(crate) fn early(name: &str) -> String {
    std::fs::read_to_string(Lab::folder(name).join("early.log")).unwrap_or_default()
}

/// Where deaths are written.
fn deaths_file(name: &str) -> PathBuf {
    Lab::folder(name).join("deaths.log")
}

/// What has died since the lab started; empty when nothing has.
pub(crate) fn deaths(name: &str) -> String {
    std::fs::read_to_string(deaths_file(name)).unwrap_or_default()
}

/// Starts the supervisor of a lab, apart from this process.
pub(crate) fn launch(lab: &Lab) -> Result<()> {
    let program = std::env::current_exe().context("own program")?;
    let log = std::fs::File::create(lab.dir().join("supervisor.log"))?;
    let errors = log.try_clone()?;
    let child = tool("setsid")
        .args([&text(&program), "--name", &lab.name, "supervise"])
        .with(|c| {
            c.stdin(Stdio::null())
                .stdout(log)
                .stderr(errors)
                .current_dir("/");
        })
        .spawn()?;
    let pid = i32::try_from(child.id())?;
    let born = born(pid).context("the supervisor ended at once")?;
    write_whole(&pid_file(&lab.name), &format!("{pid} {born}\n"))
}

fn pid_file(name: &str) -> PathBuf {
    Lab::folder(name).join("supervisor.pid")
}

/// Number and start time of a lab's supervisor, when it runs.
pub(crate) fn running(name: &str) -> Option<(i32, u64)> {
    let content = std::fs::read_to_string(pid_file(name)).ok()?;
    let (pid, at) = content.trim().split_once(' ')?;
    let (pid, at) = (pid.parse().ok()?, at.parse().ok()?);
    (born(pid) == Some(at)).then_some((pid, at))
}

/// Watches until the lab's record is gone.
pub(crate) fn watch(name: &str) -> Result<()> {
    let mut reported = BTreeSet::new();
    while let Some(lab) = Lab::load(name) {
        for record in records(&lab.dir()) {
            if record.stopped || record.alive() || reported.contains(&(record.pid, record.born)) {
                continue;
            }
            // Stopped on purpose in this very moment? Then the record says so now.
            let again = process::record(&lab, &record.start.node, &record.start.name);
            if again.is_ok_and(|now| now == record) {
                reported.insert((record.pid, record.born));
                report(&lab, &record)?;
            }
        }
        std::thread::sleep(PACE);
    }
    Ok(())
}

/// How long ago a process was started, by the clock of /proc (hundredths of a second).
fn age(born: u64) -> Option<Duration> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let now: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let born = Duration::from_millis(born.checked_mul(10)?);
    Duration::try_from_secs_f64(now).ok()?.checked_sub(born)
}

/// Repeats a start of ovn-controller that failed at once; false where this is no such case.
fn repeat_start(lab: &Lab, record: &Record) -> Result<bool> {
    let (node, name) = (&record.start.node, &record.start.name);
    let before = early(&lab.name)
        .lines()
        .filter(|l| l.starts_with(&format!("{name} of {node} ")))
        .count();
    let at_once = age(record.born).is_some_and(|age| age < EARLY + PACE);
    if name != "ovn-controller" || record.restarts > 0 || !at_once || before >= REPEATS {
        return Ok(false);
    }
    tell_early(lab, &record.start)?;
    Ok(process::start(lab, record.start.clone(), 0).is_ok())
}

/// Notes a start that has to be repeated.
pub(crate) fn tell_early(lab: &Lab, start: &Start) -> Result<()> {
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(Lab::folder(&lab.name).join("early.log"))?;
    writeln!(
        file,
        "{} of {} ended right after its start, started again; its last words:",
        start.name, start.node
    )?;
    write!(file, "{}", tail(&start.log, 10))?;
    Ok(())
}

fn report(lab: &Lab, record: &Record) -> Result<()> {
    if repeat_start(lab, record)? {
        return Ok(());
    }
    let (node, name) = (&record.start.node, &record.start.name);
    let again = name == "ovn-controller" && record.restarts == 0;
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(deaths_file(&lab.name))?;
    let what = if again { "started again, once" } else { "died" };
    writeln!(
        file,
        "{name} of {node} (process {}): {what}; its last words:",
        record.pid
    )?;
    write!(file, "{}", tail(&record.start.log, 10))?;
    if again && let Err(error) = process::start(lab, record.start.clone(), 1) {
        writeln!(
            file,
            "{name} of {node}: could not be started again: {error:#}"
        )?;
    }
    Ok(())
}
