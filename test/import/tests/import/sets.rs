//! The import into an Address_Set, beside OVN-Kubernetes: what the kernel itself says of addresses in each subnet decides.
//!
//! In: a seed. Out: after each batch of changes the set holds the subnets that the kernel forwards by BGP's routes over the
//! gateway's link, one of which covers all of it, and no others. Invariant: a subnet that nothing touches is never missing. Not here: who makes the set.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use import_tests::{Agent, LINK, OTHER_LINK, Rng, Testbed, absent, try_ip};
use model::{NetworkName, Prefix};
use netns_tests::{in_namespace, ip};
use ovsdb::{Client, ClientConfig, Datum, Endpoint, Row, Transaction, random_uuid};
use ovsdb_tests::until_synced;
use tokio::time::Instant;

const SET: &str = "noverlay_routed_default_v4";
/// Subnets 10.128.N.0/24 may be in the set; of those that are not, one has a route.
const SUBNETS: std::ops::Range<u64> = 1..21;
/// Nothing touches it.
const STEADY: &str = "10.128.200.0/24";
/// The network's prefix length: routes that are no longer are not pods'.
const ABOVE: u8 = 14;

fn subnets() -> Vec<String> {
    let all = SUBNETS.map(|number| format!("10.128.{number}.0/24"));
    all.chain([STEADY.to_owned()]).collect()
}

/// What the kernel does with an address: a route of BGP that is longer than the network's, over the gateway's link.
fn is_forwarded(address: &str) -> bool {
    let words = ["-o", "route", "get", "fibmatch", address];
    let output = Command::new("ip").args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = said.split_whitespace();
    let bits = words
        .next()
        .and_then(|to| to.split_once('/'))
        .and_then(|(_, bits)| bits.parse::<u8>().ok());
    let is_host = said.starts_with(address);
    output.status.success()
        && (is_host || bits.is_some_and(|bits| bits > ABOVE))
        && said.contains("proto bgp")
        && said.contains(&format!(" dev {LINK} "))
}

/// Whether the longest route that covers the whole subnet is a way: parts that make up a whole do not count.
fn is_covered(subnet: &str) -> bool {
    let said = ip(&format!("-o route show match {subnet} proto bgp"));
    let bits = |line: &&str| {
        let to = line.trim_start_matches("blackhole ").split(' ').next()?;
        to.split_once('/')?.1.parse::<u8>().ok()
    };
    let longer = said.lines().filter(|line| bits(line) > Some(ABOVE));
    let longest = longer.max_by_key(bits);
    longest.is_some_and(|line| {
        !line.starts_with("blackhole") && line.contains(&format!(" dev {LINK} "))
    })
}

fn wanted() -> BTreeSet<String> {
    let all = subnets().into_iter();
    all.filter(|subnet| {
        let net = subnet.trim_end_matches("0/24");
        let samples = [1, 100, 130, 200];
        is_covered(subnet)
            && samples
                .iter()
                .all(|host| is_forwarded(&format!("{net}{host}")))
    })
    .collect()
}

/// Looks on.
struct Onlooker(Client);

impl Onlooker {
    async fn new(testbed: &Testbed) -> Self {
        let endpoint = Endpoint::Unix(testbed.server.socket());
        let mut config = ClientConfig::new(endpoint, ovn::north::DATABASE);
        config.tables = ovn::north::monitor();
        let client = Client::connect(config);
        until_synced(&client).await;
        Self(client)
    }

    fn held(&self) -> BTreeSet<String> {
        let network = NetworkName::default_network();
        let held = self
            .0
            .with_replica(|replica| ovn::north::addresses(replica, &network, SET));
        held.unwrap().unwrap().unwrap().1
    }

