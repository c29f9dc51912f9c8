//! The node's rows in OVN and the imported routes; its management port is in `port`.
//! In: views, the kernel's routes, replicas. Out: guarded transactions where something differs.
//! Invariant: no transaction where nothing differs; nothing is withdrawn because something could not be read.
//! Not here: which rows (`plan_node`), how they are written (`ovn`).

mod port;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::diff::Diff;
use model::nb::{self, ImportedRoute, Rows};
use model::route::{MAIN_TABLE, PROTOCOL_BGP};
use model::{Prefix, hash};
use netlink::{dump, write};
use ovsdb::{Client, Transaction, Uuid};
use plan_node::check::{self, Violation};
use plan_node::holding::Holding;
use plan_node::imports::{self, ImportWorld};
use plan_node::{ImportPlan, NetworkView, budget};
use reconcile::{Subjects, Verdict};
use rib::Rib;
use telemetry::{Chain, Readiness};

use crate::api_subjects::Key as ApiKey;
use crate::bridge_subjects::Key as BridgeKey;
use crate::frr;
use crate::known::{Imported, Known};
use crate::sources::Pokers;

/// What can be looked at; topology first, because imports hang on its router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// Routers, switches, ports, SNAT.
    Topology,
    /// The management port, down to the kernel's addresses, rules and routes.
    Port,
    /// Routes that BGP brought.
    Import,
}

