//! A network of its own: VRF devices, BGP inside them, and which routes belong to the network.
//!
//! In: two real FRRs, each with `router bgp 64512 vrf blue` in a VRF of table 1010. Out: what links, tables, dumps and
//! events say. Invariant: what main has, a network with a VRF never sees, and the other way round.
//! Not here: routes of main (`netns-tests`).
//!
//! ```text
//!  namespace a:  VRF blue, table 1010 -- p20 172.31.20.1 ===BGP=== 172.31.20.2 q20 -- VRF blue  :namespace b
//!                main: 10.9.0.0/24 proto bgp                        announces 10.20.1.0/24, 10.20.2.0/24
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use frr_tests::Frr;
use model::host::LinkFact;
use model::names::NetworkName;
use model::route::{KernelRoute, Leg, MAIN_TABLE, PROTOCOL_BGP, RouteKind, TableId};
use netlink::{Change, Watcher, dump};
use netns_tests::{in_namespace_of, run};
use plan_node::vrf;

const BLUE: TableId = 1010;
/// Emulated, a session takes 10 s.
const PATIENCE: Duration = Duration::from_secs(60);

fn config(own: u8, peer: u8, networks: &str) -> String {
    format!(
        "router bgp 64512 vrf blue
 bgp router-id 172.31.20.{own}
 no bgp network import-check
 neighbor 172.31.20.{peer} remote-as 64512
 neighbor 172.31.20.{peer} timers connect 1
 address-family ipv4 unicast
{networks} exit-address-family
"
    )
}

fn load(frr: &Frr, text: &str) {
    let file = frr.dir().join("vrf.conf");
    std::fs::write(&file, text).unwrap();
    run(Command::new("vtysh")
        .arg("--vty_socket")
        .arg(frr.dir())
        .arg("-f")
        .arg(&file));
}

fn link(links: &[LinkFact], name: &str) -> LinkFact {
    links.iter().find(|l| l.name == name).cloned().unwrap()
}

fn bgp(table: Option<TableId>) -> Vec<KernelRoute> {
    let mut routes = dump::routes(table, PROTOCOL_BGP).unwrap();
    routes.sort();
    routes
}

fn prefixes(table: Option<TableId>) -> Vec<String> {
    bgp(table).iter().map(|r| r.prefix.to_string()).collect()
}

/// Waits until the kernel is as wanted, looking only after events of the wanted kind.
async fn told(
    watcher: &mut Watcher,
    what: &str,
    kind: impl Fn(Change) -> bool,
    there: impl Fn() -> bool,
) {
    let waiting = async {
        loop {
            let change = watcher.changed().await.unwrap();
            if kind(change) && there() {
                break;
            }
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "{what}: not told");
}

fn two_nodes() -> (Frr, Frr) {
    let (a, b) = (Frr::start().unwrap(), Frr::start().unwrap());
    a.connect(&b, 20).unwrap();
    for (frr, port) in [(&a, "p20"), (&b, "q20")] {
        for command in [
            format!("link add blue type vrf table {BLUE}"),
            "link set blue up".to_owned(),
            format!("link set {port} master blue"),
        ] {
            frr.ip(&command).unwrap();
        }
    }
    a.ip("link add mp5-udn-vrf type vrf table 1005").unwrap();
    a.ip("route add 10.9.0.0/24 via 172.31.9.2 proto bgp metric 20")
        .unwrap();
    (a, b)
}

fn tables_follow_links() {
    let links = dump::links().unwrap();
    let blue = link(&links, "blue");
    let port = link(&links, "p20");
    assert_eq!((blue.vrf_table, blue.master), (Some(BLUE), None));
    assert_eq!((port.vrf_table, port.master), (None, Some(blue.index)));
    assert_eq!(link(&links, "lo").master, None);
    for (network, id, wanted) in [
        ("cluster_udn_blue", 1, Some(BLUE)),
        ("cluster_udn_a-name-too-long-for-a-device", 5, Some(1005)),
        ("cluster_udn_p20", 1, None),
        ("cluster_udn_red", 1, None),
        ("default", 0, Some(MAIN_TABLE)),
    ] {
        let found = vrf::table(&NetworkName::from(network), id, &links);
        assert_eq!(found, wanted, "{network}");
    }
}

async fn events_and_routes(a: &Frr, b: &Frr) {
    let mut watcher = Watcher::open().unwrap();
    tables_follow_links();
    assert!(prefixes(Some(BLUE)).is_empty());
    let networks = "  network 10.20.1.0/24\n  network 10.20.2.0/24\n";
    load(a, &config(1, 2, ""));
    load(b, &config(2, 1, networks));
    let both = ["10.20.1.0/24", "10.20.2.0/24"];
    told(
        &mut watcher,
        "learned",
        |c| c.routes,
        || prefixes(Some(BLUE)) == both,
    )
    .await;

    let oif = link(&dump::links().unwrap(), "p20").index;
    let gateway = Some("172.31.20.2".parse().unwrap());
    let learned = both.map(|prefix| KernelRoute {
        table: BLUE,
        prefix: prefix.parse().unwrap(),
        metric: 20,
        kind: RouteKind::Unicast,
        legs: vec![Leg { gateway, oif }],
    });
    assert_eq!(bgp(Some(BLUE)), learned);
    assert_eq!(prefixes(Some(MAIN_TABLE)), ["10.9.0.0/24"]);
    assert_eq!(bgp(None).len(), 3);
    let mut rib = rib::Rib::default();
    rib.replace(bgp(None));
    let links = dump::links().unwrap();
    rib.set_links(links.iter().map(|l| (l.index, l.up)).collect());
    assert_eq!(rib.view(BLUE).collect::<Vec<_>>(), learned);

    load(
        b,
        "router bgp 64512 vrf blue\n address-family ipv4 unicast\n  no network 10.20.2.0/24\n",
    );
    told(
        &mut watcher,
        "withdrawn",
        |c| c.routes,
        || prefixes(Some(BLUE)) == ["10.20.1.0/24"],
    )
    .await;

    a.ip("link delete blue").unwrap();
    let network = NetworkName::from("cluster_udn_blue");
    told(
        &mut watcher,
        "VRF deleted",
        |c| c.links,
        || vrf::table(&network, 1, &dump::links().unwrap()).is_none(),
    )
    .await;
    // What the port had in the VRF's table goes with the VRF, in a moment.
    let emptied = async {
        while !prefixes(Some(BLUE)).is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, emptied).await;
    assert!(waited.is_ok(), "routes outlive the VRF");
    assert!(bgp(Some(BLUE)).is_empty(), "empty, and no error");
    assert_eq!(prefixes(Some(MAIN_TABLE)), ["10.9.0.0/24"]);
}

#[test]
fn routes_that_bgp_learns_in_a_vrf_are_those_of_its_network_alone() {
    vm_tests::with_vrf(
        "routes_that_bgp_learns_in_a_vrf_are_those_of_its_network_alone",
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
            // They end outside of the namespace: a process inside would count as one of theirs.
            let nodes = Arc::new(two_nodes());
            let inside = Arc::clone(&nodes);
            in_namespace_of(nodes.0.namespace(), move || async move {
                let (a, b) = inside.as_ref();
                events_and_routes(a, b).await;
            });
        },
    );
}
