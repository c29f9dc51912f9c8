//! Random interleavings of everybody who changes something: kernel, third parties in the database, cuts, new agents.
//!
//! In: a seed. Out: after each batch the rows are those of a fresh plan over a fresh dump, each once; third parties' rows are as
//! they were; nobody writes any more. Invariant: routes that no operation touches keep their very rows.
//! Not here: where in a transaction a connection is cut (`cuts`).

use std::net::Ipv4Addr;
use std::time::Duration;

use import_tests::{
    Agent, AgentConfig, FaultProxy, LINK, OTHER_LINK, ROUTER, Rng, Testbed, absent, try_ip, until,
};
use netns_tests::in_namespace;
use ovsdb::{Condition, Row, Transaction, random_uuid};
use ovsdb_tests::{NB, mk_router};

use crate::third_party::ThirdParty;

/// Batches of one run, and operations of the kernel in each.
const BATCHES: usize = 10;
const EACH: usize = 50;

/// Destinations that operations touch.
pub(crate) fn prefix(rng: &mut Rng) -> String {
    match rng.below(20) {
        0 => "10.128.7.0/24".to_owned(),
        1 => "10.128.0.128/25".to_owned(),
        2 => "100.64.3.0/24".to_owned(),
        3 => "0.0.0.0/0".to_owned(),
        number => format!("20.1.{}.0/24", number % 12),
    }
}

fn prefix6(rng: &mut Rng) -> String {
    format!("2001:db8:f:{}::/64", rng.below(8))
}

pub(crate) fn gateway(rng: &mut Rng) -> String {
    let third = *rng.pick(&["172.30.9", "172.30.9", "172.31.9"]);
    format!("{third}.{}", 1 + rng.below(5))
}

fn path(rng: &mut Rng) -> String {
    match rng.below(10) {
        0..5 => format!("via {}", gateway(rng)),
        5 => format!("via {} dev {LINK} onlink", gateway(rng)),
        6 => format!("via 198.51.100.{} dev {OTHER_LINK}", 2 + rng.below(4)),
        7 => format!("via {} src 172.31.0.1", gateway(rng)),
        8 => format!("via inet6 fe80::9 dev {LINK}"),
        _ => format!("dev {LINK}"),
    }
}

fn paths(rng: &mut Rng) -> String {
    (0..2 + rng.below(2))
        .map(|_| {
            let via = if rng.percent(25) {
                format!("198.51.100.{} dev {OTHER_LINK}", 2 + rng.below(4))
            } else {
                gateway(rng)
            };
            format!(" nexthop via {via}")
        })
        .collect()
}

fn tail(rng: &mut Rng) -> String {
    let protocol = *rng.pick(&["bgp", "bgp", "bgp", "bgp", "static", "zebra"]);
    let metric = *rng.pick(&[20, 20, 20, 30, 10]);
    format!("proto {protocol} metric {metric}")
}

fn route(rng: &mut Rng) -> String {
    let verb = *rng.pick(&[
        "add", "replace", "replace", "append", "prepend", "del", "del",
    ]);
    let (to, tail) = (prefix(rng), tail(rng));
    match rng.below(20) {
        _ if verb == "del" && rng.percent(60) => format!("route del {to}"),
        _ if verb == "del" => format!("route del {to} {tail}"),
        0..10 => format!("route {verb} {to} {} {tail}", path(rng)),
        10..15 => format!("route {verb} {to} {tail}{}", paths(rng)),
        15..18 => format!("route {verb} {to} nhid {} {tail}", 1 + rng.below(8)),
        18 => format!("route {verb} blackhole {to} {tail}"),
        _ => format!("route {verb} unreachable {to} {tail}"),
    }
}

fn route6(rng: &mut Rng) -> String {
    let verb = *rng.pick(&["add", "replace", "append", "del"]);
    let (to, tail) = (prefix6(rng), tail(rng));
    let number = 2 + rng.below(5);
    match rng.below(6) {
        _ if verb == "del" => format!("-6 route del {to}"),
        0 => format!("-6 route {verb} {to} via 2001:db8:30::{number} {tail}"),
        1 => format!(
            "-6 route {verb} {to} {tail} nexthop via fe80::{number} dev {LINK} nexthop via fe80::9 dev {OTHER_LINK}"
        ),
        2 => format!("-6 route {verb} blackhole {to} {tail}"),
        3 => format!("-6 route {verb} {to} nhid 9 {tail}"),
        _ => format!("-6 route {verb} {to} via fe80::{number} dev {LINK} {tail}"),
    }
}

