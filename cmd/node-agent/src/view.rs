//! From what was read to what the planners are given.
//! In: settings, Nodes, Open vSwitch's facts, links. Out: the gateway, the network, or what is missing for it.
//! Invariant: a fact that is not there yet gives a problem, never a smaller view.
//! Not here: reading, planning.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::address::{Family, InterfaceAddr};
use model::host::LinkFact;
use model::names::management_device;
use model::node::{Fact, Node};
use model::{NetworkName, NodeName, Problem};
use ovn::Switch;
use plan_node::imports;
use plan_node::snapshot::{GatewayView, MissingRoute, NetworkView};
use settings::{BgpDefault, Settings};

use crate::sources::{ReadError, Seen, Sources, links};

/// Name part of management ports' devices, whatever the network.
fn is_management(link: &LinkFact) -> bool {
    let stem = management_device(0);
    link.name.starts_with(stem.trim_end_matches('0'))
}

/// What the settings say, in the planner's word.
pub(crate) fn bgp_default(settings: &Settings) -> imports::BgpDefault {
    match settings.gateway.bgp_default {
        BgpDefault::Ignore => imports::BgpDefault::Ignore,
        BgpDefault::Replace => imports::BgpDefault::Replace,
    }
}

/// Addresses that other nodes may use: not loopback, not link-local, not of pods or management ports.
pub(crate) fn host_cidrs(settings: &Settings, links: &[LinkFact]) -> Vec<InterfaceAddr> {
    let mut found: Vec<InterfaceAddr> = links
        .iter()
        .filter(|link| !is_management(link))
        .flat_map(|link| link.addresses.iter().copied())
        .filter(|address| is_usable(address.ip))
        .filter(|address| {
            let pods = &settings.cluster_subnets;
            !pods
                .iter()
                .any(|subnet| subnet.cidr.contains_ip(address.ip))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn is_usable(ip: IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !ip.is_loopback() && !link_local
}

/// The families of the cluster's pods.
fn families(settings: &Settings) -> BTreeSet<Family> {
    let subnets = settings.cluster_subnets.iter();
    subnets.map(|subnet| subnet.cidr.family()).collect()
}

/// The node's gateway as it stands: of the bridge's addresses those of the pods' families, with the Node's InternalIPs first among the bridge's addresses.
///
/// # Errors
/// The fact that is missing.
pub(crate) fn gateway(
    settings: &Settings,
    node: &Node,
    switch: &Switch,
    links: &[LinkFact],
) -> Result<GatewayView, Problem> {
    let bridge = &settings.gateway.interface;
    let families = families(settings);
    let missing = |reason, what: String| Problem::new(format!("Node/{}", node.name), reason, what);
    let link = links
        .iter()
        .find(|link| link.name == *bridge)
        .ok_or_else(|| missing("NoBridge", format!("there is no device {bridge}")))?;
    let mac = link
        .mac
        .ok_or_else(|| missing("NoBridgeMac", format!("{bridge} has no MAC")))?;
    let mut addresses: Vec<InterfaceAddr> = link
        .addresses
        .iter()
        .filter(|address| is_usable(address.ip) && families.contains(&Family::of(address.ip)))
        .copied()
        .collect();
    addresses.sort_by_key(|address| (!node.internal_ips.contains(&address.ip), *address));
    if addresses.is_empty() {
        return Err(missing(
            "NoBridgeAddress",
            format!("{bridge} has no address of the pods' families"),
        ));
    }
    let physical_network = switch
        .physical_networks
        .get(bridge)
        .cloned()
        .ok_or_else(|| {
            missing(
                "NoBridgeMapping",
                format!("external_ids:ovn-bridge-mappings does not name {bridge}"),
            )
        })?;
    let chassis = switch.system_id.clone().ok_or_else(|| {
        missing(
            "NoSystemId",
            "external_ids:system-id of Open vSwitch is not set".to_owned(),
        )
    })?;
    Ok(GatewayView {
        bridge: bridge.clone(),
        physical_network,
        mac,
        addresses,
        next_hops: settings.gateway.next_hops.clone(),
        chassis,
    })
}

/// Why there is no view.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoView {
    /// A source could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The API server was not heard yet.
    #[error("the API server has not been heard yet")]
    NotHeard,
    /// The cluster has no no-overlay network.
    #[error("the default network is not no-overlay")]
    NoNetwork,
    /// What was read is not enough.
    #[error("{}", text(.0))]
    Problems(Vec<Problem>),
}

fn text(problems: &[Problem]) -> String {
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// The default network on this node, from fresh readings.
///
/// # Errors
/// What is missing; whoever asks keeps what stands.
pub(crate) async fn network(sources: &Sources) -> Result<NetworkView, NoView> {
    if !sources.nodes.ready() {
        return Err(NoView::NotHeard);
    }
    let switch = sources.switch()?;
    let links = links().await?;
    let match_column = sources
        .north
        .schema()
        .is_some_and(|schema| ovn::north::nat_has_match(&schema));
    let nodes: Vec<Node> = sources.nodes.with(|map| {
        map.values()
            .map(|entry: &kube_edge::Entry<Seen>| entry.value.node.clone())
            .collect()
    });
    let facts = Facts {
        settings: &sources.settings,
        node: &sources.node,
        nodes: &nodes,
        switch: &switch,
        links: &links,
        nat_has_match: match_column,
    };
    let view = assemble(&facts)?;
    let problems: Vec<Problem> = view
        .problems()
        .into_iter()
        .filter(|problem| problem.reason != "NoNodeAddress")
        .collect();
    if problems.is_empty() {
        Ok(view)
    } else {
        Err(NoView::Problems(problems))
    }
}

/// What a view is made of.
struct Facts<'a> {
    settings: &'a Settings,
    node: &'a NodeName,
    nodes: &'a [Node],
    switch: &'a Switch,
    links: &'a [LinkFact],
    nat_has_match: bool,
}

fn assemble(facts: &Facts<'_>) -> Result<NetworkView, NoView> {
    let Facts {
        settings,
        nodes,
        switch,
        links,
        nat_has_match,
        ..
    } = *facts;
    let network = NetworkName::default_network();
    let no_overlay = settings.no_overlay.ok_or(NoView::NoNetwork)?;
    let absent = "there is no Node object of this name";
    let own = nodes.iter().find(|node| node.name == *facts.node);
    let own = own.ok_or_else(|| one("NoNode", facts.node, absent))?;
    let subnets = known(own, &own.subnets, "node-subnets")?;
    let node_id = *known(own, &own.node_id, "node-id")?;
    let mut gateway =
        gateway(settings, own, switch, links).map_err(|p| NoView::Problems(vec![p]))?;
    if settings.gateway.bgp_default == BgpDefault::Replace {
        // The learned default route is the only one then.
        gateway.next_hops.clear();
    }
    let host_addresses: BTreeSet<IpAddr> =
        host_cidrs(settings, links).iter().map(|a| a.ip).collect();
    let others = nodes.iter().filter(|node| node.name != own.name);
    let node_addresses = others
        .flat_map(Node::own_addresses)
        .chain(host_addresses.iter().copied())
        .collect();
    let own_mtu = links
        .iter()
        .find(|l| l.name == gateway.bridge)
        .map(|l| l.mtu);
    let known_mtus = nodes
        .iter()
        .filter_map(|node| node.host_mtu.known().copied());
    let smallest = known_mtus.chain(own_mtu).min().unwrap_or(1500);
    let (first, last) = settings.gateway.ephemeral_port_range;
    let families = families(settings);
    Ok(NetworkView {
        host_subnets: subnets.get(&network).cloned().unwrap_or_default(),
        network,
        network_id: 0,
        node: own.name.clone(),
        node_id,
        cluster_subnets: settings.cluster_subnets.clone(),
        join_subnets: settings
            .gateway
            .join_subnets
            .iter()
            .filter(|subnet| families.contains(&subnet.family()))
            .copied()
            .collect(),
        gateway,
        outbound_snat: no_overlay.outbound_snat,
        missing_route: match no_overlay.missing_route {
            settings::MissingRoute::Discard => MissingRoute::Discard,
            settings::MissingRoute::Forward => MissingRoute::Forward,
        },
        mtu: settings.mtu.unwrap_or(smallest),
        ephemeral_port_range: format!("{first}-{last}"),
        host_addresses,
        node_addresses,
        nat_has_match,
    })
}

fn one(reason: &'static str, node: impl std::fmt::Display, text: &str) -> NoView {
    NoView::Problems(vec![Problem::new(format!("Node/{node}"), reason, text)])
}

fn known<'a, T>(node: &Node, fact: &'a Fact<T>, what: &str) -> Result<&'a T, NoView> {
    match fact {
        Fact::Known(value) => Ok(value),
        Fact::Absent => Err(one(
            "NotAllocated",
            &node.name,
            &format!("annotation k8s.ovn.org/{what} is not there yet"),
        )),
        Fact::Malformed(why) => Err(one("Malformed", &node.name, why)),
    }
}

#[cfg(test)]
mod tests;
