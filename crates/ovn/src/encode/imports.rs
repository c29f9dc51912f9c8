//! Imported routes as transactions.
//! In: routes to add, rows to remove, rows of the topology that come back. Out: transactions of a bounded size, to be sent in order.
//! Invariant: additions come before removals, so that a prefix whose next hop changes is never without a row.
//! Not here: the difference.

use model::nb::{Columns, ImportTarget, ImportedRoute, OWNER, ROUTE_IMPORT, Table};
use ovsdb::{Condition, Datum, Mutation, Row, Transaction, Uuid, random_uuids};

use crate::columns;
use crate::north::DATABASE;

/// Rows of one import transaction: large ones cost the server more than several small ones.
pub const BATCH: usize = 250;

/// Transactions of at most [`BATCH`] rows each, none where there is nothing to do. `restore` are rows of the topology whose
/// prefixes lose their imported rows: they are in the last transaction, with the last removals.
///
/// Each is guarded by the router's name (else `timed out`: decode again).
#[must_use]
pub fn imports(
    target: &ImportTarget,
    router: Uuid,
    add: &[ImportedRoute],
    remove: &[Uuid],
    restore: &[Columns],
    comment: &str,
) -> Vec<Transaction> {
    let mut batches = Vec::new();
    let (mut add, mut remove) = (add, remove);
    loop {
        let (added, add_later) = add.split_at(add.len().min(BATCH));
        let left = BATCH.saturating_sub(added.len());
        let (removed, remove_later) = remove.split_at(remove.len().min(left));
        (add, remove) = (add_later, remove_later);
        let last = add.is_empty() && remove.is_empty();
        let restored = if last { restore } else { &[] };
        if !(added.is_empty() && removed.is_empty() && restored.is_empty()) {
            batches.push(batch(target, router, (added, removed, restored), comment));
        }
        if last {
            return batches;
        }
    }
}

fn batch(
    target: &ImportTarget,
    router: Uuid,
    (add, remove, restore): (&[ImportedRoute], &[Uuid], &[Columns]),
    comment: &str,
) -> Transaction {
    let table = Table::Router.name();
    let itself = || vec![Condition::uuid(router)];
    let mut transaction = Transaction::new(DATABASE).comment(comment).guard(
        table,
        itself(),
        Row::new().with("name", target.router.as_str()),
    );
    let rows = add.iter().map(|route| row(target, route));
    let rows = rows.chain(restore.iter().map(topology_row));
    let added = random_uuids(add.len() + restore.len());
    for (row, uuid) in rows.zip(&added) {
        transaction = transaction.insert(Table::StaticRoute.name(), *uuid, row);
    }
    let mut mutations = Vec::new();
    if !added.is_empty() {
        mutations.push(Mutation::insert("static_routes", added));
    }
    if !remove.is_empty() {
        mutations.push(Mutation::delete("static_routes", remove.to_vec()));
    }
    transaction.mutate(table, itself(), mutations)
}

/// A route of the topology refers to no row.
fn topology_row(wanted: &Columns) -> Row {
    let mut row = Row::new();
    for (column, value) in wanted {
        if let Some(datum) = columns::encode(value, |_| None) {
            row.set(*column, datum);
        }
    }
    row
}

fn row(target: &ImportTarget, route: &ImportedRoute) -> Row {
    let ids = Datum::map([(OWNER, target.network.as_str()), ROUTE_IMPORT]);
    Row::new()
        .with("ip_prefix", route.prefix.to_string())
        .with("nexthop", route.nexthop.to_string())
        .with("output_port", target.output_port.as_str())
        .with("external_ids", ids)
}
