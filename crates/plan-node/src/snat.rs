//! Address translation on the gateway router of a no-overlay network, and the address sets it refers to.
//! In: `NetworkView`. Out: NAT and Address_Set rows.
//! Invariant: a row that translates a cluster subnet either exempts a set that holds that subnet, or is limited to node addresses.
//! Not here: local gateway mode (nftables), per-pod rows.
//!
//! ```text
//!  outbound-snat | NAT.match in the schema | row of a cluster subnet
//!  enabled       | -                       | exempted_ext_ips = exemption set
//!  disabled      | yes                     | match = "ip4.dst == $<node-ips>"
//!  disabled      | no (OVN 23.03)          | allowed_ext_ips = node-ips set
//! ```
//! Names and ids: OVN-Kubernetes `go-controller/pkg/ovn/gateway.go` and `libovsdb/util`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::address::{Family, Prefix};
use model::hash;
use model::names::NetworkName;
use model::nb::{self, RowKey, Rows, Table, Value};

use crate::rows_builder::{RowsBuilder, text, texts};
use crate::snapshot::{NetworkView, of_family};

const CONTROLLER: &str = "k8s.ovn.org/owner-controller";
const OWNER_TYPE: &str = "k8s.ovn.org/owner-type";
const NAME: &str = "k8s.ovn.org/name";
const ID: &str = "k8s.ovn.org/id";

/// Primary id of the set of destinations that are never translated (OVN-Kubernetes, `no-overlay-snat-exemption`).
#[must_use]
pub fn exemption_id(network: &NetworkName, family: Family) -> String {
    format!(
        "{}:Cluster:no-overlay-snat-exemption:{}:{network}",
        network.controller(),
        version(family)
    )
}

/// Primary id of the set of all nodes' addresses, one for all networks (OVN-Kubernetes, `node-ips`).
#[must_use]
pub fn node_ips_id(family: Family) -> String {
    format!(
        "default-network-controller:ClusterNodeIPs:node-ips:{}",
        version(family)
    )
}

/// The rows of a network's address translation.
#[must_use]
pub fn plan(view: &NetworkView) -> Rows {
    let mut rows_builder = RowsBuilder::new(&view.network);
    let families: BTreeSet<Family> = view
        .cluster_subnets
        .iter()
        .map(|subnet| subnet.cidr.family())
        .collect();
    for family in families {
        let node_ips = put_node_ips(view, family, &mut rows_builder);
        let exemption = view
            .outbound_snat
            .then(|| put_exemption(view, family, &mut rows_builder));
        let Some(external) = view.gateway.address(family) else {
            continue;
        };
        if let Some(join) = of_family(&view.gateway_join(), family) {
            // Answers of the gateway router itself, such as "fragmentation needed".
            let row = Row::new(external, join.to_string());
            put_row(view, row, &mut rows_builder);
        }
        for subnet in view.cluster_subnets.iter().map(|subnet| subnet.cidr) {
            if subnet.family() != family {
                continue;
            }
            let mut row = Row::new(external, subnet.to_string());
            match &exemption {
                Some(set) => {
                    row.exempted = Some(set.clone());
                    row.ids = cluster_subnet_ids(view, subnet);
                }
                None if view.nat_has_match => {
                    row.matches = format!("{}.dst == ${}", protocol(family), node_ips.id);
                }
                None => row.allowed = Some(node_ips.clone()),
            }
            put_row(view, row, &mut rows_builder);
        }
    }
    rows_builder.into_rows()
}

