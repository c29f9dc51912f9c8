//! Conditions of ClusterUserDefinedNetworks, their events and series.
//! In: planned conditions, refusals, pods that hold objects. Out: status, events. Invariant: a condition is about the generation
//! that it was made from; an event is published where its condition says something new.
//! Not here: the conditions (`plan_cluster`).

use std::collections::{BTreeMap, BTreeSet};

use api::cluster_user_defined_network::ClusterUserDefinedNetwork;
use kube_edge::WriteError;
use model::intent::{Condition, Event};
use model::{ObjectKey, Problem};
use plan_cluster::attachments::SYNC_ERROR;
use plan_cluster::transport::BESIDE;
use serde_json::json;

use super::super::ClusterReconciler;
use super::super::advertisement::conditions;
use crate::caches::{ExistingCondition, Planned};
use crate::key::Key;

impl ClusterReconciler {
    /// `NetworkCreated` with what the API server refused and which pods hold objects.
    pub(super) fn with_refusals(
        &self,
        name: &str,
        mut condition: Condition,
        in_use: &BTreeMap<String, Vec<String>>,
    ) -> Condition {
        let refused = self.refusals.of(&Key::UserNetworks).into_iter();
        let of_network = refused.filter(|r| {
            r.object.ends_with(&format!("/{name}")) || r.object.ends_with(&format!(" {name}"))
        });
        let mut wrong: Vec<String> = of_network
            .map(|r| format!("cannot {} {}: {}", r.verb, r.object, r.words))
            .collect();
        wrong.extend(in_use.get(name).into_iter().flatten().cloned());
        if !wrong.is_empty() {
            if !condition.status && condition.reason == SYNC_ERROR {
                wrong.push(condition.message);
            }
            condition.status = false;
            SYNC_ERROR.clone_into(&mut condition.reason);
            condition.message = wrong.join("; ");
        }
        condition.fitted()
    }

    /// Nothing is told any more of networks that are gone.
    pub(super) fn forget_networks(&mut self, there: BTreeSet<String>) {
        for name in self.networks_told.difference(&there) {
            self.clients.metrics.forget_network(name, &[]);
        }
        self.networks_told = there;
    }

    /// Writes the conditions where they differ, and an event for each that is not True and says something new.
    pub(super) async fn network_status(
        &self,
        name: &str,
        planned: Option<&Planned>,
        wanted: &[Condition],
    ) -> Result<(), WriteError> {
        let key = ObjectKey::new("", name);
        let Some(entry) = self.caches.cudns.get(&key) else {
            return Ok(());
        };
        // Another object of this name, or one that is new: the next pass is about it.
        let Some(planned) = planned.filter(|planned| planned.uid == entry.uid) else {
            return Ok(());
        };
        let (existing, generation) = (&entry.value.conditions, planned.generation);
        self.clients.metrics.forget_network(name, wanted);
        for condition in wanted {
            let metric = &self.clients.metrics.network_condition;
            metric
                .with_label_values(&[name, condition.kind])
                .set(i64::from(condition.status));
        }
        let says = |w: &Condition| {
            existing.iter().any(|s| {
                s.kind == w.kind
                    && s.status == w.status
                    && s.reason == w.reason
                    && s.message == w.message
            })
        };
        let is_current = |w: &Condition| {
            existing
                .iter()
                .any(|s| s.kind == w.kind && s.generation == generation)
        };
        // An apply that lacks one of ours takes it away.
        let is_surplus =
            |s: &ExistingCondition| s.kind == BESIDE && !wanted.iter().any(|w| w.kind == BESIDE);
        let has_all = wanted.iter().all(|w| says(w) && is_current(w));
        if has_all && !existing.iter().any(is_surplus) {
            return Ok(());
        }
        let status = json!({"conditions": conditions(wanted, existing, generation)});
        let writer = &self.clients.writer;
        writer
            .apply_status::<ClusterUserDefinedNetwork>(&key, status)
            .await?;
        for condition in wanted.iter().filter(|c| !c.status && !says(c)) {
            let event = Event {
                warning: true,
                reason: event_reason(&condition.reason),
                message: condition.message.clone(),
            };
            self.clients
                .events
                .publish::<ClusterUserDefinedNetwork>(&key, &entry.uid, &event);
        }
        Ok(())
    }
}

/// What is wrong with a network: its conditions that are not True.
pub(super) fn problems<'a>(
    name: &'a str,
    conditions: &'a [Condition],
) -> impl Iterator<Item = Problem> + 'a {
    let bad = conditions.iter().filter(|condition| !condition.status);
    bad.map(move |condition| {
        let subject = format!("ClusterUserDefinedNetwork/{name}");
        Problem::new(
            subject,
            event_reason(&condition.reason),
            condition.message.as_str(),
        )
    })
}

/// Reasons of events are from a closed set.
fn event_reason(reason: &str) -> &'static str {
    const KNOWN: [&str; 11] = [
        SYNC_ERROR,
        "NoOverlayAnnotationInvalid",
        "SubnetsInUse",
        "MTUTooLarge",
        "NetworkAttachmentDefinitionDeleted",
        "NetworkNotSupported",
        "RouteAdvertisementsNotEnabled",
        "ManagedTopologyMissing",
        "NoOverlayRouteAdvertisementsIsMissing",
        "NoOverlayRouteAdvertisementsNotAccepted",
        "NoOverlayRouteAdvertisementsLeavesOut",
    ];
    KNOWN
        .into_iter()
        .find(|known| *known == reason)
        .unwrap_or("NetworkNotReady")
}
