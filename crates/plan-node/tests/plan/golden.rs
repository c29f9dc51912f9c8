//! Whole plans as text, compared with `tests/golden/<case>/NN-plan.txt`; `UPDATE_GOLDEN=1` writes them again.
//! In: views of `testkit`. Out: a failed test with both texts. Invariant: every plan that is compared is also checked.
//! Not here: why a plan is as it is (each case's `why.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use import::decide::decide;
use model::gateway::{BgpDefault, GatewayMode};
use model::nb::{ImportTarget, ImportedRoute, Rows, Value};
use model::route::{KernelRoute, MAIN_TABLE, RouteKind, RoutePath};

use plan_node::annotations::{self, NodeFacts};
use plan_node::bridge::{self, BridgeInput, BridgeNetwork};
use plan_node::{NetworkView, check, host, learn};
use testkit::mk_view;

const BRIDGE_LINK: u32 = 3;

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
        for (column, retained) in columns {
            writeln!(out, "  {column} = {}", value(retained)).unwrap();
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
fn learned(view: &NetworkView) -> String {
    let mut dump = vec![
        kernel_route("0.0.0.0/0", "172.30.0.100"),
        kernel_route(&view.host_subnets[0].to_string(), "172.30.0.100"),
    ];
    for number in 1..=3 {
        let other = mk_view(number);
        if other.node != view.node {
            let gateway = format!("172.30.0.{number}");
            dump.push(kernel_route(&other.host_subnets[0].to_string(), &gateway));
        }
    }
    let taken = learn::topology_prefixes(&plan_node::plan(view), &view.gateway_router());
    let scope = learn::scope(view, Some(BRIDGE_LINK), taken, BgpDefault::Ignore);
    let mut rows = BTreeSet::new();
    let mut skipped: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    dump.sort_by_key(|route| route.prefix);
    for route in dump {
        let decision = decide(&route, &scope);
        let prefix = route.prefix;
        let row = |nexthop| ImportedRoute { prefix, nexthop };
        rows.extend(decision.hops.into_iter().map(row));
        for reason in decision.reasons {
            skipped.entry(reason).or_default().push(prefix.to_string());
        }
    }
    let target = ImportTarget::of(&view.network, &view.node);
    assert_eq!(check::imports(&target, &rows, &scope.own_addresses), []);
    let mut out = String::from("# Imports\n");
    for row in &rows {
        writeln!(out, "{} via {}", row.prefix, row.nexthop).unwrap();
    }
    for (reason, prefixes) in &skipped {
        writeln!(
            out,
            "skipped {} {reason}: {}",
            prefixes.len(),
            prefixes.join(", ")
        )
        .unwrap();
    }
    out
}

fn kernel_route(to: &str, gateway: &str) -> KernelRoute {
    KernelRoute {
        table: MAIN_TABLE,
        prefix: to.parse().unwrap(),
        metric: 20,
        kind: RouteKind::Unicast,
        paths: vec![RoutePath {
            gateway: Some(gateway.parse().unwrap()),
            oif: BRIDGE_LINK,
        }],
    }
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

fn plan_text(case: &str, number: u8, actual: &str) {
    testkit::golden::compare(case, &format!("{number:02}-plan.txt"), actual);
}

fn render(view: &NetworkView) -> String {
    let rows = plan_node::plan(view);
    assert_eq!(check::rows(&rows), []);
    assert_eq!(view.problems(), []);
    [
        northbound(&rows),
        kernel(view),
        flows(view),
        learned(view),
        published(view),
    ]
    .concat()
}

#[test]
fn default_three_nodes() {
    for number in 1..=3 {
        plan_text("default-three-nodes", number, &render(&mk_view(number)));
    }
}

#[test]
fn snat_disabled_without_and_with_the_match_column() {
    let mut view = mk_view(1);
    view.outbound_snat = false;
    plan_text("snat-disabled", 1, &render(&view));
    view.nat_has_match = true;
    plan_text("snat-disabled", 2, &render(&view));
}

#[test]
fn two_cluster_subnets() {
    let mut view = mk_view(1);
    view.cluster_subnets
        .push("10.132.0.0/16/25".parse().unwrap());
    plan_text("two-cluster-subnets", 1, &render(&view));
}
