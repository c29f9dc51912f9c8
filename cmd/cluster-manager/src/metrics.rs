//! The cluster-manager's own metrics.
//! In: what the reconciles did. Out: Prometheus series, documented in docs/operations.md.
//! Invariant: label values are from closed sets, but for names of RouteAdvertisements and ClusterUserDefinedNetworks, whose
//! series go with them.
//! Not here: process metrics (the registry's own).

use std::collections::BTreeMap;
use std::time::Duration;

use kube_edge::Outcome;
use model::NetworkName;
use model::address::Family;
use model::intent::Condition;
use model::network::Topology;
use model::user_network::{UserNetwork, UserTransport};
use plan_cluster::networks::Usage;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// Upper ends of the buckets of reconcile durations, in seconds: a pass that writes nothing takes milliseconds, one that writes
/// the objects of a thousand nodes many seconds.
const DURATIONS: [f64; 10] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// What networks there are, and what their nodes have of them.
#[derive(Debug, Clone)]
pub(crate) struct Networks {
    declared: IntGaugeVec,
    subnets: IntGaugeVec,
    given: IntGaugeVec,
}

impl Networks {
    fn new(to: &Registrar<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            declared: to.gauges(
                "noverlay_cluster_user_defined_networks",
                "ClusterUserDefinedNetworks by role, topology and transport",
                &["role", "topology", "transport"],
            )?,
            subnets: to.gauges(
                "noverlay_node_subnets",
                "Subnets for nodes in the cluster subnets of a layer-3 network",
                &["network", "family"],
            )?,
            given: to.gauges(
                "noverlay_node_subnets_allocated",
                "Those of them that nodes have",
                &["network", "family"],
            )?,
        })
    }

    /// How far cluster subnets are used up, of all layer-3 networks that there are.
    pub(crate) fn tell_usage(&self, usage: &BTreeMap<(NetworkName, Family), Usage>) {
        let labels = |(network, family): &(NetworkName, Family)| {
            let family = match family {
                Family::V4 => "IPv4",
                Family::V6 => "IPv6",
            };
            (network.to_string(), family)
        };
        let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.subnets.reset();
        self.given.reset();
        for (of, usage) in usage {
            let (network, family) = labels(of);
            let labels = [network.as_str(), family];
            let total = self.subnets.with_label_values(&labels);
            total.set(whole(usage.total));
            let given = self.given.with_label_values(&labels);
            given.set(whole(usage.given));
        }
    }

    /// What networks of users there are; those that cannot be read are none of these.
    pub(crate) fn tell_networks<'a>(&self, networks: impl Iterator<Item = &'a UserNetwork>) {
        let mut counts: BTreeMap<[&str; 3], i64> = BTreeMap::new();
        for network in networks {
            let role = if network.primary {
                "Primary"
            } else {
                "Secondary"
            };
            let topology = match network.topology {
                Topology::Layer2 => "Layer2",
                Topology::Layer3 => "Layer3",
            };
            let transport = match network.transport {
                UserTransport::Unset | UserTransport::Geneve => "Geneve",
                UserTransport::NoOverlay { .. } => "NoOverlay",
            };
            *counts.entry([role, topology, transport]).or_default() += 1;
        }
        self.declared.reset();
        for (labels, count) in counts {
            self.declared.with_label_values(&labels).set(count);
        }
    }

    fn reset(&self) {
        self.declared.reset();
        self.subnets.reset();
        self.given.reset();
    }
}

/// All of them; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) leader: IntGauge,
    pub(crate) reconciles: IntCounterVec,
    pub(crate) durations: HistogramVec,
    pub(crate) writes: IntCounter,
    pub(crate) object_writes: IntCounterVec,
    pub(crate) problems: IntGaugeVec,
    pub(crate) condition: IntGaugeVec,
    pub(crate) network_condition: IntGaugeVec,
    pub(crate) networks: Networks,
    pub(crate) nodes_left_out: IntGauge,
    pub(crate) objects_refused: IntGauge,
    pub(crate) kinds_missing: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let to = Registrar(registry);
        registry.register(Box::new(ProcessCollector::for_self()))?;
        let durations = HistogramOpts::new(
            "noverlay_cluster_manager_reconcile_duration_seconds",
            "How long reconciles took, planning and writes included",
        );
        let durations = durations.buckets(DURATIONS.into());
        Ok(Self {
            leader: to.gauge(
                "noverlay_cluster_manager_leader",
                "1 while this replica leads",
            )?,
            reconciles: to.counters(
                "noverlay_cluster_manager_reconciles_total",
                "Reconciles by reconciler and result (done, requeue, await_change)",
                &["reconciler", "result"],
            )?,
            durations: to.add(HistogramVec::new(durations, &["reconciler"])?)?,
            writes: to.add(IntCounter::new(
                "noverlay_cluster_manager_api_writes_total",
                "Writes to the API server",
            )?)?,
            object_writes: to.counters(
                "noverlay_cluster_manager_object_writes_total",
                "Writes by kind of the object and what came of them",
                &["kind", "result"],
            )?,
            problems: to.gauges(
                "noverlay_cluster_manager_problems",
                "What is wrong with objects, by their kind and the reason",
                &["kind", "reason"],
            )?,
            condition: to.gauges(
                "noverlay_route_advertisements_condition",
                "1 where the condition of a RouteAdvertisements is True, else 0",
                &["name", "condition"],
            )?,
            network_condition: to.gauges(
                "noverlay_cluster_user_defined_network_condition",
                "1 where the condition of a ClusterUserDefinedNetwork is True, else 0",
                &["name", "condition"],
            )?,
            networks: Networks::new(&to)?,
            nodes_left_out: to.gauge(
                "noverlay_excluded_nodes",
                "Nodes that cannot take part in the managed fabric",
            )?,
            objects_refused: to.gauge(
                "noverlay_cluster_manager_refused_objects",
                "Objects whose last write the API server refused or did not answer",
            )?,
            kinds_missing: to.gauges(
                "noverlay_cluster_manager_kind_missing",
                "1 where a kind cannot be listed and counts as empty",
                &["kind"],
            )?,
        })
    }

    /// A pass of a reconciler came to its end.
    pub(crate) fn reconciled(&self, reconciler: &str, result: &str, took: Duration) {
        let counter = self.reconciles.with_label_values(&[reconciler, result]);
        counter.inc();
        let histogram = self.durations.with_label_values(&[reconciler]);
        histogram.observe(took.as_secs_f64());
    }

    /// A write of an object of this kind was sent, and this came of it.
    pub(crate) fn wrote(&self, kind: &str, outcome: Outcome) {
        let counter = self
            .object_writes
            .with_label_values(&[kind, outcome.word()]);
        counter.inc();
    }

    /// Nothing is reported any more of a RouteAdvertisements that is gone.
    pub(crate) fn forget(&self, name: &str) {
        use plan_cluster::{fabric::awaited, sessions};
        for kind in [
            "Accepted",
            "Complete",
            sessions::CONDITION,
            awaited::CONDITION,
        ] {
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
        self.networks.reset();
        self.nodes_left_out.set(0);
        self.objects_refused.set(0);
        self.problems.reset();
    }
}

/// Makes metrics and registers them.
struct Registrar<'a>(&'a Registry);

impl Registrar<'_> {
    fn add<C: Collector + Clone + 'static>(&self, metric: C) -> Result<C, prometheus::Error> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.add(IntGauge::new(name, help)?)
    }

    fn gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntGaugeVec, prometheus::Error> {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.add(IntCounterVec::new(Opts::new(name, help), labels)?)
    }
}

#[cfg(test)]
mod tests;
