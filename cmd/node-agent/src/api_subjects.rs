//! What the node tells the API server: its annotations, and the NodeRoutes report.
//! In: local facts, what the import found. Out: server-side applies, on change only.
//! Invariant: nothing is written that stands there already. Not here: what is true (`plan_node::coverage`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::node_routes::{
    NetworkRoutes, NodeRoutes, NodeRoutesStatus, SkippedRoutes, WITHDRAWALS_OBEYED, WITHIN_LIMITS,
};
use k8s_openapi::api::core::v1::Node as KubeNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube_edge::events::Publisher;
use kube_edge::{WriteError, Writer};
use model::intent::Event;
use model::node::annotation;
use model::{ObjectKey, Prefix};
use plan_node::annotations::{self, NodeFacts};
use plan_node::budget;
use plan_node::coverage;
use plan_node::importing::Held;
use plan_node::imports::{self, Skipped};
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
    publisher: Publisher,
    client: kube::Client,
    /// The report as it stands, and of which Node (uid); unknown where nothing was read or written yet.
    reported: Option<(String, NodeRoutesStatus)>,
}

impl ApiSubjects {
    pub(crate) fn new(known: Arc<Known>, client: kube::Client) -> Self {
        Self {
            writer: Writer::new(client.clone(), FIELD_MANAGER),
            publisher: Publisher::new(client.clone(), "node-agent", known.node.as_str()),
            client,
            known,
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
        // Our own topology's rows are no way to other nodes' pods: its discard route least of all.
        let ours = match self.known.last_view() {
            Some(view) => {
                imports::topology_prefixes(&plan_node::plan(&view), &view.gateway_router())
            }
            None => BTreeSet::new(),
        };
        let (found, skipped, held, rows, digest) = {
            let state = imported.lock();
            let in_kernel = |prefix: &Prefix| state.kernel_has(prefix).then_some(true);
            let in_ovn = |prefix: &Prefix| {
                let foreign = state.is_taken(prefix) && !ours.contains(prefix);
                (state.is_imported(prefix) || foreign).then_some(true)
            };
            let found = coverage::judge(&expected, in_kernel, in_ovn);
            let held: Vec<_> = state.held().collect();
            (found, state.skipped(), held, state.rows(), state.digest())
        };
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
                imported: number(rows),
                held: number(held.len()),
                digest,
                missing: found.missing,
                skipped: skipped
                    .iter()
                    .map(|(reason, skipped)| SkippedRoutes {
                        reason: (*reason).to_owned(),
                        count: number(skipped.count),
                        examples: skipped
                            .first
                            .iter()
                            .take(3)
                            .map(ToString::to_string)
                            .collect(),
                    })
                    .collect(),
            }],
            conditions: Vec::new(),
        };
        self.read(&own.uid).await;
        let told = [
            self.limits(skipped.get(budget::OVER_LIMIT)),
            self.withdrawals(&held),
        ];
        let (conditions, events): (Vec<_>, Vec<_>) = told.into_iter().flatten().unzip();
        let status = NodeRoutesStatus {
            conditions,
            ..status
        };
        let verdict = self.write(&own.uid, status).await?;
        for event in events.into_iter().flatten() {
            let key = ObjectKey::new("", self.known.node.as_str());
            self.publisher
                .publish::<KubeNode>(&key, &own.uid, &event)
                .await;
        }
        Ok(verdict)
    }

    /// The condition on limits, and an event where it changes; nothing where there never was a need.
    fn limits(&self, over: Option<&Skipped>) -> Option<(Condition, Option<Event>)> {
        let network = &self.known.network;
        let limit = self.known.settings.limits.max_imported_routes;
        let trouble = over.map(|over| {
            let names: Vec<String> = over.first.iter().map(ToString::to_string).collect();
            format!(
                "network {network} has {} routes more than [limits] max-imported-routes = {limit}; not imported: {}{}",
                over.count,
                names.join(", "),
                if over.count > over.first.len() { ", ..." } else { "" }
            )
        });
        self.condition(
            WITHIN_LIMITS,
            ("OverLimit", "RouteLimitReached"),
            ("WithinLimits", "RouteLimitPassed"),
            trouble,
            format!("network {network} has at most {limit} routes"),
        )
    }

    /// The condition on withdrawals that are held, and an event where it changes.
    fn withdrawals(&self, held: &[(Prefix, Held)]) -> Option<(Condition, Option<Event>)> {
        let network = &self.known.network;
        let limits = &self.known.settings.limits;
        let of_mass = held.iter().filter(|(_, why)| *why == Held::MassWithdrawal);
        let count = of_mass.clone().count();
        let names: Vec<String> = of_mass.take(5).map(|(p, _)| p.to_string()).collect();
        let trouble = (count > 0).then(|| {
            format!(
                "{count} routes of network {network} would have gone within {} s while the sessions that brought them are up; held for {} s at most: {}{}. \
                 If it is meant, let them go with another value of the Node's annotation {}",
                limits.mass_withdraw_window.as_secs(),
                limits.mass_withdraw_hold.as_secs(),
                names.join(", "),
                if count > names.len() { ", ..." } else { "" },
                annotation::RELEASE_WITHDRAWALS
            )
        });
        self.condition(
            WITHDRAWALS_OBEYED,
            ("MassWithdrawalHeld", "MassWithdrawalHeld"),
            ("WithdrawalsObeyed", "MassWithdrawalPassed"),
            trouble,
            format!("what is withdrawn from network {network} goes"),
        )
    }

    /// A condition that is False while there is trouble, and an event where it changes; nothing where there never was any.
    /// Of reasons, the first is the condition's, the second the event's.
    fn condition(
        &self,
        kind: &str,
        bad: (&'static str, &'static str),
        good: (&'static str, &'static str),
        trouble: Option<String>,
        fine: String,
    ) -> Option<(Condition, Option<Event>)> {
        let standing = self.reported.as_ref().and_then(|(_, status)| {
            let mut conditions = status.conditions.iter();
            conditions.find(|c| c.type_ == kind)
        });
        let warning = trouble.is_some();
        let (status, reasons, message) = match trouble {
            Some(text) => ("False", bad, text),
            None => {
                standing?;
                ("True", good, fine)
            }
        };
        let same_status = standing.filter(|c| c.status == status);
        let event = same_status.is_none().then(|| Event {
            warning,
            reason: reasons.1,
            message: message.clone(),
        });
        let since = same_status.map_or_else(
            || Time(Timestamp::now()),
            |c| c.last_transition_time.clone(),
        );
        let condition = Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reasons.0.to_owned(),
            message,
            last_transition_time: since,
            observed_generation: None,
        };
        Some((condition, event))
    }

    /// Reads the report that stands there, unless it is known.
    async fn read(&mut self, uid: &str) {
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
    }

    async fn write(&mut self, uid: &str, status: NodeRoutesStatus) -> Result<Verdict, WriteError> {
        let key = ObjectKey::new("", self.known.node.as_str());
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