fn put_exemption(view: &NetworkView, family: Family, rows_builder: &mut RowsBuilder<'_>) -> RowKey {
    let id = exemption_id(&view.network, family);
    let subnets = view
        .cluster_subnets
        .iter()
        .map(|subnet| subnet.cidr)
        .filter(|subnet| subnet.family() == family)
        .map(|subnet| subnet.to_string());
    let own = of(&view.host_addresses, family).map(|ip| ip.to_string());
    let addresses: BTreeSet<String> = subnets.chain(own).collect();
    let ids = vec![
        (CONTROLLER, view.network.controller()),
        (OWNER_TYPE, "Cluster".to_owned()),
        (NAME, "no-overlay-snat-exemption".to_owned()),
        ("ip-family", version(family).to_owned()),
        ("network", view.network.to_string()),
        (ID, id.clone()),
    ];
    put_set(&id, addresses, ids, rows_builder)
}

fn put_node_ips(view: &NetworkView, family: Family, rows_builder: &mut RowsBuilder<'_>) -> RowKey {
    let id = node_ips_id(family);
    let addresses = of(&view.node_addresses, family)
        .map(|ip| ip.to_string())
        .collect();
    let ids = vec![
        (CONTROLLER, NetworkName::default_network().controller()),
        (OWNER_TYPE, "ClusterNodeIPs".to_owned()),
        (NAME, "node-ips".to_owned()),
        ("ip-family", version(family).to_owned()),
        (ID, id.clone()),
    ];
    put_set(&id, addresses, ids, rows_builder)
}

fn put_set(
    id: &str,
    addresses: BTreeSet<String>,
    ids: Vec<(&str, String)>,
    rows_builder: &mut RowsBuilder<'_>,
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
struct Row {
    external: IpAddr,
    logical: String,
    matches: String,
    exempted: Option<RowKey>,
    allowed: Option<RowKey>,
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
            ids: Vec::new(),
        }
    }
}

fn put_row(view: &NetworkView, row: Row, rows_builder: &mut RowsBuilder<'_>) {
    let router = view.gateway_router();
    let key = RowKey::child(
        Table::Nat,
        router.as_str(),
        nb::nat_id("snat", &row.logical),
    );
    // Where the column is missing, naming it would fail the whole transaction.
    let matches = view.nat_has_match.then(|| ("match", text(row.matches)));
    let columns = [
        ("type", text("snat")),
        ("external_ip", text(row.external)),
        ("logical_ip", text(row.logical)),
        ("external_port_range", text(&view.ephemeral_port_range)),
        ("options", Value::entries([("stateless", "false")])),
        ("exempted_ext_ips", reference(row.exempted)),
        ("allowed_ext_ips", reference(row.allowed)),
        ("external_ids", Value::entries(row.ids)),
    ];
    rows_builder.put(key, columns.into_iter().chain(matches));
}

/// An optional reference; without a target the column has to be empty.
fn reference(target: Option<RowKey>) -> Value {
    target.map_or_else(|| Value::Set(BTreeSet::new()), Value::Ref)
}

/// Ids by which OVN-Kubernetes knows a cluster subnet's row with an exemption.
fn cluster_subnet_ids(view: &NetworkView, subnet: Prefix) -> Vec<(&'static str, String)> {
    let controller = view.network.controller();
    let cidr = subnet.to_string().replace(':', ".");
    let family = protocol(subnet.family());
    let id = format!(
        "{controller}:NoOverlayClusterSubnetSNAT:{}:{cidr}:{family}:{}",
        view.node, view.network
    );
    vec![
        (CONTROLLER, controller),
        (OWNER_TYPE, "NoOverlayClusterSubnetSNAT".to_owned()),
        (NAME, view.node.to_string()),
        ("k8s.ovn.org/cidr", cidr),
        ("ip-family", family.to_owned()),
        ("network", view.network.to_string()),
        (ID, id),
    ]
}

fn of(addresses: &BTreeSet<IpAddr>, family: Family) -> impl Iterator<Item = &IpAddr> {
    addresses
        .iter()
        .filter(move |ip| Family::of(**ip) == family)
}

fn version(family: Family) -> &'static str {
    match family {
        Family::V4 => "v4",
        Family::V6 => "v6",
    }
}

fn protocol(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip4",
        Family::V6 => "ip6",
    }
}
