//! `noverlay status` for people.
//! In: a report. Out: tables, and lines under them for what does not fit in.
//! Invariant: what is not known is `?`, what does not apply is `-`.
//! Not here: what is well.

use std::fmt::Display;

use comfy_table::{Table, presets};

use super::{FabricLine, NodeLine, Report};

impl Report {
    /// The report for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = self.nodes_table();
        for n in &self.nodes {
            for line in n.missing.iter().chain(&n.problems).chain(&n.notes) {
                text.push_str(&format!("{}: {line}\n", n.name));
            }
        }
        if let Some(fabric) = &self.fabric {
            text.push_str(&format!("\n{}\n", fabric_text(fabric)));
        }
        text.push_str(&self.networks_table());
        text.push_str(&self.advertisements_table());
        if self.route_advertisements.is_empty() {
            text.push_str("no RouteAdvertisements: nothing is advertised\n");
        }
        for line in &self.definitions {
            text.push_str(&format!("{line}\n"));
        }
        text.lines()
            .map(|l| l.trim_end().to_owned() + "\n")
            .collect()
    }

    fn nodes_table(&self) -> String {
        let mut nodes = table(&[
            "NODE", "ID", "SUBNETS", "SESSIONS", "FRR", "EXPECTED", "KERNEL", "OVN", "STATE",
        ]);
        for n in &self.nodes {
            let frr: String = n.frr.chars().take(40).collect();
            nodes.add_row([
                n.name.clone(),
                known(n.node_id),
                n.subnets.join(","),
                sessions_text(n),
                frr,
                known(n.expected),
                known(n.in_kernel),
                known(n.in_ovn),
                if n.is_well() { "ok" } else { "NOT OK" }.to_owned(),
            ]);
        }
        format!("{nodes}\n")
    }

    fn networks_table(&self) -> String {
        let mut networks = table(&[
            "NETWORK",
            "ID",
            "TRANSPORT",
            "ROUTING",
            "NODES",
            "NAMESPACES",
            "CREATED",
            "ACCEPTED",
            "MESSAGE",
        ]);
        for n in &self.networks {
            let transport = n.transport.map(|transport| format!("{transport:?}"));
            let routing = n.routing.map(|routing| format!("{routing:?}"));
            let subnets = n.nodes_with_subnets;
            networks.add_row([
                n.name.clone(),
                known(n.id),
                known(transport),
                applies(routing),
                applies(subnets.map(|with| format!("{with}/{}", self.nodes.len()))),
                n.namespaces.join(","),
                applies(n.created),
                known(n.accepted),
                n.message.clone(),
            ]);
        }
        let mut text = format!("\n{networks}\n");
        for n in &self.networks {
            for refused in &n.configuration_refused {
                text.push_str(&format!("{}: configuration refused: {refused}\n", n.name));
            }
        }
        text
    }

    fn advertisements_table(&self) -> String {
        let mut ras = table(&[
            "ROUTEADVERTISEMENTS",
            "ACCEPTED",
            "COMPLETE",
            "SESSIONSUP",
            "MESSAGE",
        ]);
        for ra in &self.route_advertisements {
            ras.add_row([
                ra.name.clone(),
                ra.accepted.to_string(),
                ra.complete.to_string(),
                applies(ra.sessions_up.as_ref().map(|word| word.to_lowercase())),
                ra.message.clone(),
            ]);
        }
        format!("\n{ras}\n")
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table
}

fn known<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| value.to_string())
}

fn applies<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn sessions_text(node: &NodeLine) -> String {
    if node.knows_sessions() {
        format!("{}/{}", node.sessions_up, node.sessions)
    } else {
        "?".to_owned()
    }
}

fn fabric_text(fabric: &FabricLine) -> String {
    let FabricLine {
        topology, members, ..
    } = fabric;
    let of = |words: &str, names: &[String]| match names {
        [] => String::new(),
        names => format!(", {words} {}", names.join(", ")),
    };
    format!(
        "managed fabric: {topology}, {members} nodes{}{}",
        of("route reflectors", &fabric.route_reflectors),
        of("without", &fabric.outside)
    )
}
