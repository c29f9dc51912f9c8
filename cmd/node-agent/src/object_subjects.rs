//! What the node tells the cluster: annotations of its Node, and its NodeRoutes object.
//! In: keys from the loop. Out: server-side applies, none where the object says it already.
//! Invariant: only the agent's own annotations are written, and only on the very Node (uid) that was seen.
//! Not here: the texts (`plan_node::annotations`), the judgement (`plan_node::coverage`).

use std::collections::BTreeMap;

use api::node_routes::{NetworkRoutes, NodeRoutes, NodeRoutesStatus, SkippedRoutes};
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube_edge::{WriteError, Writer};
use model::{NetworkName, NodeName, ObjectKey, Prefix};
use plan_node::annotations::{self, NodeFacts};
use plan_node::coverage::{self, Reach};
use plan_node::imports;
use reconcile::{Subjects, Verdict};
use serde_json::{Value, json};
use settings::OvnNetworks;
use tokio::sync::watch;

use crate::ovn_subjects::Learned;
use crate::said::{Complaint, Ledger, Unsettled};
use crate::sources::{ReadError, Seen, Sources, links};
use crate::view;

/// Subjects, as logs and metrics name them.
pub(crate) const ANNOTATIONS: &str = "annotations";
/// See [`ANNOTATIONS`].
pub(crate) const REPORT: &str = "report";

/// What can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// Annotations of the own Node.
    Annotations,
    /// The NodeRoutes object.
    Report,
}

/// What was written and what stood there before: until the watch shows something else than that, it is on its way.
#[derive(Debug, Clone, PartialEq)]
struct Sent<T> {
    uid: String,
    before: T,
    wanted: T,
}

/// The loop's subjects.
pub(crate) struct ObjectSubjects {
    sources: Sources,
    ledger: Ledger,
    writer: Writer,
    learned: watch::Receiver<Option<Learned>>,
    annotated: Option<Sent<BTreeMap<String, String>>>,
    reported: Option<Sent<Option<NodeRoutesStatus>>>,
    annotations: Complaint,
    report: Complaint,
}

impl ObjectSubjects {
    pub(crate) fn new(
        sources: Sources,
        ledger: Ledger,
        writer: Writer,
        learned: watch::Receiver<Option<Learned>>,
    ) -> Self {
        Self {
            sources,
            ledger,
            writer,
            learned,
            annotated: None,
            reported: None,
            annotations: Complaint::of(ANNOTATIONS),
            report: Complaint::of(REPORT),
        }
    }

    fn publishes(&self) -> bool {
        self.sources.settings.ovn_networks == OvnNetworks::Own
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new("", self.sources.node.as_str())
    }

    /// The own Node, once the Nodes are known.
    fn own(&self) -> Result<(String, Seen), Unsettled> {
        if !self.sources.nodes.ready() {
            return Err(Unsettled::quietly(Verdict::Blocked));
        }
        self.sources.own().ok_or_else(|| {
            Unsettled::blocked(format!(
                "Node/{}: there is no Node object of this name; nothing is written",
                self.sources.node
            ))
        })
    }

    async fn annotate(&mut self) -> Result<(), Unsettled> {
        let (uid, seen) = self.own()?;
        let (switch, links) = (self.sources.switch()?, links().await?);
        let settings = &*self.sources.settings;
        let gateway = view::gateway(settings, &seen.node, &switch, &links)?;
        let uplinks = switch.uplinks(&gateway.bridge);
        let mtu = links
            .iter()
            .filter(|l| l.name == gateway.bridge || uplinks.iter().any(|u| u.name == l.name))
            .map(|link| link.mtu)
            .min();
        let wanted = annotations::plan(&NodeFacts {
            node: self.sources.node.clone(),
            gateway,
            host_cidrs: view::host_cidrs(settings, &links),
            host_mtu: mtu.unwrap_or(1500),
        });
        if seen.published == wanted {
            self.annotated = None;
            return Ok(());
        }
        let sent = Sent {
            uid,
            before: seen.published,
            wanted,
        };
        if self.annotated.as_ref() == Some(&sent) {
            return Ok(());
        }
        let body = json!({"metadata": {"annotations": sent.wanted}});
        let key = self.key();
        let done = self.writer.apply::<KubeNode>(&key, Some(&sent.uid), body);
        self.written("Node", done.await)?;
        tracing::info!("annotations of the Node written");
        self.annotated = Some(sent);
        Ok(())
    }

