//! The routes of one gateway router.
//! In: a replica, the target. Out: what each row is to the import, and from then on which of them changed.
//! Invariant: only rows with the owner markers of imports and of the network are imports or malformed; a follower sees what a fresh one
//! would see.
//! Not here: which routes there should be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::Prefix;
use model::nb::{DISCARD, ImportTarget, ImportedRoute, RouteRow, Table};
use ovsdb::{AccessError, Atom, Changes, Datum, Record, Replica, Uuid};

use super::OwnerMarker;

/// Columns of routes beside the topology's, so that rows edited by hand are seen.
pub(super) const ROUTE_EXTRAS: [&str; 2] = ["bfd", "route_table"];

/// The routes of one gateway router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imports {
    /// Imported routes in the form that we write, with every row of each.
    pub rows: BTreeMap<ImportedRoute, Vec<Uuid>>,
    /// Marked rows in another form: edited by hand, or unreadable. Surplus.
    pub malformed: Vec<Uuid>,
    /// Prefixes of rows without the owner marker of imports, or of another importer.
    pub taken: BTreeSet<Prefix>,
    /// The router, of several with the name the network's own; `None` while it does not exist.
    pub router: Option<Uuid>,
}

/// Decodes the routes of a gateway router.
///
/// # Errors
/// When a table is not followed or a column holds what it cannot.
pub fn decode_imports(replica: &Replica, target: &ImportTarget) -> Result<Imports, AccessError> {
    let mut follower = RouteFollower::new(target.clone());
    let mut imports = Imports::default();
    for change in follower.follow(replica)? {
        match change.after {
            Some(RouteRow::Import(route)) => {
                imports.rows.entry(route).or_default().push(change.id);
            }
            Some(RouteRow::Malformed) => imports.malformed.push(change.id),
            Some(RouteRow::Other(prefix)) => imports.taken.extend(prefix),
            Some(RouteRow::Discard(prefix) | RouteRow::Topology { prefix, .. }) => {
                imports.taken.insert(prefix);
            }
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

/// Rows that may have changed, as they are now.
type Found = Vec<(Uuid, Option<RouteRow>)>;

/// Whether a router refers to a row; its references are sorted.
fn refers(references: &[Atom], id: &Uuid) -> bool {
    references.binary_search(&Atom::Uuid(*id)).is_ok()
}

/// Follows the routes of one gateway router through a replica's generations, looking only at what changed.
#[derive(Debug)]
pub struct RouteFollower {
    target: ImportTarget,
    marker: OwnerMarker,
    generation: Option<u64>,
    router: Option<Uuid>,
    seen: BTreeMap<Uuid, RouteRow>,
    /// The sum of the rows' uuids: they are random, so equal sums are equal sets.
    sum: u128,
    /// Rows with the owner marker of imports that are not the network's own.
    foreign: BTreeSet<Uuid>,
}

impl RouteFollower {
    /// A follower that has seen nothing.
    #[must_use]
    pub fn new(target: ImportTarget) -> Self {
        Self {
            marker: OwnerMarker::new(&target.network),
            target,
            generation: None,
            router: None,
            seen: BTreeMap::new(),
            sum: 0,
            foreign: BTreeSet::new(),
        }
    }

    /// How many rows of the router another importer has written (OVN-Kubernetes' own bears the same owner marker without an
    /// owner). They are not touched, and nothing is imported for their destinations.
    #[must_use]
    pub fn foreign(&self) -> usize {
        self.foreign.len()
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
        let routes = replica.table(Table::StaticRoute.name())?;
        let changed = rows.into_iter().flatten();
        let found = if routers {
            let router = find(replica, &self.marker, &self.target)?;
            self.router = router.map(|(uuid, _)| uuid);
            let datum = router.and_then(|(_, record)| record.datum("static_routes"));
            let references = datum.and_then(Datum::as_set).unwrap_or_default();
            let found = self.found_among(routes, changed, references)?;
            if everything || !self.explains(&found, references) {
                let touched = |id: &Uuid| everything || rows.is_some_and(|rows| rows.contains(id));
                self.compared(routes, references, touched)?
            } else {
                found
            }
        } else {
            let known = changed.filter(|id| self.seen.contains_key(id));
            known
                .map(|id| Ok((*id, Some(self.read(routes.get(id))?))))
                .collect::<Result<_, AccessError>>()?
        };
        let changes = self.take_over(routes, found)?;
        self.generation = Some(replica.generation());
        Ok(changes)
    }

    /// Of rows that are known to have changed, those that the router refers to, or did: a few of thousands.
    fn found_among<'a>(
        &self,
        routes: &BTreeMap<Uuid, Record>,
        changed: impl Iterator<Item = &'a Uuid>,
        references: &[Atom],
    ) -> Result<Found, AccessError> {
        let mut found = Vec::new();
        for id in changed {
            if refers(references, id) {
                found.push((*id, Some(self.read(routes.get(id))?)));
            } else if self.seen.contains_key(id) {
                found.push((*id, None));
            }
        }
        Ok(found)
    }

    /// Whether what was found is all in which the references differ from those seen before.
    fn explains(&self, found: &Found, references: &[Atom]) -> bool {
        let mut sum = self.sum;
        for (id, after) in found {
            match (self.seen.contains_key(id), after.is_some()) {
                (false, true) => sum = sum.wrapping_add(number(id)),
                (true, false) => sum = sum.wrapping_sub(number(id)),
                (true, true) | (false, false) => {}
            }
        }
        let numbers = references.iter().filter_map(uuid).map(number);
        sum == numbers.fold(0, u128::wrapping_add)
    }

    /// References came or went without their rows: everything is compared.
    fn compared(
        &self,
        routes: &BTreeMap<Uuid, Record>,
        references: &[Atom],
        touched: impl Fn(&Uuid) -> bool,
    ) -> Result<Found, AccessError> {
        let gone = self.seen.keys().filter(|id| !refers(references, id));
        let mut found: Found = gone.map(|id| (*id, None)).collect();
        for id in references.iter().filter_map(uuid) {
            if touched(id) || !self.seen.contains_key(id) {
                found.push((*id, Some(self.read(routes.get(id))?)));
            }
        }
        Ok(found)
    }

    fn take_over(
        &mut self,
        routes: &BTreeMap<Uuid, Record>,
        found: Found,
    ) -> Result<Vec<RouteChange>, AccessError> {
        let mut changes = Vec::new();
        for (id, after) in found {
            let record = routes.get(&id).filter(|_| after.is_some());
            if record.map(|r| self.is_foreign(r)).transpose()? == Some(true) {
                self.foreign.insert(id);
            } else {
                self.foreign.remove(&id);
            }
            let before = match &after {
                Some(after) => self.seen.insert(id, after.clone()),
                None => self.seen.remove(&id),
            };
            match (before.is_some(), after.is_some()) {
                (false, true) => self.sum = self.sum.wrapping_add(number(&id)),
                (true, false) => self.sum = self.sum.wrapping_sub(number(&id)),
                (true, true) | (false, false) => {}
            }
            if before != after {
                changes.push(RouteChange { id, before, after });
            }
        }
        Ok(changes)
    }

    fn is_foreign(&self, record: &Record) -> Result<bool, AccessError> {
        Ok(self.marker.is_import(record)? && !self.marker.is_on(record)?)
    }

    /// A row that is referred to and not there says nothing; it is read when it comes.
    fn read(&self, record: Option<&Record>) -> Result<RouteRow, AccessError> {
        let Some(record) = record else {
            return Ok(RouteRow::Other(None));
        };
        if !self.marker.is_import(record)? || !self.marker.is_on(record)? {
            return other(record, &self.marker);
        }
        let route = read(record, &self.target)?;
        Ok(route.map_or(RouteRow::Malformed, RouteRow::Import))
    }
}

/// A row that is not an import. One that matches the source is no route to anywhere, whoever made it.
fn other(record: &Record, marker: &OwnerMarker) -> Result<RouteRow, AccessError> {
    let Some(prefix) = prefix(record.get("ip_prefix")?) else {
        return Ok(RouteRow::Other(None));
    };
    let discards = record.get::<&str>("nexthop")? == DISCARD;
    let by_source = record.get::<Option<&str>>("policy")? == Some("src-ip");
    Ok(match (by_source, marker.is_on(record)?, discards) {
        (false, true, discards) => RouteRow::Topology { prefix, discards },
        (false, false, true) => RouteRow::Discard(prefix),
        (true, ..) | (false, false, false) => RouteRow::Other(Some(prefix)),
    })
}

fn number(id: &Uuid) -> u128 {
    u128::from_be_bytes(id.to_bytes())
}

/// Which of these prefixes have an imported route of ours on the target's router, in whatever form. Another importer's row is
/// none: nobody would bring back what gave way to it.
///
/// # Errors
/// When a table is not followed or a column holds what it cannot.
pub fn imported_among(
    replica: &Replica,
    target: &ImportTarget,
    among: &BTreeSet<Prefix>,
) -> Result<BTreeSet<Prefix>, AccessError> {
    let mut found = BTreeSet::new();
    let marker = OwnerMarker::new(&target.network);
    let router = find(replica, &marker, target)?.filter(|_| !among.is_empty());
    let routes = replica.table(Table::StaticRoute.name())?;
    let references = router.and_then(|(_, record)| record.datum("static_routes"));
    let references = references.and_then(Datum::as_set).unwrap_or_default();
    for record in references
        .iter()
        .filter_map(uuid)
        .filter_map(|id| routes.get(id))
    {
        if let Some(prefix) = prefix(record.get("ip_prefix")?)
            && among.contains(&prefix)
            && marker.is_import(record)?
            && marker.is_on(record)?
        {
            found.insert(prefix);
        }
    }
    Ok(found)
}

fn uuid(atom: &Atom) -> Option<&Uuid> {
    if let Atom::Uuid(id) = atom {
        Some(id)
    } else {
        None
    }
}

fn find<'a>(
    replica: &'a Replica,
    marker: &OwnerMarker,
    target: &ImportTarget,
) -> Result<Option<(Uuid, &'a Record)>, AccessError> {
    let mut found = None;
    for (uuid, record) in replica.table(Table::Router.name())? {
        if record.get::<&str>("name")? != target.router.as_str() {
            continue;
        }
        if marker.is_on(record)? {
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
fn read(record: &Record, target: &ImportTarget) -> Result<Option<ImportedRoute>, AccessError> {
    let port = record.get::<Option<&str>>("output_port")?;
    let plain = port == Some(target.output_port.as_str())
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
