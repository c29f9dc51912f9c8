//! What stands in OVN_Northbound: our rows, imported routes, and what is in their way.
//! In: a replica of the tables of [`config`]. Out: values that diffs are made from.
//! Invariant: every row of ours is there, duplicates and edited ones too; a row is ours by its stamp in `external_ids`.
//! Not here: what is wanted.
//!
//! ```text
//!  stamp                                       | counts as
//!  k8s.ovn.org/owner-controller = RouteImport  | an imported route; without our owner one that is out of form
//!  else noverlay.io/owner = NETWORK            | a row of the network's plan
//!  else                                        | somebody's: its name or prefix is taken
//! ```

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::nb::{self, Columns, OWNER, ROUTE_IMPORT, RowKey, Rows, Table};
use model::{Diff, NetworkName, Problem};
use ovsdb::{AccessError, Atom, ClientConfig, Endpoint, MonitorTable, Record, Replica, Uuid};

pub use self::imports::{ImportDiff, Imports, destinations};
use crate::form;

/// The database.
pub const DATABASE: &str = "OVN_Northbound";

/// A database on the same machine that was restarted is back at once: so are we.
pub(crate) const MAX_BACKOFF: Duration = Duration::from_millis(500);

/// The difference between a network's rows and its plan.
pub type RowDiff = Diff<RowKey, Columns, Uuid>;

/// A client's configuration with the tables that this module reads.
#[must_use]
pub fn config(endpoint: Endpoint) -> ClientConfig {
    let mut config = ClientConfig::new(endpoint, DATABASE);
    config.max_backoff = MAX_BACKOFF;
    for table in Table::ALL {
        let references = Table::ALL
            .iter()
            .filter_map(|child| child.parent())
            .filter(|(parent, _)| *parent == table)
            .map(|(_, column)| column);
        let columns: Vec<&'static str> = form::columns(table)
            .iter()
            .map(|(name, _)| *name)
            .chain(references)
            .collect();
        let optional = form::optional(table).iter().map(|(name, _)| *name);
        let unused = imports::UNUSED
            .into_iter()
            .filter(|_| table == Table::StaticRoute);
        let optional: Vec<&'static str> = optional.chain(unused).collect();
        config = config.table(MonitorTable::new(table.name(), &columns).optional(&optional));
    }
    config
}

/// Whether the server's schema has `NAT.match`.
#[must_use]
pub fn nat_has_match(schema: &ovsdb::Schema) -> bool {
    schema.has_column(Table::Nat.name(), "match")
}

/// The rows of one network, without imported routes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// Every row with the network's stamp, by identity.
    pub owned: BTreeMap<RowKey, Vec<(Uuid, Columns)>>,
    /// The parent of each child among them.
    pub(crate) parents: BTreeMap<Uuid, Uuid>,
    /// How many children each root row has.
    weights: BTreeMap<Uuid, usize>,
    /// Names of other people's rows in the tables whose rows are found by name.
    taken: BTreeSet<(Table, String)>,
}

impl Standing {
    /// Lifts a network's rows.
    ///
    /// # Errors
    /// When a column is not monitored or not of the type that ovn-nb(5) gives it.
    pub fn lift(replica: &Replica, network: &NetworkName) -> Result<Self, AccessError> {
        let stamps = Stamps::new(network);
        let sets = form::set_names(replica)?;
        let mut standing = Self::default();
        for table in Table::ALL {
            let rows = replica.table(table.name())?;
            let Some((parent, column)) = table.parent() else {
                for (uuid, record) in rows {
                    standing.root(table, *uuid, record, &stamps, &sets)?;
                }
                continue;
            };
            for (above, owner) in replica.table(parent.name())? {
                let name: &str = owner.get("name")?;
                for uuid in owner.get::<Vec<Uuid>>(column)? {
                    if let Some(record) = rows.get(&uuid)
                        && let Some(key) = standing.child(table, name, record, &stamps)?
                    {
                        let columns = form::lift(table, record, &sets)?;
                        standing.owned.entry(key).or_default().push((uuid, columns));
                        standing.parents.insert(uuid, *above);
                    }
                }
            }
        }
        Ok(standing)
    }

