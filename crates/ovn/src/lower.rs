//! Diffs into transactions.
//! In: a diff and what was lifted. Out: one transaction for a topology, batches for imports.
//! Invariant: references are changed by mutate, never set; a parent that the diff assumed is guarded; counts can be checked.
//! Not here: sending.

use std::collections::BTreeMap;

use model::diff::Diff;
use model::nb::{Columns, ImportTarget, ImportedRoute, OWNER, ROUTE_IMPORT, RowKey, Table, Value};
use ovsdb::{Condition, Datum, Mutation, Row, Transaction, Uuid, random_uuid};

use crate::columns;
use crate::north::{DATABASE, North};

/// Rows of one import transaction: large ones cost the server more than several small ones.
pub const BATCH: usize = 500;

/// Why a transaction cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LowerError {
    /// A row's parent is neither in the plan nor in the database.
    #[error("{key} has no parent in the plan or the database")]
    NoParent {
        /// The row.
        key: RowKey,
    },
    /// A row refers to one that is neither in the plan nor in the database.
    #[error("column {column} of {key} refers to a row that does not exist")]
    NoReferent {
        /// The row.
        key: RowKey,
        /// The column.
        column: &'static str,
    },
    /// The database could not be read.
    #[error(transparent)]
    Access(#[from] ovsdb::AccessError),
}

type Parents = BTreeMap<(Table, Uuid, &'static str), (Vec<Uuid>, Vec<Uuid>)>;

struct Lowering<'a> {
    north: &'a North,
    created: BTreeMap<RowKey, Uuid>,
    parents: Parents,
}

impl Lowering<'_> {
    fn uuid_of(&self, key: &RowKey) -> Option<Uuid> {
        let owned = || {
            self.north
                .owned
                .get(key)
                .and_then(|rows| rows.first())
                .map(|(uuid, _)| *uuid)
        };
        let root = || self.north.roots.get(&(key.table, key.id.clone())).copied();
        self.created.get(key).copied().or_else(owned).or_else(root)
    }

    fn datum(
        &self,
        key: &RowKey,
        column: &'static str,
        value: &Value,
    ) -> Result<Datum, LowerError> {
        columns::lower(value, |referent| self.uuid_of(referent)).ok_or_else(|| {
            LowerError::NoReferent {
                key: key.clone(),
                column,
            }
        })
    }

    fn parent_of(&self, key: &RowKey) -> Result<Option<(Table, Uuid, &'static str)>, LowerError> {
        let Some((table, column)) = key.table.parent() else {
            return Ok(None);
        };
        let parent = self.uuid_of(&RowKey::root(table, key.parent.clone()));
        let parent = parent.ok_or_else(|| LowerError::NoParent { key: key.clone() })?;
        Ok(Some((table, parent, column)))
    }
}

/// The transaction that brings a network's rows to where the diff says.
///
/// # Errors
/// When a row's parent or referent is neither in the plan nor in the database.
pub fn topology(
    diff: &Diff<RowKey, Columns, Uuid>,
    north: &North,
    comment: &str,
) -> Result<Transaction, LowerError> {
    let mut lowering = Lowering {
        north,
        created: diff
            .create
            .iter()
            .map(|(key, _)| (key.clone(), random_uuid()))
            .collect(),
        parents: Parents::new(),
    };
    let mut transaction = Transaction::new(DATABASE).comment(comment);
    for (key, wanted) in &diff.create {
        let mut row = Row::new();
        for (column, value) in wanted {
            row.set(*column, lowering.datum(key, column, value)?);
        }
        let Some(uuid) = lowering.created.get(key).copied() else {
            continue;
        };
        if let Some(parent) = lowering.parent_of(key)? {
            lowering.parents.entry(parent).or_default().0.push(uuid);
        }
        transaction = transaction.insert(key.table.name(), uuid, row);
    }
    for (uuid, key, wanted) in &diff.update {
        transaction = update(transaction, &lowering, *uuid, key, wanted)?;
    }
    let mut roots = Vec::new();
    for (uuid, key) in &diff.delete {
        match (key.table.parent(), north.parents.get(uuid)) {
            (Some((_, column)), Some((table, parent))) => {
                lowering
                    .parents
                    .entry((*table, *parent, column))
                    .or_default()
                    .1
                    .push(*uuid);
            }
            // Without a parent the server collects it by itself.
            (Some(_), None) => {}
            (None, _) => roots.push((key.table, *uuid)),
        }
    }
    let doomed: Vec<Uuid> = roots.iter().map(|(_, uuid)| *uuid).collect();
    transaction = references(transaction, &lowering, &doomed);
    for (table, uuid) in roots {
        transaction = transaction.delete(table.name(), vec![Condition::uuid(uuid)]);
    }
    Ok(transaction)
}

