//! Asks the other nodes whether packets as large as pods send pass.
//! In: the ways. Out: a [`PathReport`], metrics. Invariant: a bounded number of requests is under way, however many nodes there
//! are; an error costs its own visit only. Not here: which ways, what is asked and what answers mean (`plan_node::paths`).

use std::collections::BTreeMap;
use std::time::Duration;

use host::echo::{self, Answer, EchoError};
use model::{NetworkName, NodeName};
use plan_node::paths::prober::{Due, Passage, Prober};
use plan_node::paths::visit::{Reply, Verdict};
use plan_node::paths::{Paths, report};
use telemetry::{Chain, WarnOnce};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::metrics::PathMetrics;

/// So long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// So much time is between two reports at most.
const MOST_SPACING: Duration = Duration::from_secs(10);
/// So many visits are under way at most.
const AT_ONCE: usize = 32;

/// What is found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathReport {
    /// Networks whose packets do not pass everywhere, and a sentence on each.
    pub narrow: BTreeMap<NetworkName, String>,
    /// Each way has been tried since the process started: what is not said is not so.
    pub settled: bool,
    /// What is known of the ways of each network that has any.
    pub networks: BTreeMap<NetworkName, Passage>,
    /// Nothing is asked, because the configuration says so.
    pub off: bool,
    /// Why nothing can be asked.
    pub forbidden: Option<String>,
}

/// Who asks.
#[derive(Debug)]
pub struct Pathfinder<F> {
    /// This node.
    pub node: NodeName,
    /// Each way is visited once in it; zero: none ever is.
    pub interval: Duration,
    /// The ways, as they are now; `None` until they are known.
    pub paths: watch::Receiver<Option<Paths>>,
    /// Counts requests, shows what is found.
    pub metrics: PathMetrics,
    /// Where the report goes.
    pub tell: watch::Sender<PathReport>,
    /// Called where the report is another one.
    pub changed: F,
}

/// How a visit ended.
enum Ended {
    /// With this verdict, or none.
    Visit(Option<Verdict>),
    /// Nothing may be sent.
    Forbidden(String),
}

impl<F: Fn() + Send + 'static> Pathfinder<F> {
    /// Asks until the ways' sender is gone.
    pub async fn run(mut self) {
        if self.interval.is_zero() {
            self.tell.send_modify(|report| {
                report.settled = true;
                report.off = true;
            });
            (self.changed)();
            return std::future::pending().await;
        }
        let mut prober = Prober::new(self.node.clone(), self.interval);
        let (start, mut forbidden, mut told) = (Instant::now(), None, WarnOnce::default());
        let mut visits: JoinSet<(Due, Ended)> = JoinSet::new();
        // Of many ways that change together not each is a report.
        let spacing = MOST_SPACING.min(self.interval / 6);
        let mut report_at = Some(Instant::now());
        let mut reported = Instant::now();
        self.paths.mark_changed();
        loop {
            while visits.len() < AT_ONCE
                && let Some(due) = prober.begin(start.elapsed())
            {
                visits.spawn(visit(due, self.metrics.clone()));
            }
            let wakes = prober.wakes().filter(|_| visits.len() < AT_ONCE);
            let rest = wakes.map(|at| at.saturating_sub(start.elapsed()));
            let until_report = report_at.map(|at| at.saturating_duration_since(Instant::now()));
            if until_report.is_some_and(|until| until.is_zero()) {
                self.report(&prober, forbidden.as_ref());
                reported = Instant::now();
                report_at = None;
                continue;
            }
            let rest = rest.into_iter().chain(until_report).min();
            tokio::select! {
                changed = self.paths.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if let Some(paths) = &*self.paths.borrow_and_update() {
                        prober.set(paths, start.elapsed());
                    }
                }
                Some(ended) = visits.join_next() => {
                    // A visit that panicked is visited no more until its way changes.
                    let Ok((due, ended)) = ended else { continue };
                    let verdict = verdict(ended, &mut forbidden, &mut told);
                    prober.ended(&due, verdict);
                }
                () = tokio::time::sleep(rest.unwrap_or(self.interval)) => continue,
            }
            report_at.get_or_insert(reported + spacing);
        }
    }

    fn report(&self, prober: &Prober, forbidden: Option<&String>) {
        let narrow = prober.narrow();
        self.metrics.show(prober);
        let Some(paths) = self.paths.borrow().clone() else {
            return;
        };
        let now = PathReport {
            narrow: report::by_network(&self.node, &paths, &narrow),
            settled: prober.is_settled(),
            networks: prober.by_network(),
            off: false,
            forbidden: forbidden.cloned(),
        };
        let before = self.tell.borrow().narrow.clone();
        let new = now.narrow.iter();
        for (network, text) in new.filter(|(name, text)| before.get(*name) != Some(*text)) {
            tracing::warn!(%network, "{text}");
        }
        for network in before.keys().filter(|name| !now.narrow.contains_key(*name)) {
            tracing::info!(%network, "no way to another node is known any more that is too narrow for the network's packets");
        }
        let differs = self.tell.send_if_modified(|before| {
            let differs = *before != now;
            *before = now;
            differs
        });
        if differs {
            (self.changed)();
        }
    }
}

/// What a visit found, and in `forbidden` why nothing could be asked.
fn verdict(
    ended: Ended,
    forbidden: &mut Option<String>,
    told: &mut WarnOnce<()>,
) -> Option<Verdict> {
    match ended {
        Ended::Visit(verdict) => {
            *forbidden = None;
            told.clear(&());
            verdict
        }
        Ended::Forbidden(why) => {
            told.warn(
                (),
                format!("narrow ways to other nodes are not noticed: {why}"),
            );
            *forbidden = Some(why);
            None
        }
    }
}

/// Sends what a visit asks for, one request after the other.
async fn visit(due: Due, metrics: PathMetrics) -> (Due, Ended) {
    let mut visit = due.visit.clone();
    while let Some(size) = visit.next() {
        let asked = echo::ask(due.path.source, due.key.to, size, PATIENCE).await;
        let reply = match asked {
            Ok(Answer::Answered) => Reply::Answered,
            Ok(Answer::Lost { mtu }) => Reply::Lost { hint: mtu },
            Err(error @ EchoError::Forbidden(_)) => {
                return (due, Ended::Forbidden(Chain(&error).to_string()));
            }
            Err(error) => {
                tracing::debug!(error = %Chain(&error), node = %due.key.node, "no echo request");
                Reply::Failed
            }
        };
        metrics.count(reply);
        visit.heard(reply);
    }
    (due, Ended::Visit(visit.verdict()))
}
