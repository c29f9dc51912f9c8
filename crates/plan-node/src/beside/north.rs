//! Northbound rows beside OVN-Kubernetes'.
//! In: a network's share of the node, whether its packets are to be steered, and what OVN-Kubernetes translates on their way to the host.
//! Out: rows.
//! Invariant: no row is OVN-Kubernetes' own, none has a name, priority or match that it uses, and a subnet that is not in the set goes
//! by the tunnel as before.
//! Not here: the set's addresses (the import).

use std::collections::BTreeSet;

use model::address::{Family, Prefix};
use model::names::{NetworkName, NodeName};
use model::nb::{self, BESIDE, Columns, Owner, RowKey, Rows, Table, Value};

use crate::north::rows_builder::{RowsBuilder, text, texts};
use crate::snapshot::NetworkView;

/// Priority of the ACLs: above those of NetworkPolicies and isolation (1000 to 1050), below what an administrator puts first.
pub const ACL_PRIORITY: i64 = 1200;
/// Priority of the policy: above those of egress (95 to 103), OVN-Kubernetes' own are 501 and 1002 to 1005, and 9001.
pub const POLICY_PRIORITY: i64 = 1010;

/// Name of the port group of a network's management port.
#[must_use]
pub fn port_group(network: &NetworkName) -> RowKey {
    RowKey::root(
        Table::PortGroup,
        format!("noverlay_mp_{}", identifier(network)),
    )
}

/// Name of the set of other nodes' pod subnets that have a usable route.
#[must_use]
pub fn routed(network: &NetworkName, family: Family) -> RowKey {
    let name = format!(
        "noverlay_routed_{}_{}",
        identifier(network),
        family.version()
    );
    RowKey::root(Table::AddressSet, name)
}

/// Name of the set of all subnets of a network of users.
#[must_use]
pub fn pods(network: &NetworkName, family: Family) -> RowKey {
    let name = format!("noverlay_pods_{}_{}", identifier(network), family.version());
    RowKey::root(Table::AddressSet, name)
}

/// The rows that are to be ours by their names, and the ports that ours refer to: that of the switch, and that of the router by which
/// packets leave for it.
#[must_use]
pub fn keys(network: &NetworkName, node: &NodeName) -> Vec<RowKey> {
    let port = RowKey::root(Table::SwitchPort, network.management_lsp(node));
    let leaves_by = RowKey::root(Table::RouterPort, nb::rtos(&network.switch(node)));
    let sets = Family::ALL.map(|family| [routed(network, family), pods(network, family)]);
    [port, leaves_by, port_group(network)]
        .into_iter()
        .chain(sets.into_iter().flatten())
        .collect()
}

/// A network's name where OVN's expressions take an identifier. Names of networks have no underscore but in the prefix
/// that all of users have, so that no two become one.
fn identifier(network: &NetworkName) -> String {
    network.as_str().replace('-', "_")
}

/// The rows that stand before any packet is steered: the management port tracks no connection between pods, and what goes between pods
/// is not translated. With `steers` also the policy that reroutes to it, and the set that the policy looks into. `translated`: rows of
/// NAT by which OVN-Kubernetes translates whatever leaves for the management port.
///
/// If one direction of a connection takes the tunnel and the other one the wire, the port would see only answers, call them
/// invalid and drop them: a peer that does not steer yet, a route that is missing on one side, every moment of a change.
#[must_use]
pub fn plan(view: NetworkView<'_>, steers: bool, translated: &[Columns]) -> Rows {
    // Not the ids of network and topology, by which OVN-Kubernetes knows what it made for a network of users.
    let mut builder = RowsBuilder::marked(Owner::Network(view.name().clone()), [BESIDE]);
    if view.share.host_subnets.is_empty() {
        return builder.into_rows();
    }
    untracked(view, &mut builder);
    for row in translated {
        exempted(view, row, &mut builder);
    }
    if steers {
        steering(view, &mut builder);
    }
    builder.into_rows()
}

