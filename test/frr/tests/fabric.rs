//! Every object that the cluster-manager generates for a whole cluster, on every node: merged, checked by the rules of what
//! frr-k8s and FRR take, and for some nodes loaded into a real FRR.
//! In: a cluster of 12 nodes with two families, managed networks and one that an administrator routes, in each topology.
//! Out: problems, lines that FRR refuses, differences after a second load. Invariant: none of them.
//! Not here: what is announced to whom (the planners' own tests), sessions (the lab).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test program: whatever is unexpected ends it"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use frr::{NodeConfig, NodeInput, lint, merge, render};
use frr_tests::{Frr, missing};
use model::frr::{FrrConfiguration, Neighbor};
use model::node::Node;
use offline::Objects;
use plan_cluster::World;

const NODES: u8 = 12;

/// Topology of the fabric, and how networks are isolated.
const CLUSTERS: [(&str, &str); 3] = [
    ("full-mesh", "strict"),
    ("full-mesh", "loose"),
    (REFLECTORS, "loose"),
];
const REFLECTORS: &str = "route-reflector";

/// The cluster after everything is written.
fn cluster((topology, isolation): (&str, &str)) -> World {
    let mut text = String::new();
    for n in 1..=NODES {
        write!(
            text,
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{n}, labels: {{kubernetes.io/hostname: n{n}, topology.kubernetes.io/zone: z{}}}}}\n\
             status: {{addresses: [{{type: InternalIP, address: 172.30.0.{n}}}, {{type: InternalIP, address: 'fd00:30::{n:x}'}}], conditions: [{{type: Ready, status: 'True'}}]}}\n",
            n % 3
        )
        .unwrap();
    }
    for (at, (name, routing)) in [
        ("amber", "Managed"),
        ("cobalt", "Managed"),
        ("jade", "Unmanaged"),
    ]
    .into_iter()
    .enumerate()
    {
        let second = 60 + at;
        write!(
            text,
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{tenant: {name}, k8s.ovn.org/primary-user-defined-network: ''}}}}\n\
             ---\napiVersion: k8s.ovn.org/v1\nkind: ClusterUserDefinedNetwork\n\
             metadata: {{name: {name}, uid: uid-{name}, creationTimestamp: '2026-01-01T00:00:0{at}Z', labels: {{color: {name}}}}}\n\
             spec: {{namespaceSelector: {{matchLabels: {{tenant: {name}}}}}, network: {{topology: Layer3, transport: NoOverlay, noOverlay: {{outboundSNAT: Enabled, routing: {routing}}},\n\
             \x20 layer3: {{role: Primary, subnets: [{{cidr: 10.{second}.0.0/16, hostSubnet: 24}}, {{cidr: 'fd00:{second}::/48', hostSubnet: 64}}]}}}}}}\n"
        )
        .unwrap();
    }
    text.push_str(
        "---\napiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\nmetadata: {name: uplink, namespace: frr-k8s-system, labels: {use: uplink}}\n\
         spec: {bgp: {routers: [{asn: 64512, neighbors: [{address: 172.30.0.200, asn: 65001, holdTime: 9s, keepaliveTime: 3s}, {address: 'fd00:30::200', asn: 65001}]}]}}\n\
         ---\napiVersion: k8s.ovn.org/v1\nkind: RouteAdvertisements\nmetadata: {name: jade}\n\
         spec: {targetVRF: default, nodeSelector: {}, frrConfigurationSelector: {matchLabels: {use: uplink}}, advertisements: [PodNetwork],\n\
         \x20 networkSelectors: [{networkSelectionType: ClusterUserDefinedNetworks, clusterUserDefinedNetworkSelector: {networkSelector: {matchLabels: {color: jade}}}}]}\n",
    );
    let mut objects = Objects::default();
    objects.read(&text).unwrap();
    // One of them with a password.
    let secret = if topology == REFLECTORS {
        "password-secret = fabric\n"
    } else {
        ""
    };
    let settings = format!(
        "[default]\ntransport = no-overlay\ncluster-subnets = 10.128.0.0/16/24,fd00:128::/48/64\n[no-overlay]\noutbound-snat = enabled\nrouting = managed\n\
         [bgp-managed]\ntopology = {topology}\n{secret}[ovn]\ntopology = build\nnetworks = own\n\
         [ovnkubernetesfeature]\nadvertised-udn-isolation-mode = {isolation}\n"
    );
    let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, 9160));
    let settings = settings::parse("noverlay.conf", &settings, metrics).unwrap();
    let plans = offline::settle(&settings, &mut objects).unwrap();
    for (name, plan) in &plans.advertisements {
        let bad = plan.conditions.iter().find(|c| !c.status);
        assert_eq!(bad, None, "{name}");
    }
    offline::world(&settings, &objects)
}

