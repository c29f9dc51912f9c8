//! Whether anything but imported routes and the progress of flows changed since a topology was decoded.
//! In: a replica and what was decoded from it, the replica later. Out: yes or no.
//! Invariant: "yes" means that decoding again would give the same; a doubt is a "no".
//! Not here: decoding.

use std::collections::{BTreeMap, BTreeSet};

use model::nb::Table;
use ovsdb::{AccessError, Atom, Changes, Datum, Record, Replica, Uuid};

use super::{North, OwnerKeys};
use crate::{global, in_force};

const ROUTES: &str = "static_routes";

/// What a topology was decoded from.
#[derive(Debug)]
pub struct Quiet {
    generation: u64,
    keys: OwnerKeys,
    /// Routes of all topologies.
    routes: BTreeSet<Uuid>,
    /// Which of them a router refers to, and its other columns.
    routers: BTreeMap<Uuid, (Vec<bool>, Vec<Datum>)>,
    /// `NB_Global` without what tells of flows.
    global: BTreeMap<Uuid, Vec<Datum>>,
}

impl Quiet {
    /// Remembers the replica that `north` was decoded from.
    ///
    /// # Errors
    /// When routers are not followed.
    pub fn of(replica: &Replica, north: &North) -> Result<Self, AccessError> {
        let of_routes = north
            .owned
            .values()
            .flatten()
            .filter(|(key, _)| key.table == Table::StaticRoute);
        let routes = of_routes.flat_map(|(_, rows)| rows.iter().map(|(id, _)| *id));
        let mut quiet = Self {
            generation: replica.generation(),
            keys: OwnerKeys::new(),
            routes: routes.collect(),
            routers: BTreeMap::new(),
            global: BTreeMap::new(),
        };
        for (id, record) in replica.table(Table::Router.name())? {
            let shadow = quiet.shadow(record);
            quiet.routers.insert(*id, shadow);
        }
        for (id, record) in replica.table(global::TABLE)? {
            quiet.global.insert(*id, settings(record));
        }
        Ok(quiet)
    }

    fn shadow(&self, record: &Record) -> (Vec<bool>, Vec<Datum>) {
        let references = record.datum(ROUTES).and_then(Datum::as_set);
        let references = references.unwrap_or_default();
        let refers = |id: &Uuid| references.binary_search(&Atom::Uuid(*id)).is_ok();
        let others = record.columns().filter(|(name, _)| *name != ROUTES);
        (
            self.routes.iter().map(refers).collect(),
            others.map(|(_, datum)| datum.clone()).collect(),
        )
    }

    /// Whether nothing but imported routes and the progress of flows changed.
    ///
    /// # Errors
    /// When a table is not followed.
    pub fn holds(&mut self, replica: &Replica) -> Result<bool, AccessError> {
        let Changes::Rows(tables) = replica.changes_since(self.generation) else {
            return Ok(false);
        };
        for (table, ids) in &tables {
            let records = replica.table(table)?;
            let same = if **table == *Table::StaticRoute.name() {
                let mut same = true;
                for id in ids {
                    // One that is gone and was not the topology's was an import, or nobody's concern.
                    same &= !self.routes.contains(id)
                        && records
                            .get(id)
                            .map_or(Ok(true), |record| self.keys.is_import(record))?;
                }
                same
            } else if **table == *Table::Router.name() {
                ids.iter().all(|id| {
                    records.get(id).map(|record| self.shadow(record)).as_ref()
                        == self.routers.get(id)
                })
            } else if **table == *global::TABLE {
                ids.iter()
                    .all(|id| records.get(id).map(settings).as_ref() == self.global.get(id))
            } else {
                false
            };
            if !same {
                return Ok(false);
            }
        }
        self.generation = replica.generation();
        Ok(true)
    }
}

/// What `NB_Global` holds but the progress of flows.
fn settings(record: &Record) -> Vec<Datum> {
    let all = record.columns();
    let all = all.filter(|(name, _)| !in_force::COLUMNS.contains(name));
    all.map(|(_, datum)| datum.clone()).collect()
}
