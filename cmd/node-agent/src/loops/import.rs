//! The import loop: which scope a network's import lives in, and what is reported of it.
//! In: views of the network, the Nodes. Out: passes of `import`, requests for the report.
//! Invariant: what cannot be read now is as it was last known, and the import goes on with it; facts are read again only where
//! one of them may have changed.
//! Not here: how routes become rows (`import`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use import::Retained;
use import::decide::Skipped;
use import::suppression::Threshold;
use model::Scope;
use model::gateway::BgpDefault;
use model::nb::Columns;
use model::nb::ImportTarget;
use model::{NetworkName, Prefix};
use plan_node::NetworkView;
use plan_node::claims::Claims;
use plan_node::learn;
use plan_node::vrf;
use reconcile::{Action, Reconciler};
use telemetry::{Chain, Readiness};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::importing::{FrrProbe, Import, ImportConfig, ImportError, Inputs, Passed};
use crate::keys::{ApiKey, Queues};
use crate::known::{Known, NoView};
use crate::loops::UNREADY;

/// What the report shows of an import.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    digest: String,
    /// By reason: what FRR's restart retained may be retained as a mass withdrawal a moment later.
    retained: BTreeMap<Retained, usize>,
    eligible: usize,
    skipped: BTreeMap<&'static str, Skipped>,
}

/// Reconciles networks' imports. There is one, the default network.
pub(crate) struct ImportReconciler {
    known: Arc<Known>,
    queues: Queues,
    readiness: Readiness,
    import: Import,
    /// The inputs as they were last made; with the epoch where they could be read whole.
    inputs: Option<(Option<u64>, Arc<Inputs>)>,
    /// Since when no pass came to its end with inputs that could be read whole.
    failing: Option<Instant>,
    reported: Option<Told>,
    told: Option<String>,
    again: Option<JoinHandle<()>>,
    /// Rows that were added and removed and not logged yet, and when some were.
    unlogged: (usize, usize),
    logged: Option<Instant>,
}

impl ImportReconciler {
    pub(crate) fn new(known: Arc<Known>, queues: Queues, readiness: Readiness) -> Self {
        let limits = &known.settings.limits;
        let whole = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let config = ImportConfig {
            target: ImportTarget::of(&known.network, &known.node),
            limit: whole(limits.max_imported_routes),
            stale: limits.stale_time,
            threshold: Threshold {
                share: limits.mass_withdraw_share,
                least: whole(limits.mass_withdraw_routes),
                window: limits.mass_withdraw_window,
                hold: limits.mass_withdraw_hold,
            },
            interface: known.settings.gateway.interface.clone(),
        };
        let (queue, key) = (queues.import.clone(), known.network.clone());
        let probe = FrrProbe::start(known.frr.clone(), move || queue.enqueue(key.clone()));
        let import = Import::new(
            config,
            known.north.clone(),
            Some(probe),
            Arc::clone(&known.event_buffer),
            known.metrics.import.clone(),
        );
        known.set_import(import.state());
        Self {
            known,
            queues,
            readiness,
            import,
            inputs: None,
            failing: None,
            reported: None,
            told: None,
            again: None,
            unlogged: (0, 0),
            logged: None,
        }
    }

    /// The inputs, and why they could not be read whole: then what is missing is as it was.
    async fn inputs(&mut self) -> Result<(Arc<Inputs>, Option<NoView>), NoView> {
        let epoch = self.known.epoch();
        if let Some((Some(at), inputs)) = &self.inputs
            && *at == epoch
        {
            return Ok((Arc::clone(inputs), None));
        }
        let last = self.inputs.as_ref().map(|(_, inputs)| Arc::clone(inputs));
        let (inputs, missing) = match self.read().await {
            Ok(read) => read,
            Err(error) => {
                let Some(last) = &last else {
                    return Err(error);
                };
                let claims = self.known.all_nodes().map(|_| self.known.claims());
                (carried_on(last, claims, self.known.release()), Some(error))
            }
        };
        // The import knows inputs by their place: equal ones need no look.
        let inputs = match last {
            Some(last) if *last == inputs => last,
            Some(_) | None => Arc::new(inputs),
        };
        let at = missing.is_none().then_some(epoch);
        self.inputs = Some((at, Arc::clone(&inputs)));
        Ok((inputs, missing))
    }

