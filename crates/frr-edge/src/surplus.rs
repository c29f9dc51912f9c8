//! What FRR runs and a file does not have any more: neighbors, attributes of neighbors, networks, route-maps and prefix-lists
//! as a whole; and passwords that are others now.
//! In: bgpd's running configuration, the text of frr.conf. Out: commands that take them away, for one run of vtysh.
//! Invariant: only what is wholly absent from the file is named, in whatever spelling FRR reads it there; everything else is
//! left to FRR's reload tool.
//! Not here: running the commands (`reload`).
//!
//! The tool starts a vtysh for each line that it deletes, and once more for each word of a line that went with another:
//! one neighbor costs it seconds, a thousand many minutes. It passes the line as an argument, too, which everybody on the
//! host can read: so passwords are taken away, or changed, here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use model::Prefix;

/// What a text has of each kind.
#[derive(Debug, Default)]
struct Outline {
    /// Of each `router bgp` line.
    routers: BTreeMap<String, Router>,
    /// `route-map NAME`, `ip prefix-list NAME`, `ipv6 prefix-list NAME`.
    named: BTreeSet<String>,
    /// Words are shortened, as vtysh allows: what is absent cannot be reported.
    unclear: bool,
}

#[derive(Debug, Default)]
struct Router {
    /// Every address that is named.
    neighbors: BTreeSet<String>,
    /// Members of peer-groups: how they go has rules of its own.
    grouped: BTreeSet<String>,
    /// Of a neighbor, what goes with one `no`.
    attributes: BTreeSet<(String, &'static str)>,
    /// Of a neighbor, by its name.
    passwords: BTreeMap<String, String>,
    /// Address family and prefix.
    networks: BTreeSet<(String, String)>,
    /// A network stands there in a form that we do not know.
    unclear: bool,
}

/// Commands for what is too much; empty where nothing is. They hold passwords.
pub(crate) fn commands(running: &str, wanted: &str) -> String {
    let (running, wanted) = (decode(running), decode(wanted));
    if wanted.unclear {
        return String::new();
    }
    let mut out = String::new();
    for (header, router) in &running.routers {
        // A router that goes as a whole, or changes its number, is left to the tool.
        if let Some(kept) = wanted.routers.get(header) {
            let lines = surplus_of(router, kept);
            if !lines.is_empty() {
                out.push_str(&format!("{header}\n{lines}exit\n"));
            }
        }
    }
    for name in running.named.difference(&wanted.named) {
        out.push_str(&format!("no {name}\n"));
    }
    out
}

fn surplus_of(running: &Router, wanted: &Router) -> String {
    let mut out = String::new();
    let mut say = |line: String| {
        out.push_str(&line);
        out.push('\n');
    };
    for (peer, password) in &running.passwords {
        match wanted.passwords.get(peer) {
            Some(kept) if kept == password => {}
            Some(kept) => say(format!(" neighbor {peer} password {kept}")),
            None => say(format!(" no neighbor {peer} password")),
        }
    }
    for (peer, attribute) in running.attributes.difference(&wanted.attributes) {
        if wanted.neighbors.contains(peer) && !running.grouped.contains(peer) {
            say(format!(" no neighbor {peer} {attribute}"));
        }
    }
    for peer in running.neighbors.difference(&wanted.neighbors) {
        if !running.grouped.contains(peer) {
            say(format!(" no neighbor {peer}"));
        }
    }
    if !wanted.unclear {
        for (family, prefix) in running.networks.difference(&wanted.networks) {
            say(format!(
                " {family}\n  no network {prefix}\n exit-address-family"
            ));
        }
    }
    out
}

/// The family of lines that stand in a router and in no address family.
const PLAIN: &str = "address-family ipv4 unicast";

fn decode(text: &str) -> Outline {
    let mut out = Outline::default();
    let mut header: Option<String> = None;
    let mut family: Option<String> = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["router", "bgp", ..] => {
                header = Some(words.join(" "));
                family = None;
                out.routers.entry(words.join(" ")).or_default();
            }
            ["route-map", name, ..] => {
                header = None;
                out.named.insert(format!("route-map {name}"));
            }
            [family @ ("ip" | "ipv6"), "prefix-list", name, ..] => {
                header = None;
                out.named.insert(format!("{family} prefix-list {name}"));
            }
            ["address-family", name @ ("ipv4" | "ipv6")] => {
                family = Some(format!("address-family {name} unicast"));
            }
            ["address-family", ..] => family = Some(words.join(" ")),
            ["exit-address-family"] => family = None,
            ["exit" | "quit"] => {
                if family.take().is_none() {
                    header = None;
                }
            }
            ["end" | "bfd"] | ["router" | "vrf" | "interface", ..] => header = None,
            ["neighbor", peer, rest @ ..] => {
                if let Some(router) = header.as_ref().and_then(|h| out.routers.get_mut(h)) {
                    router.neighbor(peer, rest, line);
                }
            }
            ["network", rest @ ..] => {
                if let Some(router) = header.as_ref().and_then(|h| out.routers.get_mut(h)) {
                    router.network(family.as_deref().unwrap_or(PLAIN), rest);
                }
            }
            [first, ..] => out.unclear |= is_shortened(first),
            [] => {}
        }
    }
    out
}

