//! A transaction while it grows: new rows, columns to change, references that come and go.
//! In: rows of a diff, in any order. Out: operations in an order that reads well: guards, inserts, changes, deletes.
//! Invariant: each parent is mutated once; a parent that is made here gets its references at once.
//! Not here: which rows.

use std::collections::{BTreeMap, BTreeSet};

use model::nb::{Columns, RowKey, Table, Value};
use ovsdb::{Condition, Datum, Mutation, Operation, Row, Transaction, Until, Uuid, random_uuid};

use super::LowerError;
use crate::form;
use crate::north::{DATABASE, RowDiff, Standing};

/// References of one row to its children that go and come, by column.
struct Children {
    table: Table,
    name: String,
    gone: BTreeMap<&'static str, BTreeSet<Uuid>>,
    new: BTreeMap<&'static str, BTreeSet<Uuid>>,
}

/// A growing transaction.
pub(super) struct Draft<'a> {
    standing: &'a Standing,
    /// Rows of this transaction, by identity.
    new: BTreeMap<&'a RowKey, Uuid>,
    deleted: BTreeSet<Uuid>,
    guards: Vec<Operation>,
    inserts: BTreeMap<Uuid, (Table, Row)>,
    updates: Vec<(Table, Uuid, Row)>,
    entries: Vec<(Table, Uuid, Vec<Mutation>)>,
    children: BTreeMap<Uuid, Children>,
    roots: Vec<(Table, Uuid)>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(standing: &'a Standing, diff: &'a RowDiff) -> Self {
        let new = diff.create.iter().map(|(key, _)| (key, random_uuid()));
        Self {
            standing,
            new: new.collect(),
            deleted: diff.delete.iter().map(|(uuid, _)| *uuid).collect(),
            guards: Vec::new(),
            inserts: BTreeMap::new(),
            updates: Vec::new(),
            entries: Vec::new(),
            children: BTreeMap::new(),
            roots: Vec::new(),
        }
    }

    /// The row that will bear this identity once the transaction is done.
    fn find(&self, key: &RowKey) -> Option<Uuid> {
        let stays = |(uuid, _): &&(Uuid, Columns)| !self.deleted.contains(uuid);
        self.new.get(key).copied().or_else(|| {
            let rows = self.standing.owned.get(key)?;
            rows.iter().find(stays).map(|(uuid, _)| *uuid)
        })
    }

    fn row<'v>(
        &self,
        key: &RowKey,
        columns: impl Iterator<Item = (&'static str, &'v Value)>,
    ) -> Result<Row, LowerError> {
        let mut row = Row::new();
        for (name, value) in columns {
            let datum = form::lower(value, |target| {
                self.find(target).ok_or_else(|| LowerError::NoTarget {
                    row: key.clone(),
                    target: target.clone(),
                })
            })?;
            row.set(name, datum);
        }
        Ok(row)
    }

    pub(super) fn create(&mut self, key: &RowKey, columns: &Columns) -> Result<(), LowerError> {
        let Some(uuid) = self.new.get(key).copied() else {
            return Ok(());
        };
        let row = self.row(key, columns.iter().map(|(name, value)| (*name, value)))?;
        self.inserts.insert(uuid, (key.table, row));
        let Some((table, column)) = key.table.parent() else {
            self.guards.push(absent(key));
            return Ok(());
        };
        let target = RowKey::root(table, key.parent.as_str());
        let parent = self.find(&target).ok_or_else(|| LowerError::NoTarget {
            row: key.clone(),
            target,
        })?;
        let children = self.of(parent, table, &key.parent);
        children.new.entry(column).or_default().insert(uuid);
        Ok(())
    }

    /// Changes only the columns and entries that differ.
    pub(super) fn update(
        &mut self,
        uuid: Uuid,
        key: &RowKey,
        wanted: &Columns,
    ) -> Result<(), LowerError> {
        let rows = self.standing.owned.get(key).map(Vec::as_slice);
        let old = rows
            .unwrap_or_default()
            .iter()
            .find(|(at, _)| *at == uuid)
            .map(|(_, columns)| columns);
        let mut plain = Vec::new();
        let mut mutations = Vec::new();
        for (&name, value) in wanted {
            let have = old.and_then(|columns| columns.get(name));
            if have.is_some_and(|have| have.satisfies(value)) {
                continue;
            }
            match value {
                Value::Entries(entries) => mutations.extend(put(name, have, entries)),
                Value::Text(_) | Value::Number(_) | Value::Set(_) | Value::Ref(_) => {
                    plain.push((name, value));
                }
            }
        }
        self.guards
            .push(stands(key.table, uuid, assumed(old, &plain)));
        if !plain.is_empty() {
            let row = self.row(key, plain.into_iter())?;
            self.updates.push((key.table, uuid, row));
        }
        if !mutations.is_empty() {
            self.entries.push((key.table, uuid, mutations));
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, uuid: Uuid, key: &RowKey) {
        let Some((table, column)) = key.table.parent() else {
            self.roots.push((key.table, uuid));
            return;
        };
        let Some(parent) = self.standing.parents.get(&uuid).copied() else {
            return;
        };
        // A parent that goes takes its children along.
        if !self.deleted.contains(&parent) {
            let children = self.of(parent, table, &key.parent);
            children.gone.entry(column).or_default().insert(uuid);
        }
    }

    fn of(&mut self, parent: Uuid, table: Table, name: &str) -> &mut Children {
        self.children.entry(parent).or_insert_with(|| Children {
            table,
            name: name.to_owned(),
            gone: BTreeMap::new(),
            new: BTreeMap::new(),
        })
    }

    pub(super) fn finish(mut self, comment: &str) -> Transaction {
        let mut mutates = Vec::new();
        for (uuid, children) in self.children {
            if let Some((_, row)) = self.inserts.get_mut(&uuid) {
                for (column, new) in children.new {
                    row.set(column, new);
                }
                continue;
            }
            let row = Row::new().with("name", children.name);
            self.guards.push(stands(children.table, uuid, row));
            let gone = children.gone.into_iter();
            let gone = gone.map(|(column, rows)| Mutation::delete(column, rows));
            let new = children.new.into_iter();
            let new = new.map(|(column, rows)| Mutation::insert(column, rows));
            mutates.push((children.table, uuid, gone.chain(new).collect::<Vec<_>>()));
        }
        let mut inserts: Vec<(Uuid, (Table, Row))> = self.inserts.into_iter().collect();
        inserts.sort_by_key(|(_, (table, _))| *table);
        let at = |uuid| vec![Condition::uuid(uuid)];
        let mut out = Transaction::new(DATABASE).comment(comment);
        for guard in self.guards {
            out = out.push(guard);
        }
        for (uuid, (table, row)) in inserts {
            out = out.insert(table.name(), uuid, row);
        }
        for (table, uuid, row) in self.updates {
            out = out.update(table.name(), at(uuid), row);
        }
        for (table, uuid, mutations) in self.entries.into_iter().chain(mutates) {
            out = out.mutate(table.name(), at(uuid), mutations);
        }
        for (table, uuid) in self.roots {
            out = out.delete(table.name(), at(uuid));
        }
        out
    }
}

