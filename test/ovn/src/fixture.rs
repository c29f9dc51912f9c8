//! A Northbound database, the client that writes plans to it, and a second client.
//!
//! In: plans, and edits by hand. Out: passes as the node agent makes them.
//! Invariant: what was sent is in both replicas when a function returns.
//! Not here: which edits there are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use model::NetworkName;
use model::diff::Diff;
use model::names::NodeName;
use model::nb::{
    self, Columns, ImportTarget, ImportedRoute, OWNER, Owner, RowKey, Rows, Table, Value,
};
use ovn::{encode, north};
use ovsdb::{
    Atom, Client, ClientConfig, Condition, Endpoint, MonitorTable, Mutation, Row, Transaction,
    Uuid, random_uuid,
};
use ovsdb_tests::{Server, absent, run, until_synced};

/// Programs that the tests need.
pub const TOOLS: &[&str] = &["ovsdb-server", "ovsdb-tool", "ovn-nbctl", "setpriv"];

/// A topology's difference.
pub type TopologyDiff = Diff<RowKey, Columns, Uuid>;

/// A running database with two clients.
#[derive(Debug)]
pub struct Fixture {
    /// The server.
    pub server: Server,
    /// Who writes plans.
    pub client: Client,
    /// Who meddles and looks on.
    pub hand: Client,
}

impl Fixture {
    /// A bench with an empty database; `None` where tools are absent.
    pub async fn start() -> Option<Self> {
        if absent(TOOLS) {
            return None;
        }
        Some(Self::over(Server::start()).await)
    }

    /// A bench over a running server.
    pub async fn over(server: Server) -> Self {
        let socket = server.socket();
        Self::by_way_of(server, socket).await
    }

    /// A bench over a running server whose first client connects to `socket`, which leads there.
    pub async fn by_way_of(server: Server, socket: PathBuf) -> Self {
        let client = Self::connect(socket);
        Self::with(server, client).await
    }

    /// A bench with an empty database whose first client follows these tables, the second one everything.
    pub async fn following(tables: Vec<MonitorTable>) -> Self {
        let server = Server::start();
        let client = Self::client(server.socket(), tables);
        Self::with(server, client).await
    }

    async fn with(server: Server, client: Client) -> Self {
        let hand = Self::connect(server.socket());
        until_synced(&client).await;
        until_synced(&hand).await;
        Self {
            server,
            client,
            hand,
        }
    }

    /// One more client of what the node agent follows.
    #[must_use]
    pub fn connect(socket: PathBuf) -> Client {
        Self::client(socket, north::monitor())
    }

    /// One more client of what the node agent follows beside OVN-Kubernetes, with these keys.
    #[must_use]
    pub fn connect_beside(socket: PathBuf, keys: &[RowKey]) -> Client {
        Self::client(socket, north::monitor_beside(keys))
    }

    fn client(socket: PathBuf, tables: Vec<MonitorTable>) -> Client {
        let mut config = ClientConfig::new(Endpoint::Unix(socket), north::DATABASE);
        // What a test cuts is to be there again soon.
        config.max_backoff = Duration::from_millis(20);
        Client::connect(tables.into_iter().fold(config, ClientConfig::table))
    }

    /// Runs `ovn-nbctl`, then waits until both replicas show what it did.
    pub async fn nbctl(&self, arguments: &[&str]) {
        run(Command::new("ovn-nbctl")
            .arg(format!("--db=unix:{}", self.server.socket().display()))
            .args(arguments));
        self.settle().await;
    }

    /// Waits until both replicas are where the database is: updates come before the reply to a later transaction.
    pub async fn settle(&self) {
        for client in [&self.client, &self.hand] {
            let nothing = vec![Condition::uuid(random_uuid())];
            let look = Transaction::new(north::DATABASE).select("NAT", nothing, &["_uuid"]);
            client.transact(&look).await.unwrap();
        }
    }

    /// Sends a transaction of the second client, of which every operation has to find its row.
    pub async fn by_hand(&self, transaction: Transaction) {
        let reply = self.hand.transact(&transaction).await.unwrap();
        reply.check_counts().unwrap();
        self.settle().await;
    }

