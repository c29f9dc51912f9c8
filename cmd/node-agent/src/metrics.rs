//! The node-agent's own metrics.
//! In: what the passes did. Out: Prometheus series, documented in docs/operations.md.
//! Invariant: label values are from closed sets. Not here: process metrics (the registry's own).

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// All of them; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) routes_seen: IntGauge,
    pub(crate) routes_programmed: IntGauge,
    pub(crate) routes_held: IntGauge,
    pub(crate) routes_skipped: IntGaugeVec,
    pub(crate) routes_missing: IntGauge,
    pub(crate) import_seconds: Histogram,
    pub(crate) transactions: IntCounterVec,
    pub(crate) session_up: IntGaugeVec,
    pub(crate) flow_writes: IntCounterVec,
    pub(crate) netlink_lost: IntCounter,
    pub(crate) problems: IntGauge,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let m = Self {
            routes_seen: IntGauge::new("noverlay_routes_seen", "BGP routes in the kernel's table of the network")?,
            routes_programmed: IntGauge::new("noverlay_routes_programmed", "Imported routes in the gateway router")?,
            routes_held: IntGauge::new(
                "noverlay_routes_held",
                "Imported routes that stay although the kernel has lost them, because FRR is gone or starts anew",
            )?,
            routes_skipped: IntGaugeVec::new(
                Opts::new("noverlay_routes_skipped", "Routes that are not imported, by reason"),
                &["reason"],
            )?,
            routes_missing: IntGauge::new(
                "noverlay_routes_missing",
                "Subnets of other nodes that kernel or gateway router do not cover",
            )?,
            import_seconds: Histogram::with_opts(
                HistogramOpts::new(
                    "noverlay_import_seconds",
                    "From the kernel's event to the Northbound database's answer, for passes that wrote",
                )
                .buckets(vec![0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0]),
            )?,
            transactions: IntCounterVec::new(
                Opts::new("noverlay_ovsdb_transactions_total", "Transactions by database and result"),
                &["database", "result"],
            )?,
            session_up: IntGaugeVec::new(
                Opts::new("noverlay_ovsdb_session_up", "1 while the session with the database is in step"),
                &["database"],
            )?,
            flow_writes: IntCounterVec::new(
                Opts::new("noverlay_bridge_flow_writes_total", "Replacements of the bridge's flows by stage (host, full)"),
                &["stage"],
            )?,
            netlink_lost: IntCounter::new("noverlay_netlink_lost_total", "Times that events of the kernel were lost")?,
            problems: IntGauge::new("noverlay_node_problems", "Problems of this node's plan; 0 is good")?,
        };
        registry.register(Box::new(m.routes_seen.clone()))?;
        registry.register(Box::new(m.routes_programmed.clone()))?;
        registry.register(Box::new(m.routes_held.clone()))?;
        registry.register(Box::new(m.routes_skipped.clone()))?;
        registry.register(Box::new(m.routes_missing.clone()))?;
        registry.register(Box::new(m.import_seconds.clone()))?;
        registry.register(Box::new(m.transactions.clone()))?;
        registry.register(Box::new(m.session_up.clone()))?;
        registry.register(Box::new(m.flow_writes.clone()))?;
        registry.register(Box::new(m.netlink_lost.clone()))?;
        registry.register(Box::new(m.problems.clone()))?;
        registry.register(Box::new(
            prometheus::process_collector::ProcessCollector::for_self(),
        ))?;
        Ok(m)
    }
}
