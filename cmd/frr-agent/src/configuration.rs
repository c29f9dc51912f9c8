//! The configuration loop's subject: from the node's objects to what FRR runs.
//! In: requests. Out: FRR loaded, and what is to be said of it. Invariant: anything that cannot be read or merged, or that FRR
//! would refuse as a whole, leaves the last good configuration, which is looked after; an object that uses EVPN costs itself
//! only; the API server is not waited for.
//! Not here: merge and text (`frr`), when a text is loaded (`applier`), FRRNodeState (`report`).

use frr::config::{NodeConfig, NodeInput};
use model::node::Node;
use model::{NodeName, ObjectKey, Problem};
use reconcile::{Action, Reconciler, WorkQueue};
use telemetry::Readiness;
use tokio::time::{Duration, Instant};

use crate::Shared;
use crate::applier::{Applier, Outcome};
use crate::beside::{self, Beside};
use crate::caches::Caches;
use crate::key::{Configuration, Report};
use crate::metrics::Metrics;
use crate::report::{Board, FAILED, SUCCESS, Said};
use crate::secrets::Secrets;

/// A Secret that cannot be read for longer than this is reported.
const PATIENCE: Duration = Duration::from_secs(5);

/// The loop's subject.
pub(crate) struct ConfigurationReconciler {
    node: NodeName,
    caches: Caches,
    secrets: Secrets,
    applier: Applier,
    board: Board,
    reports: WorkQueue<Report>,
    beside: Beside,
    metrics: Metrics,
    readiness: Readiness,
    queue: WorkQueue<Configuration>,
    linted: Vec<Problem>,
    waiting_since: Option<Instant>,
    /// frr-k8s manages FRR on the node: nothing is done.
    aside: bool,
}

/// What the objects amount to.
enum Wanted {
    /// Something is not read yet.
    NotYet,
    /// They do not go together; why.
    Refused(Vec<Problem>),
    /// This, and objects that are left out of it.
    Config(Box<NodeConfig>, Vec<Problem>),
}

impl ConfigurationReconciler {
    pub(crate) fn new(shared: &Shared) -> Self {
        let (node, queue) = (shared.node.clone(), shared.queues.configuration.clone());
        Self {
            caches: shared.caches.clone(),
            secrets: Secrets::new(shared.client.clone(), &shared.namespace, queue.clone()),
            applier: Applier::new(shared.frr.clone(), shared.metrics.clone(), node.clone()),
            board: shared.board.clone(),
            reports: shared.queues.reports.clone(),
            beside: shared.beside.clone(),
            node,
            metrics: shared.metrics.clone(),
            readiness: shared.readiness.clone(),
            queue,
            linted: Vec::new(),
            waiting_since: None,
            aside: false,
        }
    }

    async fn configuration(&mut self) -> Action {
        if self.stands_aside() {
            // The watch of FRRNodeState tells when that is over.
            return Action::AwaitChange;
        }
        if !self.caches.ready() {
            // The caches tell when they are filled.
            return self.last_good().await;
        }
        self.readiness.set("caches", true);
        let key = ObjectKey::new("", self.node.as_str());
        let Some(node) = self.caches.node.get(&key).map(|e| e.value) else {
            tracing::warn!(node = %self.node, "there is no Node object of this name; the last good configuration stays");
            self.metrics.behind(true);
            self.reports.enqueue(Report);
            return self.last_good().await;
        };
        let (conversion, outcome) = match self.wanted(&node) {
            Wanted::NotYet => {
                self.last_good().await;
                return Action::Requeue;
            }
            Wanted::Refused(problems) => {
                self.metrics.conflicts(problems.len());
                self.metrics.behind(true);
                let conversion = failed(&problems, "the last good configuration stays");
                (conversion, self.applier.restore().await)
            }
            Wanted::Config(config, left_out) => {
                self.metrics.conflicts(left_out.len());
                let outcome = self.applier.apply(&frr::render(&config), &config).await;
                self.metrics.behind(outcome != Outcome::Holds);
                let conversion = if left_out.is_empty() {
                    SUCCESS.to_owned()
                } else {
                    failed(&left_out, "the node's other objects are applied")
                };
                (conversion, Some(outcome))
            }
        };
        self.board.put(Said {
            conversion,
            reload: outcome.map(|outcome| self.evaluate(outcome)),
            running: None,
        });
        self.reports.enqueue(Report);
        Action::Done
    }

