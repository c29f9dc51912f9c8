//! What NodeRoutes says of ways to other nodes that are too narrow for a network's packets.
//! In: what the probes found, what was reported before. Out: the condition `PathsCarryMtu` and its events.
//! Invariant: what cannot be tried is Unknown and nothing that has to be mended. Not here: probes (`crate::paths`).

use api::node_routes::PATHS_CARRY_MTU;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use model::NetworkName;
use model::intent::Event;

use super::ApiReconciler;
use super::conditions::{Words, stated};
use crate::paths::PathReport;

const WORDS: Words = Words {
    kind: PATHS_CARRY_MTU,
    bad: ("PathTooNarrow", "PathTooNarrow"),
    good: ("PathsCarryMtu", "PathsCarryMtu"),
};
/// Reason of the condition, and of its event, where no echo request may be sent.
const NOT_PERMITTED: &str = "ProbesNotPermitted";

impl ApiReconciler {
    /// Whether a network that was reported keeps its entry until its ways have been tried.
    pub(super) fn awaits_paths(&self, network: &NetworkName, paths: &PathReport) -> bool {
        !paths.settled && self.existing(network, WORDS.kind).is_some()
    }

    /// The condition, and an event where it changes; nothing where there never was a need.
    pub(super) fn path_mtu(
        &self,
        network: &NetworkName,
        paths: &PathReport,
    ) -> Option<(Condition, Option<Event>)> {
        if let Some(why) = paths
            .forbidden
            .as_ref()
            .filter(|_| paths.probed.contains(network))
        {
            let text = format!(
                "whether packets as large as pods of network {network} may send pass to other nodes is not known: {why}"
            );
            let said = ("Unknown", (NOT_PERMITTED, NOT_PERMITTED), text);
            return Some(stated(WORDS.kind, self.existing(network, WORDS.kind), said));
        }
        let trouble = paths.narrow.get(network);
        if trouble.is_none() && !paths.settled {
            // Nothing has been tried yet that could say it is over.
            let existing = self.existing(network, WORDS.kind)?;
            return Some((existing.clone(), None));
        }
        let trouble = trouble.map(|text| (WORDS.bad.0, text.clone()));
        let fine = format!(
            "no way to another node is known that is too narrow for packets of network {network}"
        );
        self.condition(network, &WORDS, trouble, fine)
    }
}
