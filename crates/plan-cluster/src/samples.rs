//! Small worlds for the tests of the planners.
//! In: names and texts. Out: worlds. Invariant: only tests use it. Not here: anything shipped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::frr::{FrrConfiguration, Neighbor, Peer, RemoteAs, Router, Session};
use model::intent::{NetworkSelector, RouteAdvertisements, TargetVrf};
use model::network::{Network, Routing, Topology};
use model::node::{Fact, Node, NodeSubnets, Salvaged};
use model::selector::Labels;
use model::user_network::{
    Attachment, ClusterUserDefinedNetwork, Layer2Extras, UserNetwork, UserTransport,
};
use model::{Asn, LabelSelector, NetworkName, NodeName, ObjectKey};
use testkit::mk_network;

use crate::advertise;
use crate::fabric::{self, roles::ROLE_LABEL};
use crate::user_networks::{self, NETWORK_ID, NETWORK_NAME};
use crate::world::{FabricSettings, FabricTopology, World};

pub(crate) fn mk_node(name: &str, ip: &str, id: Option<u32>, subnet: Option<&str>) -> Node {
    Node {
        name: NodeName::from(name),
        labels: [("kubernetes.io/hostname".to_owned(), name.to_owned())].into(),
        internal_ips: vec![ip.parse().unwrap()],
        bad_addresses: Vec::new(),
        node_id: id.map_or(Fact::Absent, Fact::Known),
        subnets: subnet.map_or(Fact::Absent, |s| {
            Fact::Known(NodeSubnets::from([(
                NetworkName::default_network(),
                vec![s.parse().unwrap()],
            )]))
        }),
        primary: Fact::Absent,
        host_cidrs: Fact::Absent,
        chassis: Fact::Absent,
        encap_ips: Fact::Absent,
        host_mtu: Fact::Absent,
        underlay_ready: NodeSubnets::default(),
        salvaged: Salvaged::default(),
        ready: Some(true),
        cordoned: false,
        drain: false,
        takeover: false,
    }
}

/// Nodes n1..n3 with ids and subnets, cluster subnet 10.128.0.0/16/24, managed fabric of AS 64512.
pub(crate) fn mk_world() -> World {
    let mut world = World {
        networks: [(NetworkName::default_network(), mk_network())].into(),
        fabric: Some(FabricSettings {
            asn: Asn::try_from(64_512).unwrap(),
            namespace: "frr-k8s-system".to_owned(),
            topology: FabricTopology::FullMesh,
            resilient: true,
            password_secret: None,
        }),
        frr_namespace: "frr-k8s-system".to_owned(),
        ..World::default()
    };
    for n in 1..=3_u32 {
        let node = mk_node(
            &format!("n{n}"),
            &format!("172.30.0.{n}"),
            Some(n + 1),
            Some(&format!("10.128.{n}.0/24")),
        );
        world.nodes.insert(node.name.clone(), node);
    }
    world
}

/// The same with the fabric's own objects in place.
pub(crate) fn mk_managed() -> World {
    let mut world = mk_world();
    let plan = fabric::plan(&world);
    add(&mut world, plan.base.unwrap());
    for (name, ra) in plan.advertisements {
        world.ras.insert(name, Ok(ra));
    }
    world
}

/// A managed layer-3 network of users, 10.`60 + n`.0.0/16/24, created as the `n`-th.
pub(crate) fn mk_cudn(name: &str, n: u8) -> ClusterUserDefinedNetwork {
    ClusterUserDefinedNetwork {
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        generation: 1,
        created: i64::from(n),
        labels: Labels::new(),
        annotations: BTreeMap::new(),
        deleting: false,
        finalizers: BTreeSet::new(),
        namespaces: Ok(LabelSelector::label("tenant", name)),
        network: Ok(UserNetwork {
            topology: Topology::Layer3,
            primary: true,
            subnets: vec![format!("10.{}.0.0/16/24", 60 + n).parse().unwrap()],
            refused: Vec::new(),
            join_subnets: Vec::new(),
            mtu: None,
            transport: UserTransport::NoOverlay {
                outbound_snat: true,
                routing: Routing::Managed,
            },
            layer2: Layer2Extras::default(),
        }),
        annotated: None,
    }
}

