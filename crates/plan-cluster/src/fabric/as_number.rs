//! A change of the fabric's AS number.
//! In: the settings, the base object as it stands, objects of others. Out: the number that is in force, and why it is not the one
//! that is asked for. Invariant: while somebody else's router of a node has the old number, all of the fabric keeps it: a router
//! has one number, so such a node would load nothing any more. Not here: names of objects, which have the number in them.

use std::collections::BTreeMap;

use model::asn::Asn;
use model::frr::FrrConfiguration;
use model::{ObjectKey, Problem};

use super::base_key;
use crate::generated::is_generated;
use crate::world::{FabricSettings, World};

/// Reason of the problem.
pub const REFUSED: &str = "ASNumberRefused";

/// So many objects are named.
const NAMED: usize = 5;

/// The settings with the number that is in force, and a problem where another one is asked for.
pub(super) fn in_force(world: &World, settings: &FabricSettings) -> (FabricSettings, Vec<Problem>) {
    let standing = world.frr.get(&base_key(settings));
    let standing = standing.and_then(|base| base.as_ref().ok()?.routers.first());
    let Some(before) = standing.map(|router| router.asn) else {
        return (settings.clone(), Vec::new());
    };
    let (wanted, holders) = (settings.asn, holders(world, settings, before));
    if before == wanted || holders.is_empty() {
        return (settings.clone(), Vec::new());
    }
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

/// Objects of others with a router of this number in the default VRF, and a node that loads each.
fn holders<'a>(
    world: &'a World,
    settings: &FabricSettings,
    asn: Asn,
) -> BTreeMap<&'a ObjectKey, &'a str> {
    let has_it = |object: &FrrConfiguration| {
        let mut routers = object.routers.iter();
        routers.any(|router| router.vrf.is_empty() && router.asn == asn)
    };
    let foreign = world.frr.iter().filter_map(|(key, object)| {
        let object = object.as_ref().ok()?;
        let is_foreign = key.namespace == settings.namespace
            && *key != base_key(settings)
            && !is_generated(object);
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
