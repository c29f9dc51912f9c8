//! A change of the fabric's AS number.
//! In: the settings, the fabric's objects as they stand, objects of others. Out: the number that is in force, and why it is not the one
//! that is asked for. Invariant: while somebody else's router of a node has the old number, all of the fabric keeps it: a router
//! has one number, so such a node would load nothing any more. Not here: names of objects, which have the number in them.

use std::collections::{BTreeMap, BTreeSet};

use model::asn::Asn;
use model::frr::FrrConfiguration;
use model::{ObjectKey, Problem};

use super::{base_key, base_name, managed_networks};
use crate::generated::{self, is_ours, label_value, own_vrf, vrf_of};
use crate::world::{FabricSettings, World};

/// Reason of the problem.
pub const REFUSED: &str = "ASNumberRefused";

/// So many objects are named.
const NAMED: usize = 5;

/// The settings with the number that is in force, and a problem where another one is asked for.
pub(super) fn in_force(world: &World, settings: &FabricSettings) -> (FabricSettings, Vec<Problem>) {
    let wanted = settings.asn;
    let standing = numbers(world);
    if standing.contains(&wanted) {
        // The change is under way, or over.
        return (settings.clone(), Vec::new());
    }
    let held = standing
        .into_iter()
        .map(|before| (before, holders(world, settings, before)));
    let Some((before, holders)) = held.into_iter().find(|(_, holders)| !holders.is_empty()) else {
        return (settings.clone(), Vec::new());
    };
    let problems = holders.iter().take(NAMED).map(|(key, node)| {
        let text = format!(
            "as-number {wanted} of the managed BGP fabric is refused, {before} stays in force: FRRConfiguration {key} has a router with AS number {before} on node {node}; delete it or give it {wanted} first"
        );
        Problem::new(format!("Node/{node}"), REFUSED, text)
    });
    let problems = problems.collect();
    let in_force = FabricSettings {
        asn: before,
        ..settings.clone()
    };
    (in_force, problems)
}

/// The numbers that nodes have of the fabric: those of the routers in their own objects. What the base object says, which no node
/// loads, may have been edited.
fn numbers(world: &World) -> BTreeSet<Asn> {
    let label = label_value(&base_name());
    let owned = generated::all(world).filter(|o| o.is_ours() && o.label() == Some(&label));
    let routers = owned
        .filter_map(|o| o.object())
        .flat_map(|object| &object.routers);
    let numbers = routers.filter(|router| router.vrf.is_empty());
    numbers.map(|router| router.asn).collect()
}

/// Objects of others with a router of this number in a VRF that the fabric has one in, and a node that loads each.
fn holders<'a>(
    world: &'a World,
    settings: &FabricSettings,
    asn: Asn,
) -> BTreeMap<&'a ObjectKey, &'a str> {
    let vrfs: BTreeSet<String> = managed_networks(world).into_iter().map(own_vrf).collect();
    let has_it = |object: &FrrConfiguration| {
        let mut routers = object.routers.iter();
        routers.any(|router| {
            let ours = router.vrf.is_empty() || vrfs.contains(vrf_of(router));
            ours && router.asn == asn
        })
    };
    let foreign = world.frr.iter().filter_map(|(key, object)| {
        let object = object.as_ref().ok()?;
        let is_foreign =
            key.namespace == settings.namespace && *key != base_key(settings) && !is_ours(object);
        (is_foreign && has_it(object)).then_some((key, object))
    });
    let on_a_node = foreign.filter_map(|(key, object)| {
        let mut nodes = world.nodes.values();
        let node = nodes.find(|node| object.node_selector.matches(&node.labels))?;
        Some((key, node.name.as_str()))
    });
    on_a_node.collect()
}

#[cfg(test)]
mod tests;