/// Puts a network in, with an object of it and a subnet on each node.
pub(crate) fn put_network(world: &mut World, cudn: ClusterUserDefinedNetwork, id: u8) {
    let cluster = cudn.network.as_ref().unwrap().subnets[0];
    let attachment = Attachment {
        annotations: [
            (NETWORK_NAME, cudn.network_name().to_string()),
            (NETWORK_ID, id.to_string()),
        ]
        .map(|(k, v)| (k.to_owned(), v))
        .into(),
        owner: Some(cudn.uid.clone()),
        network: Some((cudn.network_name(), true)),
        ..Attachment::default()
    };
    let key = ObjectKey::new(format!("of-{}", cudn.name), &cudn.name);
    world.attachments.insert(key, attachment);
    for (at, node) in (1..).zip(world.nodes.values_mut()) {
        let Fact::Known(subnets) = &mut node.subnets else {
            panic!("every node has subnets");
        };
        let subnet = cluster.cidr.subnet(at, cluster.host_len).unwrap();
        subnets.insert(cudn.network_name(), vec![subnet]);
    }
    world.cudns.insert(cudn.name.clone(), cudn);
    let networks = user_networks::networks(world);
    world.networks.extend(networks);
}

/// An FRRConfiguration of every node, labelled `use: me`, whose router of AS 64512 has these neighbors of the same AS.
pub(crate) fn mk_source(name: &str, peers: &[&str]) -> FrrConfiguration {
    let asn = Asn::try_from(64_512).unwrap();
    let neighbors = peers.iter().map(|peer| {
        let session = Session::new(RemoteAs::Number(asn));
        Neighbor::new(Peer::Address((*peer).to_owned()), session)
    });
    FrrConfiguration {
        key: ObjectKey::new("frr-k8s-system", name),
        labels: LabelSelector::label("use", "me").match_labels,
        annotations: BTreeMap::new(),
        node_selector: LabelSelector::default(),
        routers: vec![Router {
            neighbors: neighbors.collect(),
            ..Router::new(asn)
        }],
        bfd_profiles: Vec::new(),
        raw: None,
    }
}

pub(crate) fn add(world: &mut World, object: impl Into<Arc<FrrConfiguration>>) {
    let object = object.into();
    world.frr.insert(object.key.clone(), Ok(object));
}

/// A network of users of this range, with a label and a subnet on each node.
pub(crate) fn add_network(world: &mut World, name: &str, id: u8, range: &str, label: &str) {
    let mut cudn = mk_cudn(name, id);
    cudn.labels = LabelSelector::label("use", label).match_labels;
    let spec = cudn.network.as_mut().unwrap();
    spec.subnets = vec![range.parse().unwrap()];
    put_network(world, cudn, id);
}

/// An RA over networks with this label, created as the `n`-th.
pub(crate) fn add_advertisement(world: &mut World, name: &str, n: i64, label: &str) {
    let ra = RouteAdvertisements {
        name: name.to_owned(),
        generation: 1,
        created: n,
        target_vrf: TargetVrf::Default,
        networks: vec![NetworkSelector::ClusterUserDefinedNetworks(
            LabelSelector::label("use", label),
        )],
        node_selector: LabelSelector::default(),
        frr_selector: LabelSelector::label("use", "me"),
        pod_network: true,
        egress_ip: false,
    };
    world.ras.insert(name.to_owned(), Ok(ra));
}

/// The default network, to be changed.
pub(crate) fn default_of(world: &mut World) -> &mut Network {
    world
        .networks
        .get_mut(&NetworkName::default_network())
        .unwrap()
}

/// Writes what is planned, labels too, until nothing changes.
pub(crate) fn settle(world: &mut World) {
    for _ in 0..5 {
        let before = world.clone();
        *world = fabric::complete(world.clone());
        let mut plans = advertise::plan_all(world);
        for plan in plans.values() {
            for key in &plan.surplus {
                world.frr.remove(key);
            }
            for (key, object) in &plan.desired {
                world.unreadable.remove(key);
                world.frr.insert(key.clone(), Ok(object.clone()));
            }
        }
        let plan = plans.remove(&fabric::base_name());
        let roles = plan.map(|plan| plan.roles).unwrap_or_default();
        for (name, node) in &mut world.nodes {
            match roles.get(name) {
                Some(role) => {
                    let word = role.word().to_owned();
                    node.labels.insert(ROLE_LABEL.to_owned(), word);
                }
                None => {
                    node.labels.remove(ROLE_LABEL);
                }
            }
        }
        if *world == before {
            return;
        }
    }
    panic!("there is always something to write");
}

/// For each node its neighbors, by what it loads.
pub(crate) fn neighbors(world: &World) -> BTreeMap<String, BTreeSet<String>> {
    let loads = |node: &Node| {
        let objects = world.frr.values().filter_map(|object| object.as_ref().ok());
        let objects = objects.filter(|object| object.node_selector.matches(&node.labels));
        let neighbors = objects.flat_map(|object| fabric::members::addresses(object));
        neighbors.map(|ip| ip.to_string()).collect()
    };
    let nodes = world.nodes.values();
    nodes
        .map(|node| (node.name.to_string(), loads(node)))
        .collect()
}
