//! Line 6: a further node joins and leaves.
//!
//! In: a running lab. Out: how long the new node took to reach all pods, and how long
//! until nothing of it was left in FRR, kernel and OVN of the others.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ipnet::IpNet;

use super::{Failure, Layer, Verdict, World, diagnose};
use crate::look::{frr_routes, imported, kernel_routes, sessions};
use crate::membership;
use crate::objects::{frr_configured, reported};
use crate::reach::{attached, unreached};
use crate::run::{each, now, until};
use crate::state::{Lab, Node};
use crate::up::Steps;
use crate::values::Values;

/// How long the others get to forget the node; all of them reload FRR at once on this one machine.
fn limit(lab: &Lab) -> Duration {
    let nodes = u64::try_from(lab.nodes.len()).unwrap_or(u64::MAX);
    Duration::from_secs(nodes.saturating_mul(4).saturating_add(20))
}

/// How long a report may take after what it reports; reports are written at most once a second, and all nodes share this machine.
fn report_limit(lab: &Lab) -> Duration {
    let nodes = u64::try_from(lab.nodes.len()).unwrap_or(u64::MAX);
    Duration::from_secs(nodes.saturating_add(5))
}

/// How long it may take where a write failed: one without an answer is given up after 10 s, and tried again after 30 s at most.
const RETRIED_LIMIT: Duration = Duration::from_secs(45);

/// What a node-agent logs of a write that failed.
const NOT_WRITTEN: &str = "cannot write to the API server";

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(30);

/// Line 6.
pub(super) fn and_leave(world: &mut World<'_>) -> Result<Verdict> {
    let steps = Steps::begin();
    let used: Vec<u32> = world.lab.nodes.iter().map(|node| node.index).collect();
    let index = Values::free_index(&used).context("the underlay is full")?;
    let name = world.lab.values.node_name(index);
    let patience = world.wanted.patience;
    let joined = membership::add(world.lab, &name, patience, steps)
        .and_then(|took| Ok((took, not_joined(world.lab, &name)?)));
    // Whatever came of it, the lab is left as it was found.
    let pod = world.lab.pod(&name);
    let node = Node {
        name: name.clone(),
        index,
    };
    let (neighbors, next_hops) = (world.lab.addresses(&node), world.lab.next_hops(&node));
    let unwritten = unwritten(world.lab);
    let start = now();
    membership::remove(world.lab, &name, steps)?;
    let (took, failure) = joined?;
    if let Some(failure) = failure {
        return Ok(Err(failure));
    }
    let Some(pod) = pod else {
        return Ok(Err(Failure::new(
            Layer::Lab,
            "a pod on the new node",
            "none",
        )));
    };
    let gone = Gone {
        subnets: pod.addresses.iter().map(|a| a.subnet).collect(),
        neighbors,
        next_hops,
        since: start,
        limit: patience.unwrap_or_else(|| limit(world.lab)),
        unwritten,
    };
    Ok(gone
        .forgotten_by_all(world.lab, &name)
        .map(|rest| format!("reached all pods {took:.1} s after its Node object; {rest}")))
}

fn not_joined(lab: &Lab, name: &str) -> Result<Option<Failure>> {
    let node = lab.node(name)?;
    if lab.pod(name).is_none() {
        let (layer, seen) = diagnose::missing_pod(lab, node);
        return Ok(Some(Failure::new(layer, format!("a pod on {name}"), seen)));
    }
    let missing = unreached(lab, &attached(lab), now());
    let Some((from, to)) = missing.first() else {
        return Ok(not_counted(lab, name));
    };
    let (layer, why) = diagnose::pods(lab, lab.node(from)?, lab.node(to)?);
    let seen = format!(
        "{} pairs do not, {from} -> {to} first; {why}",
        missing.len()
    );
    Ok(Some(Failure::new(
        layer,
        "all pods reach each other, the new one too",
        seen,
    )))
}

/// A node whose NodeRoutes do not count the new one in time: that they do not count it later would say nothing.
fn not_counted(lab: &Lab, name: &str) -> Option<Failure> {
    let others: Vec<&Node> = lab.nodes.iter().filter(|node| node.name != name).collect();
    let count = routes_to(lab, others.len());
    let counted = each(&others, |node| {
        let mut last = String::new();
        let done = until(report_limit(lab), PAUSE, || {
            let reported = reported(lab, &node.name);
            last = format!("{reported:?}");
            reported
                .is_ok_and(|numbers| numbers == (count, count))
                .then_some(())
        });
        done.ok_or_else(|| {
            format!(
                "NodeRoutes of {} has (expected, imported) {last}",
                node.name
            )
        })
    });
    let seen = counted.into_iter().find_map(std::result::Result::err)?;
    let expected = format!("{count} routes, that to {name} among them");
    Some(Failure::new(Layer::Object, expected, seen))
}

/// How many subnets so many nodes have.
fn routes_to(lab: &Lab, nodes: usize) -> u64 {
    let families = lab.values.families().len();
    u64::try_from(nodes.saturating_mul(families)).unwrap_or(u64::MAX)
}

/// How often each node's node-agent has logged that it could not write.
fn unwritten(lab: &Lab) -> BTreeMap<String, usize> {
    let counted = lab.nodes.iter().map(|node| {
        let log = lab.node_dir(&node.name).join("node-agent.log");
        let text = std::fs::read_to_string(log).unwrap_or_default();
        (node.name.clone(), text.matches(NOT_WRITTEN).count())
    });
    counted.collect()
}

