//! Where the import is tested: a gateway link, another link, a database with routers, and routes that nobody touches.
//! In: what the thread's namespace is. Out: links, processes that end with it, and what the rows should be.
//! Invariant: the steady routes go over the gateway link alone, and no test but those of that link touches them.
//! Not here: what is done with it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use import::decide::decide;
use model::Prefix;
use model::Scope;
use model::gateway::BgpDefault;
use model::route::{MAIN_TABLE, PROTOCOL_BGP};
use model::subnets::Subnets;
use netlink::dump;
use netns_tests::{ip, ip_batch};
use node_agent::importing::Inputs;
use ovsdb::Client;
use ovsdb_tests::{Server, mk_client, mk_router, until_synced};
use rib::Rib;

use crate::agent::{Agent, AgentConfig};
use crate::observer::{Observer, Snapshot};
use crate::{PATIENCE, until};

/// The gateway's link.
pub const LINK: &str = "br-ex";
/// Another one, which comes and goes.
pub const OTHER_LINK: &str = "d1";
/// The gateway router.
pub const ROUTER: &str = "GR_n1";

/// Everything but the process under test.
#[derive(Debug)]
pub struct Testbed {
    /// The database's server.
    pub server: Server,
    /// Who looks on.
    pub observer: Observer,
    /// Somebody else who writes.
    pub third_party: Client,
    /// What the import knows.
    pub inputs: Inputs,
    /// Prefixes of the steady routes.
    pub steady: BTreeSet<String>,
}

impl Testbed {
    /// Links, a database with two routers, and fifty steady routes.
    pub async fn build() -> Self {
        ip("link set lo up");
        ip_batch(&format!(
            "link add {LINK} type veth peer name {LINK}-peer
             addr add 172.30.0.1/16 dev {LINK}
             addr add 172.31.0.1/16 dev {LINK}
             addr add 2001:db8:30::1/64 dev {LINK} nodad
             link set {LINK}-peer up
             link set {LINK} up
"
        ));
        ip_batch(&add_other_link());
        let steady = steady();
        ip_batch(
            &steady
                .values()
                .map(|line| format!("{line}\n"))
                .collect::<String>(),
        );
        let server = Server::start();
        let third_party = mk_client(&server.socket());
        until_synced(&third_party).await;
        for router in [ROUTER, "GR_n2"] {
            let made = third_party.transact(&mk_router(router)).await;
            made.expect("the router is made");
        }
        let observer = Observer::start(&server.socket());
        until("the observer sees the routers", || {
            observer.observe().routers.len() == 2
        })
        .await;
        Self {
            server,
            observer,
            third_party,
            inputs: Inputs {
                learns: true,
                table: Some(MAIN_TABLE),
                scope: mk_scope(),
                owners: Subnets::default(),
                release: None,
                sets: None,
            },
            steady: steady.into_keys().collect(),
        }
    }

    /// What an agent needs that speaks to the database itself.
    #[must_use]
    pub fn config(&self) -> AgentConfig {
        AgentConfig {
            socket: self.server.socket(),
            inputs: self.inputs.clone(),
            networks: BTreeMap::new(),
            frr: None,
            limit: 20_000,
            hold: Duration::from_secs(60),
            buffer: None,
        }
    }

    /// Starts an agent that speaks to the database itself.
    #[must_use]
    pub fn agent(&self) -> Agent {
        Agent::start(self.config())
    }

    /// Prefix and next hop of the rows that a fresh plan over a fresh dump wants, sorted.
    #[must_use]
    pub fn wanted(&self, snapshot: &Snapshot) -> Vec<(String, String)> {
        let others = snapshot.routes().iter().filter(|route| !route.marked);
        let taken = others.filter_map(|route| route.prefix.parse::<Prefix>().ok());
        let scope = Scope {
            taken: taken.collect(),
            ..self.inputs.scope.clone()
        };
        let mut rib = Rib::default();
        let links = dump::links().expect("links");
        rib.set_links(links.iter().map(|l| (l.index, l.up)).collect());
        rib.replace(dump::routes(Some(MAIN_TABLE), PROTOCOL_BGP).expect("routes"));
        let rows = rib.view(MAIN_TABLE).flat_map(|route| {
            let hops = decide(&route, &scope).hops.into_iter();
            hops.map(move |hop| (route.prefix.to_string(), hop.to_string()))
        });
        let mut wanted: Vec<_> = rows.collect();
        wanted.sort();
        wanted
    }

