//! What must be true of every plan, whatever the snapshot was.
//! In: a plan. Out: what is wrong with it, and how much that costs; within one network anything at all is a bug of a planner.
//! Invariant: rows of one owner without violations refer to each other, and to the node's rows, which are written first.
//! Not here: whether the plan is the right one (tests and goldens).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::address::{Family, Prefix};
use model::names::NetworkName;
use model::nb::{
    self, Columns, ImportTarget, ImportedRoute, OWNER, Owner, RowKey, Rows, Table, Value,
};
use model::route::TableId;

use crate::Plan;
use crate::bridge;
use crate::snapshot::Snapshot;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A child row whose parent is not in the plan.
    #[error("{row}: its parent is not in the plan")]
    NoParent {
        /// The child.
        row: RowKey,
    },
    /// A reference to a row that is not in the plan.
    #[error("{row}: {column} refers to {target}, which is not in the plan")]
    Dangling {
        /// The row.
        row: RowKey,
        /// Its column.
        column: &'static str,
        /// What it refers to.
        target: RowKey,
    },
    /// A row without our owner marker, which nobody could delete again.
    #[error("{row}: it does not bear its owner")]
    NoOwner {
        /// The row.
        row: RowKey,
    },
    /// Two addresses of a row that have to be of one family.
    #[error("{row}: {one} and {other} are of different families")]
    MixedFamilies {
        /// The row.
        row: RowKey,
        /// The one.
        one: String,
        /// The other.
        other: String,
    },
    /// A next hop that is an address of the router itself.
    #[error("{row}: the next hop {nexthop} is an address of the router itself")]
    SelfNextHop {
        /// The row.
        row: RowKey,
        /// The next hop.
        nexthop: IpAddr,
    },
    /// A row that two owners claim: each would undo what the other writes.
    #[error("{row}: {other} claims it too")]
    ClaimedTwice {
        /// The row.
        row: RowKey,
        /// The other owner.
        other: Owner,
    },
    /// A network id of two networks: their marks, masquerade addresses and devices would be the same.
    #[error("network id {id} is network {other}'s too; allowed: one network")]
    SameId {
        /// The id.
        id: u16,
        /// The other network.
        other: NetworkName,
    },
    /// A tunnel key of two networks: other nodes take packets of one for the other's.
    #[error("tunnel key {key} is network {other}'s too; allowed: one network")]
    SameKey {
        /// The key.
        key: u32,
        /// The other network.
        other: NetworkName,
    },
    /// A subnet of two networks that share a routing table: routes to one are routes to the other.
    #[error(
        "subnet {subnet} is network {other}'s too, in the same routing table; allowed: one network, or a VRF for each"
    )]
    SameSubnet {
        /// The node's subnet.
        subnet: Prefix,
        /// The other network.
        other: NetworkName,
    },
    /// A subnet of two networks behind one uplink: what arrives for it reaches the other one.
    #[error(
        "subnet {subnet} is network {other}'s too: what arrives over the uplink for it goes to that one; allowed: subnets of their own, or another uplink"
    )]
    SameSubnetOnUplink {
        /// The node's subnet.
        subnet: Prefix,
        /// The network of the smaller id.
        other: NetworkName,
    },
    /// A translated subnet that its own exemption set does not hold: pods would not see each other's addresses.
    #[error("{row}: exemption set {set} does not hold {subnet}")]
    NotExempt {
        /// The NAT row.
        row: RowKey,
        /// The set.
        set: RowKey,
        /// The subnet.
        subnet: String,
    },
}

/// How much a violation costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The part that it is in is written all the same: whoever declared it has to decide.
    Warning,
    /// The part that it is in is not written.
    Error,
}

impl Violation {
    /// How much it costs.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::SameSubnet { .. } | Self::SameSubnetOnUplink { .. } => Severity::Warning,
            Self::NoParent { .. }
            | Self::Dangling { .. }
            | Self::NoOwner { .. }
            | Self::MixedFamilies { .. }
            | Self::SelfNextHop { .. }
            | Self::NotExempt { .. }
            | Self::ClaimedTwice { .. }
            | Self::SameId { .. }
            | Self::SameKey { .. } => Severity::Error,
        }
    }
}

