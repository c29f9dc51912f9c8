//! The host's packet filter: our sets and chains of one nftables table.
//! In: the plan's part, the table. Out: one transaction where something differs.
//! Invariant: what somebody takes away by hand comes back; what nft spells in another way than we do is written once, not for ever.
//! Not here: which rules (`plan_node::nft`), how they are written (`host::nft`).

use std::collections::BTreeSet;
use std::sync::Arc;

use host::nft::{self, Held, NftError};
use model::nft::Ruleset;
use reconcile::{Action, Reconciler};
use telemetry::{Chain, Readiness, WarnOnce};
use tokio::sync::watch;

use crate::keys::FilterKey;
use crate::loops::failing::{Failing, Outcome};
use crate::world::Planned;

/// Reconciles it.
pub(crate) struct FilterReconciler {
    planned: watch::Receiver<Option<Arc<Planned>>>,
    /// What was written last, whether that was all, and how nft showed it then.
    written: Option<(Ruleset, bool, Held)>,
    warned: WarnOnce<FilterKey>,
    failing: Failing<FilterKey>,
}

impl FilterReconciler {
    pub(crate) fn new(
        planned: watch::Receiver<Option<Arc<Planned>>>,
        readiness: Readiness,
    ) -> Self {
        Self {
            planned,
            written: None,
            warned: WarnOnce::default(),
            failing: Failing::new("filter", readiness),
        }
    }

    async fn ruleset(&mut self, planned: &Planned) -> Result<(), NftError> {
        let wanted = &planned.plan.nft;
        let nothing = *wanted == Ruleset::default();
        if nothing && (self.written.is_none() && !planned.plan.is_complete()) {
            return Ok(());
        }
        let held = match nft::read(wanted.table).await {
            Ok(held) => held,
            // Where nothing is wanted a host may do without the program.
            Err(NftError::Run(_)) if nothing => return Ok(()),
            Err(error) => return Err(error),
        };
        let complete = planned.plan.is_complete();
        let as_written = |(ruleset, whole, shown): &(Ruleset, bool, Held)| {
            ruleset == wanted && *whole == complete && *shown == held
        };
        if self.written.as_ref().is_some_and(as_written) {
            return Ok(());
        }
        if !nft::apply(&held, wanted, complete).await? {
            return Ok(());
        }
        tracing::info!("wrote the packet filter");
        let shown = nft::read(wanted.table).await?;
        // Another spelling of ours is remembered, somebody's change in between is not.
        if shown.has_the_form_of(wanted) {
            self.written = Some((wanted.clone(), complete, shown));
        }
        Ok(())
    }
}

impl Reconciler for FilterReconciler {
    type Key = FilterKey;

    async fn keys(&mut self) -> Option<Vec<FilterKey>> {
        Some(vec![FilterKey::Ruleset])
    }

    /// Never cancelled by the loop; a transaction is applied whole or not at all.
    async fn reconcile(&mut self, key: &FilterKey) -> Action {
        let Some(planned) = self.planned.borrow().clone() else {
            return Action::AwaitChange;
        };
        let (outcome, action) = match self.ruleset(&planned).await {
            Ok(()) => {
                self.warned.clear(key);
                (Outcome::Well, Action::Done)
            }
            Err(error) => {
                let text = format!("cannot look after the packet filter: {}", Chain(&error));
                self.warned.warn(*key, text);
                (Outcome::Failed, Action::Requeue)
            }
        };
        self.failing.note(key, outcome, &BTreeSet::from([*key]));
        action
    }
}
