//! The management port: in Open vSwitch, and in the kernel with the host's way to pods.
//! In: one key. Out: the port, its address, rules and routes as planned.
//! Invariant: without a view nothing is taken away; a port that the switch has not made yet is waited for.
//! Not here: what is planned (`plan_node::host`).

use model::Problem;
use ovn::PortError;
use plan_node::NetworkView;
use plan_node::host as plan;
use reconcile::{Subjects, Verdict};
use telemetry::Chain;

use crate::said::{Complaint, Ledger};
use crate::sources::{ReadError, Sources};
use crate::view;

const SWITCH: &str = ovn::switch::DATABASE;
/// The subject, as logs and metrics name it.
pub(crate) const HOST: &str = "host";

/// What can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The default network.
    Network,
}

/// The loop's subjects.
pub(crate) struct HostSubjects {
    sources: Sources,
    ledger: Ledger,
    complaint: Complaint,
}

impl HostSubjects {
    pub(crate) fn new(sources: Sources, ledger: Ledger) -> Self {
        Self {
            sources,
            ledger,
            complaint: Complaint::of(HOST),
        }
    }

    async fn network(&mut self) -> Verdict {
        let view = match view::network(&self.sources).await {
            Ok(view) => view,
            // The topology's subject says why.
            Err(why) => return why.verdict(),
        };
        match self.port(&view).await {
            Verdict::Settled => self.kernel(&view).await,
            verdict @ (Verdict::Retry | Verdict::Blocked) => verdict,
        }
    }

    async fn port(&mut self, view: &NetworkView) -> Verdict {
        let wanted: Vec<_> = plan::port(view).into_iter().collect();
        let switch = &self.sources.switch;
        let transaction = match switch.with_replica(|replica| ovn::switch::ports(replica, &wanted))
        {
            None => return ReadError::NotYet(SWITCH).verdict(),
            Some(Err(error @ PortError::NameTaken { .. })) => {
                let problem = Problem::new(SWITCH, "NameTaken", error.to_string());
                self.complaint.say(problem.to_string());
                return Verdict::Blocked;
            }
            Some(Err(error)) => {
                self.complaint.say(Chain(&error).to_string());
                return Verdict::Retry;
            }
            Some(Ok(None)) => return Verdict::Settled,
            Some(Ok(Some(transaction))) => transaction,
        };
        let done = self
            .ledger
            .transact(switch, SWITCH, &transaction, &mut self.complaint)
            .await;
        if !done {
            return Verdict::Retry;
        }
        tracing::info!("management port written");
        Verdict::Settled
    }

    async fn kernel(&mut self, view: &NetworkView) -> Verdict {
        let Some(wanted) = plan::plan(view) else {
            return Verdict::Blocked;
        };
        match netlink::write::apply(&wanted).await {
            Ok(done) => {
                if !done.is_empty() {
                    let changes = u64::try_from(done.len()).unwrap_or(u64::MAX);
                    self.ledger.metrics.kernel_changes.inc_by(changes);
                    tracing::info!(changes = done.join("; "), "kernel changed");
                }
                self.complaint.clear();
                Verdict::Settled
            }
            // The switch makes it, and its link event pokes us.
            Err(error @ netlink::WriteError::NoDevice { .. }) => {
                tracing::debug!(error = %Chain(&error), "waiting for the switch");
                Verdict::Retry
            }
            Err(error) => {
                self.complaint.say(Chain(&error).to_string());
                Verdict::Retry
            }
        }
    }
}

impl Subjects for HostSubjects {
    type Key = Key;

    async fn universe(&mut self) -> Option<Vec<Key>> {
        Some(vec![Key::Network])
    }

    /// The process may end half way: the next start finds what is missing.
    async fn pass(&mut self, _: &Key) -> Verdict {
        let verdict = self.network().await;
        self.ledger.pass(HOST, verdict)
    }
}
