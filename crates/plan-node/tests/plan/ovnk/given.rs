//! What a recorded node was given, as the planner's snapshot.
//! In: the lines of a `.rows` file that begin with `given`. Out: a snapshot of node `n1`, and the routes of protocol bgp in its kernel.
//! Invariant: every line is used; a word that is not known fails. Not here: what the node made of it (`atoms`, and the data file).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::address::InterfaceAddr;
use model::gateway::GatewayMode;
use model::names::{NetworkName, NodeName};
use model::network::{Layer2, MissingRoute, Network, NoOverlay, Routing, Topology, Transport};
use model::node::Node;
use model::ovs::BridgeFact;
use model::route::{KernelRoute, RouteKind, RoutePath};
use model::{Family, Prefix};
use plan_node::claims;
use plan_node::{NetworkShare, NodeView, RemoteNode, Services, Snapshot, Vrf};
use testkit::{
    BRIDGE_LINK, mk_network, mk_node, mk_node_view, mk_port, mk_segment, mk_snapshot,
    mk_user_network,
};

/// The node whose rows are compared.
const OWN: &str = "n1";
/// MTU of pods in every recorded cluster.
const MTU: u32 = 1400;

/// A recorded node's circumstances.
#[derive(Default)]
pub(crate) struct Given {
    mode: Option<GatewayMode>,
    service_cidrs: Vec<Prefix>,
    allowed: BTreeMap<String, BTreeSet<IpAddr>>,
    api_servers: BTreeSet<IpAddr>,
    nodes: BTreeMap<NodeName, GivenNode>,
    networks: BTreeMap<NetworkName, GivenNetwork>,
    ports: Vec<(String, u32)>,
    /// Routes of protocol bgp, all over the external bridge.
    pub(crate) bgp: Vec<KernelRoute>,
}

#[derive(Default)]
struct GivenNode {
    id: u32,
    chassis: String,
    encap_ips: BTreeSet<IpAddr>,
    gateway_addresses: Vec<InterfaceAddr>,
    host_cidrs: BTreeSet<IpAddr>,
    mac: Option<String>,
    next_hops: Vec<IpAddr>,
    subnets: BTreeMap<NetworkName, Vec<Prefix>>,
}

#[derive(Default)]
struct GivenNetwork {
    id: u16,
    topology: String,
    transport: String,
    advertised: bool,
    subnets: Vec<String>,
    join: Vec<Prefix>,
    keys: [u32; 2],
    transit: Vec<Prefix>,
    vrf: Option<Vrf>,
}

fn parse<T: std::str::FromStr>(text: &str) -> T {
    let parsed = text.parse().ok();
    parsed.unwrap_or_else(|| panic!("given {text}"))
}