    fn root(
        &mut self,
        table: Table,
        uuid: Uuid,
        record: &Record,
        stamps: &Stamps,
        sets: &BTreeMap<Uuid, String>,
    ) -> Result<(), AccessError> {
        let name: String = record.get("name")?;
        if !stamps.owned(record) {
            self.taken.insert((table, name));
            return Ok(());
        }
        let columns = form::lift(table, record, sets)?;
        let weight = weight(table, record)?;
        let rows = self.owned.entry(RowKey::root(table, name)).or_default();
        // Of several the first is kept: the one that holds most, so that a twin costs nothing.
        let lighter = |(other, _): &(Uuid, Columns)| {
            let other = self.weights.get(other).copied().unwrap_or_default();
            other < weight
        };
        let at = rows.iter().position(lighter).unwrap_or(rows.len());
        rows.insert(at, (uuid, columns));
        self.weights.insert(uuid, weight);
        Ok(())
    }

    /// The key of a child where it is ours; else its name is noted.
    fn child(
        &mut self,
        table: Table,
        parent: &str,
        record: &Record,
        stamps: &Stamps,
    ) -> Result<Option<RowKey>, AccessError> {
        let owned = stamps.owned(record);
        let id = match table {
            Table::RouterPort | Table::SwitchPort => {
                let name: String = record.get("name")?;
                if !owned {
                    self.taken.insert((table, name));
                    return Ok(None);
                }
                name
            }
            // Imported routes may be thousands: nothing is built for them here.
            Table::StaticRoute if !owned || stamps.imported(record) => return Ok(None),
            Table::StaticRoute => route_id(record)?,
            Table::Policy | Table::Nat if !owned => return Ok(None),
            Table::Policy => nb::policy_id(record.get("priority")?, record.get("match")?),
            Table::Nat => nb::nat_id(record.get("type")?, record.get("logical_ip")?),
            Table::AddressSet | Table::Router | Table::Switch => return Ok(None),
        };
        Ok(Some(RowKey::child(table, parent, id)))
    }

    /// Wanted rows whose name somebody else's row has: they cannot be made, and theirs is not touched.
    #[must_use]
    pub fn in_the_way(&self, wanted: &Rows) -> Vec<Problem> {
        wanted
            .keys()
            .filter(|key| self.taken.contains(&(key.table, key.id.clone())))
            .map(|key| {
                Problem::new(
                    format!("{} {}", key.table.name(), key.id),
                    "NameTaken",
                    format!(
                        "a row of this name in {DATABASE} does not bear external_ids:{OWNER} of this network; remove it, or let OVN-Kubernetes build the topology ([ovn] topology = adopt)"
                    ),
                )
            })
            .collect()
    }
}

/// How many rows a root row refers to as its children.
fn weight(table: Table, record: &Record) -> Result<usize, AccessError> {
    let mut weight = 0;
    for (parent, column) in Table::ALL.iter().filter_map(|child| child.parent()) {
        if parent == table {
            weight += record.get::<Vec<Uuid>>(column)?.len();
        }
    }
    Ok(weight)
}

fn route_id(record: &Record) -> Result<String, AccessError> {
    let policy: Option<&str> = record.get("policy")?;
    let port: Option<&str> = record.get("output_port")?;
    Ok(nb::route_id(
        policy.unwrap_or_default(),
        record.get("ip_prefix")?,
        record.get("nexthop")?,
        port.unwrap_or_default(),
    ))
}

/// What tells a network's rows.
struct Stamps {
    owner: (Atom, Atom),
    import: (Atom, Atom),
}

impl Stamps {
    fn new(network: &NetworkName) -> Self {
        Self {
            owner: (OWNER.into(), network.as_str().into()),
            import: (ROUTE_IMPORT.0.into(), ROUTE_IMPORT.1.into()),
        }
    }

    fn owned(&self, record: &Record) -> bool {
        bears(record, &self.owner)
    }

    fn imported(&self, record: &Record) -> bool {
        bears(record, &self.import)
    }
}

fn bears(record: &Record, (key, value): &(Atom, Atom)) -> bool {
    let ids = record.datum("external_ids");
    ids.and_then(|ids| ids.value_of(key)) == Some(value)
}
