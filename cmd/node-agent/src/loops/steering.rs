//! The kernel's rules and routes beside OVN-Kubernetes.
//! In: the plan's part, the kernel. Out: our rules and routes, where one of them differs; what came of it.
//! Invariant: what somebody takes away by hand comes back; what others have at our preferences stays, and then nothing of ours comes.
//! Not here: which entries (`plan_node::beside`), how the kernel is changed (`netlink::steering`).

use std::collections::BTreeSet;
use std::sync::Arc;

use model::steering::{Entries, TABLE};
use netlink::steering::{self, Steered, SteeringError};
use reconcile::{Action, Reconciler};
use telemetry::{Chain, Readiness, WarnOnce};
use tokio::sync::watch;

use crate::beside::{Applied, HostPart, Sight};
use crate::keys::PortKey;
use crate::loops::failing::{Failing, Outcome};
use crate::world::Planned;

/// Reconciles them.
pub(crate) struct SteeringReconciler {
    planned: watch::Receiver<Option<Arc<Planned>>>,
    sight: Sight,
    /// What was last brought about.
    stood: Option<Entries>,
    warned: WarnOnce<()>,
    failing: Failing<()>,
}

impl SteeringReconciler {
    pub(crate) fn new(
        planned: watch::Receiver<Option<Arc<Planned>>>,
        sight: Sight,
        readiness: Readiness,
    ) -> Self {
        Self {
            planned,
            sight,
            stood: None,
            warned: WarnOnce::default(),
            failing: Failing::new("rules", readiness),
        }
    }

    /// Brings the kernel to what is wanted; the words for what keeps it from being so. `is_all`: what is not wanted goes; else a network
    /// may have it that is not known yet.
    async fn kernel(
        &mut self,
        wanted: &Entries,
        is_all: bool,
    ) -> Result<Option<String>, SteeringError> {
        let steered = steering::apply(wanted, is_all).await?;
        for change in &steered.done {
            tracing::info!(change, "changed the kernel");
        }
        let stood = self.stood.replace(wanted.clone());
        if stood.as_ref() == Some(wanted) && !steered.done.is_empty() {
            tracing::warn!(
                "somebody else changed rules or routes beside OVN-Kubernetes, repaired them"
            );
        }
        Ok(in_the_way(wanted, &steered))
    }
}

/// What of others keeps ours from being written.
fn in_the_way(wanted: &Entries, steered: &Steered) -> Option<String> {
    if *wanted == Entries::default() {
        return None;
    }
    if steered.is_table_taken {
        return Some(format!(
            "routing table {TABLE} holds routes of another protocol than {}; remove them, or find out who uses it",
            model::steering::PROTOCOL
        ));
    }
    let taken: Vec<String> = steered.taken.iter().map(ToString::to_string).collect();
    (!taken.is_empty()).then(|| {
        format!(
            "ip rules of somebody else stand at preference {}; allowed: none at 2898 to 2901",
            taken.join(", ")
        )
    })
}

impl Reconciler for SteeringReconciler {
    type Key = PortKey;

    async fn keys(&mut self) -> Option<Vec<PortKey>> {
        Some(vec![PortKey::Kernel])
    }

    /// Never cancelled by the loop.
    async fn reconcile(&mut self, key: &PortKey) -> Action {
        if *key != PortKey::Kernel {
            return Action::Done;
        }
        let Some(planned) = self.planned.borrow().clone() else {
            return Action::AwaitChange;
        };
        let plan = &planned.plan;
        let (applied, action) = match self.kernel(&plan.steering, plan.is_complete()).await {
            Ok(None) => {
                self.warned.clear(&());
                (Applied::Stands, Action::Done)
            }
            Ok(Some(in_the_way)) => {
                self.warned.warn((), in_the_way.clone());
                (Applied::Broken(in_the_way), Action::AwaitChange)
            }
            Err(error) => {
                let text = format!("cannot look after rules and routes: {}", Chain(&error));
                self.warned.warn((), text.clone());
                (Applied::Broken(text), Action::Requeue)
            }
        };
        let outcome = match (&applied, action) {
            (Applied::Stands, _) => Outcome::Well,
            (_, Action::Requeue) => Outcome::Failed,
            (_, _) => Outcome::Blocked,
        };
        self.sight.note_host(HostPart::Rules, plan, applied);
        self.failing.note(&(), outcome, &BTreeSet::from([()]));
        action
    }
}
