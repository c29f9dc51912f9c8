//! What OVN_Northbound tells of OVN-Kubernetes beside us.
//! In: a replica, a network's router and port. Out: what was found. Invariant: nothing is concluded here.
//! Not here: what follows (`plan_node::beside::signs`).

use std::collections::BTreeSet;

use model::nb::Table;
use model::{NetworkName, Prefix};
use ovsdb::{AccessError, Atom, Datum, Record, Replica, Uuid};

use super::{OwnerKeys, external_id, string};

/// What was found of a network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Signs {
    /// Its cluster router is there.
    pub router: bool,
    /// The management port's Logical_Switch_Port is there.
    pub port: bool,
    /// A route of the cluster router leads to another node over tunnels (`external_ids:ic-node`).
    pub tunnels: bool,
    /// A NAT row is of a network without an overlay, as OVN-Kubernetes makes it in shared gateway mode where it translates.
    pub no_overlay_snat: bool,
    /// The gateway router leads to the node's subnet of the network alone, as OVN-Kubernetes has it where the network is without an
    /// overlay; over tunnels it leads to the whole network.
    pub own_subnet_route: bool,
    /// Rows of a topology that noverlay built itself.
    pub built: bool,
}

/// Key of `external_ids` by which OVN-Kubernetes tells what a row is for.
pub(super) const OWNER_TYPE: &str = "k8s.ovn.org/owner-type";
/// Owner type of that NAT row.
pub(super) const NO_OVERLAY_SNAT: &str = "NoOverlayClusterSubnetSNAT";

/// Where they are looked for.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The network.
    pub network: &'a NetworkName,
    /// `Logical_Router.name` of its cluster router.
    pub cluster_router: &'a str,
    /// `Logical_Router.name` of the node's gateway router.
    pub gateway_router: &'a str,
    /// `Logical_Switch_Port.name` of the management port.
    pub port: &'a str,
    /// The node's subnets of the network that are not all of it.
    pub own: &'a [Prefix],
    /// All of the network.
    pub whole: &'a [Prefix],
}

/// Looks for them.
///
/// # Errors
/// When a table is not followed or a column holds what it cannot.
pub fn signs(replica: &Replica, scene: Scene<'_>) -> Result<Signs, AccessError> {
    let (ic_node, owner_type, of): (Atom, Atom, Atom) =
        ("ic-node".into(), OWNER_TYPE.into(), "network".into());
    let mut signs = Signs::default();
    let mut ways = BTreeSet::new();
    let routes = replica.table(Table::StaticRoute.name())?;
    for record in replica.table(Table::Router.name())?.values() {
        let name = record.get::<&str>("name")?;
        let is_cluster_router = name == scene.cluster_router;
        signs.router |= is_cluster_router;
        if !is_cluster_router && name != scene.gateway_router {
            continue;
        }
        let refers = record.get::<BTreeSet<Uuid>>("static_routes")?;
        for route in refers.iter().filter_map(|id| routes.get(id)) {
            if is_cluster_router {
                signs.tunnels |= external_id(route, &ic_node)?.is_some();
            } else {
                ways.extend(way(route)?);
            }
        }
    }
    // Beside OVN-Kubernetes' route to the whole network one to the node's subnet is somebody else's.
    let is_alone = |own: &&Prefix| {
        let mut whole = scene.whole.iter().filter(|whole| whole.contains(own));
        ways.contains(*own) && !whole.any(|whole| ways.contains(whole))
    };
    signs.own_subnet_route = scene.own.iter().any(|own| is_alone(&own));
    for record in replica.table(Table::SwitchPort.name())?.values() {
        signs.port |= record.get::<&str>("name")? == scene.port;
    }
    let says = |record: &Record, key: &Atom, value: &str| -> Result<bool, AccessError> {
        let found = external_id(record, key)?.and_then(string);
        Ok(found == Some(value))
    };
    for record in replica.table(Table::Nat.name())?.values() {
        signs.no_overlay_snat |= says(record, &owner_type, NO_OVERLAY_SNAT)?
            && says(record, &of, scene.network.as_str())?;
    }
    let keys = OwnerKeys::new();
    for table in [Table::Router, Table::Switch] {
        for record in replica.table(table.name())?.values() {
            let name = record.get::<&str>("name")?;
            signs.built |= keys.owner_of(record, table, name)?.is_some();
        }
    }
    Ok(signs)
}

/// Where a route leads to by its destination; nothing of one by source, to `discard`, or that OVN-Kubernetes imported.
fn way(route: &Record) -> Result<Option<Prefix>, AccessError> {
    let by_source = route.get::<&Datum>("policy")? == &Datum::set(["src-ip"]);
    let hop = route.get::<&str>("nexthop")?.parse::<std::net::IpAddr>();
    let importer: Atom = "k8s.ovn.org/owner-controller".into();
    let is_imported = external_id(route, &importer)?.is_some();
    let to = route.get::<&str>("ip_prefix")?.parse().ok();
    Ok(to.filter(|_| !by_source && hop.is_ok() && !is_imported))
}