/// Checks a whole plan: the rows of each owner, and what must not be between two of them.
#[must_use]
pub fn plan(snapshot: &Snapshot, plan: &Plan) -> Vec<(Owner, Violation)> {
    let mut found = Vec::new();
    let mut all: BTreeMap<&RowKey, (&Owner, &Columns)> = BTreeMap::new();
    for (owner, rows) in &plan.north {
        for (row, columns) in rows {
            if let Some((other, _)) = all.insert(row, (owner, columns)) {
                let (row, other) = (row.clone(), other.clone());
                found.push((owner.clone(), Violation::ClaimedTwice { row, other }));
            }
        }
    }
    let shared = plan.north.get(&Owner::Node);
    for (owner, rows) in &plan.north {
        let violations = self::rows(rows, shared).into_iter();
        found.extend(violations.map(|violation| (owner.clone(), violation)));
    }
    found.extend(between_networks(snapshot, plan));
    found
}

/// Ids of which marks and devices are made, and subnets that two routers of one routing table have.
fn between_networks(snapshot: &Snapshot, plan: &Plan) -> Vec<(Owner, Violation)> {
    let mut found = Vec::new();
    let mut keys: BTreeMap<u32, &NetworkName> = BTreeMap::new();
    let mut ids: BTreeMap<u16, &NetworkName> = BTreeMap::new();
    let mut subnets: BTreeMap<(TableId, Prefix), &NetworkName> = BTreeMap::new();
    for (name, view) in snapshot.here() {
        let owner = || Owner::Network(name.clone());
        let id = view.share.network.id;
        if let Some(other) = ids.insert(id, name) {
            let other = other.clone();
            found.push((owner(), Violation::SameId { id, other }));
        }
        for key in view.share.network.tunnel_keys() {
            if let Some(other) = keys.insert(key, name) {
                let other = other.clone();
                found.push((owner(), Violation::SameKey { key, other }));
            }
        }
        for subnet in &view.share.host_subnets {
            let all = snapshot.here().filter(|(other, _)| *other != name);
            let mut before = all.filter(|(_, other)| other.share.network.id < id);
            let is_here = |view| bridge::over_uplink(view).contains(subnet);
            let taken = before.find(|(_, other)| is_here(*other) && is_here(view));
            if let Some((other, _)) = taken {
                let (subnet, other) = (*subnet, other.clone());
                found.push((owner(), Violation::SameSubnetOnUplink { subnet, other }));
            }
        }
        let Some(table) = plan.learn.get(name).and_then(|inputs| inputs.table) else {
            continue;
        };
        for subnet in &view.share.host_subnets {
            if let Some(other) = subnets.insert((table, *subnet), name) {
                let (subnet, other) = (*subnet, other.clone());
                found.push((owner(), Violation::SameSubnet { subnet, other }));
            }
        }
    }
    found
}

/// Checks Northbound rows of one owner; `shared` are those that it may refer to.
#[must_use]
pub fn rows(rows: &Rows, shared: Option<&Rows>) -> Vec<Violation> {
    let own = router_addresses(rows);
    let nobody = BTreeSet::new();
    let mut found = Vec::new();
    for (key, columns) in rows {
        form(rows, shared, key, columns, &mut found);
        match key.table {
            Table::StaticRoute => {
                let own = key
                    .parent_name()
                    .and_then(|router| own.get(router))
                    .unwrap_or(&nobody);
                let prefix = text(columns, "ip_prefix");
                hop(key, prefix, text(columns, "nexthop"), own, &mut found);
            }
            Table::Policy => {
                let own = key
                    .parent_name()
                    .and_then(|router| own.get(router))
                    .unwrap_or(&nobody);
                for nexthop in set(columns, "nexthops") {
                    hop(key, nexthop, nexthop, own, &mut found);
                }
            }
            Table::Nat => nat(rows, key, columns, &mut found),
            Table::StaticMacBinding => binding(rows, key, columns, &mut found),
            Table::AddressSet
            | Table::GatewayChassis
            | Table::Acl
            | Table::PortGroup
            | Table::GroupAcl
            | Table::Router
            | Table::Switch
            | Table::RouterPort
            | Table::SwitchPort => {}
        }
    }
    found
}

/// Checks imported routes of a router; `own` are the node's addresses.
#[must_use]
pub fn imports<'a>(
    target: &ImportTarget,
    desired: impl IntoIterator<Item = &'a ImportedRoute>,
    own: &BTreeSet<IpAddr>,
) -> Vec<Violation> {
    let mut found = Vec::new();
    for route in desired {
        let prefix = route.prefix.to_string();
        let nexthop = route.nexthop.to_string();
        let id = nb::route_id("", &prefix, &nexthop, &target.output_port);
        let key = RowKey::child(Table::StaticRoute, target.router.as_str(), id);
        hop(&key, &prefix, &nexthop, own, &mut found);
    }
    found
}

