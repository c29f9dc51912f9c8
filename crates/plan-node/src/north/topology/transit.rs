//! A network's overlay: the switch that the cluster routers of all nodes meet on.
//! In: `NetworkView`. Out: the transit switch, this node's port and those of the others, the cluster router's routes over it.
//! Invariant: keys and addresses follow from the ids of network and node, so that all nodes have the same.
//! Not here: the other nodes' chassis (`south`).
//! Rows as OVN-Kubernetes makes them (`go-controller/pkg/ovn/zone_interconnect`).

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::address::{Family, Prefix};
use model::nb::{RowKey, Table, Value};
use model::network::transit_switch_key;

use super::{Link, NODE, Route, link, role, route, tunnel_key};
use crate::north::rows_builder::{RowsBuilder, text, texts};
use crate::snapshot::{NetworkView, mac_of, of_family};

/// The network's overlay: a switch that all nodes know by one key, this node's port on it, and those of the others.
pub(super) fn plan(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let switch = view.name().transit_switch();
    let key = transit_switch_key(view.share.network.id);
    rows_builder.put(
        RowKey::root(Table::Switch, switch.as_str()),
        [
            ("name", text(&switch)),
            (
                "other_config",
                Value::entries([("interconn-ts", switch.clone()), tunnel_key(key)]),
            ),
            ("external_ids", Value::entries(role(view))),
        ],
    );
    let own = view.transit(view.node.id);
    if let Some(mac) = mac_of(&own) {
        link(
            rows_builder,
            Link {
                router: &view.cluster_router(),
                router_port: view.name().transit_router_port(&view.node.name),
                switch: &switch,
                switch_port: view.name().transit_switch_port(&view.node.name),
                mac,
                networks: &own,
                chassis: None,
                tunnel_key: Some(view.node.id),
                ids: None,
                node: Some(&view.node.name),
            },
        );
    }
    for (name, remote) in &view.node.remotes {
        let addresses = view.transit(remote.id);
        let Some(mac) = mac_of(&addresses).filter(|_| remote.id != view.node.id) else {
            continue;
        };
        let port = view.name().transit_switch_port(name);
        let words: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let chassis = ("requested-chassis", remote.chassis.clone());
        rows_builder.put(
            RowKey::child(Table::SwitchPort, switch.as_str(), port.as_str()),
            [
                ("name", text(&port)),
                ("type", text("remote")),
                ("addresses", texts([format!("{mac} {}", words.join(" "))])),
                ("options", Value::entries([chassis, tunnel_key(remote.id)])),
                ("external_ids", Value::entries([(NODE, name.as_str())])),
            ],
        );
    }
    routes(view, rows_builder);
}

/// The other nodes' pods and gateway routers, over the transit switch.
fn routes(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let router = view.cluster_router();
    let mut all: BTreeSet<(Prefix, IpAddr)> = BTreeSet::new();
    let via = |id: u32, family| of_family(&view.transit(id), family);
    for remote in view.node.remotes.values() {
        for join in view.join_of(remote.id) {
            let via = via(remote.id, Family::of(join.ip));
            all.extend(via.map(|via| (Prefix::host(join.ip), via)));
        }
    }
    for (subnet, name) in &view.share.remote_subnets {
        let remote = view.node.remotes.get(name);
        let via = remote.and_then(|remote| via(remote.id, subnet.family()));
        let parts = view.overlay_routes(subnet).unwrap_or_default();
        all.extend(parts.into_iter().filter_map(|part| Some((part, via?))));
    }
    for (prefix, nexthop) in all {
        route(
            rows_builder,
            &router,
            Route {
                policy: "",
                prefix: prefix.to_string(),
                nexthop: nexthop.to_string(),
                output_port: "",
            },
        );
    }
}
