//! What the node tells the API server: its annotations, and the NodeRoutes report.
//! In: local facts, what the import found. Out: server-side applies, on change only.
//! Invariant: nothing is written that stands there already. Not here: what is true (`plan_node::coverage`).

use std::collections::BTreeMap;
use std::sync::Arc;

use api::node_routes::{NetworkRoutes, NodeRoutes, NodeRoutesStatus, SkippedRoutes};
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube_edge::{WriteError, Writer};
use model::ObjectKey;
use plan_node::annotations::{self, NodeFacts};
use plan_node::coverage::{self, Reach};
use reconcile::{Subjects, Verdict};
use serde_json::{Value, json};
use telemetry::Chain;

use crate::FIELD_MANAGER;
use crate::known::Known;

/// What can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// Annotations of the own Node.
    Annotations,
    /// The NodeRoutes object.
    Report,
}

/// The loop's subjects.
pub(crate) struct ApiSubjects {
    known: Arc<Known>,
    writer: Writer,
    client: kube::Client,
    /// The report as it stands, and of which Node (uid); unknown where nothing was read or written yet.
    reported: Option<(String, NodeRoutesStatus)>,
}

impl ApiSubjects {
    pub(crate) fn new(known: Arc<Known>, client: kube::Client) -> Self {
        Self {
            known,
            writer: Writer::new(client.clone(), FIELD_MANAGER),
            client,
            reported: None,
        }
    }

    async fn annotations(&mut self) -> Result<Verdict, WriteError> {
        let Some(own) = self.known.own() else {
            return Ok(Verdict::Retry);
        };
        let local = match self.known.local().await {
            Ok(local) => local,
            Err(error) => {
                tracing::debug!(error = %Chain(&error), "nothing to publish yet");
                return Ok(Verdict::Retry);
            }
        };
        let wanted = annotations::plan(&NodeFacts {
            node: self.known.node.clone(),
            gateway: local.gateway,
            host_cidrs: local.host_cidrs,
            host_mtu: local.bridge.mtu,
        });
        let standing = &own.value.published;
        let same =
            |key: &str, text: &str| standing.get(key).is_some_and(|have| same_json(have, text));
        if wanted.iter().all(|(key, text)| same(key, text)) {
            return Ok(Verdict::Settled);
        }
        tracing::info!("publishing the node's annotations");
        let key = ObjectKey::new("", self.known.node.as_str());
        let body = json!({"metadata": {"annotations": wanted}});
        self.writer
            .apply::<KubeNode>(&key, Some(&own.uid), body)
            .await?;
        Ok(Verdict::Settled)
    }

    async fn report(&mut self) -> Result<Verdict, WriteError> {
        let (Some(nodes), Some(own)) = (self.known.all_nodes(), self.known.own()) else {
            return Ok(Verdict::Retry);
        };
        let network = &self.known.network;
        let expected: BTreeMap<_, _> = nodes
            .iter()
            .filter(|n| n.name != self.known.node)
            .filter_map(|n| Some((n.name.clone(), n.subnets.known()?.get(network)?.clone())))
            .collect();
        let Some(imported) = self.known.imported() else {
            // The first import pokes. Until then what was reported before stands: nothing is known to be missing.
            return Ok(Verdict::Settled);
        };
        let reach = |routes: &std::collections::BTreeSet<model::Prefix>| Reach {
            routes: routes.clone(),
            discards: std::collections::BTreeSet::new(),
        };
        let found = coverage::judge(&expected, &reach(&imported.kernel), &reach(&imported.rows));
        let missing = found
            .expected
            .saturating_sub(found.in_kernel.min(found.in_ovn));
        self.known
            .metrics
            .routes_missing
            .set(i64::try_from(missing).unwrap_or(i64::MAX));
        let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let status = NodeRoutesStatus {
            networks: vec![NetworkRoutes {
                name: network.to_string(),
                expected: number(found.expected),
                in_kernel: number(found.in_kernel),
                in_ovn: number(found.in_ovn),
                imported: number(imported.count),
                held: number(imported.held.len()),
                digest: imported.digest,
                missing: found.missing,
                skipped: imported
                    .skipped
                    .iter()
                    .map(|(reason, count, first)| SkippedRoutes {
                        reason: (*reason).to_owned(),
                        count: number(*count),
                        examples: first.iter().take(3).map(ToString::to_string).collect(),
                    })
                    .collect(),
            }],
        };
        self.write(&own.uid, status).await
    }

    async fn write(&mut self, uid: &str, status: NodeRoutesStatus) -> Result<Verdict, WriteError> {
        let key = ObjectKey::new("", self.known.node.as_str());
        // A Node that was deleted took its report along, and came back as another one.
        self.reported.take_if(|(of, _)| of != uid);
        if self.reported.is_none() {
            let api: kube::Api<NodeRoutes> = kube::Api::all(self.client.clone());
            let asked =
                tokio::time::timeout(kube_edge::client::CALL_DEADLINE, api.get_opt(&key.name))
                    .await;
            let standing = asked.ok().and_then(Result::ok).flatten();
            let status = standing.and_then(|o| o.status);
            self.reported = status.map(|status| (uid.to_owned(), status));
        }
        if self.reported.as_ref().is_some_and(|(_, s)| *s == status) {
            return Ok(Verdict::Settled);
        }
        // Taken before the write: after a failure nobody knows what stands, or whether it is there at all.
        if self.reported.take().is_none() {
            // Where a garbage collector runs, the report goes with the node.
            let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": key.name, "uid": uid}]);
            let body = json!({"metadata": {"ownerReferences": owner}, "spec": {}});
            self.writer.apply::<NodeRoutes>(&key, None, body).await?;
        }
        let body = serde_json::to_value(&status).unwrap_or_default();
        self.writer.apply_status::<NodeRoutes>(&key, body).await?;
        self.reported = Some((uid.to_owned(), status));
        Ok(Verdict::Settled)
    }
}

fn same_json(a: &str, b: &str) -> bool {
    a == b
        || matches!(
            (serde_json::from_str::<Value>(a), serde_json::from_str::<Value>(b)),
            (Ok(a), Ok(b)) if a == b
        )
}

impl Subjects for ApiSubjects {
    type Key = Key;

    async fn universe(&mut self) -> Option<Vec<Key>> {
        // A report that somebody deleted is noticed with the sweep.
        self.reported = None;
        Some(vec![Key::Annotations, Key::Report])
    }

    /// Never cancelled by the loop.
    async fn pass(&mut self, key: &Key) -> Verdict {
        let outcome = match key {
            Key::Annotations => self.annotations().await,
            Key::Report => self.report().await,
        };
        outcome.unwrap_or_else(|error| {
            tracing::warn!(error = %Chain(&error), "cannot tell the API server ({key:?}), trying again");
            Verdict::Retry
        })
    }
}
