//! Static routes of one gateway router, as far as imports and reports are concerned.
//! In: a replica, the router. Out: imported rows by their route, other people's prefixes, destinations.
//! Invariant: a row with the stamp of imports is in `rows` or `unreadable`, whatever else it holds.
//! Not here: which routes there should be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::nb::{ImportTarget, ImportedRoute, Table};
use model::{Diff, Prefix, RouterName};
use ovsdb::{AccessError, Atom, Datum, Record, Replica, Uuid};

use super::{Stamps, weight};

/// The difference between imported routes and those wanted; `true` means that a row is in form.
pub type ImportDiff = Diff<ImportedRoute, bool, Uuid>;

/// Columns of a static route that an imported one leaves at their defaults, where the schema has them.
pub(super) const UNUSED: [&str; 3] = ["route_table", "bfd", "options"];

/// `policy` of a route that is chosen by a packet's source.
const BY_SOURCE: Option<&str> = Some("src-ip");

/// The routes of one gateway router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imports {
    /// The router's row.
    pub router: Uuid,
    /// Imported routes: each row, and whether it is in form.
    pub rows: BTreeMap<ImportedRoute, Vec<(Uuid, bool)>>,
    /// Imported routes whose prefix or next hop is none: to be deleted.
    pub unreadable: Vec<Uuid>,
    /// Prefixes of other people's rows.
    pub foreign: BTreeSet<Prefix>,
}

impl Imports {
    /// Lifts the routes of a router; `None` where there is no such router.
    /// Of several routers of one name the one counts that the topology's rows keep.
    ///
    /// # Errors
    /// When a column is not monitored or not of the type that ovn-nb(5) gives it.
    pub fn lift(replica: &Replica, target: &ImportTarget) -> Result<Option<Self>, AccessError> {
        let stamps = Stamps::new(&target.network);
        let Some((router, record)) = router(replica, &target.router, &stamps)? else {
            return Ok(None);
        };
        let mut imports = Self {
            router,
            rows: BTreeMap::new(),
            unreadable: Vec::new(),
            foreign: BTreeSet::new(),
        };
        let routes = replica.table(Table::StaticRoute.name())?;
        for uuid in record.get::<Vec<Uuid>>("static_routes")? {
            let Some(record) = routes.get(&uuid) else {
                continue;
            };
            if stamps.imported(record) {
                match imported(record)? {
                    Some(route) => {
                        let form = in_form(record, &route, target, &stamps)?;
                        imports.rows.entry(route).or_default().push((uuid, form));
                    }
                    None => imports.unreadable.push(uuid),
                }
            } else if !stamps.owned(record) && record.get::<Option<&str>>("policy")? != BY_SOURCE {
                imports.foreign.extend(prefix(record.get("ip_prefix")?));
            }
        }
        Ok(Some(imports))
    }

    /// What has to change for the router to hold exactly these, beside the unreadable rows.
    #[must_use]
    pub fn diff(&self, wanted: &BTreeSet<ImportedRoute>) -> ImportDiff {
        let wanted = wanted.iter().map(|route| (route.clone(), true)).collect();
        Diff::between(&self.rows, &wanted, |have, want| have == want)
    }
}

/// Every destination that a router chooses by a packet's destination, and whether it is forwarded (else dropped).
///
/// # Errors
/// When a column is not monitored or not of the type that ovn-nb(5) gives it.
pub fn destinations(
    replica: &Replica,
    target: &ImportTarget,
) -> Result<Vec<(Prefix, bool)>, AccessError> {
    let stamps = Stamps::new(&target.network);
    let Some((_, record)) = router(replica, &target.router, &stamps)? else {
        return Ok(Vec::new());
    };
    let routes = replica.table(Table::StaticRoute.name())?;
    let mut found = Vec::new();
    for uuid in record.get::<Vec<Uuid>>("static_routes")? {
        let Some(record) = routes.get(&uuid) else {
            continue;
        };
        if record.get::<Option<&str>>("policy")? == BY_SOURCE {
            continue;
        }
        if let Some(prefix) = prefix(record.get("ip_prefix")?) {
            found.push((prefix, record.get::<&str>("nexthop")? != "discard"));
        }
    }
    Ok(found)
}

/// The router of a name: ours before others, then the one that holds most, as the topology's rows are kept.
fn router<'a>(
    replica: &'a Replica,
    name: &RouterName,
    stamps: &Stamps,
) -> Result<Option<(Uuid, &'a Record)>, AccessError> {
    let mut found: Option<((bool, usize), Uuid, &Record)> = None;
    for (uuid, record) in replica.table(Table::Router.name())? {
        if record.get::<&str>("name")? != name.as_str() {
            continue;
        }
        let rank = (stamps.owned(record), weight(Table::Router, record)?);
        if found.is_none_or(|(best, ..)| best < rank) {
            found = Some((rank, *uuid, record));
        }
    }
    Ok(found.map(|(_, uuid, record)| (uuid, record)))
}

/// Prefix and next hop of an imported route.
fn imported(record: &Record) -> Result<Option<ImportedRoute>, AccessError> {
    let nexthop = record.get::<&str>("nexthop")?.parse::<IpAddr>().ok();
    let prefix = prefix(record.get("ip_prefix")?);
    Ok(prefix
        .zip(nexthop)
        .map(|(prefix, nexthop)| ImportedRoute { prefix, nexthop }))
}

/// Whether a row is exactly as we write it; what others add to its `external_ids` is theirs.
fn in_form(
    record: &Record,
    route: &ImportedRoute,
    target: &ImportTarget,
    stamps: &Stamps,
) -> Result<bool, AccessError> {
    let unused = UNUSED
        .iter()
        .filter_map(|column| record.datum(column))
        .all(is_default);
    Ok(unused
        && stamps.owned(record)
        && record.get::<&str>("ip_prefix")? == route.prefix.to_string()
        && record.get::<&str>("nexthop")? == route.nexthop.to_string()
        && record.get::<Option<&str>>("policy")?.is_none()
        && record.get::<Option<&str>>("output_port")? == Some(target.output_port.as_str()))
}

fn is_default(datum: &Datum) -> bool {
    match (datum.as_map(), datum.as_set()) {
        (Some(entries), _) => entries.is_empty(),
        (None, Some([Atom::String(text)])) => text.is_empty(),
        (None, Some(items)) => items.is_empty(),
        (None, None) => false,
    }
}

/// A prefix, or a single address without length.
fn prefix(text: &str) -> Option<Prefix> {
    text.parse::<Prefix>()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(Prefix::host))
}
