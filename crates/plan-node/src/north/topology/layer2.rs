//! The layer-2 topology of a network on its node: one switch and one router for all nodes, of which each has its part.
//! In: `NetworkView`. Out: switch and transit router, the links to gateway routers, routes between them.
//! Invariant: keys and addresses follow from the network and from ids of nodes, so that all nodes have the same; what this OVN
//! does not know of (a router's port on another node: before 25.03) stands and does nothing.
//! Not here: pods' ports, those of other nodes' pods too, which are the CNI's; what all topologies have (`topology`).
//!
//! ```text
//!  pods, k8s-<node>, other nodes' pods -- switch --stotr/trtos-- transit router --trtor/jtor-- join --jtor/rtotr-- GR --rtoe/etor-- ext
//!                                                                      '-- trtor of other nodes' gateway routers
//! ```
//! Rows as OVN-Kubernetes makes them (layer-2 topology version 2.0; `go-controller/pkg/ovn/layer2_user_defined_network_controller.go`).

use std::net::IpAddr;

use model::address::{Family, InterfaceAddr};
use model::gateway::GatewayMode;
use model::names::{NodeName, RouterName};
use model::nb::{self, RowKey, Table, Value};
use model::network::Layer2;

use super::{
    CLUSTER_ROUTER, COMMIT_ALL, Route, commits_all, gateway_chassis, management_port, put_switch,
    role, route, tunnel_key,
};
use crate::north::rows_builder::{RowsBuilder, text, texts};
use crate::snapshot::{NetworkView, mac_of, of_family};

/// Key of the transit router's port towards the switch.
const SWITCH_PORT_KEY: u32 = 1;
/// Key of its port towards the gateway router of node id 0; each node's is this plus its id.
const GATEWAY_PORT_KEYS: u32 = 10;
/// `external_ids` key of what is another node's.
const NODE: &str = "k8s.ovn.org/node";

/// The rows that only layer-2 networks have.
pub(super) fn plan(view: NetworkView<'_>, layer2: &Layer2, rows_builder: &mut RowsBuilder) {
    roots(view, layer2, rows_builder);
    switch_link(view, rows_builder);
    management_port(view, rows_builder);
    gateway_link(view, rows_builder);
    remote_gateways(view, rows_builder);
    routes(view, rows_builder);
}

/// Addresses with spaces between them, as options have them.
pub(super) fn joined(addresses: &[InterfaceAddr]) -> String {
    let ips: Vec<String> = addresses.iter().map(|a| a.ip.to_string()).collect();
    ips.join(" ")
}

fn roots(view: NetworkView<'_>, layer2: &Layer2, rows_builder: &mut RowsBuilder) {
    let router = view.cluster_router();
    let commit_all = commits_all(view).then_some(COMMIT_ALL);
    let commit_all = commit_all.map(|(key, value)| (key, value.to_owned()));
    let options = commit_all
        .into_iter()
        .chain([tunnel_key(layer2.router_key)]);
    rows_builder.put(
        RowKey::root(Table::Router, router.as_str()),
        [
            ("name", text(&router)),
            ("options", Value::entries(options)),
            ("external_ids", Value::entries([CLUSTER_ROUTER])),
        ],
    );
    let switch = view.switch();
    let config = [
        ("interconn-ts", switch.clone()),
        tunnel_key(layer2.switch_key),
    ];
    rows_builder.put(
        RowKey::root(Table::Switch, switch.as_str()),
        [
            ("name", text(&switch)),
            ("other_config", Value::entries(config)),
            ("external_ids", Value::entries(role(view))),
        ],
    );
}

/// Between switch and transit router. Each node has this port with the same address; it is bound to this one, so that pods are
/// served where they are.
fn switch_link(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let gateways = view.subnet_gateways();
    let Some(mac) = mac_of(&gateways) else {
        return;
    };
    let (port, switch) = (view.switch_router_port(), view.switch());
    let chassis = gateway_chassis(view, rows_builder);
    let advertises = of_family(&gateways, Family::V6).is_some();
    let columns = [
        ("name", text(&port)),
        ("mac", text(mac)),
        ("networks", texts(&gateways)),
    ];
    // Northd of 23.03 would complain, which gives the port's redirecting twin the same key; it has no use for it.
    let key = view.node.nat_has_match.then(|| tunnel_key(SWITCH_PORT_KEY));
    let key = key.map(|key| ("options", Value::entries([key])));
    let chassis = chassis.map(|row| ("gateway_chassis", Value::Ref(row)));
    let advertisements = advertises.then(|| ("ipv6_ra_configs", router_advertisements(view)));
    rows_builder.put(
        router_port(&view.cluster_router(), &port),
        columns
            .into_iter()
            .chain(key)
            .chain(chassis)
            .chain(advertisements),
    );
    let name = nb::stotr(&switch);
    rows_builder.put(
        RowKey::child(Table::SwitchPort, switch, name.as_str()),
        [
            ("name", text(&name)),
            ("type", text("router")),
            ("addresses", texts(["router"])),
            ("options", Value::entries([("router-port", port)])),
        ],
    );
}

fn router_port(router: &RouterName, name: &str) -> RowKey {
    RowKey::child(Table::RouterPort, router.as_str(), name)
}

