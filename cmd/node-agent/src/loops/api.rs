//! What the node tells the API server: its annotations, and the NodeRoutes report.
//! In: the plan's part, what the imports found. Out: server-side applies, on change only.
//! Invariant: nothing is written that stands there already. Not here: what is true (what is not built: `world`; the numbers: `import::coverage`; the limit: `import::budget`; mass withdrawals: `import::suppression`).

mod built;
mod conditions;
mod existing;
mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::node_routes::{NodeRoutes, NodeRoutesStatus, WITHDRAWALS_PROCESSED, WITHIN_LIMITS};
use daemon::Configuration;
use import::decide::Skipped;
use k8s_openapi::api::core::v1::Node as KubeNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_edge::events::Publisher;
use kube_edge::{Cache, Entry, WriteError, Writer};
use model::intent::Event;
use model::node::annotation;
use model::{NetworkName, NodeName, ObjectKey, Prefix};
use reconcile::{Action, Reconciler};
use serde_json::{Value, json};
use settings::Limits;
use telemetry::Chain;
use tokio::sync::watch;
use tokio::time::Instant;

use self::built::unbuilt;
use self::conditions::Words;
use self::existing::Report;
use crate::FIELD_MANAGER;
use crate::keys::ApiKey;
use crate::loops::import::Reports;
use crate::loops::import::report::ImportReport;
use crate::loops::north::Blocked;
use crate::paths::PathReport;
use crate::world::{NodeEntry, Planned};

/// So long the routes have to be within the limit until it is said.
const CALM: Duration = Duration::from_secs(60);

const LIMITS: Words = Words {
    kind: WITHIN_LIMITS,
    bad: ("OverLimit", "RouteLimitExceeded"),
    good: ("WithinLimits", "RouteLimitCleared"),
};

const WITHDRAWALS: Words = Words {
    kind: WITHDRAWALS_PROCESSED,
    bad: ("MassWithdrawalSuppressed", "MassWithdrawalSuppressed"),
    good: ("WithdrawalsProcessed", "MassWithdrawalEnded"),
};

/// What is told, and what it takes to tell it.
pub(crate) struct Inputs {
    pub(crate) configuration: Configuration,
    pub(crate) nodes: Cache<NodeEntry>,
    pub(crate) planned: watch::Receiver<Option<Arc<Planned>>>,
    pub(crate) reports: watch::Receiver<Reports>,
    pub(crate) paths: watch::Receiver<PathReport>,
    pub(crate) blocked: watch::Receiver<Blocked>,
}

/// Reconciles them.
pub(crate) struct ApiReconciler {
    node: NodeName,
    inputs: Inputs,
    writer: Writer,
    publisher: Publisher,
    client: kube::Client,
    /// The report as it stands; unknown where nothing was read or written yet.
    reported: Option<Report>,
    /// It may have been changed or deleted since.
    doubted: bool,
    /// Annotations of the kinds that it publishes, which it does not publish now and has left out of an apply before.
    surplus: BTreeSet<String>,
    /// When a network last had more routes than it may.
    over: BTreeMap<NetworkName, Instant>,
}

impl ApiReconciler {
    pub(crate) fn new(client: kube::Client, node: NodeName, inputs: Inputs) -> Self {
        Self {
            writer: Writer::new(client.clone(), FIELD_MANAGER),
            publisher: Publisher::new(client.clone(), "node-agent", node.as_str()),
            client,
            node,
            inputs,
            reported: None,
            doubted: true,
            surplus: BTreeSet::new(),
            over: BTreeMap::new(),
        }
    }

