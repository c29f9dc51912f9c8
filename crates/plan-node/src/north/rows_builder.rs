//! A growing set of Northbound rows of one owner.
//! In: keys and columns. Out: rows. Invariant: every row bears the owner marker, where its table can.
//! Not here: which rows there are.

use std::collections::BTreeMap;
use std::fmt;

use model::nb::{Columns, OWNER, Owner, RowKey, Rows, Value};
use model::network::Topology;

use crate::snapshot::NetworkView;

/// `external_ids` of rows of networks of users.
const NETWORK: &str = "k8s.ovn.org/network";
const TOPOLOGY: &str = "k8s.ovn.org/topology";

/// Rows of one owner.
pub(crate) struct RowsBuilder {
    /// `external_ids` of all of them.
    ids: BTreeMap<String, String>,
    rows: Rows,
}

impl RowsBuilder {
    /// An empty one.
    pub(crate) fn new(owner: Owner) -> Self {
        let marker = owner.marker().to_owned();
        Self {
            ids: BTreeMap::from([(OWNER.to_owned(), marker)]),
            rows: Rows::new(),
        }
    }

    /// An empty one whose rows bear these ids too.
    pub(crate) fn marked<const N: usize>(owner: Owner, ids: [(&str, &str); N]) -> Self {
        let mut builder = Self::new(owner);
        let ids = ids.map(|(key, value)| (key.to_owned(), value.to_owned()));
        builder.ids.extend(ids);
        builder
    }

    /// One for a network: rows of networks of users also bear OVN-Kubernetes' own ids of network and topology.
    pub(crate) fn of(view: NetworkView<'_>) -> Self {
        let mut builder = Self::new(Owner::Network(view.name().clone()));
        if !view.name().is_default() {
            let topology = match view.share.network.topology {
                Topology::Layer3 => "layer3",
                Topology::Layer2 => "layer2",
            };
            let ids = [(NETWORK, view.name().as_str()), (TOPOLOGY, topology)];
            let ids = ids.map(|(key, value)| (key.to_owned(), value.to_owned()));
            builder.ids.extend(ids);
        }
        builder
    }

    /// Puts a row; `external_ids` among the columns are kept beside the owner marker.
    pub(crate) fn put(
        &mut self,
        key: RowKey,
        columns: impl IntoIterator<Item = (&'static str, Value)>,
    ) {
        let mut columns: Columns = columns.into_iter().collect();
        let ids = columns
            .entry("external_ids")
            .or_insert_with(|| Value::Entries(BTreeMap::new()));
        if let Value::Entries(ids) = ids {
            for (key, value) in &self.ids {
                ids.insert(key.clone(), value.clone());
            }
        }
        self.rows.insert(key, columns);
    }

    /// Puts a row of a table that has no `external_ids`.
    pub(crate) fn put_unmarked(
        &mut self,
        key: RowKey,
        columns: impl IntoIterator<Item = (&'static str, Value)>,
    ) {
        self.rows.insert(key, columns.into_iter().collect());
    }

    /// The rows.
    pub(crate) fn into_rows(self) -> Rows {
        self.rows
    }
}

/// A text column of whatever can be shown.
pub(crate) fn text(value: impl fmt::Display) -> Value {
    Value::Text(value.to_string())
}

/// A set column of whatever can be shown.
pub(crate) fn texts<T: fmt::Display>(values: impl IntoIterator<Item = T>) -> Value {
    Value::set(values.into_iter().map(|value| value.to_string()))
}
