//! `NB_Global.options:use_ct_inv_match`: whether northd's flows tell packets that conntrack calls invalid from others.
//! In: a replica, what is wanted. Out: one transaction, or one without operations.
//! Invariant: a value that we did not write stays, whatever is wanted; ours is marked in `external_ids` beside it, and goes as it
//! came. Not here: when it is wanted (`plan_node::north::global`), the row's other columns and keys.

use std::collections::BTreeMap;

use model::nb::{CT_INV_MATCH, CT_INV_MATCH_OURS, CtInvMatch};
use ovsdb::{AccessError, Condition, Datum, MonitorTable, Mutation, Replica, Transaction};

use crate::north::DATABASE;

pub(crate) const TABLE: &str = "NB_Global";
/// What we write.
const OFF: &str = "false";

/// What to follow.
#[must_use]
pub(crate) fn monitor() -> MonitorTable {
    MonitorTable::new(TABLE, &["options", "external_ids"])
}

/// The transaction after which the option is as wanted, and the value in its way, where that is somebody else's. A database without
/// the row, which northd or ovn-nbctl makes, is left alone.
///
/// # Errors
/// When the table is not followed or a column holds what it cannot.
pub fn transaction(
    replica: &Replica,
    wanted: CtInvMatch,
) -> Result<(Transaction, Option<String>), AccessError> {
    let mut transaction = Transaction::new(DATABASE);
    let Some((row, record)) = replica.table(TABLE)?.iter().next() else {
        return Ok((transaction, None));
    };
    let options = record.get::<BTreeMap<String, String>>("options")?;
    let ids = record.get::<BTreeMap<String, String>>("external_ids")?;
    let value = options.get(CT_INV_MATCH).map(String::as_str);
    let is_marked = ids.contains_key(CT_INV_MATCH_OURS);
    let put = |column, key| Mutation::insert(column, Datum::map([(key, OFF)]));
    let ours = || Mutation::delete("options", Datum::map([(CT_INV_MATCH, OFF)]));
    let mark = || Mutation::delete("external_ids", Datum::set([CT_INV_MATCH_OURS]));
    let (mutations, in_the_way) = match (wanted, value) {
        (CtInvMatch::Kept, _) => (Vec::new(), None),
        (CtInvMatch::Off, None) => {
            // A marker that is there would keep its value.
            let put = [
                put("options", CT_INV_MATCH),
                put("external_ids", CT_INV_MATCH_OURS),
            ];
            (put.into(), None)
        }
        (CtInvMatch::Off, Some(OFF)) => (Vec::new(), None),
        (CtInvMatch::Restored, Some(OFF)) if is_marked => (vec![ours(), mark()], None),
        // Whoever wrote over ours has it now.
        (CtInvMatch::Off, Some(other)) => {
            let let_go = is_marked.then(mark);
            (let_go.into_iter().collect(), Some(other.to_owned()))
        }
        (CtInvMatch::Restored, _) => (is_marked.then(mark).into_iter().collect(), None),
    };
    if !mutations.is_empty() {
        transaction = transaction
            .comment(format!("noverlay node-agent {CT_INV_MATCH}"))
            .mutate(TABLE, vec![Condition::uuid(*row)], mutations);
    }
    Ok((transaction, in_the_way))
}
