//! What OVN_Northbound tells of OVN-Kubernetes beside us.
//! In: a replica, a network's router and port. Out: what was found. Invariant: nothing is concluded here.
//! Not here: what follows (`plan_node::beside::signs`).

use model::NetworkName;
use model::nb::Table;
use ovsdb::{AccessError, Atom, Record, Replica};

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
    /// A NAT row is of a network without an overlay, as OVN-Kubernetes makes it.
    pub no_overlay_snat: bool,
    /// Rows of a topology that noverlay built itself.
    pub built: bool,
}

/// Key of `external_ids` by which OVN-Kubernetes tells what a row is for.
pub(super) const OWNER_TYPE: &str = "k8s.ovn.org/owner-type";
/// Owner type of that NAT row.
pub(super) const NO_OVERLAY_SNAT: &str = "NoOverlayClusterSubnetSNAT";

/// Looks for them; `router` and `port` are the names of the network's cluster router and management port.
///
/// # Errors
/// When a table is not followed or a column holds what it cannot.
pub fn signs(
    replica: &Replica,
    network: &NetworkName,
    router: &str,
    port: &str,
) -> Result<Signs, AccessError> {
    let (ic_node, owner_type, of): (Atom, Atom, Atom) =
        ("ic-node".into(), OWNER_TYPE.into(), "network".into());
    let mut signs = Signs::default();
    let routes = replica.table(Table::StaticRoute.name())?;
    for record in replica.table(Table::Router.name())?.values() {
        if record.get::<&str>("name")? != router {
            continue;
        }
        signs.router = true;
        let refers = record.get::<std::collections::BTreeSet<ovsdb::Uuid>>("static_routes")?;
        for route in refers.iter().filter_map(|id| routes.get(id)) {
            signs.tunnels |= external_id(route, &ic_node)?.is_some();
        }
    }
    for record in replica.table(Table::SwitchPort.name())?.values() {
        signs.port |= record.get::<&str>("name")? == port;
    }
    let says = |record: &Record, key: &Atom, value: &str| -> Result<bool, AccessError> {
        let found = external_id(record, key)?.and_then(string);
        Ok(found == Some(value))
    };
    for record in replica.table(Table::Nat.name())?.values() {
        signs.no_overlay_snat |=
            says(record, &owner_type, NO_OVERLAY_SNAT)? && says(record, &of, network.as_str())?;
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
