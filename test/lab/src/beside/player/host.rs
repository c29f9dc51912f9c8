//! What the imitation keeps of a node's host.
//!
//! In: rules, routes, addresses and chains of the handover. Out: commands of `ip` and `nft`. Invariant: preferences, tables, devices and
//! chains that are not named here are others'. Not here: when.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::run::tool;
use crate::state::Lab;

/// Preferences of its rules; the first is looked at when it starts only.
const AT_START: &str = "30:";
const PREFERENCES: [&str; 2] = ["31:", "2000:"];
/// Its table of routes.
const TABLE: &str = "7";
const PORT: &str = "ovn-k8s-mp0";
const BRIDGE: &str = "br-ex";
const NFT_TABLE: &str = "inet ovn-kubernetes";
/// A chain that it writes whole again and again, and those that it writes when it starts.
const CHAIN: &str = "mgmtport-snat";
const HOOK: &str = "{ type nat hook postrouting priority srcnat; policy accept; }";
const POD_SUBNETS: &str = "ovn-kube-pod-subnet-masq";
const CHAINS_AT_START: [&str; 2] = ["ovn-kube-local-gw-masq", POD_SUBNETS];

/// What it has of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Host {
    /// Lines of `ip rule` by family.
    rules: BTreeMap<String, BTreeSet<String>>,
    /// Lines of `ip route` of its table, and of its devices in the main table, by family.
    table: BTreeMap<String, BTreeSet<String>>,
    main: BTreeMap<String, BTreeSet<String>>,
    /// Addresses of its management port, and its own of the bridge.
    port: BTreeSet<String>,
    bridge: BTreeSet<String>,
    /// VRF devices.
    vrfs: BTreeSet<String>,
    /// Rules of its chains.
    chains: BTreeMap<String, Vec<String>>,
}

const FAMILIES: [&str; 2] = ["-4", "-6"];

/// Runs something on the node.
struct Shell(String);

impl Shell {
    fn run(&self, program: &str, words: &str) -> Result<String> {
        tool(program).words(words).inside(&self.0).run()
    }

    /// Lines; none where there is no such table or device.
    fn lines(&self, program: &str, words: &str) -> BTreeSet<String> {
        let said = self.run(program, words).unwrap_or_default();
        let lines = said
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.filter(|line| !line.is_empty()).collect()
    }

    fn addresses(&self, device: &str) -> BTreeSet<String> {
        let lines = self.lines("ip", &format!("-o address show dev {device} scope global"));
        let of_line = |line: &String| line.split(' ').nth(3).map(str::to_owned);
        lines.iter().filter_map(of_line).collect()
    }
}

/// Makes the chain by which whatever leaves for the management port bears its address, as OVN-Kubernetes has it but for its exceptions
/// (node ports and Services with `externalTrafficPolicy: Local`), and the one for pods' subnets, which over tunnels is empty in shared
/// gateway mode.
pub(super) fn make_chains(lab: &Lab, node: &str) -> Result<()> {
    let shell = Shell(lab.namespace(node));
    let mut batch = format!(
        "add table {NFT_TABLE}\nadd chain {NFT_TABLE} {POD_SUBNETS}\nadd chain {NFT_TABLE} {CHAIN} {HOOK}\n\
         flush chain {NFT_TABLE} {CHAIN}\nadd rule {NFT_TABLE} {CHAIN} oifname != \"{PORT}\" return\n"
    );
    for address in shell.addresses(PORT) {
        let address = address.split('/').next().unwrap_or_default();
        let family = if address.contains(':') { "ip6" } else { "ip" };
        writeln!(
            batch,
            "add rule {NFT_TABLE} {CHAIN} {family} saddr {address} return"
        )?;
        writeln!(
            batch,
            "add rule {NFT_TABLE} {CHAIN} snat {family} to {address}"
        )?;
    }
    tool("nft")
        .words("-f -")
        .input(batch)
        .inside(&shell.0)
        .run()
        .map(drop)
}

