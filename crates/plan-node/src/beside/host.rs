//! The host's side beside OVN-Kubernetes: rules and a route, and a table of the packet filter of our own.
//! In: a network's share of the node. Out: entries, sets and chains.
//! Invariant: nobody reaches a pod from outside who did not before, and nothing that is steered is translated: `guard` and `post` are
//! part of it, never left out.
//! Not here: BGP's routes, which others write; OVN (`north`).
//!
//! ```text
//!  2898  from NET to NET        main, routes longer than NET    pods' packets, both ways
//!  2899  iif lo to NET          main, routes longer than NET    the host's own
//!  2900  to S                   main, routes longer than NET    own pods, whoever asks
//!  2901  to NET                 own table: NET via .1 of S dev MP   what else is for pods: by way of OVN
//! ```
//! NET: a subnet of the network; S: one of the node's; MP: the management port.
//!
//! A network of users has a VRF, whose table OVN-Kubernetes leads to its pods. What comes out of the management port is routed by that
//! table, and the host itself has no way to pods: there is one rule, for what comes from the wire.
//! ```text
//!  2900  to S iif BRIDGE        table of the VRF, routes longer than NET
//! ```
//! What came out of the management port and has no other way than back into it would circle in OVN: the packet filter drops it (a rule
//! that refused it would also be met where the kernel asks for the way back to a peer's pod, rp_filter, and drop what peers send
//! while this node has no route to them).

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::address::{Family, Prefix};
use model::gateway::GatewayMode;
use model::names::management_device;
use model::nft::{AddressSet, Chain, Hook, Ruleset, Table};
use model::route::MAIN_TABLE;
use model::steering::{Entries, Route, Rule, TABLE, preference};

use crate::nft::nft_family;
use crate::snapshot::NetworkView;

/// Rules and routes. Each subnet of the network that the node has pods of has a group of its own.
#[must_use]
pub fn entries(view: NetworkView<'_>) -> Entries {
    if !view.name().is_default() {
        return into_vrf(view);
    }
    let mut entries = Entries::default();
    let device = management_device(view.share.network.id);
    let networks: Vec<Prefix> = view.share.network.prefixes().collect();
    for own in &view.share.host_subnets {
        let of_family = networks.iter().filter(|net| net.family() == own.family());
        for net in of_family.clone() {
            let main = |preference| Rule {
                preference,
                from: None,
                to: *net,
                device: None,
                table: MAIN_TABLE,
                suppress: Some(net.bits()),
            };
            let pods = of_family.clone().map(|from| Rule {
                from: Some(*from),
                ..main(preference::PODS)
            });
            entries.rules.extend(pods);
            entries.rules.insert(Rule {
                device: Some("lo".to_owned()),
                ..main(preference::HOST)
            });
            if net.contains(own) {
                entries.rules.insert(Rule {
                    to: *own,
                    ..main(preference::OWN)
                });
            }
            entries.rules.insert(Rule {
                table: TABLE,
                suppress: None,
                ..main(preference::TUNNEL)
            });
            // Of several subnets of a family the first leads: one route for each destination.
            let has_one = entries.routes.iter().any(|route| route.to == *net);
            if let Some(via) = own.nth(1).filter(|_| !has_one) {
                entries.routes.insert(Route {
                    table: TABLE,
                    to: *net,
                    via,
                    device: device.clone(),
                });
            }
        }
    }
    entries
}

/// The rules of a network of users.
fn into_vrf(view: NetworkView<'_>) -> Entries {
    let networks: Vec<Prefix> = view.share.network.prefixes().collect();
    let vrf = view.share.vrf.iter();
    let rules = vrf.flat_map(|vrf| {
        let own = view.share.host_subnets.iter();
        own.filter_map(|own| {
            let net = networks.iter().find(|net| net.contains(own))?;
            Some(Rule {
                preference: preference::OWN,
                from: None,
                to: *own,
                device: Some(view.node.gateway.bridge.clone()),
                table: vrf.table,
                suppress: Some(net.bits()),
            })
        })
    });
    Entries {
        rules: rules.collect(),
        ..Entries::default()
    }
}

/// The same where the node is not led past the tunnels and BGP's routes to pods of other nodes are in main all the same, because
/// others are: what is for pods goes by way of OVN whoever sends it, as without those routes. By them the host's own packets would
/// come from the node's address, which the other node lets nobody in by. Of a network of users the host has no way to pods.
#[must_use]
pub fn by_tunnel(view: NetworkView<'_>) -> Entries {
    if !view.name().is_default() {
        return Entries::default();
    }
    let mut entries = entries(view);
    let stays = [preference::OWN, preference::TUNNEL];
    entries
        .rules
        .retain(|rule| stays.contains(&rule.preference));
    entries
}

