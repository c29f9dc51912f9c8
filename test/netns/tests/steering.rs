//! Rules and routes beside OVN-Kubernetes: what is wanted is there, a second time nothing happens, what is others' stays.
//!
//! In: wishes. Out: the kernel as `ip` shows it. Invariant: `ip` is right. Not here: who wants it, and packets.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

use model::route::MAIN_TABLE;
use model::steering::{Entries, Route, Rule, TABLE, preference};
use netlink::steering::{Steered, SteeringError, apply};
use netns_tests::{absent, in_namespace, ip};

const DEVICE: &str = "ovn-k8s-mp0";

fn mk_wanted() -> Entries {
    let mut wanted = Entries::default();
    let networks = [
        ("10.128.0.0/16", "10.128.1.0/24", "10.128.1.1"),
        ("fd00:10:128::/48", "fd00:10:128:1::/64", "fd00:10:128:1::1"),
    ];
    for (net, own, via) in networks {
        let net = net.parse().unwrap();
        let main = |preference| Rule {
            preference,
            from: None,
            to: net,
            device: None,
            table: MAIN_TABLE,
            suppress: Some(16),
        };
        wanted.rules.extend([
            Rule {
                from: Some(net),
                ..main(preference::PODS)
            },
            Rule {
                device: Some("lo".to_owned()),
                ..main(preference::HOST)
            },
            Rule {
                to: own.parse().unwrap(),
                ..main(preference::OWN)
            },
            Rule {
                table: TABLE,
                suppress: None,
                ..main(preference::TUNNEL)
            },
        ]);
        wanted.routes.insert(Route {
            table: TABLE,
            to: net,
            via: via.parse().unwrap(),
            device: DEVICE.to_owned(),
        });
    }
    wanted
}

fn mk_port() {
    ip(&format!("link add {DEVICE} type veth peer name inside"));
    ip("link set inside up");
    ip(&format!("link set {DEVICE} up"));
    ip(&format!("addr add 10.128.1.2/24 dev {DEVICE}"));
    ip(&format!("addr add fd00:10:128:1::2/64 dev {DEVICE} nodad"));
}

/// How `ip` shows it.
const WANTED: [&str; 10] = [
    "2898: from 10.128.0.0/16 to 10.128.0.0/16 lookup main suppress_prefixlength 16 proto 78",
    "2899: from all to 10.128.0.0/16 iif lo lookup main suppress_prefixlength 16 proto 78",
    "2900: from all to 10.128.1.0/24 lookup main suppress_prefixlength 16 proto 78",
    "2901: from all to 10.128.0.0/16 lookup 2900000000 proto 78",
    "10.128.0.0/16 via 10.128.1.1 dev ovn-k8s-mp0 table 2900000000 proto 78",
    "2898: from fd00:10:128::/48 to fd00:10:128::/48 lookup main suppress_prefixlength 16 proto 78",
    "2899: from all to fd00:10:128::/48 iif lo lookup main suppress_prefixlength 16 proto 78",
    "2900: from all to fd00:10:128:1::/64 lookup main suppress_prefixlength 16 proto 78",
    "2901: from all to fd00:10:128::/48 lookup 2900000000 proto 78",
    "fd00:10:128::/48 via fd00:10:128:1::1 dev ovn-k8s-mp0 table 2900000000 proto 78 metric 1024 pref medium",
];

/// What `ip` shows of ours: rules, then routes, spaces as one.
fn shown() -> Vec<String> {
    let mut all = Vec::new();
    for family in ["-4", "-6"] {
        all.push(ip(&format!("{family} rule show")));
        let routes = ip(&format!("{family} route show table all"));
        all.push(
            routes
                .lines()
                .filter(|l| l.contains("table 2900"))
                .collect(),
        );
    }
    let lines = all.iter().flat_map(|text| text.lines());
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let ours = |line: &String| {
        line.starts_with("28") || line.starts_with("29") || line.contains("table 2900")
    };
    lines.map(words).filter(ours).collect()
}

async fn done(wanted: &Entries) -> Vec<String> {
    let Steered {
        done,
        taken,
        is_table_taken,
    } = apply(wanted, true).await.unwrap();
    assert!(taken.is_empty() && !is_table_taken, "{taken:?}");
    done
}

