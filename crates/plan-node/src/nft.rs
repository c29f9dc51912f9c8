//! What the host's packet filter holds for the node's networks.
//! In: a snapshot. Out: sets and chains of one nftables table.
//! Invariant: a rule that translates whatever the pods of a network send has the network's exemption before it, and the
//! exemption's set holds the whole network; any other translates what is on the way to nodes and the API server only. Not here: translation in OVN (`north::snat`), how the table is written (`host::nft`).
//!
//! ```text
//!  local gateway mode      | pods of the default network (S: the node's subnet of it)
//!  outbound-snat enabled   | S to @no-overlay-snat-exempt return; S masquerade
//!  outbound-snat disabled  | S to @remote-node-ips masquerade
//!
//!  networks of users       | shared: nothing (OVN and the bridge translate); local: their masquerade addresses, and OVN's own
//!  both modes              | nothing that starts on the host reaches advertised networks of users
//! ```
//! Names: OVN-Kubernetes `go-controller/pkg/node/gateway_nftables.go`, `udn_isolation.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::address::{Family, Prefix};
use model::gateway::GatewayMode;
use model::nft::{AddressSet, Chain, Hook, Ruleset};

use crate::snapshot::{NetworkView, NodeView, Reserved, Snapshot};

const MASQUERADE: &str = "ovn-kube-local-gw-masq";
const POD_SUBNETS: &str = "ovn-kube-pod-subnet-masq";
const USER_NETWORKS: &str = "ovn-kube-udn-masq";
const HOST_DROP: &str = "udn-bgp-drop";

/// The table's contents.
#[must_use]
pub fn plan(snapshot: &Snapshot) -> Ruleset {
    let mut ruleset = Ruleset::default();
    let Some(node) = &snapshot.node else {
        return ruleset;
    };
    let views: Vec<NetworkView<'_>> = snapshot.here().map(|(_, view)| view).collect();
    if views.is_empty() {
        return ruleset;
    }
    if node.mode == GatewayMode::Local {
        ruleset.extend(masquerade(node, &views));
        for view in views.iter().filter(|view| view.name().is_default()) {
            ruleset.extend(pod_subnets(*view));
        }
    }
    if views.iter().any(|view| !view.name().is_default()) {
        ruleset.extend(host_drop(node, &views));
    }
    ruleset
}

