//! Rows of OVN's Northbound database as plain values.
//! In: what a planner wants, or what `ovn` decoded. Out: rows that `ovn` encodes into operations.
//! Invariant: a row's key is its identity (names, or router and prefix); the columns given are the ones we answer for, others are left alone.
//! Not here: uuids (the edge keeps them beside the rows) and JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use crate::address::{Family, Prefix};
use crate::hash;
use crate::names::{DEFAULT_NETWORK, NetworkName, NodeName, RouterName};

/// `external_ids` key that marks every row of ours; its value is the network.
pub const OWNER: &str = "noverlay.io/owner";

/// `external_ids` key and value of our rows beside OVN-Kubernetes, whatever network they are for: by it those are found whose network
/// nobody knows any more.
pub const BESIDE: (&str, &str) = ("noverlay.io/topology", "adopt");

/// `external_ids` key by which OVN-Kubernetes says what kind of object a row is for.
pub const OWNER_TYPE: &str = "k8s.ovn.org/owner-type";

/// [`OWNER_TYPE`] of the set of all nodes' addresses, which every network's translation may refer to.
pub const NODE_IPS_TYPE: &str = "ClusterNodeIPs";

/// Primary id of the set of all advertised networks' subnets on the node (OVN-Kubernetes, `advertised-network-subnets`).
#[must_use]
pub fn advertised_subnets_id(family: Family) -> String {
    format!(
        "default-network-controller:AdvertisedNetwork:advertised-network-subnets:{}",
        family.version()
    )
}

/// Primary id of that set, one for all networks (OVN-Kubernetes, `node-ips`).
#[must_use]
pub fn node_ips_id(family: Family) -> String {
    format!(
        "default-network-controller:{NODE_IPS_TYPE}:node-ips:{}",
        family.version()
    )
}

/// Primary id of the set of addresses of the default network's Services that networks of users may use (OVN-Kubernetes,
/// `udn-enabled-svc-cluster-ips`).
#[must_use]
pub fn allowed_services_id(family: Family) -> String {
    format!(
        "{ALLOWED_SERVICES_CONTROLLER}:{ALLOWED_SERVICES_TYPE}:udn-enabled-svc-cluster-ips:{}",
        family.version()
    )
}

/// Its controller.
pub const ALLOWED_SERVICES_CONTROLLER: &str = "udn-enabled-svc";
/// Its [`OWNER_TYPE`].
pub const ALLOWED_SERVICES_TYPE: &str = "UDNEnabledService";

/// Who a row of ours is for. Each has one plan, one diff and one transaction of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// The node: rows that several networks refer to. They come first, so that they are there for them.
    Node,
    /// A network.
    Network(NetworkName),
}

impl Owner {
    /// Value of [`OWNER`]. The node's rows bear the default network's, as their ids do: OVN-Kubernetes counts them as its
    /// default network's; their names tell them apart.
    #[must_use]
    pub fn marker(&self) -> &str {
        match self {
            Self::Node => DEFAULT_NETWORK,
            Self::Network(name) => name.as_str(),
        }
    }

    /// The owner of a row that bears this value of [`OWNER`]. By its name, because other columns can be edited by hand.
    #[must_use]
    pub fn of(marker: &str, table: Table, name: &str) -> Self {
        let is_shared = |family| {
            let ids = [
                node_ips_id(family),
                advertised_subnets_id(family),
                allowed_services_id(family),
            ];
            ids.iter().any(|id| hash::row_name(id) == name)
        };
        if marker == DEFAULT_NETWORK
            && table == Table::AddressSet
            && Family::ALL.into_iter().any(is_shared)
        {
            Self::Node
        } else {
            Self::Network(NetworkName::from(marker))
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("the node"),
            Self::Network(name) => write!(f, "network {name}"),
        }
    }
}

/// `NB_Global.options` key (ovn-nb(5)): `false` keeps northd from telling packets that conntrack calls invalid from others.
pub const CT_INV_MATCH: &str = "use_ct_inv_match";

/// `NB_Global.external_ids` key that says that the value of [`CT_INV_MATCH`] is ours; before there was none.
pub const CT_INV_MATCH_OURS: &str = "noverlay.io/use_ct_inv_match";

