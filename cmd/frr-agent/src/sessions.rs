//! The session loop's subject: BGPSessionState objects, one a session of this node, written when its state changes.
//! In: FRR's sessions, each second, and the objects as they stand. Out: objects and metrics. Invariant: names are derived from
//! node, VRF and peer; a session that is gone takes its object along, a FRR that is gone or cannot be understood does not: its
//! sessions are Idle; where we may not or cannot ask, what was reported last stays; an object that somebody deletes is written again; a Node that is gone takes all along.
//! Not here: FRR's configuration.

mod memory;
mod writes;

use std::collections::BTreeMap;

use api::frr_state::BGPSessionStateStatus;
use frr_edge::Frr;
use frr_edge::show::ShowError;
use frr_edge::vty::{VtyError, says_gone};
use kube_edge::{Cache, Writer};
use model::frr::SessionState;
use model::node::Node;
use model::{NodeName, ObjectKey, hash};
use reconcile::{Action, Reconciler};
use telemetry::Chain;
use tokio::time::Instant;

use self::memory::{Memory, Seen, idle};
use self::writes::{Job, Objects, Refusals, What};
use crate::Shared;
use crate::beside::Beside;
use crate::caches::watch_sessions;
use crate::key::Sessions;
use crate::metrics::Metrics;
use crate::report::ECHO;

/// Statuses by the name of their object.
type Wanted = BTreeMap<String, BGPSessionStateStatus>;

/// The loop's subject.
pub(crate) struct SessionReconciler {
    node: NodeName,
    namespace: String,
    writer: Writer,
    frr: Frr,
    metrics: Metrics,
    beside: Beside,
    nodes: Cache<Node>,
    /// What stands on the server.
    existing: Cache<BGPSessionStateStatus>,
    /// What was written and may not be seen there yet.
    written: BTreeMap<String, (BGPSessionStateStatus, Instant)>,
    /// What the API server did not take.
    refusals: Refusals,
    memory: Memory,
}

impl SessionReconciler {
    pub(crate) fn new(shared: &Shared) -> Self {
        let (node, namespace) = (shared.node.clone(), shared.namespace.clone());
        Self {
            existing: watch_sessions(&shared.client, &namespace, node.as_str()),
            node,
            namespace,
            writer: shared.writer.clone(),
            frr: shared.frr.clone(),
            metrics: shared.metrics.clone(),
            beside: shared.beside.clone(),
            nodes: shared.caches.node.clone(),
            written: BTreeMap::new(),
            refusals: Refusals::default(),
            memory: Memory::default(),
        }
    }

    async fn sessions(&mut self) -> Action {
        let asked = Instant::now();
        let seen = match self.frr.sessions().await {
            Ok(sessions) => Seen::Sessions(sessions),
            Err(error @ (ShowError::Json(_) | ShowError::Vty(VtyError::Refused { .. }))) => {
                if !self.memory.is_puzzled() {
                    tracing::warn!(error = %Chain(&error), "cannot read bgpd's sessions");
                }
                Seen::Unreadable
            }
            Err(ShowError::Vty(ref error @ VtyError::Io { ref source, .. })) => {
                if says_gone(source) {
                    tracing::debug!(error = %Chain(error), "bgpd does not report its sessions");
                    Seen::Gone
                } else {
                    if !self.memory.is_puzzled() {
                        tracing::warn!(error = %Chain(error), "cannot ask for bgpd's sessions; what is reported of them is old");
                    }
                    Seen::Unasked
                }
            }
            Err(error) => {
                tracing::debug!(error = %Chain(&error), "bgpd does not report its sessions");
                Seen::Silent(asked)
            }
        };
        let unasked = seen == Seen::Unasked;
        let sessions = self.memory.believed(seen, Instant::now());
        self.metrics
            .show_sessions(sessions.as_deref().unwrap_or_default());
        if !(self.existing.ready() && self.nodes.ready()) {
            return Action::Done;
        }
        let wanted = self.wanted(sessions, unasked);
        self.write(&wanted).await
    }

    /// The objects that are to stand there. Where nothing is known of FRR, those of before, as Idle; as they are where it is
    /// we who cannot ask.
    fn wanted(&self, sessions: Option<Vec<SessionState>>, unasked: bool) -> Wanted {
        let node = ObjectKey::new("", self.node.as_str());
        if self.nodes.get(&node).is_none() || self.beside.frr_k8s() {
            return Wanted::new();
        }
        match sessions {
            Some(sessions) => sessions
                .iter()
                .map(|s| (self.name(s), self.status(s)))
                .collect(),
            None => self.existing.with(|map| {
                let as_told = |status: BGPSessionStateStatus| {
                    if unasked { status } else { idle(status) }
                };
                map.iter()
                    .map(|(key, entry)| (key.name.clone(), as_told(entry.value.clone())))
                    .collect()
            }),
        }
    }

    async fn write(&mut self, wanted: &Wanted) -> Action {
        self.written.retain(|_, (_, at)| at.elapsed() < ECHO);
        let jobs = self.differences(wanted);
        let objects = Objects {
            writer: self.writer.clone(),
            node: self.node.clone(),
        };
        let written = &mut self.written;
        self.refusals
            .write(&objects, jobs, Instant::now(), |job| {
                if let What::Write { status, .. } = job.what {
                    written.insert(job.key.name, (status, Instant::now()));
                }
            })
            .await
    }

    /// What is to go, then what is to be written.
    fn differences(&self, wanted: &Wanted) -> Vec<Job> {
        self.existing.with(|map| {
            let gone = map
                .iter()
                .filter(|(key, _)| !wanted.contains_key(&key.name))
                .map(|(key, entry)| Job {
                    key: key.clone(),
                    what: What::Delete {
                        uid: entry.uid.clone(),
                    },
                });
            let changed = wanted.iter().filter_map(|(name, status)| {
                let key = ObjectKey::new(&self.namespace, name);
                let stands = map.get(&key);
                let reported = stands.is_some_and(|entry| entry.value == *status)
                    || self.written.get(name).is_some_and(|(w, _)| w == status);
                let what = What::Write {
                    status: status.clone(),
                    new: stands.is_none(),
                };
                (!reported).then_some(Job { key, what })
            });
            gone.chain(changed).collect()
        })
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

impl Reconciler for SessionReconciler {
    type Key = Sessions;

    async fn keys(&mut self) -> Option<Vec<Sessions>> {
        Some(vec![Sessions])
    }

    /// May be cancelled between two writes: the next one compares with what stands there.
    async fn reconcile(&mut self, _: &Sessions) -> Action {
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
