//! The layer-3 topology of a network on its node.
//! In: `NetworkView`. Out: every Northbound row but pods' ports, address translation and imported routes.
//! Invariant: without an overlay no transit switch and no route to remote pods; what a node does not know yet (a family, a subnet) gives no row.
//! Not here: the overlay (`transit`), `snat`, what several networks share (`shared`), imported routes.
//!
//! ```text
//!                                         overlay: rtots/tstor -- transit switch -- tstor of other nodes
//!                                                       |
//!  pods, k8s-<node> -- node switch --stor/rtos-- cluster router --rtoj/jtor-- join --jtor/rtoj-- GR --rtoe/etor-- ext -- localnet
//! ```
//! Rows as OVN-Kubernetes makes them (its docs: design/topology; `go-controller/pkg/ovn/gateway.go`).

mod layer2;
mod transit;

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::address::{Family, InterfaceAddr, Mac, Prefix};
use model::gateway::GatewayMode;
use model::names::{NodeName, RouterName};
use model::nb::{self, RowKey, Rows, Table, Value};
use model::ovs;

use super::rows_builder::{RowsBuilder, text, texts};
use crate::snapshot::{NetworkView, mac_of, of_family};

/// Priority of the policy that keeps traffic to the own node's addresses on the node (OVN-Kubernetes: 1004).
const HOST_POLICY_PRIORITY: i64 = 1004;

/// The rows of a network's topology.
#[must_use]
pub fn plan(view: NetworkView<'_>) -> Rows {
    let mut rows_builder = RowsBuilder::of(view);
    gateway_router(view, &mut rows_builder);
    match view.layer2() {
        Some(layer2) => layer2::plan(view, layer2, &mut rows_builder),
        None => layer3(view, &mut rows_builder),
    }
    external(view, &mut rows_builder);
    host_policies(view, &mut rows_builder);
    gateway_routes(view, &mut rows_builder);
    rows_builder.into_rows()
}

/// What only layer-3 networks have.
fn layer3(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    roots(view, rows_builder);
    node_switch(view, rows_builder);
    join(view, rows_builder);
    if view.is_overlay() {
        transit::plan(view, rows_builder);
    }
    cluster_routes(view, rows_builder);
    gateway_pod_routes(view, rows_builder);
}

fn roots(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let cluster = view.cluster_router();
    let commit_all = commits_all(view).then_some(COMMIT_ALL);
    let options = commit_all.into_iter().chain([LEARN_SELDOM]);
    rows_builder.put(
        RowKey::root(Table::Router, cluster.as_str()),
        [
            ("name", text(&cluster)),
            ("options", Value::entries(options)),
            ("external_ids", Value::entries([CLUSTER_ROUTER])),
        ],
    );
    put_switch(&view.switch(), role(view), rows_builder);
    put_switch(&view.name().join_switch(), None, rows_builder);
}

/// By this OVN-Kubernetes and its tools know a cluster router.
const CLUSTER_ROUTER: (&str, &str) = ("k8s-cluster-router", "yes");

/// By this it knows whose end of a shared switch a port is.
const NODE: &str = "node";

/// By this it knows the gateway port that has the node's own addresses, the default network's.
const PHYSICAL_ADDRESSES: (&str, &str) = ("gateway-physical-ip", "yes");

/// Not each pod that asks for its gateway leaves a MAC_Binding.
const LEARN_SELDOM: (&str, &str) = ("always_learn_from_arp_request", "false");

/// Option of a router that translates what goes to the host.
const COMMIT_ALL: (&str, &str) = ("ct-commit-all", "true");

/// Whether it needs that: answers to translated packets come back by the other way.
fn commits_all(view: NetworkView<'_>) -> bool {
    view.node.mode == GatewayMode::Local && !view.name().is_default()
}

fn put_switch(
    switch: &str,
    ids: Option<(&'static str, &'static str)>,
    rows_builder: &mut RowsBuilder,
) {
    rows_builder.put(
        RowKey::root(Table::Switch, switch),
        [
            ("name", text(switch)),
            ("external_ids", Value::entries(ids)),
        ],
    );
}

