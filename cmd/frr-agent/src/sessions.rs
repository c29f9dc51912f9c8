//! The session loop's subject: BGPSessionState objects, one a session of this node, written when its state changes.
//! In: FRR's sessions, each second. Out: objects and metrics. Invariant: names are derived from node, VRF and peer; a session
//! that is gone takes its object along, a FRR that is gone does not: its sessions are Idle.
//! Not here: FRR's configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use api::frr_state::{BGPSessionState, BGPSessionStateStatus, LABEL_NODE, LABEL_PEER, LABEL_VRF};
use frr_edge::Frr;
use kube_edge::{WriteError, Writer};
use model::frr::SessionState;
use model::{NodeName, ObjectKey, hash};
use reconcile::{Subjects, Verdict};
use serde_json::json;
use telemetry::Chain;
use tokio::time::Instant;

use crate::caches::standing_sessions;
use crate::key::Sessions;
use crate::metrics::Metrics;
use crate::report::MANAGED_BY;

/// FRR that shows no session at all is believed after this time: one that has just started has none for a moment.
const BELIEVED: Duration = Duration::from_secs(10);

/// Writes that are under way together.
const AT_ONCE: usize = 8;

/// What stands on the server, by object name: its uid (empty where we made it in this run), and its status.
type Standing = BTreeMap<String, (String, BGPSessionStateStatus)>;

/// The loop's subject.
pub(crate) struct SessionSubject {
    pub(crate) node: NodeName,
    pub(crate) namespace: String,
    pub(crate) client: kube::Client,
    pub(crate) writer: Writer,
    pub(crate) frr: Frr,
    pub(crate) metrics: Metrics,
    pub(crate) standing: Option<Standing>,
    /// What FRR showed last, and since when it shows nothing.
    pub(crate) last: Vec<SessionState>,
    pub(crate) silent_since: Option<Instant>,
}

impl SessionSubject {
    async fn sessions(&mut self) -> Verdict {
        let shown = match self.frr.sessions().await {
            Ok(sessions) => sessions,
            Err(error) => {
                tracing::debug!(error = %Chain(&error), "cannot read sessions");
                Vec::new()
            }
        };
        let sessions = self.believed(shown);
        self.metrics.show_sessions(&sessions);
        match self.write(&sessions).await {
            Ok(()) => Verdict::Settled,
            Err(error) => {
                tracing::warn!(error = %Chain(error.as_ref()), "cannot write BGPSessionState objects");
                Verdict::Retry
            }
        }
    }

    /// What FRR shows; where it shows nothing any more, for a while its last sessions as Idle.
    fn believed(&mut self, shown: Vec<SessionState>) -> Vec<SessionState> {
        if !shown.is_empty() {
            self.silent_since = None;
            self.last = shown;
        } else if !self.last.is_empty() {
            let since = *self.silent_since.get_or_insert_with(Instant::now);
            let away = !self.frr.runs("bgpd");
            if since.elapsed() > BELIEVED && !away {
                self.last.clear();
            }
            for session in &mut self.last {
                "Idle".clone_into(&mut session.bgp);
                "N/A".clone_into(&mut session.bfd);
                (session.received, session.sent) = (0, 0);
            }
        }
        self.last.clone()
    }

    async fn write(&mut self, sessions: &[SessionState]) -> anyhow::Result<()> {
        let mut known = match self.standing.take() {
            Some(known) => known,
            None => self.read().await?,
        };
        let wanted = sessions
            .iter()
            .map(|s| (self.name(s), (self.status(s), s)))
            .collect();
        let outcome = self.write_changes(&wanted, &mut known).await;
        // After a failure what stands there is read anew: somebody may have deleted one.
        self.standing = outcome.is_ok().then_some(known);
        Ok(outcome?)
    }

    async fn read(&self) -> anyhow::Result<Standing> {
        let objects = standing_sessions(&self.client, &self.namespace, self.node.as_str()).await?;
        let lift = |object: BGPSessionState| {
            let uid = object.metadata.uid.unwrap_or_default();
            let name = object.metadata.name.unwrap_or_default();
            (name, (uid, object.status.unwrap_or_default()))
        };
        Ok(objects.into_iter().map(lift).collect())
    }

