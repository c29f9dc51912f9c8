//! Imported routes as transactions.
//! In: routes to add, rows to remove. Out: transactions of a bounded size, to be sent in order.
//! Invariant: additions come before removals, so that a prefix whose next hop changes is never without a row.
//! Not here: the difference.

use model::nb::{ImportTarget, ImportedRoute, OWNER, ROUTE_IMPORT, Table};
use ovsdb::{Condition, Datum, Mutation, Row, Transaction, Uuid, random_uuids};

use crate::north::DATABASE;

/// Rows of one import transaction: large ones cost the server more than several small ones.
pub const BATCH: usize = 500;

/// Transactions of at most [`BATCH`] rows each, none where there is nothing to do.
///
/// Each is guarded by the router's name (else `timed out`: lift again).
#[must_use]
pub fn imports(
    target: &ImportTarget,
    router: Uuid,
    add: &[ImportedRoute],
    remove: &[Uuid],
    comment: &str,
) -> Vec<Transaction> {
    let mut batches = Vec::new();
    let (mut add, mut remove) = (add, remove);
    while !(add.is_empty() && remove.is_empty()) {
        let (added, add_later) = add.split_at(add.len().min(BATCH));
        let room = BATCH.saturating_sub(added.len());
        let (removed, remove_later) = remove.split_at(remove.len().min(room));
        batches.push(batch(target, router, (added, removed), comment));
        (add, remove) = (add_later, remove_later);
    }
    batches
}

fn batch(
    target: &ImportTarget,
    router: Uuid,
    (add, remove): (&[ImportedRoute], &[Uuid]),
    comment: &str,
) -> Transaction {
    let table = Table::Router.name();
    let itself = || vec![Condition::uuid(router)];
    let mut transaction = Transaction::new(DATABASE).comment(comment).guard(
        table,
        itself(),
        Row::new().with("name", target.router.as_str()),
    );
    let added = random_uuids(add.len());
    for (route, uuid) in add.iter().zip(&added) {
        transaction = transaction.insert(Table::StaticRoute.name(), *uuid, row(target, route));
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

fn row(target: &ImportTarget, route: &ImportedRoute) -> Row {
    let ids = Datum::map([(OWNER, target.network.as_str()), ROUTE_IMPORT]);
    Row::new()
        .with("ip_prefix", route.prefix.to_string())
        .with("nexthop", route.nexthop.to_string())
        .with("output_port", target.output_port.as_str())
        .with("external_ids", ids)
}