/// Names of sets of networks' subnets begin so.
const PODS: &str = "pods-";

/// Names of the sets that a table of ours has of a network, by its id.
#[must_use]
pub fn sets_of(network_id: u16) -> [String; 2] {
    Family::ALL.map(|family| pods_of(network_id, family))
}

/// The set of a network's subnets: of networks of users by their ids, since names of sets are not as long as those of networks.
fn pods_of(network_id: u16, family: Family) -> String {
    let version = family.version();
    match network_id {
        0 => format!("{PODS}{version}"),
        id => format!("{PODS}{id}-{version}"),
    }
}

/// The subnets between which a table of ours lets packets be.
#[must_use]
pub fn between(ruleset: &Ruleset) -> Vec<Prefix> {
    let sets = ruleset.sets.iter();
    let of_pods = sets.filter(|(name, _)| name.starts_with(PODS));
    of_pods
        .flat_map(|(_, set)| set.elements.iter().copied())
        .collect()
}

/// A table of the packet filter in which nothing is wanted.
#[must_use]
pub fn no_rules() -> Ruleset {
    Ruleset {
        table: Table::Own,
        ..Ruleset::default()
    }
}

/// The table of the packet filter; empty while the node has no pods. `uplinks`: devices of the network's VRF beside its management port.
/// `is_known`: others have had the time to learn routes to the node's pods.
///
/// - `raw`: what goes between pods passes no chain that translates, whoever has one: it is not tracked. What is for the host itself
///   is, so that answers find their way back through `post`.
/// - `post`: what the host sends to pods of another node bears the address of its management port, as over the tunnel. With the
///   node's address the other node would give it the address of its own port, which every policy lets in. To pods of a network of users
///   the host has no way.
/// - `keep`: what pods send to the outside has their own address where that is wanted and the packet comes by the host (local gateway
///   mode): translated to what it is, so that no later chain is asked (`nat` chains see a connection once) and conntrack knows
///   the way back. Towards nodes and API servers, which need no way back to pods, nothing changes.
/// - `guard`: where pods' subnets are announced, anybody outside could open connections to pods, which come in as the node itself;
///   and what OVN handed over for a subnet whose route has just gone must not go back into OVN, where it would circle. What somebody
///   else translated to a pod of this node (a port of the host) is tracked, and passes.
#[must_use]
pub fn ruleset(view: NetworkView<'_>, uplinks: &[String], is_known: bool) -> Ruleset {
    let mut ruleset = no_rules();
    let (mut raw, mut post, mut guard) = (Vec::new(), Vec::new(), Vec::new());
    let mut keep = Vec::new();
    let families = view.share.host_subnets.iter().map(Prefix::family);
    for family in families.collect::<BTreeSet<Family>>() {
        let pods = pods(view, family);
        let subnets = view.share.network.prefixes();
        let elements = subnets.filter(|subnet| subnet.family() == family).collect();
        let set = AddressSet { family, elements };
        ruleset.sets.insert(pods.clone(), set);
        raw.extend(untracked(view, family, uplinks));
        guard.extend(guarded(view, family));
        if !view.name().is_default() {
            continue;
        }
        post.extend(of_the_host(view, family));
        if is_known && keeps_addresses(view) {
            let name = format!("translated-{}", family.version());
            keep.extend(kept(view, family, &name));
            ruleset.sets.insert(name, translated(view, family));
        }
    }
    if ruleset.sets.is_empty() {
        return ruleset;
    }
    for (name, kind, hook, priority, rules) in [
        ("raw", "filter", "prerouting", -300, raw),
        ("keep", "nat", "postrouting", 98, keep),
        ("post", "nat", "postrouting", 99, post),
        ("guard", "filter", "forward", 0, guard),
    ] {
        if rules.is_empty() {
            continue;
        }
        let hook = Some(Hook {
            kind,
            hook,
            priority,
        });
        let chain = Chain { hook, rules };
        ruleset.chains.insert(name.to_owned(), chain);
    }
    ruleset
}

fn pods(view: NetworkView<'_>, family: Family) -> String {
    pods_of(view.share.network.id, family)
}

/// The node's address on the management port.
fn port_address(view: NetworkView<'_>, family: Family) -> Option<IpAddr> {
    let addresses = view.management();
    let mut addresses = addresses.iter().map(|address| address.ip);
    addresses.find(|ip| Family::of(*ip) == family)
}

