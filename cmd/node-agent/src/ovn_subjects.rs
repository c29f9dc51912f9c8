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
use plan_node::NetworkView;
use plan_node::check::{self, Violation};
use plan_node::coverage::Reach;
use plan_node::imports::{self, ImportPlan, ImportWorld};
use reconcile::{Poker, Subjects, Verdict};
use rib::Rib;
use settings::{BgpDefault, OvnTopology};
use telemetry::Chain;
use tokio::sync::watch;

use crate::object_subjects;
use crate::said::{Complaint, Ledger, Unsettled};
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

    async fn topology(&mut self) -> Result<(), Unsettled> {
        let view = view::network(&self.sources).await?;
        let wanted = plan_node::plan(&view);
        sound(&check::rows(&wanted))?;
        let standing = self.standing(&view)?;
        let obstacles = standing.in_the_way(&wanted);
        if let Some(first) = obstacles.first() {
            let count = obstacles.len();
            let why = format!("{first} ({count} such rows); nothing is written");
            return Err(Unsettled::blocked(why));
        }
        let diff = Diff::between(&standing.owned, &wanted, nb::satisfies);
        if !diff.is_empty() {
            self.write_rows(&view, &standing, &diff, &wanted).await?;
        }
        self.written = Some(wanted);
        Ok(())
    }

    fn standing(&self, view: &NetworkView) -> Result<Standing, ReadError> {
        let lifted = self
            .sources
            .north
            .with_replica(|replica| Standing::lift(replica, &view.network));
        Ok(lifted.ok_or(ReadError::NotYet(NORTH))??)
    }

    async fn write_rows(
        &self,
        view: &NetworkView,
        standing: &Standing,
        diff: &RowDiff,
        wanted: &Rows,
    ) -> Result<(), Unsettled> {
        let transaction = lower::topology(standing, diff, &view.network)
            .map_err(|error| Unsettled::blocked(Chain(&error)))?;
        let north = &self.sources.north;
        self.ledger.transact(north, NORTH, &transaction).await?;
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
        Ok(())
    }

    async fn import(&mut self) -> Result<(), Unsettled> {
        let since = self.first_event.take();
        let view = view::network(&self.sources).await.map_err(|why| {
            let why = Unsettled::from(why);
            // Where topology is built, that subject says why.
            if self.builds() { why.hushed() } else { why }
        })?;
        // Nothing is withdrawn because the kernel could not be read.
        let gateway_link = self.read_kernel(&view.gateway.bridge).await?;
        let target = imports::target(&view.network, &view.node);
        let north = &self.sources.north;
        let standing = north.with_replica(|replica| Imports::lift(replica, &target));
        let standing = standing.ok_or(ReadError::NotYet(NORTH))?;
        let Some(standing) = standing.map_err(ReadError::from)? else {
            // The router's row will poke this subject.
            return Err(Unsettled::quietly(Verdict::Blocked));
        };
        let world = self.world(&view, &standing, gateway_link);
        let plan = imports::plan(self.rib.view(MAIN_TABLE), &world);
        sound(&check::imports(
            &target,
            &plan.desired,
            &world.own_addresses,
        ))?;
        self.write_imports(&standing, &plan, &target, since).await?;
        self.tell(&plan);
        Ok(())
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

    async fn write_imports(
        &mut self,
        standing: &Imports,
        plan: &ImportPlan,
        target: &ImportTarget,
        since: Option<Instant>,
    ) -> Result<(), Unsettled> {
        let diff = standing.diff(&plan.desired);
        let transactions = lower::imports(standing, &diff, target);
        for transaction in &transactions {
            let north = &self.sources.north;
            self.ledger.transact(north, NORTH, transaction).await?;
        }
        let same = self.imported.replace(plan.desired.clone()).as_ref() == Some(&plan.desired);
        if transactions.is_empty() {
            return Ok(());
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
        Ok(())
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

/// A plan with a broken invariant is a bug of a planner: it is said, and nothing is written.
fn sound(violations: &[Violation]) -> Result<(), Unsettled> {
    let Some(first) = violations.first() else {
        return Ok(());
    };
    debug_assert!(false, "{first}");
    let why = format!("the plan is not sound, nothing is written: {first}");
    Err(Unsettled::blocked(why))
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
                let outcome = self.topology().await;
                self.ledger.pass(&mut self.topology, outcome)
            }
            Key::Topology => Verdict::Settled,
            Key::Import => {
                let outcome = self.import().await;
                self.ledger.pass(&mut self.import, outcome)
            }
        }
    }
}
