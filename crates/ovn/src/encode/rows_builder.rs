//! What a transaction collects while it grows: new uuids, guards, and changes of parents' references.
//! In: a diff and the decoded rows. Out: guards, mutations and root rows to delete, each row named once.
//! Invariant: what is referred to is made here, or there and guarded, and not deleted here.
//! Not here: columns.

use std::collections::{BTreeMap, BTreeSet};

use model::diff::Diff;
use model::nb::{Columns, Owner, RowKey, Table};
use ovsdb::{Mutation, Uuid, random_uuid};

use super::EncodeError;
use crate::north::{North, Owned};

/// References to add to and to remove from one column.
#[derive(Default)]
struct Edit {
    insert: BTreeSet<Uuid>,
    delete: BTreeSet<Uuid>,
}

pub(super) struct RowsBuilder<'a> {
    diff: &'a Diff<RowKey, Columns, Uuid>,
    north: &'a North,
    owner: &'a Owner,
    owned: &'a Owned,
    created: BTreeMap<&'a RowKey, Uuid>,
    /// Root rows that go.
    to_delete: BTreeSet<(Table, Uuid)>,
    guards: BTreeSet<(Table, Uuid)>,
    edits: BTreeMap<(Table, Uuid), BTreeMap<&'static str, Edit>>,
}

impl<'a> RowsBuilder<'a> {
    pub(super) fn new(
        diff: &'a Diff<RowKey, Columns, Uuid>,
        north: &'a North,
        owner: &'a Owner,
    ) -> Self {
        // A set that another owner's or somebody else's row refers to cannot go; trying it would fail everything else too.
        let is_referenced = |uuid: &Uuid| {
            let mut by = north.referenced.get(uuid).into_iter().flatten();
            by.any(|by| by.as_ref() != Some(owner))
        };
        let roots = diff
            .delete
            .iter()
            .filter(|(uuid, key)| key.table.parent().is_none() && !is_referenced(uuid));
        Self {
            diff,
            north,
            owner,
            owned: north.of(owner),
            created: diff
                .create
                .iter()
                .map(|(key, _)| (key, random_uuid()))
                .collect(),
            to_delete: roots.map(|(uuid, key)| (key.table, *uuid)).collect(),
            guards: BTreeSet::new(),
            edits: BTreeMap::new(),
        }
    }

    /// The uuid of a row to make; its parent gets the reference.
    pub(super) fn create(&mut self, key: &RowKey) -> Result<Uuid, EncodeError> {
        let orphan = || EncodeError::NoParent { key: key.clone() };
        let uuid = self.created.get(key).copied().ok_or_else(orphan)?;
        if let Some((table, column)) = key.table.parent() {
            let parent = key.parent().and_then(|parent| self.refer(&parent));
            self.edit(table, parent.ok_or_else(orphan)?, column)
                .insert
                .insert(uuid);
        }
        Ok(uuid)
    }

    /// A decoded row's columns.
    pub(super) fn existing(&self, uuid: Uuid, key: &RowKey) -> Option<&'a Columns> {
        let rows = self.owned.get(key)?;
        rows.iter()
            .find(|(row, _)| *row == uuid)
            .map(|(_, columns)| columns)
    }

    /// Of the rows of ours with this key, the one that stays.
    fn survivor(&self, key: &RowKey) -> Option<Uuid> {
        let rows = self.owned.get(key)?.iter().map(|(uuid, _)| *uuid);
        rows.into_iter()
            .find(|uuid| !self.to_delete.contains(&(key.table, *uuid)))
    }

    /// The root row that a key means: made here, ours, or somebody's. Guarded where it is not made here.
    pub(super) fn refer(&mut self, key: &RowKey) -> Option<Uuid> {
        if let Some(uuid) = self.created.get(key) {
            return Some(*uuid);
        }
        let somebody = || self.north.root(self.owner, key.table, &key.id);
        let uuid = self
            .survivor(key)
            .or_else(somebody)
            .filter(|uuid| !self.to_delete.contains(&(key.table, *uuid)))?;
        self.guards.insert((key.table, uuid));
        Some(uuid)
    }

    fn edit(&mut self, table: Table, parent: Uuid, column: &'static str) -> &mut Edit {
        let columns = self.edits.entry((table, parent)).or_default();
        columns.entry(column).or_default()
    }

    /// Takes the children to delete from the parents of that name; the server collects what nobody refers to.
    /// Of two parents that refer to one child only the one that the key means loses it.
    pub(super) fn detach(&mut self) {
        let (diff, north) = (self.diff, self.north);
        for (child, key) in &diff.delete {
            let Some((table, column)) = key.table.parent() else {
                continue;
            };
            for holder in north.holders.get(child).into_iter().flatten() {
                let meant = north.names.get(holder).map(String::as_str) == key.parent_name();
                if meant && !self.to_delete.contains(&(table, *holder)) {
                    self.guards.insert((table, *holder));
                    self.edit(table, *holder, column).delete.insert(*child);
                }
            }
        }
    }

    /// Hands what stays of a duplicate's children, whoever made them, to the root row that stays.
    pub(super) fn adopt(&mut self) {
        let (diff, north) = (self.diff, self.north);
        let deleted: BTreeSet<(Uuid, Option<&str>)> = diff
            .delete
            .iter()
            .map(|(uuid, key)| (*uuid, key.parent_name()))
            .collect();
        for (to_delete, key) in &diff.delete {
            if key.table.parent().is_some() {
                continue;
            }
            let Some(survivor) = self.survivor(key) else {
                continue;
            };
            for (column, child) in north.children.get(to_delete).into_iter().flatten() {
                if !deleted.contains(&(*child, Some(key.id.as_str()))) {
                    self.guards.insert((key.table, survivor));
                    self.edit(key.table, survivor, column).insert.insert(*child);
                }
            }
        }
    }

    /// Root rows to delete.
    pub(super) fn to_delete(&self) -> impl Iterator<Item = (Table, Uuid)> + '_ {
        self.to_delete.iter().copied()
    }

    /// Whether a root row of ours with this key goes.
    pub(super) fn is_deleted(&self, key: &RowKey) -> bool {
        let rows = self.owned.get(key).into_iter().flatten();
        rows.into_iter()
            .any(|(uuid, _)| self.to_delete.contains(&(key.table, *uuid)))
    }

    /// Whether no reference changes.
    pub(super) fn is_idle(&self) -> bool {
        self.edits.is_empty()
    }

    /// Rows that must be there still, with their names.
    pub(super) fn guards(&self) -> impl Iterator<Item = (Table, Uuid, &'a str)> + '_ {
        self.guards.iter().filter_map(|(table, uuid)| {
            let name = self.north.names.get(uuid)?;
            Some((*table, *uuid, name.as_str()))
        })
    }

    /// The changes of parents' references.
    pub(super) fn edits(self) -> impl Iterator<Item = (Table, Uuid, Vec<Mutation>)> {
        self.edits.into_iter().map(|((table, parent), columns)| {
            let mut mutations = Vec::new();
            for (column, edit) in columns {
                if !edit.delete.is_empty() {
                    mutations.push(Mutation::delete(column, edit.delete));
                }
                if !edit.insert.is_empty() {
                    mutations.push(Mutation::insert(column, edit.insert));
                }
            }
            (table, parent, mutations)
        })
    }
}