/// What goes between pods: a rule for each device, since in what order nft lists a set of names hangs on its version. A packet that
/// comes in by a device of a VRF is seen twice, as that device's and as the VRF's.
fn untracked(view: NetworkView<'_>, family: Family, uplinks: &[String]) -> Vec<String> {
    let (ip, pods) = (nft_family(family), pods(view, family));
    let bridge = view.node.gateway.bridge.clone();
    let mut devices = vec![bridge, management_device(view.share.network.id)];
    let vrf = view.share.vrf.as_ref().map(|vrf| vrf.device.clone());
    devices.extend(vrf);
    devices.extend(uplinks.iter().cloned());
    let own = if view.name().is_default() {
        Some("fib daddr type != local".to_owned())
    } else {
        // The table that knows it as the host's own is that of the VRF.
        port_address(view, family).map(|own| format!("{ip} daddr != {own}"))
    };
    let rule = |device: String| {
        let own = own.as_ref()?;
        Some(format!(
            "iifname \"{device}\" {ip} saddr @{pods} {ip} daddr @{pods} {own} notrack"
        ))
    };
    devices.into_iter().filter_map(rule).collect()
}

/// What the host sends to pods of other nodes.
fn of_the_host(view: NetworkView<'_>, family: Family) -> Option<String> {
    let (ip, pods) = (nft_family(family), pods(view, family));
    let (bridge, address) = (&view.node.gateway.bridge, port_address(view, family)?);
    Some(format!(
        "oifname \"{bridge}\" {ip} daddr @{pods} fib saddr type local snat {ip} to {address}"
    ))
}

/// What must not come to pods, and what must not go back. To a network of users leads its VRF, by which device whatever comes: what
/// came by the management port bears its name as that of the VRF's device (`sdif`).
fn guarded(view: NetworkView<'_>, family: Family) -> [String; 2] {
    let (ip, pods) = (nft_family(family), pods(view, family));
    let device = management_device(view.share.network.id);
    let (from_outside, from_port) = if view.name().is_default() {
        let bridge = &view.node.gateway.bridge;
        (
            format!("iifname \"{bridge}\" oifname \"{device}\""),
            format!("iifname \"{device}\" oifname \"{device}\""),
        )
    } else {
        (
            format!("meta sdifname != \"{device}\" oifname \"{device}\""),
            format!("meta sdifname \"{device}\" oifname \"{device}\""),
        )
    };
    [
        format!("{from_outside} {ip} daddr @{pods} {ip} saddr != @{pods} ct state new drop"),
        format!("{from_port} {ip} saddr @{pods} {ip} daddr @{pods} ct state untracked drop"),
    ]
}

/// What gives pods' packets the addresses that they have, but towards what is in a set.
fn kept(view: NetworkView<'_>, family: Family, set: &str) -> Vec<String> {
    let (ip, bridge) = (nft_family(family), &view.node.gateway.bridge);
    let device = management_device(view.share.network.id);
    let own = view.share.host_subnets.iter();
    let of_family = own.filter(|subnet| subnet.family() == family);
    let with_port = of_family.filter_map(|subnet| Some((subnet, subnet.nth(2)?)));
    with_port
        .map(|(subnet, management)| {
            format!(
                "iifname \"{device}\" oifname \"{bridge}\" {ip} saddr {subnet} {ip} saddr != {management} {ip} daddr != @{set} snat {ip} to {ip} saddr"
            )
        })
        .collect()
}

/// Whether pods leave with their own addresses. In shared gateway mode their packets leave by OVN-Kubernetes' gateway router, and those
/// of networks of users by its cluster router, which translate them ([`is_translated_all_the_same`]).
fn keeps_addresses(view: NetworkView<'_>) -> bool {
    let is_local = view.node.mode == GatewayMode::Local;
    wants_own_addresses(view) && is_local && view.name().is_default()
}

fn wants_own_addresses(view: NetworkView<'_>) -> bool {
    view.no_overlay().is_some() && !view.outbound_snat()
}

/// Whether pods leave with the node's address although that is not wanted (`outbound-snat`, `outboundSNAT`).
#[must_use]
pub fn is_translated_all_the_same(view: NetworkView<'_>) -> bool {
    wants_own_addresses(view) && !keeps_addresses(view)
}

/// Destinations towards which pods' packets stay what they are without ours.
fn translated(view: NetworkView<'_>, family: Family) -> AddressSet {
    let hosts = view.node.always_translated().into_iter().map(Prefix::host);
    let services = view.node.service_cidrs.iter().copied();
    let all = view.share.network.prefixes().chain(services).chain(hosts);
    let elements = all.filter(|prefix| prefix.family() == family).collect();
    AddressSet { family, elements }
}