#[test]
fn what_is_wanted_comes_stays_and_goes() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        let missing = apply(&mk_wanted(), true).await;
        assert!(
            matches!(missing, Err(SteeringError::NoDevice { ref device }) if device == DEVICE),
            "{missing:?}"
        );
        mk_port();
        let wrote = done(&mk_wanted()).await;
        assert_eq!(wrote.len(), 10, "{wrote:?}");
        assert_eq!(shown(), WANTED);
        let order = |lines: &[String]| -> Vec<bool> {
            lines.iter().map(|line| line.contains("route")).collect()
        };
        let routes_first = [[true; 2].as_slice(), &[false; 8]].concat();
        assert_eq!(
            order(&wrote),
            routes_first,
            "a rule leads to a route: {wrote:?}"
        );
        assert!(done(&mk_wanted()).await.is_empty(), "a second time");
        // What somebody takes away, doubles, loosens or changes is put right.
        for meddling in [
            "rule del pref 2901 to 10.128.0.0/16 lookup 2900000000",
            "rule add pref 2901 to 10.128.0.0/16 iif ovn-k8s-mp0 unreachable proto 78",
            "-6 rule del pref 2898 from fd00:10:128::/48 to fd00:10:128::/48 lookup main suppress_prefixlength 16",
            "rule add pref 2901 to 10.128.0.0/16 fwmark 5 lookup 2900000000 proto 78",
            "rule add pref 2898 to 10.128.0.0/16 lookup main proto 78",
            "rule add not pref 2899 to 10.128.0.0/16 lookup main proto 78",
            "route replace 10.128.0.0/16 via 10.128.1.9 dev ovn-k8s-mp0 table 2900000000 proto 78",
            "route add 10.128.0.0/16 via 10.128.1.1 dev ovn-k8s-mp0 table 2900000000 proto 78 metric 50",
            "-6 route add fd00:10:128::/48 via fd00:10:128:1::1 dev ovn-k8s-mp0 table 2900000000 proto 78 metric 50",
        ] {
            ip(meddling);
            assert_ne!(shown(), WANTED, "{meddling}");
            done(&mk_wanted()).await;
            assert_eq!(shown(), WANTED, "{meddling}");
            assert!(done(&mk_wanted()).await.is_empty(), "{meddling}");
        }
        let went = done(&Entries::default()).await;
        assert_eq!(went.len(), 10, "{went:?}");
        let preferences = went
            .iter()
            .filter_map(|line| line.split_whitespace().nth(3)?.parse().ok());
        let preferences: Vec<u32> = preferences.collect();
        assert_eq!(preferences.len(), 8, "{went:?}");
        assert!(
            preferences.is_sorted_by(|a, b| a >= b),
            "the last rule first: {went:?}"
        );
        assert!(shown().is_empty(), "{:?}", shown());
    });
}

#[test]
fn rules_and_routes_of_others_stay_and_nothing_of_ours_comes_where_one_has_our_preference() {
    if absent(&["ip"]) {
        return;
    }
    in_namespace(|| async {
        mk_port();
        // As OVN-Kubernetes has them, and somebody's.
        for rule in [
            "rule add pref 30 fwmark 0x1745ec lookup 7 proto 85",
            "rule add pref 2000 to 10.150.0.0/16 lookup 1005 proto 85",
            "rule add pref 6000 from 10.128.1.7 lookup 1002",
        ] {
            ip(rule);
        }
        ip("route add 10.128.0.0/16 via 10.128.1.1 dev ovn-k8s-mp0 proto 85");
        ip("-6 rule add pref 6000 from fd00:10:128:1::7 lookup 1002");
        let others = || {
            let of = |family: &str| {
                ip(&format!("{family} rule show")) + &ip(&format!("{family} route show table all"))
            };
            let all = of("-4") + &of("-6");
            let not_ours = |line: &&str| !line.contains("proto 78");
            let mut lines: Vec<String> = all.lines().filter(not_ours).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let before = others();
        done(&mk_wanted()).await;
        done(&Entries::default()).await;
        assert_eq!(others(), before);
        ip("rule add pref 2900 from 198.51.100.1 lookup 7");
        let steered = apply(&mk_wanted(), true).await.unwrap();
        assert_eq!(steered.taken, [2900].into());
        assert!(steered.done.is_empty(), "{:?}", steered.done);
        ip("rule del pref 2900 from 198.51.100.1 lookup 7");
        // In the very place of ours.
        ip("route add 10.128.0.0/16 dev ovn-k8s-mp0 table 2900000000 proto static");
        let before = others();
        let steered = apply(&mk_wanted(), true).await.unwrap();
        assert!(
            steered.is_table_taken && steered.done.is_empty(),
            "{steered:?}"
        );
        assert_eq!(others(), before);
        ip("route del 10.128.0.0/16 dev ovn-k8s-mp0 table 2900000000 proto static");
        assert_eq!(done(&mk_wanted()).await.len(), 10);
        // While ours stand: they stay, and what goes still can.
        ip("rule add pref 2901 from 198.51.100.1 lookup 7");
        let steered = apply(&mk_wanted(), true).await.unwrap();
        assert!(
            steered.taken == [2901].into() && steered.done.is_empty(),
            "{steered:?}"
        );
        ip("rule del pref 2901 from 198.51.100.1 lookup 7");
        // Not all networks are known: what is not wanted stays, and what is comes back.
        let steered = apply(&Entries::default(), false).await.unwrap();
        assert!(steered.done.is_empty(), "{steered:?}");
        ip("rule del pref 2898");
        let steered = apply(&mk_wanted(), false).await.unwrap();
        assert_eq!(steered.done.len(), 1, "{steered:?}");
        let steered = apply(&Entries::default(), true).await.unwrap();
        assert_eq!(steered.done.len(), 10, "{steered:?}");
    });
}
