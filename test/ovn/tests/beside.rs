//! Rows beside OVN-Kubernetes': written, found again, taken away, and what the installed ovn-northd makes of them.
//!
//! In: a node's switch and cluster router as somebody else made them, and the plan's rows. Out: rows, and where packets go by
//! `ovn-trace`. Invariant: what is somebody else's is the same after as before. Not here: OVN-Kubernetes itself, packets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use model::nb::{RowKey, Table};
use model::{Family, NetworkName, NodeName};
use ovn::north::{Scene, Signs};
use ovn_tests::{Fixture, NORTHD_TOOLS, Northd, View};
use ovsdb::Client;
use ovsdb_tests::absent;
use plan_node::beside::north::{keys, plan, port_group, routed};
use testkit::mk_dual_view;

/// The node's switch with a pod and the management port, the cluster router, and its way to the other nodes.
fn mk_topology(northd: &Northd) {
    let both = |first: &str, second: &str| format!("{first} {second}");
    for words in [
        "lr-add ovn_cluster_router -- lrp-add ovn_cluster_router rtos-n1 0a:58:0a:80:01:01 10.128.1.1/24 fd01:0:0:1::1/64",
        "lrp-add ovn_cluster_router rtots-n1 0a:58:64:58:00:02 100.88.0.2/16 fd97::2/64",
        "ls-add n1 -- lsp-add n1 stor-n1 -- lsp-set-type stor-n1 router -- lsp-set-options stor-n1 router-port=rtos-n1",
        "lsp-set-addresses stor-n1 router -- lsp-add n1 k8s-n1 -- lsp-add n1 ns_pod",
        "ls-add transit_switch -- lsp-add transit_switch tstor-n1 -- lsp-set-type tstor-n1 router",
        "lsp-set-options tstor-n1 router-port=rtots-n1 -- lsp-set-addresses tstor-n1 router",
        "lsp-add transit_switch tstor-n2",
        "lr-route-add ovn_cluster_router 10.128.2.0/24 100.88.0.3",
        "lr-route-add ovn_cluster_router fd01:0:0:2::/64 fd97::3",
        // As policies of somebody: pods of a namespace are allowed what they asked for.
        "acl-add n1 to-lport 1001 outport==\"ns_pod\"&&ip allow-related",
        "lr-policy-add ovn_cluster_router 1004 inport==\"rtos-n1\"&&ip4.dst==172.30.0.1 reroute 10.128.1.2",
    ] {
        northd.nbctl(&words.split_whitespace().collect::<Vec<_>>());
    }
    for (port, addresses) in [
        (
            "k8s-n1",
            both("0a:58:0a:80:01:02 10.128.1.2", "fd01:0:0:1::2"),
        ),
        (
            "ns_pod",
            both("0a:58:0a:80:01:05 10.128.1.5", "fd01:0:0:1::5"),
        ),
        ("tstor-n2", both("0a:58:64:58:00:03 100.88.0.3", "fd97::3")),
    ] {
        northd.nbctl(&["lsp-set-addresses", port, &addresses]);
    }
}

/// A packet of the pod to another address.
fn packet(to: &str, from: &str) -> String {
    let ip = if to.contains(':') { "ip6" } else { "ip4" };
    format!(
        "inport == \"ns_pod\" && eth.src == 0a:58:0a:80:01:05 && eth.dst == 0a:58:0a:80:01:01 && {ip}.src == {from} && {ip}.dst == {to} && ip.ttl == 64 && tcp"
    )
}

/// By which port a packet of the pod leaves, as `ovn-trace` says it.
fn leaves_by(northd: &Northd, to: &str, from: &str) -> String {
    let said = northd.trace("n1", &packet(to, from));
    let outputs = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("output(\""));
    outputs
        .map(|rest| rest.split('"').next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join(",")
}

/// Both ways of the pod's packets to another node.
fn ways(northd: &Northd) -> [String; 2] {
    [
        ("10.128.2.9", "10.128.1.5"),
        ("fd01:0:0:2::9", "fd01:0:0:1::5"),
    ]
    .map(|(to, from)| leaves_by(northd, to, from))
}

