//! What the tests of `ovn` share: a real ovsdb-server with both schemas, a plan, and passes as the node-agent makes them.
//!
//! In: a view of a network, edits by hand with OVN's and Open vSwitch's own tools. Out: what a pass did.
//! Invariant: after a pass the replica shows what the database holds, so the next one starts from there.
//! Not here: the tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what serves tests fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::process::Command;

use model::nb::{self, ImportTarget, ImportedRoute, Rows};
use model::ovs::InternalPort;
use model::{Diff, NetworkName, NodeName};
use ovn::{Imports, RowDiff, Standing, lower};
use ovsdb::{Client, Endpoint, Replica, TransactError, Transaction, Uuid};
use ovsdb_tests::{Server, absent, run, until_synced};
use plan_node::snapshot::{GatewayView, MissingRoute, NetworkView};
use plan_node::{check, imports};

const TOOLS: &[&str] = &[
    "ovsdb-server",
    "ovsdb-tool",
    "ovn-nbctl",
    "ovs-vsctl",
    "setpriv",
];
const SWITCH_SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// The network of node n1 of three: 172.30.0.1, pods 10.128.1.0/24, node id 2.
#[must_use]
pub fn mk_view() -> NetworkView {
    let address = |n: u8| -> IpAddr { IpAddr::from([172, 30, 0, n]) };
    NetworkView {
        network: NetworkName::default_network(),
        network_id: 0,
        node: NodeName::from("n1"),
        node_id: 2,
        host_subnets: vec!["10.128.1.0/24".parse().unwrap()],
        cluster_subnets: vec!["10.128.0.0/16/24".parse().unwrap()],
        join_subnets: vec!["100.64.0.0/16".parse().unwrap()],
        gateway: GatewayView {
            bridge: "br-ex".to_owned(),
            physical_network: "physnet".to_owned(),
            mac: "0a:58:ac:1e:00:01".parse().unwrap(),
            addresses: vec!["172.30.0.1/24".parse().unwrap()],
            next_hops: vec![address(100)],
            chassis: "n1".to_owned(),
        },
        outbound_snat: true,
        missing_route: MissingRoute::Discard,
        mtu: 1500,
        ephemeral_port_range: "32768-60999".to_owned(),
        host_addresses: [address(1)].into(),
        node_addresses: [address(1), address(2), address(3)].into(),
        nat_has_match: false,
    }
}

/// The gateway router of that node.
#[must_use]
pub fn mk_target() -> ImportTarget {
    let view = mk_view();
    imports::target(&view.network, &view.node)
}

/// Routes 10.x.y.0/24 over 172.30.0.2, numbered from `first`.
#[must_use]
pub fn mk_routes(first: u32, count: u32) -> BTreeSet<ImportedRoute> {
    (first..first + count)
        .map(|number| {
            let network = std::net::Ipv4Addr::from_bits(0x0b00_0000 + (number << 8));
            ImportedRoute {
                prefix: format!("{network}/24").parse().unwrap(),
                nexthop: IpAddr::from([172, 30, 0, 2]),
            }
        })
        .collect()
}

/// A server with both databases, and clients that follow them.
#[derive(Debug)]
pub struct Bench {
    /// The server.
    pub server: Server,
    /// Follows OVN_Northbound.
    pub north: Client,
    /// Follows Open_vSwitch.
    pub switch: Client,
}

impl Bench {
    /// Starts it; `None` where the tools are absent.
    pub async fn start() -> Option<Self> {
        if absent(TOOLS) {
            return None;
        }
        let mut server = Server::prepared(&[]);
        let conf = server.path("conf.db").display().to_string();
        run(Command::new("ovsdb-tool").args(["create", &conf, SWITCH_SCHEMA]));
        server.add_arguments(&[conf]);
        server.up();
        let endpoint = || Endpoint::Unix(server.socket());
        let north = Client::connect(ovn::north::config(endpoint()));
        let switch = Client::connect(ovn::switch::config(endpoint()));
        until_synced(&north).await;
        until_synced(&switch).await;
        let bench = Self {
            server,
            north,
            switch,
        };
        bench.vsctl(&["--no-wait", "init"]).await;
        Some(bench)
    }

    /// Changes the Northbound database by hand.
    pub async fn nbctl(&self, words: &[&str]) {
        self.tool("ovn-nbctl", words);
        self.catch_up().await;
    }

    /// Changes the Open_vSwitch database by hand.
    pub async fn vsctl(&self, words: &[&str]) {
        self.tool("ovs-vsctl", words);
        self.catch_up().await;
    }

