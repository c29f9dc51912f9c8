//! A network of its own: VRF devices, BGP inside them, and which routes belong to the network.
//!
//! In: two real FRRs, each with `router bgp 64512 vrf blue` in a VRF of table 1010. Out: what links, tables, dumps and
//! events say. Invariant: what main has, a network with a VRF never sees, and the other way round.
//! Not here: routes of main (`netns-tests`).
//!
//! ```text
//!  namespace a:  VRF blue, table 1010 -- p20 172.31.20.1 ===BGP=== 172.31.20.2 q20 -- VRF blue  :namespace b
//!                main: 10.9.0.0/24 proto bgp                        announces 10.20.1.0/24, 10.20.2.0/24, 2001:db8:2::/64
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use frr_tests::Frr;
use model::kernel::LinkFact;
use model::names::NetworkName;
use model::route::{KernelRoute, MAIN_TABLE, PROTOCOL_BGP, RoutePath, TableId};
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
 address-family ipv6 unicast
  neighbor 172.31.20.{peer} activate
  network 2001:db8:{own}::/64
 exit-address-family
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

/// One line a route: destination, metric, gateways and links. Link-local gateways are reported as `fe80::`.
fn text(route: &KernelRoute, links: &[LinkFact]) -> String {
    let path = |path: &RoutePath| {
        let over = links.iter().find(|l| l.index == path.oif).unwrap();
        let gateway = path.gateway.unwrap().to_string();
        let via = if gateway.starts_with("fe80::") {
            "fe80::"
        } else {
            &gateway
        };
        format!(" {via}@{}", over.name)
    };
    let paths: String = route.paths.iter().map(path).collect();
    format!("{} {}{paths}", route.prefix, route.metric)
}

fn bgp(table: Option<TableId>) -> Vec<String> {
    let links = dump::links().unwrap();
    let mut routes = dump::routes(table, PROTOCOL_BGP).unwrap();
    routes.sort();
    if let Some(table) = table {
        assert!(routes.iter().all(|r| r.table == table), "{routes:?}");
    }
    routes.iter().map(|route| text(route, &links)).collect()
}

/// What a RIB of all tables shows of one.
fn view(table: TableId) -> Vec<String> {
    let links = dump::links().unwrap();
    let mut rib = rib::Rib::default();
    rib.replace(dump::routes(None, PROTOCOL_BGP).unwrap());
    rib.set_links(links.iter().map(|l| (l.index, l.up)).collect());
    rib.view(table).map(|route| text(&route, &links)).collect()
}

fn table_of(network: &str, id: u16) -> Option<TableId> {
    vrf::table(&NetworkName::from(network), id, &dump::links().unwrap())
}

/// Waits until the kernel is as wanted, looking only after events of the wanted kind.
async fn reported(
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
    assert!(waited.is_ok(), "{what}: not reported");
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
    // Addresses of IPv6 do not outlive a change of the master.
    for (frr, port, host) in [(&a, "p20", 1), (&b, "q20", 2)] {
        let command = format!("address add 2001:db8:ff::{host}/64 dev {port} nodad");
        frr.ip(&command).unwrap();
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
        ("cluster_udn_green", 1, None),
        ("default", 0, Some(MAIN_TABLE)),
    ] {
        assert_eq!(table_of(network, id), wanted, "{network}");
    }
}

async fn events_and_routes(a: &Frr, b: &Frr) {
    let mut watcher = Watcher::open().unwrap();
    let watcher = &mut watcher;
    tables_follow_links();
    let green = || table_of("cluster_udn_green", 2) == Some(1011);
    a.ip("link add green type vrf table 1011").unwrap();
    reported(watcher, "a new VRF", |c| c.links, green).await;

    assert!(bgp(Some(BLUE)).is_empty());
    load(a, &config(1, 2, ""));
    let networks = "  network 10.20.1.0/24\n  network 10.20.2.0/24\n";
    load(b, &config(2, 1, networks));
    let learned = [
        "10.20.1.0/24 20 172.31.20.2@p20",
        "10.20.2.0/24 20 172.31.20.2@p20",
        "2001:db8:2::/64 20 fe80::@p20",
    ];
    let all = || bgp(Some(BLUE)) == learned;
    reported(watcher, "routes learned", |c| c.routes, all).await;
    assert_eq!(view(BLUE), learned);
    let main = ["10.9.0.0/24 20 172.31.9.2@f1"];
    assert_eq!(bgp(Some(MAIN_TABLE)), main);
    assert_eq!(view(MAIN_TABLE), main);
    assert_eq!(bgp(None).len(), 4, "each in its own table");

    load(
        b,
        "router bgp 64512 vrf blue\n address-family ipv4 unicast\n  no network 10.20.2.0/24\n",
    );
    let fewer = || bgp(Some(BLUE)) == [learned[0], learned[2]];
    reported(watcher, "a route withdrawn", |c| c.routes, fewer).await;

    a.ip("link delete blue").unwrap();
    let gone = || table_of("cluster_udn_blue", 1).is_none();
    reported(watcher, "the VRF deleted", |c| c.links, gone).await;
    // What the port had in the VRF's table goes with the VRF, in a moment.
    let emptied = async {
        while !bgp(Some(BLUE)).is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, emptied).await;
    assert!(waited.is_ok(), "routes outlive the VRF");
    assert_eq!(bgp(Some(MAIN_TABLE)), main);
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