const BY_TUNNEL: [&str; 2] = ["tstor-n2", "tstor-n2"];
const BY_HOST: [&str; 2] = ["k8s-n1", "k8s-n1"];

/// The topology of somebody else, with northd; `None` where tools are absent.
async fn mk_fixture() -> Option<(Fixture, Northd)> {
    if absent(NORTHD_TOOLS) {
        return None;
    }
    let (default, node) = (NetworkName::default_network(), NodeName::from("n1"));
    // As the node-agent follows it.
    let tables = ovn::north::monitor_beside(&keys(&default, &node));
    let fixture = Fixture::following(tables).await;
    let northd = Northd::over(&fixture.server);
    mk_topology(&northd);
    assert_eq!(ways(&northd), BY_TUNNEL, "the topology of the test");
    fixture.settle().await;
    Some((fixture, northd))
}

/// These subnets of other nodes have a usable route. Returns how many transactions that took.
async fn route(fixture: &Fixture, view: &View, family: Family, subnets: &[&str]) -> usize {
    let network = &view.share.network.name;
    let set = routed(network, family).id;
    let wanted = subnets.iter().map(|subnet| Box::from(*subnet)).collect();
    let read = |replica: &_| ovn::north::changes(replica, network, &set, &wanted);
    let changes = fixture.client.with_replica(read).unwrap().unwrap().unwrap();
    let transaction = ovn::encode::addresses(&set, &changes, "noverlay test");
    if let Some(transaction) = &transaction {
        let reply = fixture.client.transact(transaction).await.unwrap();
        reply.check_counts().unwrap();
    }
    fixture.settle().await;
    usize::from(transaction.is_some())
}

/// Another node's subnets have a usable route, in both families.
async fn route_both(fixture: &Fixture, view: &View) {
    for (family, subnet) in [
        (Family::V4, "10.128.2.0/24"),
        (Family::V6, "fd01:0:0:2::/64"),
    ] {
        assert_eq!(route(fixture, view, family, &[subnet]).await, 1);
    }
}

#[tokio::test]
async fn what_is_routed_leaves_by_the_management_port_and_everything_else_as_before() {
    let Some((fixture, northd)) = mk_fixture().await else {
        return;
    };
    let view = mk_dual_view(1);
    let steers = plan(view.get(), true, &[]);
    // The router's references to its policies are one column, somebody else's and ours.
    assert_eq!(fixture.pass_over(&steers).await, steers.len());
    assert_eq!(fixture.pass(&steers).await, 0);
    northd.nbctl(&["sync"]);
    assert_eq!(ways(&northd), BY_TUNNEL, "the sets are empty");
    route_both(&fixture, &view).await;
    northd.nbctl(&["sync"]);
    assert_eq!(ways(&northd), BY_HOST);
    assert_eq!(
        fixture.pass(&steers).await,
        0,
        "what is in the sets is not the plan's"
    );
    // A packet that the host sent into OVN, and one with somebody else's source.
    for from in ["10.128.1.2", "192.0.2.7"] {
        assert_eq!(leaves_by(&northd, "10.128.2.9", from), "tstor-n2", "{from}");
    }
    fixture.pass_over(&plan(view.get(), false, &[])).await;
    northd.nbctl(&["sync"]);
    assert_eq!(ways(&northd), BY_TUNNEL);
}