fn nexthop(rng: &mut Rng) -> String {
    let id = 1 + rng.below(8);
    match rng.below(8) {
        0 | 1 => format!("nexthop del id {id}"),
        2 => format!(
            "nexthop replace id 9 via fe80::{} dev {LINK}",
            2 + rng.below(4)
        ),
        3 => format!("nexthop replace id 9 via fe80::2 dev {OTHER_LINK}"),
        _ if id > 5 => {
            let (a, b) = (1 + rng.below(5), 1 + rng.below(5));
            format!("nexthop replace id {id} group {a}/{b}")
        }
        4 => format!("nexthop replace id {id} via 198.51.100.2 dev {OTHER_LINK}"),
        5 => format!("nexthop replace id {id} blackhole"),
        _ => format!("nexthop replace id {id} via {} dev {LINK}", gateway(rng)),
    }
}

/// The other link, and addresses on both.
fn link(rng: &mut Rng) -> String {
    match rng.below(12) {
        0 | 1 => format!("link set {OTHER_LINK} down"),
        2..5 => format!("link set {OTHER_LINK} up"),
        5 => format!("link set {OTHER_LINK}-peer down"),
        6 => format!("link set {OTHER_LINK}-peer up"),
        7 => format!("link del {OTHER_LINK}"),
        8 => format!("link add {OTHER_LINK} type veth peer name {OTHER_LINK}-peer"),
        9 => format!("addr add 198.51.100.1/24 dev {OTHER_LINK}"),
        10 => format!("addr del 172.31.0.1/16 dev {LINK}"),
        _ => format!("addr add 172.31.0.1/16 dev {LINK}"),
    }
}

/// What a batch begins with: links and nexthop objects that the last one may have taken away.
fn mend() {
    for command in [
        format!("link add {OTHER_LINK} type veth peer name {OTHER_LINK}-peer"),
        format!("addr add 198.51.100.1/24 dev {OTHER_LINK}"),
        format!("link set {OTHER_LINK}-peer up"),
        format!("link set {OTHER_LINK} up"),
        format!("addr add 172.31.0.1/16 dev {LINK}"),
        format!("nexthop add id 1 via 172.30.9.1 dev {LINK}"),
        format!("nexthop add id 2 via 172.30.9.2 dev {LINK}"),
        format!("nexthop add id 3 via 172.31.9.3 dev {LINK}"),
        format!("nexthop add id 4 via 198.51.100.2 dev {OTHER_LINK}"),
        format!("nexthop add id 5 via 198.51.100.3 dev {OTHER_LINK}"),
        "nexthop add id 6 group 1/2".to_owned(),
        "nexthop add id 7 group 1/4".to_owned(),
        "nexthop add id 8 group 4/5".to_owned(),
        format!("nexthop add id 9 via fe80::2 dev {LINK}"),
    ] {
        // What is there already stays as it is.
        let _ = try_ip(&command);
    }
}

fn operation(rng: &mut Rng) -> String {
    match rng.below(100) {
        0..58 => route(rng),
        58..76 => route6(rng),
        76..88 => nexthop(rng),
        _ => link(rng),
    }
}

/// Addresses of the node's own change too.
fn another_world(rng: &mut Rng, testbed: &mut Testbed) {
    let address: Ipv4Addr = "172.30.9.3".parse().unwrap();
    let own = &mut testbed.inputs.scope.own_addresses;
    if rng.percent(50) {
        own.insert(address.into());
    } else {
        own.remove(&address.into());
    }
}

/// An agent that is one of a row of them; most speak through the proxy.
fn start(rng: &mut Rng, testbed: &Testbed, fault_proxy: &FaultProxy) -> Agent {
    let mut config: AgentConfig = testbed.config();
    if rng.percent(80) {
        fault_proxy.socket().clone_into(&mut config.socket);
    }
    Agent::start(config)
}

#[test]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn whatever_happens_in_whatever_order_the_rows_end_as_a_fresh_plan_says() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let mut rng = Rng::of_this_run();
        let mut testbed = Testbed::build().await;
        let fault_proxy =
            FaultProxy::start(testbed.server.path("cut.sock"), testbed.server.socket());
        let mut agent = start(&mut rng, &testbed, &fault_proxy);
        testbed.until_settled(Duration::from_millis(300)).await;
        let steady = testbed.guard_steady();
        let mut third_party = ThirdParty::new(&testbed);
        let mut done = 0;
        for batch in 0..BATCHES {
            let mut of_kernel = rng.fork();
            let kernel = tokio::task::spawn_blocking(move || {
                mend();
                let mut tried = Vec::new();
                for _ in 0..EACH {
                    let command = operation(&mut of_kernel);
                    let good = try_ip(&command);
                    tried.push((command, good));
                }
                tried
            });
            while !kernel.is_finished() {
                tokio::time::sleep(Duration::from_millis(rng.below(15))).await;
                match rng.below(20) {
                    0 => fault_proxy.cut(),
                    1 if rng.percent(50) => {
                        drop(agent);
                        agent = start(&mut rng, &testbed, &fault_proxy);
                    }
                    2 => {
                        another_world(&mut rng, &mut testbed);
                        let inputs = testbed.inputs.clone();
                        agent.change(|of| *of = inputs);
                    }
                    _ => third_party.act(&mut rng, &testbed).await,
                }
            }
            let tried = kernel.await.unwrap();
            done += tried.iter().filter(|(_, good)| *good).count();
            for (command, good) in &tried {
                println!("{batch} {} {command}", if *good { "ok  " } else { "no  " });
            }
            let last = batch + 1 == BATCHES;
            let quiet = Duration::from_millis(if last { 2500 } else { 300 });
            let snapshot = testbed.until_settled(quiet).await;
            third_party.assert_untouched(&snapshot);
            testbed.assert_steady(&steady);
            println!("batch {batch}: {} rows", snapshot.imported().len());
        }
        assert!(done > BATCHES * EACH / 3, "{done} operations did something");
        assert!(
            third_party.acted() > BATCHES,
            "{} edits",
            third_party.acted()
        );
        println!(
            "{done} operations of the kernel, {} edits of rows",
            third_party.acted()
        );
    });
}