    /// Counts a write.
    fn written(&self, kind: &str, done: Result<(), WriteError>) -> Result<(), Unsettled> {
        let result = if done.is_ok() { "success" } else { "failure" };
        let labels = [kind, result];
        self.ledger
            .metrics
            .api_writes
            .with_label_values(&labels)
            .inc();
        Ok(done?)
    }

    async fn tell(&mut self) -> Result<(), Unsettled> {
        let (uid, _) = self.own()?;
        let learned = self.learned.borrow().clone();
        // The first listing of reports pokes this subject, and so does the first pass of imports.
        let Some(learned) = learned.filter(|_| self.sources.reports.ready()) else {
            return Err(Unsettled::quietly(Verdict::Blocked));
        };
        let network = NetworkName::default_network();
        let target = imports::target(&network, &self.sources.node);
        let north = &self.sources.north;
        let rows = north.with_replica(|replica| ovn::north::destinations(replica, &target));
        let rows = rows.ok_or(ReadError::NotYet(ovn::north::DATABASE))?;
        let rows = rows.map_err(ReadError::from)?;
        let wanted = NodeRoutesStatus {
            networks: vec![self.judge(&network, &learned, rows)],
        };
        let standing = self.sources.reports.get(&self.key());
        let before = standing.as_ref().and_then(|entry| entry.value.clone());
        if before.as_ref() == Some(&wanted) {
            self.reported = None;
            return Ok(());
        }
        let sent = Sent {
            uid,
            before,
            wanted: Some(wanted),
        };
        if self.reported.as_ref() == Some(&sent) {
            return Ok(());
        }
        let done = self.write_report(&sent, standing.is_some()).await;
        self.written("NodeRoutes", done)?;
        self.reported = Some(sent);
        Ok(())
    }

    async fn write_report(
        &self,
        sent: &Sent<Option<NodeRoutesStatus>>,
        there: bool,
    ) -> Result<(), WriteError> {
        let key = self.key();
        if !there {
            // It goes with its Node.
            let owner = json!([{
                "apiVersion": "v1", "kind": "Node", "name": key.name, "uid": sent.uid,
            }]);
            let body = json!({"metadata": {"ownerReferences": owner}, "spec": {}});
            self.writer.apply::<NodeRoutes>(&key, None, body).await?;
        }
        let status = serde_json::to_value(&sent.wanted).unwrap_or(Value::Null);
        self.writer.apply_status::<NodeRoutes>(&key, status).await
    }

    fn judge(
        &self,
        network: &NetworkName,
        learned: &Learned,
        rows: Vec<(Prefix, bool)>,
    ) -> NetworkRoutes {
        let mut ovn = Reach::default();
        for (prefix, forwards) in rows {
            if forwards {
                ovn.routes.insert(prefix);
            } else {
                ovn.discards.insert(prefix);
            }
        }
        let expected: BTreeMap<NodeName, Vec<Prefix>> = self.sources.nodes.with(|map| {
            map.values()
                .map(|entry| &entry.value.node)
                .filter(|node| node.name != self.sources.node)
                .filter_map(|node| {
                    let subnets = node.subnets.known()?.get(network)?;
                    Some((node.name.clone(), subnets.clone()))
                })
                .collect()
        });
        let coverage = coverage::judge(&expected, &learned.kernel, &ovn);
        let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        NetworkRoutes {
            name: network.to_string(),
            expected: count(coverage.expected),
            in_kernel: count(coverage.in_kernel),
            in_ovn: count(coverage.in_ovn),
            imported: count(learned.imported),
            digest: learned.digest.clone(),
            missing: coverage.missing,
            skipped: learned
                .skipped
                .iter()
                .map(|(reason, number, first)| SkippedRoutes {
                    reason: (*reason).to_owned(),
                    count: count(*number),
                    examples: first.iter().take(3).map(Prefix::to_string).collect(),
                })
                .collect(),
        }
    }
}

impl Subjects for ObjectSubjects {
    type Key = Key;

    async fn universe(&mut self) -> Option<Vec<Key>> {
        let mut keys = vec![Key::Report];
        if self.publishes() {
            keys.push(Key::Annotations);
        }
        Some(keys)
    }

    /// The process may end during a write: the server applies it or not.
    async fn pass(&mut self, key: &Key) -> Verdict {
        match key {
            Key::Annotations if self.publishes() => {
                let outcome = self.annotate().await;
                self.ledger.pass(&mut self.annotations, outcome)
            }
            Key::Annotations => Verdict::Settled,
            Key::Report => {
                let outcome = self.tell().await;
                self.ledger.pass(&mut self.report, outcome)
            }
        }
    }
}
