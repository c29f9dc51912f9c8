//! What planning costs: the whole of both planners, over so many nodes and networks.
//! In: sizes. Out: milliseconds, medians of some runs. Invariant: what is planned is sound, or the benchmark ends.
//! Not here: reading facts and writing plans.
//!
//! A changed fact is planned for from the start, on the node and in the cluster: the cost of one more node is that of a plan
//! with it, and so is that of a changed one.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use model::frr::FrrConfiguration;
use model::gateway::{BgpDefault, GatewayMode};
use model::intent::{PodAdvertisement, TargetVrf};
use model::kernel::LinkFact;
use model::names::NodeName;
use model::network::Network;
use model::node::{Fact, Node};
use model::ovs::BridgeFact;
use model::{Asn, ObjectKey};
use plan_cluster::fabric::roles::ROLE_LABEL;
use plan_cluster::world::{FabricSettings, FabricTopology};
use plan_cluster::{World, advertise, fabric, networks};
use plan_node::declared::{Objects, Said, Statement};
use plan_node::{Declared, Facts, Memory, NodeConfig, Undeclared, check, declare};
use testkit::{BRIDGE_LINK, mk_link, mk_network, mk_node, mk_port, mk_user_network};

use crate::report::{Report, percentile};

/// What is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct PlanArguments {
    /// Writes one JSON object a line into this file: bench, case, metric, unit, value, floor.
    #[arg(long)]
    json: Option<std::path::PathBuf>,
    /// Only cases whose name contains this text, for example `1000 nodes`.
    #[arg(long)]
    only: Option<String>,
}

const NODES: [u32; 3] = [10, 100, 1000];
const NETWORKS: [u16; 3] = [1, 10, 50];
/// Runs of each plan.
const RUNS: usize = 7;

pub(crate) fn plan(arguments: &PlanArguments) {
    let mut report = Report::new("plan", arguments.json.as_deref());
    for nodes in NODES {
        for networks in NETWORKS {
            let case = format!("{nodes} nodes x {networks} networks");
            let wanted = arguments.only.as_ref();
            if wanted.is_none_or(|text| case.contains(text.as_str())) {
                declared(&mut report, &case, networks);
                node(&mut report, &case, nodes, networks);
                cluster(&mut report, &case, nodes, networks);
            }
        }
    }
}

/// Milliseconds, the median of some runs.
fn median(mut run: impl FnMut() -> Duration) -> f64 {
    let mut values: Vec<f64> = (0..RUNS).map(|_| run().as_secs_f64() * 1000.0).collect();
    percentile(&mut values, 50)
}

/// The default network and so many of users, all with one subnet of their own for each of a thousand nodes.
fn mk_networks(count: u16) -> Vec<Network> {
    let mut default = mk_network();
    default.subnets = vec!["10.0.0.0/12/24".parse().unwrap()];
    let of_users = (1..count).map(|id| {
        let name = format!("cluster_udn_net{id}");
        // The same subnets in each: they have a VRF of their own.
        mk_user_network(&name, id, &["10.16.0.0/12/24"], &["100.65.0.0/16"])
    });
    std::iter::once(default).chain(of_users).collect()
}

fn mk_nodes(count: u32, networks: &[Network]) -> Vec<Node> {
    (0..count)
        .map(|number| {
            let name = format!("n{number}");
            let (high, low) = (number / 256, number % 256);
            let subnets = networks
                .iter()
                .map(|network| {
                    let first = if network.name.is_default() { 0 } else { 16 };
                    let subnet = format!("10.{}.{low}.0/24", first + high);
                    (network.name.clone(), vec![subnet.parse().unwrap()])
                })
                .collect();
            let address = Ipv4Addr::from_bits(0xac10_0001 + number).into();
            Node {
                labels: [("kubernetes.io/hostname".to_owned(), name.clone())].into(),
                internal_ips: vec![address],
                node_id: Fact::Known(number + 2),
                subnets: Fact::Known(subnets),
                ..mk_node(&name, &[])
            }
        })
        .collect()
}

