//! Into which VRFs networks are advertised.
//! In: the names that NetworkAttachmentDefinitions store, the RouteAdvertisements. Out: what each of them does, and what that is for
//! a network. Invariant: one that is named and not there, not accepted, or not judged yet, does what it did before: what is
//! announced of it stays, too.
//! Not here: which RouteAdvertisements serve a network (the cluster-manager writes their names).

use std::collections::{BTreeMap, BTreeSet};

use model::intent::{PodAdvertisement, TargetVrf};
use model::names::ObjectKey;
use model::network::{Advertised, Network};

use super::{Declared, Object, Statement, current};

/// What each RouteAdvertisements does that an object names; `None`: nothing. One that has never been seen is not in it.
pub(super) fn advertising(
    before: &Declared,
    attachments: &BTreeMap<&ObjectKey, &Statement>,
    advertisements: Option<&BTreeMap<&str, &PodAdvertisement>>,
) -> BTreeMap<String, Option<TargetVrf>> {
    let named = attachments.values();
    let named: BTreeSet<&String> = named.flat_map(|s| &s.advertisements).collect();
    let effect = |name: &String| {
        let known = before.advertising.get(name);
        let object = advertisements.and_then(|all| all.get(name.as_str()));
        // An object is named by what it serves: it was accepted once. Where nothing is known of it, it does what it says.
        let says = object.map(|object| object.pod_network.then(|| object.target_vrf.clone()));
        let accepted = object.is_some_and(|object| object.accepted == Some(true));
        known.filter(|_| !accepted).cloned().or(says)
    };
    named
        .into_iter()
        .filter_map(|name| Some((name.clone(), effect(name)?)))
        .collect()
}

/// The RouteAdvertisements that a network's objects name.
pub(super) fn names<'a>(objects: &[Object<'a>]) -> BTreeSet<&'a String> {
    let objects = current(objects).into_iter();
    objects.flat_map(|o| &o.statement.advertisements).collect()
}

/// Where they advertise the network; `None` is the default one, which has no VRF of its own.
pub(super) fn of_network(
    advertising: &BTreeMap<String, Option<TargetVrf>>,
    names: &BTreeSet<&String>,
    network: Option<&Network>,
) -> Advertised {
    let own = network.and_then(|network| network.name.vrf_device(network.id));
    let mut out = Advertised::default();
    for target in names.iter().filter_map(|name| advertising.get(*name)) {
        match target {
            None => {}
            Some(TargetVrf::Default) => out.default_vrf = true,
            Some(TargetVrf::Auto) if own.is_none() => out.default_vrf = true,
            Some(TargetVrf::Auto) => out.own_vrf = true,
            Some(TargetVrf::Named(name)) => out.own_vrf |= own.as_ref() == Some(name),
        }
    }
    out
}