/// The gateway and the MTU are said again and again, for pods that come from another node; addresses come by DHCPv6.
fn router_advertisements(view: NetworkView<'_>) -> Value {
    let mtu = view.share.mtu.to_string();
    Value::entries([
        ("address_mode", "dhcpv6_stateful"),
        ("max_interval", "900"),
        ("min_interval", "300"),
        ("mtu", mtu.as_str()),
        ("router_preference", "LOW"),
        ("send_periodic", "true"),
    ])
}

/// Between transit router and this node's gateway router, which has its join address here. They meet on a switch: ovn-controller
/// before 25.03 makes nothing of a gateway router's port whose peer is a distributed router's.
fn gateway_link(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let (router, gateway) = (view.cluster_router(), view.gateway_router());
    let (inner, outer) = (nb::trtor(&gateway), nb::rtotr(&gateway));
    let link = view.transit_link(view.node.id);
    let mut addresses = view.gateway_join();
    let (Some(inner_mac), Some(outer_mac)) = (mac_of(&link.transit), mac_of(&addresses)) else {
        return;
    };
    addresses.extend(&link.gateway);
    let switch = view.name().join_switch();
    put_switch(&switch, None, rows_builder);
    let key = GATEWAY_PORT_KEYS + view.node.id;
    for (router, port, mac, networks, key) in [
        (&router, &inner, inner_mac, &link.transit, Some(key)),
        (&gateway, &outer, outer_mac, &addresses, None),
    ] {
        let options = key.map(|key| ("options", Value::entries([tunnel_key(key)])));
        let columns = [
            ("name", text(port)),
            ("mac", text(mac)),
            ("networks", texts(networks)),
        ];
        let columns = columns.into_iter().chain(options);
        rows_builder.put(router_port(router, port), columns);
        let end = nb::jtor(router);
        rows_builder.put(
            RowKey::child(Table::SwitchPort, switch.as_str(), end.as_str()),
            [
                ("name", text(&end)),
                ("type", text("router")),
                ("addresses", texts(["router"])),
                ("options", Value::entries([("router-port", port)])),
            ],
        );
    }
}

/// The transit router's ports towards the gateway routers of other nodes, which are there.
fn remote_gateways(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    for (name, remote) in &view.node.remotes {
        let addresses = view.transit_link(remote.id).transit;
        let Some(mac) = mac_of(&addresses).filter(|_| remote.id != view.node.id) else {
            continue;
        };
        let port = nb::trtor(&view.name().gateway_router(name));
        let chassis = ("requested-chassis", remote.chassis.clone());
        let key = tunnel_key(GATEWAY_PORT_KEYS + remote.id);
        rows_builder.put(
            router_port(&view.cluster_router(), &port),
            [
                ("name", text(&port)),
                ("mac", text(mac)),
                ("networks", texts(&addresses)),
                ("options", Value::entries([chassis, key])),
                ("external_ids", Value::entries([(NODE, name.as_str())])),
            ],
        );
    }
}

/// Transit router: pods by their source to the gateway router, or in local gateway mode to the management port; gateway routers
/// by their join addresses. Gateway router: pods, wherever they are, by the transit router.
fn routes(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let (router, gateway) = (view.cluster_router(), view.gateway_router());
    let link = view.transit_link(view.node.id);
    let out = match view.node.mode {
        GatewayMode::Shared => link.gateway,
        GatewayMode::Local => view.management(),
    };
    let to_transit = nb::rtotr(&gateway);
    for subnet in view.share.network.prefixes() {
        if let Some(nexthop) = of_family(&out, subnet.family()) {
            let prefix = subnet.to_string();
            let by_source = by("src-ip", prefix, nexthop, "");
            route(rows_builder, &router, by_source);
        }
        if let Some(nexthop) = of_family(&link.transit, subnet.family()) {
            let inside = by("", subnet.to_string(), nexthop, &to_transit);
            route(rows_builder, &gateway, inside);
        }
    }
    gateway_routers(view, view.node.id, None, rows_builder);
    for (name, remote) in &view.node.remotes {
        if remote.id != view.node.id {
            gateway_routers(view, remote.id, Some(name), rows_builder);
        }
    }
}

fn by<'a>(policy: &'a str, prefix: String, nexthop: IpAddr, output_port: &'a str) -> Route<'a> {
    Route {
        policy,
        prefix,
        nexthop: nexthop.to_string(),
        output_port,
    }
}

/// The transit router's routes to the join addresses of one gateway router.
fn gateway_routers(
    view: NetworkView<'_>,
    node_id: u32,
    remote: Option<&NodeName>,
    rows_builder: &mut RowsBuilder,
) {
    let link = view.transit_link(node_id);
    for join in view.join_of(node_id) {
        let Some(nexthop) = of_family(&link.gateway, Family::of(join.ip)) else {
            continue;
        };
        let (prefix, nexthop) = (join.ip.to_string(), nexthop.to_string());
        let id = nb::route_id("", &prefix, &nexthop, "");
        let remote = remote.map(|name| (NODE, name.as_str()));
        rows_builder.put(
            RowKey::child(Table::StaticRoute, view.cluster_router().as_str(), id),
            [
                ("policy", texts::<&str>([])),
                ("ip_prefix", text(prefix)),
                ("nexthop", text(nexthop)),
                ("output_port", texts::<&str>([])),
                ("external_ids", Value::entries(remote)),
            ],
        );
    }
}
