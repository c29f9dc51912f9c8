//! Northbound rows of a node: those of each network, and those that networks share.
//! In: the node's share of networks. Out: rows by owner. Invariant: all rows of a network are one plan for one transaction, so
//! that no translating rule is ever without its exemption set.
//! Not here: pods' ports, imported routes.

pub mod global;
pub mod isolation;
pub(crate) mod rows_builder;
pub mod services;
pub mod shared;
pub mod snat;
pub mod topology;

use model::nb::Rows;

use crate::snapshot::NetworkView;

/// All Northbound rows of a network on its node but pods' ports and imported routes: topology, address translation,
/// isolation, and what Services need.
#[must_use]
pub fn plan(view: NetworkView<'_>) -> Rows {
    let mut rows = topology::plan(view);
    rows.extend(snat::plan(view));
    rows.extend(isolation::plan(view));
    rows.extend(services::plan(view));
    rows
}