impl Router {
    fn neighbor(&mut self, peer: &str, rest: &[&str], line: &str) {
        let ip = peer.parse::<IpAddr>().ok();
        let name = ip.map_or_else(|| peer.to_owned(), |ip| ip.to_string());
        if let ["password", ..] = rest
            && let Some((_, password)) = line.split_once(" password ")
        {
            self.passwords
                .insert(name.clone(), password.trim().to_owned());
        }
        // Peers over interfaces and peer-groups have rules of their own about how they go.
        if ip.is_none() {
            return;
        }
        if rest.contains(&"peer-group") {
            self.grouped.insert(name.clone());
        }
        let attribute = match rest {
            ["timers", "connect", ..] => Some("timers connect"),
            ["timers", ..] => Some("timers"),
            ["bfd", ..] => Some("bfd"),
            ["graceful-restart"] => Some("graceful-restart"),
            _ => None,
        };
        if let Some(attribute) = attribute {
            self.attributes.insert((name.clone(), attribute));
        }
        self.neighbors.insert(name);
    }

    fn network(&mut self, family: &str, words: &[&str]) {
        match prefix(words) {
            Some(prefix) => {
                self.networks
                    .insert((family.to_owned(), prefix.to_string()));
            }
            None => self.unclear = true,
        }
    }
}

/// The prefix of a `network` line: with a length, with a mask, or of the address's class.
fn prefix(words: &[&str]) -> Option<Prefix> {
    match words {
        [first, "mask", mask, ..] => {
            let mask: Ipv4Addr = mask.parse().ok()?;
            let bits = u32::from(mask).leading_ones();
            (u32::from(mask).count_ones() == bits).then_some(())?;
            Prefix::new(first.parse().ok()?, u8::try_from(bits).ok()?).ok()
        }
        [first, ..] if first.contains('/') => first.parse().ok(),
        [first, ..] => {
            let ip: Ipv4Addr = first.parse().ok()?;
            let bits = match ip.octets() {
                [0..=127, ..] => 8,
                [128..=191, ..] => 16,
                [192..=223, ..] => 24,
                _ => return None,
            };
            Prefix::new(ip.into(), bits).ok()
        }
        [] => None,
    }
}

