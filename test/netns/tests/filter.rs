//! The packet filter: what is wanted stands, what is others' stays, and nothing is written twice.
//!
//! In: rulesets. Out: the table as `nft` shows it, and events of the kernel. Invariant: `nft` is right.
//! Not here: who wants it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use host::nft;
use model::Family;
use model::gateway::GatewayMode;
use model::nft::{AddressSet, Chain, Hook, Ruleset};
use netlink::FilterWatcher;
use netns_tests::translation::{Commits, Table};
use netns_tests::{absent, in_namespace, run};
use testkit::{View, mk_dual_view, mk_snapshot, mk_user_network, mk_view};

fn nft_command(words: &str) -> String {
    run(Command::new("nft").args(words.split_whitespace()))
}

fn set(family: Family, elements: &[&str]) -> AddressSet {
    let elements: BTreeSet<_> = elements.iter().map(|text| text.parse().unwrap()).collect();
    AddressSet { family, elements }
}

fn chain(hook: Option<(&'static str, &'static str, i32)>, rules: &[&str]) -> Chain {
    Chain {
        hook: hook.map(|(kind, hook, priority)| Hook {
            kind,
            hook,
            priority,
        }),
        rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
    }
}

fn sets() -> BTreeMap<String, AddressSet> {
    let sets = [
        (
            "no-overlay-snat-exempt-v4",
            set(
                Family::V4,
                &["10.128.0.0/16", "10.128.1.0/24", "172.30.0.1/32"],
            ),
        ),
        (
            "no-overlay-snat-exempt-v6",
            set(Family::V6, &["fd00:10::/48", "fd00:30::1/128"]),
        ),
        (
            "advertised-udn-subnets-v4",
            set(Family::V4, &["10.150.0.0/16", "10.151.0.0/16"]),
        ),
    ];
    sets.map(|(name, set)| (name.to_owned(), set)).into()
}

/// What a node in local gateway mode wants, with elements that overlap.
fn wanted() -> Ruleset {
    let chains = [
        (
            "ovn-kube-local-gw-masq",
            chain(
                Some(("nat", "postrouting", 101)),
                &["jump ovn-kube-pod-subnet-masq", "jump ovn-kube-udn-masq"],
            ),
        ),
        (
            "ovn-kube-pod-subnet-masq",
            chain(
                None,
                &[
                    "ip saddr 10.128.1.0/24 ip daddr @no-overlay-snat-exempt-v4 return",
                    "ip saddr 10.128.1.0/24 masquerade",
                    "ip6 saddr fd00:10:0:1::/64 ip6 daddr @no-overlay-snat-exempt-v6 return",
                    "ip6 saddr fd00:10:0:1::/64 masquerade",
                ],
            ),
        ),
        (
            "ovn-kube-udn-masq",
            chain(
                None,
                &[
                    "ip saddr != 169.254.0.0/29 ip daddr != 172.31.0.0/16 ip saddr 169.254.0.0/17 masquerade",
                ],
            ),
        ),
        (
            "udn-bgp-drop",
            chain(
                Some(("filter", "output", 0)),
                &["ct state new ip daddr @advertised-udn-subnets-v4 drop"],
            ),
        ),
    ];
    Ruleset {
        table: model::nft::Table::Shared,
        sets: sets(),
        chains: chains.map(|(name, chain)| (name.to_owned(), chain)).into(),
    }
}

async fn apply(wanted: &Ruleset) -> bool {
    let held = nft::read(model::nft::Table::Shared).await.unwrap();
    nft::apply(&held, wanted, true).await.unwrap()
}

