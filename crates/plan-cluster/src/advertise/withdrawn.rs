//! What stays as it is loses, beside OVN-Kubernetes, the pods that its node takes no packets for any more.
//! In: drafts that have been checked. Out: drafts in which no object announces such pods, whatever it is kept for.
//! Invariant: nothing else of an object changes; one of a RouteAdvertisements that announces nothing any more goes.
//! Not here: what is made anew (`maker` leaves such pods out by itself).

use std::collections::BTreeSet;
use std::sync::Arc;

use model::frr::{Advertise, FrrConfiguration};
use model::{NodeName, ObjectKey, Prefix};

use super::draft::Draft;
use crate::generated::{Generated, Vrfs};
use crate::world::World;

/// Takes them out of everything that stays.
pub(super) fn take_out<'d, 'a: 'd>(
    world: &'a World,
    drafts: impl Iterator<Item = &'d mut Draft<'a>>,
) {
    if !world.beside {
        return;
    }
    let vrfs = Vrfs::of(world);
    for draft in drafts {
        let is_fabric = draft.fabric.is_some();
        let staying = draft.owned.iter().filter(|o| draft.keep.contains(o.key));
        let without = |o: &Generated<'a>| {
            let vain = in_vain(world, &vrfs, o);
            let object = o.object().filter(|_| !vain.is_empty())?;
            Some((o.key.clone(), pruned(object, &vain)))
        };
        let changed: Vec<(ObjectKey, FrrConfiguration)> = staying.filter_map(without).collect();
        for (key, object) in changed {
            draft.keep.remove(&key);
            let announces = object
                .routers
                .iter()
                .any(|router| !router.prefixes.is_empty());
            // That of the fabric is the node's sessions, too.
            if announces || is_fabric {
                draft.desired.insert(key, Arc::new(object));
            }
        }
    }
}

/// Prefixes of pods of networks that the object's node takes no packets for. Where there is no such Node, it takes none.
fn in_vain<'a>(world: &'a World, vrfs: &Vrfs<'a>, object: &Generated<'a>) -> BTreeSet<Prefix> {
    let node = object.node().map(NodeName::from);
    let node = node.and_then(|name| world.nodes.get(&name));
    let originated = object.originated(vrfs).into_iter();
    let takes = |network| node.is_some_and(|node| node.underlay_ready.contains_key(network));
    let vain = originated.filter(|(network, _)| !takes(*network));
    vain.map(|(_, prefix)| prefix).collect()
}

fn pruned(object: &FrrConfiguration, vain: &BTreeSet<Prefix>) -> FrrConfiguration {
    let mut object = object.clone();
    let keep = |list: &mut Vec<Prefix>| list.retain(|prefix| !vain.contains(prefix));
    for router in &mut object.routers {
        keep(&mut router.prefixes);
        for neighbor in &mut router.neighbors {
            let Advertise {
                prefixes,
                local_prefs,
                communities,
                ..
            } = &mut neighbor.advertise;
            keep(prefixes);
            local_prefs.iter_mut().for_each(|(_, list)| keep(list));
            communities.iter_mut().for_each(|(_, list)| keep(list));
            local_prefs.retain(|(_, list)| !list.is_empty());
            communities.retain(|(_, list)| !list.is_empty());
        }
    }
    object
}