    /// Reads everything. The import needs neither node id nor chassis, but for what comes in the place of routes that go:
    /// why that was never known is reported beside the inputs.
    async fn read(&self) -> Result<(Inputs, Option<NoView>), NoView> {
        let known = &self.known;
        if known.settings.transport.no_overlay().is_none() {
            return Err(NoView::NoNetwork);
        }
        known.all_nodes().ok_or(NoView::Caches)?;
        let host_subnets = known.host_subnets()?;
        let links = known.links().await?;
        let bgp_default = known.settings.gateway.bgp_default;
        let addresses = links.addresses.iter().chain(&links.host_cidrs);
        let own_addresses = addresses.map(|address| address.ip).collect();
        let (link, table) = (
            links.bridge.index,
            vrf::table(&known.network, 0, &links.all),
        );
        // Without a view the topology does not change either: the last one still tells of its rows.
        let view = known.local_of(links).and_then(|local| known.view(&local));
        let (fallbacks, missing) = fallbacks(view, || known.last_view(), bgp_default);
        let fallbacks_known = missing.is_none();
        let claims = known.claims();
        let inputs = Inputs {
            table,
            scope: Scope {
                gateway_link: Some(link),
                cluster_subnets: known.cluster_subnets(),
                host_subnets,
                join_subnets: known.join_subnets(),
                other_networks: claims.other_networks,
                own_addresses,
                no_overlay: true,
                taken: BTreeSet::new(),
                fallbacks,
                fallbacks_known,
                bgp_default,
            },
            owners: claims.owners,
            release: known.release(),
        };
        Ok((inputs, missing))
    }

    /// The inputs could be read whole and a pass came to its end, or not.
    fn note(&mut self, well: bool) {
        if well {
            self.failing = None;
            self.readiness.set("import", true);
        } else if self.failing.get_or_insert_with(Instant::now).elapsed() >= UNREADY {
            self.readiness.set("import", false);
        }
    }

    fn tell(&mut self, text: String) {
        if self.told.as_ref() != Some(&text) {
            tracing::warn!("{text}");
            self.told = Some(text);
        }
    }

    /// Says what was imported, once a second at most: a route that flaps must not fill the log. The rest is said with the next
    /// pass, that of the check a few seconds later at the latest.
    fn log(&mut self, (add, remove): (usize, usize)) {
        self.unlogged.0 += add;
        self.unlogged.1 += remove;
        let soon = self
            .logged
            .is_some_and(|at| at.elapsed() < Duration::from_secs(1));
        if self.unlogged != (0, 0) && !soon {
            let (add, remove) = std::mem::take(&mut self.unlogged);
            let routes = self.import.state().lock().rows();
            tracing::info!(add, remove, routes, "imported routes");
            self.logged = Some(Instant::now());
        }
    }

