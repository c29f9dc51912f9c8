//! Rules, routes, addresses and chains of the host.

use super::{ALWAYS, BY_START, Line, NEVER, Stands, thing};
use crate::beside::survival::scene::Scene;

pub(super) fn things(scene: &Scene) -> Vec<Line> {
    let mut all = Vec::new();
    for (preference, stands) in [(31, NEVER), (2000, NEVER), (29, ALWAYS), (2001, ALWAYS)] {
        let put = format!("ip rule add pref {preference} from 203.0.113.0/24 lookup 8");
        let there = format!("ip rule show | grep -q ^{preference}:");
        let away = format!("ip rule del pref {preference}");
        let what = format!("a rule of preference {preference}");
        all.push(thing(&what, [&put, &there, &away], stands));
    }
    for (what, table, stands) in [
        ("a route in table 7", "7", NEVER),
        ("a route by the management port", "main", ALWAYS),
        ("a route in another table", "9", ALWAYS),
    ] {
        let route = format!(
            "203.0.113.64/26 via {} dev ovn-k8s-mp0 table {table}",
            scene.router
        );
        let there = format!("ip route show table {table} 203.0.113.64/26 | grep -q 203");
        let (put, away) = (
            format!("ip route add {route}"),
            format!("ip route del {route}"),
        );
        all.push(thing(what, [&put, &there, &away], stands));
    }
    let address = "203.0.113.65/32 dev ovn-k8s-mp0";
    let there = "ip -o address show dev ovn-k8s-mp0 | grep -q 203.0.113.65";
    let (put, away) = (
        format!("ip address add {address}"),
        format!("ip address del {address}"),
    );
    all.push(thing(
        "an address of the management port",
        [&put, there, &away],
        NEVER,
    ));
    all.extend(filter());
    all
}

fn filter() -> Vec<Line> {
    let in_table = "nft list table inet ovn-kubernetes | grep -q";
    let of = |what: &str, [put, mark, away]: [&str; 3], stands: Stands| {
        let there = format!("{in_table} {mark}");
        thing(
            what,
            [&format!("nft '{put}'"), &there, &format!("nft '{away}'")],
            stands,
        )
    };
    let rule = |chain: &str, to: &str| {
        format!("add rule inet ovn-kubernetes {chain} ip daddr {to} return")
    };
    let always = rule("mgmtport-snat", "203.0.113.66");
    let at_start = rule("ovn-kube-pod-subnet-masq", "203.0.113.67");
    let chain = "chain inet ovn-kubernetes survival-chain";
    let set = "set inet ovn-kubernetes survival-set";
    vec![
        of(
            "a chain of its own in the table",
            [
                &format!("add {chain}"),
                "survival-chain",
                &format!("delete {chain}"),
            ],
            ALWAYS,
        ),
        of(
            "a set of its own in the table",
            [
                &format!("add {set} {{ type ipv4_addr; }}"),
                "survival-set",
                &format!("delete {set}"),
            ],
            ALWAYS,
        ),
        // The chain goes with all rules that are not its own.
        of(
            "a rule in mgmtport-snat",
            [&always, "203.0.113.66", "list tables"],
            NEVER,
        ),
        of(
            "a rule in ovn-kube-pod-subnet-masq",
            [&at_start, "203.0.113.67", "list tables"],
            BY_START,
        ),
    ]
}

/// What others take away of the host's.
pub(super) fn missing() -> Vec<Line> {
    let own = "ip -o address show dev br-ex";
    let away = format!("ip address del $({own} | grep -o '169.254.0.2/[0-9]*') dev br-ex");
    let all = [
        (
            "rule of preference 30",
            "ip rule del pref 30",
            "ip rule show | grep -q '^30:'",
            BY_START,
        ),
        (
            "route to 169.254.0.1",
            "ip route del 169.254.0.1",
            "ip route show 169.254.0.1 | grep -q br-ex",
            NEVER,
        ),
        (
            "address 169.254.0.2",
            &away,
            &format!("{own} | grep -q 169.254.0.2"),
            NEVER,
        ),
    ];
    let line = |(what, put, stands_there, stands): (&str, &str, &str, Stands)| {
        thing(
            &format!("its {what} taken away"),
            [put, &format!("! {stands_there}"), "true"],
            stands,
        )
    };
    all.into_iter().map(line).collect()
}