#[tokio::test]
async fn the_port_group_gets_the_management_port_that_was_made_anew_and_lets_go_without_one() {
    let Some((fixture, northd)) = mk_fixture().await else {
        return;
    };
    let rows = plan(mk_dual_view(1).get(), false, &[]);
    assert_eq!(rows.len(), 3, "a port group and two ACLs");
    assert_eq!(fixture.pass(&rows).await, rows.len());
    northd.nbctl(&["sync"]);
    assert_eq!(ways(&northd), BY_TUNNEL);
    // The group has lost the port.
    northd.nbctl(&["lsp-del", "k8s-n1", "--", "lsp-add", "n1", "k8s-n1"]);
    fixture.settle().await;
    assert_eq!(fixture.pass(&rows).await, 1);
    let group = port_group(&mk_dual_view(1).share.network.name).id;
    let port = northd.nbctl(&["get", "Logical_Switch_Port", "k8s-n1", "_uuid"]);
    let ports = northd.nbctl(&["get", "Port_Group", &group, "ports"]);
    assert_eq!(ports.trim(), format!("[{}]", port.trim()));
    // Steered, and then the port goes for good: what steers can be taken away all the same.
    let view = mk_dual_view(1);
    fixture.pass_over(&plan(view.get(), true, &[])).await;
    northd.nbctl(&["lsp-del", "k8s-n1"]);
    fixture.settle().await;
    let transaction = fixture.encode(&rows);
    let reply = fixture.client.transact(&transaction).await.unwrap();
    reply.check_counts().unwrap();
    fixture.settle().await;
    let policies = northd.nbctl(&["lr-policy-list", "ovn_cluster_router"]);
    assert!(!policies.contains("1010"), "{policies}");
    assert!(
        fixture.encode(&rows).operations().is_empty(),
        "nothing to do until the port is there"
    );
    // A group of our name that does not bear our marker is named.
    northd.nbctl(&["clear", "Port_Group", &group, "external_ids"]);
    fixture.settle().await;
    let named = fixture.foreign(&rows);
    assert!(named.len() == 1 && named[0].contains(&group), "{named:?}");
}

/// Of a connection whose other direction takes the tunnel the management port sees answers alone: what conntrack calls invalid.
#[tokio::test]
async fn answers_without_a_question_pass_the_management_port_and_are_dropped_without_the_acls() {
    let Some((fixture, northd)) = mk_fixture().await else {
        return;
    };
    // As services and policies make it: everything on the switch is asked about.
    northd.nbctl(&["lb-add", "service", "172.31.0.1:80", "10.128.1.5:8080"]);
    northd.nbctl(&["ls-lb-add", "n1", "service"]);
    let view = mk_dual_view(1);
    let steers = plan(view.get(), true, &[]);
    let is_acl = |key: &RowKey| matches!(key.table, Table::PortGroup | Table::GroupAcl);
    let mut without = steers.clone();
    without.retain(|key, _| !is_acl(key));
    for (rows, passes) in [(&without, false), (&steers, true)] {
        fixture.pass_over(rows).await;
        if !passes {
            route_both(&fixture, &view).await;
        }
        northd.nbctl(&["sync"]);
        for (to, from) in [
            ("10.128.2.9", "10.128.1.5"),
            ("fd01:0:0:2::9", "fd01:0:0:1::5"),
        ] {
            // The pod's own port, which has seen both directions, and the management port.
            let states = ["trk,est,rpl", "trk,inv"];
            let said = northd.traced("n1", &packet(to, from), &states);
            let out = said.contains("output to \"k8s-n1\"");
            assert_eq!(out, passes, "{to}: {said}");
        }
    }
}

#[tokio::test]
async fn what_was_added_goes_without_a_trace() {
    let Some((fixture, northd)) = mk_fixture().await else {
        return;
    };
    let before = fixture.others();
    let view = mk_dual_view(1);
    fixture.pass_over(&plan(view.get(), true, &[])).await;
    route_both(&fixture, &view).await;
    fixture.pass_over(&model::nb::Rows::new()).await;
    assert_eq!(fixture.others(), before);
    for table in ["Port_Group", "Address_Set", "Logical_Router_Policy", "ACL"] {
        let rows = northd.nbctl(&["--bare", "--columns=external_ids", "list", table]);
        assert!(!rows.contains("noverlay.io/owner"), "{table}: {rows}");
    }
}

