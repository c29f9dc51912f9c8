//! Somebody else who writes to the routers: copies of our rows, malformed ones, rows of their own, edits, moves.
//! In: choices. Out: edits, and the rows that must be as they were left.
//! Invariant: steady routes are not touched. Not here: what the import makes of it.

use std::collections::BTreeMap;

use crate::interleave::{gateway, prefix};
use import_tests::{ROUTER, Rng, RouteSeen, Snapshot, Testbed};
use ovsdb::{Condition, Datum, Mutation, OpResult, Row, Transaction, Uuid, random_uuid};

const DATABASE: &str = "OVN_Northbound";
const ROUTES: &str = "Logical_Router_Static_Route";
const ROUTERS: &str = "Logical_Router";
const MARKER: (&str, &str) = ("k8s.ovn.org/owner-controller", "RouteImport");
const OURS: (&str, &str) = ("noverlay.io/owner", "default");

/// A row that is not ours.
#[derive(Debug)]
struct Left {
    prefix: String,
    nexthop: String,
    router: &'static str,
    /// False: it was ours a moment ago, and its removal may have been under way.
    sure: bool,
}

/// The third party.
#[derive(Debug)]
pub(crate) struct ThirdParty {
    left: BTreeMap<String, Left>,
    acted: usize,
    steady: Vec<String>,
}

impl ThirdParty {
    pub(crate) fn new(testbed: &Testbed) -> Self {
        Self {
            left: BTreeMap::new(),
            acted: 0,
            steady: testbed.steady.iter().cloned().collect(),
        }
    }

    /// How many edits were made.
    pub(crate) fn acted(&self) -> usize {
        self.acted
    }

    /// Rows that are not the import's are there, as they were left.
    pub(crate) fn assert_untouched(&self, snapshot: &Snapshot) {
        for (id, left) in &self.left {
            let routes = snapshot.routers.get(left.router);
            let found = routes.and_then(|all| all.iter().find(|row| row.id == *id));
            let same = found.map(|row| row.prefix == left.prefix && row.nexthop == left.nexthop);
            assert!(
                same.unwrap_or(!left.sure),
                "a stranger's row {id} was touched: {left:?}, now {found:?}"
            );
        }
    }

    /// One edit.
    #[expect(clippy::too_many_lines, reason = "one sequence of events")]
    pub(crate) async fn act(&mut self, rng: &mut Rng, testbed: &Testbed) {
        let snapshot = testbed.observer.observe();
        let ours: Vec<&RouteSeen> = snapshot
            .routes()
            .iter()
            // One that was handed to another router is left as it is.
            .filter(|row| row.marked && !self.left.contains_key(&row.id))
            .filter(|row| !self.steady.contains(&row.prefix))
            .collect();
        let to = prefix(rng);
        let hop = gateway(rng);
        let own = match (rng.below(12), ours.is_empty()) {
            (0 | 1, _) => return self.foreign(testbed, &to, &hop).await,
            (2..5, _) => return self.withdraw(rng, testbed).await,
            (5, _) => return self.malformed(rng, testbed, &to, &hop).await,
            (_, true) => return,
            (_, false) => *rng.pick(&ours),
        };
        let id: Uuid = own.id.parse().unwrap();
        match rng.below(7) {
            0 => {
                let row = plain(&own.prefix, &own.nexthop);
                self.send(testbed, insert(row).0).await;
            }
            1 => drop(
                self.send(
                    testbed,
                    mutate(ROUTER, Mutation::delete("static_routes", vec![id])),
                )
                .await,
            ),
            2 => drop(
                self.send(testbed, update(id, Row::new().with("nexthop", hop)))
                    .await,
            ),
            3 => drop(
                self.send(
                    testbed,
                    update(
                        id,
                        Row::new().with("output_port", Datum::set(Vec::<&str>::new())),
                    ),
                )
                .await,
            ),
            4 => {
                let ids = Datum::map(Vec::<(&str, &str)>::new());
                let row = Row::new().with("external_ids", ids);
                if self.send(testbed, update(id, row)).await {
                    self.keep(own, ROUTER, false);
                }
            }
            5 => {
                let moved = mutate(ROUTER, Mutation::delete("static_routes", vec![id]));
                let moved = and(moved, "GR_n2", Mutation::insert("static_routes", vec![id]));
                if self.send(testbed, moved).await {
                    self.keep(own, "GR_n2", true);
                }
            }
            _ => {
                let shared = mutate("GR_n2", Mutation::insert("static_routes", vec![id]));
                if self.send(testbed, shared).await {
                    self.keep(own, "GR_n2", true);
                }
            }
        }
    }

