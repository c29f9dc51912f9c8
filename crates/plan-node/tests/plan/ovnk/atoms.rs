//! A plan in the notation of the `.rows` files: what a database, the kernel, nftables and a bridge hold, as atoms.
//! In: a plan, and the kernel's routes of protocol bgp. Out: atoms by row. Invariant: of what a plan says is to be written nothing is left out, a kind of entry
//! that is not known here is a failure; rows are named by what their columns hold, not by the planner's keys.
//! Not here: what a recorded node holds (the data files), comparing.

use std::collections::{BTreeMap, BTreeSet};

use import::decide::decide;
use model::Prefix;
use model::kernel::{KernelEntry, KernelKey, RouteTarget, RuleSelector, route_metric};
use model::nb::{
    Columns, CtInvMatch, ImportTarget, Owner, ROUTE_IMPORT, RowKey, Rows, Table, Value,
};
use model::ovs::COOKIE;
use model::route::{KernelRoute, MAIN_TABLE, TableId};
use plan_node::{FlowTable, Plan, Snapshot, learn};

/// Kind and name of a row, and its atoms: `column = value`, `column:key = value`.
pub(crate) type Atoms = BTreeMap<String, BTreeSet<String>>;

/// All of a plan.
pub(crate) fn of(snapshot: &Snapshot, plan: &Plan, bgp: &[KernelRoute]) -> Atoms {
    let mut atoms = Atoms::new();
    let rows: Rows = plan
        .north
        .values()
        .flatten()
        .map(|(key, columns)| (key.clone(), columns.clone()))
        .collect();
    for (key, columns) in &rows {
        let row = row_name(key, columns, &rows);
        assert!(!atoms.contains_key(&row), "two rows are {row}");
        for (column, value) in columns {
            column_atoms(&mut atoms, &row, column, value, &rows);
        }
    }
    if plan.ct_inv_match == CtInvMatch::Off {
        put(
            &mut atoms,
            "NB_Global .",
            "options:use_ct_inv_match",
            "false",
        );
    }
    for (name, chassis) in plan.south.iter().flatten() {
        let row = format!("Chassis {name}");
        put(&mut atoms, &row, "hostname", &chassis.hostname);
        for ip in &chassis.encap_ips {
            put(&mut atoms, &row, "encap", format!("geneve {ip}"));
        }
    }
    for (key, value) in plan.annotations.iter().flatten() {
        put(&mut atoms, "Node n1", key, value);
    }
    imports(&mut atoms, snapshot, plan, bgp);
    interfaces(&mut atoms, plan);
    kernel(&mut atoms, plan);
    nft(&mut atoms, plan);
    flows(&mut atoms, plan);
    atoms
}

fn put(atoms: &mut Atoms, row: &str, column: &str, value: impl ToString) {
    let atom = format!("{column} = {}", value.to_string());
    atoms.entry(row.to_owned()).or_default().insert(atom);
}

fn text<'a>(columns: &'a Columns, column: &str) -> &'a str {
    match columns.get(column) {
        Some(Value::Text(text)) => text,
        Some(Value::Set(set)) => set.first().map_or("", String::as_str),
        Some(Value::Number(_) | Value::Flag(_) | Value::Entries(_) | Value::Ref(_)) | None => "",
    }
}

/// Of a row that others refer to: `external_ids:k8s.ovn.org/name`.
fn object_name(columns: &Columns) -> &str {
    let Some(Value::Entries(ids)) = columns.get("external_ids") else {
        return "";
    };
    ids.get("k8s.ovn.org/name").map_or("", String::as_str)
}