    /// What a tool says.
    #[must_use]
    pub fn ask(&self, tool: &str, words: &[&str]) -> String {
        let output = self.command(tool).args(words).output().unwrap();
        assert!(output.status.success(), "{tool} {words:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn tool(&self, tool: &str, words: &[&str]) {
        run(self.command(tool).args(words));
    }

    fn command(&self, tool: &str) -> Command {
        let mut command = Command::new(tool);
        command.arg(format!("--db=unix:{}", self.server.socket().display()));
        command
    }

    /// Waits until the replicas show all that was done so far: a server tells of changes before it answers.
    async fn catch_up(&self) {
        let look = Transaction::new(ovn::north::DATABASE).select("NB_Global", vec![], &["_uuid"]);
        self.north.transact(&look).await.unwrap();
        let look = Transaction::new(ovn::switch::DATABASE).select("Bridge", vec![], &["_uuid"]);
        self.switch.transact(&look).await.unwrap();
    }

    /// Looks at the Northbound replica.
    pub fn look<T>(&self, look: impl FnOnce(&Replica) -> T) -> T {
        self.north.with_replica(look).unwrap()
    }

    /// The network's rows.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let network = NetworkName::default_network();
        self.look(|replica| Standing::lift(replica, &network).unwrap())
    }

    /// The plan and what differs from it.
    #[must_use]
    pub fn differs(&self, view: &NetworkView) -> (Rows, Standing, RowDiff) {
        let wanted = plan_node::plan(view);
        assert_eq!(check::rows(&wanted), []);
        let standing = self.standing();
        let diff = Diff::between(&standing.owned, &wanted, nb::satisfies);
        (wanted, standing, diff)
    }

    /// One pass over the rows; how many it touched.
    pub async fn settle(&self, view: &NetworkView) -> usize {
        let (wanted, standing, diff) = self.differs(view);
        assert_eq!(standing.in_the_way(&wanted), []);
        if diff.is_empty() {
            return 0;
        }
        let transaction = lower::topology(&standing, &diff, &view.network).unwrap();
        apply(&self.north, &transaction).await.unwrap();
        diff.len()
    }

    /// Imported routes as they stand.
    #[must_use]
    pub fn imports(&self) -> Imports {
        self.look(|replica| Imports::lift(replica, &mk_target()).unwrap())
            .expect("the gateway router")
    }

    /// One pass over imported routes; how many transactions it took.
    pub async fn import(&self, wanted: &BTreeSet<ImportedRoute>) -> usize {
        let standing = self.imports();
        let diff = standing.diff(wanted);
        let transactions = lower::imports(&standing, &diff, &mk_target());
        for transaction in &transactions {
            apply(&self.north, transaction).await.unwrap();
        }
        transactions.len()
    }

    /// One pass over our ports; whether it changed something.
    pub async fn ports(&self, wanted: &[InternalPort]) -> bool {
        let made = self
            .switch
            .with_replica(|replica| ovn::switch::ports(replica, wanted).unwrap());
        match made.unwrap() {
            None => false,
            Some(transaction) => {
                apply(&self.switch, &transaction).await.unwrap();
                true
            }
        }
    }

    /// Every static route row: its uuid by what it says.
    #[must_use]
    pub fn routes(&self) -> BTreeMap<String, BTreeSet<Uuid>> {
        self.look(|replica| {
            let mut found: BTreeMap<String, BTreeSet<Uuid>> = BTreeMap::new();
            for (uuid, record) in replica.table("Logical_Router_Static_Route").unwrap() {
                let prefix: &str = record.get("ip_prefix").unwrap();
                let nexthop: &str = record.get("nexthop").unwrap();
                let rows = found.entry(format!("{prefix} {nexthop}")).or_default();
                rows.insert(*uuid);
            }
            found
        })
    }

    /// Records of the Northbound database's log whose comment begins with this.
    #[must_use]
    pub fn records(&self, comment: &str) -> usize {
        let file = self.server.path("nb.db").display().to_string();
        let output = Command::new("ovsdb-tool")
            .args(["show-log", &file])
            .output()
            .unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        let mark = format!("\"{comment}");
        shown.lines().filter(|line| line.contains(&mark)).count()
    }
}

/// Sends a transaction and checks every count.
///
/// # Errors
/// When the server refuses it.
pub async fn apply(client: &Client, transaction: &Transaction) -> Result<(), TransactError> {
    let reply = client.transact(transaction).await?;
    reply.check_counts().expect("every row was there");
    Ok(())
}