/// Entries that differ. An insert leaves a key's old value, so the keys go first.
fn put(
    column: &'static str,
    have: Option<&Value>,
    wanted: &BTreeMap<String, String>,
) -> [Mutation; 2] {
    let same = |key: &String, value: &String| match have {
        Some(Value::Entries(have)) => have.get(key) == Some(value),
        Some(Value::Text(_) | Value::Number(_) | Value::Set(_) | Value::Ref(_)) | None => false,
    };
    let other = || {
        let pairs = wanted.iter().filter(|(key, value)| !same(key, value));
        pairs.map(|(key, value)| (key.as_str(), value.as_str()))
    };
    [
        Mutation::delete(column, Datum::set(other().map(|(key, _)| key))),
        Mutation::insert(column, Datum::map(other())),
    ]
}

/// A guard: no row bears this name. A replica that lags behind must not lead to a second router.
fn absent(key: &RowKey) -> Operation {
    Operation::Wait {
        table: key.table.name().into(),
        conditions: vec![Condition::equal("name", key.id.as_str())],
        columns: vec!["name".into()],
        until: Until::Equal,
        rows: Vec::new(),
        timeout: 0,
    }
}

/// A guard: the row is there and holds these values.
fn stands(table: Table, uuid: Uuid, row: Row) -> Operation {
    Operation::Wait {
        table: table.name().into(),
        conditions: vec![Condition::uuid(uuid)],
        columns: row
            .columns()
            .map(|(name, _)| name.to_owned().into())
            .collect(),
        until: Until::Equal,
        rows: vec![row],
        timeout: 0,
    }
}

/// The values that are about to be replaced, or one that stands for the row where only entries of maps differ.
fn assumed(old: Option<&Columns>, plain: &[(&'static str, &Value)]) -> Row {
    let mut row = Row::new();
    for (name, value) in old.into_iter().flatten() {
        let replaced = plain.iter().any(|(column, _)| column == name);
        if !replaced && row.columns().next().is_some() {
            continue;
        }
        match value {
            Value::Text(text) => row.set(*name, text),
            Value::Number(number) => row.set(*name, *number),
            Value::Set(items) => row.set(*name, Datum::set(items)),
            // Maps are shared with others, references are known by what they mean.
            Value::Entries(_) | Value::Ref(_) => {}
        }
    }
    row
}
