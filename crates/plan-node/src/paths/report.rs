//! What is said of ways that are too narrow.
//! In: the ways, how large the packets are that pass. Out: one sentence for each network whose packets are larger.
//! Invariant: it names both nodes, family, the size that fails, the size that passes and what is allowed, and is bounded; the
//! same ways give the same words. Not here: conditions, metrics.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::address::Family;
use model::names::{NetworkName, NodeName};

use super::{Load, Path, PathKey, Paths};

/// So many ways are named.
const NAMED: usize = 5;

/// A way that a network's packets do not pass.
struct TooNarrow<'a> {
    key: &'a PathKey,
    path: &'a Path,
    load: Load,
    passes: u32,
}

/// By network what is said of it on node `own`; `narrow` are the ways that are too narrow with what passes, bytes of IP.
#[must_use]
pub fn by_network(
    own: &NodeName,
    paths: &Paths,
    narrow: &BTreeMap<PathKey, u32>,
) -> BTreeMap<NetworkName, String> {
    let mut all: BTreeMap<&NetworkName, Vec<TooNarrow<'_>>> = BTreeMap::new();
    for (key, passes) in narrow {
        let Some(path) = paths.get(key) else {
            continue;
        };
        for (name, load) in path.loads.iter().filter(|(_, load)| load.size() > *passes) {
            all.entry(name).or_default().push(TooNarrow {
                key,
                path,
                load: *load,
                passes: *passes,
            });
        }
    }
    let told = all.into_iter();
    told.map(|(name, ways)| (name.clone(), sentence(own, name, &ways)))
        .collect()
}

fn sentence(own: &NodeName, network: &NetworkName, ways: &[TooNarrow<'_>]) -> String {
    let named = ways.iter().take(NAMED).map(way);
    let mut named: Vec<String> = named.collect();
    if ways.len() > NAMED {
        named.push(format!("and {} more", ways.len() - NAMED));
    }
    let needs = ways.iter().map(|way| way.load.size()).max().unwrap_or(0);
    let leaves = |way: &TooNarrow<'_>| way.passes.saturating_sub(way.load.overhead);
    let most = ways.iter().map(leaves).min().unwrap_or(0);
    let key = if network.is_default() {
        "[default] mtu on all nodes"
    } else {
        "the network's mtu"
    };
    format!(
        "echo requests as large as packets that pods of network {network} may send are not answered, and smaller ones are, from node {own} to {}; allowed: an underlay that carries {needs} bytes from node to node, or {key} at {most} or less",
        named.join("; ")
    )
}

fn way(way: &TooNarrow<'_>) -> String {
    let TooNarrow {
        key: PathKey { node, to },
        path: Path { source, .. },
        load,
        passes,
    } = way;
    let family = match Family::of(*to) {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    };
    let of = match load.overhead {
        0 => String::new(),
        overhead => format!(" (mtu {} and {overhead} of the overlay)", load.mtu),
    };
    let size = load.size();
    format!("node {node} ({family}, {source} to {to}): {size} bytes{of} do not pass, {passes} do")
}

/// Family of a way, as metrics name it: `ipv4` or `ipv6`.
#[must_use]
pub fn family_label(to: IpAddr) -> &'static str {
    match Family::of(to) {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}