    async fn annotations(&mut self) -> Result<Action, WriteError> {
        let planned = self.inputs.planned.borrow().clone();
        let wanted = planned.and_then(|planned| planned.plan.annotations.clone());
        let (Some(own), Some(wanted)) = (self.own(), wanted) else {
            // The Node or the plan brings the next pass.
            return Ok(Action::AwaitChange);
        };
        let existing = &own.value.published;
        let same =
            |key: &str, text: &str| existing.get(key).is_some_and(|have| same_json(have, text));
        // What is published no more goes with an apply that lacks it; somebody else's stays, and is tried once.
        let surplus = existing.keys().filter(|key| !wanted.contains_key(*key));
        let surplus: BTreeSet<String> = surplus.cloned().collect();
        let all_there = wanted.iter().all(|(key, text)| same(key, text));
        if all_there && surplus.is_subset(&self.surplus) {
            self.surplus = surplus;
            return Ok(Action::Done);
        }
        tracing::info!("publishing the node's annotations");
        let key = ObjectKey::new("", self.node.as_str());
        let body = json!({"metadata": {"annotations": wanted}});
        self.writer
            .apply::<KubeNode>(&key, Some(&own.uid), body)
            .await?;
        self.surplus = surplus;
        Ok(Action::Done)
    }

    /// This node's object; `None` until the Nodes have been listed.
    fn own(&self) -> Option<Entry<NodeEntry>> {
        let key = ObjectKey::new("", self.node.as_str());
        self.inputs
            .nodes
            .get(&key)
            .filter(|_| self.inputs.nodes.ready())
    }

    async fn report(&mut self) -> Result<Action, WriteError> {
        let Some(own) = self.own() else {
            return Ok(Action::AwaitChange);
        };
        let reports = self.inputs.reports.borrow().clone();
        let Some(planned) = self.inputs.planned.borrow().clone() else {
            return Ok(Action::AwaitChange);
        };
        let learns = planned.plan.learn.values().any(|inputs| inputs.learns);
        let is_whole = planned.plan.is_complete() && !learns;
        let unbuilt = unbuilt(&planned, &self.inputs.blocked.borrow());
        if reports.is_empty() && unbuilt.is_empty() && !is_whole {
            return Ok(Action::AwaitChange);
        }
        if self.read(&own.uid).await.is_err() {
            return Ok(Action::Requeue);
        }
        self.over.retain(|name, _| reports.contains_key(name));
        let mut events = Vec::new();
        let paths = self.inputs.paths.borrow().clone();
        let mut networks = self.without_reports((&planned.plan, &unbuilt), &reports, &paths);
        for (name, report) in &reports {
            let conditions = [
                self.limits(name, report.over, report.over_pods.as_ref()),
                self.withdrawals(name, &report.mass),
            ];
            let mut routes = report.routes.clone();
            for (condition, event) in conditions.into_iter().flatten() {
                routes.conditions.push(condition);
                events.extend(event);
            }
            networks.push(routes);
        }
        for routes in &mut networks {
            let name = NetworkName::from(routes.name.as_str());
            let built = self.built(&name, unbuilt.get(&name));
            let path_mtu = self.path_mtu(&name, &paths, !planned.plan.unknown.contains(&name));
            for (condition, event) in built.into_iter().chain(path_mtu) {
                routes.conditions.retain(|c| c.type_ != condition.type_);
                routes.conditions.push(condition);
                events.extend(event);
            }
        }
        networks.sort_by(|a, b| a.name.cmp(&b.name));
        let mut action = self.write(&own.uid, NodeRoutesStatus { networks }).await?;
        let is_calm = |name: &NetworkName, report: &ImportReport| {
            report.over > 0 || self.over.get(name).is_none_or(|at| at.elapsed() >= CALM)
        };
        if reports.iter().any(|(name, report)| !is_calm(name, report)) {
            // It is said later that they are within the limit.
            action = Action::Requeue;
        }
        for event in events {
            let key = ObjectKey::new("", self.node.as_str());
            self.publisher
                .publish::<KubeNode>(&key, &own.uid, &event)
                .await;
        }
        Ok(action)
    }

    /// `[limits]` as it is in force now.
    fn limits_in_force(&self) -> Limits {
        self.inputs.configuration.now().settings.limits
    }

