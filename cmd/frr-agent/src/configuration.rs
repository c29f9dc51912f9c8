//! The configuration loop's subject: from the node's objects to what FRR runs, and FRRNodeState.
//! In: pokes. Out: FRR loaded, FRRNodeState written on change. Invariant: anything that cannot be read or merged leaves the
//! last good configuration; an object that uses EVPN costs itself only.
//! Not here: merge and text (`frr`), when a text is loaded (`applier`).

use frr::config::{NodeConfig, NodeInput};
use frr_edge::Frr;
use model::node::Node;
use model::{NodeName, ObjectKey, Problem};
use reconcile::{Poker, Subjects, Verdict};
use telemetry::{Chain, Readiness};
use tokio::time::{Duration, Instant};

use crate::applier::{Applier, Outcome};
use crate::caches::Caches;
use crate::key::Configuration;
use crate::metrics::Metrics;
use crate::report::{FAILED, Report, Reporter, SUCCESS};
use crate::secrets::Secrets;

/// A Secret that cannot be read for longer than this is told.
const PATIENCE: Duration = Duration::from_secs(5);

/// The loop's subject.
pub(crate) struct ConfigurationSubject {
    pub(crate) node: NodeName,
    pub(crate) caches: Caches,
    pub(crate) secrets: Secrets,
    pub(crate) applier: Applier,
    pub(crate) reporter: Reporter,
    pub(crate) frr: Frr,
    pub(crate) metrics: Metrics,
    pub(crate) readiness: Readiness,
    pub(crate) poker: Poker<Configuration>,
    pub(crate) linted: Vec<Problem>,
    pub(crate) waiting_since: Option<Instant>,
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

impl ConfigurationSubject {
    async fn configuration(&mut self) -> Verdict {
        if !self.caches.ready() {
            self.applier.restore(&self.node).await;
            // The caches tell when they are filled.
            return Verdict::Blocked;
        }
        self.readiness.set("caches", true);
        let key = ObjectKey::new("", self.node.as_str());
        let Some(node) = self.caches.node.get(&key).map(|e| e.value) else {
            tracing::warn!(node = %self.node, "there is no Node object of this name; the last good configuration stays");
            self.metrics.behind(true);
            return Verdict::Blocked;
        };
        let (conversion, reload) = match self.wanted(&node) {
            Wanted::NotYet => return Verdict::Retry,
            Wanted::Refused(problems) => {
                self.metrics.conflicts(problems.len());
                self.metrics.behind(true);
                (failed(&problems, "the last good configuration stays"), None)
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
        let reload = reload.map(|outcome| self.judge(outcome));
        self.report(conversion, reload).await
    }

    /// The text for FRRNodeState; a failure that may pass is looked at again when its time has come.
    fn judge(&self, outcome: Outcome) -> String {
        match outcome {
            Outcome::Holds => SUCCESS.to_owned(),
            Outcome::Failed { why, again } => {
                if let Some(delay) = again {
                    let poker = self.poker.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(delay).await;
                        poker.poke(Configuration);
                    });
                }
                format!("{FAILED}{why}")
            }
        }
    }

    async fn report(&mut self, conversion: String, reload: Option<String>) -> Verdict {
        let running = match self.frr.running_config().await {
            Ok(text) => Some(text),
            // What was shown last stays: FRR that is away is told by the reload's result.
            Err(error) => {
                tracing::debug!(error = %Chain(&error), "cannot show what FRR runs");
                None
            }
        };
        let report = Report {
            conversion,
            reload,
            running,
        };
        if let Err(error) = self.reporter.write(report).await {
            tracing::warn!(error = %Chain(&error), "cannot write FRRNodeState");
            return Verdict::Retry;
        }
        self.readiness.set("first pass", true);
        Verdict::Settled
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
        let (config, mut lints) = frr::without_self(config, &node.own_addresses());
        lints.extend(frr::lint(&config, &node.own_addresses()));
        if lints != self.linted {
            for lint in &lints {
                tracing::warn!(reason = lint.reason, "{lint}");
            }
            self.linted = lints;
        }
        Wanted::Config(Box::new(config), selected.left_out)
    }
}

fn failed(problems: &[Problem], rest: &str) -> String {
    let why: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
    format!("{FAILED}{}; {rest}", why.join("; "))
}

impl Subjects for ConfigurationSubject {
    type Key = Configuration;

    async fn universe(&mut self) -> Option<Vec<Configuration>> {
        Some(vec![Configuration])
    }

    /// Never cancelled by the loop; the process may end during a reload, which FRR then finishes or not: the note tells.
    async fn pass(&mut self, _: &Configuration) -> Verdict {
        self.configuration().await
    }
}