/// Namespaces that have an object of each network of users.
const NAMESPACES: u16 = 20;

/// What the objects of all networks declare, where one of them changed.
fn declared(report: &mut Report, case: &str, count: u16) {
    let mut statements = BTreeMap::new();
    for network in mk_networks(count).into_iter().skip(1) {
        for namespace in 0..NAMESPACES {
            let name = network.name.as_str().trim_start_matches("cluster_udn_");
            let key = ObjectKey::new(format!("ns{namespace}"), name);
            let statement = Statement {
                network: network.name.clone(),
                created: 0,
                deleting: false,
                owner: Some(name.to_owned()),
                advertisements: ["pods".to_owned()].into(),
                said: Said::Network(network.clone()),
            };
            statements.insert(key, statement);
        }
    }
    let ra = PodAdvertisement {
        target_vrf: TargetVrf::Auto,
        pod_network: true,
        accepted: Some(true),
    };
    let ras = BTreeMap::from([("pods", &ra)]);
    let mut before = Declared::default();
    let mut all = |statements: &BTreeMap<ObjectKey, Statement>| {
        let begun = now();
        let attachments = statements.iter().collect();
        let objects = Objects {
            attachments: Some(&attachments),
            advertisements: Some(&ras),
        };
        before = declare(&before, objects);
        assert_eq!(before.networks.len(), usize::from(count - 1));
        begun.elapsed()
    };
    report.put(
        case,
        &format!("node: networks of objects in {NAMESPACES} namespaces"),
        "ms",
        median(|| all(&statements)),
    );
}

/// The node-agent's side, on node n0.
#[expect(clippy::too_many_lines, reason = "one measurement, step by step")]
fn node(report: &mut Report, case: &str, nodes: u32, count: u16) {
    let own = NodeName::from("n0");
    let mut memory = Memory::new(NodeConfig {
        node: own.clone(),
        bridge: "br-ex".to_owned(),
        next_hops: vec!["172.16.255.254".parse().unwrap()],
        mode: GatewayMode::Shared,
        ephemeral_port_range: (32768, 60999),
        bgp_default: BgpDefault::Ignore,
        masquerade_subnets: Vec::new(),
        strict_isolation: true,
        service_cidrs: Vec::new(),
        beside: false,
        transit_subnets: Vec::new(),
    });
    let networks = mk_networks(count);
    let bridge = LinkFact {
        mac: Some("0a:58:ac:10:00:01".parse().unwrap()),
        addresses: vec!["172.16.0.1/16".parse().unwrap()],
        ..mk_link(BRIDGE_LINK, "br-ex")
    };
    let mut ports = vec![mk_port("eth0", "", 1)];
    let mut links = vec![bridge];
    for (number, network) in (2..).zip(&networks) {
        let patch = model::ovs::patch_port("br-ex", &network.name, &own);
        ports.push(mk_port(&patch, "patch", number));
        if let Some(device) = network.name.vrf_device(network.id) {
            let mut link = mk_link(100 + number, &device);
            link.vrf_table = Some(1000 + number);
            links.push(link);
        }
    }
    let all_networks = networks.clone();
    let mk_shared = |count| {
        let nodes = mk_nodes(count, &all_networks).into_iter();
        nodes.map(Arc::new).collect::<Vec<_>>()
    };
    let mut facts = Facts {
        nodes: Some(mk_shared(nodes)),
        networks,
        undeclared: Undeclared::default(),
        api_servers: Some([].into()),
        services: Some([].into()),
        release: None,
        links: Ok(links),
        chassis: Some("n0".to_owned()),
        physical_networks: [("br-ex".to_owned(), "physnet".to_owned())].into(),
        encap_ips: None,
        ports: Some(BridgeFact { ports }),
        nat_has_match: Some(true),
        refused_vrfs: BTreeMap::new(),
        management_ports: None,
        row_owners: None,
    };
    let mut all = |facts: &Facts| {
        let facts = facts.clone();
        let begun = now();
        let snapshot = memory.snapshot(facts);
        let plan = plan_node::plan(&snapshot);
        // Networks of one subnet behind one uplink are warned of.
        let violations = check::plan(&snapshot, &plan);
        let is_error = |(_, v): &(_, check::Violation)| v.severity() == check::Severity::Error;
        assert!(plan.is_complete() && !violations.iter().any(is_error));
        black_box(plan);
        begun.elapsed()
    };
    report.put(
        case,
        "node: snapshot, plan and check",
        "ms",
        median(|| all(&facts)),
    );
    let more = mk_shared(nodes + 1);
    let before = facts.nodes.replace(more);
    report.put(case, "node: one node more", "ms", median(|| all(&facts)));
    facts.nodes = before;
    if let Some(last) = facts.nodes.as_mut().and_then(|nodes| nodes.last_mut()) {
        Arc::make_mut(last).internal_ips = vec!["172.17.0.1".parse().unwrap()];
    }
    report.put(case, "node: one node changed", "ms", median(|| all(&facts)));
}