fn objects(world: &World) -> Vec<Arc<FrrConfiguration>> {
    let all = world.frr.values();
    all.map(|object| object.clone().unwrap()).collect()
}

fn merged(node: &Node, objects: &[Arc<FrrConfiguration>]) -> NodeConfig {
    let merged = merge(&NodeInput {
        name: node.name.clone(),
        labels: &node.labels,
        hostname: node.hostname().to_owned(),
        objects,
        passwords: &[("fabric".to_owned(), Ok("of-the-fabric".to_owned()))].into(),
    });
    merged.unwrap_or_else(|problems| panic!("{}: {problems:?}", node.name))
}

fn generated(object: &FrrConfiguration) -> bool {
    object.key.name.starts_with("ovnk-generated-")
}

#[test]
fn what_is_generated_for_a_cluster_loads_on_every_node_and_each_object_stands_for_itself() {
    for topology in CLUSTERS {
        let world = cluster(topology);
        let all = objects(&world);
        let count = all.iter().filter(|object| generated(object)).count();
        // Two of each node of the fabric, one of each for the administrator's network.
        assert_eq!(count, 3 * usize::from(NODES));
        for node in world.nodes.values() {
            let config = merged(node, &all);
            let problems = lint(&config, &node.own_addresses());
            assert_eq!(problems, [], "{topology:?} {}", node.name);
            for object in all.iter().filter(|o| o.node_selector.matches(&node.labels)) {
                let alone = merged(node, std::slice::from_ref(object));
                assert_eq!(lint(&alone, &node.own_addresses()), [], "{}", object.key);
            }
        }
        for object in all.iter().filter(|object| generated(object)) {
            assert_eq!(object.key.namespace, "frr-k8s-system");
            let neighbors = object.routers.iter().flat_map(|router| &router.neighbors);
            for neighbor in neighbors {
                keeps_the_rules(object, neighbor);
            }
        }
    }
}

/// What frr-k8s drops or FRR refuses without a word to whoever wrote the object.
fn keeps_the_rules(object: &FrrConfiguration, neighbor: &Neighbor) {
    let (key, session) = (&object.key, &neighbor.session);
    let text = neighbor.peer.as_str();
    let ip: IpAddr = text.parse().unwrap();
    assert_eq!(ip.to_string(), text, "{key}: canonical");
    assert!(!neighbor.advertise.all && !neighbor.receive.all, "{key}");
    assert!(
        !neighbor.receive.prefixes.is_empty(),
        "{key}: it takes something"
    );
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    for range in &neighbor.receive.prefixes {
        let lengths = [range.ge, range.le].map(Option::unwrap);
        assert!(lengths.iter().all(|len| *len <= longest), "{key}");
        assert_eq!(
            range.prefix.to_string().contains(':'),
            ip.is_ipv6(),
            "{key}"
        );
    }
    assert_ne!(session.hold_time, Some(180), "{key}");
    assert_ne!(session.keepalive_time, Some(60), "{key}");
    assert_ne!(session.connect_time, Some(60), "{key}");
    assert!(
        !session.graceful_restart || session.bfd_profile.is_some(),
        "{key}"
    );
    assert!(!session.dual_stack, "{key}");
    if let Some(profile) = &session.bfd_profile {
        let mut own = object.bfd_profiles.iter();
        assert!(own.any(|p| p.name == *profile), "{key}: its own profile");
    }
}

