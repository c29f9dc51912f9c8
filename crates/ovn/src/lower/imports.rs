//! Imported routes as transactions.
//! In: the router's routes and what differs. Out: transactions of a bounded size.
//! Invariant: changes of one prefix stand beside each other, so a route that moves is not missed; rows of other
//! prefixes are not named at all. Not here: which routes.

use std::collections::BTreeSet;

use model::Prefix;
use model::nb::{ImportTarget, ImportedRoute, OWNER, ROUTE_IMPORT, Table};
use ovsdb::{Condition, Datum, Mutation, Row, Transaction, Uuid, random_uuid};

use crate::north::{DATABASE, ImportDiff, Imports};

/// Rows that one transaction adds and removes at most.
pub const BATCH: usize = 500;

/// One change.
struct Change {
    prefix: Prefix,
    gone: Option<Uuid>,
    new: Option<ImportedRoute>,
}

/// Transactions of about [`BATCH`] rows each that make the imported routes as wanted; none where nothing differs.
/// A guard fails with `timed out` where the router is not there under its name any more.
#[must_use]
pub fn imports(standing: &Imports, diff: &ImportDiff, target: &ImportTarget) -> Vec<Transaction> {
    let change = |prefix, gone, new| Change { prefix, gone, new };
    let created = diff.create.iter();
    let created = created.map(|(route, _)| change(route.prefix, None, Some(route.clone())));
    let replaced = diff.update.iter();
    let replaced =
        replaced.map(|(uuid, route, _)| change(route.prefix, Some(*uuid), Some(route.clone())));
    let deleted = diff.delete.iter();
    let deleted = deleted.map(|(uuid, route)| change(route.prefix, Some(*uuid), None));
    let mut changes: Vec<Change> = created.chain(replaced).chain(deleted).collect();
    changes.sort_by_key(|change| change.prefix);

    let mut out = Vec::new();
    let mut pending: Vec<Change> = Vec::new();
    for change in changes {
        let moves_on = pending
            .last()
            .is_some_and(|last| last.prefix != change.prefix);
        if pending.len() >= BATCH && moves_on {
            out.push(batch(standing.router, &pending, target));
            pending.clear();
        }
        pending.push(change);
    }
    if !pending.is_empty() {
        out.push(batch(standing.router, &pending, target));
    }
    if !standing.unreadable.is_empty() {
        let gone = standing.unreadable.iter().copied().collect();
        out.push(routes(standing.router, gone, &[], target));
    }
    out
}

fn batch(router: Uuid, changes: &[Change], target: &ImportTarget) -> Transaction {
    let gone = changes.iter().filter_map(|change| change.gone).collect();
    let new: Vec<&ImportedRoute> = changes
        .iter()
        .filter_map(|change| change.new.as_ref())
        .collect();
    routes(router, gone, &new, target)
}

fn routes(
    router: Uuid,
    gone: BTreeSet<Uuid>,
    new: &[&ImportedRoute],
    target: &ImportTarget,
) -> Transaction {
    let table = Table::Router.name();
    let at = || vec![Condition::uuid(router)];
    let mut out = Transaction::new(DATABASE)
        .comment(format!("noverlay node-agent import {}", target.router))
        .guard(table, at(), Row::new().with("name", target.router.as_str()));
    let ids = Datum::map([ROUTE_IMPORT, (OWNER, target.network.as_str())]);
    let mut added = BTreeSet::new();
    for route in new {
        let uuid = random_uuid();
        let row = Row::new()
            .with("ip_prefix", route.prefix.to_string())
            .with("nexthop", route.nexthop.to_string())
            .with("output_port", target.output_port.as_str())
            .with("external_ids", ids.clone());
        out = out.insert(Table::StaticRoute.name(), uuid, row);
        added.insert(uuid);
    }
    let mut mutations = Vec::new();
    if !gone.is_empty() {
        mutations.push(Mutation::delete("static_routes", gone));
    }
    if !added.is_empty() {
        mutations.push(Mutation::insert("static_routes", added));
    }
    out.mutate(table, at(), mutations)
}
