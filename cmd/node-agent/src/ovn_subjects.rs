//! The Northbound database: the network's rows, and the routes that BGP brought.
//! In: keys from the loop. Out: guarded transactions, none where nothing differs.
//! Invariant: rows are removed only for what was read whole; a source that cannot be read leaves everything as it is.
//! Not here: plans (`plan-node`), lifting and lowering (`ovn`).
//!
//! ```text
//!  Topology: view -> plan -> check -> diff with our rows -> one transaction
//!  Import:   kernel dump -> rib -> plan -> check -> diff with imported rows -> batches; tells Report what it saw
//! ```

use std::collections::BTreeSet;
use std::time::Instant;

use model::nb::{self, ImportTarget, ImportedRoute, Rows};
use model::route::{MAIN_TABLE, PROTOCOL_BGP, RouteKind};
use model::{Diff, Prefix, hash};
use ovn::{Imports, RowDiff, Standing, lower};
use plan_node::coverage::Reach;
use plan_node::imports::{self, ImportPlan, ImportWorld};
use plan_node::{NetworkView, check};
use reconcile::{Poker, Subjects, Verdict};
use rib::Rib;
use settings::{BgpDefault, OvnTopology};
use telemetry::Chain;
use tokio::sync::watch;

use crate::object_subjects;
use crate::said::{Complaint, Ledger, unread, without_view};
use crate::sources::{FirstEvent, ReadError, Sources, links};
use crate::view;

const NORTH: &str = ovn::north::DATABASE;
/// Subjects, as logs and metrics name them.
pub(crate) const TOPOLOGY: &str = "topology";
/// See [`TOPOLOGY`].
pub(crate) const IMPORT: &str = "import";

/// What can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The network's rows.
    Topology,
    /// Imported routes.
    Import,
}

/// What an import pass saw, for the report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Learned {
    /// What the kernel forwards by BGP.
    pub(crate) kernel: Reach,
    /// Imported routes.
    pub(crate) imported: usize,
    /// Stands for the set of them.
    pub(crate) digest: String,
    /// Reason, number and first prefixes of those left out.
    pub(crate) skipped: Vec<(&'static str, usize, Vec<Prefix>)>,
}

/// Where to tell it.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) learned: watch::Sender<Option<Learned>>,
    pub(crate) objects: Poker<object_subjects::Key>,
}

/// The loop's subjects.
pub(crate) struct OvnSubjects {
    sources: Sources,
    ledger: Ledger,
    told: Told,
    first_event: FirstEvent,
    rib: Rib,
    topology: Complaint,
    import: Complaint,
    /// The plan that the rows were brought to: what differs from it later was changed by somebody.
    written: Option<Rows>,
    /// The same of imported routes.
    imported: Option<BTreeSet<ImportedRoute>>,
}

impl OvnSubjects {
    pub(crate) fn new(
        sources: Sources,
        ledger: Ledger,
        told: Told,
        first_event: FirstEvent,
    ) -> Self {
        Self {
            sources,
            ledger,
            told,
            first_event,
            rib: Rib::default(),
            topology: Complaint::of(TOPOLOGY),
            import: Complaint::of(IMPORT),
            written: None,
            imported: None,
        }
    }

    fn builds(&self) -> bool {
        self.sources.settings.ovn_topology == OvnTopology::Build
    }

    async fn topology(&mut self) -> Verdict {
        let view = match view::network(&self.sources).await {
            Ok(view) => view,
            Err(why) => return without_view(&mut self.topology, &why),
        };
        let wanted = plan_node::plan(&view);
        if let Some(violation) = check::rows(&wanted).first() {
            debug_assert!(false, "{violation}");
            self.topology.say(format!(
                "the plan is not sound, nothing is written: {violation}"
            ));
            return Verdict::Blocked;
        }
        let standing = match self.standing(&view) {
            Ok(standing) => standing,
            Err(error) => return unread(&mut self.topology, &error),
        };
        let obstacles = standing.in_the_way(&wanted);
        if let Some(first) = obstacles.first() {
            self.topology.say(format!(
                "{first} ({} such rows); nothing is written",
                obstacles.len()
            ));
            return Verdict::Blocked;
        }
        let diff = Diff::between(&standing.owned, &wanted, nb::satisfies);
        if !diff.is_empty() && !self.write_rows(&view, &standing, &diff, &wanted).await {
            return Verdict::Retry;
        }
        self.written = Some(wanted);
        self.topology.clear();
        Verdict::Settled
    }