#[test]
fn all_objects_of_a_neighbor_have_the_same_session() {
    for topology in CLUSTERS {
        let world = cluster(topology);
        let mut sessions = BTreeMap::new();
        for object in objects(&world) {
            for neighbor in object.routers.iter().flat_map(|router| &router.neighbors) {
                let known = sessions
                    .entry(neighbor.peer.as_str().to_owned())
                    .or_insert_with(|| neighbor.session.clone());
                assert_eq!(*known, neighbor.session, "{}", object.key);
            }
        }
        // The nodes' two addresses and the administrator's two neighbors.
        assert_eq!(sessions.len(), 2 * usize::from(NODES) + 2);
    }
}

/// Each session of the fabric has its password, where there is one, and no session of others.
fn passwords((topology, _): (&str, &str), running: &[String]) {
    let count = |needle: &str| running.iter().filter(|l| l.contains(needle)).count();
    let of_fabric = count(" remote-as 64512");
    assert!(of_fabric > 1, "{running:?}");
    let expected = if topology == REFLECTORS { of_fabric } else { 0 };
    assert_eq!(count(" password of-the-fabric"), expected, "{running:?}");
}

/// Three networks of users, two families each, where isolation is loose.
fn filters((_, isolation): (&str, &str), running: &[String]) {
    let filtered = running
        .iter()
        .filter(|l| l.contains("import vrf route-map"));
    let expected = if isolation == "loose" { 6 } else { 0 };
    assert_eq!(filtered.count(), expected, "{running:?}");
}

#[test]
fn real_frr_takes_every_line_and_a_second_load_changes_nothing() {
    let missing = missing();
    if !missing.is_empty() {
        assert!(std::env::var_os("REQUIRE_TOOLS").is_none(), "{missing:?}");
        eprintln!("skipped: {missing:?} are not installed");
        return;
    }
    for topology in CLUSTERS {
        let world = cluster(topology);
        let all = objects(&world);
        let reflects = |node: &Node| {
            node.labels
                .get("noverlay.io/bgp-fabric")
                .map(String::as_str)
                == Some("route-reflector")
        };
        let names: BTreeSet<bool> = world.nodes.values().map(reflects).collect();
        for role in names {
            let node = world
                .nodes
                .values()
                .find(|node| reflects(node) == role)
                .unwrap();
            let text = render(&merged(node, &all));
            let frr = Frr::start().unwrap();
            frr.load(&text).unwrap();
            // FRR 8.4 is told twice by its reload tool, and complains the second time of graceful restart that is set already:
            // what counts is what it runs.
            let running = frr.running().unwrap();
            filters(topology, &running);
            passwords(topology, &running);
            let second = frr.load(&text).unwrap();
            assert!(
                second.clean,
                "{topology:?} {}: {}",
                node.name, second.output
            );
            assert_eq!(
                frr.running().unwrap(),
                running,
                "{topology:?} {}",
                node.name
            );
            let whole = running.join("\n");
            assert_eq!(
                whole.matches(" route-reflector-client").count(),
                whole.matches(" permit 60000").count(),
                "{whole}"
            );
            let differences = frr::compare::compare(&whole, &text);
            assert_eq!(
                frr::compare::unified(&differences),
                "",
                "{topology:?} {}",
                node.name
            );
            // The reload tool itself finds nothing left to do.
            let changed = second
                .output
                .lines()
                .filter(|line| line.contains("Executed command"));
            assert_eq!(changed.collect::<Vec<_>>(), [""; 0]);
        }
    }
}
