//! What a lab looks like right now, as a table.
//!
//! In: a running lab. Out: a line per node with sessions, routes at each layer and the
//! pod; `false` where a daemon has died or something is missing.

use anyhow::Result;

use crate::beside::steered;
use crate::look::{frr_routes, imported, kernel_routes, sessions};
use crate::objects::{frr_node_states, reflectors};
use crate::process::records;
use crate::run::{each, tell};
use crate::state::{Lab, Node};
use crate::supervisor;

const HEADINGS: [&str; 8] = [
    "NODE",
    "ADDRESS",
    "SESSIONS",
    "FRR",
    "KERNEL",
    "OVN",
    "POD",
    "FRRNODESTATE",
];

/// Prints the table; says whether everything is as it should be.
pub(crate) fn print(lab: &Lab) -> Result<bool> {
    let states = frr_node_states(lab).unwrap_or_default();
    let state = |node: &Node| {
        states
            .get(&node.name)
            .cloned()
            .unwrap_or_else(|| "(none)".to_owned())
    };
    let reflecting = reflectors(lab).unwrap_or_default();
    let lines: Vec<(Vec<String>, bool)> =
        each(&lab.nodes, |node| line(lab, node, state(node), &reflecting));
    let mut table = vec![HEADINGS.map(str::to_owned).to_vec()];
    table.extend(lines.iter().map(|(cells, _)| cells.clone()));
    tell(aligned(&table).trim_end());
    if lab.frr_k8s.is_some() {
        tell(lab.applier_note().trim_start_matches(", "));
    }
    let mut good = lines.iter().all(|(_, good)| *good);
    let early = supervisor::early(&lab.name);
    if !early.is_empty() {
        tell(&format!("\nnote: {}", early.trim_end()));
    }
    let deaths = supervisor::deaths(&lab.name);
    if !deaths.is_empty() {
        tell(&format!("\nDied since the start:\n{deaths}"));
        good = false;
    }
    for record in records(&lab.dir()) {
        if !record.at_work() {
            tell(&format!(
                "{} of {} does not run, or is frozen",
                record.start.name, record.start.node
            ));
            good = false;
        }
    }
    if supervisor::running(&lab.name).is_none() {
        tell("the supervisor does not run");
        good = false;
    }
    Ok(good)
}

fn line(lab: &Lab, node: &Node, state: String, reflecting: &[String]) -> (Vec<String>, bool) {
    let families = lab.values.families().len();
    let others = lab.nodes.len().saturating_sub(1) * families;
    let peers = if reflecting.is_empty() || reflecting.contains(&node.name) {
        others
    } else {
        reflecting.len() * families
    };
    // Beside other routers there may be more routes than those to pods, and several to one.
    let more = lab.example.is_some();
    // An overlay needs no routes; sessions are there for networks of users beside it.
    let (others, peers) = match lab.is_tunneled() {
        true if lab.networks.is_empty() => (0, 0),
        true => (0, peers),
        false => (others, peers),
    };
    let of = |expected: usize, seen: Result<usize>| match seen {
        Ok(seen) if more => (format!("{seen}/{expected}"), seen >= expected),
        Ok(seen) => (format!("{seen}/{expected}"), seen == expected),
        Err(_) => ("?".to_owned(), false),
    };
    let count = |seen| of(others, seen);
    let all = sessions(lab, &node.name);
    let peers = match &all {
        Ok(all) if more => all.len().max(1),
        _ => peers,
    };
    let established = all.map(|all| {
        all.values()
            .filter(|session| session.state == "Established")
            .count()
    });
    let (up, up_good) = of(peers, established);
    // A managed network of users is announced as the default one is; one of layer 2 has the same subnet everywhere, and layer 3
    // over tunnels is not announced. OVN's rows are counted of the default one.
    let routed = lab.networks.iter().filter(|network| !network.has_tunnels());
    let routed: usize = routed.map(|network| network.ranges.len()).sum();
    let remote = others + routed * lab.nodes.len().saturating_sub(1);
    let (frr, frr_good) = of(
        remote,
        frr_routes(lab, &node.name).map(|routes| routes.len()),
    );
    let (kernel, kernel_good) = of(
        remote,
        kernel_routes(lab, &node.name).map(|routes| routes.len()),
    );
    let (ovn, ovn_good) = count(ways(lab, &node.name));
    let pod = lab.pod(&node.name);
    let good =
        up_good && frr_good && kernel_good && ovn_good && pod.is_some() && state == "success";
    // A refusal of FRR may name a line for each neighbor; the object has it whole.
    let state = if state.chars().count() > 100 {
        format!("{}...", state.chars().take(97).collect::<String>())
    } else {
        state
    };
    let pod = pod.map_or_else(|| "(none)".to_owned(), |pod| pod.shown());
    let addresses = lab.addresses(node).into_iter();
    let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
    let address = addresses.join(" ");
    (
        vec![node.name.clone(), address, up, frr, kernel, ovn, pod, state],
        good,
    )
}

/// How many ways to other nodes' pods OVN has: imported routes, or subnets that are led past tunnels.
fn ways(lab: &Lab, node: &str) -> Result<usize> {
    if lab.is_steered() {
        steered(lab, node).map(|subnets| subnets.len())
    } else {
        imported(lab, node).map(|routes| routes.len())
    }
}

/// Columns as wide as their widest cell.
pub(crate) fn aligned(table: &[Vec<String>]) -> String {
    let width = |column: usize| {
        table
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let mut out = String::new();
    for row in table {
        let cells = row.iter().enumerate();
        let line: String = cells
            .map(|(i, cell)| format!("{cell:<w$}   ", w = width(i)))
            .collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