fn untracked(view: NetworkView<'_>, builder: &mut RowsBuilder) {
    let port = view.name().management_lsp(&view.node.name);
    let group = port_group(view.name());
    let name = group.id.clone();
    builder.put(
        group,
        [
            ("name", text(&name)),
            (
                "ports",
                Value::Ref(RowKey::root(Table::SwitchPort, port.clone())),
            ),
        ],
    );
    let pods = between_nodes(view);
    for (direction, end) in [("to-lport", "outport"), ("from-lport", "inport")] {
        let matches = format!("{end} == \"{port}\" && ({pods})");
        let id = nb::acl_id(direction, ACL_PRIORITY, &matches);
        builder.put(
            RowKey::child(Table::GroupAcl, name.as_str(), id),
            [
                ("direction", text(direction)),
                ("priority", Value::Number(ACL_PRIORITY)),
                ("match", text(matches)),
                ("action", text("allow-stateless")),
            ],
        );
    }
}

/// What `row` translates of one of the node's subnets, but not what goes between pods: two rows of half the subnet each, since one of the
/// whole would be the twin of its. The router's flows for an exemption come before those that translate, whatever the prefix.
fn exempted(view: NetworkView<'_>, row: &Columns, builder: &mut RowsBuilder) {
    let Some(Value::Text(logical)) = row.get("logical_ip") else {
        return;
    };
    let mut own = view.share.host_subnets.iter();
    let Some(subnet) = own.find(|own| own.to_string() == *logical) else {
        return;
    };
    let set = pods(view.name(), subnet.family());
    let all = view.share.network.prefixes();
    let all = all.filter(|pods| pods.family() == subnet.family());
    let columns = [("name", text(&set.id)), ("addresses", texts(all))];
    builder.put(set.clone(), columns);
    let halves = (0..2).filter_map(|half| subnet.subnet(half, subnet.bits() + 1));
    for half in halves {
        let id = nb::nat_id("snat", &half.to_string(), None);
        let key = RowKey::child(Table::Nat, view.cluster_router().as_str(), id);
        let others = row.iter().filter(|(name, _)| **name != "external_ids");
        let mut columns: Columns = others.map(|(name, value)| (*name, value.clone())).collect();
        columns.insert("logical_ip", text(half));
        columns.insert("exempted_ext_ips", Value::Ref(set.clone()));
        builder.put(key, columns);
    }
}

/// From this node's pods to those of other nodes, or the other way round.
fn between_nodes(view: NetworkView<'_>) -> String {
    let mut all = Vec::new();
    for family in families(view) {
        let ip = family.ovn_protocol();
        let own = set(view.share.host_subnets.iter().copied(), family);
        let network = set(view.share.network.prefixes(), family);
        all.push(format!(
            "({ip}.src == {own} && {ip}.dst == {network} && {ip}.dst != {own}) || ({ip}.src == {network} && {ip}.src != {own} && {ip}.dst == {own})"
        ));
    }
    all.join(" || ")
}

fn steering(view: NetworkView<'_>, builder: &mut RowsBuilder) {
    for family in families(view) {
        let key = routed(view.name(), family);
        let name = key.id.clone();
        builder.put(key, [("name", text(&name))]);
        let ip = family.ovn_protocol();
        let port = view.switch_router_port();
        let own = view.share.host_subnets.iter();
        for subnet in own.filter(|subnet| subnet.family() == family) {
            let Some(management) = subnet.nth(2) else {
                continue;
            };
            // What the host sent into OVN is not sent back to it; hairpins and other people's sources stay as they are.
            let matches = format!(
                "inport == \"{port}\" && {ip}.src == {subnet} && {ip}.src != {management} && {ip}.dst == ${name}"
            );
            let id = nb::policy_id(POLICY_PRIORITY, &matches);
            builder.put(
                RowKey::child(Table::Policy, view.cluster_router().as_str(), id),
                [
                    ("priority", Value::Number(POLICY_PRIORITY)),
                    ("match", text(matches)),
                    ("action", text("reroute")),
                    ("nexthops", texts([management])),
                ],
            );
        }
    }
}

/// The families of which the node has pods.
fn families(view: NetworkView<'_>) -> BTreeSet<Family> {
    view.share.host_subnets.iter().map(Prefix::family).collect()
}

/// Prefixes of a family as an expression's constant: one, or a set of several.
fn set(prefixes: impl Iterator<Item = Prefix>, family: Family) -> String {
    let of_family = prefixes.filter(|prefix| prefix.family() == family);
    let all: Vec<String> = of_family.map(|prefix| prefix.to_string()).collect();
    match all.as_slice() {
        [one] => one.clone(),
        several => format!("{{{}}}", several.join(", ")),
    }
}
