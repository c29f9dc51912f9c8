//! Line 8: a node withdraws its subnet and brings it back.
//!
//! In: a running lab. Out: how long the others took to drop the route, whether their
//! pods' packets for it left anywhere, and whether all was as before afterwards. The
//! node's own applier is frozen meanwhile, because it may mend what is done here.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::capture::Capture;
use super::{Failure, Layer, Verdict, World, diagnose};
use crate::look::{Routes, frr_routes, imported, kernel_routes};
use crate::node::frr::vtysh;
use crate::node::link::BRIDGE;
use crate::process;
use crate::reach::{attached, unreached};
use crate::run::{each, now, tool, until};
use crate::state::{Lab, Node, Pod};

/// How long the others may still have the route.
const LIMIT: Duration = Duration::from_secs(2);
/// How long the way back may take.
const BACK: Duration = Duration::from_secs(10);

/// Line 8.
pub(super) fn and_restore(world: &mut World<'_>) -> Result<Verdict> {
    let lab = &*world.lab;
    let pods = attached(lab);
    let (node, pod) = pods.first().context("no pod is attached")?;
    let others: Vec<&Node> = lab.nodes.iter().filter(|other| *other != node).collect();
    let running = vtysh(lab, &node.name, &["show running-config"]).run()?;
    let statement = format!("network {}", pod.subnet);
    if !running.lines().any(|line| line.trim() == statement) {
        let seen = format!("bgpd of {} has no `{statement}`", node.name);
        return Ok(Err(Failure::new(
            Layer::Frr,
            "each node announces its subnet",
            seen,
        )));
    }
    let applier = process::record(lab, &node.name, lab.applier()).ok();
    if let Some(record) = &applier {
        process::send(record, Signal::SIGSTOP)?;
    }
    let withdrawn = announce(lab, node, &format!("no {statement}"))
        .and_then(|()| gone(lab, &others, node, pod));
    let restored = announce(lab, node, &statement);
    if let Some(record) = &applier {
        process::send(record, Signal::SIGCONT)?;
    }
    restored?;
    let start = now();
    let missing = unreached(lab, &pods, start + BACK);
    let seconds = match withdrawn? {
        Ok(seconds) => seconds,
        Err(failure) => return Ok(Err(failure)),
    };
    if let Some((from, to)) = missing.first() {
        let (layer, why) = diagnose::pods(lab, lab.node(from)?, lab.node(to)?);
        let expected = format!(
            "all pods reach each other again within {} s",
            BACK.as_secs()
        );
        return Ok(Err(Failure::new(
            layer,
            expected,
            format!("{from} -> {to}: no answer; {why}"),
        )));
    }
    let back = start.elapsed().as_secs_f64();
    for other in others {
        if let Some((layer, why)) = diagnose::route(lab, other, node)? {
            return Ok(Err(Failure::new(
                layer,
                "every layer as it was before",
                why,
            )));
        }
    }
    Ok(Ok(format!(
        "gone everywhere after {seconds:.2} s, reached again {back:.2} s after its return"
    )))
}

fn announce(lab: &Lab, node: &Node, statement: &str) -> Result<()> {
    let router = format!("router bgp {}", lab.values.as_number);
    let commands = [
        "configure terminal",
        &router,
        "address-family ipv4 unicast",
        statement,
    ];
    vtysh(lab, &node.name, &commands).run().map(drop)
}

/// Seconds until no other node had the route; then, whether their packets stay inside.
fn gone(
    lab: &Lab,
    others: &[&Node],
    node: &Node,
    pod: &Pod,
) -> Result<std::result::Result<f64, Failure>> {
    let start = now();
    // Each node is watched by itself: with many, a look at all of them takes long.
    let dropped: Vec<Option<f64>> = each(others, |other| {
        until(LIMIT, Duration::from_millis(10), || {
            let rows = imported(lab, &other.name).ok()?;
            let clean = rows.iter().all(|(subnet, _)| *subnet != pod.subnet);
            clean.then(|| start.elapsed().as_secs_f64())
        })
    });
    if let Some((other, _)) = others.iter().zip(&dropped).find(|(_, gone)| gone.is_none()) {
        let (subnet, limit) = (pod.subnet, LIMIT.as_secs());
        let expected = format!("no route to the withdrawn {subnet} after {limit} s");
        let (layer, seen) = keeps(lab, other, pod);
        return Ok(Err(Failure::new(layer, expected, seen)));
    }
    let seconds = dropped.into_iter().flatten().fold(0.0, f64::max);
    let filter = format!("dst host {}", pod.address);
    let capture = Capture::start(&lab.namespace("underlay"), BRIDGE, &[], &filter)?;
    each(others, |other| {
        let ping = tool("ping").words(&format!("-n -q -c 3 -i 0.2 -W 0.3 {}", pod.address));
        ping.inside(&lab.pod_namespace(&other.name))
            .output()
            .map(drop)
    })
    .into_iter()
    .collect::<Result<Vec<()>>>()?;
    let packets = capture
        .stop()?
        .lines()
        .filter(|line| line.contains(" IP "))
        .count();
    if packets > 0 {
        let expected = format!(
            "no packet for the withdrawn pod of {} on the underlay",
            node.name
        );
        return Ok(Err(Failure::new(
            Layer::Packets,
            expected,
            format!("{packets} packets"),
        )));
    }
    Ok(Ok(seconds))
}

/// At which layer a node is the first to keep the route.
fn keeps(lab: &Lab, other: &Node, pod: &Pod) -> (Layer, String) {
    let name = &other.name;
    let has = |routes: Result<Routes>| {
        routes.is_ok_and(|routes| routes.iter().any(|(subnet, _)| *subnet == pod.subnet))
    };
    let layer = if has(frr_routes(lab, name)) {
        Layer::Frr
    } else if has(kernel_routes(lab, name)) {
        Layer::Kernel
    } else {
        Layer::Ovn
    };
    (layer, format!("{name} still has a route to {}", pod.subnet))
}