    fn standing(&self, view: &NetworkView) -> Result<Standing, ReadError> {
        let lifted = self
            .sources
            .north
            .with_replica(|replica| Standing::lift(replica, &view.network));
        Ok(lifted.ok_or(ReadError::NotYet(NORTH))??)
    }

    /// False: to be tried again.
    async fn write_rows(
        &mut self,
        view: &NetworkView,
        standing: &Standing,
        diff: &RowDiff,
        wanted: &Rows,
    ) -> bool {
        let transaction = match lower::topology(standing, diff, &view.network) {
            Ok(transaction) => transaction,
            Err(error) => {
                self.topology.say(Chain(&error).to_string());
                return false;
            }
        };
        let north = &self.sources.north;
        let done = self
            .ledger
            .transact(north, NORTH, &transaction, &mut self.topology)
            .await;
        if !done {
            return false;
        }
        let (created, updated, deleted) = (diff.create.len(), diff.update.len(), diff.delete.len());
        let rows = named(diff);
        if self.written.as_ref() == Some(wanted) {
            self.repaired(TOPOLOGY, diff.len());
            tracing::warn!(
                created,
                updated,
                deleted,
                rows,
                "rows of the network were changed by somebody and are repaired"
            );
        } else {
            tracing::info!(
                created,
                updated,
                deleted,
                rows,
                "rows of the network written"
            );
        }
        true
    }

    async fn import(&mut self) -> Verdict {
        let since = self.first_event.take();
        let view = match view::network(&self.sources).await {
            Ok(view) => view,
            // Where topology is built, that subject says why.
            Err(why) if self.builds() => return why.verdict(),
            Err(why) => return without_view(&mut self.import, &why),
        };
        let gateway_link = match self.read_kernel(&view.gateway.bridge).await {
            Ok(index) => index,
            // Nothing is withdrawn because the kernel could not be read.
            Err(error) => return unread(&mut self.import, &error),
        };
        let target = imports::target(&view.network, &view.node);
        let standing = self
            .sources
            .north
            .with_replica(|replica| Imports::lift(replica, &target));
        let standing = match standing.map(|lifted| lifted.map_err(ReadError::from)) {
            None => return ReadError::NotYet(NORTH).verdict(),
            Some(Err(error)) => return unread(&mut self.import, &error),
            // Its row will poke this subject.
            Some(Ok(None)) => return Verdict::Blocked,
            Some(Ok(Some(standing))) => standing,
        };
        let world = self.world(&view, &standing, gateway_link);
        let plan = imports::plan(self.rib.view(MAIN_TABLE), &world);
        if let Some(violation) =
            check::imports(&target, &plan.desired, &world.own_addresses).first()
        {
            debug_assert!(false, "{violation}");
            self.import.say(format!(
                "the plan is not sound, nothing is written: {violation}"
            ));
            return Verdict::Blocked;
        }
        if !self.write_imports(&standing, &plan, &target, since).await {
            return Verdict::Retry;
        }
        self.import.clear();
        self.tell(&plan);
        Verdict::Settled
    }

    /// Reads routes and links; gives the gateway bridge's index.
    async fn read_kernel(&mut self, bridge: &str) -> Result<Option<u32>, ReadError> {
        let dump = || netlink::dump::routes(Some(MAIN_TABLE), PROTOCOL_BGP);
        let routes = tokio::task::spawn_blocking(dump)
            .await
            .map_err(|_| ReadError::Thread)??;
        let links = links().await?;
        self.ledger
            .metrics
            .routes_seen
            .set(i64::try_from(routes.len()).unwrap_or(i64::MAX));
        self.rib.replace(routes);
        let states = links.iter().map(|link| (link.index, link.up)).collect();
        self.rib.set_links(states);
        Ok(links
            .iter()
            .find(|link| link.name == bridge)
            .map(|link| link.index))
    }

    fn world(
        &self,
        view: &NetworkView,
        standing: &Imports,
        gateway_link: Option<u32>,
    ) -> ImportWorld {
        let mut taken: BTreeSet<Prefix> = standing.foreign.clone();
        if self.builds() {
            let rows = plan_node::plan(view);
            taken.extend(imports::topology_prefixes(&rows, &view.gateway_router()));
        }
        if self.sources.settings.gateway.bgp_default == BgpDefault::Replace {
            taken.retain(|prefix| !prefix.is_default());
        }
        let default = view::bgp_default(&self.sources.settings);
        ImportWorld::of(view, gateway_link, taken, default)
    }