fn row_name(key: &RowKey, columns: &Columns, rows: &Rows) -> String {
    let of = |column| text(columns, column);
    let priority = || match columns.get("priority") {
        Some(Value::Number(number)) => number.to_string(),
        other => panic!("{key}: {other:?}"),
    };
    let own = match key.table {
        Table::StaticRoute => {
            let policy = if of("policy") == "src-ip" { "src " } else { "" };
            format!("{policy}{} via {}", of("ip_prefix"), of("nexthop"))
        }
        Table::Policy => format!("{} {}", priority(), of("match")),
        Table::Acl | Table::GroupAcl => {
            format!("{} {} {}", of("direction"), priority(), of("match"))
        }
        Table::Nat => {
            let allowed = match columns.get("allowed_ext_ips") {
                Some(Value::Ref(set)) => object_name(&rows[set]),
                _ => "",
            };
            let to = if allowed.is_empty() || allowed == "node-ips" {
                String::new()
            } else {
                format!(" to {allowed}")
            };
            format!("{} {}{to}", of("type"), of("logical_ip"))
        }
        Table::StaticMacBinding => format!("{} {}", of("logical_port"), of("ip")),
        Table::AddressSet
        | Table::PortGroup
        | Table::GatewayChassis
        | Table::Router
        | Table::Switch
        | Table::RouterPort
        | Table::SwitchPort => of("name").to_owned(),
    };
    let parent = key.parent_name().map(|name| format!("{name}/"));
    format!("{} {}{own}", key.table.name(), parent.unwrap_or_default())
}

/// What the schema gives a column of itself (empty, 0, false) is no atom.
fn column_atoms(atoms: &mut Atoms, row: &str, column: &str, value: &Value, rows: &Rows) {
    match value {
        Value::Text(text) if text.is_empty() => {}
        Value::Text(text) => put(atoms, row, column, text),
        Value::Number(0) | Value::Flag(false) => {}
        Value::Number(number) => put(atoms, row, column, number),
        Value::Flag(true) => put(atoms, row, column, "true"),
        Value::Set(set) => {
            for one in set {
                put(atoms, row, column, one);
            }
        }
        Value::Entries(entries) => {
            for (key, value) in entries {
                put(atoms, row, &format!("{column}:{key}"), value);
            }
        }
        Value::Ref(target) => put(atoms, row, column, row_name(target, &rows[target], rows)),
    }
}

/// The rows that the gateway routers import from the kernel.
fn imports(atoms: &mut Atoms, snapshot: &Snapshot, plan: &Plan, bgp: &[KernelRoute]) {
    for (name, view) in snapshot.here() {
        let target = ImportTarget::of(name, &view.node.name);
        let Some(inputs) = plan.learn.get(name).filter(|inputs| inputs.learns) else {
            continue;
        };
        let mut scope = inputs.scope.clone();
        let rows = &plan.north[&Owner::Network(name.clone())];
        scope.taken = learn::topology_prefixes(rows, &target.router);
        for route in bgp.iter().filter(|route| Some(route.table) == inputs.table) {
            for nexthop in decide(route, &scope).hops {
                let router = &target.router;
                let row = format!(
                    "{} {router}/{} via {nexthop}",
                    Table::StaticRoute.name(),
                    route.prefix
                );
                put(atoms, &row, "ip_prefix", route.prefix);
                put(atoms, &row, "nexthop", nexthop);
                put(atoms, &row, "output_port", &target.output_port);
                let (key, value) = ROUTE_IMPORT;
                put(atoms, &row, &format!("external_ids:{key}"), value);
                put(atoms, &row, "external_ids:noverlay.io/owner", name);
            }
        }
    }
}

fn interfaces(atoms: &mut Atoms, plan: &Plan) {
    for port in plan.ports.values() {
        let row = format!("Interface {}", port.name);
        put(atoms, &row, "type", "internal");
        put(atoms, &row, "mac", port.mac);
        put(atoms, &row, "mtu_request", port.mtu);
        for (key, value) in port.interface_ids() {
            put(atoms, &row, &format!("external_ids:{key}"), value);
        }
    }
}

