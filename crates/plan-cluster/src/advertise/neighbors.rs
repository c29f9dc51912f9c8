//! A neighbor of a source as a node gets it: what it announces, what it takes.
//! In: the source's neighbor, the node's prefixes, what is taken. Out: a neighbor. Invariant: the session is the source's, untouched.
//! Not here: which neighbors a node gets.

use model::Prefix;
use model::address::Family;
use model::frr::{Advertise, Neighbor, Receive};

/// A source's neighbor as the node gets it; `None` where nothing can be announced to it.
pub(super) fn neighbor(
    source: &Neighbor,
    prefixes: &[Prefix],
    receive: Receive,
) -> Option<Neighbor> {
    let family = source.peer.ip().map(Family::of);
    let announced: Vec<Prefix> = prefixes
        .iter()
        .copied()
        .filter(|p| family.is_none_or(|f| p.family() == f))
        .collect();
    if announced.is_empty() {
        return None;
    }
    Some(Neighbor {
        peer: source.peer.clone(),
        session: source.session.clone(),
        advertise: Advertise {
            all: false,
            next_hops: Vec::new(),
            local_prefs: covered(&source.advertise.local_prefs, &announced),
            communities: covered(&source.advertise.communities, &announced),
            prefixes: announced,
        },
        receive,
        disable_mp: source.disable_mp,
        address_families: source.address_families.clone(),
    })
}

/// Entries whose prefixes cover an announced one, narrowed to what is announced.
fn covered<T: Clone>(entries: &[(T, Vec<Prefix>)], announced: &[Prefix]) -> Vec<(T, Vec<Prefix>)> {
    entries
        .iter()
        .map(|(value, prefixes)| {
            let hit = announced
                .iter()
                .copied()
                .filter(|a| prefixes.iter().any(|p| p.contains(a)));
            (value.clone(), hit.collect::<Vec<_>>())
        })
        .filter(|(_, hit)| !hit.is_empty())
        .collect()
}
