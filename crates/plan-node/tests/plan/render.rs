//! Plans as text, for whoever compares them.
//! In: a plan. Out: sections under `# `, each line under what it belongs to. Invariant: nothing of a plan is left out.
//! Not here: comparing.

use std::collections::BTreeMap;
use std::fmt::Write;

use model::Prefix;
use model::kernel::{KernelEntry, KernelKey, RouteTarget};
use model::nb::{CtInvMatch, Owner, Rows, Value};
use model::ovs::InternalPort;
use model::route::TableId;
use plan_node::check::Violation;
use plan_node::{FlowTable, Plan, Snapshot};

/// What is not known, not believed, or wrong.
pub(crate) fn knowledge(
    snapshot: &Snapshot,
    plan: &Plan,
    violations: &[(Owner, Violation)],
) -> String {
    let mut out = String::from("# Knowledge\n");
    for name in &plan.unknown {
        writeln!(
            out,
            "network {name}: nothing is planned, what stands is left"
        )
        .unwrap();
    }
    for (name, why) in &snapshot.stale {
        writeln!(out, "network {name}: {why}").unwrap();
    }
    for problem in snapshot.problems.iter().chain(&snapshot.ignored) {
        writeln!(out, "{} {problem}", problem.reason).unwrap();
    }
    for (owner, violation) in violations {
        writeln!(out, "{:?} {owner}: {violation}", violation.severity()).unwrap();
    }
    out
}

/// The option of the whole database, unless it is as it was.
pub(crate) fn global(plan: &Plan) -> String {
    match plan.ct_inv_match {
        CtInvMatch::Restored => String::new(),
        wanted @ (CtInvMatch::Off | CtInvMatch::Kept) => {
            format!("NB_Global options:use_ct_inv_match {wanted:?}\n")
        }
    }
}

/// What is written.
pub(crate) fn plan(plan: &Plan) -> String {
    [
        "# Northbound\n".to_owned(),
        global(plan),
        plan.north
            .iter()
            .map(|(owner, rows)| rows_of(rows, &format!(" for {owner}")))
            .collect(),
        kernel(plan),
        links(plan),
        filter(plan),
        flows(plan),
        uplink(plan),
        published(plan),
        if plan.annotations.is_none() {
            "(not known yet)\n".to_owned()
        } else {
            String::new()
        },
    ]
    .concat()
}

/// Devices that are to be up.
fn links(plan: &Plan) -> String {
    let links = plan
        .kernel
        .keys()
        .filter(|key| matches!(key, KernelKey::Link { .. }));
    links.map(|key| format!("{key} up\n")).collect()
}

fn uplink(plan: &Plan) -> String {
    match &plan.flows {
        FlowTable::Full { uplink, .. } | FlowTable::Host { uplink, .. } => {
            format!("uplink {uplink}\n")
        }
        FlowTable::SeveralUplinks { ports, .. } => format!("uplinks {ports:?}\n"),
        FlowTable::Unknown { .. } => String::new(),
    }
}

/// What imports obey.
pub(crate) fn learned(plan: &Plan) -> String {
    let mut out = String::from("# Imports\n");
    for (name, inputs) in &plan.learn {
        let scope = &inputs.scope;
        writeln!(out, "network {name}").unwrap();
        writeln!(
            out,
            "  table {:?} over link {:?}",
            inputs.table, scope.gateway_link
        )
        .unwrap();
        for (what, prefixes) in [
            ("cluster subnet", &scope.cluster_subnets),
            ("own subnet", &scope.host_subnets),
            ("join subnet", &scope.join_subnets),
        ] {
            for prefix in prefixes {
                writeln!(out, "  {what} {prefix}").unwrap();
            }
        }
        for (prefix, node) in inputs.owners.pairs() {
            writeln!(out, "  {prefix} of {node}").unwrap();
        }
        for address in &scope.own_addresses {
            writeln!(out, "  own address {address}").unwrap();
        }
        for (prefix, rows) in &scope.fallbacks {
            writeln!(out, "  a route to {prefix} takes the place of").unwrap();
            for row in rows {
                let columns = row
                    .iter()
                    .map(|(name, content)| format!("{name}={}", value(content)));
                writeln!(out, "    {}", columns.collect::<Vec<_>>().join(" ")).unwrap();
            }
        }
        for prefix in &scope.taken {
            writeln!(out, "  nothing is imported for {prefix}").unwrap();
        }
        if !scope.no_overlay {
            writeln!(out, "  (its own subnets are the overlay's)").unwrap();
        }
        if !scope.fallbacks_known {
            writeln!(out, "  (not known which rows routes take the place of)").unwrap();
        }
        if scope.other_networks != model::subnets::Subnets::default() {
            writeln!(out, "  other networks {:?}", scope.other_networks).unwrap();
        }
        writeln!(
            out,
            "  default route {:?}, release {:?}",
            scope.bgp_default, inputs.release
        )
        .unwrap();
    }
    out
}

/// The rows of all owners.
pub(crate) fn rows(plan: &Plan) -> Rows {
    let rows = plan.north.values().flatten();
    rows.map(|(k, c)| (k.clone(), c.clone())).collect()
}

