//! Isolation in loose mode: what the VRF of a network takes over from the default VRF, in which several networks are advertised.
//!
//! In: the objects that the cluster-manager generates for two nodes, in two real FRRs with VRF devices. Out: the kernel's
//! tables. Invariant: a VRF has the pod subnets of its own network on the other node, and in loose mode no others.
//! Not here: what OVN does with routes (`import`), strict isolation (OVN's own).
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::panic,
    reason = "a test"
)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use frr::{NodeInput, merge, render};
use frr_tests::Frr;
use model::NodeName;
use model::frr::FrrConfiguration;
use netns_tests::run;
use offline::Objects;
use plan_cluster::World;

/// Seconds. Emulated, a session takes 10 s, and a route-map is applied up to 5 s later.
const PATIENCE: u32 = 90;

/// Two nodes at 172.31.20.1 and .2, two managed networks beside the default one.
fn cluster(isolation: &str) -> World {
    let mut text = String::new();
    for n in 1..=2 {
        write!(
            text,
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{n}, labels: {{kubernetes.io/hostname: n{n}}}}}\n\
             status: {{addresses: [{{type: InternalIP, address: 172.31.20.{n}}}], conditions: [{{type: Ready, status: 'True'}}]}}\n"
        )
        .unwrap();
    }
    for (at, name) in (1..).zip(["blue", "red"]) {
        let second = 60 + at;
        write!(
            text,
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{tenant: {name}, k8s.ovn.org/primary-user-defined-network: ''}}}}\n\
             ---\napiVersion: k8s.ovn.org/v1\nkind: ClusterUserDefinedNetwork\n\
             metadata: {{name: {name}, uid: uid-{name}, creationTimestamp: '2026-01-01T00:00:{at:02}Z'}}\n\
             spec: {{namespaceSelector: {{matchLabels: {{tenant: {name}}}}}, network: {{topology: Layer3, transport: NoOverlay, noOverlay: {{outboundSNAT: Enabled, routing: Managed}},\n\
             \x20 layer3: {{role: Primary, subnets: [{{cidr: 10.{second}.0.0/16, hostSubnet: 24}}]}}}}}}\n"
        )
        .unwrap();
    }
    let mut objects = Objects::default();
    objects.read(&text).unwrap();
    let settings = format!(
        "[default]\ntransport = no-overlay\ncluster-subnets = 10.128.0.0/16/24\n[no-overlay]\noutbound-snat = enabled\nrouting = managed\n\
         [bgp-managed]\ntopology = full-mesh\nprofile = compat\n[ovn]\ntopology = build\nnetworks = own\n\
         [ovnkubernetesfeature]\nadvertised-udn-isolation-mode = {isolation}\n"
    );
    let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, 9160));
    let settings = settings::parse("noverlay.conf", &settings, metrics).unwrap();
    offline::settle(&settings, &mut objects).unwrap();
    offline::world(&settings, &objects)
}

/// frr.conf of a node.
fn config(world: &World, node: &str) -> String {
    let node = world.nodes.get(&NodeName::from(node)).unwrap();
    let objects = world.frr.values().map(|object| object.clone().unwrap());
    let objects: Vec<Arc<FrrConfiguration>> = objects.collect();
    let merged = merge(&NodeInput {
        name: node.name.clone(),
        labels: &node.labels,
        hostname: node.hostname().to_owned(),
        objects: &objects,
        passwords: &BTreeMap::new(),
    });
    render(&merged.unwrap())
}

/// FRR's reload tool does not work where / cannot be written.
fn load(frr: &Frr, text: &str) {
    let file = frr.dir().join("wanted.conf");
    std::fs::write(&file, text).unwrap();
    run(Command::new("vtysh")
        .arg("--vty_socket")
        .arg(frr.dir())
        .arg("-f")
        .arg(&file));
}

/// Destinations of all BGP routes, in a VRF or in main.
fn learned(frr: &Frr, table: &str) -> Vec<String> {
    let shown = frr
        .ip(&format!("route show table {table} proto bgp"))
        .unwrap();
    let routes = shown
        .lines()
        .filter(|line| !line.starts_with(char::is_whitespace));
    routes
        .filter_map(|line| Some(line.split_whitespace().next()?.to_owned()))
        .collect()
}

fn reaches(frr: &Frr, what: &str, table: &str, expected: &[&str]) {
    let mut seen = Vec::new();
    for _ in 0..PATIENCE {
        seen = learned(frr, table);
        if seen == expected {
            return;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    panic!(
        "{what}: {seen:?}, expected {expected:?}\n{}",
        frr.vtysh("show bgp vrf all summary").unwrap()
    );
}

fn vrfs_of(isolation: &str, blue: &[&str], red: &[&str]) {
    let world = cluster(isolation);
    let (a, b) = (Frr::start().unwrap(), Frr::start().unwrap());
    a.connect(&b, 20).unwrap();
    for frr in [&a, &b] {
        for (vrf, table) in [("blue", 1061), ("red", 1062)] {
            frr.ip(&format!("link add {vrf} type vrf table {table}"))
                .unwrap();
            frr.ip(&format!("link set {vrf} up")).unwrap();
        }
    }
    // First the one that announces: what comes is filtered from the first route on.
    for (frr, node) in [(&b, "n2"), (&a, "n1")] {
        load(frr, &config(&world, node));
    }
    let all = ["10.61.1.0/24", "10.62.1.0/24", "10.128.1.0/24"];
    reaches(&a, "the default VRF", "main", &all);
    reaches(&a, "VRF blue", "1061", blue);
    reaches(&a, "VRF red", "1062", red);
    // And stays so: a route-map takes effect up to 5 s after it is there.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(learned(&a, "1061"), blue);
    assert_eq!(learned(&a, "1062"), red);
}

#[test]
fn a_vrf_takes_over_its_own_networks_pod_subnets_and_in_loose_mode_no_others() {
    vm_tests::with_vrf(
        "a_vrf_takes_over_its_own_networks_pod_subnets_and_in_loose_mode_no_others",
        || {
            let missing = frr_tests::missing();
            if !missing.is_empty() {
                assert!(
                    std::env::var("REQUIRE_TOOLS").as_deref() != Ok("1"),
                    "missing: {missing:?}"
                );
                println!("skipped: missing {missing:?}");
                return;
            }
            let all = ["10.61.1.0/24", "10.62.1.0/24", "10.128.1.0/24"];
            vrfs_of("strict", &all, &all);
            vrfs_of("loose", &all[..1], &all[1..2]);
        },
    );
}
