//! What each kind of route becomes, evaluated by hand: nothing of the product is asked what is right.
//!
//! In: a table of `ip` commands with the rows that they ask for, written down here. Out: the kernel as `ip -j route` shows it,
//! the database as `ovn-nbctl` shows it. Invariant: neither of the two readers shares code with the import.
//! Not here: that any order of events ends the same (`interleave`).

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use import_tests::{Agent, AgentConfig, PATIENCE, ROUTER, Testbed, absent};
use model::Prefix;
use model::nb::{Columns, Value as Column};
use netns_tests::{in_namespace, ip, ip_batch};
use serde_json::Value;

/// `ip` commands, and the next hops that OVN must have for the destination afterwards.
type Act = (&'static [&'static str], &'static [&'static str]);

/// A destination: how it comes, and how it changes.
struct Case {
    what: &'static str,
    to: &'static str,
    first: Act,
    then: Act,
}

const fn case(what: &'static str, to: &'static str, first: Act, then: Act) -> Case {
    Case {
        what,
        to,
        first,
        then,
    }
}

/// `T` stands for the destination. `br-ex` is the gateway's link, `d1` another one.
const CASES: &[Case] = &[
    case(
        "a node's pods, which move to another node",
        "10.128.2.0/24",
        (
            &["route add T via 172.30.0.2 proto bgp metric 20"],
            &["172.30.0.2"],
        ),
        (
            &["route replace T via 172.30.0.3 proto bgp metric 20"],
            &["172.30.0.3"],
        ),
    ),
    case(
        "equal paths, of which one goes",
        "192.0.2.0/24",
        (
            &["route add T proto bgp metric 20 nexthop via 172.30.0.2 nexthop via 172.30.0.3"],
            &["172.30.0.2", "172.30.0.3"],
        ),
        (
            &["route replace T via 172.30.0.3 proto bgp metric 20"],
            &["172.30.0.3"],
        ),
    ),
    case(
        "paths over two links, of which the gateway's goes",
        "192.0.3.0/24",
        (
            &["route add T proto bgp metric 20 nexthop via 172.30.0.2 nexthop via 198.51.100.2"],
            &["172.30.0.2"],
        ),
        (
            &["route replace T via 198.51.100.2 proto bgp metric 20"],
            &[],
        ),
    ),
    case(
        "over another link, then over the gateway's",
        "192.0.4.0/24",
        (&["route add T via 198.51.100.2 proto bgp metric 20"], &[]),
        (
            &["route replace T via 172.30.0.2 proto bgp metric 20"],
            &["172.30.0.2"],
        ),
    ),
    case(
        "a blackhole, then a way",
        "192.0.5.0/24",
        (&["route add blackhole T proto bgp metric 20"], &[]),
        (
            &[
                "route del blackhole T proto bgp metric 20",
                "route add T via 172.30.0.2 proto bgp metric 20",
            ],
            &["172.30.0.2"],
        ),
    ),
    case(
        "a way, then a blackhole",
        "192.0.6.0/24",
        (
            &["route add T via 172.30.0.2 proto bgp metric 20"],
            &["172.30.0.2"],
        ),
        (
            &[
                "route del T proto bgp metric 20",
                "route add blackhole T proto bgp metric 20",
            ],
            &[],
        ),
    ),
    case(
        "two metrics, of which the lower goes",
        "192.0.7.0/24",
        (
            &[
                "route add T via 172.30.0.2 proto bgp metric 20",
                "route add T via 172.30.0.3 proto bgp metric 30",
            ],
            &["172.30.0.2"],
        ),
        (&["route del T proto bgp metric 20"], &["172.30.0.3"]),
    ),
    case(
        "a lower metric over another link hides the gateway's",
        "192.0.8.0/24",
        (
            &[
                "route add T via 172.30.0.2 proto bgp metric 30",
                "route add T via 198.51.100.2 proto bgp metric 20",
            ],
            &[],
        ),
        (&["route del T proto bgp metric 20"], &["172.30.0.2"]),
    ),
    case(
        "of another protocol",
        "192.0.9.0/24",
        (&["route add T via 172.30.0.2 proto static metric 20"], &[]),
        (
            &["route add T via 172.30.0.2 proto bgp metric 30"],
            &["172.30.0.2"],
        ),
    ),
    case(
        "of another table",
        "192.0.10.0/24",
        (&["route add T via 172.30.0.2 proto bgp table 100"], &[]),
        (
            &["route add T via 172.30.0.3 proto bgp metric 20"],
            &["172.30.0.3"],
        ),
    ),
    case(
        "on the link itself",
        "192.0.11.0/24",
        (&["route add T dev br-ex proto bgp metric 20"], &[]),
        (
            &["route replace T via 172.30.0.2 proto bgp metric 20"],
            &["172.30.0.2"],
        ),
    ),
    case(
        "over a next hop of the other family",
        "192.0.12.0/24",
        (
            &["route add T via inet6 fe80::2 dev br-ex proto bgp metric 20"],
            &[],
        ),
        (
            &["route replace T via 172.30.0.2 proto bgp metric 20"],
            &["172.30.0.2"],
        ),
    ),
    case(
        "the default",
        "default",
        (&["route add T via 172.30.0.2 proto bgp metric 20"], &[]),
        (&["route del T proto bgp metric 20"], &[]),
    ),
    case(
        "the node's own pods",
        "10.128.0.0/24",
        (&["route add T via 172.30.0.2 proto bgp metric 20"], &[]),
        (&["route replace T via 172.30.0.3 proto bgp metric 20"], &[]),
    ),
    case(
        "one of the node's own pods",
        "10.128.0.7",
        (&["route add T via 172.30.0.2 proto bgp metric 20"], &[]),
        (&["route del T proto bgp metric 20"], &[]),
    ),
    case(
        "inside the join subnet",
        "100.64.0.7",
        (&["route add T via 172.30.0.2 proto bgp metric 20"], &[]),
        (&["route replace T via 172.30.0.3 proto bgp metric 20"], &[]),
    ),
    case(
        "another network's subnet",
        "10.200.7.0/24",
        (&["route add T via 172.30.0.2 proto bgp metric 20"], &[]),
        (&["route replace T via 172.30.0.3 proto bgp metric 20"], &[]),
    ),
    case(
        "what covers another network's subnet",
        "10.200.0.0/16",
        (
            &["route add T via 172.30.0.2 proto bgp metric 20"],
            &["172.30.0.2"],
        ),
        (&["route del T proto bgp metric 20"], &[]),
    ),
    case(
        "what covers the whole network",
        "10.0.0.0/8",
        (
            &["route add T via 172.30.0.2 proto bgp metric 20"],
            &["172.30.0.2"],
        ),
        (&["route del T proto bgp metric 20"], &[]),
    ),
    case(
        "the network's subnet, in the place of the row that drops",
        "10.128.0.0/14",
        (
            &["route add T via 172.30.0.2 proto bgp metric 20"],
            &["172.30.0.2"],
        ),
        (&["route del T proto bgp metric 20"], &["discard"]),
    ),
    case(
        "somebody else's row stands",
        "198.18.0.0/24",
        (
            &["route add T via 172.30.0.2 proto bgp metric 20"],
            &["172.30.0.99"],
        ),
        (&["route del T proto bgp metric 20"], &["172.30.0.99"]),
    ),
    case(
        "IPv6 over a link-local next hop, then over a global one",
        "fd00:10:0:2::/64",
        (
            &["route add T via fe80::2 dev br-ex proto bgp metric 20"],
            &["fe80::2"],
        ),
        (
            &["route replace T via 2001:db8:30::3 proto bgp metric 20"],
            &["2001:db8:30::3"],
        ),
    ),
    case(
        "IPv6 with equal paths",
        "2001:db8:77::/48",
        (
            &[
                "route add T proto bgp metric 20 nexthop via fe80::2 dev br-ex nexthop via 2001:db8:30::3",
            ],
            &["2001:db8:30::3", "fe80::2"],
        ),
        (&["route del T proto bgp metric 20"], &[]),
    ),
];

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> Instant {
    Instant::now()
}