    /// False: to be tried again.
    async fn write_imports(
        &mut self,
        standing: &Imports,
        plan: &ImportPlan,
        target: &ImportTarget,
        since: Option<Instant>,
    ) -> bool {
        let diff = standing.diff(&plan.desired);
        let transactions = lower::imports(standing, &diff, target);
        for transaction in &transactions {
            let north = &self.sources.north;
            let done = self
                .ledger
                .transact(north, NORTH, transaction, &mut self.import)
                .await;
            if !done {
                return false;
            }
        }
        let same = self.imported.replace(plan.desired.clone()).as_ref() == Some(&plan.desired);
        if transactions.is_empty() {
            return true;
        }
        if let Some(since) = since {
            let seconds = since.elapsed().as_secs_f64();
            self.ledger.metrics.import_seconds.observe(seconds);
        }
        let (added, changed) = (diff.create.len(), diff.update.len());
        let removed = diff.delete.len() + standing.unreadable.len();
        let router = &target.router;
        if same {
            self.repaired(IMPORT, added + changed + removed);
            tracing::warn!(%router, added, changed, removed, "imported routes were changed by somebody and are repaired");
        } else {
            tracing::info!(%router, added, changed, removed, "imported routes written");
        }
        true
    }

    fn repaired(&self, subject: &str, rows: usize) {
        let rows = u64::try_from(rows).unwrap_or(u64::MAX);
        let repairs = &self.ledger.metrics.repairs;
        repairs.with_label_values(&[subject]).inc_by(rows);
    }

    fn tell(&self, plan: &ImportPlan) {
        let metrics = &self.ledger.metrics;
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        metrics.routes_programmed.set(count(plan.desired.len()));
        metrics.routes_skipped.reset();
        for (reason, skipped) in &plan.skipped {
            let gauge = metrics.routes_skipped.with_label_values(&[*reason]);
            gauge.set(count(skipped.count));
        }
        let mut kernel = Reach::default();
        for route in self.rib.view(MAIN_TABLE) {
            match route.kind {
                RouteKind::Unicast => kernel.routes.insert(route.prefix),
                RouteKind::Other => kernel.discards.insert(route.prefix),
            };
        }
        let rows: Vec<String> = plan
            .desired
            .iter()
            .map(|route| format!("{} {}\n", route.prefix, route.nexthop))
            .collect();
        let learned = Learned {
            kernel,
            imported: plan.desired.len(),
            digest: hash::short(&rows.concat()),
            skipped: plan
                .skipped
                .iter()
                .map(|(reason, skipped)| (*reason, skipped.count, skipped.first.clone()))
                .collect(),
        };
        let changed = self.told.learned.send_if_modified(|last| {
            let differs = last.as_ref() != Some(&learned);
            *last = Some(learned);
            differs
        });
        if changed {
            self.told.objects.poke(object_subjects::Key::Report);
        }
    }
}

/// The first rows that a diff touches, for a person.
fn named(diff: &RowDiff) -> String {
    let created = diff.create.iter().map(|(key, _)| key);
    let updated = diff.update.iter().map(|(_, key, _)| key);
    let deleted = diff.delete.iter().map(|(_, key)| key);
    let keys = created.chain(updated).chain(deleted);
    let texts: Vec<String> = keys.take(3).map(ToString::to_string).collect();
    texts.join(", ")
}

impl Subjects for OvnSubjects {
    type Key = Key;

    async fn universe(&mut self) -> Option<Vec<Key>> {
        let mut keys = vec![Key::Import];
        if self.builds() {
            keys.push(Key::Topology);
        }
        Some(keys)
    }

    /// The process may end while a transaction is on its way: it is applied whole or not at all.
    async fn pass(&mut self, key: &Key) -> Verdict {
        match key {
            Key::Topology if self.builds() => {
                let verdict = self.topology().await;
                self.ledger.pass(TOPOLOGY, verdict)
            }
            Key::Topology => Verdict::Settled,
            Key::Import => {
                let verdict = self.import().await;
                self.ledger.pass(IMPORT, verdict)
            }
        }
    }
}