/// Why a pass failed; the world's fault, tried again.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error("cannot read rows")]
    Access(#[from] ovsdb::AccessError),
    #[error("cannot make a transaction")]
    Lower(#[from] ovn::LowerError),
    #[error("the transaction failed")]
    Transact(#[from] ovsdb::TransactError),
    #[error("the transaction did not change what it should have")]
    Count(#[from] ovsdb::notation::CountError),
    #[error("cannot read the kernel's routes")]
    Dump(#[from] dump::DumpError),
    #[error("cannot write the kernel's side")]
    Kernel(#[from] write::WriteError),
    #[error("a reading thread ended badly")]
    Thread,
}

/// The loop's subjects.
pub(crate) struct OvnSubjects {
    known: Arc<Known>,
    pokers: Pokers,
    readiness: Readiness,
    rib: Rib,
    holding: Holding,
    /// The loop's own clock for `holding`.
    start: tokio::time::Instant,
    /// The topology's rows as they last stood, whether written or found.
    stood: Option<Rows>,
    /// What was last said of each subject.
    told: BTreeMap<Key, String>,
}

impl OvnSubjects {
    pub(crate) fn new(known: Arc<Known>, pokers: Pokers, readiness: Readiness) -> Self {
        Self {
            holding: Holding::new(known.settings.limits.stale_time),
            start: tokio::time::Instant::now(),
            known,
            pokers,
            readiness,
            rib: Rib::default(),
            stood: None,
            told: BTreeMap::new(),
        }
    }

    fn tell(&mut self, key: Key, text: String) {
        if self.told.get(&key) != Some(&text) {
            tracing::warn!("{text}");
            self.told.insert(key, text);
        }
    }

    /// A plan with a broken invariant is a bug of a planner: it is said, and nothing is written.
    fn is_sound(&mut self, key: Key, violations: &[Violation]) -> bool {
        let Some(first) = violations.first() else {
            return true;
        };
        debug_assert!(false, "{first}");
        self.tell(
            key,
            format!("the plan breaks an invariant, nothing is written: {first}"),
        );
        false
    }

    /// The view, or `None` with the reason told. A view that cannot be made changes nothing.
    async fn view(&mut self, key: Key) -> Option<(NetworkView, u32)> {
        let made = match self.known.local().await {
            Ok(local) => self
                .known
                .view(&local)
                .map(|view| (view, local.bridge.index)),
            Err(error) => Err(error),
        };
        match made {
            Ok(made) => Some(made),
            Err(error) => {
                let why = format!(
                    "no view of the network, everything stays as it is: {}",
                    Chain(&error)
                );
                // All subjects miss the same view: one of them says it.
                if key == Key::Topology {
                    self.tell(key, why);
                }
                None
            }
        }
    }

    async fn topology(&mut self) -> Result<Verdict, PassError> {
        let Some((mut view, _)) = self.view(Key::Topology).await else {
            return Ok(Verdict::Retry);
        };
        let problems = view.problems();
        self.known
            .metrics
            .problems
            .set(i64::try_from(problems.len()).unwrap_or(i64::MAX));
        if let Some(problem) = problems.first() {
            self.tell(Key::Topology, problem.to_string());
        }
        if self.known.settings.gateway.bgp_default == settings::BgpDefault::Replace {
            view.gateway.next_hops.clear();
        }
        let rows = plan_node::plan(&view);
        if !self.is_sound(Key::Topology, &check::rows(&rows)) {
            return Ok(Verdict::Blocked);
        }
        let network = self.known.network.clone();
        let lifted = self
            .known
            .north
            .with_replica(|replica| -> Result<_, PassError> {
                Ok((
                    ovn::north::lift(replica, &network)?,
                    ovn::north::foreign(replica, &rows),
                ))
            });
        let Some(lifted) = lifted else {
            return Ok(Verdict::Retry);
        };
        let (north, foreign) = lifted?;
        if let Some(problem) = foreign.first() {
            self.tell(Key::Topology, problem.to_string());
            return Ok(Verdict::Blocked);
        }
        let diff = Diff::between(&north.owned, &rows, nb::satisfies);
        if !diff.is_empty() {
            let comment = format!("noverlay node-agent topology {network}");
            let transaction = ovn::lower::topology(&diff, &north, &comment)?;
            let (create, update, delete) =
                (diff.create.len(), diff.update.len(), diff.delete.len());
            if self.stood.as_ref() == Some(&rows) {
                tracing::warn!(
                    create,
                    update,
                    delete,
                    "somebody else changed the topology's rows, repairing them"
                );
            } else {
                tracing::info!(create, update, delete, "writing the topology");
            }
            self.transact("north", &self.known.north, &transaction)
                .await?;
        }
        self.stood = Some(rows);
        self.told.remove(&Key::Topology);
        self.readiness.set("topology", true);
        self.pokers.bridge.poke(BridgeKey::Flows);
        Ok(Verdict::Settled)
    }

    /// Sends, checks every count, and waits until the replica shows it, so that the next pass does not repeat it.
    async fn transact(
        &self,
        database: &str,
        client: &Client,
        transaction: &Transaction,
    ) -> Result<(), PassError> {
        let mut status = client.watch();
        let before = status.borrow_and_update().generation;
        let count = |result: &str| {
            self.known
                .metrics
                .transactions
                .with_label_values(&[database, result])
                .inc()
        };
        let outcome = match client.transact(transaction).await {
            Ok(reply) => reply.check_counts().map_err(PassError::from),
            Err(error) => Err(error.into()),
        };
        count(if outcome.is_ok() {
            "success"
        } else {
            "failure"
        });
        outcome?;
        let shown = status.wait_for(|now| now.generation > before);
        // A replica that shows nothing within a second is told by the next pass's diff.
        drop(tokio::time::timeout(Duration::from_secs(1), shown).await);
        Ok(())
    }

    async fn import(&mut self) -> Result<Verdict, PassError> {
        let since = self.known.take_event();
        let Some((view, gateway_link)) = self.view(Key::Import).await else {
            return Ok(Verdict::Retry);
        };
        let read = tokio::task::spawn_blocking(|| -> Result<_, dump::DumpError> {
            Ok((
                dump::links()?,
                dump::routes(Some(MAIN_TABLE), PROTOCOL_BGP)?,
            ))
        });
        let (links, routes) = read.await.map_err(|_| PassError::Thread)??;
        self.known
            .metrics
            .routes_seen
            .set(i64::try_from(routes.len()).unwrap_or(i64::MAX));
        self.rib
            .set_links(links.iter().map(|l| (l.index, l.up)).collect());
        self.rib.replace(routes);

        let target = imports::target(&self.known.network, &self.known.node);
        let Some(lifted) = self
            .known
            .north
            .with_replica(|replica| ovn::north::lift_imports(replica, &target))
        else {
            return Ok(Verdict::Retry);
        };
        let lifted = lifted?;
        let Some(router) = lifted.router else {
            return Ok(Verdict::Blocked);
        };
        let default = match self.known.settings.gateway.bgp_default {
            settings::BgpDefault::Ignore => imports::BgpDefault::Ignore,
            settings::BgpDefault::Replace => imports::BgpDefault::Replace,
        };
        let world = ImportWorld::of(&view, Some(gateway_link), lifted.taken.clone(), default);
        let mut plan = imports::plan(self.rib.view(MAIN_TABLE), &world);
        let held = self.hold(&lifted.rows, &plan.desired, &world).await;
        plan.desired.extend(held.iter().cloned());
        let limit = self.known.settings.limits.max_imported_routes;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        budget::cut(&mut plan, limit, &world.cluster_subnets);
        if !self.is_sound(
            Key::Import,
            &check::imports(&target, &plan.desired, &world.own_addresses),
        ) {
            return Ok(Verdict::Blocked);
        }
        let digest = digest(&plan);

        let add: Vec<ImportedRoute> = plan
            .desired
            .iter()
            .filter(|route| !lifted.rows.contains_key(route))
            .cloned()
            .collect();
        let surplus = lifted.rows.iter().flat_map(|(route, rows)| {
            let keep = usize::from(plan.desired.contains(route));
            rows.iter().skip(keep).copied()
        });
        let remove: Vec<Uuid> = surplus.chain(lifted.odd.iter().copied()).collect();
        if !add.is_empty() || !remove.is_empty() {
            let comment = format!("noverlay node-agent import {}", target.router);
            for transaction in ovn::lower::imports(&target, router, &add, &remove, &comment) {
                self.transact("north", &self.known.north, &transaction)
                    .await?;
            }
            if let Some(since) = since {
                let seconds = since.elapsed().as_secs_f64();
                self.known.metrics.import_seconds.observe(seconds);
            }
            let (add, remove, routes) = (add.len(), remove.len(), plan.desired.len());
            if self.known.imported().is_some_and(|i| i.digest == digest) {
                tracing::warn!(
                    add,
                    remove,
                    routes,
                    "somebody else changed imported routes, repaired them"
                );
            } else {
                tracing::info!(add, remove, routes, "imported routes");
            }
        }
        self.told.remove(&Key::Import);
        self.remember(&plan, &held, digest, &lifted.taken, &view);
        self.readiness.set("import", true);
        Ok(Verdict::Settled)
    }

    /// Rows that stay although the kernel has no route for them. FRR is asked only where that matters.
    async fn hold(
        &mut self,
        standing: &BTreeMap<ImportedRoute, Vec<Uuid>>,
        wanted: &BTreeSet<ImportedRoute>,
        world: &ImportWorld,
    ) -> BTreeSet<ImportedRoute> {
        let surplus = standing.keys().any(|row| !wanted.contains(row));
        let was = self.holding.is_restarting();
        let frr = &self.known.frr;
        let look = match (was, surplus) {
            (true, _) => frr::ask(frr).await,
            // A route that goes must not wait for a long answer.
            (false, true) => frr::knock(frr).await,
            (false, false) => frr::glance(frr),
        };
        let now = self.start.elapsed();
        self.holding.look(now, &look);
        let restarting = self.holding.is_restarting();
        if restarting != was {
            tracing::info!(restarting, "FRR");
        }
        if restarting {
            frr::look_again(&self.pokers.ovn);
        }
        let owners = self.known.owners();
        self.holding
            .rows(now, standing.keys(), wanted, &owners, world)
    }

    fn remember(
        &self,
        plan: &ImportPlan,
        held: &BTreeSet<ImportedRoute>,
        digest: String,
        taken: &BTreeSet<Prefix>,
        view: &NetworkView,
    ) {
        let m = &self.known.metrics;
        m.routes_programmed
            .set(i64::try_from(plan.desired.len()).unwrap_or(i64::MAX));
        m.routes_held
            .set(i64::try_from(held.len()).unwrap_or(i64::MAX));
        m.routes_skipped.reset();
        for (reason, skipped) in &plan.skipped {
            m.routes_skipped
                .with_label_values(&[reason])
                .set(i64::try_from(skipped.count).unwrap_or(i64::MAX));
        }
        let own = imports::topology_prefixes(&plan_node::plan(view), &view.gateway_router());
        let mut rows: BTreeSet<Prefix> = plan.desired.iter().map(|r| r.prefix).collect();
        rows.extend(taken.difference(&own).copied());
        let new = self.known.set_imported(Imported {
            kernel: self
                .rib
                .view(MAIN_TABLE)
                .filter(|r| !r.legs.is_empty())
                .map(|r| r.prefix)
                .collect(),
            rows,
            count: plan.desired.len(),
            held: held.iter().map(|row| row.prefix).collect(),
            digest,
            skipped: plan
                .skipped
                .iter()
                .map(|(reason, s)| (*reason, s.count, s.first.clone()))
                .collect(),
        });
        if new {
            self.pokers.api.poke(ApiKey::Report);
        }
    }
}

/// Tells one set of imported routes from another.
fn digest(plan: &ImportPlan) -> String {
    let routes = plan.desired.iter();
    let identity: String = routes
        .map(|r| format!("{} {};", r.prefix, r.nexthop))
        .collect();
    hash::short(&identity)
}

impl Subjects for OvnSubjects {
    type Key = Key;

    async fn universe(&mut self) -> Option<Vec<Key>> {
        Some(vec![Key::Topology, Key::Port, Key::Import])
    }

    /// Never cancelled by the loop; a transaction is applied whole or not at all.
    async fn pass(&mut self, key: &Key) -> Verdict {
        let outcome = match key {
            Key::Topology => self.topology().await,
            Key::Port => self.port().await,
            Key::Import => self.import().await,
        };
        outcome.unwrap_or_else(|error| {
            self.tell(
                *key,
                format!("{key:?} pass failed, trying again: {}", Chain(&error)),
            );
            Verdict::Retry
        })
    }
}