fn nbctl(testbed: &Testbed, arguments: &[&str]) -> String {
    let db = format!("--db=unix:{}", testbed.server.socket().display());
    let output = Command::new("ovn-nbctl").arg(db).args(arguments).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Next hops by destination, as `ovn-nbctl` shows them; a row that stands twice shows twice.
fn rows(testbed: &Testbed) -> BTreeMap<String, Vec<String>> {
    let columns = "--columns=ip_prefix,nexthop";
    let table = "Logical_Router_Static_Route";
    let text = nbctl(testbed, &["--format=json", columns, "list", table]);
    let seen: Value = serde_json::from_str(&text).unwrap();
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in seen.get("data").and_then(Value::as_array).unwrap() {
        let text = |at: usize| row.get(at).and_then(Value::as_str).unwrap().to_owned();
        rows.entry(text(0)).or_default().push(text(1));
    }
    for hops in rows.values_mut() {
        hops.sort();
    }
    rows
}

/// `_uuid` of every row: a row that was deleted and added again has another one.
fn identities(testbed: &Testbed) -> BTreeSet<String> {
    let words = ["--bare", "--columns=_uuid", "list"];
    let all = nbctl(
        testbed,
        &[&words[..], &["Logical_Router_Static_Route"]].concat(),
    );
    all.split_whitespace().map(str::to_owned).collect()
}

/// Destinations that some table of the kernel has, as `ip -j route` shows them.
fn kernel() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for family in ["-4", "-6"] {
        let seen: Value =
            serde_json::from_str(&ip(&format!("{family} -j route show table all"))).unwrap();
        let routes = seen.as_array().unwrap().iter();
        all.extend(routes.filter_map(|route| Some(route.get("dst")?.as_str()?.to_owned())));
    }
    all
}