    /// Waits until the set holds what the kernel forwards; not until what was heard is checked by a dump, five seconds later.
    async fn until_right(&self, of: &str) {
        let start = Instant::now();
        loop {
            let (held, wanted) = (self.held(), wanted());
            if held == wanted {
                return;
            }
            assert!(
                start.elapsed() < Duration::from_secs(4),
                "{of}: missing {:?}, surplus {:?}",
                wanted.difference(&held).collect::<Vec<_>>(),
                held.difference(&wanted).collect::<Vec<_>>()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn agent(testbed: &Testbed, limit: u32) -> Agent {
    let mut config = testbed.config();
    let all = subnets().into_iter();
    let all: BTreeMap<Prefix, u8> = all.map(|subnet| (subnet.parse().unwrap(), ABOVE)).collect();
    config.inputs.sets = Some([(SET.to_owned(), all)].into());
    config.limit = limit;
    Agent::start(config)
}

async fn make_set(testbed: &Testbed, addresses: &[&str]) {
    let row = Row::new()
        .with("name", SET)
        .with("addresses", Datum::set(addresses.iter().copied()))
        .with(
            "external_ids",
            Datum::map([("noverlay.io/owner", "default")]),
        );
    let made = Transaction::new(ovn::north::DATABASE).insert("Address_Set", random_uuid(), row);
    testbed.third_party.transact(&made).await.unwrap();
}

fn change(rng: &mut Rng) -> String {
    let number = 1 + rng.below(20);
    let to = match rng.below(12) {
        0..7 => format!("10.128.{number}.0/24"),
        7 => format!("10.128.{number}.128/25"),
        8 => format!("10.128.{number}.0/25"),
        9 => format!("10.128.{number}.130/32"),
        10 => "10.128.0.0/20".to_owned(),
        _ => "10.128.0.0/14".to_owned(),
    };
    let gateway = 1 + rng.below(5);
    match rng.below(10) {
        0..4 => format!("route del {to} proto bgp"),
        4..8 => format!("route replace {to} via 172.30.9.{gateway} dev {LINK} proto bgp metric 20"),
        8 => format!("route replace blackhole {to} proto bgp metric 20"),
        _ => format!(
            "route replace {to} via 198.51.100.{gateway} dev {OTHER_LINK} proto bgp metric 20"
        ),
    }
}

#[test]
fn the_set_holds_what_the_kernel_forwards_whatever_changes() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let mut rng = Rng::of_this_run();
        let testbed = Testbed::build().await;
        // What another process left there, and the kernel has lost meanwhile.
        make_set(&testbed, &[STEADY, "10.128.7.0/24", "10.128.99.0/24"]).await;
        ip(&format!(
            "route add {STEADY} via 172.30.9.9 dev {LINK} proto bgp metric 20"
        ));
        ip(&format!(
            "route add 10.128.50.0/24 via 172.30.9.9 dev {LINK} proto bgp metric 20"
        ));
        let onlooker = Onlooker::new(&testbed).await;
        let mut running = Some(agent(&testbed, 20_000));
        onlooker.until_right("at the start").await;
        for batch in 0..15 {
            for _ in 0..30 {
                let _taken = try_ip(&change(&mut rng));
                if rng.percent(20) {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
                assert!(onlooker.held().contains(STEADY), "batch {batch}");
            }
            if rng.percent(30) {
                // Meanwhile nobody hears of changes.
                running = None;
                let _taken = try_ip(&change(&mut rng));
            }
            let agent = running.get_or_insert_with(|| agent(&testbed, 20_000));
            onlooker.until_right(&format!("batch {batch}")).await;
            assert_eq!(agent.errors(), [""; 0]);
        }
    });
}

#[test]
fn over_the_limit_other_subnets_take_the_place_of_those_that_went() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let testbed = Testbed::build().await;
        make_set(&testbed, &[]).await;
        for number in SUBNETS {
            ip(&format!(
                "route add 10.128.{number}.0/24 via 172.30.9.1 dev {LINK} proto bgp metric 20"
            ));
        }
        let onlooker = Onlooker::new(&testbed).await;
        let _agent = agent(&testbed, 5);
        let until = async |number: usize| {
            let start = Instant::now();
            while onlooker.held().len() != number {
                assert!(
                    start.elapsed() < Duration::from_secs(20),
                    "{:?}",
                    onlooker.held()
                );
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            onlooker.held()
        };
        let first = until(5).await;
        let gone = first.first().unwrap().clone();
        ip(&format!("route del {gone}"));
        tokio::time::sleep(Duration::from_millis(300)).await;
        let second = until(5).await;
        assert!(!second.contains(&gone) && first.intersection(&second).count() == 4);
    });
}
