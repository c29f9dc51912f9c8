//! What the node tells the API server: its annotations, and the NodeRoutes report.
//! In: local facts, what the import found. Out: server-side applies, on change only.
//! Invariant: nothing is written that stands there already. Not here: what is true (`import::coverage`).

mod standing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::node_routes::{
    NetworkRoutes, NodeRoutes, NodeRoutesStatus, SkippedRoutes, WITHDRAWALS_PROCESSED,
    WITHIN_LIMITS,
};
use import::budget;
use import::coverage::{self, Coverage};
use import::decide::Skipped;
use import::{Importer, Pods, Retained};
use k8s_openapi::api::core::v1::Node as KubeNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube_edge::events::Publisher;
use kube_edge::{WriteError, Writer};
use model::intent::Event;
use model::node::annotation;
use model::{NetworkName, NodeName, ObjectKey, Prefix};
use ovsdb::Uuid;
use plan_node::annotations::{self, NodeFacts};
use reconcile::{Action, Reconciler};
use serde_json::{Value, json};
use telemetry::Chain;
use tokio::time::Instant;

use self::standing::Report;
use crate::FIELD_MANAGER;
use crate::keys::ApiKey;
use crate::known::Known;

/// So long the routes have to be within the limit until it is said.
const CALM: Duration = Duration::from_secs(60);

/// Reconciles them.
pub(crate) struct ApiReconciler {
    known: Arc<Known>,
    writer: Writer,
    publisher: Publisher,
    client: kube::Client,
    /// The report as it stands; unknown where nothing was read or written yet.
    reported: Option<Report>,
    /// It may have been changed or deleted since.
    doubted: bool,
    /// When there were last more routes than there may be.
    over: Option<Instant>,
}

impl ApiReconciler {
    pub(crate) fn new(known: Arc<Known>, client: kube::Client) -> Self {
        Self {
            writer: Writer::new(client.clone(), FIELD_MANAGER),
            publisher: Publisher::new(client.clone(), "node-agent", known.node.as_str()),
            client,
            known,
            reported: None,
            doubted: true,
            over: None,
        }
    }

