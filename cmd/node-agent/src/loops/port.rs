//! Management ports on the integration bridge, and the kernel's side of all networks.
//! In: the plan's parts, the conf database, the kernel. Out: port rows, addresses, our rules and routes, where one of them differs.
//! Invariant: what somebody takes away by hand comes back; a pass that finds all as wanted writes nothing; what a network that is
//! not known yet may need stays. Not here: what is wanted (`plan_node::kernel`), how the kernel is changed (`netlink::write`).

use std::collections::BTreeSet;
use std::sync::Arc;

use model::NetworkName;
use model::kernel::KernelKey;
use netlink::write::{self, WriteError};
use ovsdb::{Client, Transaction};
use prometheus::IntCounterVec;
use reconcile::{Action, Reconciler};
use telemetry::{Chain, Readiness, WarnOnce};
use tokio::sync::watch;

use crate::keys::PortKey;
use crate::loops::failing::{Failing, Outcome};
use crate::refused_vrfs::RefusedVrfs;
use crate::transact::{TransactionFailed, transact};
use crate::world::Planned;

/// Why a pass failed; the world's fault, tried again.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error("cannot make a transaction")]
    Encode(#[from] ovn::EncodeError),
    #[error(transparent)]
    Transact(#[from] TransactionFailed),
    #[error("cannot write the kernel's side")]
    Kernel(#[from] write::WriteError),
    #[error("the conf database is not in step")]
    NoReplica,
}

/// Reconciles them.
pub(crate) struct PortReconciler {
    planned: watch::Receiver<Option<Arc<Planned>>>,
    switch: Client,
    refused_vrfs: RefusedVrfs,
    transactions: IntCounterVec,
    warned: WarnOnce<PortKey>,
    /// Routes of which was told that somebody else's stand in their places.
    kept: BTreeSet<KernelKey>,
    failing: Failing<PortKey>,
}

impl PortReconciler {
    pub(crate) fn new(
        planned: watch::Receiver<Option<Arc<Planned>>>,
        switch: Client,
        refused_vrfs: RefusedVrfs,
        transactions: IntCounterVec,
        readiness: Readiness,
    ) -> Self {
        Self {
            planned,
            switch,
            refused_vrfs,
            transactions,
            warned: WarnOnce::default(),
            kept: BTreeSet::new(),
            failing: Failing::new("port", readiness),
        }
    }

    async fn port(&self, name: &NetworkName, planned: &Planned) -> Result<(), PassError> {
        let (made, what) = match planned.plan.ports.get(name) {
            Some(port) => {
                let comment = format!("noverlay node-agent port {}", port.name);
                let switch = &self.switch;
                let made = switch.with_replica(|r| ovn::switch::ensure_port(r, port, &comment));
                (made, "writing the management port")
            }
            None => {
                let comment = format!("noverlay node-agent ports of network {name}");
                let switch = &self.switch;
                let made = switch.with_replica(|r| ovn::switch::remove_ports(r, name, &comment));
                (made, "removing the management port")
            }
        };
        let transaction: Option<Transaction> = made.ok_or(PassError::NoReplica)??;
        if let Some(transaction) = transaction {
            tracing::info!(network = name.as_str(), "{what}");
            transact("switch", &self.switch, &transaction, &self.transactions).await?;
        }
        Ok(())
    }

    async fn kernel(&mut self, planned: &Planned) -> Result<(), PassError> {
        if self.refused_vrfs.is_due() {
            match write::try_vrf().await {
                Ok(()) => self.refused_vrfs.clear(),
                Err(WriteError::Refused { .. }) => self.refused_vrfs.tried(),
                Err(error) => return Err(error.into()),
            }
        }
        let plan = &planned.plan;
        let written = write::apply(&plan.kernel, plan.is_complete()).await?;
        self.kept.retain(|key| written.kept.contains(key));
        for key in &written.kept {
            if self.kept.insert(key.clone()) {
                tracing::warn!("{key}: somebody else's route stands in its place and stays");
            }
        }
        for change in written.done {
            tracing::info!(change, "changed the kernel");
        }
        let mut refused = false;
        for error in &written.failed {
            if let WriteError::Refused {
                key: KernelKey::Vrf { device },
                source,
            } = error
                && !write::is_taken(source)
            {
                self.refused_vrfs.note(device, Chain(source).to_string());
                refused = true;
            }
        }
        match written.failed.into_iter().next() {
            // What else failed may follow from it: the next plan does without the device.
            Some(_) if refused => Ok(()),
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

impl Reconciler for PortReconciler {
    type Key = PortKey;

    async fn keys(&mut self) -> Option<Vec<PortKey>> {
        let planned = self.planned.borrow().clone()?;
        let owned = self.switch.with_replica(ovn::switch::port_owners);
        let owned = owned.and_then(Result::ok).unwrap_or_default();
        let wanted = planned.plan.ports.keys().cloned();
        let names: BTreeSet<NetworkName> = wanted.chain(owned.into_values()).collect();
        let ports = names.into_iter().map(PortKey::Port);
        Some(ports.chain([PortKey::Kernel]).collect())
    }

    /// Never cancelled by the loop; a transaction is applied whole or not at all.
    async fn reconcile(&mut self, key: &PortKey) -> Action {
        let Some(planned) = self.planned.borrow().clone() else {
            return Action::AwaitChange;
        };
        let outcome = match key {
            PortKey::Port(name) if planned.plan.unknown.contains(name) => {
                return Action::AwaitChange;
            }
            PortKey::Port(name) => self.port(name, &planned).await,
            PortKey::Kernel => self.kernel(&planned).await,
        };
        let ports = planned.plan.ports.keys().cloned().map(PortKey::Port);
        let mut wanted: BTreeSet<PortKey> = ports.collect();
        if !wanted.is_empty() {
            wanted.insert(PortKey::Kernel);
        }
        let (outcome, action) = match outcome {
            Ok(()) => {
                self.warned.clear(key);
                let stale = match key {
                    PortKey::Port(name) => planned.awaits(name),
                    PortKey::Kernel => false,
                };
                if stale {
                    // It stands as it was last known; the plan says what is missing.
                    (Outcome::Failed, Action::Requeue)
                } else {
                    (Outcome::Well, Action::Done)
                }
            }
            Err(error) => {
                let text = format!("{key:?} pass failed, trying again: {}", Chain(&error));
                self.warned.warn(key.clone(), text);
                (Outcome::Failed, Action::Requeue)
            }
        };
        self.failing.note(key, outcome, &wanted);
        action
    }
}
