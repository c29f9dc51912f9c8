//! The node-agent's own metrics.
//! In: what the passes did. Out: Prometheus series, documented in docs/operations.md.
//! Invariant: label values are from closed sets, or names of objects that are there. Not here: process metrics (the registry's own).

mod paths;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use import::Importer;
use model::NetworkName;
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

pub use self::paths::PathMetrics;

/// Those of the import of routes; cheap to clone.
#[derive(Debug, Clone)]
pub struct ImportMetrics {
    pub(crate) seen: IntGauge,
    pub(crate) eligible: IntGauge,
    pub(crate) programmed: IntGauge,
    pub(crate) retained: IntGauge,
    pub(crate) skipped: IntGaugeVec,
    pub(crate) seconds: Histogram,
    pub(crate) resyncs: IntCounterVec,
    pub(crate) retries: IntCounterVec,
    pub(crate) suppressed: IntGauge,
    pub(crate) mass_withdrawals: IntCounter,
    pub(crate) transactions: IntCounterVec,
    pub(crate) foreign: IntGauge,
}

impl ImportMetrics {
    /// Makes and registers those of one network; `transactions` are everybody's ([`transactions`]).
    ///
    /// # Errors
    /// When a name is registered already for this network.
    pub fn new(
        registry: &Registry,
        network: &NetworkName,
        transactions: IntCounterVec,
    ) -> Result<Self, prometheus::Error> {
        let series = Series { registry, network };
        let skipped = series.gauges(
            "noverlay_skipped_destinations",
            "Destinations that are not imported, by reason",
            "reason",
        )?;
        let mass_withdrawals = series.counter(
            "noverlay_mass_withdrawal_suppressions_total",
            "Times that routes began to be retained because too many would go at once",
        )?;
        let seconds = series.histogram(
            "noverlay_import_duration_seconds",
            "From the kernel's event to the Northbound database's answer, for passes that wrote",
            vec![0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0],
        )?;
        Ok(Self {
            seen: series.gauge(
                "noverlay_kernel_routes",
                "BGP routes in the kernel's table of the network",
            )?,
            eligible: series.gauge(
                "noverlay_eligible_destinations",
                "Destinations that should be in the gateway router, retained ones and those over the limit among them",
            )?,
            programmed: series.gauge(
                "noverlay_programmed_routes",
                "Imported routes in the gateway router",
            )?,
            retained: series.gauge(
                "noverlay_retained_destinations",
                "Destinations that stay although the kernel has lost them: FRR is gone or restarts, or too many went at once",
            )?,
            skipped,
            seconds,
            resyncs: series.counters(
                "noverlay_import_resyncs_total",
                "Dumps of the kernel's routes by cause (start, lost, links, events, check, sweep)",
                "cause",
            )?,
            retries: series.counters(
                "noverlay_import_retries_total",
                "Import passes that failed and are tried again, by cause (database, inputs, kernel, other)",
                "cause",
            )?,
            suppressed: series.gauge(
                "noverlay_mass_withdrawal_suppressed",
                "1 while routes are retained because too many would go at once",
            )?,
            mass_withdrawals,
            foreign: series.gauge(
                "noverlay_foreign_imported_routes",
                "Imported routes of another writer on the gateway router; they stay",
            )?,
            transactions,
        })
    }
}

impl ImportMetrics {
    /// Shows what an importer holds.
    pub(crate) fn measure<R: Copy + Ord>(&self, importer: &Importer<R>) {
        let gauge = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.seen.set(gauge(importer.seen()));
        self.eligible.set(gauge(importer.eligible()));
        self.programmed.set(gauge(importer.rows()));
        self.retained.set(gauge(importer.retained().count()));
        self.skipped.reset();
        for (reason, skipped) in importer.skipped() {
            let series = self.skipped.with_label_values(&[reason]);
            series.set(gauge(skipped.count));
        }
    }