fn kernel(atoms: &mut Atoms, plan: &Plan) {
    let vrfs: BTreeMap<TableId, &str> = plan
        .kernel
        .iter()
        .filter_map(|(key, entry)| match (key, entry) {
            (KernelKey::Vrf { device }, KernelEntry::Vrf { table, .. }) => {
                Some((*table, device.as_str()))
            }
            _ => None,
        })
        .collect();
    let table_name = |table: TableId| match vrfs.get(&table) {
        Some(vrf) => (*vrf).to_owned(),
        None if table == MAIN_TABLE => "main".to_owned(),
        None => table.to_string(),
    };
    for (key, entry) in &plan.kernel {
        match (key, entry) {
            (KernelKey::Vrf { device }, KernelEntry::Vrf { table, up: true }) => {
                put(atoms, &format!("VRF {device}"), "table", table);
            }
            (KernelKey::Link { device }, KernelEntry::Link { up: true, vrf }) => {
                let row = format!("Link {device}");
                put(atoms, &row, "up", "true");
                if let Some(vrf) = vrf {
                    put(atoms, &row, "master", vrf);
                }
            }
            (KernelKey::Address { device, address }, KernelEntry::Address { prefix_route }) => {
                let row = format!("Address {device} {address}");
                put(atoms, &row, "prefix_route", prefix_route);
            }
            (KernelKey::Neighbor { device, ip }, KernelEntry::Neighbor { mac }) => {
                put(atoms, &format!("Neighbor {device} {ip}"), "lladdr", mac);
            }
            (
                KernelKey::Rule {
                    preference,
                    selector,
                    table,
                },
                KernelEntry::Rule { local },
            ) => {
                let (family, selector) = match selector {
                    RuleSelector::To(prefix) => (prefix.family(), format!("to {}", alone(prefix))),
                    RuleSelector::Mark(family, mark) => (*family, format!("fwmark {mark:#x}")),
                };
                let row = format!("Rule {} {preference} {selector}", family.version());
                put(atoms, &row, "lookup", table_name(*table));
                if *local {
                    put(atoms, &row, "iif", "lo");
                }
            }
            (KernelKey::Route { table, to, metric }, KernelEntry::Route(target)) => {
                let row = format!("Route {} {to}", table_name(*table));
                route(atoms, row, (to, *metric), target);
            }
            (key, entry) => panic!("{key}: {entry:?}"),
        }
    }
}

/// As `ip` shows it: an address without its length.
fn alone(prefix: &Prefix) -> String {
    let text = prefix.to_string();
    let host = Prefix::host(prefix.network()) == *prefix;
    let address = text.split('/').next().filter(|_| host);
    address.map_or(text.clone(), ToOwned::to_owned)
}

fn route(atoms: &mut Atoms, mut row: String, (to, metric): (&Prefix, u32), target: &RouteTarget) {
    match target {
        RouteTarget::Unreachable => row.push_str(" unreachable"),
        RouteTarget::Device {
            device,
            via,
            source,
            mtu,
        } => {
            put(atoms, &row, "dev", device.as_deref().unwrap());
            let via = via.map(|via| ("via", via.to_string()));
            let source = source.map(|source| ("src", source.to_string()));
            let mtu = mtu.map(|mtu| ("mtu", mtu.to_string()));
            for (column, value) in [via, source, mtu].into_iter().flatten() {
                put(atoms, &row, column, value);
            }
        }
    }
    put(atoms, &row, "proto", model::kernel::PROTOCOL);
    if metric != route_metric(to.family(), 0) {
        put(atoms, &row, "metric", metric);
    }
}

fn nft(atoms: &mut Atoms, plan: &Plan) {
    for (name, set) in &plan.nft.sets {
        let row = format!("Set {name}");
        put(
            atoms,
            &row,
            "type",
            format!("ip{}_addr", set.family.version()),
        );
        for element in &set.elements {
            put(atoms, &row, "element", alone(element));
        }
    }
    for (name, chain) in &plan.nft.chains {
        let row = format!("Chain {name}");
        if let Some(hook) = chain.hook {
            let hook = format!("{} {} {}", hook.kind, hook.hook, hook.priority);
            put(atoms, &row, "hook", hook);
        }
        for (number, rule) in (1..).zip(&chain.rules) {
            put(atoms, &row, &format!("rule {number}"), rule);
        }
    }
}

fn flows(atoms: &mut Atoms, plan: &Plan) {
    let FlowTable::Full {
        flows,
        complete: true,
        ..
    } = &plan.flows
    else {
        panic!("{:?}", plan.flows);
    };
    for flow in flows {
        let (table, priority) = (flow.table, flow.priority);
        let row = format!("Flow table {table} priority {priority} {}", flow.matches);
        let row = row.trim_end();
        put(atoms, row, "actions", &flow.actions);
        put(atoms, row, "cookie", format!("{COOKIE:#x}"));
    }
}
