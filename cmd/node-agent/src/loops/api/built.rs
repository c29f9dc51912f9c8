//! What NodeRoutes says of networks that this node does not build as they are declared.
//! In: the plan's word on each, what was reported before. Out: entries, the condition `Built` and its events.
//! Invariant: an event is given when the condition changes, never twice in a row, over restarts too.
//! Not here: why a network is not built (`plan_node`, `world`).

use std::collections::BTreeMap;

use api::node_routes::{BUILT, NetworkRoutes};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use model::NetworkName;
use model::intent::Event;
use model::nb::Owner;
use plan_node::Plan;

use super::ApiReconciler;
use super::conditions::Words;
use crate::beside::{LEFT, NOT_LOOKED_AT};
use crate::loops::import::Reports;
use crate::loops::north::Blocked;
use crate::paths::PathReport;
use crate::world::{Planned, Unbuilt};

const WORDS: Words = Words {
    kind: BUILT,
    bad: ("NotBuilt", "NetworkNotBuilt"),
    good: ("Built", "NetworkBuilt"),
};

/// Networks that are not built as they are declared: not planned so, or planned, and their rows cannot be written.
pub(super) fn unbuilt(planned: &Planned, blocked: &Blocked) -> BTreeMap<NetworkName, Unbuilt> {
    let mut all = planned.unbuilt.clone();
    for (name, why) in blocked {
        // One that has left since is not looked at again.
        if planned
            .plan
            .north
            .contains_key(&Owner::Network(name.clone()))
        {
            all.entry(name.clone()).or_insert_with(|| Unbuilt {
                reason: "RowsBlocked",
                message: format!("its rows in OVN_Northbound are not written: {why}"),
            });
        }
    }
    all
}

impl ApiReconciler {
    /// Entries of networks whose import has not come to its end once: what was reported before stands, as nothing is known to be
    /// missing; and of those that are not built, or whose packets do not pass to other nodes.
    pub(super) fn without_reports(
        &self,
        (plan, unbuilt): (&Plan, &BTreeMap<NetworkName, Unbuilt>),
        reports: &Reports,
        paths: &PathReport,
    ) -> Vec<NetworkRoutes> {
        let learns = |name: &NetworkName| plan.learn.get(name).is_some_and(|inputs| inputs.learns);
        let may_come = |name: &NetworkName| {
            learns(name) || plan.unknown.contains(name) || self.awaits_paths(name, paths)
        };
        let reported = self.reported.iter();
        let reported = reported.flat_map(|report| &report.status.networks);
        let by_name = reported.map(|routes| (NetworkName::from(routes.name.as_str()), routes));
        let kept = by_name.filter(|(name, _)| may_come(name));
        let mut all: BTreeMap<NetworkName, NetworkRoutes> =
            kept.map(|(name, routes)| (name, routes.clone())).collect();
        for name in unbuilt.keys().chain(paths.narrow.keys()) {
            let entry = all.entry(name.clone());
            entry.or_insert_with(|| NetworkRoutes {
                name: name.to_string(),
                ..NetworkRoutes::default()
            });
        }
        all.retain(|name, _| !reports.contains_key(name));
        all.into_values().collect()
    }

    /// The condition on a network that is not built, and an event where it changes; nothing where it always was.
    pub(super) fn built(
        &self,
        network: &NetworkName,
        unbuilt: Option<&Unbuilt>,
    ) -> Option<(Condition, Option<Event>)> {
        let existing = self.existing(network, WORDS.kind);
        if let Some(existing) = existing.filter(|existing| outlasts(&existing.reason, unbuilt)) {
            return Some((existing.clone(), None));
        }
        let trouble = unbuilt.map(|why| {
            let text = format!(
                "network {network} is not built as declared: {}",
                why.message
            );
            (why.reason, text)
        });
        let fine = format!("network {network} is built as it is declared");
        self.condition(network, &WORDS, trouble, fine)
    }
}

/// Whether what was reported stands: it tells the next process what this one does not know yet (`beside::given_way`).
fn outlasts(reported: &str, unbuilt: Option<&Unbuilt>) -> bool {
    reported == LEFT && unbuilt.is_some_and(|why| why.reason == NOT_LOOKED_AT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_to_others_is_not_forgotten_while_nothing_is_known_and_nothing_else_hides_why()
    {
        let why = |reason| Unbuilt {
            reason,
            message: "it holds routers that noverlay built".to_owned(),
        };
        let unknown = why(NOT_LOOKED_AT);
        assert!(outlasts(LEFT, Some(&unknown)));
        for reported in ["Built", "NotSteered"] {
            assert!(!outlasts(reported, Some(&unknown)), "{reported}");
        }
        assert!(!outlasts(LEFT, Some(&why("HostDoesNotForward"))));
        assert!(!outlasts(LEFT, None));
    }
}