    async fn write_changes(
        &self,
        wanted: &BTreeMap<String, (BGPSessionStateStatus, &SessionState)>,
        known: &mut Standing,
    ) -> Result<(), WriteError> {
        let gone: Vec<String> = known
            .keys()
            .filter(|name| !wanted.contains_key(*name))
            .cloned()
            .collect();
        for part in gone.chunks(AT_ONCE) {
            let deletes = part
                .iter()
                .filter_map(|name| Some((name, known.get(name)?)));
            let deletes = deletes.map(|(name, (uid, _))| self.delete_one(name, uid));
            futures::future::try_join_all(deletes).await?;
            for name in part {
                known.remove(name);
            }
        }
        let changed: Vec<_> = wanted
            .iter()
            .filter(|(name, (status, _))| known.get(*name).is_none_or(|(_, s)| s != status))
            .collect();
        for part in changed.chunks(AT_ONCE) {
            let writes = part.iter().map(|(name, (status, session))| {
                self.write_one(name, status, session, !known.contains_key(*name))
            });
            futures::future::try_join_all(writes).await?;
            for (name, (status, _)) in part {
                let uid = known
                    .get(*name)
                    .map(|(uid, _)| uid.clone())
                    .unwrap_or_default();
                known.insert((*name).clone(), (uid, status.clone()));
            }
        }
        Ok(())
    }

    async fn write_one(
        &self,
        name: &str,
        status: &BGPSessionStateStatus,
        session: &SessionState,
        new: bool,
    ) -> Result<(), WriteError> {
        let key = ObjectKey::new(&self.namespace, name);
        if new {
            let labels = json!({
                LABEL_NODE: self.node.as_str(),
                LABEL_PEER: peer_label(&session.peer),
                LABEL_VRF: session.vrf,
                MANAGED_BY.0: MANAGED_BY.1,
            });
            let body = json!({"metadata": {"labels": labels}, "spec": {}});
            self.writer
                .apply::<BGPSessionState>(&key, None, body)
                .await?;
        }
        let json = serde_json::to_value(status).unwrap_or_default();
        self.writer
            .apply_status::<BGPSessionState>(&key, json)
            .await
    }

    async fn delete_one(&self, name: &str, uid: &str) -> Result<(), WriteError> {
        let key = ObjectKey::new(&self.namespace, name);
        // Without a uid the object was made in this run.
        let uid = if uid.is_empty() {
            self.uid_of(&key).await
        } else {
            Some(uid.to_owned())
        };
        match uid {
            Some(uid) => self.writer.delete::<BGPSessionState>(&key, &uid).await,
            None => Ok(()),
        }
    }

    async fn uid_of(&self, key: &ObjectKey) -> Option<String> {
        let api: kube::Api<BGPSessionState> =
            kube::Api::namespaced(self.client.clone(), &key.namespace);
        api.get_opt(&key.name).await.ok()??.metadata.uid
    }

    fn name(&self, session: &SessionState) -> String {
        format!(
            "{}-{}",
            self.node,
            hash::short(&format!("{}/{}/{}", self.node, session.vrf, session.peer))
        )
    }

    fn status(&self, session: &SessionState) -> BGPSessionStateStatus {
        BGPSessionStateStatus {
            bgp_status: Some(session.bgp.clone()),
            bfd_status: Some(session.bfd.clone()),
            node: Some(self.node.to_string()),
            peer: Some(peer_label(&session.peer)),
            vrf: Some(session.vrf.clone()),
        }
    }
}

impl Subjects for SessionSubject {
    type Key = Sessions;

    async fn universe(&mut self) -> Option<Vec<Sessions>> {
        Some(vec![Sessions])
    }

    /// May be cancelled between two writes: the next one compares with what stands there.
    async fn pass(&mut self, _: &Sessions) -> Verdict {
        self.sessions().await
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

#[cfg(test)]
mod tests {
    use super::peer_label;

    #[test]
    fn an_ipv6_peer_is_written_whole_with_dashes_and_others_as_they_are() {
        assert_eq!(
            peer_label("fd00:30::2"),
            "fd00-0030-0000-0000-0000-0000-0000-0002"
        );
        assert_eq!(peer_label("172.30.0.2"), "172.30.0.2");
        assert_eq!(peer_label("eth0"), "eth0");
    }
}