/// Parent, owner marker and references.
fn form(
    rows: &Rows,
    shared: Option<&Rows>,
    key: &RowKey,
    columns: &Columns,
    found: &mut Vec<Violation>,
) {
    if key
        .parent()
        .is_some_and(|parent| !rows.contains_key(&parent))
    {
        found.push(Violation::NoParent { row: key.clone() });
    }
    let owned = match columns.get("external_ids") {
        Some(Value::Entries(ids)) => ids.contains_key(OWNER),
        Some(
            Value::Text(_) | Value::Number(_) | Value::Flag(_) | Value::Set(_) | Value::Ref(_),
        )
        | None => false,
    };
    if !owned && key.table != Table::StaticMacBinding {
        found.push(Violation::NoOwner { row: key.clone() });
    }
    for (&column, value) in columns {
        if let Value::Ref(target) = value
            && !rows.contains_key(target)
            && shared.is_none_or(|shared| !shared.contains_key(target))
        {
            found.push(Violation::Dangling {
                row: key.clone(),
                column,
                target: target.clone(),
            });
        }
    }
}

/// A next hop is of the prefix's family and not the router's own; `discard` is neither.
fn hop(
    key: &RowKey,
    prefix: &str,
    nexthop: &str,
    own: &BTreeSet<IpAddr>,
    found: &mut Vec<Violation>,
) {
    families(key, prefix, nexthop, found);
    if let Ok(nexthop) = nexthop.parse::<IpAddr>()
        && own.contains(&nexthop)
    {
        found.push(Violation::SelfNextHop {
            row: key.clone(),
            nexthop,
        });
    }
}

/// Whose a binding is, its port says: it has to be in the same plan.
fn binding(rows: &Rows, key: &RowKey, columns: &Columns, found: &mut Vec<Violation>) {
    let port = text(columns, "logical_port");
    let is_own = |row: &RowKey| row.table == Table::RouterPort && row.id == port;
    if !rows.keys().any(is_own) {
        found.push(Violation::NoParent { row: key.clone() });
    }
}

fn nat(rows: &Rows, key: &RowKey, columns: &Columns, found: &mut Vec<Violation>) {
    let subnet = text(columns, "logical_ip");
    families(key, subnet, text(columns, "external_ip"), found);
    let Some(Value::Ref(target)) = columns.get("exempted_ext_ips") else {
        return;
    };
    let is_exempt = rows
        .get(target)
        .is_some_and(|columns| set(columns, "addresses").any(|address| covers(address, subnet)));
    if !is_exempt {
        found.push(Violation::NotExempt {
            row: key.clone(),
            set: target.clone(),
            subnet: subnet.to_owned(),
        });
    }
}

/// Whether an element of a set holds a subnet.
fn covers(element: &str, subnet: &str) -> bool {
    let element: Result<Prefix, _> = element.parse();
    let subnet: Result<Prefix, _> = subnet.parse();
    matches!((element, subnet), (Ok(element), Ok(subnet)) if element.contains(&subnet))
}

fn families(key: &RowKey, one: &str, other: &str, found: &mut Vec<Violation>) {
    if let (Some(a), Some(b)) = (family(one), family(other))
        && a != b
    {
        found.push(Violation::MixedFamilies {
            row: key.clone(),
            one: one.to_owned(),
            other: other.to_owned(),
        });
    }
}

/// Family of an address or prefix; `None` for words such as `discard`.
fn family(text: &str) -> Option<Family> {
    let address = text.split('/').next()?;
    address.parse::<IpAddr>().ok().map(Family::of)
}

/// Addresses of each router's ports, by the router's name.
fn router_addresses(rows: &Rows) -> BTreeMap<String, BTreeSet<IpAddr>> {
    let mut routers: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
    for (key, columns) in rows {
        if key.table == Table::RouterPort
            && let Some(router) = key.parent_name()
        {
            let addresses = set(columns, "networks")
                .filter_map(|network| network.split('/').next()?.parse::<IpAddr>().ok());
            routers
                .entry(router.to_owned())
                .or_default()
                .extend(addresses);
        }
    }
    routers
}

fn text<'a>(columns: &'a Columns, column: &str) -> &'a str {
    match columns.get(column) {
        Some(Value::Text(text)) => text,
        Some(
            Value::Number(_) | Value::Flag(_) | Value::Set(_) | Value::Entries(_) | Value::Ref(_),
        )
        | None => "",
    }
}

fn set<'a>(columns: &'a Columns, column: &str) -> impl Iterator<Item = &'a str> {
    let items = match columns.get(column) {
        Some(Value::Set(items)) => Some(items),
        Some(
            Value::Text(_) | Value::Number(_) | Value::Flag(_) | Value::Entries(_) | Value::Ref(_),
        )
        | None => None,
    };
    items.into_iter().flatten().map(String::as_str)
}