    /// The condition on limits, and an event where it changes; nothing where there never was a need.
    fn limits(
        &mut self,
        network: &NetworkName,
        over: usize,
        pods: Option<&Skipped>,
    ) -> Option<(Condition, Option<Event>)> {
        // One route that comes and goes at the limit is one change, not one a second.
        if over > 0 {
            self.over.insert(network.clone(), Instant::now());
        }
        let since = self.over.get(network);
        let over = since.is_some_and(|at| at.elapsed() < CALM);
        let limit = self.limits_in_force().max_imported_routes;
        let trouble = over.then(|| (LIMITS.bad.0, over_limit(network, limit, pods)));
        self.condition(
            network,
            &LIMITS,
            trouble,
            format!("network {network} has at most {limit} routes"),
        )
    }

    /// The condition on withdrawals that are retained, and an event where it changes.
    fn withdrawals(
        &self,
        network: &NetworkName,
        (count, first): &(usize, Vec<Prefix>),
    ) -> Option<(Condition, Option<Event>)> {
        let names: Vec<String> = first.iter().map(Prefix::to_string).collect();
        let limits = self.limits_in_force();
        let trouble = (*count > 0).then(|| {
            let text = format!(
                "{count} routes of network {network} would have gone within {} s while the sessions that brought them are up; retained for {} s at most: {}{}. \
                 If it is meant, let them go with another value of the Node's annotation {}",
                limits.mass_withdraw_window.as_secs(),
                limits.mass_withdraw_hold.as_secs(),
                names.join(", "),
                if *count > names.len() { ", ..." } else { "" },
                annotation::RELEASE_WITHDRAWALS
            );
            (WITHDRAWALS.bad.0, text)
        });
        self.condition(
            network,
            &WITHDRAWALS,
            trouble,
            format!("what is withdrawn from network {network} goes"),
        )
    }

    /// Reads the report that stands there, unless it is known.
    async fn read(&mut self, uid: &str) -> Result<(), existing::Unread> {
        let same = self
            .reported
            .as_ref()
            .is_some_and(|report| report.uid == uid);
        if same && !self.doubted {
            return Ok(());
        }
        let api: kube::Api<NodeRoutes> = kube::Api::all(self.client.clone());
        let asked = api.get_opt(self.node.as_str());
        let asked = tokio::time::timeout(kube_edge::client::CALL_DEADLINE, asked).await;
        let found = asked.ok().and_then(Result::ok);
        self.doubted = found.is_none();
        self.reported = existing::after(self.reported.take(), uid, found)?;
        Ok(())
    }

    async fn write(&mut self, uid: &str, status: NodeRoutesStatus) -> Result<Action, WriteError> {
        let key = ObjectKey::new("", self.node.as_str());
        let stands = |report: &Report| report.marked && report.status == status;
        if self.reported.as_ref().is_some_and(stands) {
            return Ok(Action::Done);
        }
        // Taken before the write: after a failure nobody knows what stands, or whether it is there at all.
        let before = self.reported.take();
        if !before.as_ref().is_some_and(|report| report.marked) {
            let body = json!({"metadata": existing::marks(&key.name, uid), "spec": {}});
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
mod tests {
    use super::*;

    #[test]
    fn the_message_over_the_limit_does_not_change_with_each_route_outside() {
        let network = NetworkName::default_network();
        let text = over_limit(&network, 3, None);
        assert!(
            text.contains("max-imported-routes = 3") && !text.contains("of pods"),
            "{text}"
        );
        let pods = Skipped {
            count: 6,
            first: (2..7)
                .map(|n| format!("10.128.{n}.0/24").parse().unwrap())
                .collect(),
        };
        let text = over_limit(&network, 3, Some(&pods));
        assert!(text.ends_with("of pods: 10.128.2.0/24, 10.128.3.0/24, 10.128.4.0/24, 10.128.5.0/24, 10.128.6.0/24, ..."), "{text}");
    }
}