/// `external_ids` that say what a network of users is to its pods.
fn role(view: NetworkView<'_>) -> Option<(&'static str, &'static str)> {
    let is_default = view.name().is_default();
    (!is_default).then_some(("k8s.ovn.org/role", "primary"))
}

fn gateway_router(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let router = view.gateway_router();
    let answers_come_to = match view.layer2() {
        None => "router_ip".to_owned(),
        // Other nodes' pods know the way to these of its addresses.
        Some(_) => layer2::joined(&view.gateway_join()),
    };
    let mut options = vec![
        ("chassis", view.node.gateway.chassis.as_str()),
        LEARN_SELDOM,
        ("dynamic_neigh_routers", "false"),
        ("mac_binding_age_threshold", "300"),
        ("lb_force_snat_ip", answers_come_to.as_str()),
    ];
    if view.name().is_default() {
        options.push(("snat-ct-zone", "0"));
    } else {
        options.push(("disable_garp_rarp", "true"));
    }
    let addresses = view.gateway_addresses();
    let addresses = addresses.iter().map(|address| address.ip);
    let addresses: Vec<String> = addresses
        .chain(view.gateway_masquerade())
        .map(|address| address.to_string())
        .collect();
    let role = role(view).map(|(key, value)| (key, value.to_owned()));
    let mut ids: Vec<(&str, String)> = role.into_iter().collect();
    if let Some(first) = addresses.first() {
        ids.push(("physical_ip", first.clone()));
        ids.push(("physical_ips", addresses.join(",")));
    }
    rows_builder.put(
        RowKey::root(Table::Router, router.as_str()),
        [
            ("name", text(&router)),
            ("options", Value::entries(options)),
            ("external_ids", Value::entries(ids)),
        ],
    );
}

/// A router port and the switch port at its other end.
struct Link<'a> {
    router: &'a RouterName,
    router_port: String,
    switch: &'a str,
    switch_port: String,
    mac: Mac,
    networks: &'a [InterfaceAddr],
    /// Where the router port is the router's gateway port.
    chassis: Option<RowKey>,
    /// What all nodes call the switch port.
    tunnel_key: Option<u32>,
    /// `external_ids` of the router port.
    ids: Option<(&'static str, &'static str)>,
    /// Of a switch that all nodes share: whose port it is, `external_ids:node`.
    node: Option<&'a NodeName>,
}

fn link(rows_builder: &mut RowsBuilder, link: Link<'_>) {
    rows_builder.put(
        RowKey::child(
            Table::RouterPort,
            link.router.as_str(),
            link.router_port.as_str(),
        ),
        [
            ("name", text(&link.router_port)),
            ("mac", text(link.mac)),
            ("networks", texts(link.networks)),
            ("external_ids", Value::entries(link.ids)),
        ]
        .into_iter()
        .chain(link.chassis.map(|row| ("gateway_chassis", Value::Ref(row)))),
    );
    rows_builder.put(
        RowKey::child(Table::SwitchPort, link.switch, link.switch_port.as_str()),
        [
            ("name", text(&link.switch_port)),
            ("type", text("router")),
            ("addresses", texts(["router"])),
            (
                "options",
                Value::entries(
                    [("router-port", link.router_port.clone())]
                        .into_iter()
                        .chain(link.tunnel_key.map(tunnel_key)),
                ),
            ),
            (
                "external_ids",
                Value::entries(link.node.map(|name| (NODE, name.as_str()))),
            ),
        ],
    );
}

fn tunnel_key(key: u32) -> (&'static str, String) {
    ("requested-tnl-key", key.to_string())
}

/// The cluster router of a network of users translates where it meets the node switch: that port is its gateway port.
fn gateway_chassis(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) -> Option<RowKey> {
    if view.name().is_default() {
        return None;
    }
    let chassis = &view.node.gateway.chassis;
    let name = format!("{}-{chassis}", view.switch_router_port());
    let key = RowKey::root(Table::GatewayChassis, name.as_str());
    rows_builder.put(
        key.clone(),
        [
            ("name", text(name)),
            ("chassis_name", text(chassis)),
            ("priority", Value::Number(1)),
        ],
    );
    Some(key)
}

