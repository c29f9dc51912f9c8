//! The node-agent's own metrics.
//! In: what the passes did. Out: Prometheus series, documented in docs/operations.md.
//! Invariant: label values are from closed sets.
//! Not here: process metrics (the registry's own).

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// All of them; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) passes: IntCounterVec,
    pub(crate) routes_seen: IntGauge,
    pub(crate) routes_programmed: IntGauge,
    pub(crate) routes_skipped: IntGaugeVec,
    pub(crate) transactions: IntCounterVec,
    pub(crate) repairs: IntCounterVec,
    pub(crate) session_up: IntGaugeVec,
    pub(crate) netlink_lost: IntCounter,
    pub(crate) import_seconds: Histogram,
    pub(crate) flow_writes: IntCounterVec,
    pub(crate) kernel_changes: IntCounter,
    pub(crate) api_writes: IntCounterVec,
    pub(crate) problems: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let add = Add(registry);
        let metrics = Self {
            passes: add.counters(
                "noverlay_node_agent_passes_total",
                "Passes by subject and verdict",
                &["subject", "verdict"],
            )?,
            routes_seen: add.gauge(
                "noverlay_routes_seen",
                "BGP routes in the kernel's main table",
            )?,
            routes_programmed: add.gauge(
                "noverlay_routes_programmed",
                "Imported routes on the gateway router",
            )?,
            routes_skipped: add.gauges(
                "noverlay_routes_skipped",
                "BGP routes that are not imported, by reason",
                &["reason"],
            )?,
            transactions: add.counters(
                "noverlay_ovsdb_transactions_total",
                "Transactions by database and result (success, guard, failure)",
                &["database", "result"],
            )?,
            repairs: add.counters(
                "noverlay_repairs_total",
                "Rows that somebody had changed and that were put right, by subject",
                &["subject"],
            )?,
            session_up: add.gauges(
                "noverlay_ovsdb_session_up",
                "1 while the replica of the database follows its server",
                &["database"],
            )?,
            netlink_lost: add.counter(
                "noverlay_netlink_lost_total",
                "Overruns of the kernel's event socket, each followed by a full read",
            )?,
            import_seconds: add.register(Histogram::with_opts(
                HistogramOpts::new(
                    "noverlay_import_seconds",
                    "From the kernel's first event to the acknowledged rows",
                )
                .buckets(vec![
                    0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
                ]),
            )?)?,
            flow_writes: add.counters(
                "noverlay_flow_writes_total",
                "Replacements of the external bridge's flows by stage (host, full) and result",
                &["stage", "result"],
            )?,
            kernel_changes: add.counter(
                "noverlay_kernel_changes_total",
                "Addresses, rules and routes added to or removed from the kernel",
            )?,
            api_writes: add.counters(
                "noverlay_node_agent_api_writes_total",
                "Writes to the API server by kind of object and result",
                &["kind", "result"],
            )?,
            problems: add.gauges(
                "noverlay_node_problems",
                "1 while a subject is not as it should be, 0 is good",
                &["subject"],
            )?,
        };
        registry.register(Box::new(
            prometheus::process_collector::ProcessCollector::for_self(),
        ))?;
        Ok(metrics)
    }
}

struct Add<'a>(&'a Registry);

impl Add<'_> {
    fn register<T: Collector + Clone + 'static>(&self, metric: T) -> Result<T, prometheus::Error> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.register(IntCounter::new(name, help)?)
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.register(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.register(IntGauge::new(name, help)?)
    }

    fn gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntGaugeVec, prometheus::Error> {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }
}
