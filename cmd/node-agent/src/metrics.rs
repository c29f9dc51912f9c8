//! The node-agent's own metrics.
//! In: what the passes did. Out: Prometheus series, documented in docs/operations.md.
//! Invariant: label values are from closed sets. Not here: process metrics (the registry's own).

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// Those of the import of routes; cheap to clone.
#[derive(Debug, Clone)]
pub struct ImportMetrics {
    pub(crate) seen: IntGauge,
    pub(crate) eligible: IntGauge,
    pub(crate) programmed: IntGauge,
    pub(crate) held: IntGauge,
    pub(crate) skipped: IntGaugeVec,
    pub(crate) seconds: Histogram,
    pub(crate) resyncs: IntCounterVec,
    pub(crate) retries: IntCounterVec,
    pub(crate) breaker_open: IntGauge,
    pub(crate) mass_withdrawals: IntCounter,
    pub(crate) transactions: IntCounterVec,
    pub(crate) strange: IntGauge,
}

impl ImportMetrics {
    /// Makes and registers them.
    ///
    /// # Errors
    /// When a name is registered already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let m = Self {
            seen: IntGauge::new("noverlay_routes_seen", "BGP routes in the kernel's table of the network")?,
            eligible: IntGauge::new(
                "noverlay_routes_eligible",
                "Destinations that should be in the gateway router, held ones and those over the limit among them",
            )?,
            programmed: IntGauge::new("noverlay_routes_programmed", "Imported routes in the gateway router")?,
            held: IntGauge::new(
                "noverlay_routes_held",
                "Destinations that stay although the kernel has lost them: FRR is gone or starts anew, or too many went at once",
            )?,
            skipped: IntGaugeVec::new(
                Opts::new("noverlay_routes_skipped", "Destinations that are not imported, by reason"),
                &["reason"],
            )?,
            seconds: Histogram::with_opts(
                HistogramOpts::new(
                    "noverlay_import_seconds",
                    "From the kernel's event to the Northbound database's answer, for passes that wrote",
                )
                .buckets(vec![0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0]),
            )?,
            resyncs: IntCounterVec::new(
                Opts::new(
                    "noverlay_import_resyncs_total",
                    "Dumps of the kernel's routes by cause (start, lost, links, events, check, sweep)",
                ),
                &["cause"],
            )?,
            retries: IntCounterVec::new(
                Opts::new(
                    "noverlay_import_retries_total",
                    "Import passes that failed and are tried again, by cause (database, inputs, kernel, other)",
                ),
                &["cause"],
            )?,
            breaker_open: IntGauge::new(
                "noverlay_withdrawals_held",
                "1 while routes are held because too many would go at once",
            )?,
            mass_withdrawals: IntCounter::new(
                "noverlay_mass_withdrawals_total",
                "Times that routes began to be held because too many would go at once",
            )?,
            strange: IntGauge::new(
                "noverlay_foreign_imported_routes",
                "Imported routes of another writer on the gateway router; they stay",
            )?,
            transactions: IntCounterVec::new(
                Opts::new("noverlay_ovsdb_transactions_total", "Transactions by database and result"),
                &["database", "result"],
            )?,
        };
        registry.register(Box::new(m.seen.clone()))?;
        registry.register(Box::new(m.eligible.clone()))?;
        registry.register(Box::new(m.programmed.clone()))?;
        registry.register(Box::new(m.held.clone()))?;
        registry.register(Box::new(m.skipped.clone()))?;
        registry.register(Box::new(m.seconds.clone()))?;
        registry.register(Box::new(m.resyncs.clone()))?;
        registry.register(Box::new(m.retries.clone()))?;
        registry.register(Box::new(m.breaker_open.clone()))?;
        registry.register(Box::new(m.mass_withdrawals.clone()))?;
        registry.register(Box::new(m.transactions.clone()))?;
        registry.register(Box::new(m.strange.clone()))?;
        Ok(m)
    }
}

/// All of them; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) import: ImportMetrics,
    pub(crate) routes_missing: IntGauge,
    pub(crate) session_up: IntGaugeVec,
    pub(crate) flow_writes: IntCounterVec,
    pub(crate) netlink_lost: IntCounter,
    pub(crate) problems: IntGauge,
    pub(crate) claims_ignored: IntGauge,
    pub(crate) inputs_stale: IntGauge,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let m = Self {
            import: ImportMetrics::new(registry)?,
            routes_missing: IntGauge::new(
                "noverlay_routes_missing",
                "Subnets of other nodes that kernel or gateway router do not cover",
            )?,
            session_up: IntGaugeVec::new(
                Opts::new(
                    "noverlay_ovsdb_session_up",
                    "1 while the session with the database is in step",
                ),
                &["database"],
            )?,
            flow_writes: IntCounterVec::new(
                Opts::new(
                    "noverlay_bridge_flow_writes_total",
                    "Replacements of the bridge's flows by stage (host, full)",
                ),
                &["stage"],
            )?,
            netlink_lost: IntCounter::new(
                "noverlay_netlink_lost_total",
                "Times that events of the kernel were lost",
            )?,
            problems: IntGauge::new(
                "noverlay_node_problems",
                "Problems of this node's plan; 0 is good",
            )?,
            inputs_stale: IntGauge::new(
                "noverlay_import_inputs_stale",
                "1 while routes are imported with what was last known of the own Node and the bridge, because they cannot be read now",
            )?,
            claims_ignored: IntGauge::new(
                "noverlay_node_annotations_ignored",
                "Values in Nodes' annotations that are ignored because they cannot be right; the log names the Nodes",
            )?,
        };
        registry.register(Box::new(m.routes_missing.clone()))?;
        registry.register(Box::new(m.session_up.clone()))?;
        registry.register(Box::new(m.flow_writes.clone()))?;
        registry.register(Box::new(m.netlink_lost.clone()))?;
        registry.register(Box::new(m.problems.clone()))?;
        registry.register(Box::new(m.claims_ignored.clone()))?;
        registry.register(Box::new(m.inputs_stale.clone()))?;
        registry.register(Box::new(
            prometheus::process_collector::ProcessCollector::for_self(),
        ))?;
        Ok(m)
    }
}
