//! What a member of the fabric brings: an object of its own, and one by which others have it as a neighbor.
//! In: the settings, a node, what it announces, what its peers take. Out: two small objects, which together with those of all
//! other members make each node's configuration.
//! Invariant: neither names more than one node, so that a node that joins costs two objects however many there are; who loads
//! a peer object is never the node that it names; all peer objects of a neighbor have the same session.
//! Not here: who is a member, roles.
//!
//! An object can only announce prefixes of its own router, and what a node announces to a neighbor would have to be in the
//! object that names that neighbor: N nodes with N-1 neighbors each. Therefore what may be announced is a prefix list in the
//! node's own object, and each peer object appends an entry to the route-map of its neighbor that refers to the list. On a
//! reflector the list has the pod subnets of all nodes. Every session has the flag of a client on both ends, which does nothing
//! where the list has nothing but own prefixes: setting it on a live session would end that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

use model::address::Family;
use model::asn::Asn;
use model::frr::{FrrConfiguration, Peer, PrefixRange, Raw, Router};
use model::node::{HOSTNAME_LABEL, Node};
use model::selector::{LabelSelector, Labels, Operator, Requirement};
use model::{NodeName, ObjectKey, Prefix};

use super::roles::{ROLE_LABEL, Role};
use super::{base_key, base_name, bfd_profiles, neighbor};
use crate::generated::{self, label_value};
use crate::world::FabricSettings;
use crate::{MANAGED_BY, RA_KEY};

/// Name of the prefix list of what a node may announce.
pub const LIST: &str = "noverlay-announced";

/// `raw.priority` of the fabric's text; that of OVN-Kubernetes is 10.
const PRIORITY: i64 = 20;

/// Sequence number of the entry in a neighbor's outgoing route-map: generated entries are numbered from 1.
const ENTRY: u32 = 60_000;

/// Key of a node's own object.
#[must_use]
pub fn own_key(settings: &FabricSettings, node: &NodeName) -> ObjectKey {
    key(settings, node.as_str())
}

/// Key of the object by which others have the node as a neighbor.
#[must_use]
pub fn peer_key(settings: &FabricSettings, node: &NodeName) -> ObjectKey {
    key(settings, &format!("peer/{node}"))
}

/// A webhook that converts all objects of a node refuses two AS numbers for one router: objects of another number are other
/// objects, so that those of the old one can go first.
fn key(settings: &FabricSettings, what: &str) -> ObjectKey {
    let number = match settings.asn {
        asn if asn == Asn::DEFAULT => String::new(),
        asn => format!("/{asn}"),
    };
    let what = format!("{what}{number}");
    let name = generated::name(&base_name(), &base_key(settings), &what);
    ObjectKey::new(&settings.namespace, name)
}

/// What takes the routes of the managed networks in, by family.
pub(crate) type Received = BTreeMap<Family, Vec<PrefixRange>>;

/// A node's own object: its routers, what it may announce, and filters of what VRFs take over from one another.
pub(crate) fn own(
    settings: &FabricSettings,
    node: &Node,
    routers: Vec<Router>,
    passed_on: Option<&Received>,
    filters: &str,
) -> FrrConfiguration {
    let prefixes = routers.iter().flat_map(|router| router.prefixes.iter());
    let config = list(prefixes.copied(), passed_on) + filters;
    FrrConfiguration {
        node_selector: LabelSelector::label(HOSTNAME_LABEL, node.hostname()),
        routers,
        raw: Some(Raw {
            priority: PRIORITY,
            config,
        }),
        ..empty(own_key(settings, &node.name), node)
    }
}

/// The object by which others have the node as a neighbor under these addresses; `None` where there are none. `others` have
/// one of them, too.
pub(crate) fn peer(
    settings: &FabricSettings,
    node: (&Node, &BTreeSet<IpAddr>),
    of_all: bool,
    others: &BTreeSet<&str>,
    received: &Received,
) -> Option<FrrConfiguration> {
    let (node, addresses) = node;
    if addresses.is_empty() {
        return None;
    }
    let neighbors = addresses.iter().map(|ip| {
        let received = received.get(&Family::of(*ip)).cloned();
        neighbor(*ip, received.unwrap_or_default(), settings)
    });
    Some(FrrConfiguration {
        node_selector: selector(node, of_all, others),
        routers: vec![Router {
            neighbors: neighbors.collect(),
            ..Router::new(settings.asn)
        }],
        bfd_profiles: bfd_profiles(settings),
        raw: Some(Raw {
            priority: PRIORITY,
            config: announcing(settings, addresses),
        }),
        ..empty(peer_key(settings, &node.name), node)
    })
}

