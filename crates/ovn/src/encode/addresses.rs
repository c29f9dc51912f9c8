//! Changes of one Address_Set's addresses.
//! In: the set, what it is to gain and to lose. Out: one transaction. Invariant: guarded by the set's name; addresses that are in both
//! are never missed. Not here: the difference.

use model::nb::Table;
use ovsdb::{Condition, Datum, Mutation, Row, Transaction};

use crate::north::{Changes, DATABASE};

/// The transaction by which `Address_Set.addresses` gains and loses what it is to; `None` where that is nothing.
/// A guard that does not hold fails it with `timed out`: the set is another one, decode again.
#[must_use]
pub fn addresses(name: &str, changes: &Changes, comment: &str) -> Option<Transaction> {
    const ADDRESSES: &str = "addresses";
    let mut mutations = Vec::new();
    let of = |addresses: &[String]| Datum::set(addresses.iter().map(String::as_str));
    if !changes.surplus.is_empty() {
        mutations.push(Mutation::delete(ADDRESSES, of(&changes.surplus)));
    }
    if !changes.missing.is_empty() {
        mutations.push(Mutation::insert(ADDRESSES, of(&changes.missing)));
    }
    if mutations.is_empty() {
        return None;
    }
    let itself = || vec![Condition::uuid(changes.uuid)];
    let table = Table::AddressSet.name();
    let guarded = Transaction::new(DATABASE).comment(comment).guard(
        table,
        itself(),
        Row::new().with("name", name),
    );
    Some(guarded.mutate(table, itself(), mutations))
}
