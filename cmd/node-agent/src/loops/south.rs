//! The chassis of other nodes in OVN_Southbound.
//! In: the plan's part, the replica. Out: one transaction where something differs.
//! Invariant: where no network has an overlay, a database that cannot be reached is nobody's trouble.
//! Not here: which nodes (`plan_node::south`), how they are written (`ovn::south`).

use std::collections::BTreeSet;
use std::sync::Arc;

use model::sb::RemoteChassisByName;
use ovn::south::Counts;
use ovsdb::Client;
use prometheus::IntCounterVec;
use reconcile::{Action, Reconciler};
use telemetry::{Chain, Readiness, WarnOnce};
use tokio::sync::watch;

use crate::keys::SouthKey;
use crate::loops::failing::{Failing, Outcome};
use crate::transact::{TransactionFailed, transact};
use crate::world::Planned;

/// Why a pass failed; the world's fault, tried again.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error("cannot read rows")]
    Access(#[from] ovsdb::AccessError),
    #[error(transparent)]
    Transact(#[from] TransactionFailed),
    #[error("the database is not in step")]
    NoReplica,
}

/// Reconciles them.
pub(crate) struct SouthReconciler {
    planned: watch::Receiver<Option<Arc<Planned>>>,
    south: Client,
    transactions: IntCounterVec,
    warned: WarnOnce<SouthKey>,
    /// Nodes that are left out, as it was said last.
    refused: Vec<String>,
    failing: Failing<SouthKey>,
}

impl SouthReconciler {
    pub(crate) fn new(
        planned: watch::Receiver<Option<Arc<Planned>>>,
        south: Client,
        transactions: IntCounterVec,
        readiness: Readiness,
    ) -> Self {
        Self {
            planned,
            south,
            transactions,
            warned: WarnOnce::default(),
            refused: Vec::new(),
            failing: Failing::new("tunnels", readiness),
        }
    }

    /// Says each once why a node is left out.
    fn tell(&mut self, refused: &[String]) {
        for why in refused.iter().filter(|why| !self.refused.contains(why)) {
            tracing::warn!("{why}");
        }
        self.refused = refused.to_vec();
    }

    async fn chassis(&mut self, wanted: &RemoteChassisByName) -> Result<Action, PassError> {
        let made = self
            .south
            .with_replica(|replica| ovn::south::transaction(replica, wanted));
        let (transaction, counts) = match made {
            Some(made) => made?,
            None if wanted.is_empty() => return Ok(Action::AwaitChange),
            None => return Err(PassError::NoReplica),
        };
        self.tell(&counts.refused);
        if counts.is_nothing() {
            return Ok(Action::NoChange);
        }
        let Counts {
            made,
            deleted,
            bound,
            ..
        } = counts;
        tracing::info!(made, deleted, bound, "writing the chassis of other nodes");
        transact("south", &self.south, &transaction, &self.transactions).await?;
        Ok(Action::Done)
    }
}

impl Reconciler for SouthReconciler {
    type Key = SouthKey;

    async fn keys(&mut self) -> Option<Vec<SouthKey>> {
        Some(vec![SouthKey::Chassis])
    }

    /// Never cancelled by the loop; a transaction is applied whole or not at all.
    async fn reconcile(&mut self, key: &SouthKey) -> Action {
        let Some(planned) = self.planned.borrow().clone() else {
            return Action::AwaitChange;
        };
        let passed = match &planned.plan.south {
            Some(wanted) => self.chassis(wanted).await,
            // What stands is left as it is: the plan says why.
            None => Ok(Action::AwaitChange),
        };
        let (outcome, action) = match passed {
            Ok(action) => {
                self.warned.clear(key);
                (Outcome::Well, action)
            }
            Err(error) => {
                let text = format!(
                    "chassis of other nodes: pass failed, trying again: {}",
                    Chain(&error)
                );
                self.warned.warn(*key, text);
                (Outcome::Failed, Action::Requeue)
            }
        };
        self.failing.note(key, outcome, &BTreeSet::from([*key]));
        action
    }
}
