//! Address translation on the routers of a network, and the address sets it refers to.
//! In: `NetworkView`. Out: NAT and Address_Set rows.
//! Invariant: a row that translates a cluster subnet either exempts a set that holds that subnet, or is limited to
//! addresses of nodes, the API server and Services.
//! Not here: what the kernel translates in local gateway mode (`nft`), per-pod rows, the set of all nodes' addresses (`shared`).
//!
//! ```text
//!  gateway router      | NAT.match in the schema | row of a cluster subnet, to the node's address (networks of users: to their own)
//!  shared, SNAT        | -                       | exempted_ext_ips = the network's subnets and this node's own addresses
//!  no SNAT, or local   | yes                     | match = "ip4.dst == $<node-ips>"
//!                      | no (OVN 23.03)          | allowed_ext_ips = node-ips set
//!
//!  cluster router, networks of users: row of the node's subnet, on the port to the node switch
//!  local, SNAT         | exempted_ext_ips = as above
//!  all others          | two rows: allowed_ext_ips = node-ips set; = the set of Services that networks of users may use
//!  not advertised      | exempted_ext_ips = the network's subnets: nobody outside knows pods' addresses
//! ```
//! Names and ids: OVN-Kubernetes `go-controller/pkg/ovn/gateway.go` and `libovsdb/util`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::address::{Family, Prefix};
use model::gateway::GatewayMode;
use model::hash;
use model::names::{NetworkName, RouterName};
use model::nb::{self, OWNER_TYPE, RowKey, Rows, Table, Value};

use super::rows_builder::{RowsBuilder, text, texts};
use super::{services, shared};
use crate::snapshot::{NetworkView, of_family};

pub(super) const CONTROLLER: &str = "k8s.ovn.org/owner-controller";
pub(super) const NAME: &str = "k8s.ovn.org/name";
pub(super) const ID: &str = "k8s.ovn.org/id";

/// Primary id of the set of destinations that are never translated (OVN-Kubernetes, `no-overlay-snat-exemption`).
#[must_use]
pub fn exemption_id(network: &NetworkName, family: Family) -> String {
    format!(
        "{}:Cluster:no-overlay-snat-exemption:{}:{network}",
        network.controller(),
        family.version()
    )
}

/// The rows of a network's address translation.
#[must_use]
pub fn plan(view: NetworkView<'_>) -> Rows {
    let mut rows_builder = RowsBuilder::of(view);
    for family in view.share.network.families() {
        // In local gateway mode the kernel translates the default network's pods.
        let in_ovn = view.node.mode == GatewayMode::Shared || !view.name().is_default();
        let exempts = view.no_overlay().is_some() && view.outbound_snat() && in_ovn;
        let exempts = exempts || is_hidden(view);
        let exemption = exempts.then(|| put_exemption(view, family, &mut rows_builder));
        let on_gateway = exemption.as_ref().filter(|_| !is_hidden(view));
        gateway_rows(view, family, on_gateway, &mut rows_builder);
        if !view.name().is_default() {
            cluster_rows(view, family, exemption.as_ref(), &mut rows_builder);
        }
    }
    rows_builder.into_rows()
}

/// A network of users whose pods' addresses nobody outside knows.
fn is_hidden(view: NetworkView<'_>) -> bool {
    !view.name().is_default() && !view.is_advertised()
}

/// What leaves by the gateway router: with the node's address, or that of the network that the bridge makes the node's.
fn gateway_rows(
    view: NetworkView<'_>,
    family: Family,
    exemption: Option<&RowKey>,
    rows_builder: &mut RowsBuilder,
) {
    let external = if view.name().is_default() {
        view.gateway_address(family)
    } else {
        first_of(&view.gateway_masquerade(), family)
    };
    let Some(external) = external else {
        return;
    };
    let router = view.gateway_router();
    if let Some(join) = of_family(&view.gateway_join(), family) {
        // Answers of the gateway router itself, such as "fragmentation needed".
        let row = Row::new(external, join.to_string());
        put_row(view, &router, row, rows_builder);
    }
    for subnet in view.share.network.prefixes() {
        if subnet.family() != family {
            continue;
        }
        let mut row = Row::new(external, subnet.to_string());
        match exemption.filter(|_| view.node.mode == GatewayMode::Shared) {
            Some(set) => {
                row.exempted = Some(set.clone());
                row.ids = cluster_subnet_ids(view, subnet);
            }
            None if view.is_advertised() => {
                row.limit_to(&shared::node_ips(family), family, view);
            }
            None => {}
        }
        put_row(view, &router, row, rows_builder);
    }
}

/// What leaves a network of users by its management port: with an address that main has a way back to.
fn cluster_rows(
    view: NetworkView<'_>,
    family: Family,
    exemption: Option<&RowKey>,
    rows_builder: &mut RowsBuilder,
) {
    let Some(external) = first_of(&view.management_masquerade(), family) else {
        return;
    };
    for subnet in &view.share.host_subnets {
        if subnet.family() != family {
            continue;
        }
        let mut row = Row::new(external, subnet.to_string());
        row.port = Some(view.switch_router_port());
        let exempts = view.node.mode == GatewayMode::Local || is_hidden(view);
        match exemption.filter(|_| exempts) {
            // What a Service of the network sends back to one of its pods is not translated either.
            Some(set) => row.exempted = Some(set.clone()),
            None if view.is_advertised() => {
                row.allowed = Some(shared::node_ips(family));
                if view.node.services.is_some() {
                    let allowed = Some(services::allowed(family));
                    let to_services = Row {
                        allowed,
                        ..row.clone()
                    };
                    put_row(view, &view.cluster_router(), to_services, rows_builder);
                }
            }
            None => {}
        }
        put_row(view, &view.cluster_router(), row, rows_builder);
    }
}

