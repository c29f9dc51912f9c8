//! A node's view of the default network, and routes that it has learned.
//!
//! In: numbers. Out: values. Invariant: the view is sound and has both families. Not here: expectations.

use std::net::{IpAddr, Ipv4Addr};

use model::Prefix;
use model::nb::{ImportedRoute, Rows};
use plan_node::north;
pub use testkit::View;

/// Node `n1` of three: 172.30.0.1 and fd00:30::1, pods 10.128.1.0/24 and fd01:0:0:1::/64.
#[must_use]
pub fn mk_view() -> View {
    let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
    let mut view = testkit::mk_view(1);
    view.add_subnet("fd01::/48/64");
    let share = &mut view.share;
    share.host_subnets.push("fd01:0:0:1::/64".parse().unwrap());
    share
        .network
        .join_subnets
        .push("fd98::/64".parse().unwrap());
    let node = &mut view.node;
    node.gateway
        .addresses
        .push("fd00:30::1/64".parse().unwrap());
    node.gateway.next_hops.push(ip("fd00:30::100"));
    node.host_addresses.insert(ip("fd00:30::1"));
    node.node_addresses = [ip("172.30.0.1"), ip("172.30.0.2"), ip("fd00:30::1")].into();
    view
}

/// All rows of a view's network.
#[must_use]
pub fn rows_of(view: &View) -> Rows {
    north::plan(view.get())
}

/// The rows that it shares with others.
#[must_use]
pub fn shared_rows(view: &View) -> Rows {
    north::shared::plan(&view.node, [view.get()].into_iter())
}

/// Imported routes to 192.168.y.z/32, numbered from `first`, by way of `nexthop`.
#[must_use]
pub fn mk_routes(first: u32, count: u32, nexthop: &str) -> Vec<ImportedRoute> {
    (first..first + count)
        .map(|number| ImportedRoute {
            prefix: Prefix::host(Ipv4Addr::from_bits(0xc0a8_0000 + number).into()),
            nexthop: nexthop.parse().unwrap(),
        })
        .collect()
}
