//! Northbound rows that several networks refer to: the sets of all nodes' addresses.
//! In: the node and its networks. Out: Address_Set rows of the node, one plan for all networks.
//! Invariant: one writer, so that no network takes for a stranger's what another one made. Not here: who refers to them (`snat`).

use std::collections::BTreeSet;

use model::address::Family;
use model::hash;
use model::names::NetworkName;
use model::nb::{NODE_IPS_TYPE, OWNER_TYPE, Owner, RowKey, Rows, Table, node_ips_id};

use super::rows_builder::RowsBuilder;
use super::snat::{CONTROLLER, ID, NAME, of, put_set};
use crate::snapshot::{NetworkView, NodeView};

/// Key of the set of all nodes' addresses of a family.
#[must_use]
pub fn node_ips(family: Family) -> RowKey {
    RowKey::root(Table::AddressSet, hash::row_name(&node_ips_id(family)))
}

/// The rows: a set for each family of the networks.
#[must_use]
pub fn plan<'a>(node: &NodeView, networks: impl Iterator<Item = NetworkView<'a>>) -> Rows {
    let families: BTreeSet<Family> = networks
        .flat_map(|view| view.share.network.families())
        .collect();
    let mut rows_builder = RowsBuilder::new(Owner::Node);
    for family in families {
        let id = node_ips_id(family);
        let addresses = of(&node.node_addresses, family);
        let ids = vec![
            (CONTROLLER, NetworkName::default_network().controller()),
            (OWNER_TYPE, NODE_IPS_TYPE.to_owned()),
            (NAME, "node-ips".to_owned()),
            ("ip-family", family.version().to_owned()),
            (ID, id.clone()),
        ];
        put_set(
            &id,
            addresses.map(ToString::to_string).collect(),
            ids,
            &mut rows_builder,
        );
    }
    rows_builder.into_rows()
}