    async fn import(&mut self) -> Action {
        let retries = self.known.metrics.import.retries.clone();
        let read = self.inputs().await;
        let stale = &self.known.metrics.inputs_stale;
        stale.set(i64::from(matches!(read, Ok((_, Some(_))))));
        let (inputs, missing) = match read {
            Ok(read) => read,
            // The topology's pass says why.
            Err(_) => {
                retries.with_label_values(&["inputs"]).inc();
                self.note(false);
                return Action::Requeue;
            }
        };
        let passed = self.import.pass(&inputs).await;
        self.look_again();
        if let (Some(error), Ok(_)) = (&missing, &passed) {
            retries.with_label_values(&["inputs"]).inc();
            let why = Chain(error);
            self.tell(format!("importing with what was last known: {why}"));
        }
        self.note(missing.is_none() && matches!(passed, Ok(Passed::Agreed { .. })));
        match passed {
            Ok(Passed::NotReady) => Action::AwaitChange,
            Ok(Passed::Unfinished(add, remove)) => {
                tracing::info!(add, remove, "imported routes, more to come");
                self.report();
                Action::Done
            }
            Ok(Passed::Agreed {
                wrote: (add, remove),
                looked,
                repaired,
            }) => {
                if repaired {
                    tracing::warn!(
                        add,
                        remove,
                        "somebody else changed imported routes, repaired them"
                    );
                }
                self.log((add, remove));
                self.report();
                if missing.is_some() {
                    return Action::Requeue;
                }
                self.told = None;
                if looked {
                    Action::Done
                } else {
                    Action::NoChange
                }
            }
            Err(error) => {
                let cause = match &error {
                    ImportError::Transact(_) | ImportError::NoProgress => "database",
                    ImportError::Dump(_) => "kernel",
                    ImportError::Access(_) | ImportError::Thread | ImportError::Unsound(_) => {
                        "other"
                    }
                };
                retries.with_label_values(&[cause]).inc();
                let text = format!("import pass failed, trying again: {}", Chain(&error));
                self.tell(text);
                Action::Requeue
            }
        }
    }

    /// Enqueues the report where it has to say something else than before.
    fn report(&mut self) {
        let told = {
            let state = self.import.state();
            let state = state.lock();
            Told {
                digest: state.digest(),
                retained: state
                    .retained()
                    .fold(BTreeMap::new(), |mut retained, (_, why)| {
                        *retained.entry(why).or_default() += 1;
                        retained
                    }),
                eligible: state.eligible(),
                skipped: state.skipped(),
            }
        };
        if self.reported.as_ref() != Some(&told) {
            self.reported = Some(told);
            self.known.set_imported();
            self.queues.api.enqueue(ApiKey::Report);
        }
    }

    /// Nobody else tells when FRR is itself again, or when it is time to check what events reported.
    fn look_again(&mut self) {
        if let Some(before) = self.again.take() {
            before.abort();
        }
        if let Some(wait) = self.import.again() {
            let (queue, key) = (self.queues.import.clone(), self.known.network.clone());
            self.again = Some(tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                queue.enqueue(key);
            }));
        }
    }
}

/// The topology's rows that give way to imported ones, by the view as it is now or was last; where there never was one,
/// they are not known, and why.
fn fallbacks(
    view: Result<NetworkView, NoView>,
    last: impl FnOnce() -> Option<NetworkView>,
    default: BgpDefault,
) -> (BTreeMap<Prefix, Vec<Columns>>, Option<NoView>) {
    let (view, missing) = match view {
        Ok(view) => (Some(view), None),
        Err(error) => last().map_or((None, Some(error)), |view| (Some(view), None)),
    };
    let rows = view.map(|view| learn::fallbacks(&view, default));
    (rows.unwrap_or_default(), missing)
}

/// The last inputs, with what the Nodes say now where they have been listed: whose a subnet is, and the admin's word.
fn carried_on(last: &Inputs, claims: Option<Claims>, release: Option<String>) -> Inputs {
    let mut inputs = last.clone();
    if let Some(claims) = claims {
        inputs.scope.other_networks = claims.other_networks;
        inputs.owners = claims.owners;
        // A Node that is not there says nothing.
        inputs.release = release.or(inputs.release);
    }
    inputs
}

impl Reconciler for ImportReconciler {
    type Key = NetworkName;

    async fn keys(&mut self) -> Option<Vec<NetworkName>> {
        Some(vec![self.known.network.clone()])
    }

    /// Never cancelled by the loop; a transaction is applied whole or not at all.
    async fn reconcile(&mut self, _: &NetworkName) -> Action {
        self.import().await
    }
}

#[cfg(test)]
mod tests;
