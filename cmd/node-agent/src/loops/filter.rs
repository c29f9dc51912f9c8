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

use crate::beside::{Applied, Dropped, HostPart, Sight};
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
    /// Beside OVN-Kubernetes: who wants to know what came of it.
    sight: Option<Sight>,
}

impl FilterReconciler {
    pub(crate) fn new(
        planned: watch::Receiver<Option<Arc<Planned>>>,
        sight: Option<Sight>,
        readiness: Readiness,
    ) -> Self {
        Self {
            planned,
            written: None,
            warned: WarnOnce::default(),
            failing: Failing::new("filter", readiness),
            sight,
        }
    }

    /// What of others in the packet filter drops what is led past the tunnels, by network.
    async fn dropping(&self, planned: &Planned) -> Result<Dropped, NftError> {
        let plan = &planned.plan;
        let subnets = plan_node::beside::host::between(&plan.nft);
        if self.sight.is_none() || subnets.is_empty() {
            return Ok(Dropped::new());
        }
        let mut dropped = Dropped::new();
        for (chain, lacking) in nft::dropping_forwarded(&subnets).await? {
            let networks = plan.learn.iter().filter(|(_, inputs)| {
                let mut own = inputs.scope.cluster_subnets.iter();
                own.any(|own| lacking.contains(own))
            });
            for (network, inputs) in networks {
                let own = &inputs.scope.cluster_subnets;
                let of_it = lacking.iter().filter(|subnet| own.contains(subnet));
                let of_it: Vec<String> = of_it.map(ToString::to_string).collect();
                let text = format!(
                    "nftables chain {chain} drops what is forwarded, and has no rules that accept all that goes to {} and all that comes from there",
                    of_it.join(", ")
                );
                dropped.entry(network.clone()).or_insert(text);
            }
        }
        Ok(dropped)
    }

    async fn ruleset(&mut self, planned: &Planned) -> Result<(), Failed> {
        let wanted = &planned.plan.nft;
        let nothing = wanted.is_empty();
        if nothing && (self.written.is_none() && !planned.plan.is_complete()) {
            return Ok(());
        }
        let held = match nft::read(wanted.table).await {
            Ok(held) => held,
            // Where nothing is wanted a host may do without the program.
            Err(NftError::Run(_)) if nothing => return Ok(()),
            Err(error) => return Err(Failed::Reading(error)),
        };
        let complete = planned.plan.is_complete();
        let as_written = |(ruleset, whole, shown): &(Ruleset, bool, Held)| {
            ruleset == wanted && *whole == complete && *shown == held
        };
        if self.written.as_ref().is_some_and(as_written) {
            return Ok(());
        }
        let wrote = nft::apply(&held, wanted, complete).await;
        if !wrote.map_err(Failed::Writing)? {
            return Ok(());
        }
        tracing::info!("wrote the packet filter");
        let shown = nft::read(wanted.table).await.map_err(Failed::Reading)?;
        // Another spelling of ours is remembered, somebody's change in between is not.
        if shown.has_the_form_of(wanted) {
            self.written = Some((wanted.clone(), complete, shown));
        }
        Ok(())
    }
}

/// At what nft failed.
enum Failed {
    Reading(NftError),
    Writing(NftError),
}

impl Failed {
    fn error(&self) -> &NftError {
        match self {
            Self::Reading(error) | Self::Writing(error) => error,
        }
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
        let done = match self.ruleset(&planned).await {
            Ok(()) => self.dropping(&planned).await.map_err(Failed::Reading),
            Err(failed) => Err(failed),
        };
        let (applied, outcome, action) = match done {
            // What others drop is theirs to change, and told in the network's condition.
            Ok(dropped) => {
                match dropped.iter().next() {
                    Some((network, why)) => {
                        let text = format!("network {network}: {why}");
                        self.warned.warn(*key, text);
                    }
                    None => self.warned.clear(key),
                }
                if let Some(sight) = &self.sight {
                    sight.note_dropped(dropped);
                }
                (Applied::Stands, Outcome::Well, Action::Done)
            }
            Err(failed) => {
                let error = failed.error();
                let text = format!("cannot look after the packet filter: {}", Chain(error));
                self.warned.warn(*key, text.clone());
                let applied = match failed {
                    // The kernel keeps what it has, whether nft can show it or not.
                    Failed::Reading(_) => Applied::Unknown(text),
                    Failed::Writing(_) => Applied::Broken(text),
                };
                (applied, Outcome::Failed, Action::Requeue)
            }
        };
        if let Some(sight) = &self.sight {
            sight.note_host(HostPart::Filter, &planned.plan, applied);
        }
        self.failing.note(key, outcome, &BTreeSet::from([*key]));
        action
    }
}