#[test]
fn a_ruleset_is_written_once_and_repaired_by_what_differs() {
    if absent(&["nft"]) {
        return;
    }
    in_namespace(|| async {
        nft_command("add table inet ovn-kubernetes");
        nft_command("add chain inet ovn-kubernetes others");
        nft_command("add rule inet ovn-kubernetes others counter accept");
        assert!(apply(&wanted()).await);
        let shown = nft_command("list table inet ovn-kubernetes");
        assert!(
            shown.contains("ip saddr 10.128.1.0/24 masquerade"),
            "{shown}"
        );
        assert!(
            !apply(&wanted()).await,
            "read back as it was written: {shown}"
        );
        nft_command("flush chain inet ovn-kubernetes ovn-kube-pod-subnet-masq");
        nft_command("delete element inet ovn-kubernetes no-overlay-snat-exempt-v4 { 172.30.0.1 }");
        assert!(apply(&wanted()).await);
        assert_eq!(nft_command("list table inet ovn-kubernetes"), shown);
        assert!(apply(&Ruleset::default()).await);
        let left = nft_command("list table inet ovn-kubernetes");
        assert!(
            left.contains("chain others") && !left.contains("masq"),
            "{left}"
        );
        assert!(!left.contains("set "), "{left}");
    });
}

#[test]
fn a_refused_ruleset_changes_nothing() {
    if absent(&["nft"]) {
        return;
    }
    in_namespace(|| async {
        assert!(apply(&wanted()).await);
        let shown = nft_command("list table inet ovn-kubernetes");
        let mut bad = wanted();
        let chain = bad.chains.get_mut("ovn-kube-pod-subnet-masq").unwrap();
        chain.rules = vec!["ip saddr 10.0.0.0/8 jump nowhere".to_owned()];
        let held = nft::read(model::nft::Table::Shared).await.unwrap();
        let error = nft::apply(&held, &bad, true).await.unwrap_err().to_string();
        assert!(
            error.starts_with("nft failed: ") && error.contains("nowhere"),
            "{error}"
        );
        assert_eq!(nft_command("list table inet ovn-kubernetes"), shown);
    });
}

#[test]
fn a_change_by_hand_is_told() {
    if absent(&["nft"]) {
        return;
    }
    in_namespace(|| async {
        assert!(apply(&wanted()).await);
        let mut watcher = FilterWatcher::open().unwrap();
        let quiet = tokio::time::timeout(Duration::from_millis(200), watcher.changed()).await;
        assert!(quiet.is_err(), "nothing happened");
        nft_command("flush chain inet ovn-kubernetes ovn-kube-udn-masq");
        let told = tokio::time::timeout(Duration::from_secs(5), watcher.changed()).await;
        told.unwrap().unwrap();
    });
}

/// Node n1 in local gateway mode, with the default network and one of users that is advertised, both families.
fn planned(outbound_snat: bool) -> Ruleset {
    let mut view = mk_view(1);
    view.no_overlay(|options| options.outbound_snat = outbound_snat);
    view.add_subnet("fd00:10:128::/48/64");
    view.share
        .host_subnets
        .push("fd00:10:128:1::/64".parse().unwrap());
    let node = &mut view.node;
    node.mode = GatewayMode::Local;
    node.service_cidrs = ["172.31.0.0/16", "fd02::/112"]
        .map(|text| text.parse().unwrap())
        .into();
    for number in 1..=3 {
        node.node_addresses
            .insert(format!("fd00:30::{number}").parse().unwrap());
    }
    let subnets = ["10.200.0.0/16/24", "fd00:200::/48/64"];
    let join = ["100.65.0.0/16", "fd99::/64"];
    let mut blue = view.share.clone();
    blue.network = mk_user_network("cluster_udn_blue", 1, &subnets, &join);
    blue.host_subnets = vec!["10.200.1.0/24".parse().unwrap()];
    let snapshot = mk_snapshot(&view.node, &[view.share.clone(), blue]);
    plan_node::plan(&snapshot).nft
}

#[test]
fn what_is_planned_is_taken_by_nft_and_shown_as_it_is_spelled() {
    if absent(&["nft"]) {
        return;
    }
    in_namespace(|| async {
        for outbound_snat in [true, false, true] {
            let wanted = planned(outbound_snat);
            assert_eq!(wanted.chains.len(), 4, "{wanted:?}");
            assert!(apply(&wanted).await);
            let shown = nft_command("list table inet ovn-kubernetes");
            assert!(!apply(&wanted).await, "{shown}");
            for chain in wanted.chains.values() {
                for rule in &chain.rules {
                    assert!(shown.contains(rule), "{rule}: {shown}");
                }
            }
            let set = if outbound_snat {
                "no-overlay-snat-exempt"
            } else {
                "remote-node-ips"
            };
            assert!(shown.contains(&format!("set {set}-v6")), "{shown}");
        }
    });
}