impl Given {
    /// Takes one line, without its `given`.
    pub(crate) fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["mode", "shared"] => self.mode = Some(GatewayMode::Shared),
            ["mode", "local"] => self.mode = Some(GatewayMode::Local),
            ["service-cidr", cidr] => self.service_cidrs.push(parse(cidr)),
            ["allowed-service", name, ip] => {
                let of_it = self.allowed.entry((*name).to_owned()).or_default();
                of_it.insert(parse(ip));
            }
            ["api-server", ip] => drop(self.api_servers.insert(parse(ip))),
            ["port", name, number] => self.ports.push(((*name).to_owned(), parse(number))),
            ["bgp-route", table, to, gateway] => self.take_route(table, to, gateway),
            ["node", name, fact @ ..] => {
                let node = self.nodes.entry((*name).into()).or_default();
                node.take(fact);
            }
            ["network", name, fact @ ..] => {
                let network = self.networks.entry((*name).into()).or_default();
                network.take(fact);
            }
            _ => panic!("given {line}"),
        }
    }

    fn take_route(&mut self, table: &str, to: &str, gateway: &str) {
        let (table, prefix) = (parse(table), parse(to));
        let path = RoutePath {
            gateway: Some(parse(gateway)),
            oif: BRIDGE_LINK,
        };
        // Next hops of one route stand in lines of their own.
        if let Some(last) = self.bgp.last_mut()
            && (last.table, last.prefix) == (table, prefix)
        {
            last.paths.push(path);
            return;
        }
        self.bgp.push(KernelRoute {
            table,
            prefix,
            metric: 20,
            kind: RouteKind::Unicast,
            paths: vec![path],
        });
    }

    /// Whether the node has a network of users.
    fn has_users(&self) -> bool {
        self.networks.keys().any(|name| !name.is_default())
    }

    fn view(&self) -> NodeView {
        let own = &self.nodes[&NodeName::from(OWN)];
        let mut view = mk_node_view(1);
        view.id = own.id;
        view.gateway.chassis.clone_from(&own.chassis);
        view.gateway.mac = parse(own.mac.as_deref().unwrap());
        view.gateway.addresses.clone_from(&own.gateway_addresses);
        view.gateway.next_hops.clone_from(&own.next_hops);
        view.host_addresses.clone_from(&own.host_cidrs);
        let all = self.nodes.values().flat_map(|node| &node.host_cidrs);
        view.node_addresses = all.copied().collect();
        view.api_servers.clone_from(&self.api_servers);
        view.nat_has_match = true;
        view.mode = self.mode.unwrap();
        view.service_cidrs.clone_from(&self.service_cidrs);
        view.services = self.has_users().then(|| Services {
            allowed: self.allowed.clone(),
        });
        let mut networks = self.networks.values();
        if networks.any(|network| network.transport == "geneve") {
            let others = self.nodes.iter().filter(|(name, _)| name.as_str() != OWN);
            let remote = |(name, node): (&NodeName, &GivenNode)| {
                let remote = RemoteNode {
                    id: node.id,
                    chassis: node.chassis.clone(),
                    encap_ips: node.encap_ips.clone(),
                };
                (name.clone(), remote)
            };
            view.remotes = others.map(remote).collect();
        }
        view
    }

    fn share(&self, name: &NetworkName, given: &GivenNetwork) -> NetworkShare {
        let network = given.network(name);
        let subnets = |node: &GivenNode| node.subnets.get(name).cloned().unwrap_or_default();
        let (mut host_subnets, mut remote_subnets) = (Vec::new(), Vec::new());
        for (node, facts) in &self.nodes {
            if node.as_str() == OWN {
                host_subnets = subnets(facts);
            } else if network.transport == Transport::Geneve {
                let of_it = subnets(facts).into_iter();
                remote_subnets.extend(of_it.map(|subnet| (subnet, node.clone())));
            }
        }
        if network.topology == Topology::Layer2 {
            host_subnets = network.prefixes().collect();
        }
        NetworkShare {
            network,
            host_subnets,
            remote_subnets,
            mtu: MTU,
            vrf: given.vrf.clone(),
        }
    }

    /// The snapshot of the node.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let node = self.view();
        let shares = self.networks.iter();
        let shares: Vec<NetworkShare> = shares
            .map(|(name, given)| self.share(name, given))
            .collect();
        let mut snapshot = mk_snapshot(&node, &shares);
        let ports = self.ports.iter().map(|(name, number)| {
            let kind = if name.starts_with("patch-") {
                "patch"
            } else {
                ""
            };
            mk_port(name, kind, *number)
        });
        let ports = ports.collect();
        snapshot.machine.ports = Some(BridgeFact { ports });
        for link in snapshot.machine.links.iter_mut().flatten() {
            let mut vrfs = self.networks.values().filter_map(|n| n.vrf.as_ref());
            if let Some(vrf) = vrfs.find(|vrf| vrf.device == link.name) {
                link.vrf_table = Some(vrf.table);
            }
        }
        let nodes: Vec<Node> = self.nodes.iter().map(mk_claiming).collect();
        let pods = shares.iter().map(|share| &share.network);
        let pods: Vec<(&NetworkName, Vec<Prefix>)> = pods
            .map(|network| (&network.name, network.prefixes().collect()))
            .collect();
        let built: Vec<(&NetworkName, &[Prefix])> = pods
            .iter()
            .map(|(name, prefixes)| (*name, prefixes.as_slice()))
            .collect();
        for share in &shares {
            let claims = claims::evaluate(&share.network, &nodes, &built);
            let name = share.network.name.clone();
            snapshot.machine.claims.insert(name, claims);
        }
        snapshot.machine.encap_ips = self.nodes[&NodeName::from(OWN)]
            .encap_ips
            .iter()
            .copied()
            .collect();
        snapshot
    }
}

