//! The whole plan of a node beside OVN-Kubernetes.
//! In: the snapshot, how far each network is led past the tunnels. Out: a [`Plan`] whose sinks hold ours and nothing else.
//! Invariant: of a network without a step nothing is known, and nothing of it is touched; nothing is planned that OVN-Kubernetes writes.
//! Not here: when a step follows (`steps`).

use std::collections::{BTreeMap, BTreeSet};

use model::address::{Family, Prefix};
use model::names::{NetworkName, NodeName, management_device};
use model::nb::{Columns, CtInvMatch, Owner};
use model::node::annotation;

use crate::beside::host;
use crate::beside::north;
use crate::beside::steps::Step;
use crate::bridge::FlowTable;
use crate::learn::{self, Inputs};
use crate::snapshot::{NetworkView, Snapshot};
use crate::{Plan, Unknown, annotations};

/// Steps by network.
pub type Steps = BTreeMap<NetworkName, Step>;

/// Networks that BGP's routes are known of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routed {
    /// The kernel has routes to other nodes' pods.
    pub others: BTreeSet<NetworkName>,
    /// Others have had the time to learn those to this node's pods.
    pub own: BTreeSet<NetworkName>,
}

/// Rows of NAT by which OVN-Kubernetes translates whatever leaves for a network's management port.
pub type Translations = BTreeMap<NetworkName, Vec<Columns>>;

/// The plan. Networks that have no step count as not known. A network that the node has no share of any more and that is at the first
/// step has nothing.
#[must_use]
pub fn plan(
    snapshot: &Snapshot,
    steps: &Steps,
    routed: &Routed,
    translations: &Translations,
) -> Plan {
    let here: Vec<(NetworkView<'_>, Step)> = snapshot
        .here()
        .filter_map(|(name, view)| Some((view, *steps.get(name)?)))
        .collect();
    let names = here.iter().map(|(view, _)| view.name());
    let unknown = unknown(snapshot, steps, names);
    let mut plan = Plan {
        unknown,
        north: BTreeMap::new(),
        ct_inv_match: CtInvMatch::Kept,
        south: None,
        ports: BTreeMap::new(),
        kernel: model::kernel::Entries::default(),
        nft: host::no_rules(),
        flows: FlowTable::Unknown {
            why: "the bridge is OVN-Kubernetes'".to_owned(),
        },
        learn: BTreeMap::new(),
        annotations: None,
        steering: model::steering::Entries::default(),
        steps: steps.clone(),
    };
    let mut learned = learn::plan(snapshot);
    for (view, step) in here {
        if step >= Step::Untracked {
            let translated = translations.get(view.name()).map_or(&[][..], Vec::as_slice);
            let rows = north::plan(view, step >= Step::Steering, translated);
            plan.north.insert(Owner::Network(view.name().clone()), rows);
        }
        if step >= Step::Filtered {
            // Pods' own addresses are of use outside where somebody knows a way back to them.
            let is_known = step >= Step::Steering && routed.own.contains(view.name());
            let uplinks = uplinks(snapshot, view);
            plan.nft.extend(host::ruleset(view, &uplinks, is_known));
        }
        if step >= Step::Host {
            plan.steering.extend(host::entries(view));
        } else if routed.others.contains(view.name()) {
            plan.steering.extend(host::by_tunnel(view));
        }
        if let Some(mut inputs) = learned.remove(view.name()) {
            fill_set(snapshot, view, step, &mut inputs);
            plan.learn.insert(view.name().clone(), inputs);
        }
    }
    plan.annotations = annotations::plan(&snapshot.machine).map(|all| {
        let ours = |key: &String| key == annotation::HOST_MTU;
        all.into_iter().filter(|(key, _)| ours(key)).collect()
    });
    plan
}

/// Networks that nothing is planned for, beside those that something is (`planned`) and those that are at the first step.
fn unknown<'a>(
    snapshot: &'a Snapshot,
    steps: &'a Steps,
    planned: impl Iterator<Item = &'a NetworkName>,
) -> Unknown {
    let gone = steps.iter().filter(|(_, step)| **step == Step::Absent);
    let gone = gone.map(|(name, _)| name);
    let known: BTreeSet<NetworkName> = planned.chain(gone).cloned().collect();
    // Of one that is refused nothing stands, and somebody has to mend it first.
    let networks = snapshot.networks.iter();
    let open = networks.filter(|(_, share)| !matches!(share, crate::Share::Refused));
    let names = open.map(|(name, _)| name);
    let names = names.filter(|name| !known.contains(name)).cloned();
    // What is not planned for may be a network's that has not been listed, and while nothing was looked at rows may be those of a
    // topology that noverlay built before.
    let is_open = snapshot.unlisted || known.is_empty();
    Unknown::new(names.collect(), is_open.then_some(known))
}

/// The devices that an administrator put into the network's VRF.
fn uplinks(snapshot: &Snapshot, view: NetworkView<'_>) -> Vec<String> {
    let links = || snapshot.machine.links.iter().flatten();
    let Some(vrf) = view.share.vrf.as_ref() else {
        return Vec::new();
    };
    let index = links()
        .find(|link| link.name == vrf.device)
        .map(|link| link.index);
    let port = management_device(view.share.network.id);
    let of_vrf = links().filter(|link| index.is_some() && link.master == index);
    let of_vrf = of_vrf.filter(|link| link.name != port);
    of_vrf.map(|link| link.name.clone()).collect()
}

/// What fills the network's sets instead of its gateway router, which is none of ours: nothing gives way to it.
fn fill_set(snapshot: &Snapshot, view: NetworkView<'_>, step: Step, inputs: &mut Inputs) {
    inputs.scope.fallbacks.clear();
    inputs.scope.fallbacks_known = true;
    inputs.learns &= view.share.network.transport.no_overlay().is_some();
    let of_peers = if step >= Step::Steering {
        routable(snapshot, view)
    } else {
        Vec::new()
    };
    let families: BTreeSet<Family> = view.share.host_subnets.iter().map(Prefix::family).collect();
    let sets = families.into_iter().map(|family| {
        let of_family = of_peers.iter().filter(|(peer, _)| peer.family() == family);
        let set = north::routed(view.name(), family).id;
        (set, of_family.copied().collect())
    });
    inputs.sets = Some(sets.collect());
}

/// Subnets of other nodes that take pods' packets from the physical network, each with the bits of the network's subnet that it is
/// in. One that several nodes claim needs all of them to.
fn routable(snapshot: &Snapshot, view: NetworkView<'_>) -> Vec<(Prefix, u8)> {
    let machine = &snapshot.machine;
    let is_ready = |node: &NodeName, subnet: &Prefix| {
        let of_node = machine.underlay_ready.get(node);
        of_node.is_some_and(|networks| networks.has(view.name(), subnet))
    };
    let Some(claims) = machine.claims.get(view.name()) else {
        return Vec::new();
    };
    let mut ready: BTreeMap<Prefix, bool> = BTreeMap::new();
    for (subnet, node) in claims.owners.pairs() {
        *ready.entry(*subnet).or_insert(true) &= *node != machine.name && is_ready(node, subnet);
    }
    let own = &view.share.host_subnets;
    let networks: Vec<Prefix> = view.share.network.prefixes().collect();
    let all = ready
        .into_iter()
        .filter(|(subnet, is_ready)| *is_ready && !own.iter().any(|own| own.overlaps(subnet)));
    all.filter_map(|(subnet, _)| {
        let network = networks.iter().find(|network| network.contains(&subnet))?;
        Some((subnet, network.bits()))
    })
    .collect()
}
