//! What a network may learn on this node: subnets, the gateway's link, and rows of the topology that give way to learned ones.
//! In: `NetworkView` and local facts. Out: `model::Scope`, and the topology without what an imported route stands for.
//! Invariant: a fallback and an imported route of one prefix never stand beside each other. Not here: routes (`import`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::Scope;
use model::address::Prefix;
use model::gateway::BgpDefault;
use model::names::RouterName;
use model::nb::{self, Columns, Rows, Table, Value};
use model::subnets::Subnets;

use crate::snapshot::NetworkView;

/// The scope of a no-overlay network.
#[must_use]
pub fn scope(
    view: &NetworkView,
    gateway_link: Option<u32>,
    taken: BTreeSet<Prefix>,
    bgp_default: BgpDefault,
) -> Scope {
    let shared = view.gateway.addresses.iter().map(|address| address.ip);
    Scope {
        gateway_link,
        cluster_subnets: view.cluster_subnets.iter().map(|s| s.cidr).collect(),
        host_subnets: view.host_subnets.clone(),
        join_subnets: view.join_subnets.clone(),
        other_networks: Subnets::default(),
        own_addresses: view.host_addresses.iter().copied().chain(shared).collect(),
        no_overlay: true,
        taken,
        fallbacks: fallbacks(view, bgp_default),
        fallbacks_known: true,
        bgp_default,
    }
}

/// Rows of the topology that give way to an imported route of the same prefix, by prefix: those that drop what has no
/// route, and the configured default route where a learned one may replace it. Both at once would be equal paths.
#[must_use]
pub fn fallbacks(view: &NetworkView, default: BgpDefault) -> BTreeMap<Prefix, Vec<Columns>> {
    let mut found: BTreeMap<Prefix, Vec<Columns>> = BTreeMap::new();
    for (prefix, columns) in gateway_routes(&crate::topology::plan(view), &view.gateway_router()) {
        let discards = columns.get("nexthop") == Some(&Value::Text(nb::DISCARD.to_owned()));
        if discards || (prefix.is_default() && default == BgpDefault::Replace) {
            found.entry(prefix).or_default().push(columns.clone());
        }
    }
    found
}

/// The rows of a topology without those that give way to an imported route; `imported` are the prefixes of imported routes
/// that stand on the gateway router.
#[must_use]
pub fn without_fallbacks(
    mut rows: Rows,
    view: &NetworkView,
    default: BgpDefault,
    imported: &BTreeSet<Prefix>,
) -> Rows {
    let fallbacks = fallbacks(view, default);
    let router = view.gateway_router();
    let to_delete: Vec<&Columns> = fallbacks
        .iter()
        .filter(|(prefix, _)| imported.contains(prefix))
        .flat_map(|(_, rows)| rows)
        .collect();
    rows.retain(|key, columns| {
        key.table != Table::StaticRoute
            || key.parent != router.as_str()
            || !to_delete.contains(&&*columns)
    });
    rows
}

/// Prefixes that a plan's own rows take on a router: local pods, default, discard routes.
#[must_use]
pub fn topology_prefixes(rows: &Rows, router: &RouterName) -> BTreeSet<Prefix> {
    let routes = gateway_routes(rows, router);
    routes.map(|(prefix, _)| prefix).collect()
}

/// A plan's routes of a router, by destination.
fn gateway_routes<'a>(
    rows: &'a Rows,
    router: &RouterName,
) -> impl Iterator<Item = (Prefix, &'a Columns)> {
    let routes = rows
        .iter()
        .filter(move |(key, _)| key.table == Table::StaticRoute && key.parent == router.as_str());
    routes.filter_map(|(_, columns)| {
        let prefix = match columns.get("ip_prefix") {
            Some(Value::Text(text)) => text
                .parse::<Prefix>()
                .ok()
                .or_else(|| text.parse::<IpAddr>().ok().map(Prefix::host)),
            Some(Value::Number(_) | Value::Set(_) | Value::Entries(_) | Value::Ref(_)) | None => {
                None
            }
        };
        Some((prefix?, columns))
    })
}