/// A Node object that says its subnets.
fn mk_claiming((name, given): (&NodeName, &GivenNode)) -> Node {
    let texts: Vec<(&str, Vec<String>)> = given
        .subnets
        .iter()
        .map(|(network, subnets)| {
            let subnets = subnets.iter().map(ToString::to_string);
            (network.as_str(), subnets.collect())
        })
        .collect();
    let texts: Vec<(&str, Vec<&str>)> = texts
        .iter()
        .map(|(network, subnets)| (*network, subnets.iter().map(String::as_str).collect()))
        .collect();
    let subnets: Vec<(&str, &[&str])> = texts
        .iter()
        .map(|(network, subnets)| (*network, subnets.as_slice()))
        .collect();
    mk_node(name.as_str(), &subnets)
}

impl GivenNode {
    fn take(&mut self, fact: &[&str]) {
        match fact {
            ["id", id] => self.id = parse(id),
            ["chassis", name] => (*name).clone_into(&mut self.chassis),
            ["encap-ip", ip] => drop(self.encap_ips.insert(parse(ip))),
            ["gateway-address", address] => self.gateway_addresses.push(parse(address)),
            ["host-cidr", address] => {
                let address: InterfaceAddr = parse(address);
                self.host_cidrs.insert(address.ip);
            }
            ["mac", mac] => self.mac = Some((*mac).to_owned()),
            ["next-hop", ip] => self.next_hops.push(parse(ip)),
            ["subnet", network, subnet] => {
                let of_it = self.subnets.entry((*network).into()).or_default();
                of_it.push(parse(subnet));
            }
            _ => panic!("given node {fact:?}"),
        }
    }
}

impl GivenNetwork {
    fn take(&mut self, fact: &[&str]) {
        match fact {
            ["id", id] => self.id = parse(id),
            ["topology", topology] => (*topology).clone_into(&mut self.topology),
            ["transport", transport] => (*transport).clone_into(&mut self.transport),
            ["advertised"] => self.advertised = true,
            ["subnet", subnet] => self.subnets.push((*subnet).to_owned()),
            ["join", subnet] => self.join.push(parse(subnet)),
            ["switch-key", key] => self.keys[0] = parse(key),
            ["router-key", key] => self.keys[1] = parse(key),
            ["transit", subnet] => self.transit.push(parse(subnet)),
            ["vrf", device, table] => {
                self.vrf = Some(Vrf {
                    device: (*device).to_owned(),
                    table: parse(table),
                });
            }
            _ => panic!("given network {fact:?}"),
        }
    }

    fn network(&self, name: &NetworkName) -> Network {
        let mut network = if name.is_default() {
            mk_network()
        } else {
            mk_user_network(name.as_str(), self.id, &[], &[])
        };
        network.join_subnets.clone_from(&self.join);
        network.advertised.default_vrf = self.advertised;
        let no_overlay = |outbound_snat| {
            Transport::NoOverlay(NoOverlay {
                outbound_snat,
                routing: Routing::Unmanaged,
                missing_route: MissingRoute::Discard,
            })
        };
        network.transport = match self.transport.as_str() {
            "geneve" => Transport::Geneve,
            "no-overlay" => no_overlay(false),
            "no-overlay-snat" => no_overlay(true),
            other => panic!("given transport {other}"),
        };
        let subnets = self.subnets.iter();
        match self.topology.as_str() {
            "layer3" => network.subnets = subnets.map(|subnet| parse(subnet)).collect(),
            "layer2" => {
                network.topology = Topology::Layer2;
                network.subnets = subnets.map(|subnet| mk_segment(subnet)).collect();
                let families = network.families();
                let transit = self.transit.iter();
                let transit = transit.filter(|subnet| families.contains(&subnet.family()));
                network.layer2 = Some(Layer2 {
                    switch_key: self.keys[0],
                    router_key: self.keys[1],
                    transit_subnets: transit.copied().collect(),
                });
            }
            other => panic!("given topology {other}"),
        }
        let families: BTreeSet<Family> = network.families();
        network
            .join_subnets
            .retain(|subnet| families.contains(&subnet.family()));
        network
    }
}
