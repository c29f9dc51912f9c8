//! Addresses of one Address_Set.
//! In: a replica, what is wanted. Out: what the set holds, or lacks and has too much. Invariant: only a set with our owner marker is ours. Not here: who fills it, and writing.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use model::NetworkName;
use model::nb::Table;
use ovsdb::{AccessError, Datum, Record, Replica, Uuid};

use super::{OwnerMarker, string};

/// What a set is to gain and to lose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The set.
    pub uuid: Uuid,
    /// Addresses that it lacks.
    pub missing: Vec<String>,
    /// Addresses that it has and that are not wanted.
    pub surplus: Vec<String>,
}

/// The set of that name that bears the network's owner marker, with `Address_Set.addresses`; `None` where there is none.
///
/// # Errors
/// When sets are not followed or a column holds what it cannot.
pub fn addresses(
    replica: &Replica,
    network: &NetworkName,
    name: &str,
) -> Result<Option<(Uuid, BTreeSet<String>)>, AccessError> {
    let Some((uuid, record)) = set(replica, network, name)? else {
        return Ok(None);
    };
    Ok(Some((uuid, record.get("addresses")?)))
}

/// What that set is to gain and to lose until it holds what is wanted; `None` where there is no such set. Copies nothing but what
/// differs: a set has ten thousand addresses, and it is asked for with each route.
///
/// # Errors
/// As of [`addresses`].
pub fn changes(
    replica: &Replica,
    network: &NetworkName,
    name: &str,
    wanted: &BTreeSet<Box<str>>,
) -> Result<Option<Changes>, AccessError> {
    let Some((uuid, record)) = set(replica, network, name)? else {
        return Ok(None);
    };
    let atoms = record
        .get::<&Datum>("addresses")?
        .as_set()
        .unwrap_or_default();
    let (mut missing, mut surplus) = (Vec::new(), Vec::new());
    let mut held = atoms.iter().filter_map(string).peekable();
    let mut wanted = wanted.iter().map(AsRef::as_ref).peekable();
    // Both are sorted as texts are.
    loop {
        let order = match (held.peek(), wanted.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(held), Some(wanted)) => held.cmp(wanted),
        };
        if order != Ordering::Greater
            && let Some(held) = held.next()
            && order == Ordering::Less
        {
            surplus.push(held.to_owned());
        }
        if order != Ordering::Less
            && let Some(wanted) = wanted.next()
            && order == Ordering::Greater
        {
            missing.push(wanted.to_owned());
        }
    }
    Ok(Some(Changes {
        uuid,
        missing,
        surplus,
    }))
}

fn set<'a>(
    replica: &'a Replica,
    network: &NetworkName,
    name: &str,
) -> Result<Option<(Uuid, &'a Record)>, AccessError> {
    let marker = OwnerMarker::new(network);
    for (uuid, record) in replica.table(Table::AddressSet.name())? {
        if record.get::<&str>("name")? == name && marker.is_on(record)? {
            return Ok(Some((*uuid, record)));
        }
    }
    Ok(None)
}
