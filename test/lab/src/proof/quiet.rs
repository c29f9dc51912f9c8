//! Line 7: nobody is its own neighbor, FRR took what it was given, and then silence.
//!
//! In: a lab at rest. Out: whether, over the quiet time, our users wrote nothing but
//! the leader's lease, no database got a record of ours, no frr.conf was touched, and
//! no session came or went; and whether any daemon has panicked.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Failure, Layer, Verdict, World, listed};
use crate::apiserver::{USERS, audit_log};
use crate::look::sessions;
use crate::node::frr::vtysh;
use crate::objects::frr_node_states;
use crate::process::records;
use crate::run::{tool, until};
use crate::state::{Lab, text};

/// FRR's applier may tell of a reload later than it is done.
const STATE_LIMIT: Duration = Duration::from_secs(35);
/// How long what earlier lines set in motion gets to come to rest.
const SETTLE_LIMIT: Duration = Duration::from_secs(90);

/// Line 7.
pub(super) fn time(world: &mut World<'_>) -> Result<Verdict> {
    let lab = &*world.lab;
    if let Some(failure) = own_neighbor(lab)? {
        return Ok(Err(failure));
    }
    if let Some(failure) = frr_refused(lab)? {
        return Ok(Err(failure));
    }
    settle(lab)?;
    let before = Snapshot::take(lab)?;
    std::thread::sleep(Duration::from_secs(world.quiet));
    let after = Snapshot::take(lab)?;
    let mut complaints = writes(lab, before.audited)?;
    let mut layer = Layer::Object;
    if complaints.is_empty() {
        complaints = before.changes(&after);
        layer = before.layer(&after);
    }
    if complaints.is_empty() {
        complaints = young_sessions(lab, world.quiet)?;
        layer = Layer::Frr;
    }
    if complaints.is_empty() {
        complaints = panics(lab);
        layer = Layer::Lab;
    }
    if complaints.is_empty() {
        return Ok(Ok(format!("{} quiet seconds", world.quiet)));
    }
    let expected = format!(
        "in {} s no write of ours but the lease, no record of ours, no touched frr.conf, no new session, no panic",
        world.quiet
    );
    Ok(Err(Failure::new(layer, expected, listed(&complaints))))
}

fn own_neighbor(lab: &Lab) -> Result<Option<Failure>> {
    for node in &lab.nodes {
        let namespace = lab.namespace(&node.name);
        let shown = tool("ip")
            .args(["-n", &namespace, "-4", "-j", "address", "show"])
            .run()?;
        let links: Value = serde_json::from_str(&shown).context("addresses")?;
        let own: Vec<&str> = links
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|link| {
                link.get("addr_info")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
            })
            .filter_map(|address| address.get("local")?.as_str())
            .collect();
        let running = vtysh(lab, &node.name, &["show running-config"]).run()?;
        let neighbor = |line: &str| {
            Some(
                line.trim()
                    .strip_prefix("neighbor ")?
                    .split(' ')
                    .next()?
                    .to_owned(),
            )
        };
        if let Some(itself) = running
            .lines()
            .filter_map(neighbor)
            .find(|n| own.contains(&n.as_str()))
        {
            let seen = format!(
                "bgpd of {} has the neighbor {itself}, its own address",
                node.name
            );
            return Ok(Some(Failure::new(
                Layer::Frr,
                "no node has itself as a neighbor",
                seen,
            )));
        }
    }
    Ok(None)
}

fn frr_refused(lab: &Lab) -> Result<Option<Failure>> {
    let mut bad = Vec::new();
    let good = until(STATE_LIMIT, Duration::from_millis(500), || {
        let states = frr_node_states(lab).unwrap_or_default();
        let told = lab.nodes.iter().map(|node| {
            let state = states
                .get(&node.name)
                .map_or("there is none", String::as_str);
            (state, format!("{}: {state}", node.name))
        });
        bad = told
            .filter(|(state, _)| *state != "success")
            .map(|(_, text)| text)
            .collect();
        bad.is_empty().then_some(())
    });
    let expected = "every FRRNodeState says success for conversion and reload";
    Ok(good
        .is_none()
        .then(|| Failure::new(Layer::Object, expected, listed(&bad))))
}

