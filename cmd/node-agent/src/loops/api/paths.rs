//! What NodeRoutes says of ways to other nodes that are too narrow for a network's packets.
//! In: what the probes found, what was reported before. Out: the condition `PathsCarryMtu` and its events.
//! Invariant: what cannot be tried is Unknown and nothing that has to be mended; True is said only of what has been seen to pass.
//! Not here: probes (`crate::paths`).

use api::node_routes::PATHS_CARRY_MTU;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use model::NetworkName;
use model::intent::Event;

use super::ApiReconciler;
use super::conditions::{Words, stated};
use crate::paths::PathReport;
use plan_node::paths::prober::Passage;

const WORDS: Words = Words {
    kind: PATHS_CARRY_MTU,
    bad: ("PathTooNarrow", "PathTooNarrow"),
    good: ("PathsCarryMtu", "PathsCarryMtu"),
};
/// Reason of the condition, and of its event, where no echo request may be sent.
const NOT_PERMITTED: &str = "ProbesNotPermitted";
/// The same, where it was False and nothing shows whether it is still.
const NOT_PROBED: &str = "NotProbed";

impl ApiReconciler {
    /// Whether a network that was reported keeps its entry until its ways have been tried.
    pub(super) fn awaits_paths(&self, network: &NetworkName, paths: &PathReport) -> bool {
        !paths.settled && self.existing(network, WORDS.kind).is_some()
    }

    /// The condition, and an event where it changes; nothing where there never was a need. `is_known`: the network is planned for.
    pub(super) fn path_mtu(
        &self,
        network: &NetworkName,
        paths: &PathReport,
        is_known: bool,
    ) -> Option<(Condition, Option<Event>)> {
        let existing = self.existing(network, WORDS.kind);
        let said = match said(
            network,
            paths,
            is_known,
            existing.map(|c| c.status.as_str()),
        ) {
            Said::Nothing => return None,
            Said::AsBefore => return existing.map(|existing| (existing.clone(), None)),
            Said::Status(status, reasons, text) => (status, reasons, text),
        };
        Some(stated(WORDS.kind, existing, said))
    }
}

/// What is said of a network.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// There is no condition.
    Nothing,
    /// It stays as it is.
    AsBefore,
    /// Status, its reason and the event's, and a message.
    Status(&'static str, (&'static str, &'static str), String),
}

fn said(network: &NetworkName, paths: &PathReport, is_known: bool, before: Option<&str>) -> Said {
    let unknown = |reason, why: &str| {
        let text = format!(
            "whether packets as large as pods of network {network} may send pass to other nodes is not known: {why}"
        );
        Said::Status("Unknown", (reason, reason), text)
    };
    let ways = paths.networks.get(network);
    if let Some(why) = paths.forbidden.as_ref().filter(|_| ways.is_some()) {
        return unknown(NOT_PERMITTED, why);
    }
    if let Some(text) = paths.narrow.get(network) {
        return Said::Status("False", WORDS.bad, text.clone());
    }
    let Some(before) = before else {
        return Said::Nothing;
    };
    let fine =
        format!("packets as large as pods of network {network} may send pass to each other node");
    match ways {
        Some(Passage::Proven) => Said::Status("True", WORDS.good, fine),
        // A node that answers nothing is no reason to doubt what was seen to pass.
        Some(Passage::Unproven) if before == "True" => Said::AsBefore,
        Some(Passage::Unproven) => unknown(NOT_PROBED, "not every node that was asked answers"),
        None if paths.off => unknown(NOT_PROBED, "[default] mtu-probe-interval is 0"),
        // Nothing has been tried yet that could say it is over.
        Some(Passage::Untried) => Said::AsBefore,
        None if !is_known || !paths.settled => Said::AsBefore,
        None => unknown(NOT_PROBED, "there is no way to another node"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(passage: Option<Passage>) -> PathReport {
        let network = NetworkName::default_network();
        PathReport {
            settled: true,
            networks: passage.into_iter().map(|p| (network.clone(), p)).collect(),
            ..PathReport::default()
        }
    }

    fn status(paths: &PathReport, is_known: bool, before: Option<&str>) -> String {
        match said(&NetworkName::default_network(), paths, is_known, before) {
            Said::Nothing => "nothing".to_owned(),
            Said::AsBefore => "as before".to_owned(),
            Said::Status(status, (reason, _), _) => format!("{status} {reason}"),
        }
    }

    #[test]
    fn true_is_said_only_of_ways_that_were_seen_to_pass() {
        let narrow = || {
            let mut paths = report(Some(Passage::Unproven));
            let name = NetworkName::default_network();
            paths.narrow.insert(name, "too narrow".to_owned());
            paths
        };
        assert_eq!(status(&narrow(), true, None), "False PathTooNarrow");
        // Then nobody answers; then everybody does.
        let silent = report(Some(Passage::Unproven));
        assert_eq!(status(&silent, true, Some("False")), "Unknown NotProbed");
        assert_eq!(status(&silent, true, Some("True")), "as before");
        let proven = report(Some(Passage::Proven));
        assert_eq!(status(&proven, true, Some("Unknown")), "True PathsCarryMtu");
        assert_eq!(status(&proven, true, None), "nothing");
        // A process that has just started.
        let untried = report(Some(Passage::Untried));
        assert_eq!(status(&untried, true, Some("False")), "as before");
        assert_eq!(status(&report(None), false, Some("False")), "as before");
        assert_eq!(
            status(&report(None), true, Some("False")),
            "Unknown NotProbed"
        );
        let mut off = report(None);
        off.off = true;
        assert_eq!(status(&off, false, Some("False")), "Unknown NotProbed");
        let mut forbidden = untried;
        forbidden.forbidden = Some("no".to_owned());
        assert_eq!(status(&forbidden, true, None), "Unknown ProbesNotPermitted");
    }
}
