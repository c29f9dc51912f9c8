//! The frr-agent's own metrics.
//! In: reloads and sessions. Out: Prometheus series, documented in docs/operations.md.
//! Invariant: states are FRR's own words. Not here: FRR's own counters.

use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// All of them; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) reloads: IntCounterVec,
    pub(crate) reload_seconds: Histogram,
    pub(crate) last_good: IntGauge,
    pub(crate) conflicts: IntGauge,
    pub(crate) sessions: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            reloads: IntCounterVec::new(
                Opts::new(
                    "noverlay_frr_reloads_total",
                    "Reloads of FRR by result (success, failure)",
                ),
                &["result"],
            )?,
            reload_seconds: Histogram::with_opts(
                HistogramOpts::new("noverlay_frr_reload_seconds", "How long reloads took")
                    .buckets(vec![0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0]),
            )?,
            last_good: IntGauge::new(
                "noverlay_frr_last_good_timestamp_seconds",
                "When FRR last held what the objects say, in seconds since 1970",
            )?,
            conflicts: IntGauge::new(
                "noverlay_frr_conflicts",
                "Reasons why the node's objects do not merge; 0 is good",
            )?,
            sessions: IntGaugeVec::new(
                Opts::new("noverlay_bgp_sessions", "BGP sessions by state"),
                &["state"],
            )?,
        };
        registry.register(Box::new(metrics.reloads.clone()))?;
        registry.register(Box::new(metrics.reload_seconds.clone()))?;
        registry.register(Box::new(metrics.last_good.clone()))?;
        registry.register(Box::new(metrics.conflicts.clone()))?;
        registry.register(Box::new(metrics.sessions.clone()))?;
        registry.register(Box::new(
            prometheus::process_collector::ProcessCollector::for_self(),
        ))?;
        Ok(metrics)
    }
}
