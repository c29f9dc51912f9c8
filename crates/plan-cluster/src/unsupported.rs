//! Features that work by the overlay, where they are used for networks without one.
//! In: the world. Out: for each object that asks for such a feature, a sentence; an event on it, and nothing else.
//! Invariant: nothing is blocked, nobody's status is written (design document of the no-overlay mode, Limitations).
//! Not here: publishing; IPsec, which is no object of a network.

use std::collections::{BTreeMap, BTreeSet};

use model::user_network::{Namespace, Reach};
use model::{NetworkName, ObjectKey};

use crate::world::World;

/// Reason of the events.
pub const REASON: &str = "NotSupportedWithoutOverlay";
/// Most namespaces that a sentence names.
const NAMED: usize = 5;

/// Kinds of objects that ask for such a feature; all of `k8s.ovn.org/v1` but the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// EgressIP.
    EgressIp,
    /// EgressService.
    EgressService,
    /// AdminPolicyBasedExternalRoute: external gateways.
    ExternalGateway,
    /// ClusterNetworkConnect: networks that are connected with each other.
    NetworkConnect,
    /// A Namespace with multicast.
    Multicast,
}

impl Feature {
    /// `apiVersion` and `kind` of its objects.
    #[must_use]
    pub fn kind(self) -> (&'static str, &'static str) {
        match self {
            Self::EgressIp => ("k8s.ovn.org/v1", "EgressIP"),
            Self::EgressService => ("k8s.ovn.org/v1", "EgressService"),
            Self::ExternalGateway => ("k8s.ovn.org/v1", "AdminPolicyBasedExternalRoute"),
            Self::NetworkConnect => ("k8s.ovn.org/v1", "ClusterNetworkConnect"),
            Self::Multicast => ("v1", "Namespace"),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::EgressIp => "EgressIP",
            Self::EgressService => "EgressService",
            Self::ExternalGateway => "an external gateway",
            Self::NetworkConnect => "a connection of networks",
            Self::Multicast => "multicast (annotation k8s.ovn.org/multicast-enabled)",
        }
    }
}

/// By object: what to tell on it.
#[must_use]
pub fn plan(world: &World) -> BTreeMap<(Feature, ObjectKey), String> {
    let routed = world.networks.values();
    let routed = routed.filter(|network| network.transport.no_overlay().is_some());
    let routed: BTreeSet<&NetworkName> = routed.map(|network| &network.name).collect();
    let mut out = BTreeMap::new();
    if routed.is_empty() {
        return out;
    }
    let networks = Networks {
        world,
        primary: primaries(world),
        routed,
    };
    for (name, egress) in &world.egress_ips {
        if let Ok(selector) = &egress.namespaces {
            let reached = networks.of(|_, namespace| selector.matches(&namespace.labels));
            tell(
                &mut out,
                Feature::EgressIp,
                ObjectKey::new("", name),
                &reached,
            );
        }
    }
    for ((feature, key), reach) in &world.features_used {
        let reached = match reach {
            Reach::Namespace(name) => networks.of(|of, _| of == name),
            Reach::Namespaces(selector) => networks.of(|_, ns| selector.matches(&ns.labels)),
            Reach::Networks(selectors) => networks
                .selected(|labels| selectors.iter().any(|selector| selector.matches(labels))),
            Reach::Unreadable(_) => continue,
        };
        tell(&mut out, *feature, key.clone(), &reached);
    }
    for name in world
        .namespaces
        .iter()
        .filter(|(_, ns)| ns.multicast)
        .map(|(name, _)| name)
    {
        let reached = networks.of(|of, _| of == name);
        tell(
            &mut out,
            Feature::Multicast,
            ObjectKey::new("", name),
            &reached,
        );
    }
    out
}

/// Networks without overlay that something reaches, each with the namespaces by which it does.
type Reached<'a> = BTreeMap<&'a NetworkName, BTreeSet<&'a str>>;

struct Networks<'a> {
    world: &'a World,
    primary: BTreeMap<&'a str, &'a NetworkName>,
    routed: BTreeSet<&'a NetworkName>,
}

impl<'a> Networks<'a> {
    /// Those of the pods in these namespaces.
    fn of(&self, chosen: impl Fn(&str, &Namespace) -> bool) -> Reached<'a> {
        let mut out = Reached::new();
        let default = self.world.default_network().map(|network| &network.name);
        for (name, namespace) in &self.world.namespaces {
            let network = self.primary.get(name.as_str()).copied().or(default);
            let network = network.filter(|network| self.routed.contains(network));
            if let Some(network) = network.filter(|_| chosen(name, namespace)) {
                out.entry(network).or_default().insert(name);
            }
        }
        out
    }

    /// Those of the ClusterUserDefinedNetworks with these labels.
    fn selected(&self, chosen: impl Fn(&model::selector::Labels) -> bool) -> Reached<'a> {
        let cudns = self.world.cudns.values();
        let chosen = cudns.filter(|cudn| chosen(&cudn.labels));
        let names = chosen.map(|cudn| cudn.network_name());
        let known = names.filter_map(|name| self.routed.get(&name).copied());
        known.map(|name| (name, BTreeSet::new())).collect()
    }
}

/// The primary networks of users, by namespace.
fn primaries(world: &World) -> BTreeMap<&str, &NetworkName> {
    let networks = world.attachments.iter();
    let primary = networks.filter_map(|(key, attachment)| match &attachment.network {
        Some((name, true)) => Some((key.namespace.as_str(), name)),
        _ => None,
    });
    primary.collect()
}

fn tell(
    out: &mut BTreeMap<(Feature, ObjectKey), String>,
    feature: Feature,
    key: ObjectKey,
    reached: &Reached<'_>,
) {
    if reached.is_empty() {
        return;
    }
    let each = reached.iter().map(|(network, namespaces)| {
        let named: Vec<&str> = namespaces.iter().copied().take(NAMED).collect();
        let more = namespaces.len() - named.len();
        match (named.as_slice(), more) {
            ([], _) => format!("network {network}"),
            (_, 0) => format!("network {network} (namespaces {})", named.join(", ")),
            _ => format!(
                "network {network} (namespaces {} and {more} more)",
                named.join(", ")
            ),
        }
    });
    let each: Vec<String> = each.collect();
    let text = format!(
        "{} needs the overlay and has no effect on networks with transport no-overlay: {}",
        feature.words(),
        each.join("; ")
    );
    out.insert((feature, key), text);
}

#[cfg(test)]
mod tests;
