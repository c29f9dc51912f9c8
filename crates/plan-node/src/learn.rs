//! What a network may learn on this node: subnets, the gateway's link, and rows of the topology that give way to learned ones.
//! In: the snapshot. Out: what each import obeys, and the topology without what an imported route stands for.
//! Invariant: a fallback and an imported route of one prefix never stand beside each other. Not here: routes (`import`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::Scope;
use model::address::Prefix;
use model::gateway::{BgpDefault, GatewayMode};
use model::names::{NetworkName, RouterName};
use model::nb::{self, Columns, Rows, Table, Value};
use model::network::{Network, Topology};
use model::route::TableId;
use model::subnets::{Owners, Subnets};

use crate::snapshot::{Machine, NetworkView, Snapshot};
use crate::vrf;

/// What a network's import depends on beside routes and rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inputs {
    /// The network's routing table; `None` while it has none.
    pub table: Option<TableId>,
    /// The scope.
    pub scope: Scope,
    /// False: the network has an overlay and is not advertised, or its gateway router is asked for no way. Nothing is imported, and
    /// what was before is removed.
    pub learns: bool,
    /// The subnets of the network that are to be learned, and whose they are; none of one with an overlay.
    pub owners: Subnets<Owners>,
    /// The admin's word on withdrawals that are retained: another one than when they began to be retained releases them.
    /// Source: annotation `noverlay.io/release-withdrawals` of the Node.
    pub release: Option<String>,
    /// Beside OVN-Kubernetes, what is filled instead of the gateway router: by name of each Address_Set the subnets that may be in
    /// it, and how long in bits a route to each has to be more than.
    pub sets: Option<BTreeMap<String, BTreeMap<Prefix, u8>>>,
}

/// What each network may learn. One that was advertised and is no more is among them: its gateway router may still have what it
/// learned. One whose share is unknown still has its imported routes looked after, as
/// soon as its own subnets, the Nodes and the links are known: what is not known then are its fallbacks.
#[must_use]
pub fn plan(snapshot: &Snapshot) -> BTreeMap<NetworkName, Inputs> {
    let machine = &snapshot.machine;
    let bgp_default = machine.bgp_default;
    let here = snapshot.here().map(|(_, view)| {
        let share = view.share;
        let fallbacks = Some(fallbacks(view, bgp_default));
        (&share.network, share.host_subnets.as_slice(), fallbacks)
    });
    let unknown = snapshot.unknown().filter_map(|(_, unknown)| {
        let subnets = unknown.host_subnets.as_slice();
        Some((unknown.network.as_ref()?, subnets, None))
    });
    let all = here.chain(unknown);
    all.filter_map(|(network, host_subnets, fallbacks)| {
        let inputs = inputs(machine, network, host_subnets, fallbacks)?;
        Some((network.name.clone(), inputs))
    })
    .collect()
}

fn inputs(
    machine: &Machine,
    network: &Network,
    host_subnets: &[Prefix],
    fallbacks: Option<BTreeMap<Prefix, Vec<Columns>>>,
) -> Option<Inputs> {
    let advertised = network.advertised.default_vrf || network.advertised.own_vrf;
    let no_overlay = network.transport.no_overlay().is_some();
    // In local gateway mode nothing of a layer-2 network asks the gateway router for a way.
    let unasked = network.topology == Topology::Layer2 && machine.mode == GatewayMode::Local;
    let learns = (no_overlay || advertised) && !unasked;
    let claims = machine.claims.get(&network.name)?;
    let links = machine.links.as_deref()?;
    if host_subnets.is_empty() {
        return None;
    }
    let addresses = machine.bridge_addresses.iter().chain(&machine.host_cidrs);
    Some(Inputs {
        table: vrf::table(&network.name, network.id, links),
        scope: Scope {
            gateway_link: machine
                .bridge_link()
                .filter(|_| learns)
                .map(|link| link.index),
            cluster_subnets: network.prefixes().collect(),
            host_subnets: host_subnets.to_vec(),
            join_subnets: network.join_subnets.clone(),
            other_networks: claims.other_networks.clone(),
            own_addresses: addresses.map(|address| address.ip).collect(),
            no_overlay,
            taken: BTreeSet::new(),
            fallbacks_known: fallbacks.is_some(),
            fallbacks: fallbacks.unwrap_or_default(),
            bgp_default: machine.bgp_default,
        },
        learns,
        owners: if no_overlay {
            claims.owners.clone()
        } else {
            Subnets::default()
        },
        release: machine.release.clone(),
        sets: None,
    })
}

/// Rows of the topology that give way to an imported route of the same prefix, by prefix: those that drop what has no
/// route, and the configured default route where a learned one may replace it. Both at once would be equal paths.
#[must_use]
pub fn fallbacks(view: NetworkView<'_>, default: BgpDefault) -> BTreeMap<Prefix, Vec<Columns>> {
    let mut found: BTreeMap<Prefix, Vec<Columns>> = BTreeMap::new();
    for (prefix, columns) in
        gateway_routes(&crate::north::topology::plan(view), &view.gateway_router())
    {
        let discards = columns.get("nexthop") == Some(&Value::Text(nb::DISCARD.to_owned()));
        if discards || (prefix.is_default() && default == BgpDefault::Replace) {
            found.entry(prefix).or_default().push(columns.clone());
        }
    }
    found
}

/// The rows of a topology without those of `fallbacks` that give way to an imported route; `imported` are the prefixes of
/// imported routes that stand on the gateway router.
#[must_use]
pub fn without_fallbacks(
    mut rows: Rows,
    router: &RouterName,
    fallbacks: &BTreeMap<Prefix, Vec<Columns>>,
    imported: &BTreeSet<Prefix>,
) -> Rows {
    let to_delete: Vec<&Columns> = fallbacks
        .iter()
        .filter(|(prefix, _)| imported.contains(prefix))
        .flat_map(|(_, rows)| rows)
        .collect();
    rows.retain(|key, columns| {
        key.table != Table::StaticRoute
            || !key.is_child_of(Table::Router, router.as_str())
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
    let routes = rows.iter().filter(move |(key, _)| {
        key.table == Table::StaticRoute && key.is_child_of(Table::Router, router.as_str())
    });
    routes.filter_map(|(_, columns)| {
        let prefix = match columns.get("ip_prefix") {
            Some(Value::Text(text)) => text
                .parse::<Prefix>()
                .ok()
                .or_else(|| text.parse::<IpAddr>().ok().map(Prefix::host)),
            Some(
                Value::Number(_)
                | Value::Flag(_)
                | Value::Set(_)
                | Value::Entries(_)
                | Value::Ref(_),
            )
            | None => None,
        };
        Some((prefix?, columns))
    })
}