/// Whether vtysh may take the word for one that is looked for here.
fn is_shortened(word: &str) -> bool {
    let full = [
        "router",
        "neighbor",
        "network",
        "address-family",
        "route-map",
        "exit-address-family",
    ];
    // These are whole words themselves.
    let whole = ["route", "exit", "no"];
    !whole.contains(&word) && full.iter().any(|f| f.starts_with(word) && *f != word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: &str = "frr version 8.4.4\nhostname n1\n!\nrouter bgp 64512\n no bgp ebgp-requires-policy\n neighbor 10.0.0.2 remote-as 64512\n neighbor 10.0.0.3 remote-as 64512\n neighbor fd00::3 remote-as 64512\n neighbor eth0 interface remote-as external\n !\n address-family ipv4 unicast\n  network 10.128.1.0/24\n  network 10.128.2.0/24\n  neighbor 10.0.0.3 activate\n exit-address-family\nexit\n!\nrouter bgp 7 vrf blue\n neighbor 10.0.0.9 remote-as 7\nexit\n!\nip prefix-list 10.0.0.2-x seq 1 permit any\nip prefix-list 10.0.0.3-x seq 1 permit any\nroute-map 10.0.0.3-in permit 3\n match ip address prefix-list 10.0.0.3-x\nexit\n!\nend\n";

    #[test]
    fn what_the_file_has_no_more_is_taken_away_as_a_whole() {
        let wanted = "router bgp 64512\n  neighbor 10.0.0.2 remote-as 64512\n  address-family ipv4 unicast\n    network 10.128.1.0/24\n  exit-address-family\nip prefix-list 10.0.0.2-x seq 1 permit any\n";
        assert_eq!(
            commands(RUNNING, wanted),
            "router bgp 64512\n no neighbor 10.0.0.3\n no neighbor fd00::3\n address-family ipv4 unicast\n  no network 10.128.2.0/24\n exit-address-family\nexit\nno ip prefix-list 10.0.0.3-x\nno route-map 10.0.0.3-in\n"
        );
    }

    #[test]
    fn nothing_is_taken_away_that_the_file_names_in_whatever_spelling() {
        assert_eq!(commands(RUNNING, RUNNING), "");
        let spelled = RUNNING.replace("fd00::3", "FD00:0::3");
        assert_eq!(commands(RUNNING, &spelled), "");
        assert_eq!(commands("", RUNNING), "");
    }

    #[test]
    fn a_router_that_goes_as_a_whole_is_left_to_the_tool() {
        let said = commands(
            RUNNING,
            "router bgp 64999\n neighbor 10.0.0.2 remote-as 1\n",
        );
        assert!(!said.contains("neighbor"), "{said}");
    }

    #[test]
    fn lines_after_a_router_do_not_count_as_its_own() {
        // In the text that we write a router has no exit line.
        let wanted = "router bgp 1\n  neighbor 10.0.0.2 remote-as 1\nbfd\n  profile fast\nrouter bgp 2 vrf x\n  neighbor 10.0.0.3 remote-as 2\n";
        let running =
            "router bgp 1\n neighbor 10.0.0.2 remote-as 1\n neighbor 10.0.0.3 remote-as 1\nexit\n";
        assert_eq!(
            commands(running, wanted),
            "router bgp 1\n no neighbor 10.0.0.3\nexit\n"
        );
    }

    const ANNOUNCED: &str = "router bgp 1\n !\n address-family ipv4 unicast\n  network 10.9.0.0/24\n exit-address-family\nexit\n";

    #[test]
    fn a_network_that_the_file_has_in_an_old_spelling_is_not_taken_away() {
        for text in [
            "router bgp 1\n network 10.9.0.0/24\n",
            "router bgp 1\n address-family ipv4 unicast\n  network 10.9.0.0/24\n exit\n",
            "router bgp 1\n address-family ipv6 unicast\n  network fd00::/64\n exit\n network 10.9.0.0/24\nexit\n",
            "router bgp 1\n address-family ipv4\n  network 10.9.0.7/24 route-map x\n exit\n",
            "router bgp 1\n network 10.9.0.0 mask 255.255.255.0\n",
            // What cannot be read stays, too.
            "router bgp 1\n network nonsense\n",
            "rou bgp 1\n netw 10.9.0.0/24\n",
        ] {
            assert_eq!(commands(ANNOUNCED, text), "", "{text}");
        }
        let classes =
            "router bgp 1\n network 10.0.0.0\n network 172.16.0.0\n network 192.168.7.0\n";
        let shown = classes
            .replace("10.0.0.0", "10.0.0.0/8")
            .replace("172.16.0.0", "172.16.0.0/16")
            .replace("192.168.7.0", "192.168.7.0/24");
        assert_eq!(commands(&shown, classes), "");
        assert!(
            commands(
                ANNOUNCED,
                "router bgp 1\nrouter ospf\n network 10.9.0.0/24 area 0\n"
            )
            .contains("no network 10.9.0.0/24"),
            "another router's network is not bgp's"
        );
    }

    #[test]
    fn a_member_of_a_peer_group_is_named_by_its_membership_and_left_to_the_tool() {
        let running = "router bgp 1\n neighbor g peer-group\n neighbor 10.0.0.2 peer-group g\n neighbor 10.0.0.2 timers 3 9\n neighbor 10.0.0.3 remote-as 1\nexit\n";
        assert_eq!(
            commands(
                running,
                "router bgp 1\n neighbor 10.0.0.3 peer-group g\n neighbor 10.0.0.2 activate\n"
            ),
            ""
        );
        assert_eq!(
            commands(running, "router bgp 1\n"),
            "router bgp 1\n no neighbor 10.0.0.3\nexit\n"
        );
    }

    #[test]
    fn attributes_that_an_existing_neighbor_has_no_more_go_in_the_same_run() {
        let running = "router bgp 1\n neighbor 10.0.0.2 remote-as 1\n neighbor 10.0.0.2 bfd\n neighbor 10.0.0.2 bfd profile fast\n neighbor 10.0.0.2 timers 3 9\n neighbor 10.0.0.2 timers connect 2\n neighbor 10.0.0.2 graceful-restart\n neighbor 10.0.0.3 remote-as 1\n neighbor 10.0.0.3 bfd\nexit\n";
        assert_eq!(
            commands(
                running,
                "router bgp 1\n neighbor 10.0.0.2 remote-as 1\n neighbor 10.0.0.2 timers 1 3\n"
            ),
            "router bgp 1\n no neighbor 10.0.0.2 bfd\n no neighbor 10.0.0.2 graceful-restart\n no neighbor 10.0.0.2 timers connect\n no neighbor 10.0.0.3\nexit\n"
        );
    }

    #[test]
    fn passwords_go_and_change_before_the_tool_sees_them() {
        let running = "router bgp 1\n neighbor 10.0.0.2 remote-as 1\n neighbor 10.0.0.2 password old\n neighbor eth0 interface remote-as 1\n neighbor eth0 password gone\n neighbor 10.0.0.4 password same\nexit\n";
        assert_eq!(
            commands(
                running,
                "router bgp 1\n neighbor 10.0.0.2 remote-as 1\n neighbor 10.0.0.2 password new\n neighbor 10.0.0.4 remote-as 1\n neighbor 10.0.0.4 password same\n neighbor eth0 interface remote-as 1\n"
            ),
            "router bgp 1\n neighbor 10.0.0.2 password new\n no neighbor eth0 password\nexit\n"
        );
    }
}