#[tokio::test]
async fn a_set_gains_and_loses_what_differs_and_one_of_somebody_else_is_not_ours() {
    let Some((fixture, northd)) = mk_fixture().await else {
        return;
    };
    let view = mk_dual_view(1);
    let network = view.share.network.name.clone();
    let set = routed(&network, Family::V4).id;
    let held = || {
        let read = |replica: &_| ovn::north::addresses(replica, &network, &set);
        fixture.client.with_replica(read).unwrap().unwrap()
    };
    fixture
        .nbctl(&["create", "Address_Set", &format!("name={set}")])
        .await;
    assert_eq!(held(), None, "without our marker");
    northd.nbctl(&["destroy", "Address_Set", &set]);
    fixture.settle().await;
    fixture.pass_over(&plan(view.get(), true, &[])).await;
    for (subnets, transactions) in [
        (&["10.128.2.0/24", "10.128.3.0/24"][..], 1),
        (&["10.128.2.0/24", "10.128.3.0/24"], 0),
        (&["10.128.3.0/24", "10.128.4.0/24"], 1),
        (&[], 1),
    ] {
        let done = route(&fixture, &view, Family::V4, subnets).await;
        assert_eq!(done, transactions, "{subnets:?}");
        let stands = northd.nbctl(&["get", "Address_Set", &set, "addresses"]);
        let quoted: Vec<String> = subnets
            .iter()
            .map(|subnet| format!("\"{subnet}\""))
            .collect();
        assert_eq!(stands.trim(), format!("[{}]", quoted.join(", ")));
    }
}

#[tokio::test]
async fn what_is_in_both_is_not_touched_and_a_set_that_was_made_anew_is_another_one() {
    let Some((fixture, northd)) = mk_fixture().await else {
        return;
    };
    let view = mk_dual_view(1);
    let network = view.share.network.name.clone();
    let set = routed(&network, Family::V4).id;
    fixture.pass_over(&plan(view.get(), true, &[])).await;
    let (two, three) = ("10.128.2.0/24", "10.128.3.0/24");
    route(&fixture, &view, Family::V4, &[two, three]).await;
    let wanted = [three, "10.128.4.0/24"].map(Box::from).into();
    let read = |replica: &_| ovn::north::changes(replica, &network, &set, &wanted);
    let changes = fixture.client.with_replica(read).unwrap().unwrap().unwrap();
    assert_eq!(
        (&changes.missing[..], &changes.surplus[..]),
        (&["10.128.4.0/24".to_owned()][..], &[two.to_owned()][..])
    );
    let transaction = ovn::encode::addresses(&set, &changes, "noverlay test").unwrap();
    let said = format!("{:?}", transaction.operations());
    assert!(
        said.contains(two) && said.contains("10.128.4.0") && !said.contains(three),
        "{said}"
    );
    // Others made it anew in between.
    northd.nbctl(&["clear", "Logical_Router", "ovn_cluster_router", "policies"]);
    northd.nbctl(&["destroy", "Address_Set", &set]);
    northd.nbctl(&["create", "Address_Set", &format!("name={set}")]);
    let refused = fixture.client.transact(&transaction).await;
    assert!(refused.is_err(), "{refused:?}");
    let stands = northd.nbctl(&["get", "Address_Set", &set, "addresses"]);
    assert_eq!(stands.trim(), "[]");
}

/// What a client knows of the default network's owner.
fn told(client: &Client, router: &str, port: &str) -> Signs {
    let scene = Scene {
        network: &NetworkName::default_network(),
        cluster_router: router,
        gateway_router: "GR_n1",
        port,
        own: &["10.128.1.0/24", "fd01:0:0:1::/64"].map(|own| own.parse().unwrap()),
        whole: &["10.128.0.0/16", "fd01::/48"].map(|whole| whole.parse().unwrap()),
    };
    let read = |replica: &_| ovn::north::signs(replica, scene);
    client.with_replica(read).unwrap().unwrap()
}

/// What the database tells.
fn signs(fixture: &Fixture, router: &str, port: &str) -> Signs {
    told(&fixture.client, router, port)
}

fn found(fixture: &Fixture) -> Signs {
    signs(fixture, "ovn_cluster_router", "k8s-n1")
}

/// A database of somebody else's network, without tunnels.
fn bare() -> Signs {
    Signs {
        router: true,
        port: true,
        ..Signs::default()
    }
}

/// Sets columns of the one row that a condition finds.
async fn set(fixture: &Fixture, table: &str, condition: &str, words: &[&str]) {
    let server = format!("--db=unix:{}", fixture.server.socket().display());
    let find = [
        &server,
        "--bare",
        "--columns=_uuid",
        "find",
        table,
        condition,
    ];
    let output = std::process::Command::new("ovn-nbctl")
        .args(find)
        .output()
        .unwrap();
    let row = String::from_utf8(output.stdout).unwrap();
    fixture
        .nbctl(&[&["set", table, row.trim()], words].concat())
        .await;
}