/// What is wanted of [`CT_INV_MATCH`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CtInvMatch {
    /// That it is `false`.
    Off,
    /// That it is as it was before we wrote it.
    Restored,
    /// Nothing yet: it stays.
    Kept,
}

/// `external_ids` key and value of imported routes, the owner marker that OVN-Kubernetes uses for them too.
pub const ROUTE_IMPORT: (&str, &str) = ("k8s.ovn.org/owner-controller", "RouteImport");

/// Tables of OVN_Northbound that we write, parents before children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// `Address_Set`.
    AddressSet,
    /// `Gateway_Chassis`: where a distributed router has its gateway port. It has a name and no parent of its own; a router
    /// port refers to it.
    GatewayChassis,
    /// `Logical_Router`.
    Router,
    /// `Logical_Switch`.
    Switch,
    /// `Logical_Router_Port`, child of a router (`ports`).
    RouterPort,
    /// `Logical_Switch_Port`, child of a switch (`ports`).
    SwitchPort,
    /// `Logical_Router_Static_Route`, child of a router (`static_routes`).
    StaticRoute,
    /// `Logical_Router_Policy`, child of a router (`policies`).
    Policy,
    /// `NAT`, child of a router (`nat`).
    Nat,
    /// `ACL`, child of a switch (`acls`).
    Acl,
    /// `Port_Group`: of ports of switches, whoever made them.
    PortGroup,
    /// `ACL`, child of a port group (`acls`).
    GroupAcl,
    /// `Static_MAC_Binding`: neither name nor `external_ids`; whose it is, its router port says.
    StaticMacBinding,
}

impl Table {
    /// All of them, parents first.
    pub const ALL: [Self; 13] = [
        Self::AddressSet,
        Self::GatewayChassis,
        Self::Router,
        Self::Switch,
        Self::RouterPort,
        Self::SwitchPort,
        Self::StaticRoute,
        Self::Policy,
        Self::Nat,
        Self::Acl,
        Self::PortGroup,
        Self::GroupAcl,
        Self::StaticMacBinding,
    ];

    /// The table's name in the schema.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AddressSet => "Address_Set",
            Self::GatewayChassis => "Gateway_Chassis",
            Self::Router => "Logical_Router",
            Self::Switch => "Logical_Switch",
            Self::RouterPort => "Logical_Router_Port",
            Self::SwitchPort => "Logical_Switch_Port",
            Self::StaticRoute => "Logical_Router_Static_Route",
            Self::Policy => "Logical_Router_Policy",
            Self::Nat => "NAT",
            Self::Acl | Self::GroupAcl => "ACL",
            Self::PortGroup => "Port_Group",
            Self::StaticMacBinding => "Static_MAC_Binding",
        }
    }

    /// For a child: the parent's table and the column that holds the strong reference.
    #[must_use]
    pub fn parent(self) -> Option<(Self, &'static str)> {
        match self {
            Self::AddressSet
            | Self::GatewayChassis
            | Self::Router
            | Self::Switch
            | Self::PortGroup
            | Self::StaticMacBinding => None,
            Self::RouterPort => Some((Self::Router, "ports")),
            Self::SwitchPort => Some((Self::Switch, "ports")),
            Self::StaticRoute => Some((Self::Router, "static_routes")),
            Self::Policy => Some((Self::Router, "policies")),
            Self::Nat => Some((Self::Router, "nat")),
            Self::Acl => Some((Self::Switch, "acls")),
            Self::GroupAcl => Some((Self::PortGroup, "acls")),
        }
    }
}

/// Identity of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// The table.
    pub table: Table,
    /// Table and name of the row that holds the reference to it; `None` for root rows.
    pub parent: Option<(Table, String)>,
    /// The row's own name, or what tells it from its siblings.
    pub id: String,
}

impl RowKey {
    /// Key of a root row.
    #[must_use]
    pub fn root(table: Table, name: impl Into<String>) -> Self {
        Self {
            table,
            parent: None,
            id: name.into(),
        }
    }

