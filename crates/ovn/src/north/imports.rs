//! The routes of one gateway router.
//! In: a replica, the target. Out: what each row is to the import, and from then on which of them changed.
//! Invariant: only rows with the stamp of imports are imports or odd; a follower sees what a fresh one would see.
//! Not here: which routes there should be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::Prefix;
use model::nb::{ImportTarget, ImportedRoute, RouteRow, Table};
use ovsdb::{AccessError, Atom, Changes, Record, Replica, Uuid};

use super::Stamp;

/// Columns of routes beside the topology's, so that rows edited by hand are seen.
pub(super) const ROUTE_EXTRAS: [&str; 2] = ["bfd", "route_table"];

/// The routes of one gateway router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imports {
    /// Imported routes in the form that we write, with every row of each.
    pub rows: BTreeMap<ImportedRoute, Vec<Uuid>>,
    /// Stamped rows in another form: edited by hand, or unreadable. Surplus.
    pub odd: Vec<Uuid>,
    /// Prefixes of rows without the stamp of imports.
    pub taken: BTreeSet<Prefix>,
    /// The router, of several with the name the network's own; `None` while it does not exist.
    pub router: Option<Uuid>,
}

/// Lifts the routes of a gateway router.
///
/// # Errors
/// When a table is not followed or a column holds what it cannot.
pub fn lift_imports(replica: &Replica, target: &ImportTarget) -> Result<Imports, AccessError> {
    let mut follower = RouteFollower::new(target.clone());
    let mut imports = Imports::default();
    for change in follower.follow(replica)? {
        match change.after {
            Some(RouteRow::Import(route)) => {
                imports.rows.entry(route).or_default().push(change.id);
            }
            Some(RouteRow::Odd) => imports.odd.push(change.id),
            Some(RouteRow::Other(prefix)) => imports.taken.extend(prefix),
            None => {}
        }
    }
    imports.router = follower.router();
    Ok(imports)
}

/// A row of the router that came, went or is another one now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteChange {
    /// The row.
    pub id: Uuid,
    /// What it was; nothing where it is new.
    pub before: Option<RouteRow>,
    /// What it is; nothing where it is gone.
    pub after: Option<RouteRow>,
}

/// Follows the routes of one gateway router through a replica's generations, looking only at what changed.
#[derive(Debug)]
pub struct RouteFollower {
    target: ImportTarget,
    stamp: Stamp,
    generation: Option<u64>,
    router: Option<Uuid>,
    seen: BTreeMap<Uuid, RouteRow>,
}

impl RouteFollower {
    /// A follower that has seen nothing.
    #[must_use]
    pub fn new(target: ImportTarget) -> Self {
        Self {
            stamp: Stamp::new(&target.network),
            target,
            generation: None,
            router: None,
            seen: BTreeMap::new(),
        }
    }

    /// The router, of several with the name the network's own; `None` while it does not exist.
    #[must_use]
    pub fn router(&self) -> Option<Uuid> {
        self.router
    }

    /// What changed since the last call, each row once.
    ///
    /// # Errors
    /// When a table is not followed or a column holds what it cannot. The next call looks at everything.
    pub fn follow(&mut self, replica: &Replica) -> Result<Vec<RouteChange>, AccessError> {
        let since = self.generation.take();
        let changed = since.map_or(Changes::Everything, |since| replica.changes_since(since));
        let (rows, routers) = match &changed {
            Changes::Everything => (None, true),
            Changes::Rows(tables) => (
                tables.get(Table::StaticRoute.name()),
                tables.contains_key(Table::Router.name()),
            ),
        };
        let everything = changed == Changes::Everything;
        let touched = |id: &Uuid| everything || rows.is_some_and(|rows| rows.contains(id));
        let routes = replica.table(Table::StaticRoute.name())?;
        let mut found = Vec::new();
        if routers {
            let router = find(replica, &self.stamp, &self.target)?;
            self.router = router.map(|(uuid, _)| uuid);
            let references = match router {
                Some((_, record)) => record.get::<Vec<Uuid>>("static_routes")?,
                None => Vec::new(),
            };
            let gone = self
                .seen
                .keys()
                .filter(|id| references.binary_search(id).is_err());
            found.extend(gone.map(|id| (*id, None)));
            for id in references {
                if touched(&id) || !self.seen.contains_key(&id) {
                    found.push((id, Some(self.read(routes.get(&id))?)));
                }
            }
        } else {
            for id in rows
                .into_iter()
                .flatten()
                .filter(|id| self.seen.contains_key(id))
            {
                found.push((*id, Some(self.read(routes.get(id))?)));
            }
        }
        let mut changes = Vec::new();
        for (id, after) in found {
            let before = match &after {
                Some(after) => self.seen.insert(id, after.clone()),
                None => self.seen.remove(&id),
            };
            if before != after {
                changes.push(RouteChange { id, before, after });
            }
        }
        self.generation = Some(replica.generation());
        Ok(changes)
    }

    /// A row that is referred to and not there says nothing; it is read when it comes.
    fn read(&self, record: Option<&Record>) -> Result<RouteRow, AccessError> {
        let Some(record) = record else {
            return Ok(RouteRow::Other(None));
        };
        if !self.stamp.is_import(record)? {
            return Ok(RouteRow::Other(prefix(record.get("ip_prefix")?)));
        }
        let route = read(record, &self.stamp, &self.target)?;
        Ok(route.map_or(RouteRow::Odd, RouteRow::Import))
    }
}

fn find<'a>(
    replica: &'a Replica,
    stamp: &Stamp,
    target: &ImportTarget,
) -> Result<Option<(Uuid, &'a Record)>, AccessError> {
    let mut found = None;
    for (uuid, record) in replica.table(Table::Router.name())? {
        if record.get::<&str>("name")? != target.router.as_str() {
            continue;
        }
        if stamp.is_on(record)? {
            return Ok(Some((*uuid, record)));
        }
        found = found.or(Some((*uuid, record)));
    }
    Ok(found)
}

/// `ip_prefix` may be an address alone.
fn prefix(text: &str) -> Option<Prefix> {
    text.parse()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(Prefix::host))
}

/// The route of a row that is just as we write it.
fn read(
    record: &Record,
    stamp: &Stamp,
    target: &ImportTarget,
) -> Result<Option<ImportedRoute>, AccessError> {
    let port = record.get::<Option<&str>>("output_port")?;
    let plain = port == Some(target.output_port.as_str())
        && stamp.is_on(record)?
        && ["policy", "options"]
            .into_iter()
            .chain(ROUTE_EXTRAS)
            .all(|column| is_unset(record, column));
    let (to, via): (&str, &str) = (record.get("ip_prefix")?, record.get("nexthop")?);
    let (Ok(prefix), Ok(nexthop)) = (to.parse::<Prefix>(), via.parse::<IpAddr>()) else {
        return Ok(None);
    };
    let spelt = prefix.to_string() == to && nexthop.to_string() == via;
    Ok((plain && spelt).then_some(ImportedRoute { prefix, nexthop }))
}

/// No value, an empty text, or a column that this schema does not have.
fn is_unset(record: &Record, column: &str) -> bool {
    record.datum(column).is_none_or(|datum| {
        let set = datum.as_set();
        set.is_some_and(|atoms| atoms.is_empty() || atoms == [Atom::from("")])
            || datum.as_map().is_some_and(<[_]>::is_empty)
    })
}