/// What comes is one commit, and what goes another one, as `nft` lists what stands after each; between two commits the kernel is in
/// no other state.
#[test]
fn no_commit_to_the_filter_translates_from_pod_to_pod_and_what_goes_goes_after_what_comes() {
    if absent(&["nft"]) {
        return;
    }
    let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
    let (own, own6) = (ip("10.128.1.5"), ip("fd00:10:128:1::5"));
    let to_pods = [(own, ip("10.128.2.5")), (own6, ip("fd00:10:128:2::5"))];
    let outside = [(own, ip("198.51.100.7")), (own6, ip("2001:db8::7"))];
    let to_nodes = [(own, ip("172.30.0.2")), (own6, ip("fd00:30::2"))];
    in_namespace(move || async move {
        let commits = Commits::begin();
        let all = |packets: [(IpAddr, IpAddr); 2]| {
            let table = Table::read();
            packets.map(|(from, to)| table.translates(from, to))
        };
        let mut is_first = true;
        for outbound_snat in [true, false, true, false] {
            let wanted = planned(outbound_snat);
            let first = commits.settled();
            let held = nft::read(model::nft::Table::Shared).await.unwrap();
            // As it is between the two commits: what a packet looks up that came by the former rules is there still.
            assert!(nft::apply(&held, &wanted, false).await.unwrap());
            assert_eq!(commits.settled() - first, 1);
            assert_eq!(all(to_pods), [false, false], "{outbound_snat}");
            let former = if outbound_snat {
                "remote-node-ips-v4"
            } else {
                "no-overlay-snat-exempt-v4"
            };
            let has_former = || nft_command("list table inet ovn-kubernetes").contains(former);
            assert_eq!(has_former(), !is_first);
            for (changed, count) in [(!is_first, 2), (false, 2)] {
                let held = nft::read(model::nft::Table::Shared).await.unwrap();
                assert_eq!(nft::apply(&held, &wanted, true).await.unwrap(), changed);
                let count = if is_first { 1 } else { count };
                assert_eq!(commits.settled() - first, count);
                assert_eq!(all(to_pods), [false, false], "{outbound_snat}");
            }
            assert!(!has_former());
            is_first = false;
            // The verdicts are no constants.
            assert_eq!(all(outside), [outbound_snat; 2]);
            assert_eq!(all(to_nodes), [true, true]);
            // While not all networks are known sets only grow.
            for complete in [false, true] {
                let mut grown = planned(outbound_snat);
                for set in grown.sets.values_mut() {
                    let more = ["203.0.113.0/24", "2001:db8:1::/48"].map(|p| p.parse().unwrap());
                    set.elements.extend(
                        more.into_iter()
                            .filter(|p: &model::Prefix| p.family() == set.family),
                    );
                }
                for wanted in [&grown, &wanted] {
                    let before = commits.settled();
                    let held = nft::read(model::nft::Table::Shared).await.unwrap();
                    let done = nft::apply(&held, wanted, complete).await.unwrap();
                    assert_eq!(commits.settled() - before, usize::from(done));
                    assert_eq!(all(to_pods), [false, false], "{outbound_snat} {complete}");
                }
            }
        }
    });
}

#[test]
fn one_call_that_changes_and_takes_away_is_two_commits() {
    if absent(&["nft"]) {
        return;
    }
    in_namespace(|| async {
        assert!(apply(&planned(true)).await);
        let commits = Commits::begin();
        for outbound_snat in [false, true, false] {
            let before = commits.settled();
            assert!(apply(&planned(outbound_snat)).await);
            assert_eq!(commits.settled() - before, 2, "{outbound_snat}");
        }
    });
}