/// The cluster-manager's side: allocations, the fabric, all RouteAdvertisements.
fn cluster(report: &mut Report, case: &str, nodes: u32, count: u16) {
    for (topology, words) in [
        (FabricTopology::FullMesh, "mesh"),
        (FabricTopology::RouteReflector, "reflectors"),
    ] {
        cluster_of(report, case, (nodes, count), (topology, words));
    }
}

#[expect(clippy::too_many_lines, reason = "one measurement, step by step")]
fn cluster_of(
    report: &mut Report,
    case: &str,
    (nodes, count): (u32, u16),
    (topology, words): (FabricTopology, &str),
) {
    let declared = mk_networks(count);
    let world = |nodes: u32| {
        let all = mk_nodes(nodes, &declared).into_iter();
        let mut world = World {
            networks: declared
                .iter()
                .map(|n| (n.name.clone(), n.clone()))
                .collect(),
            nodes: all.map(|node| (node.name.clone(), node)).collect(),
            fabric: Some(FabricSettings {
                asn: Asn::try_from(64_512).unwrap(),
                namespace: "frr-k8s-system".to_owned(),
                topology,
                resilient: true,
                password_secret: None,
            }),
            frr_namespace: "frr-k8s-system".to_owned(),
            ..World::default()
        };
        world = fabric::complete(world);
        let plan = advertise::plan(&world, &fabric::base_name());
        let existing = plan
            .desired
            .into_iter()
            .map(|(key, object): (ObjectKey, Arc<FrrConfiguration>)| (key, Ok(object)));
        world.frr.extend(existing);
        for (name, role) in plan.roles {
            if let Some(node) = world.nodes.get_mut(&name) {
                let label = (ROLE_LABEL.to_owned(), role.word().to_owned());
                node.labels.extend([label]);
            }
        }
        world
    };
    let all = |world: &World| {
        let world = world.clone();
        let begun = now();
        black_box(networks::plan(&world));
        black_box(world.excluded_by_network());
        let plans = advertise::plan_all(&fabric::complete(world));
        assert!(plans.values().all(advertise::Plan::accepted));
        black_box(plans);
        begun.elapsed()
    };
    let existing = world(nodes);
    report.put(
        case,
        &format!("cluster, {words}: allocations, fabric, objects"),
        "ms",
        median(|| all(&existing)),
    );
    let mut joined = existing.clone();
    if let Some(node) = mk_nodes(nodes + 1, &declared).pop() {
        joined.nodes.insert(node.name.clone(), node);
    }
    report.put(
        case,
        &format!("cluster, {words}: one node more"),
        "ms",
        median(|| all(&joined)),
    );
    let mut changed = existing;
    if let Some(node) = changed.nodes.values_mut().next_back() {
        node.internal_ips = vec!["172.17.0.1".parse().unwrap()];
    }
    report.put(
        case,
        &format!("cluster, {words}: one node changed"),
        "ms",
        median(|| all(&changed)),
    );
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