    /// Takes the series out of the registry, but for the transactions, which are everybody's.
    pub(crate) fn unregister(self, registry: &Registry) {
        let Self {
            seen,
            eligible,
            programmed,
            retained,
            skipped,
            seconds,
            resyncs,
            retries,
            suppressed,
            mass_withdrawals,
            transactions: _,
            foreign,
        } = self;
        let gauges = [seen, eligible, programmed, retained, suppressed, foreign];
        for gauge in gauges {
            drop(registry.unregister(Box::new(gauge)));
        }
        for counters in [resyncs, retries] {
            drop(registry.unregister(Box::new(counters)));
        }
        drop(registry.unregister(Box::new(skipped)));
        drop(registry.unregister(Box::new(seconds)));
        drop(registry.unregister(Box::new(mass_withdrawals)));
    }
}

/// Makes and registers series of one network.
struct Series<'a> {
    registry: &'a Registry,
    network: &'a NetworkName,
}

impl Series<'_> {
    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.register(IntGauge::with_opts(self.opts(name, help)))
    }

    fn gauges(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<IntGaugeVec, prometheus::Error> {
        self.register(IntGaugeVec::new(self.opts(name, help), &[label]))
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.register(IntCounter::with_opts(self.opts(name, help)))
    }

    fn counters(
        &self,
        name: &str,
        help: &str,
        label: &str,
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.register(IntCounterVec::new(self.opts(name, help), &[label]))
    }

    fn histogram(
        &self,
        name: &str,
        help: &str,
        buckets: Vec<f64>,
    ) -> Result<Histogram, prometheus::Error> {
        let opts = HistogramOpts::from(self.opts(name, help)).buckets(buckets);
        self.register(Histogram::with_opts(opts))
    }

    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).const_label("network", self.network.as_str())
    }

    fn register<C: Collector + Clone + 'static>(
        &self,
        made: Result<C, prometheus::Error>,
    ) -> Result<C, prometheus::Error> {
        let collector = made?;
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }
}

/// Transactions with OVSDB servers, of all loops.
///
/// # Errors
/// When the name is registered already.
pub fn transactions(registry: &Registry) -> Result<IntCounterVec, prometheus::Error> {
    let opts = Opts::new(
        "noverlay_ovsdb_transactions_total",
        "Transactions by database and result",
    );
    let made = IntCounterVec::new(opts, &["database", "result"])?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}

/// Those of one network's import in this agent, taken away with it.
#[derive(Debug)]
pub(crate) struct NetworkMetrics {
    pub(crate) import: ImportMetrics,
    pub(crate) routes_missing: IntGauge,
    pub(crate) inputs_stale: IntGauge,
}

impl NetworkMetrics {
    pub(crate) fn new(
        registry: &Registry,
        network: &NetworkName,
        transactions: IntCounterVec,
    ) -> Result<Self, prometheus::Error> {
        let series = Series { registry, network };
        Ok(Self {
            import: ImportMetrics::new(registry, network, transactions)?,
            routes_missing: series.gauge(
                "noverlay_missing_node_subnets",
                "Subnets of other nodes that kernel or gateway router do not cover",
            )?,
            inputs_stale: series.gauge(
                "noverlay_import_inputs_stale",
                "1 while routes are imported with what was last known of the own Node and the bridge, because they cannot be read now",
            )?,
        })
    }

    /// Takes the series of a network that is gone out of the registry.
    pub(crate) fn unregister(self, registry: &Registry) {
        let Self {
            import,
            routes_missing,
            inputs_stale,
        } = self;
        import.unregister(registry);
        for gauge in [routes_missing, inputs_stale] {
            // What is not registered needs no taking away.
            drop(registry.unregister(Box::new(gauge)));
        }
    }
}

/// `noverlay_plan_problems`: those of the plan, and owners whose rows somebody else's stand in the way of.
#[derive(Debug, Clone)]
pub(crate) struct ProblemGauge {
    gauge: IntGauge,
    counts: Arc<[AtomicUsize; 2]>,
}

