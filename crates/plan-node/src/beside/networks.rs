//! Which networks of users are looked after beside OVN-Kubernetes, which builds them all.
//! In: what is declared, what annotations ask for, what stands. Out: networks to plan for, and what is not known of others.
//! Invariant: before annotations are listed, nothing that stands counts as asked for by nobody; of a network that nobody asks for, and of
//! which nothing stands, nothing is planned.
//! Not here: the default network, which the configuration describes; steps (`steps`).

use std::collections::{BTreeMap, BTreeSet};

use model::names::NetworkName;
use model::network::{Network, Topology, Transport};
use model::problem::Problem;
use model::user_network::UserTransport;

use crate::beside::steps::Step;
use crate::{Declared, NetworkView, Snapshot, Undeclared};

/// What the annotation of a ClusterUserDefinedNetwork asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// `metadata.creationTimestamp`, seconds since 1970.
    pub created: i64,
    /// The transport, or what is wrong with the annotation.
    pub transport: Result<UserTransport, String>,
}

/// Wishes by network; networks without the annotation are not here.
pub type Asked = BTreeMap<NetworkName, Wish>;

/// The networks of users to plan for. `asked`: `None` until annotations have been listed. `owners`: whose rows stand in OVN_Northbound;
/// `None` until that could be read. `has_begun`: networks that are somewhere between the first step and the last.
#[must_use]
pub fn networks(
    declared: &Declared,
    asked: Option<&Asked>,
    owners: Option<&BTreeSet<NetworkName>>,
    has_begun: impl Fn(&NetworkName) -> bool,
) -> (Vec<Network>, Undeclared) {
    // Of whom nobody knows whether anything stands something may.
    let stands = |name: &NetworkName| owners.is_none_or(|all| all.contains(name));
    let wished =
        |name: &NetworkName| asked.and_then(|asked| asked.get(name)?.transport.as_ref().ok());
    let is_ours = |name: &NetworkName| wished(name).is_some() || stands(name) || has_begun(name);
    let ours = declared.networks.values().filter(|n| is_ours(&n.name));
    let ours = ours.map(|network| as_asked(network, wished(&network.name)));
    let may_stand = owners.is_none_or(|all| all.iter().any(|name| !name.is_default()));
    let undeclared = Undeclared {
        // Where nothing stands of any of them, none of them is missed.
        unlisted: may_stand && (!declared.listed || asked.is_none()),
        waiting: (declared.waiting().filter(|(name, _)| is_ours(name)))
            .map(|(name, why)| (name.clone(), why.clone()))
            .collect(),
        // Management ports are OVN-Kubernetes'.
        standing: BTreeSet::new(),
    };
    // What is asked for of what stands is not known: it stays where it is.
    let all = if asked.is_some() {
        ours.collect()
    } else {
        Vec::new()
    };
    (all, undeclared)
}

/// A network as it is to be: as its annotation asks, else by tunnels. What its objects say themselves is OVN-Kubernetes' to follow.
fn as_asked(network: &Network, wished: Option<&UserTransport>) -> Network {
    let is_layer3 = network.topology == Topology::Layer3;
    let transport = match wished.filter(|_| is_layer3) {
        Some(wished) => wished.transport(),
        None => Transport::Geneve,
    };
    Network {
        transport,
        ..network.clone()
    }
}

/// Why another network keeps one in the tunnels: of two with common subnets one can be led past them, since a packet that comes from the
/// wire does not say which it is of. All nodes take the same one, and the cluster-manager announces it: that which some node is led past
/// them for, then the elder. One that this node has another reason to keep in them (`kept`) comes before none, unless others are led for
/// it. `step`: how far a network is on this node.
#[must_use]
pub fn taken(
    snapshot: &Snapshot,
    view: NetworkView<'_>,
    asked: &Asked,
    kept: &BTreeSet<NetworkName>,
    step: impl Fn(&NetworkName) -> Step,
) -> Option<Problem> {
    let is_led =
        |name: &NetworkName| snapshot.machine.reported.contains(name) || step(name) >= Step::Ready;
    let rank = |name: &NetworkName| {
        let created = asked.get(name).map_or(i64::MIN, |wish| wish.created);
        (!is_led(name), created, name.clone())
    };
    let (name, own) = (view.name(), &view.share.network);
    let overlap = |other: &Network| {
        let mut prefixes = other.prefixes();
        prefixes.any(|prefix| own.prefixes().any(|own| own.overlaps(&prefix)))
    };
    let mut others = snapshot.here().filter(|(other, of)| {
        let network = &of.share.network;
        let may_be_led = is_led(other) || !kept.contains(*other);
        let is_asked = network.transport.no_overlay().is_some() && may_be_led;
        // One that has begun is in the way until it has gone back, but of one that is asked for and that others have been told of.
        let stands = step(other) > Step::Absent && (!is_asked || step(name) < Step::Ready);
        // Nodes have routes to the default network's pods whatever way their packets take.
        let comes_first = other.is_default() || stands || (is_asked && rank(other) < rank(name));
        *other != name && comes_first && overlap(network)
    });
    let (other, _) = others.next()?;
    let text = format!(
        "its subnets overlap those of network {other}, which comes first; allowed: one of both past the tunnels"
    );
    let subject = format!("network {name}");
    Some(Problem::new(subject, "SubnetsOverlap", text))
}