    /// All rows of ours.
    #[must_use]
    pub fn decode(&self) -> north::North {
        self.client.with_replica(north::decode).unwrap().unwrap()
    }

    /// The rows of one key, whoever of ours owns them.
    #[must_use]
    pub fn rows(&self, key: &RowKey) -> Vec<(Uuid, Columns)> {
        let north = self.decode();
        let of_key = north.owned.values().filter_map(|owned| owned.get(key));
        of_key.flatten().cloned().collect()
    }

    /// What a plan would change.
    #[must_use]
    pub fn diff(&self, rows: &Rows) -> TopologyDiff {
        Diff::between(self.decode().of(&owner_of(rows)), rows, nb::satisfies)
    }

    /// What stands in a plan's way: reason and message; the Nodes have not been listed.
    #[must_use]
    pub fn foreign(&self, rows: &Rows) -> Vec<String> {
        self.foreign_among(rows, None)
    }

    /// What stands in a plan's way where these are all Nodes.
    #[must_use]
    pub fn foreign_among(&self, rows: &Rows, nodes: Option<&BTreeSet<NodeName>>) -> Vec<String> {
        let named = self.client.with_replica(north::Named::of).unwrap();
        let network = match owner_of(rows) {
            Owner::Network(name) => name,
            Owner::Node => NetworkName::default_network(),
        };
        let is_of_a_node = |name: &str| network.is_gateway_router(name, nodes);
        let problems = named.foreign(rows, is_of_a_node);
        problems.iter().map(ToString::to_string).collect()
    }

    /// The transaction of a plan.
    #[must_use]
    pub fn encode(&self, rows: &Rows) -> Transaction {
        let north = self.decode();
        let owner = owner_of(rows);
        let diff = Diff::between(north.of(&owner), rows, nb::satisfies);
        encode::topology(&diff, &north, &owner, "noverlay test").unwrap()
    }

    /// One pass; returns how many rows it touched. Panics unless it leaves nothing to do and others' rows alone.
    pub async fn pass(&self, rows: &Rows) -> usize {
        let before = self.others();
        let touched = self.pass_over(rows).await;
        assert_eq!(before, self.others(), "rows of others changed");
        touched
    }

    /// One pass that may change others' rows.
    pub async fn pass_over(&self, rows: &Rows) -> usize {
        assert_eq!(self.foreign(rows), Vec::<String>::new());
        let touched = self.diff(rows).len();
        let reply = self.client.transact(&self.encode(rows)).await.unwrap();
        reply.check_counts().unwrap();
        self.settle().await;
        let left = self.diff(rows);
        assert!(left.is_empty(), "left to do: {left:?}");
        touched
    }

    /// Takes all rows of an owner away.
    pub async fn remove(&self, owner: &Owner) {
        let north = self.decode();
        let diff = Diff::between(north.of(owner), &Rows::new(), nb::satisfies);
        let transaction = encode::topology(&diff, &north, owner, "noverlay test").unwrap();
        let reply = self.client.transact(&transaction).await.unwrap();
        reply.check_counts().unwrap();
        self.settle().await;
    }

    /// Every row without our owner marker, by table and uuid, as text.
    #[must_use]
    pub fn others(&self) -> BTreeMap<(&'static str, Uuid), String> {
        let marker = Atom::from(OWNER);
        let north = self.decode();
        let owned = north.owned.values().flat_map(BTreeMap::values).flatten();
        let ours: BTreeSet<Uuid> = owned.map(|(uuid, _)| *uuid).collect();
        let mut out = BTreeMap::new();
        let read = |replica: &ovsdb::Replica| {
            for table in Table::ALL.map(Table::name) {
                for (uuid, record) in replica.table(table).unwrap() {
                    // Where there is no marker, what is ours the decoded rows say.
                    let is_ours = record.datum("external_ids").map_or_else(
                        || ours.contains(uuid),
                        |ids| ids.value_of(&marker).is_some(),
                    );
                    if !is_ours {
                        let columns: Vec<_> = record.columns().collect();
                        out.insert((table, *uuid), format!("{columns:?}"));
                    }
                }
            }
        };
        self.hand.with_replica(read).unwrap();
        out
    }