#[tokio::test]
async fn routes_over_tunnels_and_a_topology_of_ours_are_found() {
    let Some((fixture, northd)) = mk_fixture().await else {
        return;
    };
    assert_eq!(found(&fixture), bare(), "routes that name no node");
    let others = signs(&fixture, "ovn_cluster_router_of_others", "k8s-n2");
    assert_eq!(others, Signs::default());
    let route = "ip_prefix=\"10.128.2.0/24\"";
    let id = ["external_ids:ic-node=n2"];
    set(&fixture, "Logical_Router_Static_Route", route, &id).await;
    let tunnels = Signs {
        tunnels: true,
        ..bare()
    };
    assert_eq!(found(&fixture), tunnels);
    // A route of another router is none of this network's.
    northd.nbctl(&["lr-add", "other"]);
    fixture.settle().await;
    assert!(!signs(&fixture, "other", "k8s-n1").tunnels);
    let owner = ["external_ids:noverlay.io/owner=default"];
    set(&fixture, "Logical_Switch", "name=n1", &owner).await;
    let built = Signs {
        built: true,
        ..tunnels
    };
    assert_eq!(found(&fixture), built);
}

#[tokio::test]
async fn the_nat_row_of_a_network_without_an_overlay_is_found() {
    let Some((fixture, northd)) = mk_fixture().await else {
        return;
    };
    let words = "lr-add GR_n1 -- lr-nat-add GR_n1 snat 172.30.0.1 10.128.0.0/16";
    northd.nbctl(&words.split(' ').collect::<Vec<_>>());
    let mut signed = Vec::new();
    for (owner, network) in [
        ("NoOverlayClusterSubnetSNAT", "red"),
        ("NoOverlayClusterSubnetSNAT", "default"),
        ("EgressIP", "default"),
    ] {
        let owner = format!("external_ids:k8s.ovn.org/owner-type={owner}");
        let network = format!("external_ids:network={network}");
        set(&fixture, "NAT", "type=snat", &[&owner, &network]).await;
        let found = found(&fixture);
        // Who follows everything sees the same.
        assert_eq!(told(&fixture.hand, "ovn_cluster_router", "k8s-n1"), found);
        signed.push(found.no_overlay_snat);
        let others = Signs {
            no_overlay_snat: false,
            ..found
        };
        assert_eq!(others, bare());
    }
    assert_eq!(signed, [false, true, false]);
}

/// As in the recordings of OVN-Kubernetes: over tunnels its gateway router leads to the whole network, without an overlay to the
/// node's subnet, whether it translates or not.
#[tokio::test]
async fn a_gateway_router_that_leads_to_the_nodes_subnet_alone_is_found() {
    let Some((fixture, northd)) = mk_fixture().await else {
        return;
    };
    northd.nbctl(&["lr-add", "GR_n1"]);
    for (words, is_sign) in [
        ("lr-route-add GR_n1 10.128.0.0/16 100.64.0.1", false),
        ("lr-route-add GR_n1 10.128.2.0/24 172.30.0.2", false),
        (
            "--policy=src-ip lr-route-add GR_n1 10.128.1.0/24 100.64.0.1",
            false,
        ),
        (
            "lr-route-add ovn_cluster_router 10.128.1.0/24 10.128.1.2",
            false,
        ),
        // Beside the route to the whole network it is somebody else's.
        ("lr-route-add GR_n1 10.128.1.0/24 100.64.0.1", false),
        ("lr-route-add GR_n1 0.0.0.0/0 172.30.0.100", false),
        ("lr-route-del GR_n1 10.128.0.0/16", true),
        ("lr-route-add GR_n1 10.128.0.0/16 discard", true),
        ("lr-route-add GR_n1 10.0.0.0/8 172.30.0.100", true),
        ("lr-route-add GR_n1 fd01::/48 fd98::1", true),
        ("lr-route-del GR_n1", false),
        ("lr-route-add GR_n1 fd01:0:0:1::/64 fd98::1", true),
    ] {
        northd.nbctl(&words.split(' ').collect::<Vec<_>>());
        fixture.settle().await;
        assert_eq!(found(&fixture).own_subnet_route, is_sign, "{words}");
    }
}

