//! The import loop: which world a network's import lives in, and what is told of it.
//! In: views of the network, the Nodes. Out: passes of `import`, pokes of the report.
//! Invariant: without a view everything stays as it is; a view is made anew only where one of its facts may have changed.
//! Not here: how routes become rows (`import`).

use std::collections::BTreeMap;
use std::sync::Arc;

use model::NetworkName;
use plan_node::breaker::Threshold;
use plan_node::imports::{self, ImportWorld, Skipped};
use plan_node::vrf;
use reconcile::{Subjects, Verdict};
use telemetry::{Chain, Readiness};
use tokio::task::JoinHandle;

use crate::api_subjects::Key as ApiKey;
use crate::import::{Import, ImportConfig, ImportError, Inputs, Passed};
use crate::known::{Known, NoView};
use crate::sources::Pokers;

/// What the report shows of an import.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    digest: String,
    held: usize,
    eligible: usize,
    skipped: BTreeMap<&'static str, Skipped>,
}

/// The loop's subjects: networks. There is one, the default network.
pub(crate) struct ImportSubjects {
    known: Arc<Known>,
    pokers: Pokers,
    readiness: Readiness,
    import: Import,
    /// The inputs as they were made at an epoch.
    inputs: Option<(u64, Arc<Inputs>)>,
    reported: Option<Told>,
    told: Option<String>,
    again: Option<JoinHandle<()>>,
}

impl ImportSubjects {
    pub(crate) fn new(known: Arc<Known>, pokers: Pokers, readiness: Readiness) -> Self {
        let limits = &known.settings.limits;
        let whole = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let config = ImportConfig {
            target: imports::target(&known.network, &known.node),
            limit: whole(limits.max_imported_routes),
            stale: limits.stale_time,
            threshold: Threshold {
                share: limits.mass_withdraw_share,
                least: whole(limits.mass_withdraw_routes),
                window: limits.mass_withdraw_window,
                hold: limits.mass_withdraw_hold,
            },
        };
        let import = Import::new(
            config,
            known.north.clone(),
            Some(known.frr.clone()),
            Arc::clone(&known.hearing),
            known.metrics.import.clone(),
        );
        known.set_import(import.state());
        Self {
            known,
            pokers,
            readiness,
            import,
            inputs: None,
            reported: None,
            told: None,
            again: None,
        }
    }

    async fn inputs(&mut self) -> Result<Arc<Inputs>, NoView> {
        let epoch = self.known.epoch();
        if let Some((at, inputs)) = &self.inputs
            && *at == epoch
        {
            return Ok(Arc::clone(inputs));
        }
        let local = self.known.local().await?;
        let view = self.known.view(&local)?;
        let default = match self.known.settings.gateway.bgp_default {
            settings::BgpDefault::Ignore => imports::BgpDefault::Ignore,
            settings::BgpDefault::Replace => imports::BgpDefault::Replace,
        };
        let mut world = ImportWorld::of(
            &view,
            Some(local.bridge.index),
            std::collections::BTreeSet::new(),
            default,
        );
        world.other_networks = self.known.other_networks();
        let inputs = Arc::new(Inputs {
            table: vrf::table(&view.network, view.network_id, &local.links),
            world,
            owners: self.known.owners(),
            release: self.known.release(),
        });
        self.inputs = Some((epoch, Arc::clone(&inputs)));
        Ok(inputs)
    }

    fn tell(&mut self, text: String) {
        if self.told.as_ref() != Some(&text) {
            tracing::warn!("{text}");
            self.told = Some(text);
        }
    }

    async fn import(&mut self) -> Verdict {
        let inputs = match self.inputs().await {
            Ok(inputs) => inputs,
            // The topology's pass says why.
            Err(_) => return Verdict::Retry,
        };
        let passed = self.import.pass(&inputs).await;
        self.look_again();
        match passed {
            Ok(Passed::NotReady) => Verdict::Blocked,
            Ok(Passed::Agreed {
                wrote: (add, remove),
                looked,
                repaired,
            }) => {
                if (add, remove) != (0, 0) {
                    let routes = self.import.state().lock().rows();
                    if repaired {
                        tracing::warn!(
                            add,
                            remove,
                            routes,
                            "somebody else changed imported routes, repaired them"
                        );
                    } else {
                        tracing::info!(add, remove, routes, "imported routes");
                    }
                }
                self.told = None;
                self.report();
                self.readiness.set("import", true);
                if looked {
                    Verdict::Settled
                } else {
                    Verdict::Idle
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
                let retries = &self.known.metrics.import.retries;
                retries.with_label_values(&[cause]).inc();
                let text = format!("import pass failed, trying again: {}", Chain(&error));
                self.tell(text);
                Verdict::Retry
            }
        }
    }

    /// Pokes the report where it has to say something else than before.
    fn report(&mut self) {
        let told = {
            let state = self.import.state();
            let state = state.lock();
            Told {
                digest: state.digest(),
                held: state.held().count(),
                eligible: state.eligible(),
                skipped: state.skipped(),
            }
        };
        if self.reported.as_ref() != Some(&told) {
            self.reported = Some(told);
            self.known.set_imported();
            self.pokers.api.poke(ApiKey::Report);
        }
    }

    /// Nobody else tells when FRR is itself again, or when it is time to check what events told.
    fn look_again(&mut self) {
        if let Some(before) = self.again.take() {
            before.abort();
        }
        if let Some(wait) = self.import.again() {
            let (poker, key) = (self.pokers.import.clone(), self.known.network.clone());
            self.again = Some(tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                poker.poke(key);
            }));
        }
    }
}

impl Subjects for ImportSubjects {
    type Key = NetworkName;

    async fn universe(&mut self) -> Option<Vec<NetworkName>> {
        Some(vec![self.known.network.clone()])
    }

    /// Never cancelled by the loop; a transaction is applied whole or not at all.
    async fn pass(&mut self, _: &NetworkName) -> Verdict {
        self.import().await
    }
}
