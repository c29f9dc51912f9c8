//! When nodes were short of routes, in the kernel and in OVN.
//!
//! In: nodes, and the pod subnets that each should have a route to. Out: for each node
//! and side the spans of time in which one was missing. `ip monitor` and `ovsdb-client
//! monitor` tell each change as it happens, so looking costs nothing. A monitor that ends
//! or tells what cannot be read is an error, and a row that is deleted by hand shows that
//! its deletion is seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use serde_json::Value;

use crate::look::{gateway_router, kernel_routes};
use crate::node::ovs::nbctl;
use crate::run::{Tool, now, of_another_namespace, tool, until};
use crate::state::{Lab, text};

/// Where routes are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The kernel's main table.
    Kernel,
    /// The gateway router in the Northbound DB.
    Ovn,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Ovn => "OVN",
        })
    }
}

/// How soon the agent puts a row back that was deleted by hand.
const CONTROL: Duration = Duration::from_secs(10);

/// What one node has on one side, and when it had less than it should.
#[derive(Debug, Clone)]
pub(super) struct Gaps {
    /// The node.
    pub(super) node: String,
    /// Which side.
    pub(super) side: Side,
    begun: Instant,
    wanted: BTreeSet<String>,
    /// Prefix by row of the database; by itself in the kernel.
    has: BTreeMap<String, String>,
    /// How many rows have a prefix.
    count: BTreeMap<String, usize>,
    /// How many of those that are wanted are not there.
    missing: usize,
    /// What could not be read.
    unread: Option<String>,
    /// Each begins with the first route that is missing, and ends with the last that is back.
    spans: Vec<(Instant, Option<Instant>)>,
}

impl Gaps {
    /// When a route was missing first.
    pub(super) fn first(&self) -> Option<Instant> {
        self.spans.first().map(|(from, _)| *from)
    }

    /// Is a route missing now?
    fn short(&self) -> bool {
        self.spans.last().is_some_and(|(_, to)| to.is_none())
    }

    /// How often a route was missing.
    pub(super) fn times(&self) -> usize {
        self.spans.len()
    }

    /// A phrase.
    pub(super) fn shown(&self) -> String {
        let at = |moment: Instant| moment.saturating_duration_since(self.begun).as_secs_f64();
        let span = |(from, to): &(Instant, Option<Instant>)| match to {
            Some(to) => format!("from {:.2} s to {:.2} s", at(*from), at(*to)),
            None => format!("from {:.2} s on", at(*from)),
        };
        let side = self.side;
        if self.spans.is_empty() {
            return format!("{side} of {} was never short of routes", self.node);
        }
        let spans: Vec<String> = self.spans.iter().map(span).collect();
        format!(
            "{side} of {} was short of routes {}",
            self.node,
            spans.join(", ")
        )
    }

    fn settle(&mut self) {
        let whole = self.missing == 0;
        match (whole, self.short()) {
            (false, false) => self.spans.push((now(), None)),
            (true, true) => {
                if let Some(last) = self.spans.last_mut() {
                    last.1 = Some(now());
                }
            }
            _ => {}
        }
    }

    /// A line of `ip monitor`: a route, or one that is deleted.
    fn kernel(&mut self, line: &str) -> Option<()> {
        // Of another protocol: the node's own.
        if !line.contains(" proto bgp") {
            return Some(());
        }
        let mut words = line.split_whitespace();
        let deleted = words.clone().next() == Some("Deleted");
        let prefix = words.nth(usize::from(deleted))?;
        let address = prefix.parse::<IpAddr>().map(IpNet::from);
        prefix.parse::<IpNet>().ok().or(address.ok())?;
        self.gone(prefix);
        if !deleted {
            self.there(prefix, prefix);
        }
        Some(())
    }

