//! What a running lab costs: memory and processor time of its daemons, writes to the
//! API, transactions of the databases.
//!
//! In: a running lab and a span of time. Out: tables; means over all nodes. Numbers
//! come from /proc, the API server's audit log and the databases' own logs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::apiserver::{USERS, audit_log};
use crate::process::{Record, records};
use crate::run::{tell, tool};
use crate::state::{Lab, text};
use crate::status::aligned;

/// Numbers of all daemons with one name.
#[derive(Default)]
struct Sum {
    processes: u32,
    kilobytes: u64,
    largest: u64,
    ticks: u64,
}

/// Measures for this long and prints.
pub(crate) fn print(lab: &Lab, seconds: u64) -> Result<bool> {
    let ticks_per_second: u64 = tool("getconf").args(["CLK_TCK"]).run()?.trim().parse()?;
    let daemons = records(&lab.dir());
    let before: Vec<Option<u64>> = daemons.iter().map(ticks).collect();
    std::thread::sleep(Duration::from_secs(seconds));
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for (daemon, before) in daemons.iter().zip(before) {
        let (Some(before), Some(after)) = (before, ticks(daemon)) else {
            continue;
        };
        let sum = sums.entry(program(daemon)).or_default();
        let kilobytes = resident(daemon).unwrap_or(0);
        sum.processes += 1;
        sum.kilobytes += kilobytes;
        sum.largest = sum.largest.max(kilobytes);
        sum.ticks += after.saturating_sub(before);
    }
    let head = [
        "DAEMON",
        "PROCESSES",
        "RSS MB (MEAN)",
        "RSS MB (MOST)",
        "CPU % OF A CORE (MEAN)",
    ];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    for (name, sum) in sums {
        let count = u64::from(sum.processes);
        let hundredths = sum.ticks * 10_000 / (ticks_per_second * seconds.max(1) * count);
        table.push(vec![
            name.to_owned(),
            count.to_string(),
            tenths(sum.kilobytes / count),
            tenths(sum.largest),
            format!("{}.{:02}", hundredths / 100, hundredths % 100),
        ]);
    }
    tell(aligned(&table).trim_end());
    tell(&format!(
        "\nwrites to the API since the start:\n{}",
        aligned(&writes(lab)?)
    ));
    tell(&format!(
        "records in the databases:\n{}",
        aligned(&transactions(lab)?).trim_end()
    ));
    Ok(true)
}

/// Both managers are one program.
fn program(daemon: &Record) -> &str {
    let name = &daemon.start.name;
    if name.starts_with("cm-") {
        "cluster-manager"
    } else {
        name
    }
}

fn tenths(kilobytes: u64) -> String {
    let tenths = kilobytes * 10 / 1024;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Processor time in clock ticks: own and the kernel's for it (proc(5), 14 and 15).
fn ticks(daemon: &Record) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid)).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn resident(daemon: &Record) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid)).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// How often which of our users wrote what.
fn writes(lab: &Lab) -> Result<Vec<Vec<String>>> {
    let log = std::fs::read_to_string(audit_log(lab)).context("the API server's audit log")?;
    let mut counts: BTreeMap<(String, String, String), u32> = BTreeMap::new();
    for event in log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        let part = |path: &str| {
            let value = event.pointer(path).and_then(Value::as_str);
            value.unwrap_or("").to_owned()
        };
        if let Some(user) = part("/user/username").strip_prefix(USERS) {
            let key = (user.to_owned(), part("/objectRef/resource"), part("/verb"));
            *counts.entry(key).or_default() += 1;
        }
    }
    let mut table = vec![
        ["USER", "RESOURCE", "VERB", "WRITES"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let row = |((user, resource, verb), count): ((String, String, String), u32)| {
        vec![user, resource, verb, count.to_string()]
    };
    table.extend(counts.into_iter().map(row));
    Ok(table)
}

/// Records per node and database: all, and those with our comment.
fn transactions(lab: &Lab) -> Result<Vec<Vec<String>>> {
    let head = ["NODE", "CONF", "CONF (OURS)", "NB", "NB (OURS)"];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    for node in &lab.nodes {
        let mut row = vec![node.name.clone()];
        for database in ["conf", "ovnnb"] {
            let file = lab.ovs_dir(&node.name).join(format!("{database}.db"));
            let shown = tool("ovsdb-tool").args(["show-log", &text(&file)]).run()?;
            let records = shown.lines().filter(|line| line.starts_with("record "));
            let ours = records.clone().filter(|line| line.contains("\"noverlay"));
            row.extend([records.count().to_string(), ours.count().to_string()]);
        }
        table.push(row);
    }
    Ok(table)
}