fn put_exemption(view: NetworkView<'_>, family: Family, rows_builder: &mut RowsBuilder) -> RowKey {
    let id = exemption_id(view.name(), family);
    let subnets = view
        .share
        .network
        .prefixes()
        .filter(|subnet| subnet.family() == family)
        .map(|subnet| subnet.to_string());
    // The host answers pods' own addresses where main leads to them.
    let answers = view.name().is_default() || view.share.network.advertised.default_vrf;
    let own = of(&view.node.host_addresses, family).filter(|_| answers);
    let own = own.map(|ip| ip.to_string());
    let addresses: BTreeSet<String> = subnets.chain(own).collect();
    let ids = vec![
        (CONTROLLER, view.name().controller()),
        (OWNER_TYPE, "Cluster".to_owned()),
        (NAME, "no-overlay-snat-exemption".to_owned()),
        ("ip-family", family.version().to_owned()),
        ("network", view.name().to_string()),
        (ID, id.clone()),
    ];
    put_set(&id, addresses, ids, rows_builder)
}

pub(super) fn put_set(
    id: &str,
    addresses: BTreeSet<String>,
    ids: Vec<(&str, String)>,
    rows_builder: &mut RowsBuilder,
) -> RowKey {
    let name = hash::row_name(id);
    let key = RowKey::root(Table::AddressSet, name.as_str());
    rows_builder.put(
        key.clone(),
        [
            ("name", text(name)),
            ("addresses", texts(addresses)),
            ("external_ids", Value::entries(ids)),
        ],
    );
    key
}

/// What differs from one SNAT row to another.
#[derive(Clone)]
struct Row {
    external: IpAddr,
    logical: String,
    matches: String,
    exempted: Option<RowKey>,
    allowed: Option<RowKey>,
    /// `logical_port`, on a distributed router.
    port: Option<String>,
    ids: Vec<(&'static str, String)>,
}

impl Row {
    fn new(external: IpAddr, logical: String) -> Self {
        Self {
            external,
            logical,
            matches: String::new(),
            exempted: None,
            allowed: None,
            port: None,
            ids: Vec::new(),
        }
    }

    /// Translates what goes to these addresses and nothing else.
    fn limit_to(&mut self, set: &RowKey, family: Family, view: NetworkView<'_>) {
        if view.node.nat_has_match {
            self.matches = format!("{}.dst == ${}", family.ovn_protocol(), set.id);
        } else {
            self.allowed = Some(set.clone());
        }
    }
}

fn put_row(view: NetworkView<'_>, router: &RouterName, row: Row, rows_builder: &mut RowsBuilder) {
    let key = RowKey::child(
        Table::Nat,
        router.as_str(),
        nb::nat_id(
            "snat",
            &row.logical,
            row.allowed.as_ref().map(|set| set.id.as_str()),
        ),
    );
    // Where the column is missing, naming it would fail the whole transaction.
    let matches = view
        .node
        .nat_has_match
        .then(|| ("match", text(row.matches)));
    let columns = [
        ("type", text("snat")),
        ("external_ip", text(row.external)),
        ("logical_ip", text(row.logical)),
        ("external_port_range", text(&view.node.ephemeral_port_range)),
        ("options", Value::entries([("stateless", "false")])),
        ("exempted_ext_ips", reference(row.exempted)),
        ("allowed_ext_ips", reference(row.allowed)),
        ("external_ids", Value::entries(row.ids)),
    ];
    let port = row.port.map(|port| ("logical_port", texts([port])));
    rows_builder.put(key, columns.into_iter().chain(matches).chain(port));
}

fn first_of(addresses: &[IpAddr], family: Family) -> Option<IpAddr> {
    let mut addresses = addresses.iter().copied();
    addresses.find(|ip| Family::of(*ip) == family)
}

/// An optional reference; without a target the column has to be empty.
fn reference(target: Option<RowKey>) -> Value {
    target.map_or_else(|| Value::Set(BTreeSet::new()), Value::Ref)
}

/// Ids by which OVN-Kubernetes knows a cluster subnet's row with an exemption.
fn cluster_subnet_ids(view: NetworkView<'_>, subnet: Prefix) -> Vec<(&'static str, String)> {
    let controller = view.name().controller();
    let cidr = subnet.to_string().replace(':', ".");
    let family = subnet.family().ovn_protocol();
    let id = format!(
        "{controller}:NoOverlayClusterSubnetSNAT:{}:{cidr}:{family}:{}",
        view.node.name,
        view.name()
    );
    vec![
        (CONTROLLER, controller),
        (OWNER_TYPE, "NoOverlayClusterSubnetSNAT".to_owned()),
        (NAME, view.node.name.to_string()),
        ("k8s.ovn.org/cidr", cidr),
        ("ip-family", family.to_owned()),
        ("network", view.name().to_string()),
        (ID, id),
    ]
}

pub(super) fn of(addresses: &BTreeSet<IpAddr>, family: Family) -> impl Iterator<Item = &IpAddr> {
    addresses
        .iter()
        .filter(move |ip| Family::of(**ip) == family)
}