fn empty(key: ObjectKey, node: &Node) -> FrrConfiguration {
    let base = base_name();
    let labels: [(&str, String); 2] = [
        (RA_KEY, label_value(&base)),
        (MANAGED_BY.0, MANAGED_BY.1.to_owned()),
    ];
    FrrConfiguration {
        key,
        labels: labels.map(|(k, v)| (k.to_owned(), v)).into(),
        annotations: [(RA_KEY.to_owned(), format!("{base}/{base}/{}", node.name))].into(),
        node_selector: LabelSelector::default(),
        routers: Vec::new(),
        bfd_profiles: Vec::new(),
        raw: None,
    }
}

/// Everybody in the fabric, or its reflectors, but for the node itself.
fn selector(node: &Node, of_all: bool, others: &BTreeSet<&str>) -> LabelSelector {
    let mut hosts: BTreeSet<&str> = others.clone();
    hosts.insert(node.hostname());
    let requirement = |key: &str, operator, values| Requirement {
        key: key.to_owned(),
        operator,
        values,
    };
    let hosts = hosts.into_iter().map(str::to_owned).collect();
    let not_itself = requirement(HOSTNAME_LABEL, Operator::NotIn, hosts);
    let (match_labels, in_fabric) = if of_all {
        let exists = requirement(ROLE_LABEL, Operator::Exists, Vec::new());
        (Labels::new(), Some(exists))
    } else {
        let reflector = (ROLE_LABEL.to_owned(), Role::Reflector.word().to_owned());
        (Labels::from([reflector]), None)
    };
    LabelSelector {
        match_labels,
        match_expressions: in_fabric.into_iter().chain([not_itself]).collect(),
    }
}

/// The prefix list: own prefixes and, on a reflector, what others may have.
fn list(own: impl Iterator<Item = Prefix>, passed_on: Option<&Received>) -> String {
    let own: BTreeMap<String, Prefix> = own.map(|prefix| (prefix.to_string(), prefix)).collect();
    let mut entries: Vec<(Family, String)> = own
        .into_iter()
        .map(|(text, prefix)| (prefix.family(), text))
        .collect();
    for (family, ranges) in passed_on.into_iter().flatten() {
        entries.extend(ranges.iter().map(|range| (*family, range_text(range))));
    }
    let mut out = String::new();
    let mut numbers: BTreeMap<Family, u32> = BTreeMap::new();
    for (family, text) in entries {
        let number = numbers.entry(family).or_default();
        *number += 5;
        let ip = word(family, "ip", "ipv6");
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{ip} prefix-list {LIST} seq {number} permit {text}");
    }
    out
}

/// As FRR shows it; lengths that say nothing are left out, since FRR refuses them.
fn range_text(range: &PrefixRange) -> String {
    let bits = range.prefix.bits();
    let given = |word: &str, value: Option<u8>| {
        let value = value.filter(|value| *value > bits);
        value.map_or_else(String::new, |value| format!(" {word} {value}"))
    };
    format!(
        "{}{}{}",
        range.prefix,
        given("ge", range.ge),
        given("le", range.le)
    )
}

/// Whether FRR's running configuration has all of these in [`LIST`]: whether the node has loaded what makes a reflector.
#[must_use]
pub(crate) fn passes_on(running: &str, received: &Received) -> bool {
    let mut entries: BTreeSet<&str> = BTreeSet::new();
    for line in running.lines().map(str::trim) {
        let Some((of_list, entry)) = line.split_once(" permit ") else {
            continue;
        };
        if of_list.split(' ').nth(2) == Some(LIST) {
            entries.insert(entry);
        }
    }
    let mut ranges = received.values().flatten();
    ranges.all(|range| entries.contains(range_text(range).as_str()))
}

/// The text by which a neighbor is told what the list has.
fn announcing(settings: &FabricSettings, addresses: &BTreeSet<IpAddr>) -> String {
    let mut out = String::new();
    for ip in addresses {
        let ipv = word(Family::of(*ip), "ip", "ipv6");
        let _ = write!(
            out,
            "route-map {ip}-out permit {ENTRY}\n match {ipv} address prefix-list {LIST}\nexit\n"
        );
    }
    let _ = writeln!(out, "router bgp {}", settings.asn);
    for ip in addresses {
        let family = word(Family::of(*ip), "ipv4", "ipv6");
        let _ = write!(
            out,
            " address-family {family} unicast\n  neighbor {ip} route-reflector-client\n exit-address-family\n"
        );
    }
    out.push_str("exit\n");
    out
}

fn word(family: Family, v4: &'static str, v6: &'static str) -> &'static str {
    match family {
        Family::V4 => v4,
        Family::V6 => v6,
    }
}

/// Addresses in a peer object.
pub(crate) fn addresses(object: &FrrConfiguration) -> BTreeSet<IpAddr> {
    let neighbors = object.routers.iter().flat_map(|r| &r.neighbors);
    let addresses = neighbors.filter_map(|n| match &n.peer {
        Peer::Address(text) => text.parse::<IpAddr>().ok(),
        Peer::Interface(_) => None,
    });
    addresses.collect()
}

#[cfg(test)]
mod tests;