/// Waits until our users have written nothing for three seconds, and no FRR is being
/// reloaded: the tool needs seconds to take a neighbor away, and is told of afterwards.
fn settle(lab: &Lab) -> Result<()> {
    let pause = Duration::from_secs(3);
    let mut from = audited(lab)?;
    let mut first = true;
    until(SETTLE_LIMIT, pause, || {
        let quiet = !first && writes(lab, from).is_ok_and(|found| found.is_empty());
        first = false;
        from = audited(lab).unwrap_or(from);
        (quiet && !reloading(lab)).then_some(())
    });
    Ok(())
}

/// Is FRR's reload tool at work on a node of the lab?
fn reloading(lab: &Lab) -> bool {
    let folder = text(&lab.dir());
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .any(|line| line.contains("frr-reload.py") && line.contains(&folder))
}

/// Length of the audit log in bytes.
fn audited(lab: &Lab) -> Result<u64> {
    Ok(std::fs::metadata(audit_log(lab))
        .context("the API server's audit log")?
        .len())
}

/// What our users wrote after this place of the audit log, leases apart.
fn writes(lab: &Lab, from: u64) -> Result<Vec<String>> {
    let log = std::fs::read(audit_log(lab))?;
    let new = log.get(usize::try_from(from)?..).unwrap_or_default();
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(new).lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let part = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or("");
        let (user, resource) = (part("/user/username"), part("/objectRef/resource"));
        let lease = resource == "leases" && user.ends_with(":cluster-manager");
        if user.starts_with(USERS) && !lease {
            let user = user.trim_start_matches(USERS);
            found.push(format!(
                "{user}: {} {resource} {}",
                part("/verb"),
                part("/objectRef/name")
            ));
        }
    }
    Ok(found)
}

/// What must not change.
struct Snapshot {
    /// Length of the audit log.
    audited: u64,
    /// Per database: its records with our comment.
    records: BTreeMap<String, Vec<String>>,
    /// Per node: inode and time of frr.conf.
    files: BTreeMap<String, Option<(u64, i64, i64)>>,
}

impl Snapshot {
    fn take(lab: &Lab) -> Result<Self> {
        let (mut found, mut files) = (BTreeMap::new(), BTreeMap::new());
        for node in &lab.nodes {
            for database in ["conf", "ovnnb"] {
                let file = lab.ovs_dir(&node.name).join(format!("{database}.db"));
                let shown = tool("ovsdb-tool").args(["show-log", &text(&file)]).run()?;
                let ours = shown.lines().filter(|line| line.contains("\"noverlay"));
                found.insert(
                    format!("{} of {}", database, node.name),
                    ours.map(str::to_owned).collect(),
                );
            }
            let file = std::fs::metadata(lab.frr_dir(&node.name).join("frr.conf")).ok();
            files.insert(
                node.name.clone(),
                file.map(|f| (f.ino(), f.mtime(), f.mtime_nsec())),
            );
        }
        Ok(Self {
            audited: audited(lab)?,
            records: found,
            files,
        })
    }

    fn changes(&self, after: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (database, records) in &after.records {
            let known = self.records.get(database).map_or(&[][..], Vec::as_slice);
            if let Some(new) = records.iter().find(|record| !known.contains(record)) {
                found.push(format!("database {database}: {new}"));
            }
        }
        let touched = after
            .files
            .iter()
            .filter(|(node, file)| self.files.get(*node) != Some(file));
        found.extend(touched.map(|(node, _)| format!("frr.conf of {node} was written")));
        let none = after.files.iter().filter(|(_, file)| file.is_none());
        found.extend(none.map(|(node, _)| format!("{node} has no frr.conf")));
        found
    }

    fn layer(&self, after: &Self) -> Layer {
        if self.records == after.records {
            Layer::Frr
        } else {
            Layer::Ovn
        }
    }
}

fn young_sessions(lab: &Lab, quiet: u64) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for node in &lab.nodes {
        for (neighbor, session) in sessions(lab, &node.name)? {
            if session.state != "Established" || session.uptime < quiet * 1000 {
                let age = session.uptime / 1000;
                found.push(format!(
                    "{} with {neighbor}: {} for {age} s",
                    node.name, session.state
                ));
            }
        }
    }
    Ok(found)
}

fn panics(lab: &Lab) -> Vec<String> {
    let logs = records(&lab.dir())
        .into_iter()
        .map(|record| record.start.log);
    logs.filter(|log| {
        let content = std::fs::read(log).unwrap_or_default();
        String::from_utf8_lossy(&content).contains("panicked at")
    })
    .map(|log| format!("{} tells of a panic", log.display()))
    .collect()
}