/// What was written is in force where every chassis has followed, and not before; the chassis is this test.
#[tokio::test]
async fn what_was_written_is_in_force_when_a_chassis_has_said_so() {
    let Some((fixture, northd)) = mk_fixture().await else {
        return;
    };
    northd.sbctl(&["chassis-add", "n1", "geneve", "172.30.0.1"]);
    northd.sbctl(&["create", "Chassis_Private", "name=n1"]);
    let client = &fixture.client;
    let configured = || {
        let read = client.with_replica(ovn::in_force::configured);
        read.unwrap().unwrap().unwrap()
    };
    let before = configured();
    let transaction = fixture.encode(&plan(mk_dual_view(1).get(), false, &[]));
    let counted = |replica: &_| ovn::in_force::counted(replica, transaction);
    let counted = client.with_replica(counted).unwrap().unwrap();
    let reply = client.transact(&counted).await.unwrap();
    reply.check_counts().unwrap();
    let written = configured().written;
    assert_eq!(written, before.written + 1);
    // Northd has seen it, and counts chassis that have not.
    northd.nbctl(&["sync"]);
    fixture.settle().await;
    assert!(configured().in_force < written, "{:?}", configured());
    northd.sbctl(&["set", "Chassis_Private", "n1", &format!("nb_cfg={written}")]);
    for _ in 0..100 {
        if configured().in_force == written {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the chassis has followed: {:?}", configured());
}

/// Pods, policies and sets of OVN-Kubernetes come and go without a word to who follows the database beside it.
#[tokio::test]
async fn what_others_write_of_pods_is_not_followed() {
    let Some((fixture, northd)) = mk_fixture().await else {
        return;
    };
    let view = mk_dual_view(1);
    fixture.pass_over(&plan(view.get(), true, &[])).await;
    northd.nbctl(&["sync"]);
    fixture.settle().await;
    let read = |replica: &ovsdb::Replica| {
        let tables = [
            "Logical_Switch_Port",
            "Port_Group",
            "Address_Set",
            "ACL",
            "NAT",
        ];
        let rows = tables.map(|table| replica.table(table).unwrap().len());
        (replica.generation(), rows)
    };
    fixture
        .nbctl(&["lb-add", "service", "172.31.0.1:80", "10.128.1.5:8080"])
        .await;
    let look = || fixture.client.with_replica(read).unwrap();
    let (before, rows) = look();
    assert_eq!(rows, [1, 1, 2, 2, 0], "the management port, and ours");
    for pod in 0..20 {
        let (port, set) = (format!("ns_pod{pod}"), format!("a{pod}"));
        // Without waiting for northd, which is somebody to follow.
        fixture.nbctl(&["lsp-add", "n1", &port]).await;
        fixture.nbctl(&["pg-add", &format!("pg{pod}"), &port]).await;
        fixture
            .nbctl(&["create", "Address_Set", &format!("name={set}")])
            .await;
        fixture
            .nbctl(&[
                "acl-add",
                "n1",
                "to-lport",
                &format!("{}", 1001 + pod),
                "ip",
                "drop",
            ])
            .await;
        fixture
            .nbctl(&["lsp-set-addresses", &port, "unknown"])
            .await;
    }
    // A Service that all pods of a switch may use, and its endpoints.
    for words in [
        "ls-lb-add n1 service",
        "lb-add service 172.31.0.1:80 10.128.1.6:8080",
    ] {
        let words = format!("--may-exist {words}");
        fixture.nbctl(&words.split(' ').collect::<Vec<_>>()).await;
    }
    let (after, rows) = look();
    assert_eq!(rows, [1, 1, 2, 2, 0]);
    assert_eq!(after, before, "no update came");
    // The control: what is followed does come.
    fixture
        .nbctl(&["set", "Logical_Switch", "n1", "external_ids:a=b"])
        .await;
    assert_ne!(look().0, before);
}