fn node_switch(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let switch = view.switch();
    let gateways = view.subnet_gateways();
    if let Some(mac) = mac_of(&gateways) {
        let chassis = gateway_chassis(view, rows_builder);
        link(
            rows_builder,
            Link {
                router: &view.cluster_router(),
                router_port: view.switch_router_port(),
                switch: &switch,
                switch_port: nb::stor(&switch),
                mac,
                networks: &gateways,
                chassis,
                tunnel_key: None,
                ids: None,
                node: None,
            },
        );
    }
    management_port(view, rows_builder);
}

fn management_port(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let management = view.management();
    if let Some(mac) = mac_of(&management) {
        let ips: Vec<String> = management.iter().map(|a| a.ip.to_string()).collect();
        let port = view.name().management_lsp(&view.node.name);
        // No port security: this port also carries the node's own addresses.
        rows_builder.put(
            RowKey::child(Table::SwitchPort, view.switch(), port.as_str()),
            [
                ("name", text(&port)),
                ("addresses", texts([format!("{mac} {}", ips.join(" "))])),
            ],
        );
    }
}

fn join(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let switch = view.name().join_switch();
    for (router, networks) in [
        (view.cluster_router(), view.cluster_join()),
        (view.gateway_router(), view.gateway_join()),
    ] {
        if let Some(mac) = mac_of(&networks) {
            link(
                rows_builder,
                Link {
                    router: &router,
                    router_port: nb::rtoj(&router),
                    switch: &switch,
                    switch_port: nb::jtor(&router),
                    mac,
                    networks: &networks,
                    chassis: None,
                    tunnel_key: None,
                    ids: None,
                    node: None,
                },
            );
        }
    }
}

fn external(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let switch = view.name().external_switch(&view.node.name);
    put_switch(&switch, role(view), rows_builder);
    let router = view.gateway_router();
    let is_default = view.name().is_default();
    let mut addresses = view.gateway_addresses();
    if !addresses.is_empty() {
        // What the network's own translation leads to has to be the router's.
        addresses.extend(view.gateway_masquerade().into_iter().map(host));
        link(
            rows_builder,
            Link {
                router: &router,
                router_port: nb::rtoe(&router),
                switch: &switch,
                switch_port: nb::etor(&router),
                mac: view.node.gateway.mac,
                networks: &addresses,
                chassis: None,
                tunnel_key: None,
                ids: is_default.then_some(PHYSICAL_ADDRESSES),
                node: None,
            },
        );
    }
    let localnet = ovs::localnet_port(&view.node.gateway.bridge, view.name(), &view.node.name);
    rows_builder.put(
        RowKey::child(Table::SwitchPort, switch, localnet.as_str()),
        [
            ("name", text(&localnet)),
            ("type", text("localnet")),
            ("addresses", texts(["unknown"])),
            (
                "options",
                Value::entries([("network_name", view.node.gateway.physical_network.as_str())]),
            ),
        ],
    );
}

/// An address alone.
fn host(ip: IpAddr) -> InterfaceAddr {
    let len = Prefix::host(ip).bits();
    InterfaceAddr { ip, len }
}

/// The columns of a static route; `""` leaves an optional one empty.
struct Route<'a> {
    policy: &'a str,
    prefix: String,
    nexthop: String,
    output_port: &'a str,
}

fn route(rows_builder: &mut RowsBuilder, router: &RouterName, route: Route<'_>) {
    let id = nb::route_id(
        route.policy,
        &route.prefix,
        &route.nexthop,
        route.output_port,
    );
    rows_builder.put(
        RowKey::child(Table::StaticRoute, router.as_str(), id),
        [
            ("policy", optional(route.policy)),
            ("ip_prefix", text(route.prefix)),
            ("nexthop", text(route.nexthop)),
            ("output_port", optional(route.output_port)),
        ],
    );
}

fn optional(value: &str) -> Value {
    texts(Some(value).filter(|value| !value.is_empty()))
}

