//! Networks that OVN-Kubernetes led past the tunnels itself: they are not taken back before the admin allows it.
//! In: whether it does now, what NodeRoutes said before this process, what the admin allows. Out: why a network is left to it.
//! Invariant: what was its for a while stays its, over restarts of this process too, until the admin says otherwise.
//! Not here: by what it is told (`plan_node::beside::signs`).

use std::collections::BTreeMap;
use std::time::Duration;

use api::node_routes::{BUILT, NodeRoutes};
use model::NetworkName;
use model::node::annotation;
use tokio::time::Instant;

use crate::world::Unbuilt;

/// Signs come and go while OVN-Kubernetes starts; what lasts so long is meant.
const LASTS: Duration = Duration::from_secs(60);
/// It has done so for that long, whether it does now or not: by this reason the next process knows it.
pub(crate) const LEFT: &str = "LeftToOvnKubernetes";

/// Since when; a network is not here that never was OVN-Kubernetes' own.
#[derive(Debug, Default)]
pub(super) struct GivenWay {
    networks: BTreeMap<NetworkName, Sign>,
}

#[derive(Debug, Clone, Copy)]
struct Sign {
    since: Instant,
    lasted: bool,
}

impl GivenWay {
    /// What another process reported of a network.
    pub(super) fn remember(&mut self, network: &NetworkName, report: Option<&NodeRoutes>) {
        let status = report.and_then(|report| report.status.as_ref());
        let mut networks = status.into_iter().flat_map(|status| &status.networks);
        let of_network = networks.find(|routes| routes.name == network.as_str());
        let mut conditions = of_network.into_iter().flat_map(|routes| &routes.conditions);
        if conditions.any(|condition| condition.type_ == BUILT && condition.reason == LEFT) {
            let (since, lasted) = (Instant::now(), true);
            self.networks
                .insert(network.clone(), Sign { since, lasted });
        }
    }

    /// OVN-Kubernetes leads the network past the tunnels now.
    pub(super) fn note_sign(&mut self, network: &NetworkName) {
        let (since, lasted) = (Instant::now(), false);
        let sign = self.networks.entry(network.clone());
        let sign = sign.or_insert(Sign { since, lasted });
        sign.lasted |= sign.since.elapsed() >= LASTS;
    }

    /// It does not now, or the admin wants the network to be led past the tunnels whoever did before.
    pub(super) fn note_no_sign(&mut self, network: &NetworkName, takeover: bool) {
        self.networks
            .retain(|name, sign| name != network || (sign.lasted && !takeover));
    }

    /// Why the network stays in the tunnels beside what else forbids it, if anything; nothing where it never was OVN-Kubernetes'
    /// own, or for a moment. `is_its`: it is now.
    pub(super) fn keeps_away(
        &self,
        network: &NetworkName,
        is_its: bool,
        other: Option<&str>,
    ) -> Option<Unbuilt> {
        self.networks.get(network).filter(|sign| sign.lasted)?;
        let other = other.map(|other| format!("{other}; ")).unwrap_or_default();
        let message = if is_its {
            format!(
                "{other}when it does so no more, annotation {}=allow of the Node lets noverlay lead the network past the tunnels",
                annotation::TAKEOVER
            )
        } else {
            format!(
                "{other}OVN-Kubernetes led it past the tunnels itself and does not any more: it could be led past them by noverlay; allowed by annotation {}=allow of the Node",
                annotation::TAKEOVER
            )
        };
        Some(Unbuilt {
            reason: LEFT,
            message,
        })
    }
}

#[cfg(test)]
mod tests {
    use plan_node::beside::signs::OVN_KUBERNETES_ROUTES;

    use super::*;

    fn left(given: &mut GivenWay, takeover: bool) -> Option<&'static str> {
        let default = NetworkName::default_network();
        given.note_no_sign(&default, takeover);
        let why = given.keeps_away(&default, false, None);
        why.map(|why| why.reason)
    }

    #[tokio::test(start_paused = true)]
    async fn what_lasted_is_not_taken_back_before_it_is_allowed() {
        let (mut given, default) = (GivenWay::default(), NetworkName::default_network());
        assert_eq!(left(&mut given, false), None, "it never was");
        // OVN-Kubernetes starts, and again after a while.
        for _ in 0..2 {
            given.note_sign(&default);
            tokio::time::advance(LASTS / 2).await;
            given.note_sign(&default);
            assert!(given.keeps_away(&default, true, None).is_none());
            assert_eq!(left(&mut given, false), None);
            tokio::time::advance(LASTS * 2).await;
        }
        given.note_sign(&default);
        tokio::time::advance(LASTS).await;
        given.note_sign(&default);
        let now = given.keeps_away(&default, true, Some("a NAT row")).unwrap();
        assert!(now.message.starts_with("a NAT row; when") && now.reason == LEFT);
        for _ in 0..2 {
            assert_eq!(left(&mut given, false), Some(LEFT));
        }
        let other = NetworkName::from("red");
        assert!(given.keeps_away(&other, false, None).is_none());
        let beside = given
            .keeps_away(&default, false, Some("no router"))
            .unwrap();
        assert!(beside.message.starts_with("no router; OVN-Kubernetes"));
        assert_eq!(left(&mut given, true), None, "the admin allows it");
        assert_eq!(left(&mut given, false), None, "and it is ours");
    }

    #[test]
    fn what_another_process_reported_counts() {
        let default = NetworkName::default_network();
        for (reason, is_left) in [
            (OVN_KUBERNETES_ROUTES, false),
            (LEFT, true),
            ("HostDoesNotForward", false),
            ("Built", false),
        ] {
            let report = serde_json::json!({
                "apiVersion": "noverlay.io/v1alpha1", "kind": "NodeRoutes",
                "metadata": {"name": "n1"}, "spec": {},
                "status": {"networks": [{
                    "name": "default", "expected": 0, "inKernel": 0, "inOvn": 0, "imported": 0, "digest": "",
                    "conditions": [{
                        "type": "Built", "status": "False", "reason": reason, "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }],
                }]},
            });
            let report: NodeRoutes = serde_json::from_value(report).unwrap();
            let mut given = GivenWay::default();
            given.remember(&default, Some(&report));
            given.remember(&NetworkName::from("red"), Some(&report));
            assert_eq!(left(&mut given, false).is_some(), is_left, "{reason}");
            let red = given.keeps_away(&NetworkName::from("red"), false, None);
            assert!(red.is_none());
        }
        let mut given = GivenWay::default();
        given.remember(&default, None);
        assert_eq!(left(&mut given, false), None);
    }
}
