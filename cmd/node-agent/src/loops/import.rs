//! The import loop: one import for each network that the plan lets learn.
//! In: the plan's part. Out: passes of `importing`, what they found for the report.
//! Invariant: an import goes on with the last plan, whatever cannot be read now; networks take turns, and one that has much to
//! write gives way after a few seconds. Not here: how routes become rows (`importing`), what may be learned (`plan_node::learn`).

pub(crate) mod report;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daemon::Configuration;
use model::nb::ImportTarget;
use model::{NetworkName, NodeName};
use ovsdb::Client;
use plan_node::Inputs;
use prometheus::Registry;
use reconcile::{Action, Reconciler};
use settings::OvnTopology;
use telemetry::{Chain, Readiness, WarnOnce};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::report::{ImportReport, Shown};
use crate::beside::Sight;
use crate::importing::{FrrProbe, Import, ImportConfig, ImportError, Passed, SetImport, Sink};
use crate::kernel_events::KernelEvents;
use crate::keys::{ApiKey, Queues};
use crate::loops::failing::{Failing, Outcome};
use crate::metrics::{Metrics, NetworkMetrics};
use crate::world::Planned;

/// Between two reports of a network, at least: they are written once a second at most.
const REPORT: Duration = Duration::from_secs(1);
/// Between two log lines of a network: a route that flaps must not fill the log.
const LOG: Duration = Duration::from_secs(1);

/// Reports of all imports that came to their end once, by network.
pub(crate) type Reports = BTreeMap<NetworkName, Arc<ImportReport>>;

/// What all imports have in common.
pub(crate) struct Shared {
    pub(crate) planned: watch::Receiver<Option<Arc<Planned>>>,
    pub(crate) node: NodeName,
    pub(crate) configuration: Configuration,
    pub(crate) north: Client,
    pub(crate) events: Arc<KernelEvents>,
    pub(crate) probe: FrrProbe,
    pub(crate) queues: Queues,
    pub(crate) metrics: Metrics,
    pub(crate) registry: Registry,
    /// Beside OVN-Kubernetes: who wants to know of routes to pods.
    pub(crate) sight: Option<Sight>,
}

/// Reconciles imports, by network.
pub(crate) struct ImportReconciler {
    shared: Shared,
    imports: BTreeMap<NetworkName, NetworkImport>,
    reports: watch::Sender<Reports>,
    warned: WarnOnce<NetworkName>,
    failing: Failing<NetworkName>,
}

/// One network's import.
struct NetworkImport {
    import: Sink,
    metrics: NetworkMetrics,
    /// The inputs, and the plan that they are of: an import knows equal ones by their place, and need not look at them.
    inputs: Option<(Arc<Planned>, Arc<Inputs>)>,
    /// What the last report was made from, and when.
    shown: Option<(Shown, Instant)>,
    again: Option<JoinHandle<()>>,
    /// Rows that were added and removed and not logged yet.
    unlogged: (usize, usize),
    logged: Option<Instant>,
}

impl ImportReconciler {
    pub(crate) fn new(
        shared: Shared,
        readiness: Readiness,
        reports: watch::Sender<Reports>,
    ) -> Self {
        Self {
            shared,
            imports: BTreeMap::new(),
            reports,
            warned: WarnOnce::default(),
            failing: Failing::new("import", readiness),
        }
    }

    /// Networks that learn no more: their rows go with their routers.
    fn forget(&mut self, planned: &Planned) {
        let is_planned = |name: &NetworkName| planned.plan.learn.contains_key(name);
        let gone: Vec<NetworkName> = self
            .imports
            .keys()
            .filter(|name| !is_planned(name))
            .cloned()
            .collect();
        for name in gone {
            if let Some(import) = self.imports.remove(&name) {
                import.end(&self.shared.registry);
            }
            self.shared.events.unsubscribe(&name);
            self.warned.clear(&name);
            self.reports.send_modify(|reports| {
                reports.remove(&name);
            });
            self.shared.queues.api.enqueue(ApiKey::Report);
        }
    }