/// The base chain, and what networks of users need of it.
fn masquerade(node: &NodeView, views: &[NetworkView<'_>]) -> Ruleset {
    let users = || views.iter().filter(|view| !view.name().is_default());
    let mut rules = from_ovn(node, views);
    rules.push(format!("jump {POD_SUBNETS}"));
    let mut chains = BTreeMap::from([(POD_SUBNETS.to_owned(), Chain::default())]);
    if users().next().is_some() {
        rules.push(format!("jump {USER_NETWORKS}"));
        let families: BTreeSet<Family> = users().flat_map(|v| v.share.network.families()).collect();
        let subnets = node.masquerade_subnets.iter();
        let subnets = subnets.filter(|subnet| families.contains(&subnet.family()));
        let rules = subnets.map(|subnet| user_networks(node, subnet)).collect();
        chains.insert(USER_NETWORKS.to_owned(), Chain { hook: None, rules });
    }
    let hook = Some(Hook {
        kind: "nat",
        hook: "postrouting",
        priority: 101,
    });
    chains.insert(MASQUERADE.to_owned(), Chain { hook, rules });
    Ruleset {
        chains,
        ..Ruleset::default()
    }
}

/// What a gateway router's load balancer sent and the kernel forwards.
fn from_ovn(node: &NodeView, views: &[NetworkView<'_>]) -> Vec<String> {
    let families = views.iter().flat_map(|view| view.share.network.families());
    let families: BTreeSet<Family> = families.filter(|_| node.services.is_some()).collect();
    let rule = |family| {
        let ovn = node.reserved(Reserved::Ovn, family)?.ip;
        Some(format!("{} saddr {ovn} masquerade", nft_family(family)))
    };
    families.into_iter().filter_map(rule).collect()
}

/// Masquerade addresses of networks of users leave with the node's address; the first ones are host's and OVN's own.
fn user_networks(node: &NodeView, subnet: &Prefix) -> String {
    let ip = nft_family(subnet.family());
    let reserved = match subnet.family() {
        Family::V4 => 29,
        Family::V6 => 125,
    };
    let own = format!("{}/{reserved}", subnet.network());
    let services = node.service_cidrs.iter();
    let services: String = services
        .filter(|services| services.family() == subnet.family())
        .map(|services| format!("{ip} daddr != {services} "))
        .collect();
    format!("{ip} saddr != {own} {services}{ip} saddr {subnet} masquerade")
}

/// Pods of the default network.
fn pod_subnets(view: NetworkView<'_>) -> Ruleset {
    let mut ruleset = Ruleset::default();
    let mut rules = Vec::new();
    for family in view.share.network.families() {
        let ip = nft_family(family);
        let of_family = |set: &BTreeSet<IpAddr>| -> BTreeSet<Prefix> {
            let of = set.iter().filter(|ip| Family::of(**ip) == family);
            of.map(|ip| Prefix::host(*ip)).collect()
        };
        let node = view.node;
        let (name, elements) = if view.outbound_snat() {
            let subnets = view.share.network.prefixes();
            let mut elements: BTreeSet<Prefix> = subnets.filter(|s| s.family() == family).collect();
            elements.extend(of_family(&node.host_addresses));
            (
                format!("no-overlay-snat-exempt-{}", family.version()),
                elements,
            )
        } else {
            let others = &node.always_translated() - &node.host_addresses;
            (
                format!("remote-node-ips-{}", family.version()),
                of_family(&others),
            )
        };
        let own = view.share.host_subnets.iter();
        for subnet in own.filter(|subnet| subnet.family() == family) {
            if view.outbound_snat() {
                rules.push(format!("{ip} saddr {subnet} {ip} daddr @{name} return"));
                rules.push(format!("{ip} saddr {subnet} masquerade"));
            } else {
                rules.push(format!("{ip} saddr {subnet} {ip} daddr @{name} masquerade"));
            }
        }
        ruleset.sets.insert(name, AddressSet { family, elements });
    }
    ruleset
        .chains
        .insert(POD_SUBNETS.to_owned(), Chain { hook: None, rules });
    ruleset
}

/// What the host itself sends to advertised networks of users would enter them by the physical network. Nodes and API servers whose
/// addresses lie in one are spared, by elements that come and go with the subnets and not by rules of their own: at no moment is a
/// subnet dropped without them.
fn host_drop(node: &NodeView, views: &[NetworkView<'_>]) -> Ruleset {
    let mut ruleset = Ruleset::default();
    let mut rules = Vec::new();
    let needed = node.always_translated();
    for family in Family::ALL {
        let name = format!("advertised-udn-subnets-{}", family.version());
        let ip = nft_family(family);
        let advertised = views.iter().filter(|view| view.is_advertised());
        let users = advertised.filter(|view| !view.name().is_default());
        let subnets = users.flat_map(|view| view.share.network.prefixes());
        let elements: BTreeSet<Prefix> = subnets.filter(|s| s.family() == family).collect();
        let within = |ip: &&IpAddr| elements.iter().any(|subnet| subnet.contains_ip(**ip));
        let spared = AddressSet {
            family,
            elements: (needed.iter().filter(within).copied())
                .map(Prefix::host)
                .collect(),
        };
        let spares = format!("advertised-udn-spared-{}", family.version());
        rules.push(format!("{ip} daddr @{spares} accept"));
        rules.push(format!("ct state new {ip} daddr @{name} drop"));
        ruleset.sets.insert(spares, spared);
        ruleset.sets.insert(name, AddressSet { family, elements });
    }
    let hook = Some(Hook {
        kind: "filter",
        hook: "output",
        priority: 0,
    });
    ruleset
        .chains
        .insert(HOST_DROP.to_owned(), Chain { hook, rules });
    ruleset
}

/// A family, as rules say it.
pub(crate) fn nft_family(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}
