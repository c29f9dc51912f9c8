//! What FRR runs and a file does not have any more: neighbors, networks, route-maps and prefix-lists as a whole.
//! In: bgpd's running configuration, the text of frr.conf. Out: commands that take them away, for one run of vtysh.
//! Invariant: only what is wholly absent from the file is named; everything else is left to FRR's reload tool.
//! Not here: running the commands (`reload`).
//!
//! The tool starts a vtysh for each line that it deletes, and once more for each word of a line that went with another:
//! one neighbor costs it seconds, a thousand many minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::Prefix;

/// What a text has of each kind.
#[derive(Debug, Default)]
struct Outline {
    /// Of each `router bgp` line.
    routers: BTreeMap<String, Router>,
    /// `route-map NAME`, `ip prefix-list NAME`, `ipv6 prefix-list NAME`.
    named: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Router {
    neighbors: BTreeSet<String>,
    /// Address family and prefix.
    networks: BTreeSet<(String, String)>,
}

/// Commands for what is too much; empty where nothing is.
pub(crate) fn commands(running: &str, wanted: &str) -> String {
    let (running, wanted) = (lift(running), lift(wanted));
    let mut out = String::new();
    let mut say = |line: &str| {
        out.push_str(line);
        out.push('\n');
    };
    for (header, router) in &running.routers {
        // A router that goes as a whole, or changes its number, is the tool's to judge.
        let Some(kept) = wanted.routers.get(header) else {
            continue;
        };
        let networks: Vec<_> = router.networks.difference(&kept.networks).collect();
        let neighbors: Vec<_> = router.neighbors.difference(&kept.neighbors).collect();
        if networks.is_empty() && neighbors.is_empty() {
            continue;
        }
        say(header);
        for peer in neighbors {
            say(&format!(" no neighbor {peer}"));
        }
        for (family, prefix) in networks {
            say(&format!(
                " {family}\n  no network {prefix}\n exit-address-family"
            ));
        }
        say("exit");
    }
    for name in running.named.difference(&wanted.named) {
        say(&format!("no {name}"));
    }
    out
}

fn lift(text: &str) -> Outline {
    let mut out = Outline::default();
    let mut header: Option<String> = None;
    let mut family = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["router", "bgp", ..] => {
                header = Some(words.join(" "));
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
            ["address-family", ..] => family = words.join(" "),
            ["exit-address-family"] => family.clear(),
            ["exit" | "end"] => header = None,
            ["bfd"] | ["vrf", ..] | ["interface", ..] => header = None,
            ["neighbor", peer, rest @ ..] => {
                // Peers over interfaces and peer-groups have rules of their own about how they go.
                if let (Some(header), Ok(ip)) = (&header, peer.parse::<IpAddr>())
                    && !rest.contains(&"peer-group")
                {
                    let router = out.routers.entry(header.clone()).or_default();
                    router.neighbors.insert(ip.to_string());
                }
            }
            ["network", prefix] => {
                if let (Some(header), false) = (&header, family.is_empty()) {
                    let text = prefix
                        .parse::<Prefix>()
                        .map_or((*prefix).to_owned(), |p| p.to_string());
                    let router = out.routers.entry(header.clone()).or_default();
                    router.networks.insert((family.clone(), text));
                }
            }
            _ => {}
        }
    }
    out
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
}