    /// A line of `ovsdb-client monitor`: rows with what happened to them. The server may tell of two transactions in one
    /// line: what is deleted and inserted in it counts as having been away.
    fn database(&mut self, line: &str, port: &str) -> Option<()> {
        let table: Value = serde_json::from_str(line).ok()?;
        let rows = table.get("data")?.as_array()?;
        let word = |row: &Value, column: usize| Some(row.get(column)?.as_str()?.to_owned());
        for row in rows {
            if word(row, 1)? == "delete" {
                self.gone(&word(row, 0)?);
            }
        }
        self.settle();
        let mut changed = String::new();
        for row in rows {
            let action = word(row, 1)?;
            // What a row was, and then without its id what it is.
            if action != "new" {
                changed = word(row, 0)?;
            }
            match action.as_str() {
                "delete" => {}
                "old" => self.gone(&changed),
                "initial" | "insert" | "new" => {
                    if word(row, 3).as_deref() == Some(port) {
                        self.there(&changed, &word(row, 2)?);
                    }
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn there(&mut self, id: &str, prefix: &str) {
        self.has.insert(id.to_owned(), prefix.to_owned());
        let count = self.count.entry(prefix.to_owned()).or_default();
        *count += 1;
        if *count == 1 && self.wanted.contains(prefix) {
            self.missing -= 1;
        }
    }

    fn gone(&mut self, id: &str) {
        let Some(prefix) = self.has.remove(id) else {
            return;
        };
        let count = self.count.entry(prefix.clone()).or_default();
        *count = count.saturating_sub(1);
        if *count == 0 && self.wanted.contains(&prefix) {
            self.missing += 1;
        }
    }
}

/// Monitors that run.
pub(super) struct Watch(Vec<(Child, Arc<Mutex<Gaps>>)>);

impl Watch {
    /// Follows these nodes; each should have routes to the pods of all others, and to what
    /// else is named. The times are distinguished from now on.
    pub(super) fn start(lab: &Lab, nodes: &[&str], more: &[String]) -> Result<Self> {
        let all: Vec<&str> = lab.nodes.iter().map(|n| n.name.as_str()).collect();
        Self::of(lab, nodes, &all, more)
    }

    /// Follows these nodes; each should have routes to the pods of the others of them.
    pub(super) fn between(lab: &Lab, nodes: &[&str]) -> Result<Self> {
        Self::of(lab, nodes, nodes, &[])
    }

    fn of(lab: &Lab, nodes: &[&str], to: &[&str], more: &[String]) -> Result<Self> {
        let mut watch = Self(Vec::new());
        for node in nodes {
            let others = to.iter().filter(|other| *other != node);
            let pods = others.filter_map(|other| lab.pod(other));
            let subnets = pods.flat_map(|pod| pod.addresses);
            let wanted = subnets.map(|own| own.subnet.to_string());
            let wanted: BTreeSet<String> = wanted.chain(more.iter().cloned()).collect();
            for side in [Side::Kernel, Side::Ovn] {
                watch.0.push(follow(lab, node, side, wanted.clone())?);
            }
        }
        let complete = until(Duration::from_secs(3), Duration::from_millis(10), || {
            watch.0.iter().all(|(_, g)| whole(g)).then_some(())
        });
        if complete.is_none() {
            let short = watch.0.iter().find(|(_, gaps)| !whole(gaps));
            let text = short.map(|(_, gaps)| locked(gaps).shown());
            bail!("before anything is broken: {}", text.unwrap_or_default());
        }
        for (_, gaps) in &watch.0 {
            let mut gaps = locked(gaps);
            gaps.spans.clear();
            gaps.begun = now();
        }
        Ok(watch)
    }

    /// Is every node short of routes on both sides right now?
    pub(super) fn all_short(&self) -> bool {
        self.0.iter().all(|(_, gaps)| locked(gaps).short())
    }

    /// Deletes a row that every gap would show in, and wants to see it go and come back, once. It is not reported later.
    pub(super) fn control(&self, lab: &Lab, node: &str) -> Result<()> {
        let of_rows = |(_, gaps): &&(Child, Arc<Mutex<Gaps>>)| {
            let gaps = locked(gaps);
            gaps.node == node && gaps.side == Side::Ovn
        };
        let (_, gaps) = self.0.iter().find(of_rows).context("rows are followed")?;
        let (before, short, prefix) = {
            let gaps = locked(gaps);
            let first = gaps.wanted.first().cloned();
            (gaps.times(), gaps.short(), first.context("no route")?)
        };
        if short {
            // It has been seen by itself.
            return Ok(());
        }
        nbctl(lab, node)
            .args(["lr-route-del", &gateway_router(node), &prefix])
            .run()?;
        let seen = until(CONTROL, Duration::from_millis(10), || {
            let gaps = locked(gaps);
            (gaps.times() > before && !gaps.short()).then_some(())
        });
        let mut gaps = locked(gaps);
        if seen.is_none() || gaps.times() != before + 1 {
            let spans = gaps.times() - before;
            let now = if gaps.short() { "away" } else { "there" };
            bail!(
                "{prefix} was deleted from the OVN of {node}: seen to go {spans} times, and it is {now} {} s later",
                CONTROL.as_secs()
            );
        }
        gaps.spans.truncate(before);
        Ok(())
    }

    /// What they reported. The monitors end, which they have not done before.
    pub(super) fn stop(mut self) -> Result<Vec<Gaps>> {
        let mut reported = Vec::new();
        for (child, gaps) in &mut self.0 {
            let gaps = locked(gaps).clone();
            let what = format!("whoever follows {} of {}", gaps.side, gaps.node);
            if let Some(status) = child.try_wait()? {
                bail!("{what} has ended: {status}");
            }
            if let Some(line) = &gaps.unread {
                bail!("{what} says what cannot be read: {line}");
            }
            reported.push(gaps);
        }
        Ok(reported)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            // It may have ended by itself; there is nothing to do then.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn locked(gaps: &Mutex<Gaps>) -> std::sync::MutexGuard<'_, Gaps> {
    gaps.lock().unwrap_or_else(PoisonError::into_inner)
}

fn whole(gaps: &Mutex<Gaps>) -> bool {
    locked(gaps).missing == 0
}

fn follow(
    lab: &Lab,
    node: &str,
    side: Side,
    wanted: BTreeSet<String>,
) -> Result<(Child, Arc<Mutex<Gaps>>)> {
    let gaps = Gaps {
        node: node.to_owned(),
        side,
        begun: now(),
        missing: wanted.len(),
        wanted,
        has: BTreeMap::new(),
        count: BTreeMap::new(),
        unread: None,
        spans: Vec::new(),
    };
    let gaps = Arc::new(Mutex::new(gaps));
    let mut child = monitor(lab, node, side)
        .with(|c| {
            c.stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
        })
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().context("a monitor's output")?).lines();
    let stderr = child.stderr.take().context("a monitor's messages")?;
    complaints(stderr, Arc::clone(&gaps));
    let port = format!("rtoe-{}", gateway_router(node));
    let reported = Arc::clone(&gaps);
    std::thread::spawn(move || {
        for line in lines {
            let mut gaps = locked(&reported);
            let read = match (&line, side) {
                (Ok(line), Side::Kernel) => gaps.kernel(line),
                (Ok(line), Side::Ovn) => gaps.database(line, &port),
                (Err(_), _) => None,
            };
            if read.is_none() {
                let line = line.unwrap_or_else(|error| error.to_string());
                gaps.unread.get_or_insert(line);
            }
            gaps.settle();
        }
    });
    if side == Side::Kernel {
        // The monitor tells changes only; it listens before this look.
        std::thread::sleep(Duration::from_millis(50));
        let routes = kernel_routes(lab, node)?;
        let mut gaps = locked(&gaps);
        for (prefix, _) in routes {
            let prefix = prefix.to_string();
            gaps.gone(&prefix);
            gaps.there(&prefix, &prefix);
        }
        gaps.settle();
    }
    Ok((child, gaps))
}

/// What a monitor complains of (events that were lost) is as bad as a line that cannot be read.
fn complaints(stderr: impl Read + Send + 'static, gaps: Arc<Mutex<Gaps>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let lines = BufReader::new(stderr).lines();
        let lines = lines.map_while(std::result::Result::ok);
        for line in lines.filter(|line| !of_another_namespace(line)) {
            locked(&gaps).unread.get_or_insert(line);
        }
    })
}

fn monitor(lab: &Lab, node: &str, side: Side) -> Tool {
    match side {
        Side::Kernel => tool("ip").args(["-n", &lab.namespace(node), "-o", "monitor", "route"]),
        Side::Ovn => {
            let socket = lab.ovs_dir(node).join("ovnnb_db.sock");
            tool("ovsdb-client").args([
                "--format=json",
                "monitor",
                &format!("unix:{}", text(&socket)),
                "OVN_Northbound",
                "Logical_Router_Static_Route",
                "ip_prefix,output_port",
            ])
        }
    }
}

#[cfg(test)]
mod tests;
