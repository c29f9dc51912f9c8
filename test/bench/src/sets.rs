//! The import beside OVN-Kubernetes: kernel routes of BGP into an Address_Set of subnets that leave the tunnel.
//! In: how many subnets other nodes have. Out: times from the request to the kernel to the set, beside a writer that does nothing
//! else; the process under test is the import alone. Invariant: each route is one subnet's. Not here: rows of routes (`cases`), the
//! conditions by which the whole node-agent follows the database.

use std::time::Duration;

use netns_tests::ip_batch;
use ovsdb::{
    Client, ClientConfig, Condition, Datum, Endpoint, MonitorTable, Mutation, Row, Transaction,
    random_uuid,
};
use ovsdb_tests::{NB, until_synced};

use crate::ImportArguments;
use crate::kernel::{lines, prefix, router};
use crate::report::{Report, percentile};
use crate::testbed::{Agent, Testbed, now};

/// The set.
pub(crate) const SET: &str = "noverlay_routed_default_v4";
const TABLE: &str = "Address_Set";
/// Subnets whose routes come and go, behind those that stay; as many changes of each kind.
pub(crate) const LONE: u32 = 40;
/// Between two of them: each finds the process quiet.
const PAUSE: Duration = Duration::from_millis(300);
/// Nothing that is measured takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who looks at the set from outside.
struct Onlooker(Client);

impl Onlooker {
    async fn new(testbed: &Testbed) -> Self {
        let table = MonitorTable::new(TABLE, &["name", "addresses"]);
        let config = ClientConfig::new(Endpoint::Unix(testbed.socket()), NB).table(table);
        let client = Client::connect(config);
        until_synced(&client).await;
        Self(client)
    }

    /// How many subnets it holds.
    fn held(&self) -> usize {
        let count = |replica: &ovsdb::Replica| {
            let rows = replica.table(TABLE).expect("it is followed").values();
            let sets = rows.filter_map(|row| row.datum("addresses")?.as_set());
            sets.map(<[_]>::len).sum()
        };
        self.0.with_replica(count).unwrap_or(0)
    }

    async fn until(&self, count: usize) {
        let mut status = self.0.watch();
        let waiting = status.wait_for(|_| self.held() == count);
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "{} subnets instead of {count}", self.held());
    }
}

pub(crate) async fn sets(arguments: &ImportArguments) {
    let count = arguments.sets;
    let mut report = Report::new("import", arguments.json.as_deref());
    let case = format!("set of {count}");
    let mut testbed = Testbed::build().await;
    let writer = testbed.client();
    until_synced(&writer).await;
    let onlooker = Onlooker::new(&testbed).await;
    let all = usize::try_from(count).expect("a number of subnets");
    let floor = floor(&writer, &onlooker, count).await;

    ip_batch(&lines("add", 0, count, 1));
    let mut agent = Agent::start_for_sets(&testbed, count);
    onlooker.until(all).await;
    let took = agent.started.elapsed().as_secs_f64();
    report.put(&case, "cold start: wall", "s", took);
    let (cpu, peak) = (agent.watched.cpu(), agent.watched.peak());
    report.put(&case, "cold start: agent CPU", "s", cpu.as_secs_f64());
    report.put(&case, "cold start: agent peak RSS", "MiB", peak);
    agent.until_agreed().await;
    testbed.until_settled().await;

    let (mut more, mut less) = (Vec::new(), Vec::new());
    let cpu = agent.watched.cpu();
    for number in 0..LONE {
        let to = prefix(count + number);
        let start = now();
        (testbed.kernel.replace(to, router(1))).expect("the kernel takes it");
        onlooker.until(all + 1).await;
        more.push(start.elapsed().as_secs_f64() * 1000.0);
        tokio::time::sleep(PAUSE).await;
        let start = now();
        testbed.kernel.delete(to).expect("the kernel takes it");
        onlooker.until(all).await;
        less.push(start.elapsed().as_secs_f64() * 1000.0);
        tokio::time::sleep(PAUSE).await;
    }
    let used = (agent.watched.cpu() - cpu).as_secs_f64() * 1000.0 / f64::from(LONE * 2);
    let p50 = percentile(&mut more, 50);
    // That of the whole agent; here it is the import alone.
    let goal = (count == 10_000).then_some("under 4 ms");
    report.put(&case, "+1 subnet, a writer alone: p50", "ms", floor);
    report.put_with_goal(&case, "+1 subnet: p50", ("ms", p50), goal);
    report.put(&case, "+1 subnet: p99", "ms", percentile(&mut more, 99));
    let p50 = percentile(&mut less, 50);
    report.put_with_goal(&case, "-1 subnet: p50", ("ms", p50), goal);
    report.put(&case, "-1 subnet: p99", "ms", percentile(&mut less, 99));
    report.put(&case, "one change: agent CPU", "ms", used);
    testbed.flush();
}

/// Makes the set with all subnets in it, takes one out and puts it in by hand, and leaves it empty. Median, milliseconds.
async fn floor(writer: &Client, onlooker: &Onlooker, count: u32) -> f64 {
    let subnets = (0..count).map(|number| format!("{}/24", prefix(number)));
    let row = Row::new()
        .with("name", SET)
        .with("addresses", Datum::set(subnets))
        .with(
            "external_ids",
            Datum::map([("noverlay.io/owner", "default")]),
        );
    let uuid = random_uuid();
    let made = Transaction::new(NB).insert(TABLE, uuid, row);
    send(writer, &made).await;
    let all = usize::try_from(count).expect("a number of subnets");
    onlooker.until(all).await;
    let set = Condition::equal("name", SET);
    let mutate =
        |mutation: Mutation| Transaction::new(NB).mutate(TABLE, vec![set.clone()], vec![mutation]);
    let mut took = Vec::new();
    for number in 0..LONE / 2 {
        let to = Datum::set([format!("{}/24", prefix(count + number))]);
        let start = now();
        send(writer, &mutate(Mutation::insert("addresses", to.clone()))).await;
        onlooker.until(all + 1).await;
        took.push(start.elapsed().as_secs_f64() * 1000.0);
        send(writer, &mutate(Mutation::delete("addresses", to))).await;
        onlooker.until(all).await;
    }
    let empty = Row::new().with("addresses", Datum::set(Vec::<String>::new()));
    send(
        writer,
        &Transaction::new(NB).update(TABLE, vec![set], empty),
    )
    .await;
    onlooker.until(0).await;
    percentile(&mut took, 50)
}

async fn send(writer: &Client, transaction: &Transaction) {
    let reply = writer.transact(transaction).await;
    reply.expect("the database takes it");
}