/// As the database spells it.
fn spelt(to: &str) -> String {
    match to {
        "default" => "0.0.0.0/0".to_owned(),
        host if !host.contains('/') => format!("{host}/32"),
        other => other.to_owned(),
    }
}

/// Runs the commands, looks that the kernel took them, and waits for the rows.
async fn act(testbed: &Testbed, acts: impl Fn(&Case) -> Act) {
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut text = String::new();
    for case in CASES {
        let (commands, hops) = acts(case);
        for command in commands {
            text.push_str(&command.replace(" T ", &format!(" {} ", case.to)));
            text.push('\n');
        }
        if !hops.is_empty() {
            let hops = hops.iter().map(|hop| (*hop).to_owned()).collect();
            expected.insert(spelt(case.to), hops);
        }
    }
    ip_batch(&text);
    let there = kernel();
    for case in CASES {
        let (commands, _) = acts(case);
        let gone = commands.iter().all(|command| command.contains("route del"));
        let only =
            !case.what.starts_with("two metrics") && !case.what.starts_with("a lower metric");
        if !(gone && only) {
            assert!(
                there.contains(case.to),
                "{}: the kernel has no {}",
                case.what,
                case.to
            );
        }
    }
    let start = now();
    loop {
        let seen = rows(testbed);
        if seen == expected {
            // And so it stays.
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(rows(testbed), expected);
            return;
        }
        if start.elapsed() > PATIENCE {
            for case in CASES {
                let to = spelt(case.to);
                assert_eq!(seen.get(&to), expected.get(&to), "{}: {to}", case.what);
            }
            assert_eq!(seen, expected);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The topology's row that drops what has no route.
fn drops(subnet: &str) -> (Prefix, Vec<Columns>) {
    let columns = Columns::from([
        ("ip_prefix", Column::Text(subnet.to_owned())),
        ("nexthop", Column::Text("discard".to_owned())),
        (
            "external_ids",
            Column::entries([("noverlay.io/owner", "default")]),
        ),
    ]);
    (subnet.parse().unwrap(), vec![columns])
}

#[test]
fn every_kind_of_route_becomes_the_rows_that_the_table_says() {
    if absent() || netns_tests::absent(&["ovn-nbctl"]) {
        return;
    }
    in_namespace(|| async {
        let testbed = Testbed::build().await;
        ip("route flush proto bgp");
        ip("-6 route flush proto bgp");
        let add = ["--", "add", "Logical_Router", ROUTER, "static_routes", "@r"];
        let create = ["--", "--id=@r", "create", "Logical_Router_Static_Route"];
        let marker = "external_ids:\"noverlay.io/owner\"=default";
        let ours = ["ip_prefix=\"10.128.0.0/14\"", "nexthop=discard", marker];
        nbctl(&testbed, &[&create[..], &ours, &add].concat());
        nbctl(
            &testbed,
            &["lr-route-add", ROUTER, "198.18.0.0/24", "172.30.0.99"],
        );
        let mut config = AgentConfig { ..testbed.config() };
        let scope = &mut config.inputs.scope;
        scope.fallbacks = [drops("10.128.0.0/14")].into();
        scope.other_networks = [("10.200.7.0/24".parse().unwrap(), ())]
            .into_iter()
            .collect();
        let agent = Agent::start(config);
        act(&testbed, |case| case.first).await;
        act(&testbed, |case| case.then).await;
        // A fresh one finds nothing to do.
        drop(agent);
        let before = (rows(&testbed), identities(&testbed));
        assert!(before.1.len() > 10, "{before:?}");
        let mut config = testbed.config();
        config.inputs.scope.fallbacks = [drops("10.128.0.0/14")].into();
        config.inputs.scope.other_networks = [("10.200.7.0/24".parse().unwrap(), ())]
            .into_iter()
            .collect();
        let agent = Agent::start(config);
        agent.until_agreed().await;
        assert_eq!((rows(&testbed), identities(&testbed)), before);
        assert!(agent.errors().is_empty(), "{:?}", agent.errors());
    });
}
