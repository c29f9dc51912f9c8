//! The frr-agent's own metrics.
//! In: reloads, sessions, how far FRR is behind. Out: Prometheus series, documented in docs/operations.md.
//! Invariant: states are FRR's own words; a session that is gone takes its series along.
//! Not here: FRR's own counters.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use model::frr::SessionState;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use tokio::time::Instant;

/// All of them; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) reloads: IntCounterVec,
    pub(crate) reload_seconds: Histogram,
    pub(crate) corrected: IntCounter,
    last_good: IntGauge,
    behind_seconds: IntGauge,
    conflicts: IntGauge,
    aside: IntGauge,
    sessions: IntGaugeVec,
    prefixes: IntGaugeVec,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    behind_since: Option<Instant>,
    /// VRF and peer of every session that has series.
    shown: BTreeSet<(String, String)>,
}

fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    made: Result<C, prometheus::Error>,
) -> Result<C, prometheus::Error> {
    let collector = made?;
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let seconds = HistogramOpts::new(
            "noverlay_frr_reload_duration_seconds",
            "How long reloads took",
        )
        .buckets(vec![0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0]);
        let gauge = |name: &str, help: &str| register(registry, IntGauge::new(name, help));
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            register(registry, IntGaugeVec::new(Opts::new(name, help), labels))
        };
        let reloads = Opts::new(
            "noverlay_frr_reloads_total",
            "Reloads of FRR by result (success, failure)",
        );
        registry.register(Box::new(ProcessCollector::for_self()))?;
        Ok(Self {
            reloads: register(registry, IntCounterVec::new(reloads, &["result"]))?,
            reload_seconds: register(registry, Histogram::with_opts(seconds))?,
            corrected: register(
                registry,
                IntCounter::new(
                    "noverlay_frr_drift_corrections_total",
                    "Times that FRR ran something else than was loaded and was put back",
                ),
            )?,
            last_good: gauge(
                "noverlay_frr_last_applied_timestamp_seconds",
                "When FRR last took a configuration whole, in seconds since 1970",
            )?,
            behind_seconds: gauge(
                "noverlay_frr_out_of_sync_seconds",
                "For how long FRR has not run what the objects say; 0 is good",
            )?,
            conflicts: gauge(
                "noverlay_frr_merge_conflicts",
                "Reasons why the node's objects do not merge, and objects left out; 0 is good",
            )?,
            aside: gauge(
                "noverlay_frr_managed_by_frr_k8s",
                "1 where frr-k8s manages FRR on the node, so that nothing is written to it",
            )?,
            sessions: gauges("noverlay_bgp_sessions", "BGP sessions by state", &["state"])?,
            prefixes: gauges(
                "noverlay_bgp_prefixes",
                "Prefixes of a BGP session by direction (received, advertised)",
                &["vrf", "peer", "direction"],
            )?,
            state: Arc::default(),
        })
    }

    pub(crate) fn conflicts(&self, count: usize) {
        self.conflicts.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn aside(&self, aside: bool) {
        self.aside.set(i64::from(aside));
    }

    /// FRR took the configuration that it holds at this time.
    pub(crate) fn held_since(&self, at: Option<SystemTime>) {
        let seconds = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        if let Some(seconds) = seconds.and_then(|d| i64::try_from(d.as_secs()).ok()) {
            self.last_good.set(seconds);
        }
    }

    /// FRR holds, or does not hold, what the objects say.
    pub(crate) fn behind(&self, behind: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !behind {
            state.behind_since = None;
        } else if state.behind_since.is_none() {
            state.behind_since = Some(Instant::now());
        }
        drop(state);
        self.tick();
    }

    /// Brings the time that FRR is behind up to now.
    pub(crate) fn tick(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = state
            .behind_since
            .map_or(0, |since| since.elapsed().as_secs());
        self.behind_seconds
            .set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }

    pub(crate) fn show_sessions(&self, sessions: &[SessionState]) {
        const STATES: [&str; 6] = [
            "Idle",
            "Connect",
            "Active",
            "OpenSent",
            "OpenConfirm",
            "Established",
        ];
        for state in STATES {
            let count = sessions.iter().filter(|s| s.bgp == state).count();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.sessions.with_label_values(&[state]).set(count);
        }
        let mut shown = BTreeSet::new();
        for session in sessions {
            let vrf = if session.vrf.is_empty() {
                "default"
            } else {
                &session.vrf
            };
            for (direction, count) in [("received", session.received), ("advertised", session.sent)]
            {
                let labels = [vrf, session.peer.as_str(), direction];
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                self.prefixes.with_label_values(&labels).set(count);
            }
            shown.insert((vrf.to_owned(), session.peer.clone()));
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for (vrf, peer) in state.shown.difference(&shown) {
            for direction in ["received", "advertised"] {
                // It may never have been set.
                drop(self.prefixes.remove_label_values(&[vrf, peer, direction]));
            }
        }
        state.shown = shown;
    }
}
