//! Northbound rows that several networks refer to: the sets of all nodes' (and the API server's) addresses, of all
//! advertised networks' subnets, and of Services that networks of users may use.
//! In: the node and its networks. Out: Address_Set rows of the node, one plan for all networks.
//! Invariant: one writer, so that no network takes for a stranger's what another one made. Not here: who refers to them (`snat`, `isolation`).

use std::collections::BTreeSet;

use model::address::Family;
use model::hash;
use model::names::NetworkName;
use model::nb::{
    NODE_IPS_TYPE, OWNER_TYPE, Owner, RowKey, Rows, Table, advertised_subnets_id, node_ips_id,
};

use super::rows_builder::RowsBuilder;
use super::services;
use super::snat::{CONTROLLER, ID, NAME, of, put_set};
use crate::snapshot::{NetworkView, NodeView};

/// Key of the set of a family's addresses that are always translated: all nodes' and the API server's.
#[must_use]
pub fn node_ips(family: Family) -> RowKey {
    RowKey::root(Table::AddressSet, hash::row_name(&node_ips_id(family)))
}

/// Key of the set of all advertised networks' subnets of a family.
#[must_use]
pub fn advertised_subnets(family: Family) -> RowKey {
    RowKey::root(
        Table::AddressSet,
        hash::row_name(&advertised_subnets_id(family)),
    )
}

/// The rows: a set of nodes' addresses for each family of the networks, with strict isolation one of advertised subnets, and
/// with networks of users one of Services.
#[must_use]
pub fn plan<'a>(node: &NodeView, networks: impl Iterator<Item = NetworkView<'a>>) -> Rows {
    let networks: Vec<NetworkView<'_>> = networks.collect();
    let families: BTreeSet<Family> = networks
        .iter()
        .flat_map(|view| view.share.network.families())
        .collect();
    let mut rows_builder = RowsBuilder::new(Owner::Node);
    let translated = node.always_translated();
    for family in families {
        let id = node_ips_id(family);
        let ids = vec![
            (CONTROLLER, NetworkName::default_network().controller()),
            (OWNER_TYPE, NODE_IPS_TYPE.to_owned()),
            (NAME, "node-ips".to_owned()),
            ("ip-family", family.version().to_owned()),
            (ID, id.clone()),
        ];
        put_set(
            &id,
            of(&translated, family).map(ToString::to_string).collect(),
            ids,
            &mut rows_builder,
        );
        services::put_allowed(node, family, &mut rows_builder);
        if node.strict_isolation {
            put_advertised(&networks, family, &mut rows_builder);
        }
    }
    rows_builder.into_rows()
}

fn put_advertised(networks: &[NetworkView<'_>], family: Family, rows_builder: &mut RowsBuilder) {
    let id = advertised_subnets_id(family);
    let advertised = networks.iter().filter(|view| view.is_advertised());
    let subnets = advertised.flat_map(|view| view.share.network.prefixes());
    let subnets = subnets.filter(|subnet| subnet.family() == family);
    let ids = vec![
        (CONTROLLER, NetworkName::default_network().controller()),
        (OWNER_TYPE, "AdvertisedNetwork".to_owned()),
        (NAME, "advertised-network-subnets".to_owned()),
        ("ip-family", family.version().to_owned()),
        (ID, id.clone()),
    ];
    let subnets = subnets.map(|subnet| subnet.to_string()).collect();
    put_set(&id, subnets, ids, rows_builder);
}