/// Takes away by what our own daemons, which built the network, have the host send to pods, and makes what OVN-Kubernetes has for that and
/// for Services by a mark. Not made: its routes to Services over the bridge, whose flows it has and our daemons do not.
pub(super) fn make_ways(lab: &Lab, node: &str) -> Result<()> {
    let shell = Shell(lab.namespace(node));
    let services = crate::services::ranges(lab)?;
    for (family, own, to_host, by_port) in [
        ("-4", "169.254.0.2/17", "169.254.0.1", "169.254.0.3"),
        ("-6", "fd69::2/112 nodad", "fd69::1", "fd69::3"),
    ] {
        let mut of_family = services.split(',');
        let subnet = of_family.find(|range| range.contains(':') == own.contains(':'));
        let built = shell.lines("ip", &format!("{family} route show table {TABLE}"));
        let way = |line: &String| {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                [to, "via", hop, "dev", PORT, ..] => Some(((*to).to_owned(), (*hop).to_owned())),
                _ => None,
            }
        };
        let ip = |words: &str| shell.run("ip", &format!("{family} {words}"));
        let rules = ip("rule show")?;
        let has_rule = |(to, _): &(String, String)| rules.contains(&format!("to {to} iif lo"));
        for (to, hop) in built.iter().filter_map(way).filter(has_rule) {
            ip(&format!("route del {to} table {TABLE}"))?;
            ip(&format!("rule del pref 31 to {to}"))?;
            ip(&format!("route replace {to} via {hop} dev {PORT}"))?;
            ip("rule add pref 30 fwmark 0x1745ec lookup 7")?;
            if let Some(subnet) = subnet {
                ip(&format!(
                    "route replace {subnet} via {hop} dev {PORT} table {TABLE}"
                ))?;
            }
            ip(&format!("address replace {own} dev {BRIDGE}"))?;
            ip(&format!("route replace {to_host} dev {BRIDGE}"))?;
            ip(&format!("route replace {by_port} via {hop} dev {PORT}"))?;
        }
    }
    Ok(())
}

impl Host {
    pub(super) fn read(lab: &Lab, node: &str) -> Self {
        Self::of(&Shell(lab.namespace(node)))
    }

    fn of(shell: &Shell) -> Self {
        let by_family = |words: &str, is_own: &dyn Fn(&String) -> bool| {
            let of = |family: &&str| {
                let lines = shell.lines("ip", &format!("{family} {words}"));
                (
                    (*family).to_owned(),
                    lines.into_iter().filter(is_own).collect(),
                )
            };
            FAMILIES.iter().map(of).collect()
        };
        let is_own_rule = |line: &String| {
            let mut all = PREFERENCES.iter().chain([&AT_START]);
            all.any(|preference| line.starts_with(preference))
        };
        let is_own_route = |line: &String| {
            let by_device = [PORT, BRIDGE]
                .iter()
                .any(|device| line.contains(&format!("dev {device}")));
            let by_others = ["proto kernel", "proto bgp", "proto 78", "proto ra"];
            by_device && !by_others.iter().any(|proto| line.contains(proto))
        };
        let vrfs = shell.lines("ip", "-o link show type vrf");
        let name = |line: &String| Some(line.split(' ').nth(1)?.trim_end_matches(':').to_owned());
        Self {
            rules: by_family("rule show", &is_own_rule),
            table: by_family(&format!("route show table {TABLE}"), &|_| true),
            main: by_family("route show table main", &is_own_route),
            port: shell.addresses(PORT),
            bridge: (shell.addresses(BRIDGE).into_iter())
                .filter(|text| text.starts_with("169.254.") || text.starts_with("fd69::"))
                .collect(),
            vrfs: vrfs.iter().filter_map(name).collect(),
            chains: chains(
                &shell
                    .run("nft", &format!("-s list table {NFT_TABLE}"))
                    .unwrap_or_default(),
            ),
        }
    }

    /// Makes it again what it was at the handover, as far as OVN-Kubernetes does; it looks at more when it starts.
    pub(super) fn repair(&self, lab: &Lab, node: &str, at_start: bool) -> Result<()> {
        let shell = Shell(lab.namespace(node));
        for (program, words) in self.commands(&Self::of(&shell), at_start) {
            shell.run(program, &words)?;
        }
        let batch = self.chains_to_write(&Self::of(&shell), at_start);
        if !batch.is_empty() {
            let nft = tool("nft").words("-f -").input(batch);
            nft.inside(&shell.0).run()?;
        }
        Ok(())
    }

    fn commands(&self, now: &Self, at_start: bool) -> Vec<(&'static str, String)> {
        let mut out = Vec::new();
        let mut ip = |words: String| out.push(("ip", words));
        let none = BTreeSet::new();
        for family in FAMILIES {
            let of =
                |all: &BTreeMap<String, BTreeSet<String>>| all.get(family).unwrap_or(&none).clone();
            let (own, rules) = (of(&self.rules), of(&now.rules));
            for rule in rules
                .difference(&own)
                .filter(|rule| !rule.starts_with(AT_START))
            {
                ip(format!("{family} rule del {}", rule_words(rule)));
            }
            for rule in own
                .difference(&rules)
                .filter(|rule| at_start || !rule.starts_with(AT_START))
            {
                ip(format!("{family} rule add {}", rule_words(rule)));
            }
            let (own, routes) = (of(&self.table), of(&now.table));
            for route in routes.difference(&own) {
                ip(format!("{family} route del {route} table {TABLE}"));
            }
            for route in own.difference(&routes) {
                ip(format!("{family} route replace {route} table {TABLE}"));
            }
        }
        for address in now.port.difference(&self.port) {
            ip(format!("address del {address} dev {PORT}"));
        }
        for address in self.port.difference(&now.port) {
            ip(format!("address add {address} dev {PORT}"));
        }
        for address in self.bridge.difference(&now.bridge) {
            ip(format!("address add {address} dev {BRIDGE}"));
        }
        for vrf in now.vrfs.difference(&self.vrfs) {
            ip(format!("link del {vrf}"));
        }
        for family in FAMILIES {
            let of =
                |all: &BTreeMap<String, BTreeSet<String>>| all.get(family).unwrap_or(&none).clone();
            for route in of(&self.main).difference(&of(&now.main)) {
                ip(format!("{family} route replace {route}"));
            }
        }
        out
    }

