//! Who writes anything, anywhere.
//!
//! In: a lab. Out: what changed between two moments: the API server's audit log, the
//! records of the databases' own logs, frr.conf, FRR's log and running configuration;
//! and what kernel and bridge reported of changes meanwhile. Nobody is asked who he is: a
//! write counts whoever made it. What OVN's own daemons write to the Southbound DB, and
//! leases, are no writes here.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{Complaint, Layer};
use crate::apiserver::{USERS, audit_log};
use crate::node::frr::{DAEMONS, vtysh};
use crate::run::{Tool, each, of_another_namespace, tool};
use crate::state::{Lab, text};
use std::io::Read;

/// The databases of a node.
const DATABASES: [&str; 3] = ["conf", "ovnnb", "ovnsb"];
/// So many characters of what was sent are shown.
const SHOWN: usize = 600;
/// What FRR logs at the end of a configuration that it read.
const READ: &str = "Configuration Read in Took";

/// What must not change.
pub(super) struct Snapshot {
    /// The audit log.
    audited: Vec<String>,
    /// Per database: its records.
    records: BTreeMap<String, Vec<String>>,
    /// Per node: inode and time of frr.conf.
    files: BTreeMap<String, Option<(u64, i64, i64)>>,
    /// Per node and daemon: how many configurations FRR has read.
    read: BTreeMap<String, usize>,
}

impl Snapshot {
    pub(super) fn take(lab: &Lab) -> Result<Self> {
        let mut taken = Self {
            audited: writes(lab)?,
            records: BTreeMap::new(),
            files: BTreeMap::new(),
            read: BTreeMap::new(),
        };
        let databases: Vec<(&str, &str)> = lab
            .nodes
            .iter()
            .flat_map(|node| DATABASES.map(|database| (node.name.as_str(), database)))
            .collect();
        for (name, found) in databases.iter().zip(each(&databases, |(node, database)| {
            let file = lab.ovs_dir(node).join(format!("{database}.db"));
            let shown = tool("ovsdb-tool").args(["show-log", &text(&file)]).run()?;
            Ok::<_, anyhow::Error>(records(&shown, *database == "ovnsb"))
        })) {
            taken
                .records
                .insert(format!("{} of {}", name.1, name.0), found?);
        }
        for node in &lab.nodes {
            let folder = lab.frr_dir(&node.name);
            let file = std::fs::metadata(folder.join("frr.conf")).ok();
            taken.files.insert(
                node.name.clone(),
                file.map(|f| (f.ino(), f.mtime(), f.mtime_nsec())),
            );
            for daemon in DAEMONS {
                let log = std::fs::read(folder.join(format!("{daemon}.log"))).unwrap_or_default();
                let count = String::from_utf8_lossy(&log).matches(READ).count();
                taken
                    .read
                    .insert(format!("{daemon} of {}", node.name), count);
            }
        }
        Ok(taken)
    }

    /// What is in the later one and not in this.
    pub(super) fn changes(&self, after: &Self) -> Vec<Complaint> {
        let written = after.audited.iter().skip(self.audited.len());
        let mut found: Vec<Complaint> = written.map(|w| (Layer::Object, w.clone())).collect();
        for (database, records) in &after.records {
            let known = self.records.get(database).map_or(&[][..], Vec::as_slice);
            let new: Vec<&String> = records.iter().filter(|r| !known.contains(r)).collect();
            if let Some(first) = new.first() {
                let text = format!("database {database}: {} records: {first}", new.len());
                found.push((Layer::Ovn, text));
            } else if known.len() > records.len() {
                let text = format!("database {database} was rewritten as a whole");
                found.push((Layer::Ovn, text));
            }
        }
        for (node, file) in &after.files {
            if file.is_none() {
                found.push((Layer::Frr, format!("{node} has no frr.conf")));
            } else if self.files.get(node) != Some(file) {
                found.push((Layer::Frr, format!("frr.conf of {node} was written")));
            }
        }
        for (daemon, count) in &after.read {
            if self.read.get(daemon) != Some(count) {
                found.push((
                    Layer::Frr,
                    format!("{daemon} logs that it read a configuration"),
                ));
            }
        }
        found
    }
}

/// Records of a database's log, each as it is shown: number, time and comment.
fn records(shown: &str, southbound: bool) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in shown.lines() {
        match found.last_mut() {
            // A comment may have several lines.
            Some(last) if !line.starts_with("record ") => {
                last.push(' ');
                last.push_str(line);
            }
            _ => found.push(line.to_owned()),
        }
    }
    let own = |record: &String| {
        let comment = record.split_once('"').map_or("", |(_, comment)| comment);
        comment.starts_with("ovn-controller") || comment.starts_with("ovn-northd")
    };
    found.retain(|record| !(southbound && own(record)));
    found
}

/// All writes of the audit log, leases apart.
fn writes(lab: &Lab) -> Result<Vec<String>> {
    let log = std::fs::read(audit_log(lab)).context("the API server's audit log")?;
    let log = String::from_utf8_lossy(&log);
    let events = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(events.filter_map(|event| write(&event)).collect())
}

/// A write as one line; `None` for the leases that leader and API server renew all the time.
fn write(event: &Value) -> Option<String> {
    let part = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or("");
    let (user, resource) = (part("/user/username"), part("/objectRef/resource"));
    let manager = format!("{USERS}cluster-manager");
    if resource == "leases" && (user == manager || user == "system:apiserver") {
        return None;
    }
    let line = format!(
        "{}: {} {resource} {}",
        user.trim_start_matches(USERS),
        part("/verb"),
        part("/objectRef/name")
    );
    let Some(sent) = event.get("requestObject") else {
        return Some(line);
    };
    let sent: String = sent.to_string().chars().take(SHOWN).collect();
    let at = part("/requestReceivedTimestamp");
    Some(format!("{line} at {at}: {sent}"))
}