    async fn annotations(&mut self) -> Result<Action, WriteError> {
        let Some(own) = self.known.own() else {
            return Ok(Action::Requeue);
        };
        let local = match self.known.local().await {
            Ok(local) => local,
            Err(error) => {
                tracing::debug!(error = %Chain(&error), "nothing to publish yet");
                return Ok(Action::Requeue);
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
            return Ok(Action::Done);
        }
        tracing::info!("publishing the node's annotations");
        let key = ObjectKey::new("", self.known.node.as_str());
        let body = json!({"metadata": {"annotations": wanted}});
        self.writer
            .apply::<KubeNode>(&key, Some(&own.uid), body)
            .await?;
        Ok(Action::Done)
    }

    async fn report(&mut self) -> Result<Action, WriteError> {
        let (Some(_), Some(own)) = (self.known.all_nodes(), self.known.own()) else {
            return Ok(Action::Requeue);
        };
        let network = &self.known.network;
        let expected = expected(&self.known.node, &self.known.claims().owners);
        let Some(imported) = self.known.imported() else {
            // The first import enqueues this. Until then what was reported before stands: nothing is known to be missing.
            return Ok(Action::Done);
        };
        let found = found(&expected, &imported.lock());
        self.known
            .metrics
            .routes_missing
            .set(i64::try_from(found.missing).unwrap_or(i64::MAX));
        let over = found.over;
        let status = NodeRoutesStatus {
            networks: vec![found.routes(network)],
            conditions: Vec::new(),
        };
        if self.read(&own.uid).await.is_err() {
            return Ok(Action::Requeue);
        }
        let told = [
            self.limits(over, found.skipped.get(budget::OVER_LIMIT)),
            self.withdrawals(&found.retained),
        ];
        let (conditions, events): (Vec<_>, Vec<_>) = told.into_iter().flatten().unzip();
        let status = NodeRoutesStatus {
            conditions,
            ..status
        };
        let mut verdict = self.write(&own.uid, status).await?;
        if over == 0 && self.over.is_some_and(|at| at.elapsed() < CALM) {
            // It is said later that they are within the limit.
            verdict = Action::Requeue;
        }
        for event in events.into_iter().flatten() {
            let key = ObjectKey::new("", self.known.node.as_str());
            self.publisher
                .publish::<KubeNode>(&key, &own.uid, &event)
                .await;
        }
        Ok(verdict)
    }

    /// The condition on limits, and an event where it changes; nothing where there never was a need.
    fn limits(
        &mut self,
        over: usize,
        pods: Option<&Skipped>,
    ) -> Option<(Condition, Option<Event>)> {
        // One route that comes and goes at the limit is one change, not one a second.
        if over > 0 {
            self.over = Some(Instant::now());
        }
        let over = self.over.is_some_and(|at| at.elapsed() < CALM);
        let network = &self.known.network;
        let limit = self.known.settings.limits.max_imported_routes;
        let trouble = over.then(|| over_limit(network, limit, pods));
        self.condition(
            WITHIN_LIMITS,
            ("OverLimit", "RouteLimitExceeded"),
            ("WithinLimits", "RouteLimitCleared"),
            trouble,
            format!("network {network} has at most {limit} routes"),
        )
    }

    /// The condition on withdrawals that are retained, and an event where it changes.
    fn withdrawals(&self, retained: &[(Prefix, Retained)]) -> Option<(Condition, Option<Event>)> {
        let network = &self.known.network;
        let limits = &self.known.settings.limits;
        let of_mass = retained
            .iter()
            .filter(|(_, why)| *why == Retained::MassWithdrawal);
        let count = of_mass.clone().count();
        let names: Vec<String> = of_mass.take(5).map(|(p, _)| p.to_string()).collect();
        let trouble = (count > 0).then(|| {
            format!(
                "{count} routes of network {network} would have gone within {} s while the sessions that brought them are up; retained for {} s at most: {}{}. \
                 If it is meant, let them go with another value of the Node's annotation {}",
                limits.mass_withdraw_window.as_secs(),
                limits.mass_withdraw_hold.as_secs(),
                names.join(", "),
                if count > names.len() { ", ..." } else { "" },
                annotation::RELEASE_WITHDRAWALS
            )
        });
        self.condition(
            WITHDRAWALS_PROCESSED,
            ("MassWithdrawalSuppressed", "MassWithdrawalSuppressed"),
            ("WithdrawalsProcessed", "MassWithdrawalEnded"),
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
        let standing = self.reported.as_ref().and_then(|report| {
            let mut conditions = report.status.conditions.iter();
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
    async fn read(&mut self, uid: &str) -> Result<(), standing::Unread> {
        let same = self
            .reported
            .as_ref()
            .is_some_and(|report| report.uid == uid);
        if same && !self.doubted {
            return Ok(());
        }
        let api: kube::Api<NodeRoutes> = kube::Api::all(self.client.clone());
        let asked = api.get_opt(self.known.node.as_str());
        let asked = tokio::time::timeout(kube_edge::client::CALL_DEADLINE, asked).await;
        let found = asked.ok().and_then(Result::ok);
        self.doubted = found.is_none();
        self.reported = standing::after(self.reported.take(), uid, found)?;
        Ok(())
    }

    async fn write(&mut self, uid: &str, status: NodeRoutesStatus) -> Result<Action, WriteError> {
        let key = ObjectKey::new("", self.known.node.as_str());
        let stands = |report: &Report| report.marked && report.status == status;
        if self.reported.as_ref().is_some_and(stands) {
            return Ok(Action::Done);
        }
        // Taken before the write: after a failure nobody knows what stands, or whether it is there at all.
        let before = self.reported.take();
        if !before.as_ref().is_some_and(|report| report.marked) {
            let body = json!({"metadata": standing::marks(&key.name, uid), "spec": {}});
            self.writer.apply::<NodeRoutes>(&key, None, body).await?;
        }
        if before.is_none_or(|report| report.status != status) {
            let body = serde_json::to_value(&status).unwrap_or_default();
            self.writer.apply_status::<NodeRoutes>(&key, body).await?;
        }
        self.reported = Some(Report {
            uid: uid.to_owned(),
            marked: true,
            status,
        });
        Ok(Action::Done)
    }
}

/// The subnets of other nodes, of those that are believed: what one Node's annotation claims beyond them must not make every
/// node's report incomplete. Nor must a claim on this node's own subnet, to which there is never a route.
fn expected(own: &NodeName, owners: &[(Prefix, NodeName)]) -> BTreeMap<NodeName, Vec<Prefix>> {
    let ours: Vec<Prefix> = owners
        .iter()
        .filter(|(_, node)| node == own)
        .map(|(subnet, _)| *subnet)
        .collect();
    let mut expected: BTreeMap<NodeName, Vec<Prefix>> = BTreeMap::new();
    for (subnet, node) in owners {
        if node != own && !ours.iter().any(|own| own.overlaps(subnet)) {
            expected.entry(node.clone()).or_default().push(*subnet);
        }
    }
    expected
}

/// What a report is made from.
struct Found {
    coverage: Coverage,
    /// Subnets of other nodes that kernel or gateway router do not cover.
    missing: usize,
    /// Left out inside the network, by reason.
    skipped: BTreeMap<&'static str, Skipped>,
    /// Destinations over the limit, wherever they are.
    over: usize,
    retained: Vec<(Prefix, Retained)>,
    pods: Pods,
}

fn found(expected: &BTreeMap<NodeName, Vec<Prefix>>, state: &Importer<Uuid>) -> Found {
    let coverage = judge(expected, state);
    let covered = coverage.in_kernel.min(coverage.in_ovn);
    Found {
        missing: coverage.expected.saturating_sub(covered),
        skipped: state.skipped_pods(),
        over: state.skipped_for(budget::OVER_LIMIT),
        retained: state.retained().collect(),
        pods: state.pods(),
        coverage,
    }
}

impl Found {
    /// The object speaks of pods' subnets: what else comes and goes would be a write of every node each time.
    fn routes(&self, network: &NetworkName) -> NetworkRoutes {
        let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let examples = |skipped: &Skipped| {
            skipped
                .first
                .iter()
                .take(3)
                .map(Prefix::to_string)
                .collect()
        };
        let skipped = self.skipped.iter().map(|(reason, skipped)| SkippedRoutes {
            reason: (*reason).to_owned(),
            count: number(skipped.count),
            examples: examples(skipped),
        });
        NetworkRoutes {
            name: network.to_string(),
            expected: number(self.coverage.expected),
            in_kernel: number(self.coverage.in_kernel),
            in_ovn: number(self.coverage.in_ovn),
            imported: number(self.pods.rows),
            retained: number(self.pods.retained),
            digest: self.coverage.digest.clone(),
            missing: self.coverage.missing.clone(),
            skipped: skipped.collect(),
        }
    }
}

/// Judges other nodes' subnets by what kernel and gateway router do with them.
fn judge(expected: &BTreeMap<NodeName, Vec<Prefix>>, state: &Importer<Uuid>) -> Coverage {
    coverage::judge(
        expected,
        |prefix| state.in_kernel(prefix),
        |prefix| state.in_gateway(prefix),
    )
}

/// The condition's message: without numbers that change with every route.
fn over_limit(network: &NetworkName, limit: u32, pods: Option<&Skipped>) -> String {
    let mut text = format!(
        "network {network} has more routes than [limits] max-imported-routes = {limit}; \
         noverlay_skipped_destinations{{reason=\"over_limit\"}} counts those that are not imported"
    );
    if let Some(pods) = pods {
        let names: Vec<String> = pods.first.iter().map(ToString::to_string).collect();
        let more = if pods.count > pods.first.len() {
            ", ..."
        } else {
            ""
        };
        text.push_str("; of pods: ");
        text.push_str(&names.join(", "));
        text.push_str(more);
    }
    text
}

fn same_json(a: &str, b: &str) -> bool {
    a == b
        || matches!(
            (serde_json::from_str::<Value>(a), serde_json::from_str::<Value>(b)),
            (Ok(a), Ok(b)) if a == b
        )
}

impl Reconciler for ApiReconciler {
    type Key = ApiKey;

    async fn keys(&mut self) -> Option<Vec<ApiKey>> {
        // A report that somebody deleted is noticed with the sweep.
        self.doubted = true;
        Some(vec![ApiKey::Annotations, ApiKey::Report])
    }

    /// Never cancelled by the loop.
    async fn reconcile(&mut self, key: &ApiKey) -> Action {
        let outcome = match key {
            ApiKey::Annotations => self.annotations().await,
            ApiKey::Report => self.report().await,
        };
        outcome.unwrap_or_else(|error| {
            tracing::warn!(error = %Chain(&error), "cannot write to the API server ({key:?}), trying again");
            Action::Requeue
        })
    }
}

#[cfg(test)]
mod tests;