    /// The one row of ours with a key.
    #[must_use]
    pub fn uuid(&self, key: &RowKey) -> Uuid {
        match self.rows(key).as_slice() {
            [(uuid, _)] => *uuid,
            other => panic!("{key}: {other:?}"),
        }
    }

    /// Rows with a name, whoever made them.
    #[must_use]
    pub fn named(&self, table: Table, name: &str) -> BTreeSet<Uuid> {
        let read = |replica: &ovsdb::Replica| {
            let rows = replica.table(table.name()).unwrap().iter();
            rows.filter(|(_, record)| record.get::<&str>("name").unwrap() == name)
                .map(|(uuid, _)| *uuid)
                .collect()
        };
        self.client.with_replica(read).unwrap()
    }

    /// What a root row refers to in a column.
    #[must_use]
    pub fn children(&self, table: Table, root: Uuid, column: &str) -> BTreeSet<Uuid> {
        let read = |replica: &ovsdb::Replica| {
            let record = replica.table(table.name()).unwrap().get(&root).unwrap();
            record.get::<BTreeSet<Uuid>>(column).unwrap()
        };
        self.client.with_replica(read).unwrap()
    }

    /// A transaction that adds to or takes from a parent's references.
    #[must_use]
    pub fn refer(table: Table, parent: Uuid, mutation: Mutation) -> Transaction {
        let itself = vec![Condition::uuid(parent)];
        Transaction::new(north::DATABASE).mutate(table.name(), itself, vec![mutation])
    }

    /// A transaction that sets columns of a row.
    #[must_use]
    pub fn set(table: Table, uuid: Uuid, row: Row) -> Transaction {
        let itself = vec![Condition::uuid(uuid)];
        Transaction::new(north::DATABASE).update(table.name(), itself, row)
    }

    /// The routes of a gateway router.
    #[must_use]
    pub fn imports(&self, target: &ImportTarget) -> north::Imports {
        let decoded = self
            .client
            .with_replica(|replica| north::decode_imports(replica, target));
        decoded.unwrap().unwrap()
    }

    /// The transactions that make these routes the imported ones, as the node agent makes them.
    #[must_use]
    pub fn encode_imports(
        &self,
        target: &ImportTarget,
        desired: &BTreeSet<ImportedRoute>,
    ) -> Vec<Transaction> {
        let decoded = self.imports(target);
        let missing = desired.iter().filter(|r| !decoded.rows.contains_key(r));
        let add: Vec<ImportedRoute> = missing.cloned().collect();
        let surplus = decoded.rows.iter().flat_map(|(route, rows)| {
            let keep = usize::from(desired.contains(route));
            rows.iter().skip(keep)
        });
        let remove: Vec<Uuid> = surplus.chain(&decoded.malformed).copied().collect();
        encode::imports(
            target,
            decoded.router.unwrap(),
            &add,
            &remove,
            &[],
            "noverlay test",
        )
    }

    /// Makes these routes the imported ones; returns the number of transactions.
    pub async fn import(&self, target: &ImportTarget, desired: &BTreeSet<ImportedRoute>) -> usize {
        let transactions = self.encode_imports(target, desired);
        for transaction in &transactions {
            let reply = self.client.transact(transaction).await.unwrap();
            reply.check_counts().unwrap();
        }
        self.settle().await;
        let decoded = self.imports(target);
        assert_eq!(decoded.malformed, []);
        assert!(decoded.rows.keys().eq(desired), "{decoded:?}");
        assert!(decoded.rows.values().all(|rows| rows.len() == 1));
        transactions.len()
    }
}

/// Whose these rows are: all of them one owner's; nothing is the default network's.
#[must_use]
pub fn owner_of(rows: &Rows) -> Owner {
    let owners = rows.iter().filter_map(|(key, columns)| {
        let Some(Value::Entries(ids)) = columns.get("external_ids") else {
            return None;
        };
        Some(Owner::of(ids.get(OWNER)?, key.table, &key.id))
    });
    let default = Owner::Network(NetworkName::default_network());
    owners.max().unwrap_or(default)
}