#[test]
fn the_gateways_link_down_deleted_and_made_anew_takes_its_routes_and_brings_them_back() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let mut testbed = Testbed::build().await;
        let agent = testbed.agent();
        let quiet = Duration::from_millis(300);
        let rows = testbed.until_settled(quiet).await.imported().len();
        assert_eq!(rows, 60);
        netns_tests::ip(&format!("link set {LINK} down"));
        let left = testbed.until_settled(quiet).await.imported();
        assert!(left.is_empty(), "{left:?}");
        netns_tests::ip(&format!("link set {LINK} up"));
        netns_tests::ip("route add 20.1.1.0/24 via 172.30.9.1 proto bgp metric 20");
        let back = testbed.until_settled(quiet).await.imported();
        assert_eq!(back.len(), 1, "{back:?}");
        netns_tests::ip(&format!("link del {LINK}"));
        let left = testbed.until_settled(quiet).await.imported();
        assert!(left.is_empty(), "{left:?}");
        netns_tests::ip_batch(&format!(
            "link add {LINK} type veth peer name {LINK}-peer
             addr add 172.30.0.1/16 dev {LINK}
             link set {LINK}-peer up
             link set {LINK} up
             route add 20.1.1.0/24 via 172.30.9.1 proto bgp metric 20
"
        ));
        let links = netlink::dump::links().unwrap();
        let link = links.iter().find(|link| link.name == LINK).unwrap();
        testbed.inputs.scope.gateway_link = Some(link.index);
        let inputs = testbed.inputs.clone();
        agent.change(|of| *of = inputs);
        let back = testbed.until_settled(quiet).await.imported();
        assert_eq!(back.len(), 1, "{back:?}");
    });
}

#[test]
fn a_network_that_is_advertised_no_more_loses_what_it_learned_while_its_router_stays() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let mut testbed = Testbed::build().await;
        let agent = testbed.agent();
        let quiet = Duration::from_millis(300);
        let before = testbed.until_settled(quiet).await;
        assert_eq!(before.imported().len(), 60);
        let of_others = before.routes().len() - 60;
        // As `plan_node::learn` has it of a network with an overlay; the kernel keeps its routes.
        let advertised = testbed.inputs.clone();
        testbed.inputs.learns = false;
        testbed.inputs.scope.no_overlay = false;
        testbed.inputs.scope.gateway_link = None;
        let inputs = testbed.inputs.clone();
        agent.change(|of| *of = inputs);
        let left = testbed.until_settled(quiet).await;
        assert!(left.imported().is_empty(), "{:?}", left.imported());
        assert_eq!(left.routes().len(), of_others);
        testbed.inputs = advertised.clone();
        agent.change(|of| *of = advertised);
        assert_eq!(testbed.until_settled(quiet).await.imported().len(), 60);
    });
}

#[test]
fn a_router_that_is_deleted_and_made_anew_gets_all_its_routes_again() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let testbed = Testbed::build().await;
        let _agent = testbed.agent();
        let quiet = Duration::from_millis(300);
        let rows = testbed.until_settled(quiet).await.imported();
        assert_eq!(rows.len(), 60);
        let named = || vec![Condition::equal("name", ROUTER)];
        let gone = Transaction::new(NB).delete("Logical_Router", named());
        // Once with a moment without a router, once in one transaction.
        testbed.third_party.transact(&gone).await.unwrap();
        until("no router", || {
            testbed.observer.observe().routers.len() == 1
        })
        .await;
        testbed
            .third_party
            .transact(&mk_router(ROUTER))
            .await
            .unwrap();
        assert_eq!(testbed.until_settled(quiet).await.imported(), rows);
        let again = gone.insert(
            "Logical_Router",
            random_uuid(),
            Row::new().with("name", ROUTER),
        );
        testbed.third_party.transact(&again).await.unwrap();
        assert_eq!(testbed.until_settled(quiet).await.imported(), rows);
    });
}
