//! Small worlds for the tests of the planners.
//! In: names and texts. Out: worlds. Invariant: only tests use it. Not here: anything shipped.

use std::collections::{BTreeMap, BTreeSet};

use model::frr::FrrConfiguration;
use model::network::{Network, Routing, Topology};
use model::node::{Fact, Node, Salvaged};
use model::selector::Labels;
use model::user_network::{ClusterUserDefinedNetwork, Layer2Extras, UserNetwork, UserTransport};
use model::{Asn, LabelSelector, NetworkName, NodeName};
use testkit::mk_network;

use crate::fabric;
use crate::world::{FabricSettings, World};

pub(crate) fn mk_node(name: &str, ip: &str, id: Option<u32>, subnet: Option<&str>) -> Node {
    Node {
        name: NodeName::from(name),
        labels: [("kubernetes.io/hostname".to_owned(), name.to_owned())].into(),
        internal_ips: vec![ip.parse().unwrap()],
        bad_addresses: Vec::new(),
        node_id: id.map_or(Fact::Absent, Fact::Known),
        subnets: subnet.map_or(Fact::Absent, |s| {
            Fact::Known(BTreeMap::from([(
                NetworkName::default_network(),
                vec![s.parse().unwrap()],
            )]))
        }),
        primary: Fact::Absent,
        host_cidrs: Fact::Absent,
        host_mtu: Fact::Absent,
        salvaged: Salvaged::default(),
        ready: Some(true),
    }
}

/// Nodes n1..n3 with ids and subnets, cluster subnet 10.128.0.0/16/24, managed fabric of AS 64512.
pub(crate) fn mk_world() -> World {
    let mut world = World {
        networks: [(NetworkName::default_network(), mk_network())].into(),
        fabric: Some(FabricSettings {
            asn: Asn::try_from(64_512).unwrap(),
            namespace: "frr-k8s-system".to_owned(),
            resilient: true,
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
        namespaces: LabelSelector::label("tenant", name),
        network: Ok(UserNetwork {
            topology: Topology::Layer3,
            primary: true,
            subnets: vec![format!("10.{}.0.0/16/24", 60 + n).parse().unwrap()],
            join_subnets: Vec::new(),
            mtu: None,
            transport: UserTransport::NoOverlay {
                outbound_snat: true,
                routing: Routing::Managed,
            },
            layer2: Layer2Extras::default(),
        }),
    }
}

pub(crate) fn add(world: &mut World, object: FrrConfiguration) {
    world.frr.insert(object.key.clone(), Ok(object));
}

/// The default network, to be changed.
pub(crate) fn default_of(world: &mut World) -> &mut Network {
    world
        .networks
        .get_mut(&NetworkName::default_network())
        .unwrap()
}
