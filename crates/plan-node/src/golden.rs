//! Whole plans as text, held against `tests/golden/<case>/NN-plan.txt`; `UPDATE_GOLDEN=1` writes them anew.
//! In: views of the samples. Out: a failed test with both texts. Invariant: every plan that is compared is also checked.
//! Not here: why a plan is as it is (each case's `why.md`).

use std::fmt::Write;
use std::path::Path;

use model::address::Prefix;
use model::nb::{Rows, Value};
use model::route::{KernelRoute, Leg, MAIN_TABLE, RouteKind};
use rib::Rib;

use crate::annotations::{self, NodeFacts};
use crate::bridge::{self, BridgeInput, BridgeNetwork, GatewayMode};
use crate::imports::{self, BgpDefault, ImportPlan, ImportWorld};
use crate::snapshot::NetworkView;
use crate::{check, host, samples};

const BRIDGE_LINK: u32 = 3;

fn compare(case: &str, number: u8, actual: &str) {
    let path = Path::new("tests/golden")
        .join(case)
        .join(format!("{number:02}-plan.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|err| panic!("{}: {err}; UPDATE_GOLDEN=1 writes it", path.display()));
    assert!(
        expected == actual,
        "{} differs (UPDATE_GOLDEN=1 writes it)\n--- expected\n{expected}\n--- actual\n{actual}",
        path.display()
    );
}

fn value(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("{text:?}"),
        Value::Number(number) => number.to_string(),
        Value::Set(items) => {
            let items: Vec<&str> = items.iter().map(String::as_str).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Entries(entries) => {
            let entries: Vec<String> = entries.iter().map(|(k, v)| format!("{k}={v}")).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Ref(key) => format!("-> {key}"),
    }
}

fn northbound(rows: &Rows) -> String {
    let mut out = String::from("# Northbound\n");
    for (key, columns) in rows {
        writeln!(out, "{key}").unwrap();
        for (column, held) in columns {
            writeln!(out, "  {column} = {}", value(held)).unwrap();
        }
    }
    out
}

fn kernel(view: &NetworkView) -> String {
    let network = host::plan(view).unwrap();
    let port = host::port(view).unwrap();
    let mut out = String::from("# Kernel\n");
    for address in &network.port.addresses {
        writeln!(
            out,
            "address {address} dev {} mac {} mtu {}",
            network.port.device, network.port.mac, network.port.mtu
        )
        .unwrap();
    }
    for rule in &network.rules {
        writeln!(
            out,
            "rule {} iif lo to {} lookup {}",
            rule.preference, rule.to, rule.table
        )
        .unwrap();
    }
    for route in &network.routes {
        writeln!(
            out,
            "route {} via {} dev {} table {} mtu {}",
            route.to, route.via, route.device, route.table, route.mtu
        )
        .unwrap();
    }
    writeln!(
        out,
        "# Integration bridge\nport {} of {} iface-id {} mac {} mtu {} owner {}",
        port.name, port.bridge, port.iface_id, port.mac, port.mtu, port.owner
    )
    .unwrap();
    out
}

fn flows(view: &NetworkView) -> String {
    let input = BridgeInput {
        uplink: 1,
        networks: vec![BridgeNetwork {
            network_id: view.network_id,
            patch: 2,
            pod_subnets: view.host_subnets.clone(),
        }],
        mac: view.gateway.mac,
        addresses: view.gateway.addresses.iter().map(|a| a.ip).collect(),
        mode: GatewayMode::Shared,
    };
    let mut out = String::from("# External bridge\n");
    for flow in bridge::full(&input) {
        writeln!(out, "{flow}").unwrap();
    }
    out
}

/// The other nodes' subnets, a default route and the own subnet, all over the gateway bridge.
fn learned(view: &NetworkView) -> ImportPlan {
    let mut dump = vec![
        kernel_route("0.0.0.0/0", "172.30.0.100"),
        kernel_route(&view.host_subnets[0].to_string(), "172.30.0.100"),
    ];
    for number in 1..=3 {
        let other = samples::view(number);
        if other.node != view.node {
            let gateway = format!("172.30.0.{number}");
            dump.push(kernel_route(&other.host_subnets[0].to_string(), &gateway));
        }
    }
    let mut rib = Rib::default();
    rib.set_links([(BRIDGE_LINK, true)].into());
    rib.replace(dump);
    let taken = imports::topology_prefixes(&crate::plan(view), &view.gateway_router());
    let world = ImportWorld::of(view, Some(BRIDGE_LINK), taken, BgpDefault::Ignore);
    let plan = imports::plan(rib.view(MAIN_TABLE), &world);
    let target = imports::target(&view.network, &view.node);
    assert_eq!(
        check::imports(&target, &plan.desired, &world.own_addresses),
        []
    );
    plan
}

fn kernel_route(to: &str, gateway: &str) -> KernelRoute {
    KernelRoute {
        table: MAIN_TABLE,
        prefix: to.parse().unwrap(),
        metric: 20,
        kind: RouteKind::Unicast,
        legs: vec![Leg {
            gateway: Some(gateway.parse().unwrap()),
            oif: BRIDGE_LINK,
        }],
    }
}

fn learned_text(plan: &ImportPlan) -> String {
    let mut out = String::from("# Imports\n");
    for row in &plan.desired {
        writeln!(out, "{} via {}", row.prefix, row.nexthop).unwrap();
    }
    for (reason, skipped) in &plan.skipped {
        let first: Vec<String> = skipped.first.iter().map(Prefix::to_string).collect();
        writeln!(
            out,
            "skipped {} {reason}: {}",
            skipped.count,
            first.join(", ")
        )
        .unwrap();
    }
    out
}

fn published(view: &NetworkView) -> String {
    let facts = NodeFacts {
        node: view.node.clone(),
        gateway: view.gateway.clone(),
        host_cidrs: view.gateway.addresses.clone(),
        host_mtu: view.mtu,
    };
    let mut out = String::from("# Annotations\n");
    for (key, text) in annotations::plan(&facts) {
        writeln!(out, "{key} = {text}").unwrap();
    }
    out
}

fn render(view: &NetworkView) -> String {
    let rows = crate::plan(view);
    assert_eq!(check::rows(&rows), []);
    assert_eq!(view.problems(), []);
    [
        northbound(&rows),
        kernel(view),
        flows(view),
        learned_text(&learned(view)),
        published(view),
    ]
    .concat()
}

#[test]
fn default_three_nodes() {
    for number in 1..=3 {
        compare(
            "default-three-nodes",
            number,
            &render(&samples::view(number)),
        );
    }
}

#[test]
fn snat_disabled_without_and_with_the_match_column() {
    let mut view = samples::view(1);
    view.outbound_snat = false;
    compare("snat-disabled", 1, &render(&view));
    view.nat_has_match = true;
    compare("snat-disabled", 2, &render(&view));
}

#[test]
fn two_cluster_subnets() {
    let mut view = samples::view(1);
    view.cluster_subnets
        .push("10.132.0.0/16/25".parse().unwrap());
    compare("two-cluster-subnets", 1, &render(&view));
}
