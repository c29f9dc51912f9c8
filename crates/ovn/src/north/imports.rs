//! The routes of one gateway router.
//! In: a replica, the target. Out: imported rows by their route, surplus ones, prefixes of others.
//! Invariant: only rows with the stamp of imports are in `rows` and `odd`; all others are `taken`.
//! Not here: which routes there should be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::Prefix;
use model::nb::{ImportTarget, ImportedRoute, Table};
use ovsdb::{AccessError, Atom, Record, Replica, Uuid};

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
    let stamp = Stamp::new(&target.network);
    let mut imports = Imports::default();
    let Some((uuid, router)) = find(replica, &stamp, target)? else {
        return Ok(imports);
    };
    imports.router = Some(uuid);
    let routes = replica.table(Table::StaticRoute.name())?;
    for child in router.get::<Vec<Uuid>>("static_routes")? {
        let Some(record) = routes.get(&child) else {
            continue;
        };
        if !stamp.is_import(record)? {
            imports.taken.extend(prefix(record.get("ip_prefix")?));
            continue;
        }
        match read(record, &stamp, target)? {
            Some(route) => imports.rows.entry(route).or_default().push(child),
            None => imports.odd.push(child),
        }
    }
    Ok(imports)
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