impl ProblemGauge {
    fn new(gauge: IntGauge) -> Self {
        Self {
            gauge,
            counts: Arc::default(),
        }
    }

    pub(crate) fn set_plan(&self, count: usize) {
        let [plan, blocked] = &*self.counts;
        plan.store(count, Ordering::Relaxed);
        self.show(count + blocked.load(Ordering::Relaxed));
    }

    pub(crate) fn set_blocked(&self, count: usize) {
        let [plan, blocked] = &*self.counts;
        blocked.store(count, Ordering::Relaxed);
        self.show(count + plan.load(Ordering::Relaxed));
    }

    fn show(&self, sum: usize) {
        self.gauge.set(i64::try_from(sum).unwrap_or(i64::MAX));
    }
}

/// `noverlay_network_built`, by network.
#[derive(Debug, Clone)]
pub(crate) struct BuiltGauge {
    gauge: IntGaugeVec,
    shown: Arc<Mutex<BTreeSet<NetworkName>>>,
}

impl BuiltGauge {
    fn new(gauge: IntGaugeVec) -> Self {
        Self {
            gauge,
            shown: Arc::default(),
        }
    }

    /// Shows these networks, and takes those away that are none any more.
    pub(crate) fn set(&self, networks: impl Iterator<Item = (NetworkName, bool)>) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *shown);
        for (name, built) in networks {
            let series = self.gauge.with_label_values(&[name.as_str()]);
            series.set(i64::from(built));
            shown.insert(name);
        }
        for gone in before.difference(&shown) {
            drop(self.gauge.remove_label_values(&[gone.as_str()]));
        }
    }
}

/// Those of the node; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) transactions: IntCounterVec,
    pub(crate) session_up: IntGaugeVec,
    pub(crate) flow_writes: IntCounterVec,
    pub(crate) netlink_lost: IntCounter,
    pub(crate) problems: ProblemGauge,
    pub(crate) built: BuiltGauge,
    pub(crate) claims_ignored: IntGauge,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let m = Self {
            transactions: transactions(registry)?,
            session_up: IntGaugeVec::new(
                Opts::new(
                    "noverlay_ovsdb_session_up",
                    "1 while the session with the database is in step",
                ),
                &["database"],
            )?,
            flow_writes: IntCounterVec::new(
                Opts::new(
                    "noverlay_bridge_flow_replacements_total",
                    "Writes of the bridge's flows by stage (host, full, plain, added)",
                ),
                &["stage"],
            )?,
            netlink_lost: IntCounter::new(
                "noverlay_netlink_overruns_total",
                "Times that events of the kernel were lost",
            )?,
            problems: ProblemGauge::new(IntGauge::new(
                "noverlay_plan_problems",
                "Problems of this node's plan; 0 is good",
            )?),
            built: BuiltGauge::new(IntGaugeVec::new(
                Opts::new(
                    "noverlay_network_built",
                    "1 where the network is planned on this node as it is declared; NodeRoutes tells why it is not",
                ),
                &["network"],
            )?),
            claims_ignored: IntGauge::new(
                "noverlay_ignored_node_annotations",
                "Values in Nodes' annotations that are ignored because they cannot be right; the log names the Nodes",
            )?,
        };
        registry.register(Box::new(m.session_up.clone()))?;
        registry.register(Box::new(m.flow_writes.clone()))?;
        registry.register(Box::new(m.netlink_lost.clone()))?;
        registry.register(Box::new(m.problems.gauge.clone()))?;
        registry.register(Box::new(m.built.gauge.clone()))?;
        registry.register(Box::new(m.claims_ignored.clone()))?;
        registry.register(Box::new(
            prometheus::process_collector::ProcessCollector::for_self(),
        ))?;
        Ok(m)
    }
}