/// A foreign tool that tells of changes as they happen.
struct Listener {
    layer: Layer,
    what: String,
    /// What a line that tells of a change begins with.
    mark: &'static str,
    child: Child,
    /// Its output and its messages: ovs-ofctl tells of changes among the latter.
    lines: [JoinHandle<String>; 2],
}

impl Listener {
    fn start(layer: Layer, what: String, mark: &'static str, tool: Tool) -> Result<Self> {
        let mut child = tool
            .with(|c| {
                c.stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped());
            })
            .spawn()?;
        let stdout = child.stdout.take().context("output of a listener")?;
        let stderr = child.stderr.take().context("messages of a listener")?;
        let lines = [read(stdout), read(stderr)];
        Ok(Self {
            layer,
            what,
            mark,
            child,
            lines,
        })
    }

    fn stop(mut self) -> Result<Option<Complaint>> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{}: whoever listened ended: {status}", self.what);
        }
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        kill(pid, Signal::SIGTERM)?;
        self.child.wait()?;
        let mut text = String::new();
        for lines in self.lines {
            text.push_str(&lines.join().ok().context("lines of a listener")?);
        }
        let told = |line: &&str| line.starts_with(self.mark) && !of_another_namespace(line);
        let reported: Vec<&str> = text.lines().filter(told).collect();
        Ok(reported.first().map(|first| {
            let text = format!(
                "{}: {} changes: {}",
                self.what,
                reported.len(),
                first.trim()
            );
            (self.layer, text)
        }))
    }
}

fn read(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        drop(stream.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// Everything that is watched over a time.
pub(super) struct Watch {
    before: Snapshot,
    /// Per node: FRR's running configuration.
    running: BTreeMap<String, String>,
    listeners: Vec<Listener>,
}

impl Watch {
    pub(super) fn start(lab: &Lab) -> Result<Self> {
        let mut listeners = Vec::new();
        for node in &lab.nodes {
            let name = &node.name;
            let events = tool("ip")
                .words("monitor link address route rule")
                .inside(&lab.namespace(name));
            let what = format!("kernel of {name}");
            listeners.push(Listener::start(Layer::Kernel, what, "", events)?);
            let folder = text(&lab.ovs_dir(name));
            let flows = tool("ovs-ofctl")
                .args(["-O", "OpenFlow15", "monitor"])
                .args([format!("unix:{folder}/br-ex.mgmt")])
                .args(["watch:!initial"])
                .env("OVS_RUNDIR", &folder);
            let what = format!("flows of br-ex on {name}");
            listeners.push(Listener::start(Layer::Packets, what, " event=", flows)?);
        }
        // They have to be listening.
        std::thread::sleep(Duration::from_millis(300));
        Ok(Self {
            running: running(lab)?,
            before: Snapshot::take(lab)?,
            listeners,
        })
    }

    /// What happened since; the listeners first, for looking wakes nobody up then.
    pub(super) fn stop(self, lab: &Lab) -> Result<Vec<Complaint>> {
        let mut found = Vec::new();
        for listener in self.listeners {
            found.extend(listener.stop()?);
        }
        found.extend(self.before.changes(&Snapshot::take(lab)?));
        for (node, now) in running(lab)? {
            let before = self.running.get(&node).map_or("", String::as_str);
            if before != now {
                let changed = |one: &str, other: &str| {
                    let line = one.lines().find(|l| !other.lines().any(|o| o == *l));
                    line.map(str::to_owned)
                };
                let line = changed(&now, before).or_else(|| changed(before, &now));
                let line = line.unwrap_or_else(|| "order of lines".to_owned());
                let text = format!("configuration of FRR on {node} changed: `{}`", line.trim());
                found.push((Layer::Frr, text));
            }
        }
        Ok(found)
    }
}

fn running(lab: &Lab) -> Result<BTreeMap<String, String>> {
    let shown = each(&lab.nodes, |node| {
        let shown = vtysh(lab, &node.name, &["show running-config"]).run()?;
        Ok((node.name.clone(), shown))
    });
    shown.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LOG: &str = "record 0: schema: \"OVN_Southbound\"\n\nrecord 1: 2026-11-22 01:36:38.528 \"ovn-northd\"\n\
                       record 2: 2026-11-22 01:36:39.1\nrecord 3: 2026-11-22 01:36:45.2 \"ovn-controller\novn-controller: two lines\"\n\
                       record 4: 2026-11-22 01:36:46.0 \"ovs-sbctl: ovn-sbctl clear x\"\n";

    #[test]
    fn a_record_without_a_comment_counts_and_of_the_southbound_those_of_ovn_do_not() {
        assert_eq!(records(LOG, false).len(), 5);
        let others = records(LOG, true);
        assert_eq!(others.len(), 3, "{others:?}");
        assert!(others[1].starts_with("record 2"), "{others:?}");
        assert!(others[2].contains("ovn-sbctl clear"), "{others:?}");
    }

    #[test]
    fn a_write_counts_whoever_made_it_but_for_the_two_leases() {
        let event = |user: &str, resource: &str| {
            write(&json!({
                "user": {"username": user}, "verb": "patch",
                "objectRef": {"resource": resource, "name": "x"},
            }))
        };
        let manager = format!("{USERS}cluster-manager");
        assert_eq!(event(&manager, "leases"), None);
        assert_eq!(event("system:apiserver", "leases"), None);
        for (user, resource) in [
            (manager.as_str(), "nodes"),
            ("lab-admin", "nodes"),
            ("lab-admin", "leases"),
            ("system:apiserver", "nodes"),
        ] {
            assert!(event(user, resource).is_some(), "{user} {resource}");
        }
    }
}
