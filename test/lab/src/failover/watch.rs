//! When nodes were short of routes, in the kernel and in OVN.
//!
//! In: nodes, and the pod subnets that each should have a route to. Out: for each node
//! and side the spans of time in which one was missing. `ip monitor` and `ovsdb-client
//! monitor` tell each change as it happens, so looking costs nothing.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::look::{gateway_router, kernel_routes};
use crate::run::{Tool, now, tool, until};
use crate::state::{Lab, text};

/// Where routes are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The kernel's main table.
    Kernel,
    /// The gateway router in the Northbound DB.
    Ovn,
}

/// What one node has on one side, and when it had less than it should.
#[derive(Debug, Clone)]
pub(super) struct Gaps {
    /// The node.
    pub(super) node: String,
    /// Which side.
    pub(super) side: Side,
    begun: Instant,
    wanted: BTreeSet<String>,
    has: BTreeSet<String>,
    /// How many of those that are wanted are not there.
    missing: usize,
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
        let side = match self.side {
            Side::Kernel => "kernel",
            Side::Ovn => "OVN",
        };
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
    fn kernel(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let deleted = words.clone().next() == Some("Deleted");
        let prefix = words.nth(usize::from(deleted)).unwrap_or_default();
        // Of another protocol: the node's own.
        if line.contains(" proto bgp") {
            self.change(prefix, !deleted);
        }
    }

    /// A line of `ovsdb-client monitor`: rows with what happened to them.
    fn database(&mut self, line: &str, port: &str) {
        let table: Value = serde_json::from_str(line).unwrap_or(Value::Null);
        let rows = table.get("data").and_then(Value::as_array);
        for row in rows.into_iter().flatten() {
            let word = |column: usize| row.get(column).and_then(Value::as_str).unwrap_or("");
            if word(3) == port {
                self.change(word(2), matches!(word(1), "initial" | "insert" | "new"));
            }
        }
    }

    fn change(&mut self, prefix: &str, there: bool) {
        let wanted = usize::from(self.wanted.contains(prefix));
        if there && self.has.insert(prefix.to_owned()) {
            self.missing -= wanted;
        } else if !there && self.has.remove(prefix) {
            self.missing += wanted;
        }
    }
}

/// Monitors that run.
pub(super) struct Watch(Vec<(Child, Arc<Mutex<Gaps>>)>);

impl Watch {
    /// Follows these nodes; each should have routes to the pods of all others, and to what
    /// else is named. The times are told from now on.
    pub(super) fn start(lab: &Lab, nodes: &[&str], more: &[String]) -> Result<Self> {
        let mut watch = Self(Vec::new());
        for node in nodes {
            for side in [Side::Kernel, Side::Ovn] {
                watch.0.push(follow(lab, node, side, more)?);
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

    /// What they told. The monitors end.
    pub(super) fn stop(self) -> Vec<Gaps> {
        self.0
            .iter()
            .map(|(_, gaps)| locked(gaps).clone())
            .collect()
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

fn follow(lab: &Lab, node: &str, side: Side, more: &[String]) -> Result<(Child, Arc<Mutex<Gaps>>)> {
    let others = lab.nodes.iter().filter(|other| other.name != node);
    let subnets = others.filter_map(|other| lab.pod(&other.name));
    let mut gaps = Gaps {
        node: node.to_owned(),
        side,
        begun: now(),
        missing: 0,
        wanted: subnets
            .map(|pod| pod.subnet.to_string())
            .chain(more.iter().cloned())
            .collect(),
        has: BTreeSet::new(),
        spans: Vec::new(),
    };
    gaps.missing = gaps.wanted.len();
    let gaps = Arc::new(Mutex::new(gaps));
    let mut child = monitor(lab, node, side)
        .with(|c| {
            c.stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null());
        })
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().context("a monitor's output")?).lines();
    let port = format!("rtoe-{}", gateway_router(node));
    let told = Arc::clone(&gaps);
    std::thread::spawn(move || {
        for line in lines.map_while(std::result::Result::ok) {
            let mut gaps = locked(&told);
            match side {
                Side::Kernel => gaps.kernel(&line),
                Side::Ovn => gaps.database(&line, &port),
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
            gaps.change(&prefix.to_string(), true);
        }
        gaps.settle();
    }
    Ok((child, gaps))
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
mod tests {
    use super::*;

    fn gaps() -> Gaps {
        Gaps {
            node: "n1".to_owned(),
            side: Side::Kernel,
            begun: now(),
            wanted: BTreeSet::from(["10.128.1.0/24".to_owned()]),
            has: BTreeSet::from(["10.128.1.0/24".to_owned()]),
            missing: 0,
            spans: Vec::new(),
        }
    }

    #[test]
    fn a_deleted_bgp_route_opens_a_span_and_its_return_closes_it() {
        let mut gaps = gaps();
        let lines = [
            (
                "Deleted 10.9.0.0/24 dev eth0 proto kernel scope link",
                false,
            ),
            (
                "10.128.1.0/24 nhid 9 via 172.30.0.2 dev br-ex proto bgp metric 20",
                false,
            ),
            (
                "Deleted 10.128.1.0/24 nhid 9 via 172.30.0.2 dev br-ex proto bgp metric 20",
                true,
            ),
            (
                "10.128.1.0/24 nhid 10 via 172.30.0.2 dev br-ex proto bgp metric 20",
                false,
            ),
        ];
        for (line, short) in lines {
            gaps.kernel(line);
            gaps.settle();
            assert_eq!(gaps.short(), short, "{line}");
        }
        assert_eq!(gaps.spans.len(), 1);
    }

    #[test]
    fn rows_of_the_routers_outer_port_count_and_others_do_not() {
        let mut gaps = gaps();
        let row = |action: &str, port: &str| {
            format!(
                r#"{{"data":[[["uuid","1"],"{action}","10.128.1.0/24","{port}"]],"headings":[]}}"#
            )
        };
        for (action, port, short) in [
            ("delete", "rtos-n1", false),
            ("delete", "rtoe-GR_n1", true),
            ("insert", "rtoe-GR_n1", false),
            ("old", "rtoe-GR_n1", true),
            ("new", "rtoe-GR_n1", false),
        ] {
            gaps.database(&row(action, port), "rtoe-GR_n1");
            gaps.settle();
            assert_eq!(gaps.short(), short, "{action} {port}");
        }
    }
}