fn value(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("{text:?}"),
        Value::Number(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Set(items) => {
            let items: Vec<&str> = items.iter().map(String::as_str).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Entries(entries) => {
            let entries: Vec<String> = entries.iter().map(|(k, v)| format!("{k}={v}")).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Ref(key) => format!("-> {key}"),
    }
}

pub(crate) fn northbound(rows: &Rows) -> String {
    let mut out = String::from("# Northbound\n");
    out.push_str(&rows_of(rows, ""));
    out
}

/// Rows; `whose` stands behind each key.
fn rows_of(rows: &Rows, whose: &str) -> String {
    let mut out = String::new();
    for (key, columns) in rows {
        writeln!(out, "{key}{whose}").unwrap();
        for (column, content) in columns {
            writeln!(out, "  {column} = {}", value(content)).unwrap();
        }
    }
    out
}

pub(crate) fn kernel(plan: &Plan) -> String {
    let mut out = String::from("# Kernel\n");
    let mut rest = String::new();
    let ports = plan.ports.values();
    let by_device: BTreeMap<&str, &InternalPort> =
        ports.map(|port| (port.name.as_str(), port)).collect();
    for (key, entry) in &plan.kernel {
        match (key, entry) {
            (KernelKey::Vrf { device }, KernelEntry::Vrf { table, up: true }) => {
                writeln!(out, "vrf {device} table {table}").unwrap();
            }
            (
                KernelKey::Link { .. },
                KernelEntry::Link {
                    up: true,
                    vrf: None,
                },
            ) => {}
            (
                KernelKey::Link { device },
                KernelEntry::Link {
                    up: true,
                    vrf: Some(vrf),
                },
            ) => {
                writeln!(out, "link {device} master {vrf}").unwrap();
            }
            (KernelKey::Address { device, address }, KernelEntry::Address { prefix_route }) => {
                // The external bridge is no port of ours.
                let port = by_device.get(device.as_str());
                let port = port.map(|p| format!(" mac {} mtu {}", p.mac, p.mtu));
                let port = port.unwrap_or_default();
                let flag = if *prefix_route { "" } else { " noprefixroute" };
                writeln!(out, "address {address} dev {device}{port}{flag}").unwrap();
            }
            (
                KernelKey::Rule {
                    preference,
                    selector,
                    table,
                },
                KernelEntry::Rule { local },
            ) => {
                let from = if *local { "iif lo " } else { "" };
                writeln!(out, "rule {preference} {from}{selector} lookup {table}").unwrap();
            }
            (KernelKey::Route { table, to, metric }, KernelEntry::Route(target)) => {
                writeln!(rest, "{}", route(*table, to, *metric, target)).unwrap();
            }
            (KernelKey::Neighbor { device, ip }, KernelEntry::Neighbor { mac }) => {
                writeln!(rest, "neighbor {ip} lladdr {mac} dev {device}").unwrap();
            }
            (key, entry) => panic!("{key}: {entry:?}"),
        }
    }
    out.push_str(&rest);
    out.push_str(&ports_of(plan));
    out
}

fn route(table: TableId, to: &Prefix, metric: u32, target: &RouteTarget) -> String {
    match target {
        RouteTarget::Unreachable => {
            format!("route unreachable {to} metric {metric} table {table}")
        }
        RouteTarget::Device {
            device,
            via,
            source,
            mtu,
        } => {
            let word = |key: &str, value: Option<String>| {
                value.map_or(String::new(), |value| format!(" {key} {value}"))
            };
            let via = word("via", via.map(|via| via.to_string()));
            let source = word("src", source.map(|source| source.to_string()));
            let mtu = word("mtu", mtu.map(|mtu| mtu.to_string()));
            let device = device.as_deref().unwrap();
            format!("route {to}{via} dev {device} table {table}{source}{mtu}")
        }
    }
}

fn ports_of(plan: &Plan) -> String {
    let mut out = String::from("# Integration bridge\n");
    for port in plan.ports.values() {
        writeln!(
            out,
            "port {} of {} iface-id {} mac {} mtu {} owner {}",
            port.name, port.bridge, port.iface_id, port.mac, port.mtu, port.owner
        )
        .unwrap();
    }
    out
}

/// Sets and chains; nothing where there are none.
pub(crate) fn filter(plan: &Plan) -> String {
    let mut out = String::new();
    for (name, set) in &plan.nft.sets {
        let elements: Vec<String> = set.elements.iter().map(ToString::to_string).collect();
        let family = set.family.version();
        writeln!(out, "set {name} ({family}): {}", elements.join(" ")).unwrap();
    }
    for (name, chain) in &plan.nft.chains {
        let hook = chain.hook.map_or(String::new(), |hook| {
            format!(" {} {} {}", hook.kind, hook.hook, hook.priority)
        });
        writeln!(out, "chain {name}{hook}").unwrap();
        for rule in &chain.rules {
            writeln!(out, "  {rule}").unwrap();
        }
    }
    if out.is_empty() {
        return out;
    }
    format!("# Packet filter\n{out}")
}

pub(crate) fn flows(plan: &Plan) -> String {
    let mut out = String::from("# External bridge\n");
    let flows = match &plan.flows {
        FlowTable::Full {
            flows, complete, ..
        } => {
            if !complete {
                out.push_str("(added to what stands)\n");
            }
            flows
        }
        FlowTable::Host { flows, .. } => {
            out.push_str("(host stage)\n");
            flows
        }
        FlowTable::SeveralUplinks { flows, why, .. } => {
            writeln!(out, "(where none stands: {why})").unwrap();
            flows
        }
        FlowTable::Unknown { why } => {
            writeln!(out, "(as it is: {why})").unwrap();
            &Vec::new()
        }
    };
    for flow in flows {
        writeln!(out, "{flow}").unwrap();
    }
    out
}

pub(crate) fn published(plan: &Plan) -> String {
    let mut out = String::from("# Annotations\n");
    for (key, text) in plan.annotations.iter().flatten() {
        writeln!(out, "{key} = {text}").unwrap();
    }
    out
}
