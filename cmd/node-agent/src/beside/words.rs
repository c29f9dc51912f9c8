//! Why networks beside OVN-Kubernetes are not where they are to be, in words.
//! In: a step, what was seen. Out: sentences for the condition `Built`. Invariant: of a network that is where it is to be nothing is said.
//! Not here: what follows.

use plan_node::NetworkView;
use plan_node::beside::steps::{Part, Seen, Step};

use crate::world::Unbuilt;

/// Why nothing is left to be done, and not nothing is left.
pub(super) const STILL_ROUTED: &str = "two ip rules keep the host's packets in the tunnels while other nodes announce their pods: all nodes have to go back ([default] transport = geneve, or --leave on each) before one of them has nothing left";

/// What is not as it is declared although the network is past the tunnels.
pub(super) fn translated(view: NetworkView<'_>) -> Unbuilt {
    let name = view.name();
    let message = if name.is_default() {
        format!(
            "pods of network {name} leave with the node's address although [no-overlay] outbound-snat is disabled: with [gateway] mode = shared they leave by OVN-Kubernetes' gateway router; allowed: mode = local, or outbound-snat = enabled"
        )
    } else {
        format!(
            "pods of network {name} leave with the node's address although outboundSNAT is Disabled: beside OVN-Kubernetes its routers translate what leaves a network of users; allowed: Enabled"
        )
    };
    Unbuilt {
        reason: "TranslatedByOvnKubernetes",
        message,
    }
}

/// Why a network is not where it is to be, in words; `None`: it is.
pub(super) fn why(step: Step, wanted: bool, seen: Seen, trouble: Option<String>) -> Option<String> {
    let waits = match (step, wanted) {
        (Step::Steering, true) | (Step::Absent, false) => return None,
        (Step::Absent | Step::Untracked, true) => match seen.untracked {
            Some(Part::Whole) => "the next step is about to follow".to_owned(),
            _ => "flows of the management port's access lists are not in force yet (NB_Global hv_cfg)".to_owned(),
        },
        (Step::Filtered | Step::Host | Step::Ready, true) => match (trouble, seen.untracked) {
            (Some(trouble), _) => trouble,
            (None, Some(Part::Whole)) if is_whole(seen) => {
                "the next step is about to follow".to_owned()
            }
            (None, Some(Part::Whole)) => "the host's rules and packet filter are not whole yet".to_owned(),
            (None, _) => "the management port's access lists are not in force".to_owned(),
        },
        (Step::Host, false) if seen.announced == Some(true) => {
            return Some("it is on its way back to the tunnels, and waits until pods are announced no more (annotation noverlay.io/underlay-ready of the Node, networks of FRR's bgpd)".to_owned());
        }
        (_, false) => return Some(format!("it is on its way back to the tunnels, at step {step:?}")),
    };
    Some(format!("pods' packets take the tunnels: {waits}"))
}

fn is_whole(seen: Seen) -> bool {
    let mut parts = [seen.filter, seen.rules].into_iter();
    parts.all(|part| part == Some(Part::Whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_that_is_where_it_is_to_be_has_nothing_said_of_it() {
        let whole = Seen {
            untracked: Some(Part::Whole),
            filter: Some(Part::Whole),
            rules: Some(Part::Whole),
            ..Seen::default()
        };
        assert_eq!(why(Step::Steering, true, whole, None), None);
        assert_eq!(why(Step::Absent, false, whole, None), None);
        let said = |step, wanted, seen, trouble: Option<&str>| {
            why(step, wanted, seen, trouble.map(str::to_owned)).unwrap()
        };
        for (text, word) in [
            (said(Step::Untracked, true, Seen::default(), None), "hv_cfg"),
            (
                said(Step::Host, true, whole, Some("nft failed")),
                "nft failed",
            ),
            (said(Step::Ready, false, whole, None), "step Ready"),
        ] {
            assert!(text.contains(word), "{text}");
        }
    }
}
