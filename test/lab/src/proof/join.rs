//! Line 6: a further node joins and leaves.
//!
//! In: a running lab. Out: how long the new node took to reach all pods, and how long
//! until nothing of it was left in FRR, kernel and OVN of the others.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use ipnet::Ipv4Net;

use super::{Failure, Layer, Verdict, World, diagnose};
use crate::look::{frr_routes, imported, kernel_routes, sessions};
use crate::membership;
use crate::objects::frr_configured;
use crate::reach::{attached, unreached};
use crate::run::{each, now, until};
use crate::state::{Lab, Node};
use crate::up::Steps;
use crate::values::Values;

/// How long the others get to forget the node.
const LIMIT: Duration = Duration::from_secs(30);

/// Line 6.
pub(super) fn and_leave(world: &mut World<'_>) -> Result<Verdict> {
    let steps = Steps::begin();
    let used: Vec<u32> = world.lab.nodes.iter().map(|node| node.index).collect();
    let index = Values::free_index(&used).context("the underlay is full")?;
    let name = world.lab.values.node_name(index);
    let joined = membership::add(world.lab, &name, steps)
        .and_then(|took| Ok((took, not_joined(world.lab, &name)?)));
    // Whatever came of it, the lab is left as it was found.
    let subnet = world.lab.pod(&name).map(|pod| pod.subnet);
    let address = world.lab.values.node_address(index);
    let start = now();
    membership::remove(world.lab, &name, steps)?;
    let (took, failure) = joined?;
    if let Some(failure) = failure {
        return Ok(Err(failure));
    }
    let Some(subnet) = subnet else {
        return Ok(Err(Failure::new(
            Layer::Lab,
            "a pod on the new node",
            "none",
        )));
    };
    let mut left = None;
    let mut routes_gone = None;
    let clean = until(LIMIT, Duration::from_millis(20), || {
        left = leftover(world.lab, subnet, address);
        if routes_gone.is_none()
            && left
                .as_ref()
                .is_none_or(|(layer, _)| *layer == Layer::Object)
        {
            routes_gone = Some(start.elapsed());
        }
        left.is_none().then(|| start.elapsed())
    });
    let (Some(clean), Some(routes)) = (clean, routes_gone) else {
        let expected = format!(
            "nothing of {name} on the other nodes within {} s",
            LIMIT.as_secs()
        );
        let (layer, seen) = left.unwrap_or((Layer::Lab, String::new()));
        return Ok(Err(Failure::new(layer, expected, seen)));
    };
    Ok(Ok(format!(
        "reached all pods {took:.1} s after its Node object; routes gone {:.1} s, sessions and objects {:.1} s after its end began",
        routes.as_secs_f64(),
        clean.as_secs_f64()
    )))
}

fn not_joined(lab: &Lab, name: &str) -> Result<Option<Failure>> {
    let node = lab.node(name)?;
    if lab.pod(name).is_none() {
        let (layer, seen) = diagnose::missing_pod(lab, node);
        return Ok(Some(Failure::new(layer, format!("a pod on {name}"), seen)));
    }
    let missing = unreached(lab, &attached(lab), now());
    let Some((from, to)) = missing.first() else {
        return Ok(None);
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

/// What the nodes still have of the one that left: routes first, then the rest.
fn leftover(lab: &Lab, subnet: Ipv4Net, address: Ipv4Addr) -> Option<(Layer, String)> {
    let all: Vec<Vec<(Layer, String)>> = each(&lab.nodes, |node| {
        let found = leftover_on(lab, node, subnet, address);
        found.unwrap_or_else(|error| vec![(Layer::Lab, format!("{error:#}"))])
    });
    let mut all: Vec<(Layer, String)> = all.into_iter().flatten().collect();
    // Objects last: they are no longer in the way of a packet.
    all.sort_by_key(|(layer, _)| *layer == Layer::Object);
    all.into_iter().next()
}

fn leftover_on(
    lab: &Lab,
    node: &Node,
    subnet: Ipv4Net,
    address: Ipv4Addr,
) -> Result<Vec<(Layer, String)>> {
    let name = &node.name;
    let mut found = Vec::new();
    let hit = |route: &(Ipv4Net, Ipv4Addr)| route.0 == subnet || route.1 == address;
    if frr_routes(lab, name)?.iter().any(hit) {
        found.push((Layer::Frr, format!("bgpd of {name} still has {subnet}")));
    }
    if kernel_routes(lab, name)?.iter().any(hit) {
        found.push((
            Layer::Kernel,
            format!("{name} still has a route to {subnet}"),
        ));
    }
    if imported(lab, name)?.iter().any(hit) {
        found.push((Layer::Ovn, format!("GR_{name} still has {subnet}")));
    }
    // A session that is still configured counts as what the objects left behind.
    if found.is_empty() && sessions(lab, name)?.contains_key(&address.to_string()) {
        let configured = frr_configured(lab, name, &address.to_string())?;
        let why = if configured {
            "an FRRConfiguration lists it"
        } else {
            "no FRRConfiguration lists it"
        };
        found.push((
            Layer::Object,
            format!("bgpd of {name} still has the neighbor {address}; {why}"),
        ));
    }
    Ok(found)
}