    /// Nothing is known that could be applied: FRR is to run what it ran last.
    async fn last_good(&mut self) -> Action {
        if let Some(outcome) = self.applier.restore().await {
            self.evaluate(outcome);
        }
        Action::AwaitChange
    }

    /// Two writers of one FRR would undo each other for ever.
    fn stands_aside(&mut self) -> bool {
        let aside = self.beside.frr_k8s();
        if aside != self.aside {
            self.aside = aside;
            self.readiness.set("frr-k8s is not on this node", !aside);
            self.metrics.aside(aside);
            if aside {
                tracing::error!(
                    "{}; until then nothing is written to FRR",
                    beside::words(self.node.as_str())
                );
            } else {
                tracing::info!("frr-k8s has left this node");
            }
        }
        aside
    }

    /// The text for FRRNodeState; a failure that may pass is looked at again when its time has come.
    fn evaluate(&self, outcome: Outcome) -> String {
        match outcome {
            Outcome::Holds => SUCCESS.to_owned(),
            Outcome::Failed { why, again } => {
                if let Some(delay) = again {
                    let queue = self.queue.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(delay).await;
                        queue.enqueue(Configuration);
                    });
                }
                format!("{FAILED}{why}")
            }
        }
    }

    fn wanted(&mut self, node: &Node) -> Wanted {
        let selected = self
            .caches
            .sources
            .with(|map| frr::select(map.values().map(|e| &e.value), &node.labels));
        if !selected.broken.is_empty() {
            return Wanted::Refused(selected.broken);
        }
        self.secrets.follow(&selected.objects);
        let waiting = self.secrets.waiting();
        if waiting.is_empty() {
            self.waiting_since = None;
        } else {
            let since = *self.waiting_since.get_or_insert_with(Instant::now);
            if since.elapsed() < PATIENCE {
                return Wanted::NotYet;
            }
            let text = format!("cannot read Secret {} yet", waiting.join(", "));
            let subject = format!("Node/{}", self.node);
            return Wanted::Refused(vec![Problem::new(subject, "SecretUnread", text)]);
        }
        let passwords = self.secrets.passwords();
        let input = NodeInput {
            name: self.node.clone(),
            labels: &node.labels,
            hostname: node.hostname().to_owned(),
            objects: &selected.objects,
            passwords: &passwords,
        };
        let config = match frr::merge(&input) {
            Ok(config) => config,
            Err(problems) => return Wanted::Refused(problems),
        };
        let config = frr::with_router_ids(config, node.is_ipv6_only());
        let (config, mut lints) = frr::without_self(config, &node.own_addresses());
        lints.extend(frr::lint(&config, &node.own_addresses()));
        if lints != self.linted {
            for lint in &lints {
                tracing::warn!(reason = lint.reason, "{lint}");
            }
            self.linted = lints;
        }
        let refused = frr::lint::refused(&config);
        if !refused.is_empty() {
            return Wanted::Refused(refused);
        }
        Wanted::Config(Box::new(config), selected.left_out)
    }
}

fn failed(problems: &[Problem], rest: &str) -> String {
    let why: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
    format!("{FAILED}{}; {rest}", why.join("; "))
}

impl Reconciler for ConfigurationReconciler {
    type Key = Configuration;

    async fn keys(&mut self) -> Option<Vec<Configuration>> {
        Some(vec![Configuration])
    }

    /// Never cancelled by the loop; the process may end during a reload, which FRR then finishes or not: the note tells.
    async fn reconcile(&mut self, _: &Configuration) -> Action {
        self.configuration().await
    }
}