    async fn import(&mut self, name: &NetworkName, planned: &Arc<Planned>) -> Action {
        let Some(inputs) = planned.plan.learn.get(name) else {
            return Action::AwaitChange;
        };
        let shared = &self.shared;
        let import = match shared.import_of(name, &mut self.imports) {
            Ok(import) => import,
            Err(error) => {
                let text = format!("network {name}: cannot register metrics: {error}");
                self.warned.warn(name.clone(), text);
                return Action::AwaitChange;
            }
        };
        let limits = shared.configuration.now().settings.limits;
        import.import.set_limits(&limits);
        let inputs = import.inputs(planned, inputs);
        shared.events.set_table(name, inputs.table);
        let stale = planned.stale.contains_key(name);
        let passed = import.pass(&inputs, stale).await;
        if let (Some(sight), Ok(Passed::Agreed { .. })) = (&shared.sight, &passed) {
            sight.note_routes(name, import.import.is_routed(&inputs));
        }
        // Before the router's rows were read nothing is known to be missing.
        let has_looked = matches!(passed, Ok(Passed::Agreed { .. } | Passed::Unfinished(..)));
        let report = (has_looked && inputs.learns)
            .then(|| import.report(name, &shared.node, &inputs))
            .flatten();
        if let Some(report) = report {
            let report = Arc::new(report);
            self.reports.send_modify(|reports| {
                reports.insert(name.clone(), report);
            });
            shared.queues.api.enqueue(ApiKey::Report);
        }
        if !inputs.learns && self.reports.borrow().contains_key(name) {
            self.reports.send_modify(|reports| {
                reports.remove(name);
            });
            shared.queues.api.enqueue(ApiKey::Report);
        }
        import.enqueue_again(name, has_looked, shared);
        let somebodys = stale && !planned.awaits(name);
        let well = somebodys || !stale && matches!(passed, Ok(Passed::Agreed { .. }));
        let action = import.evaluate(name, passed, stale, &mut self.warned);
        let outcome = if well { Outcome::Well } else { Outcome::Failed };
        let wanted: BTreeSet<NetworkName> = planned.plan.learn.keys().cloned().collect();
        self.failing.note(name, outcome, &wanted);
        action
    }
}

impl Shared {
    /// The network's import, which begins where there is none.
    fn import_of<'a>(
        &self,
        name: &NetworkName,
        imports: &'a mut BTreeMap<NetworkName, NetworkImport>,
    ) -> Result<&'a mut NetworkImport, prometheus::Error> {
        match imports.entry(name.clone()) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(self.start(name)?)),
        }
    }

    fn start(&self, network: &NetworkName) -> Result<NetworkImport, prometheus::Error> {
        let settings = &self.configuration.now().settings;
        let config = ImportConfig {
            target: ImportTarget::of(network, &self.node),
            limits: settings.limits,
            interface: settings.gateway.interface.clone(),
        };
        let transactions = self.metrics.transactions.clone();
        let metrics = NetworkMetrics::new(&self.registry, network, transactions)?;
        let (events, of_import) = (self.events.subscribe(network), metrics.import.clone());
        let north = self.north.clone();
        let import = match settings.ovn.topology {
            OvnTopology::Build => {
                let probe = Some(self.probe.share());
                let import = Import::new(config, north, probe, events, of_import);
                Sink::Router(Box::new(import))
            }
            OvnTopology::Adopt => {
                let (network, limits) = (network.clone(), settings.limits);
                let import = SetImport::new(network, north, limits, events, of_import);
                Sink::Sets(Box::new(import))
            }
        };
        Ok(NetworkImport {
            import,
            metrics,
            inputs: None,
            shown: None,
            again: None,
            unlogged: (0, 0),
            logged: None,
        })
    }
}

impl NetworkImport {
    fn inputs(&mut self, planned: &Arc<Planned>, inputs: &Inputs) -> Arc<Inputs> {
        let (of, held) = match self.inputs.take() {
            Some((of, held)) if Arc::ptr_eq(&of, planned) || *held == *inputs => {
                (Arc::clone(planned), held)
            }
            Some(_) | None => (Arc::clone(planned), Arc::new(inputs.clone())),
        };
        self.inputs = Some((of, Arc::clone(&held)));
        held
    }

    /// `stale`: the inputs rest on what was known before.
    async fn pass(&mut self, inputs: &Arc<Inputs>, stale: bool) -> Result<Passed, ImportError> {
        self.metrics.inputs_stale.set(i64::from(stale));
        let passed = self.import.pass(inputs).await;
        if stale {
            self.count_retry("inputs");
        }
        passed
    }

    fn count_retry(&self, cause: &str) {
        let retries = &self.metrics.import.retries;
        retries.with_label_values(&[cause]).inc();
    }

