//! Nodes, networks and snapshots that tests start from: node N of a three-node network, with round addresses.
//! In: a node number. Out: values of `plan_node`. Invariant: sound, there are no problems. Not here: expectations.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::address::ClusterSubnet;
use model::gateway::{BgpDefault, GatewayMode};
use model::kernel::LinkFact;
use model::names::{NetworkName, NodeName};
use model::network::{
    Advertised, Layer2, MissingRoute, Network, NoOverlay, Routing, Topology, Transport,
};
use model::node::{Fact, Node, NodeSubnets, Salvaged};
use model::ovs::{BridgeFact, PortFact, patch_port};
use model::selector::Labels;
use model::user_network::TRANSIT_SUBNETS;
use model::{Prefix, Scope};
use plan_node::claims::Claims;
use plan_node::{
    GatewayView, Machine, NetworkShare, NetworkView, NodeView, Share, Snapshot, Vrf, learn,
};

/// Index of the external bridge's link.
pub const BRIDGE_LINK: u32 = 3;

fn address(number: u8) -> IpAddr {
    IpAddr::from([172, 30, 0, number])
}

/// A node and its share of one network, to be changed by a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The node.
    pub node: NodeView,
    /// Its share.
    pub share: NetworkShare,
}

impl View {
    /// What planners are given.
    #[must_use]
    pub fn get(&self) -> NetworkView<'_> {
        NetworkView {
            node: &self.node,
            share: &self.share,
        }
    }

    /// The network's options without an overlay.
    pub fn no_overlay(&mut self, change: impl FnOnce(&mut NoOverlay)) {
        if let Transport::NoOverlay(options) = &mut self.share.network.transport {
            change(options);
        }
    }

    /// Another subnet of the network, `CIDR/LEN` or `CIDR`.
    pub fn add_subnet(&mut self, subnet: &str) {
        self.share.network.subnets.push(subnet.parse().unwrap());
    }
}

/// Node `n<N>` (1 to 3) and its share of the default network: 172.30.0.N, pods 10.128.N.0/24, node id N + 1.
#[must_use]
pub fn mk_view(number: u8) -> View {
    View {
        node: mk_node_view(number),
        share: NetworkShare {
            network: mk_network(),
            host_subnets: vec![format!("10.128.{number}.0/24").parse().unwrap()],
            remote_subnets: Vec::new(),
            mtu: 1500,
            vrf: None,
        },
    }
}

/// The default network: 10.128.0.0/16, without an overlay, with SNAT to the outside.
#[must_use]
pub fn mk_network() -> Network {
    Network {
        topology: Topology::Layer3,
        layer2: None,
        name: NetworkName::default_network(),
        id: 0,
        subnets: vec!["10.128.0.0/16/24".parse().unwrap()],
        join_subnets: vec!["100.64.0.0/16".parse().unwrap()],
        transport: Transport::NoOverlay(NoOverlay {
            outbound_snat: true,
            routing: Routing::Managed,
            missing_route: MissingRoute::Discard,
        }),
        mtu: None,
        advertised: Advertised::default(),
    }
}

/// A network of users with an id and subnets, without an overlay.
#[must_use]
pub fn mk_user_network(name: &str, id: u16, subnets: &[&str], join: &[&str]) -> Network {
    Network {
        topology: Topology::Layer3,
        name: NetworkName::from(name),
        id,
        subnets: subnets.iter().map(|s| s.parse().unwrap()).collect(),
        join_subnets: join.iter().map(|s| s.parse().unwrap()).collect(),
        ..mk_network()
    }
}

/// A layer-2 network of users with an id and subnets, over an overlay; its keys are those that the manager would give it first.
#[must_use]
pub fn mk_layer2_network(name: &str, id: u16, subnets: &[&str]) -> Network {
    let join = ["100.65.0.0/16", "fd99::/64"];
    let mut network = mk_user_network(name, id, &[], &join);
    network.subnets = subnets.iter().map(|s| mk_segment(s)).collect();
    let families = network.families();
    let of_family = |subnet: &Prefix| families.contains(&subnet.family());
    network.join_subnets.retain(of_family);
    let transit = TRANSIT_SUBNETS.map(|subnet| subnet.parse().unwrap());
    let transit_subnets = transit.into_iter().filter(of_family).collect();
    network.topology = Topology::Layer2;
    network.transport = Transport::Geneve;
    network.layer2 = Some(Layer2 {
        switch_key: 16_711_683 + u32::from(id),
        router_key: 16_715_779,
        transit_subnets,
    });
    network
}

/// A subnet of a layer-2 network: one share.
#[must_use]
pub fn mk_segment(subnet: &str) -> ClusterSubnet {
    let cidr: Prefix = subnet.parse().unwrap();
    let host_len = cidr.bits();
    ClusterSubnet { cidr, host_len }
}

/// A node's share of it, with a VRF device and the MTU that an uplink of 1500 bytes leaves.
#[must_use]
pub fn mk_layer2_share(network: Network) -> NetworkShare {
    let vrf = network.name.vrf_device(network.id).map(|device| Vrf {
        device,
        table: 1000 + u32::from(network.id),
    });
    NetworkShare {
        host_subnets: network.prefixes().collect(),
        remote_subnets: Vec::new(),
        mtu: 1442,
        vrf,
        network,
    }
}