    fn chains_to_write(&self, now: &Self, at_start: bool) -> String {
        let mut batch = String::new();
        for (name, rules) in &self.chains {
            let is_due = name == CHAIN || at_start;
            if !is_due || now.chains.get(name) == Some(rules) {
                continue;
            }
            let hook = if name == CHAIN { HOOK } else { "" };
            writeln!(
                batch,
                "add table {NFT_TABLE}\nadd chain {NFT_TABLE} {name} {hook}\nflush chain {NFT_TABLE} {name}"
            )
            .unwrap_or_default();
            for rule in rules {
                writeln!(batch, "add rule {NFT_TABLE} {name} {rule}").unwrap_or_default();
            }
        }
        batch
    }
}

/// `PREFERENCE: from all ...` as `ip rule add` takes it.
fn rule_words(line: &str) -> String {
    match line.split_once(':') {
        Some((preference, rule)) => format!("pref {preference} {}", rule.trim()),
        None => line.to_owned(),
    }
}

/// Rules of the chains that it writes.
fn chains(listing: &str) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    let mut lines = listing.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        let ["chain", name, "{"] = words.as_slice() else {
            continue;
        };
        let rules = lines.by_ref().take_while(|line| *line != "}");
        let rules = rules.filter(|line| !line.is_empty() && !line.starts_with("type "));
        let rules: Vec<String> = rules.map(str::to_owned).collect();
        if *name == CHAIN || CHAINS_AT_START.contains(name) {
            all.insert((*name).to_owned(), rules);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_did_to_the_host_is_undone_as_far_as_it_is_looked_at() {
        let of = |lines: &[&str]| -> BTreeMap<String, BTreeSet<String>> {
            let lines = lines.iter().map(|line| (*line).to_owned()).collect();
            [("-4".to_owned(), lines)].into()
        };
        let found = Host {
            rules: of(&["30: from all fwmark 0x1745ec lookup 7"]),
            table: of(&["172.31.0.0/16 via 10.128.0.1 dev ovn-k8s-mp0"]),
            port: ["10.128.0.2/24".to_owned()].into(),
            ..Host::default()
        };
        let now = Host {
            rules: of(&["31: from all lookup 9"]),
            table: of(&["192.0.2.0/24 dev br-ex"]),
            port: ["10.128.0.2/24".to_owned(), "192.0.2.7/32".to_owned()].into(),
            ..Host::default()
        };
        let words = |at_start: bool| -> Vec<String> {
            let all = found.commands(&now, at_start).into_iter();
            all.map(|(_, words)| words).collect()
        };
        let rest = [
            "-4 route del 192.0.2.0/24 dev br-ex table 7",
            "-4 route replace 172.31.0.0/16 via 10.128.0.1 dev ovn-k8s-mp0 table 7",
            "address del 192.0.2.7/32 dev ovn-k8s-mp0",
        ];
        let own = "-4 rule del pref 31 from all lookup 9";
        let at_start = "-4 rule add pref 30 from all fwmark 0x1745ec lookup 7";
        assert_eq!(words(false), [&[own], &rest[..]].concat());
        assert_eq!(words(true), [&[own, at_start], &rest[..]].concat());
    }

    #[test]
    fn chains_are_read_without_their_hooks_and_written_whole() {
        let listing = "table inet ovn-kubernetes {\n\tset s {\n\t\ttype ipv4_addr\n\t}\n\tchain mgmtport-snat {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n\t\toifname != \"ovn-k8s-mp0\" return\n\t}\n\tchain other {\n\t\taccept\n\t}\n}\n";
        let found = Host {
            chains: chains(listing),
            ..Host::default()
        };
        assert_eq!(
            found.chains["mgmtport-snat"],
            [r#"oifname != "ovn-k8s-mp0" return"#]
        );
        assert_eq!(found.chains.len(), 1);
        assert_eq!(found.chains_to_write(&found, true), "");
        let batch = found.chains_to_write(&Host::default(), false);
        assert_eq!(
            batch,
            "add table inet ovn-kubernetes\nadd chain inet ovn-kubernetes mgmtport-snat { type nat hook postrouting priority srcnat; policy accept; }\nflush chain inet ovn-kubernetes mgmtport-snat\nadd rule inet ovn-kubernetes mgmtport-snat oifname != \"ovn-k8s-mp0\" return\n"
        );
    }
}