    /// Waits until the rows are those that are wanted, and stay so for a while in which nobody writes.
    pub async fn until_settled(&self, quiet: Duration) -> Snapshot {
        let start = Instant::now();
        loop {
            let seen = self.observer.observe();
            let (rows, wanted) = (seen.imported(), self.wanted(&seen));
            let right = self.observer.is_live() && rows == wanted;
            if right && self.stays(seen.updates, quiet).await && self.wanted(&seen) == wanted {
                return seen;
            }
            let differs = |a: &[(String, String)], b: &[(String, String)]| -> Vec<_> {
                a.iter()
                    .filter(|row| !b.contains(row))
                    .take(5)
                    .cloned()
                    .collect()
            };
            assert!(
                start.elapsed() < PATIENCE,
                "{} rows instead of {}, or somebody goes on writing; missing {:?}, surplus {:?}",
                rows.len(),
                wanted.len(),
                differs(&wanted, &rows),
                differs(&rows, &wanted)
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn stays(&self, updates: u64, quiet: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < quiet {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if self.observer.observe().updates != updates {
                return false;
            }
        }
        true
    }

    /// Rows of the steady routes; from here on they must stay.
    pub fn guard_steady(&self) -> BTreeSet<(String, String)> {
        let rows = self.observer.rows_of(&self.steady);
        let prefixes: BTreeSet<&String> = rows.iter().map(|(prefix, _)| prefix).collect();
        assert_eq!(prefixes.len(), 50, "steady routes are imported");
        self.observer.guard(self.steady.iter().cloned());
        rows
    }

    /// Fails where a steady row went, or a guarded prefix was without one.
    pub fn assert_steady(&self, rows: &BTreeSet<(String, String)>) {
        self.observer.assert_no_gap();
        assert_eq!(&self.observer.rows_of(&self.steady), rows, "steady rows");
    }
}

/// Runs `ip` and tells whether it did what it was asked to.
#[must_use]
pub fn try_ip(arguments: &str) -> bool {
    let status = Command::new("ip")
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.expect("ip starts").success()
}

pub(crate) fn add_other_link() -> String {
    format!(
        "link add {OTHER_LINK} type veth peer name {OTHER_LINK}-peer
         addr add 198.51.100.1/24 dev {OTHER_LINK}
         link set {OTHER_LINK}-peer up
         link set {OTHER_LINK} up
"
    )
}

fn mk_scope() -> Scope {
    let links = dump::links().expect("links");
    let link = links
        .iter()
        .find(|link| link.name == LINK)
        .expect("the gateway's link");
    let subnet = |text: &str| text.parse::<Prefix>().expect("a prefix");
    Scope {
        gateway_link: Some(link.index),
        cluster_subnets: vec![subnet("10.128.0.0/14")],
        host_subnets: vec![subnet("10.128.0.0/24")],
        join_subnets: vec![subnet("100.64.0.0/16")],
        other_networks: Subnets::default(),
        fallbacks: std::collections::BTreeMap::new(),
        fallbacks_known: true,
        own_addresses: link.addresses.iter().map(|a| a.ip).collect(),
        no_overlay: true,
        taken: BTreeSet::new(),
        bgp_default: BgpDefault::Ignore,
    }
}

/// The steady routes: `ip` commands by prefix.
fn steady() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for number in 0..50 {
        let (prefix, hops) = match number {
            0..30 => (
                format!("20.200.{number}.0/24"),
                format!("via 172.30.2.{}", number + 1),
            ),
            30..40 => (
                format!("20.200.{number}.0/24"),
                format!("nexthop via 172.30.2.{number} nexthop via 172.30.3.{number}"),
            ),
            40..45 => (
                format!("2001:db8:5:{number}::/64"),
                format!("via fe80::{number} dev {LINK}"),
            ),
            _ => (
                format!("2001:db8:5:{number}::/64"),
                format!("via 2001:db8:30::{number}"),
            ),
        };
        let command = format!("route add {prefix} proto bgp metric 20 {hops}");
        all.insert(prefix, command);
    }
    all
}