/// Node `n<N>`.
#[must_use]
pub fn mk_node_view(number: u8) -> NodeView {
    NodeView {
        name: NodeName::from(format!("n{number}")),
        id: u32::from(number) + 1,
        gateway: GatewayView {
            bridge: "br-ex".to_owned(),
            physical_network: "physnet".to_owned(),
            mac: format!("0a:58:ac:1e:00:{number:02x}").parse().unwrap(),
            addresses: vec![format!("172.30.0.{number}/24").parse().unwrap()],
            next_hops: vec![address(100)],
            chassis: format!("n{number}"),
        },
        ephemeral_port_range: "32768-60999".to_owned(),
        host_addresses: [address(number)].into(),
        node_addresses: [address(1), address(2), address(3)].into(),
        api_servers: BTreeSet::new(),
        nat_has_match: false,
        mode: GatewayMode::Shared,
        masquerade_subnets: ["169.254.0.0/17", "fd69::/112"]
            .map(|subnet| subnet.parse().unwrap())
            .into(),
        strict_isolation: true,
        service_cidrs: Vec::new(),
        services: None,
        transit_subnets: ["100.88.0.0/16", "fd97::/64"]
            .map(|subnet| subnet.parse().unwrap())
            .into(),
        remotes: BTreeMap::new(),
    }
}

/// The snapshot of a node with these shares: uplink 1, patch ports 2 and on in the order of shares, a VRF device for each
/// network of users.
#[must_use]
pub fn mk_snapshot(node: &NodeView, shares: &[NetworkShare]) -> Snapshot {
    let mut links = vec![mk_link(BRIDGE_LINK, &node.gateway.bridge)];
    if let Some(bridge) = links.first_mut() {
        bridge.mac = Some(node.gateway.mac);
        bridge.addresses.clone_from(&node.gateway.addresses);
    }
    let mut ports = vec![mk_port("eth0", "", 1)];
    let (mut networks, mut claims) = (BTreeMap::new(), BTreeMap::new());
    for (number, share) in (2..).zip(shares) {
        let name = &share.network.name;
        let patch = patch_port(&node.gateway.bridge, name, &node.name);
        ports.push(mk_port(&patch, "patch", number));
        if let Some(device) = name.vrf_device(share.network.id) {
            let mut link = mk_link(100 + number, &device);
            link.vrf_table = Some(1000 + u32::from(share.network.id));
            links.push(link);
        }
        claims.insert(name.clone(), Claims::default());
        let vrf = name.vrf_device(share.network.id).map(|device| Vrf {
            device,
            table: 1000 + u32::from(share.network.id),
        });
        let share = NetworkShare {
            vrf: share.vrf.clone().or(vrf),
            ..share.clone()
        };
        networks.insert(name.clone(), Share::Here(share));
    }
    Snapshot {
        machine: Machine {
            encap_ips: Vec::new(),
            name: node.name.clone(),
            bridge: node.gateway.bridge.clone(),
            links: Some(links),
            bridge_addresses: node.gateway.addresses.clone(),
            host_cidrs: node.gateway.addresses.clone(),
            gateway: Some(node.gateway.clone()),
            ports: Some(BridgeFact { ports }),
            mode: node.mode,
            bgp_default: BgpDefault::Ignore,
            release: None,
            claims,
            underlay_ready: BTreeMap::new(),
            reported: BTreeSet::new(),
        },
        node: Some(node.clone()),
        networks,
        unlisted: false,
        standing: None,
        stale: BTreeMap::new(),
        problems: Vec::new(),
        ignored: Vec::new(),
    }
}

/// The same as [`mk_view`] with both families: pods of the node in 10.128.N.0/24 and fd01:0:0:N::/64.
#[must_use]
pub fn mk_dual_view(number: u8) -> View {
    let mut view = mk_view(number);
    view.add_subnet("fd01::/48/64");
    let subnet = format!("fd01:0:0:{number:x}::/64");
    view.share.host_subnets.push(subnet.parse().unwrap());
    view
}

/// A link that is up, of 1500 bytes.
#[must_use]
pub fn mk_link(index: u32, name: &str) -> LinkFact {
    LinkFact {
        index,
        name: name.to_owned(),
        mac: None,
        mtu: 1500,
        up: true,
        addresses: Vec::new(),
        master: None,
        vrf_table: None,
        alias: String::new(),
        alternative_names: Vec::new(),
    }
}

/// A port of a bridge.
#[must_use]
pub fn mk_port(name: &str, kind: &str, number: u32) -> PortFact {
    PortFact {
        name: name.to_owned(),
        kind: kind.to_owned(),
        ofport: Some(number),
    }
}

/// A Node object whose annotation says these subnets of these networks, and nothing else.
#[must_use]
pub fn mk_node(name: &str, subnets: &[(&str, &[&str])]) -> Node {
    let of = |(network, subnets): &(&str, &[&str])| {
        let subnets = subnets.iter().map(|text| text.parse().unwrap()).collect();
        (NetworkName::from(*network), subnets)
    };
    Node {
        name: NodeName::from(name),
        labels: Labels::default(),
        internal_ips: Vec::new(),
        bad_addresses: Vec::new(),
        node_id: Fact::Absent,
        subnets: Fact::Known(subnets.iter().map(of).collect()),
        primary: Fact::Absent,
        host_cidrs: Fact::Absent,
        chassis: Fact::Absent,
        encap_ips: Fact::Absent,
        host_mtu: Fact::Absent,
        underlay_ready: NodeSubnets::default(),
        salvaged: Salvaged::default(),
        ready: None,
        cordoned: false,
        drain: false,
        takeover: false,
    }
}

/// What the view's network may learn over the bridge's link ([`BRIDGE_LINK`]); `taken` are prefixes that its gateway router
/// has already.
#[must_use]
pub fn mk_scope_of(view: &View, taken: BTreeSet<Prefix>, bgp_default: BgpDefault) -> Scope {
    let mut snapshot = mk_snapshot(&view.node, std::slice::from_ref(&view.share));
    snapshot.machine.bgp_default = bgp_default;
    let inputs = learn::plan(&snapshot).remove(&view.share.network.name);
    Scope {
        taken,
        ..inputs.unwrap().scope
    }
}
