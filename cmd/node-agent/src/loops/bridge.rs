//! The external bridge's flows.
//! In: the plan's part. Out: one bundle where the bridge differs.
//! Invariant: a whole table that stands there is never replaced by the host stage for want of knowledge, nor by one without the
//! networks that are not known yet. Not here: which flows (`plan_node::bridge`).

use std::collections::BTreeSet;
use std::sync::Arc;

use host::{BridgeControl, FlowError};
use model::ovs::Flow;
use plan_node::{FlowTable, bridge};
use reconcile::{Action, Reconciler};
use settings::Settings;
use telemetry::{Chain, Readiness, WarnOnce};
use tokio::sync::watch;

use crate::keys::BridgeKey;
use crate::loops::failing::{Failing, Outcome};
use crate::metrics::Metrics;
use crate::world::Planned;

/// Reconciles them.
pub(crate) struct BridgeReconciler {
    planned: watch::Receiver<Option<Arc<Planned>>>,
    bridge: String,
    control: BridgeControl,
    metrics: Metrics,
    warned: WarnOnce<BridgeKey>,
    failing: Failing<BridgeKey>,
}

impl BridgeReconciler {
    pub(crate) fn new(
        planned: watch::Receiver<Option<Arc<Planned>>>,
        settings: &Settings,
        metrics: Metrics,
        readiness: Readiness,
    ) -> Self {
        Self {
            planned,
            bridge: settings.gateway.interface.clone(),
            control: BridgeControl::new(settings.ovs_rundir.clone()),
            metrics,
            warned: WarnOnce::default(),
            failing: Failing::new("flows", readiness),
        }
    }

    async fn flows(&mut self, table: &FlowTable) -> Result<(Outcome, Action), FlowError> {
        let action = match table {
            FlowTable::Unknown { why } => {
                self.warned.warn(BridgeKey::Flows, why.clone());
                return Ok((Outcome::Failed, Action::Requeue));
            }
            FlowTable::SeveralUplinks { ports, flows, why } => {
                self.warned.warn(BridgeKey::Flows, why.clone());
                let action = self.several(ports, flows).await?;
                return Ok((Outcome::Blocked, action));
            }
            FlowTable::Host { uplink, flows } => {
                if !self.control.serves(&self.bridge, *uplink).await? {
                    self.replace("host", flows).await?;
                }
                Action::Done
            }
            FlowTable::Full {
                uplink,
                flows,
                complete,
            } => self.full(*uplink, flows, *complete).await?,
        };
        Ok((Outcome::Well, action))
    }

    async fn full(
        &mut self,
        uplink: u32,
        flows: &[Flow],
        complete: bool,
    ) -> Result<Action, FlowError> {
        let stands = if complete {
            self.control.holds(&self.bridge, flows).await?
        } else {
            self.control.includes(&self.bridge, flows).await?
        };
        if stands {
            self.warned.clear(&BridgeKey::Flows);
            return Ok(Action::Done);
        }
        let wrote = if complete {
            self.replace("full", flows).await
        } else {
            self.add(flows).await
        };
        if let Err(error) = wrote {
            // A switch that refuses the whole table still gets the host its way.
            if !self.control.serves(&self.bridge, uplink).await? {
                let host = bridge::host_stage(uplink);
                self.control.replace(&self.bridge, &host).await?;
            }
            return Err(error);
        }
        self.warned.clear(&BridgeKey::Flows);
        Ok(Action::Done)
    }

    /// Flows that serve one of the ports stay; where there are none the host would be cut off.
    async fn several(&mut self, ports: &[u32], flows: &[Flow]) -> Result<Action, FlowError> {
        for port in ports {
            if self.control.serves(&self.bridge, *port).await? {
                return Ok(Action::AwaitChange);
            }
        }
        self.replace("plain", flows).await?;
        Ok(Action::AwaitChange)
    }

    async fn replace(&mut self, stage: &str, flows: &[Flow]) -> Result<(), FlowError> {
        self.control.replace(&self.bridge, flows).await?;
        self.wrote(stage, flows.len());
        Ok(())
    }

    async fn add(&mut self, flows: &[Flow]) -> Result<(), FlowError> {
        self.control.add(&self.bridge, flows).await?;
        self.wrote("added", flows.len());
        Ok(())
    }

    fn wrote(&self, stage: &str, flows: usize) {
        self.metrics.flow_writes.with_label_values(&[stage]).inc();
        let bridge = &self.bridge;
        tracing::info!(bridge, stage, flows, "wrote the bridge's flows");
    }
}

impl Reconciler for BridgeReconciler {
    type Key = BridgeKey;

    async fn keys(&mut self) -> Option<Vec<BridgeKey>> {
        Some(vec![BridgeKey::Flows])
    }

    /// Never cancelled by the loop; a bundle is written whole or not at all.
    async fn reconcile(&mut self, key: &BridgeKey) -> Action {
        let Some(planned) = self.planned.borrow().clone() else {
            return Action::AwaitChange;
        };
        let (outcome, action) = match self.flows(&planned.plan.flows).await {
            Ok(done) => done,
            Err(error) => {
                let text = format!("cannot look after the bridge's flows: {}", Chain(&error));
                self.warned.warn(BridgeKey::Flows, text);
                (Outcome::Failed, Action::Requeue)
            }
        };
        self.failing.note(key, outcome, &BTreeSet::from([*key]));
        action
    }
}
