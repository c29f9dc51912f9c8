//! The cluster-manager's own metrics.
//! In: what the reconciles did. Out: Prometheus series, documented in docs/operations.md.
//! Invariant: label values are from closed sets, but for names of RouteAdvertisements and ClusterUserDefinedNetworks, whose
//! series go with them.
//! Not here: process metrics (the registry's own).

use model::intent::Condition;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// All of them; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) leader: IntGauge,
    pub(crate) reconciles: IntCounterVec,
    pub(crate) writes: IntCounter,
    pub(crate) condition: IntGaugeVec,
    pub(crate) network_condition: IntGaugeVec,
    pub(crate) nodes_left_out: IntGauge,
    pub(crate) objects_refused: IntGauge,
    pub(crate) kinds_missing: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            leader: IntGauge::new(
                "noverlay_cluster_manager_leader",
                "1 while this replica leads",
            )?,
            reconciles: IntCounterVec::new(
                Opts::new(
                    "noverlay_cluster_manager_reconciles_total",
                    "Reconciles by reconciler and result (done, requeue, await_change)",
                ),
                &["reconciler", "result"],
            )?,
            writes: IntCounter::new(
                "noverlay_cluster_manager_api_writes_total",
                "Writes to the API server",
            )?,
            condition: IntGaugeVec::new(
                Opts::new(
                    "noverlay_route_advertisements_condition",
                    "1 where the condition of a RouteAdvertisements is True, else 0",
                ),
                &["name", "condition"],
            )?,
            network_condition: IntGaugeVec::new(
                Opts::new(
                    "noverlay_cluster_user_defined_network_condition",
                    "1 where the condition of a ClusterUserDefinedNetwork is True, else 0",
                ),
                &["name", "condition"],
            )?,
            nodes_left_out: IntGauge::new(
                "noverlay_excluded_nodes",
                "Nodes that cannot take part in the managed fabric",
            )?,
            objects_refused: IntGauge::new(
                "noverlay_cluster_manager_refused_objects",
                "Objects whose last write the API server refused or did not answer",
            )?,
            kinds_missing: IntGaugeVec::new(
                Opts::new(
                    "noverlay_cluster_manager_kind_missing",
                    "1 where a kind cannot be listed and counts as empty",
                ),
                &["kind"],
            )?,
        };
        registry.register(Box::new(metrics.leader.clone()))?;
        registry.register(Box::new(metrics.reconciles.clone()))?;
        registry.register(Box::new(metrics.writes.clone()))?;
        registry.register(Box::new(metrics.condition.clone()))?;
        registry.register(Box::new(metrics.network_condition.clone()))?;
        registry.register(Box::new(metrics.nodes_left_out.clone()))?;
        registry.register(Box::new(metrics.objects_refused.clone()))?;
        registry.register(Box::new(metrics.kinds_missing.clone()))?;
        registry.register(Box::new(
            prometheus::process_collector::ProcessCollector::for_self(),
        ))?;
        Ok(metrics)
    }

    /// Nothing is reported any more of a RouteAdvertisements that is gone.
    pub(crate) fn forget(&self, name: &str) {
        for kind in ["Accepted", "Complete", plan_cluster::sessions::CONDITION] {
            // It may never have been reported.
            drop(self.condition.remove_label_values(&[name, kind]));
        }
    }

    /// Nothing is reported any more of the conditions of a ClusterUserDefinedNetwork that it no longer has.
    pub(crate) fn forget_network(&self, name: &str, has: &[Condition]) {
        for kind in ["NetworkCreated", "TransportAccepted"] {
            if !has.iter().any(|condition| condition.kind == kind) {
                // It may never have been reported.
                drop(self.network_condition.remove_label_values(&[name, kind]));
            }
        }
    }

    /// Another replica leads and tells.
    pub(crate) fn follows(&self) {
        self.leader.set(0);
        self.condition.reset();
        self.network_condition.reset();
        self.nodes_left_out.set(0);
        self.objects_refused.set(0);
    }
}
