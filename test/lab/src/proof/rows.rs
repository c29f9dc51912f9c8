//! Line 5: what the Northbound DB of each node must hold.
//!
//! In: nodes and their subnets. Out: whether each gateway router has exactly one
//! marked route per remote subnet, no transit switch is there, and what translates
//! (a row, or the packet filter in local gateway mode) exempts the pods.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::{Failure, Layer, Verdict, World, diagnose, lonely};
use crate::beside::unsteered;
use crate::look::{gateway_router, imported, router_rows, rows, word};
use crate::reach::{Attached, attached};
use crate::run::each;
use crate::state::Lab;

/// Line 5.
pub(super) fn right(world: &mut World<'_>) -> Result<Verdict> {
    let lab = &*world.lab;
    if let Some(failure) = lonely(lab) {
        return Ok(Err(failure));
    }
    if lab.is_steered() {
        let missing = unsteered(lab)?;
        if missing.is_empty() {
            return Ok(Ok(format!("{} nodes", lab.nodes.len())));
        }
        let expected = "a policy, and all remote subnets in its sets, on each node";
        let seen = missing.join("; ");
        return Ok(Err(Failure::new(Layer::Ovn, expected, seen)));
    }
    let pods = attached(lab);
    if pods.len() != lab.nodes.len() {
        let missing = lab
            .nodes
            .iter()
            .find(|node| !pods.iter().any(|(have, _)| have == *node));
        let (layer, seen) = match missing {
            Some(node) => diagnose::missing_pod(lab, node),
            None => (Layer::Lab, "no nodes".to_owned()),
        };
        return Ok(Err(Failure::new(layer, "a subnet on every node", seen)));
    }
    for state in each(&pods, |pod| node(lab, &pods, pod)) {
        if let Err(failure) = state? {
            return Ok(Err(failure));
        }
    }
    let families = lab.values.families().len();
    let others = pods.len().saturating_sub(1) * families;
    let limits = match limits(lab)? {
        Ok(limits) => limits,
        Err(failure) => return Ok(Err(failure)),
    };
    Ok(Ok(format!(
        "{} nodes, {others} imported routes on each, SNAT by {limits}",
        pods.len()
    )))
}

/// Which columns say what the gateway routers' SNAT rows of pods translate: by outbound SNAT, gateway mode and schema it is another,
/// and the same on every node.
fn limits(lab: &Lab) -> Result<std::result::Result<String, Failure>> {
    let clusters = lab.values.default_network()?.ranges.iter();
    let clusters: Vec<String> = clusters.map(|range| range.subnet.to_string()).collect();
    let mut all = BTreeMap::new();
    for node in &lab.nodes {
        let router = gateway_router(&node.name);
        let rows = router_rows(lab, &node.name, &router, "nat", "nat")?;
        let of_pods = rows
            .iter()
            .filter(|row| clusters.contains(&word(row, "logical_ip")));
        let columns = ["exempted_ext_ips", "allowed_ext_ips", "match"];
        let used = of_pods.flat_map(|row| {
            let columns = columns.into_iter();
            columns.filter(|column| !word(row, column).is_empty())
        });
        let used: BTreeSet<&str> = used.collect();
        let used: Vec<&str> = used.into_iter().collect();
        all.insert(node.name.clone(), used.join(", "));
    }
    let different: BTreeSet<&String> = all.values().collect();
    // Of an overlay all that leaves is translated.
    let may_be_empty = lab.outward.is_overlay();
    let is_one = |one: &&&String| different.len() == 1 && (may_be_empty || !one.is_empty());
    let one = different.first().filter(is_one);
    let filter = if lab.outward.is_local() {
        " and nftables"
    } else {
        ""
    };
    Ok(match one {
        Some(one) => Ok(format!("{one}{filter}")),
        None => Err(Failure::new(
            Layer::Ovn,
            "the same columns of NAT on each node that limit the SNAT rows of pods",
            format!("{all:?}"),
        )),
    })
}

fn node(lab: &Lab, pods: &[Attached], (node, _): &Attached) -> Result<Verdict> {
    let name = &node.name;
    // Counted, because a route that is there twice is one too many.
    let mut seen = BTreeMap::new();
    for route in imported(lab, name)? {
        *seen.entry(route).or_insert(0) += 1;
    }
    let others = pods.iter().filter(|(other, _)| other != node);
    let mut wanted: BTreeMap<_, i32> = BTreeMap::new();
    for (other, pod) in others.clone() {
        for a in &pod.addresses {
            let via = lab.values.address_of(other.index, a.family())?;
            wanted.insert((a.subnet, via), 1);
        }
    }
    if seen != wanted {
        let expected = format!(
            "on GR_{name} one imported route for each of {:?}",
            wanted.keys()
        );
        for (other, _) in others {
            if let Some((layer, why)) = diagnose::route(lab, node, other)? {
                return Ok(Err(Failure::new(layer, expected, why)));
            }
        }
        return Ok(Err(Failure::new(
            Layer::Ovn,
            expected,
            format!("routes and how often: {seen:?}"),
        )));
    }
    let transit = rows(lab, name, "logical_switch", &["name=transit_switch"])?;
    if !transit.is_empty() {
        let seen = format!("{name} has a switch transit_switch");
        return Ok(Err(Failure::new(Layer::Ovn, "no transit switch", seen)));
    }
    if let Some((layer, seen)) = diagnose::exemption(lab, node)? {
        let expected = "pods exempt from translation on the way to pods";
        return Ok(Err(Failure::new(layer, expected, seen)));
    }
    Ok(Ok(String::new()))
}