    /// Key of a child row of the parent of that name, in the one table whose rows hold references to this one's.
    #[must_use]
    pub fn child(table: Table, parent: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            table,
            parent: table.parent().map(|(of, _)| (of, parent.into())),
            id: id.into(),
        }
    }

    /// Key of the row that holds the reference to this one.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (table, name) = self.parent.as_ref()?;
        Some(Self::root(*table, name))
    }

    /// Whether a router or switch of this name holds the reference to it.
    #[must_use]
    pub fn is_child_of(&self, table: Table, name: &str) -> bool {
        self.parent_name() == Some(name) && self.parent.as_ref().is_some_and(|p| p.0 == table)
    }

    /// Name of the row that holds the reference to it.
    #[must_use]
    pub fn parent_name(&self) -> Option<&str> {
        self.parent.as_ref().map(|(_, name)| name.as_str())
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.table.name(), self.id)?;
        if let Some(parent) = self.parent_name() {
            write!(f, " of {parent}")?;
        }
        Ok(())
    }
}

/// `id` of a static route's key: the columns as they stand, `""` where unset.
/// An unset `policy` means `dst-ip` (ovn-nb(5)), so both spellings give one id.
#[must_use]
pub fn route_id(policy: &str, prefix: &str, nexthop: &str, output_port: &str) -> String {
    let policy = if policy == "dst-ip" { "" } else { policy };
    format!("{policy}|{prefix}|{nexthop}|{output_port}")
}

/// `id` of a NAT row's key: `NAT.type` and `NAT.logical_ip`; of two rows for one subnet, that for Services
/// ([`allowed_services_id`]) is told by the name of the set in `NAT.allowed_ext_ips`.
#[must_use]
pub fn nat_id(kind: &str, logical_ip: &str, allowed: Option<&str>) -> String {
    let is_services = |set: &str| {
        let mut sets = Family::ALL.into_iter().map(allowed_services_id);
        sets.any(|id| hash::row_name(&id) == set)
    };
    if allowed.is_some_and(is_services) {
        format!("{kind}|{logical_ip}|services")
    } else {
        format!("{kind}|{logical_ip}")
    }
}

/// Key of the `Static_MAC_Binding` of an address behind a router port.
#[must_use]
pub fn mac_binding(port: &str, ip: IpAddr) -> RowKey {
    RowKey::root(
        Table::StaticMacBinding,
        mac_binding_id(port, &ip.to_string()),
    )
}

/// `id` of that key: `Static_MAC_Binding.logical_port` and `ip`.
#[must_use]
pub fn mac_binding_id(port: &str, ip: &str) -> String {
    format!("{port}|{ip}")
}

/// `id` of a router policy's key: `Logical_Router_Policy.priority` and `match`.
#[must_use]
pub fn policy_id(priority: i64, matches: &str) -> String {
    format!("{priority}|{matches}")
}

/// `id` of an ACL's key: `ACL.direction`, `priority` and `match`.
#[must_use]
pub fn acl_id(direction: &str, priority: i64, matches: &str) -> String {
    format!("{direction}|{priority}|{matches}")
}

/// Router port towards a node switch: `rtos-<switch>`.
#[must_use]
pub fn rtos(switch: &str) -> String {
    format!("rtos-{switch}")
}

/// Node switch port towards the cluster router: `stor-<switch>`.
#[must_use]
pub fn stor(switch: &str) -> String {
    format!("stor-{switch}")
}

/// Transit router port towards the switch of a layer-2 network: `trtos-<switch>`.
#[must_use]
pub fn trtos(switch: &str) -> String {
    format!("trtos-{switch}")
}

/// Port of that switch towards the transit router: `stotr-<switch>`.
#[must_use]
pub fn stotr(switch: &str) -> String {
    format!("stotr-{switch}")
}

/// Transit router port towards a gateway router: `trtor-<GR>`.
#[must_use]
pub fn trtor(gateway: &RouterName) -> String {
    format!("trtor-{gateway}")
}

/// Gateway router port towards the transit router: `rtotr-<GR>`.
#[must_use]
pub fn rtotr(gateway: &RouterName) -> String {
    format!("rtotr-{gateway}")
}

/// Router port towards the join switch: `rtoj-<router>`.
#[must_use]
pub fn rtoj(router: &RouterName) -> String {
    format!("rtoj-{router}")
}