/// A set as OVN-Kubernetes makes it, which does not merge neighbors: what is to go of it goes.
#[test]
fn a_set_of_somebody_else_that_does_not_merge_loses_what_is_not_wanted() {
    if absent(&["nft"]) {
        return;
    }
    in_namespace(|| async {
        let wanted = planned(true);
        assert!(apply(&wanted).await);
        let name = "no-overlay-snat-exempt-v4";
        nft_command("flush ruleset");
        nft_command("add table inet ovn-kubernetes");
        nft_command(&format!(
            "add set inet ovn-kubernetes {name} {{ type ipv4_addr; flags interval; }}"
        ));
        nft_command(&format!(
            "add element inet ovn-kubernetes {name} {{ 10.1.0.0/16, 10.5.0.0/16, 10.6.0.0/16 }}"
        ));
        assert!(apply(&wanted).await);
        assert!(!apply(&wanted).await, "nothing is left to do");
        let shown = nft_command("list table inet ovn-kubernetes");
        for gone in ["10.1.0.0", "10.5.0.0", "10.6.0.0"] {
            assert!(!shown.contains(gone), "{shown}");
        }
    });
}

/// What somebody's hand makes of the verdict, and that it is made good.
#[test]
fn an_exemption_that_is_taken_away_is_seen_and_comes_back() {
    if absent(&["nft"]) {
        return;
    }
    let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
    in_namespace(move || async move {
        let translated = || Table::read().translates(ip("10.128.1.5"), ip("10.128.2.5"));
        assert!(apply(&planned(true)).await);
        assert!(!translated());
        nft_command(
            "delete element inet ovn-kubernetes no-overlay-snat-exempt-v4 { 10.128.0.0/16 }",
        );
        assert!(translated());
        assert!(apply(&planned(true)).await);
        assert!(!translated());
    });
}

/// A network of users of both families, in a VRF.
fn mk_user_view() -> View {
    let mut view = mk_dual_view(1);
    let subnets = ["10.150.0.0/16/24", "fd00:150::/48/64"];
    view.share.network = mk_user_network("cluster_udn_red", 12, &subnets, &["100.65.0.0/16"]);
    view.share.host_subnets = ["10.150.1.0/24", "fd00:150:0:1::/64"]
        .map(|own| own.parse().unwrap())
        .into();
    view.share.vrf = Some(plan_node::Vrf {
        device: "red".to_owned(),
        table: 1012,
    });
    view
}

/// The table that is wholly ours, beside one of somebody else: it comes, is put right, and goes as a whole.
#[test]
fn a_table_of_our_own_comes_and_goes_as_a_whole() {
    if absent(&["nft"]) {
        return;
    }
    in_namespace(|| async {
        nft_command("add table inet ovn-kubernetes");
        nft_command("add table inet somebody");
        let others = || {
            nft_command("list table inet ovn-kubernetes") + &nft_command("list table inet somebody")
        };
        let before = others();
        let mut view = mk_dual_view(1);
        // Longer than the management port's name, and behind it in the alphabet.
        view.node.gateway.bridge = "physbr-external".to_owned();
        let mut wanted = plan_node::beside::host::ruleset(view.get(), &[], true);
        let mut red = mk_user_view();
        red.node
            .gateway
            .bridge
            .clone_from(&view.node.gateway.bridge);
        let uplinks = ["physbr-red".to_owned()];
        wanted.extend(plan_node::beside::host::ruleset(red.get(), &uplinks, true));
        let table = wanted.table;
        let pass = |wanted: Ruleset| async move {
            let held = nft::read(table).await.unwrap();
            nft::apply(&held, &wanted, true).await.unwrap()
        };
        assert!(pass(wanted.clone()).await);
        let shown = nft::read(table).await.unwrap();
        assert!(shown.has_the_form_of(&wanted), "{shown:?}");
        assert!(
            !pass(wanted.clone()).await,
            "rules are spelled as nft spells them: {}",
            nft_command("list table inet noverlay")
        );
        nft_command("add chain inet noverlay strange");
        nft_command("flush chain inet noverlay guard");
        assert!(pass(wanted.clone()).await);
        let shown = nft_command("list table inet noverlay");
        assert!(
            shown.contains("ct state new drop") && !shown.contains("strange"),
            "{shown}"
        );
        let nothing = Ruleset {
            table,
            ..Ruleset::default()
        };
        assert!(pass(nothing.clone()).await);
        assert!(!nft_command("list tables").contains("noverlay"));
        assert!(!pass(nothing).await);
        assert_eq!(others(), before);
    });
}