/// The node that left, as the others know it.
struct Gone {
    subnets: Vec<IpNet>,
    neighbors: Vec<IpAddr>,
    next_hops: Vec<IpAddr>,
    since: Instant,
    limit: Duration,
    /// [`unwritten`] before it left.
    unwritten: BTreeMap<String, usize>,
}

/// Seconds until a node had no route and no neighbor of it, and until its report did not count it.
struct Forgotten {
    routes: f64,
    neighbor: f64,
    report: f64,
    /// The report took longer than it may, and a write of its node-agent had failed.
    was_retried: bool,
}

impl Gone {
    /// When no other node had anything of it any more, as one line says it.
    fn forgotten_by_all(&self, lab: &Lab, left: &str) -> Verdict {
        let (mut routes, mut rest, mut reports) = (0.0, 0.0, 0.0);
        let mut retried = Vec::new();
        let all = each(&lab.nodes, |node| self.forgotten_by(lab, node));
        for (node, forgot) in lab.nodes.iter().zip(all) {
            let took = forgot.map_err(|(layer, seen)| {
                let limit = self.limit.as_secs();
                let expected = format!("nothing of {left} on the other nodes within {limit} s");
                Failure::new(layer, expected, seen)
            })?;
            routes = f64::max(routes, took.routes);
            rest = f64::max(rest, took.neighbor);
            reports = f64::max(reports, took.report);
            if took.was_retried {
                retried.push(node.name.as_str());
            }
        }
        let mut text = format!(
            "routes gone {routes:.1} s, neighbors {rest:.1} s, of NodeRoutes {reports:.1} s after its end began"
        );
        if !retried.is_empty() {
            let names = retried.join(", ");
            text.push_str(&format!(
                " (late: a write of the node-agent of {names} to the API server failed)"
            ));
        }
        Ok(text)
    }

    /// When a node had nothing of it any more; or what it still has when the time is over. Each node is watched by itself:
    /// with many, a look at all of them takes long.
    fn forgotten_by(
        &self,
        lab: &Lab,
        node: &Node,
    ) -> std::result::Result<Forgotten, (Layer, String)> {
        let name = &node.name;
        let failed = |error: anyhow::Error| (Layer::Lab, format!("{name}: {error:#}"));
        let mut kept = Ok(None);
        let routes = until(self.limit, PAUSE, || {
            kept = self.route_on(lab, name);
            matches!(kept, Ok(None)).then(|| self.since.elapsed().as_secs_f64())
        });
        let Some(routes) = routes else {
            let layer = kept.map_err(failed)?.unwrap_or(Layer::Lab);
            return Err((
                layer,
                format!("{name} still has a route to {:?}", self.subnets),
            ));
        };
        let neighbors: Vec<String> = self.neighbors.iter().map(IpAddr::to_string).collect();
        let rest = until(self.limit, PAUSE, || {
            let clean = |all: BTreeMap<String, _>| !neighbors.iter().any(|n| all.contains_key(n));
            let clean = sessions(lab, name).is_ok_and(clean);
            clean.then(|| self.since.elapsed().as_secs_f64())
        });
        let Some(neighbor) = rest else {
            let mut all = neighbors.iter();
            let listed = all.any(|n| frr_configured(lab, name, n).unwrap_or(false));
            let layer = if listed { Layer::Object } else { Layer::Frr };
            let neighbors = neighbors.join(" or ");
            return Err((
                layer,
                format!("bgpd of {name} still has the neighbor {neighbors}"),
            ));
        };
        let (report, was_retried) = self.report_of(lab, name)?;
        Ok(Forgotten {
            routes,
            neighbor,
            report,
            was_retried,
        })
    }

    /// Seconds until the NodeRoutes of a node counted the others and no more, from when the node has nothing of it any more; and
    /// whether that took so long as it may only where a write failed meanwhile.
    fn report_of(
        &self,
        lab: &Lab,
        name: &str,
    ) -> std::result::Result<(f64, bool), (Layer, String)> {
        let others = routes_to(lab, lab.nodes.len().saturating_sub(1));
        let mut last = String::new();
        let mut within = |limit: Duration| {
            until(limit, PAUSE, || {
                let reported = reported(lab, name);
                last = format!("{reported:?}");
                reported
                    .is_ok_and(|numbers| numbers == (others, others))
                    .then(|| self.since.elapsed().as_secs_f64())
            })
        };
        if let Some(seconds) = within(report_limit(lab)) {
            return Ok((seconds, false));
        }
        let has_failed = unwritten(lab).get(name) > self.unwritten.get(name);
        if has_failed && let Some(seconds) = within(RETRIED_LIMIT) {
            return Ok((seconds, true));
        }
        let why = if has_failed {
            "although its node-agent has had time to write again"
        } else {
            "and its node-agent's log tells of no write that failed"
        };
        let text = format!(
            "NodeRoutes of {name} has (expected, imported) {last}, not {others} and no route to {:?}, {why}",
            self.subnets
        );
        Err((Layer::Object, text))
    }

    /// The first layer that still has a route to it.
    fn route_on(&self, lab: &Lab, name: &str) -> Result<Option<Layer>> {
        let hit =
            |(to, via): &(IpNet, IpAddr)| self.subnets.contains(to) || self.next_hops.contains(via);
        if frr_routes(lab, name)?.iter().any(hit) {
            return Ok(Some(Layer::Frr));
        }
        if kernel_routes(lab, name)?.iter().any(hit) {
            return Ok(Some(Layer::Kernel));
        }
        Ok(imported(lab, name)?.iter().any(hit).then_some(Layer::Ovn))
    }
}
