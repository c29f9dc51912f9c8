//! Changes of one Address_Set's addresses.
//! In: the set, what it is to gain and to lose. Out: one transaction. Invariant: guarded by the set's name; addresses that are in both
//! are never missed. Not here: the difference.

use std::collections::BTreeSet;

use model::nb::Table;
use ovsdb::{Condition, Datum, Mutation, Row, Transaction, Uuid};

use crate::north::DATABASE;

/// The transaction that brings `Address_Set.addresses` from what it holds to what is wanted; `None` where nothing differs.
/// A guard that does not hold fails it with `timed out`: the set is another one, decode again.
#[must_use]
pub fn addresses(
    (uuid, name): (Uuid, &str),
    holds: &BTreeSet<String>,
    wanted: &BTreeSet<String>,
    comment: &str,
) -> Option<Transaction> {
    const ADDRESSES: &str = "addresses";
    let mut mutations = Vec::new();
    let surplus: Vec<&String> = holds.difference(wanted).collect();
    if !surplus.is_empty() {
        mutations.push(Mutation::delete(ADDRESSES, Datum::set(surplus)));
    }
    let missing: Vec<&String> = wanted.difference(holds).collect();
    if !missing.is_empty() {
        mutations.push(Mutation::insert(ADDRESSES, Datum::set(missing)));
    }
    if mutations.is_empty() {
        return None;
    }
    let itself = || vec![Condition::uuid(uuid)];
    let table = Table::AddressSet.name();
    let guarded = Transaction::new(DATABASE).comment(comment).guard(
        table,
        itself(),
        Row::new().with("name", name),
    );
    Some(guarded.mutate(table, itself(), mutations))
}