    /// Says what came of a pass, and what is to follow.
    fn evaluate(
        &mut self,
        name: &NetworkName,
        passed: Result<Passed, ImportError>,
        stale: bool,
        warned: &mut WarnOnce<NetworkName>,
    ) -> Action {
        let network = name.as_str();
        match passed {
            Ok(Passed::NotReady) => Action::AwaitChange,
            Ok(Passed::Unfinished(add, remove)) => {
                tracing::info!(network, add, remove, "imported routes, more to come");
                Action::Done
            }
            Ok(Passed::Agreed {
                wrote: (add, remove),
                looked,
                repaired,
            }) => {
                if repaired {
                    tracing::warn!(
                        network,
                        add,
                        remove,
                        "somebody else changed imported routes, repaired them"
                    );
                }
                self.log(name, (add, remove));
                if stale {
                    return Action::Requeue;
                }
                warned.clear(name);
                if looked {
                    Action::Done
                } else {
                    Action::NoChange
                }
            }
            Err(error) => {
                self.count_retry(cause(&error));
                let text = format!(
                    "import of network {name}: pass failed, trying again: {}",
                    Chain(&error)
                );
                warned.warn(name.clone(), text);
                Action::Requeue
            }
        }
    }

    /// The report, where it says something else than before and the last one is long enough ago.
    fn report(
        &mut self,
        name: &NetworkName,
        node: &NodeName,
        inputs: &Arc<Inputs>,
    ) -> Option<ImportReport> {
        let importer = self.import.importer();
        let steered = self.import.steered();
        let shown = Shown::of(importer, steered, inputs);
        let at = match &self.shown {
            Some((last, _)) if *last == shown => return None,
            // `enqueue_again` brings the pass that says it.
            Some((_, at)) if at.elapsed() < REPORT => return None,
            Some(_) | None => Instant::now(),
        };
        self.shown = Some((shown, at));
        let report = ImportReport::of(name, node, (importer, steered.map(AsRef::as_ref)), inputs);
        let missing = i64::try_from(report.missing).unwrap_or(i64::MAX);
        self.metrics.routes_missing.set(missing);
        Some(report)
    }

    /// Nobody else tells when FRR is itself again, when it is time to check what events reported, or when the report may be made.
    fn enqueue_again(&mut self, name: &NetworkName, has_looked: bool, shared: &Shared) {
        if let Some(before) = self.again.take() {
            before.abort();
        }
        let (importer, inputs) = (self.import.importer(), self.inputs.as_ref());
        let steered = self.import.steered();
        // A pass that failed is tried again with a growing delay, and has nothing to report.
        let shown = self.shown.as_ref().filter(|_| has_looked);
        let report = shown.and_then(|(last, at)| {
            let unsaid =
                inputs.is_some_and(|(_, inputs)| *last != Shown::of(importer, steered, inputs));
            unsaid.then(|| REPORT.saturating_sub(at.elapsed()))
        });
        if let Some(wait) = self.import.again().into_iter().chain(report).min() {
            let (queue, name) = (shared.queues.import.clone(), name.clone());
            self.again = Some(tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                queue.enqueue(name);
            }));
        }
    }

    /// Says what was imported; the rest is said with the next pass, that of the check a few seconds later at the latest.
    fn log(&mut self, name: &NetworkName, (add, remove): (usize, usize)) {
        self.unlogged.0 += add;
        self.unlogged.1 += remove;
        let soon = self.logged.is_some_and(|at| at.elapsed() < LOG);
        if self.unlogged != (0, 0) && !soon {
            let (add, remove) = std::mem::take(&mut self.unlogged);
            let network = name.as_str();
            match self.import.steered() {
                None => {
                    let routes = self.import.importer().rows();
                    tracing::info!(network, add, remove, routes, "imported routes");
                }
                Some(steered) => {
                    let subnets = steered.len();
                    tracing::info!(network, add, remove, subnets, "steered past the tunnels");
                }
            }
            self.logged = Some(Instant::now());
        }
    }

    fn end(mut self, registry: &Registry) {
        if let Some(again) = self.again.take() {
            again.abort();
        }
        self.metrics.unregister(registry);
    }
}

/// Label of a pass that failed.
fn cause(error: &ImportError) -> &'static str {
    match error {
        ImportError::Transact(_) | ImportError::NoProgress => "database",
        ImportError::Dump(_) => "kernel",
        ImportError::Access(_) | ImportError::Thread | ImportError::Unsound(_) => "other",
    }
}

impl Reconciler for ImportReconciler {
    type Key = NetworkName;

    async fn keys(&mut self) -> Option<Vec<NetworkName>> {
        let planned = self.shared.planned.borrow().clone()?;
        self.forget(&planned);
        Some(planned.plan.learn.keys().cloned().collect())
    }

    /// Never cancelled by the loop; a transaction is applied whole or not at all.
    async fn reconcile(&mut self, name: &NetworkName) -> Action {
        let Some(planned) = self.shared.planned.borrow().clone() else {
            return Action::AwaitChange;
        };
        self.forget(&planned);
        self.import(name, &planned).await
    }
}

#[cfg(test)]
mod tests;
