//! BGPSessionState objects: one a session of this node, written when its state changes.
//! In: FRR's sessions. Out: objects. Invariant: names are derived from node, VRF and peer; a session that is gone takes its object along.
//! Not here: FRR's configuration.

use std::collections::BTreeMap;

use api::frr_state::{BGPSessionState, BGPSessionStateStatus, LABEL_NODE, LABEL_PEER, LABEL_VRF};
use kube_edge::WriteError;
use model::frr::SessionState;
use model::{ObjectKey, hash};
use reconcile::Verdict;
use serde_json::json;
use telemetry::Chain;

use super::{FrrSubjects, MANAGED_BY};
use crate::caches::standing_sessions;

impl FrrSubjects {
    pub(super) async fn sessions(&mut self) -> Verdict {
        let sessions = match self.doors.frr.sessions().await {
            Ok(sessions) => sessions,
            // FRR that is away has no sessions: its own failure is told by the other subject.
            Err(error) => {
                tracing::debug!(error = %Chain(&error), "cannot read sessions");
                Vec::new()
            }
        };
        self.doors.metrics.sessions.reset();
        for session in &sessions {
            self.doors
                .metrics
                .sessions
                .with_label_values(&[session.bgp.as_str()])
                .inc();
        }
        match self.write_sessions(&sessions).await {
            Ok(()) => Verdict::Settled,
            Err(error) => {
                tracing::warn!(error = %Chain(error.as_ref()), "cannot write BGPSessionState objects");
                Verdict::Retry
            }
        }
    }

    async fn write_sessions(&mut self, sessions: &[SessionState]) -> anyhow::Result<()> {
        if self.sessions.is_none() {
            let standing =
                standing_sessions(&self.doors.client, &self.namespace, self.node.as_str()).await?;
            self.sessions = Some(
                standing
                    .into_iter()
                    .map(|o| {
                        let uid = o.metadata.uid.unwrap_or_default();
                        (
                            o.metadata.name.unwrap_or_default(),
                            (uid, o.status.unwrap_or_default()),
                        )
                    })
                    .collect(),
            );
        }
        let wanted: BTreeMap<String, (BGPSessionStateStatus, &SessionState)> = sessions
            .iter()
            .map(|s| (self.session_name(s), (self.session_status(s), s)))
            .collect();
        let mut known = self.sessions.take().unwrap_or_default();
        let outcome = self.write_session_changes(&wanted, &mut known).await;
        self.sessions = Some(known);
        outcome.map_err(Into::into)
    }

    async fn write_session_changes(
        &self,
        wanted: &BTreeMap<String, (BGPSessionStateStatus, &SessionState)>,
        known: &mut BTreeMap<String, (String, BGPSessionStateStatus)>,
    ) -> Result<(), WriteError> {
        let gone: Vec<String> = known
            .keys()
            .filter(|name| !wanted.contains_key(*name))
            .cloned()
            .collect();
        for name in gone {
            let key = ObjectKey::new(&self.namespace, &name);
            // Without a uid of ours the object was made in this run: look it up by deleting what bears our label next start.
            if let Some((uid, _)) = known.get(&name) {
                let uid = if uid.is_empty() {
                    self.uid_of(&key).await
                } else {
                    Some(uid.clone())
                };
                if let Some(uid) = uid {
                    self.doors
                        .writer
                        .delete::<BGPSessionState>(&key, &uid)
                        .await?;
                }
            }
            known.remove(&name);
        }
        for (name, (status, session)) in wanted {
            let key = ObjectKey::new(&self.namespace, name);
            if known.get(name).is_some_and(|(_, s)| s == status) {
                continue;
            }
            if !known.contains_key(name) {
                let labels = json!({
                    LABEL_NODE: self.node.as_str(),
                    LABEL_PEER: peer_label(&session.peer),
                    LABEL_VRF: session.vrf,
                    MANAGED_BY.0: MANAGED_BY.1,
                });
                let body = json!({"metadata": {"labels": labels}, "spec": {}});
                self.doors
                    .writer
                    .apply::<BGPSessionState>(&key, None, body)
                    .await?;
            }
            let json = serde_json::to_value(status).unwrap_or_default();
            self.doors
                .writer
                .apply_status::<BGPSessionState>(&key, json)
                .await?;
            let uid = known
                .get(name)
                .map(|(uid, _)| uid.clone())
                .unwrap_or_default();
            known.insert(name.clone(), (uid, status.clone()));
        }
        Ok(())
    }

    async fn uid_of(&self, key: &ObjectKey) -> Option<String> {
        let api: kube::Api<BGPSessionState> =
            kube::Api::namespaced(self.doors.client.clone(), &key.namespace);
        api.get_opt(&key.name).await.ok()??.metadata.uid
    }

    fn session_name(&self, session: &SessionState) -> String {
        format!(
            "{}-{}",
            self.node,
            hash::short(&format!("{}/{}/{}", self.node, session.vrf, session.peer))
        )
    }

    fn session_status(&self, session: &SessionState) -> BGPSessionStateStatus {
        BGPSessionStateStatus {
            bgp_status: Some(session.bgp.clone()),
            bfd_status: Some(session.bfd.clone()),
            node: Some(self.node.to_string()),
            peer: Some(peer_label(&session.peer)),
            vrf: Some(session.vrf.clone()),
        }
    }
}

/// A peer as a label value: frr-k8s writes IPv6 addresses whole, with dashes for colons.
fn peer_label(peer: &str) -> String {
    match peer.parse::<std::net::Ipv6Addr>() {
        Ok(ip) => {
            let groups: Vec<String> = ip.segments().iter().map(|g| format!("{g:04x}")).collect();
            groups.join("-")
        }
        Err(_) => peer.to_owned(),
    }
}