    fn keep(&mut self, row: &RouteSeen, router: &'static str, sure: bool) {
        let left = Left {
            prefix: row.prefix.clone(),
            nexthop: row.nexthop.clone(),
            router,
            sure,
        };
        self.left.insert(row.id.clone(), left);
    }

    /// A row of their own.
    async fn foreign(&mut self, testbed: &Testbed, prefix: &str, hop: &str) {
        let row = Row::new().with("ip_prefix", prefix).with("nexthop", hop);
        let (transaction, id) = insert(row);
        if self.send(testbed, transaction).await {
            let left = Left {
                prefix: prefix.to_owned(),
                nexthop: hop.to_owned(),
                router: ROUTER,
                sure: true,
            };
            self.left.insert(id.to_string(), left);
        }
    }

    /// Takes one of their rows away again.
    async fn withdraw(&mut self, rng: &mut Rng, testbed: &Testbed) {
        let all: Vec<String> = self.left.keys().cloned().collect();
        if all.is_empty() {
            return;
        }
        let id = rng.pick(&all);
        let uuid: Uuid = id.parse().unwrap();
        let gone = mutate(ROUTER, Mutation::delete("static_routes", vec![uuid]));
        let gone = and(gone, "GR_n2", Mutation::delete("static_routes", vec![uuid]));
        if self.send(testbed, gone).await {
            self.left.remove(id);
        }
    }

    /// A row with the owner marker of imports in a form that the import does not write.
    async fn malformed(&mut self, rng: &mut Rng, testbed: &Testbed, prefix: &str, hop: &str) {
        let row = plain(prefix, hop);
        let row = match rng.below(5) {
            0 => row.with("policy", "src-ip"),
            1 => row.with("ip_prefix", "20.1.3.77/24"),
            2 => row.with("output_port", "rtoe-GR_n9"),
            3 => {
                // Of an importer that is not ours: it stays, and takes its destination.
                let (transaction, id) = insert(row.with("external_ids", Datum::map([MARKER])));
                if self.send(testbed, transaction).await {
                    let left = Left {
                        prefix: prefix.to_owned(),
                        nexthop: hop.to_owned(),
                        router: ROUTER,
                        sure: true,
                    };
                    self.left.insert(id.to_string(), left);
                }
                return;
            }
            _ => row.with("route_table", "7"),
        };
        self.send(testbed, insert(row).0).await;
    }

    /// Whether it did something.
    async fn send(&mut self, testbed: &Testbed, transaction: Transaction) -> bool {
        let Ok(reply) = testbed.third_party.transact(&transaction).await else {
            return false;
        };
        let nothing = |result: &OpResult| matches!(result, OpResult::Updated(0));
        let did = !reply.results.iter().any(nothing);
        self.acted += usize::from(did);
        did
    }
}

/// A row as the import writes it.
fn plain(prefix: &str, hop: &str) -> Row {
    Row::new()
        .with("ip_prefix", prefix)
        .with("nexthop", hop)
        .with("output_port", format!("rtoe-{ROUTER}"))
        .with("external_ids", Datum::map([OURS, MARKER]))
}

fn insert(row: Row) -> (Transaction, Uuid) {
    let id = random_uuid();
    let transaction = Transaction::new(DATABASE).insert(ROUTES, id, row);
    let refer = Mutation::insert("static_routes", vec![id]);
    (and(transaction, ROUTER, refer), id)
}

fn update(id: Uuid, row: Row) -> Transaction {
    Transaction::new(DATABASE).update(ROUTES, vec![Condition::uuid(id)], row)
}

fn mutate(router: &'static str, mutation: Mutation) -> Transaction {
    and(Transaction::new(DATABASE), router, mutation)
}

fn and(transaction: Transaction, router: &'static str, mutation: Mutation) -> Transaction {
    transaction.mutate(
        ROUTERS,
        vec![Condition::equal("name", router)],
        vec![mutation],
    )
}