/// Join switch port towards a router: `jtor-<router>`.
#[must_use]
pub fn jtor(router: &RouterName) -> String {
    format!("jtor-{router}")
}

/// Gateway router port towards the external switch: `rtoe-<GR>`.
#[must_use]
pub fn rtoe(gateway: &RouterName) -> String {
    format!("rtoe-{gateway}")
}

/// External switch port towards the gateway router: `etor-<GR>`.
#[must_use]
pub fn etor(gateway: &RouterName) -> String {
    format!("etor-{gateway}")
}

/// A column's value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// A string that must be there.
    Text(String),
    /// An integer that must be there.
    Number(i64),
    /// A boolean that must be there.
    Flag(bool),
    /// A set of strings, exactly these; an optional string is a set of none or one.
    Set(BTreeSet<String>),
    /// Entries that a map must hold; other people's keys in it are left alone.
    Entries(BTreeMap<String, String>),
    /// A reference to a row of this plan or of the node's (in a decoded row: to one that we know).
    Ref(RowKey),
}

impl Value {
    /// A set from texts.
    #[must_use]
    pub fn set<T: Into<String>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::Set(items.into_iter().map(Into::into).collect())
    }

    /// Map entries from pairs.
    #[must_use]
    pub fn entries<K: Into<String>, V: Into<String>>(
        items: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self::Entries(
            items
                .into_iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
        )
    }

    /// Whether a column that holds `self` already satisfies `wanted`.
    #[must_use]
    pub fn satisfies(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Entries(have), Self::Entries(want)) => {
                want.iter().all(|(k, v)| have.get(k) == Some(v))
            }
            (have, want) => have == want,
        }
    }
}

/// A row's columns. `external_ids` is one of them.
pub type Columns = BTreeMap<&'static str, Value>;

/// Whether a decoded row may stay as it is: every wanted column is there with its value.
#[must_use]
pub fn satisfies(have: &Columns, want: &Columns) -> bool {
    want.iter()
        .all(|(column, value)| have.get(column).is_some_and(|v| v.satisfies(value)))
}

/// Rows by identity, as a planner wants them.
pub type Rows = BTreeMap<RowKey, Columns>;

/// `nexthop` of a route that drops (ovn-nb(5), Logical_Router_Static_Route).
pub const DISCARD: &str = "discard";

/// One imported route: a row of `Logical_Router_Static_Route` with the owner marker [`ROUTE_IMPORT`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImportedRoute {
    /// `ip_prefix`.
    pub prefix: Prefix,
    /// `nexthop`, an address on the gateway's link (IPv6 link-local too).
    pub nexthop: IpAddr,
}

/// A row of `Logical_Router_Static_Route` as the import sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteRow {
    /// An imported route in the form that we write.
    Import(ImportedRoute),
    /// A row with our owner marker of imports in another form: surplus.
    Malformed,
    /// Somebody else's that forwards; where its destination can be read, nothing is imported for that.
    Other(Option<Prefix>),
    /// Somebody else's that drops (`nexthop` is [`DISCARD`]); nothing is imported for its destination.
    Discard(Prefix),
    /// Our topology's.
    Topology {
        /// Its destination.
        prefix: Prefix,
        /// Whether it drops.
        discards: bool,
    },
}

/// The imported routes of one gateway router: key of one import pass.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImportTarget {
    /// The network that owns the rows.
    pub network: NetworkName,
    /// The gateway router.
    pub router: RouterName,
    /// `output_port` of each row: `rtoe-<GR>`.
    pub output_port: String,
}

impl ImportTarget {
    /// Of a network on a node.
    #[must_use]
    pub fn of(network: &NetworkName, node: &NodeName) -> Self {
        let router = network.gateway_router(node);
        Self {
            network: network.clone(),
            output_port: rtoe(&router),
            router,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_the_gateway_router_and_its_outer_port() {
        let target = ImportTarget::of(&NetworkName::from("default"), &NodeName::from("n1"));
        assert_eq!(target.router.as_str(), "GR_n1");
        assert_eq!(target.output_port, "rtoe-GR_n1");
    }
}
