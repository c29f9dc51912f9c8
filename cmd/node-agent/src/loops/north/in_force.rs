//! How much of a network's rows is in force beside OVN-Kubernetes.
//! In: what was written, how far flows have followed. Out: what loops tell of it. Invariant: what was written last is in force where
//! every chassis has followed it. Not here: counting (`ovn::in_force`), which step follows (`crate::beside`).

use std::collections::BTreeSet;

use model::diff::Diff;
use model::nb::{self, Columns, Owner, Table};
use plan_node::beside::steps::{Part, Step};

use super::NorthReconciler;
use crate::world::Planned;

impl NorthReconciler {
    /// Tells how much of a network's rows is in force. Rows that were there count as in force with what was written by then; the access
    /// lists of a network that another process brought further were in force, whatever others have written since.
    pub(super) fn tell_in_force(&mut self, owner: &Owner, planned: &Planned, stands: bool) {
        let (Some(sight), Owner::Network(name)) = (&self.sight, owner) else {
            return;
        };
        let Some(step) = planned.plan.steps.get(name) else {
            return;
        };
        let configured = self.north.with_replica(ovn::in_force::configured);
        let configured = configured.and_then(Result::ok).flatten();
        let Some(configured) = configured.filter(|_| stands) else {
            sight.note_rows(name, *step, Part::Partial, Part::Partial);
            return;
        };
        let written = configured.written;
        let targets = self.targets.entry(owner.clone());
        let of_lists = if *step > Step::Untracked { 0 } else { written };
        let target = targets.or_insert((of_lists, written));
        // A database that was made anew counts from the beginning.
        *target = (target.0.min(written), target.1.min(written));
        let (untracked, steering) = *target;
        let part = |target: i64, is_wanted: bool| match (configured.in_force >= target, is_wanted) {
            (false, _) => Part::Partial,
            (true, true) => Part::Whole,
            (true, false) => Part::Gone,
        };
        let untracked = part(untracked, *step >= Step::Untracked);
        let steering = part(steering, *step >= Step::Steering);
        sight.note_rows(name, *step, untracked, steering);
    }

    /// Remembers from where on what was written is in force.
    pub(super) fn note_target(
        &mut self,
        owner: &Owner,
        diff: &Diff<nb::RowKey, Columns, ovsdb::Uuid>,
    ) {
        let configured = self.north.with_replica(ovn::in_force::configured);
        let Some(Ok(Some(configured))) = configured else {
            // A write whose number is not known is in force with the next one.
            return;
        };
        let created = diff.create.iter().map(|(key, _)| key);
        let updated = diff.update.iter().map(|(_, key, _)| key);
        let tables = created
            .chain(updated)
            .chain(diff.delete.iter().map(|(_, key)| key));
        let tables: BTreeSet<Table> = tables.map(|key| key.table).collect();
        let written = configured.written;
        let target = self
            .targets
            .entry(owner.clone())
            .or_insert((written, written));
        let of_lists = [Table::PortGroup, Table::GroupAcl, Table::Nat];
        if of_lists.iter().any(|table| tables.contains(table)) {
            target.0 = written;
        }
        if tables.contains(&Table::Policy) || tables.contains(&Table::AddressSet) {
            target.1 = written;
        }
    }
}