/// Cluster router: the gateway router's join address, and local pods by their source: to the gateway router, or in local
/// gateway mode to the management port, behind which the kernel routes.
fn cluster_routes(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let router = view.cluster_router();
    let gateways = view.gateway_join();
    for gateway in &gateways {
        route(
            rows_builder,
            &router,
            Route {
                policy: "",
                prefix: gateway.ip.to_string(),
                nexthop: gateway.ip.to_string(),
                output_port: "",
            },
        );
    }
    let out = match view.node.mode {
        GatewayMode::Shared => gateways,
        GatewayMode::Local => view.management(),
    };
    for subnet in &view.share.host_subnets {
        if let Some(gateway) = of_family(&out, subnet.family()) {
            route(
                rows_builder,
                &router,
                Route {
                    policy: "src-ip",
                    prefix: subnet.to_string(),
                    nexthop: gateway.to_string(),
                    output_port: "",
                },
            );
        }
    }
}

/// Pods reach their own node's addresses through the management port, with the pod's address.
fn host_policies(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let router = view.cluster_router();
    let switch = view.switch();
    let management = view.management();
    let shared = view.gateway_addresses();
    let shared = shared.iter().map(|address| address.ip);
    let host = view.node.host_addresses.iter().copied();
    // Of a layer-2 network OVN-Kubernetes has none for the gateway router's own.
    let masquerade = view.gateway_masquerade().into_iter();
    let masquerade = masquerade.filter(|_| view.layer2().is_none());
    let addresses: BTreeSet<IpAddr> = host.chain(shared).chain(masquerade).collect();
    for address in addresses {
        let family = Family::of(address);
        let mut subnets = view.share.network.prefixes();
        let inside = subnets.any(|subnet| subnet.contains_ip(address));
        let Some(nexthop) = of_family(&management, family).filter(|_| !inside) else {
            continue;
        };
        let ip = family.ovn_protocol();
        let port = view.switch_router_port();
        let matches = format!("inport == \"{port}\" && {ip}.dst == {address} /* {switch} */");
        rows_builder.put(
            RowKey::child(
                Table::Policy,
                router.as_str(),
                nb::policy_id(HOST_POLICY_PRIORITY, &matches),
            ),
            [
                ("priority", Value::Number(HOST_POLICY_PRIORITY)),
                ("match", text(matches)),
                ("action", text("reroute")),
                ("nexthops", texts([nexthop])),
            ],
        );
    }
}

/// Gateway router: back to local pods.
fn gateway_pod_routes(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let router = view.gateway_router();
    let inside = view.cluster_join();
    let subnets: Vec<Prefix> = if view.is_overlay() {
        // The cluster router knows the way to the others.
        view.share.network.prefixes().collect()
    } else {
        view.share.host_subnets.clone()
    };
    for subnet in &subnets {
        if let Some(nexthop) = of_family(&inside, subnet.family()) {
            route(
                rows_builder,
                &router,
                Route {
                    policy: "",
                    prefix: subnet.to_string(),
                    nexthop: nexthop.to_string(),
                    output_port: "",
                },
            );
        }
    }
}

/// Gateway router: out by the default routers, and nowhere for pods without a route.
fn gateway_routes(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let router = view.gateway_router();
    let port = nb::rtoe(&router);
    for nexthop in &view.node.gateway.next_hops {
        if view.gateway_address(Family::of(*nexthop)).is_none() {
            continue;
        }
        let everything = match Family::of(*nexthop) {
            Family::V4 => "0.0.0.0/0",
            Family::V6 => "::/0",
        };
        route(
            rows_builder,
            &router,
            Route {
                policy: "",
                prefix: everything.to_owned(),
                nexthop: nexthop.to_string(),
                output_port: &port,
            },
        );
    }
    if view.discards() {
        for subnet in view.share.network.prefixes() {
            route(
                rows_builder,
                &router,
                Route {
                    policy: "",
                    prefix: subnet.to_string(),
                    nexthop: nb::DISCARD.to_owned(),
                    output_port: "",
                },
            );
        }
    }
}
