//! The node's rows in OVN, imported routes aside; its management port is in `port`.
//! In: views, replicas. Out: guarded transactions where something differs.
//! Invariant: no transaction where nothing differs; nothing is withdrawn because something could not be read.
//! Not here: which rows (`plan_node`), how they are written (`ovn`), imported routes (`import`).

mod port;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::diff::Diff;
use model::nb::ImportTarget;
use model::nb::{self, Rows};
use netlink::write;
use ovn::north::Quiet;
use plan_node::NetworkView;
use plan_node::check::{self, Violation};
use plan_node::learn;
use reconcile::{Action, Reconciler};
use telemetry::{Chain, Readiness};
use tokio::time::Instant;

use crate::keys::{BridgeKey, NorthKey, Queues};
use crate::known::Known;
use crate::loops::UNREADY;
use crate::transact::{TransactionFailed, transact};

/// Why a pass failed; the world's fault, tried again.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error("cannot read rows")]
    Access(#[from] ovsdb::AccessError),
    #[error("cannot make a transaction")]
    Encode(#[from] ovn::EncodeError),
    #[error(transparent)]
    Transact(#[from] TransactionFailed),
    #[error("cannot write the kernel's side")]
    Kernel(#[from] write::WriteError),
}

/// Reconciles them.
pub(crate) struct NorthReconciler {
    known: Arc<Known>,
    queues: Queues,
    readiness: Readiness,
    /// What a settled topology looked at: while nothing of it changed, another look is not needed.
    quiet: Option<(u64, Quiet)>,
    /// The topology's rows as they last stood, whether written or found.
    stood: Option<Rows>,
    /// What was last said of each subject.
    told: BTreeMap<NorthKey, String>,
    /// Since when every pass of a subject has failed.
    failing: BTreeMap<NorthKey, Instant>,
}

impl NorthReconciler {
    pub(crate) fn new(known: Arc<Known>, queues: Queues, readiness: Readiness) -> Self {
        Self {
            known,
            queues,
            readiness,
            quiet: None,
            stood: None,
            told: BTreeMap::new(),
            failing: BTreeMap::new(),
        }
    }

    fn tell(&mut self, key: NorthKey, text: String) {
        if self.told.get(&key) != Some(&text) {
            tracing::warn!("{text}");
            self.told.insert(key, text);
        }
    }

    /// A subject that fails for a while, or that only somebody else can help, is not ready any more.
    fn note(&mut self, key: NorthKey, verdict: Action) {
        if !matches!(verdict, Action::Requeue | Action::AwaitChange) {
            self.failing.remove(&key);
            return;
        }
        let since = self.failing.entry(key).or_insert_with(Instant::now);
        if verdict == Action::AwaitChange || since.elapsed() >= UNREADY {
            let condition = match key {
                NorthKey::Topology => "topology",
                NorthKey::Port => "port",
            };
            self.readiness.set(condition, false);
        }
    }

    /// A plan with a broken invariant is a bug of a planner: it is said, and nothing is written.
    fn is_sound(&mut self, key: NorthKey, violations: &[Violation]) -> bool {
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

    /// The view, or `None` with the reason reported. A view that cannot be made changes nothing.
    async fn view(&mut self, key: NorthKey) -> Option<(NetworkView, u32)> {
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
                if key == NorthKey::Topology {
                    self.known.metrics.problems.set(1);
                    self.tell(key, why);
                }
                None
            }
        }
    }

    /// Whether the last look at the topology still stands: of thousands of imported routes each one moves the replica.
    fn is_quiet(&mut self, epoch: u64) -> Result<bool, PassError> {
        let Some((at, quiet)) = self.quiet.as_mut().filter(|(at, _)| *at == epoch) else {
            return Ok(false);
        };
        debug_assert_eq!(*at, epoch);
        let still = self
            .known
            .north
            .with_replica(|replica| quiet.holds(replica));
        Ok(still.transpose()?.unwrap_or(false))
    }

    async fn topology(&mut self) -> Result<Action, PassError> {
        let epoch = self.known.epoch();
        if self.is_quiet(epoch)? {
            return Ok(Action::NoChange);
        }
        self.quiet = None;
        let Some((view, _)) = self.view(NorthKey::Topology).await else {
            return Ok(Action::Requeue);
        };
        let problems = view.problems();
        self.known
            .metrics
            .problems
            .set(i64::try_from(problems.len()).unwrap_or(i64::MAX));
        if let Some(problem) = problems.first() {
            self.tell(NorthKey::Topology, problem.to_string());
        }
        let default = self.known.settings.gateway.bgp_default;
        let rows = plan_node::plan(&view);
        if !self.is_sound(NorthKey::Topology, &check::rows(&rows)) {
            self.known.metrics.problems.inc();
            return Ok(Action::AwaitChange);
        }
        let network = self.known.network.clone();
        let target = ImportTarget::of(&network, &self.known.node);
        let of_node = |node: &model::node::Node| network.gateway_router(&node.name);
        let nodes = self.known.all_nodes();
        let routers: Option<BTreeSet<_>> = nodes.map(|all| all.iter().map(of_node).collect());
        let decoded = self
            .known
            .north
            .with_replica(|replica| -> Result<_, PassError> {
                let north = ovn::north::decode(replica, &network)?;
                let quiet = Quiet::of(replica, &north)?;
                // Where an imported route stands, the import looks after what gave way to it.
                let giving_way = learn::fallbacks(&view, default).into_keys().collect();
                let imported = ovn::north::imported_among(replica, &target, &giving_way)?;
                let rows = learn::without_fallbacks(rows, &view, default, &imported);
                let foreign = ovn::north::foreign(replica, &rows, routers.as_ref());
                Ok((north, foreign, quiet, rows))
            });
        let Some(decoded) = decoded else {
            return Ok(Action::Requeue);
        };
        let (north, foreign, quiet, rows) = decoded?;
        if let Some(problem) = foreign.first() {
            self.tell(NorthKey::Topology, problem.to_string());
            let more = i64::try_from(foreign.len()).unwrap_or(i64::MAX);
            self.known.metrics.problems.add(more);
            return Ok(Action::AwaitChange);
        }
        let diff = Diff::between(&north.owned, &rows, nb::satisfies);
        if !diff.is_empty() {
            let comment = format!("noverlay node-agent topology {network}");
            let transaction = ovn::encode::topology(&diff, &north, &comment)?;
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
            let counter = &self.known.metrics.import.transactions;
            transact("north", &self.known.north, &transaction, counter).await?;
        } else {
            self.quiet = Some((epoch, quiet));
        }
        self.stood = Some(rows);
        self.told.remove(&NorthKey::Topology);
        self.readiness.set("topology", true);
        self.queues.bridge.enqueue(BridgeKey::Flows);
        Ok(Action::Done)
    }
}

impl Reconciler for NorthReconciler {
    type Key = NorthKey;

    async fn keys(&mut self) -> Option<Vec<NorthKey>> {
        self.quiet = None;
        Some(vec![NorthKey::Topology, NorthKey::Port])
    }

    /// Never cancelled by the loop; a transaction is applied whole or not at all.
    async fn reconcile(&mut self, key: &NorthKey) -> Action {
        let outcome = match key {
            NorthKey::Topology => self.topology().await,
            NorthKey::Port => self.port().await,
        };
        let verdict = outcome.unwrap_or_else(|error| {
            self.tell(
                *key,
                format!("{key:?} pass failed, trying again: {}", Chain(&error)),
            );
            Action::Requeue
        });
        self.note(*key, verdict);
        verdict
    }
}