/// Changes of parents' references, each guarded by the parent's name where the parent stands already.
fn references(
    mut transaction: Transaction,
    lowering: &Lowering<'_>,
    doomed: &[Uuid],
) -> Transaction {
    let names: BTreeMap<Uuid, &(Table, String)> = lowering
        .north
        .roots
        .iter()
        .map(|(key, uuid)| (*uuid, key))
        .collect();
    for ((table, parent, column), (add, remove)) in &lowering.parents {
        if doomed.contains(parent) {
            continue;
        }
        let itself = || vec![Condition::uuid(*parent)];
        if let Some((_, name)) = names.get(parent) {
            transaction = transaction.guard(
                table.name(),
                itself(),
                Row::new().with("name", name.clone()),
            );
        }
        let mut mutations = Vec::new();
        if !add.is_empty() {
            mutations.push(Mutation::insert(*column, add.clone()));
        }
        if !remove.is_empty() {
            mutations.push(Mutation::delete(*column, remove.clone()));
        }
        transaction = transaction.mutate(table.name(), itself(), mutations);
    }
    transaction
}

/// Columns that differ: maps entry by entry, everything else whole.
fn update(
    mut transaction: Transaction,
    lowering: &Lowering<'_>,
    uuid: Uuid,
    key: &RowKey,
    wanted: &Columns,
) -> Result<Transaction, LowerError> {
    let rows = lowering
        .north
        .owned
        .get(key)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let standing = rows
        .iter()
        .find(|(row, _)| *row == uuid)
        .map(|(_, columns)| columns);
    let mut row = Row::new();
    let mut mutations = Vec::new();
    for (column, value) in wanted {
        let have = standing.and_then(|columns| columns.get(column));
        if have.is_some_and(|have| have.satisfies(value)) {
            continue;
        }
        if let Value::Entries(entries) = value {
            // Inserting into a map keeps the old value of a key that is there: so it is taken out first.
            let keys: Vec<String> = entries.keys().cloned().collect();
            mutations.push(Mutation::delete(*column, Datum::set(keys)));
            mutations.push(Mutation::insert(*column, entries.clone()));
        } else {
            row.set(*column, lowering.datum(key, column, value)?);
        }
    }
    let itself = || vec![Condition::uuid(uuid)];
    if row.columns().next().is_some() {
        transaction = transaction.update(key.table.name(), itself(), row);
    }
    if !mutations.is_empty() {
        transaction = transaction.mutate(key.table.name(), itself(), mutations);
    }
    Ok(transaction)
}

/// Transactions of at most [`BATCH`] rows each; routes are added before any is removed, so that a prefix whose next hop
/// changes is never without a row.
#[must_use]
pub fn imports(
    target: &ImportTarget,
    router: Uuid,
    add: &[ImportedRoute],
    remove: &[Uuid],
    comment: &str,
) -> Vec<Transaction> {
    let begin = || {
        Transaction::new(DATABASE).comment(comment).guard(
            Table::Router.name(),
            vec![Condition::uuid(router)],
            Row::new().with("name", target.router.to_string()),
        )
    };
    let references = |transaction: Transaction, mutations| {
        transaction.mutate(
            Table::Router.name(),
            vec![Condition::uuid(router)],
            mutations,
        )
    };
    // What fits into one transaction goes in one: a replaced next hop changes in a single step.
    if add.len() + remove.len() <= BATCH && !(add.is_empty() && remove.is_empty()) {
        let (transaction, uuids) = inserts(begin(), target, add);
        let mut mutations = Vec::new();
        if !uuids.is_empty() {
            mutations.push(Mutation::insert("static_routes", uuids));
        }
        if !remove.is_empty() {
            mutations.push(Mutation::delete("static_routes", remove.to_vec()));
        }
        return vec![references(transaction, mutations)];
    }
    let added = add.chunks(BATCH).map(|part| {
        let (transaction, uuids) = inserts(begin(), target, part);
        references(transaction, vec![Mutation::insert("static_routes", uuids)])
    });
    let removed = remove.chunks(BATCH).map(|part| {
        references(
            begin(),
            vec![Mutation::delete("static_routes", part.to_vec())],
        )
    });
    added.chain(removed).collect()
}

fn inserts(
    mut transaction: Transaction,
    target: &ImportTarget,
    add: &[ImportedRoute],
) -> (Transaction, Vec<Uuid>) {
    let mut uuids = Vec::with_capacity(add.len());
    for route in add {
        let uuid = random_uuid();
        let ids: BTreeMap<String, String> = [(OWNER, target.network.as_str()), ROUTE_IMPORT]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        let row = Row::new()
            .with("ip_prefix", route.prefix.to_string())
            .with("nexthop", route.nexthop.to_string())
            .with("output_port", target.output_port.clone())
            .with("external_ids", ids);
        transaction = transaction.insert(Table::StaticRoute.name(), uuid, row);
        uuids.push(uuid);
    }
    (transaction, uuids)
}
