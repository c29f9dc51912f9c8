//! The management port: in Open vSwitch, and in the kernel with the host's way to pods.
//! In: one key. Out: the port, its address, rules and routes as planned.
//! Invariant: without a view nothing is taken away; a port that the switch has not made yet is waited for.
//! Not here: what is planned (`plan_node::host`).

use ovn::PortError;
use plan_node::NetworkView;
use plan_node::host as plan;
use reconcile::{Subjects, Verdict};
use telemetry::Chain;

use crate::said::{Complaint, Ledger, Unsettled};
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

    async fn network(&self) -> Result<(), Unsettled> {
        // The topology's subject says why there is no view.
        let view = view::network(&self.sources)
            .await
            .map_err(|why| Unsettled::from(why).hushed())?;
        self.port(&view).await?;
        self.kernel(&view).await
    }

    async fn port(&self, view: &NetworkView) -> Result<(), Unsettled> {
        let wanted: Vec<_> = plan::port(view).into_iter().collect();
        let switch = &self.sources.switch;
        let made = switch.with_replica(|replica| ovn::switch::ports(replica, &wanted));
        let made = made.ok_or(ReadError::NotYet(SWITCH))?;
        let Some(transaction) = made.map_err(|error| refused(&error))? else {
            return Ok(());
        };
        self.ledger.transact(switch, SWITCH, &transaction).await?;
        tracing::info!("management port written");
        Ok(())
    }

    async fn kernel(&self, view: &NetworkView) -> Result<(), Unsettled> {
        let Some(wanted) = plan::plan(view) else {
            return Err(Unsettled::quietly(Verdict::Blocked));
        };
        let done = match netlink::write::apply(&wanted).await {
            Ok(done) => done,
            // The switch makes it, and its link event pokes us.
            Err(netlink::WriteError::NoDevice { .. }) => {
                return Err(Unsettled::quietly(Verdict::Retry));
            }
            Err(error) => return Err(Unsettled::retry(Chain(&error))),
        };
        if !done.is_empty() {
            let changes = u64::try_from(done.len()).unwrap_or(u64::MAX);
            self.ledger.metrics.kernel_changes.inc_by(changes);
            tracing::info!(changes = done.join("; "), "kernel changed");
        }
        Ok(())
    }
}

fn refused(error: &PortError) -> Unsettled {
    match error {
        PortError::NameTaken { .. } => Unsettled::blocked(error),
        PortError::Access(_) | PortError::NoBridge { .. } => Unsettled::retry(Chain(error)),
    }
}

impl Subjects for HostSubjects {
    type Key = Key;

    async fn universe(&mut self) -> Option<Vec<Key>> {
        Some(vec![Key::Network])
    }

    /// The process may end half way: the next start finds what is missing.
    async fn pass(&mut self, _: &Key) -> Verdict {
        let outcome = self.network().await;
        self.ledger.pass(&mut self.complaint, outcome)
    }
}
