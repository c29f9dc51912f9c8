//! Metrics of the ways to other nodes.
//! In: what became of requests, what is known of ways. Out: Prometheus series.
//! Invariant: a way has a series while it is too narrow, and none before and after. Not here: what is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use plan_node::paths::prober::Prober;
use plan_node::paths::report::family_label;
use plan_node::paths::visit::{Reply, Verdict};
use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

/// Node and family.
type Labels = (String, &'static str);

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct PathMetrics {
    probes: IntCounterVec,
    peers: IntGaugeVec,
    bytes: IntGaugeVec,
    shown: Arc<Mutex<BTreeSet<Labels>>>,
}

impl PathMetrics {
    /// Makes and registers them.
    ///
    /// # Errors
    /// When a name is registered already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let probes = IntCounterVec::new(
            Opts::new(
                "noverlay_path_mtu_probes_total",
                "Echo requests to other nodes by result (answered, lost, failed: not sent)",
            ),
            &["result"],
        )?;
        let peers = IntGaugeVec::new(
            Opts::new(
                "noverlay_path_mtu_peers",
                "Addresses of other nodes that pods' packets are sent to, by whether the largest pass (wide, narrow, unanswered, filtered, unknown)",
            ),
            &["state"],
        )?;
        let bytes = IntGaugeVec::new(
            Opts::new(
                "noverlay_path_mtu_bytes",
                "The largest IP packet that passes to another node, where that is less than pods send; absent otherwise",
            ),
            &["peer", "family"],
        )?;
        registry.register(Box::new(probes.clone()))?;
        registry.register(Box::new(peers.clone()))?;
        registry.register(Box::new(bytes.clone()))?;
        for result in ["answered", "lost", "failed"] {
            probes.with_label_values(&[result]).inc_by(0);
        }
        Ok(Self {
            probes,
            peers,
            bytes,
            shown: Arc::default(),
        })
    }

    /// Counts a request.
    pub fn count(&self, reply: Reply) {
        let result = match reply {
            Reply::Answered => "answered",
            Reply::Lost { .. } => "lost",
            Reply::Failed => "failed",
        };
        self.probes.with_label_values(&[result]).inc();
    }

    /// Shows what is known of each way; of two to one node and family the narrower one.
    pub fn show(&self, prober: &Prober) {
        let states = ["wide", "narrow", "unanswered", "filtered", "unknown"];
        let mut counts = BTreeMap::from(states.map(|state| (state, 0_i64)));
        let mut narrow: BTreeMap<Labels, u32> = BTreeMap::new();
        for (key, verdict) in prober.verdicts() {
            let state = match verdict {
                Verdict::Wide => "wide",
                Verdict::Unanswered => "unanswered",
                Verdict::Filtered => "filtered",
                Verdict::Unknown => "unknown",
                Verdict::Narrow { passes } => {
                    let labels = (key.node.to_string(), family_label(key.to));
                    let least = narrow.entry(labels).or_insert(passes);
                    *least = passes.min(*least);
                    "narrow"
                }
            };
            *counts.entry(state).or_default() += 1;
        }
        for (state, count) in counts {
            self.peers.with_label_values(&[state]).set(count);
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        for (peer, family) in shown.iter().filter(|labels| !narrow.contains_key(labels)) {
            drop(self.bytes.remove_label_values(&[peer.as_str(), family]));
        }
        for ((peer, family), passes) in &narrow {
            let series = self.bytes.with_label_values(&[peer.as_str(), family]);
            series.set(i64::from(*passes));
        }
        *shown = narrow.into_keys().collect();
    }
}

#[cfg(test)]
mod tests;
