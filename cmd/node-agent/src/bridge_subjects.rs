//! The external bridge's flows.
//! In: local facts, and the last known view of the network. Out: one bundle where the bridge differs.
//! Invariant: the host stage needs neither the API server nor OVN; a whole table that stands there is never replaced by the host stage for want of knowledge.
//! Not here: which flows (`plan_node::bridge`).

use std::sync::Arc;

use host::BridgeControl;
use model::ovs::{BridgeFact, Flow, patch_port};
use plan_node::bridge::{self, BridgeInput, BridgeNetwork, GatewayMode};
use reconcile::{Subjects, Verdict};
use telemetry::Chain;

use crate::known::Known;

/// What can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The flows of the external bridge.
    Flows,
}

/// The loop's subject.
pub(crate) struct BridgeSubjects {
    known: Arc<Known>,
    control: BridgeControl,
    fact: Option<BridgeFact>,
    told: String,
}

impl BridgeSubjects {
    pub(crate) fn new(known: Arc<Known>) -> Self {
        let control = BridgeControl::new(known.settings.ovs_rundir.clone());
        Self {
            known,
            control,
            fact: None,
            told: String::new(),
        }
    }

    /// The bridge's ports as the conf database has them, or as it last had them.
    fn refresh(&mut self) {
        let name = &self.known.settings.gateway.interface;
        let fact = self
            .known
            .switch
            .with_replica(|replica| ovn::switch::lift_bridge(replica, name));
        if let Some(Ok(Some(fact))) = fact {
            self.fact = Some(fact);
        }
    }

    /// The port to the physical network: neither the bridge itself, nor internal, nor a patch.
    fn uplink(&self) -> Option<u32> {
        let bridge = &self.known.settings.gateway.interface;
        let ports = self.fact.as_ref()?.ports.iter();
        let mut outside =
            ports.filter(|p| p.name != *bridge && p.kind != "internal" && p.kind != "patch");
        outside.find_map(|p| p.ofport)
    }

    fn patch(&self) -> Option<u32> {
        let known = &self.known;
        let name = patch_port(
            &known.settings.gateway.interface,
            &known.network,
            &known.node,
        );
        self.fact
            .as_ref()?
            .ports
            .iter()
            .find(|p| p.name == name)
            .and_then(|p| p.ofport)
    }

    async fn wanted(&self, uplink: u32) -> (&'static str, Vec<Flow>) {
        // A fresh view where there is one; it is remembered, and serves while the API server is away.
        if let Ok(local) = self.known.local().await {
            drop(self.known.view(&local));
        }
        match (self.known.last_view(), self.patch()) {
            (Some(view), Some(patch)) => {
                let input = BridgeInput {
                    uplink,
                    networks: vec![BridgeNetwork {
                        network_id: view.network_id,
                        patch,
                        pod_subnets: view.host_subnets.clone(),
                    }],
                    mac: view.gateway.mac,
                    addresses: view.gateway.addresses.iter().map(|a| a.ip).collect(),
                    mode: match self.known.settings.gateway.mode {
                        settings::GatewayMode::Shared => GatewayMode::Shared,
                        settings::GatewayMode::Local => GatewayMode::Local,
                    },
                };
                ("full", bridge::full(&input))
            }
            _ => ("host", bridge::host_stage(uplink)),
        }
    }

    async fn flows(&mut self) -> Result<Verdict, host::FlowError> {
        self.refresh();
        let name = self.known.settings.gateway.interface.clone();
        let Some(uplink) = self.uplink() else {
            self.tell(format!(
                "bridge {name} has no port to the physical network yet"
            ));
            return Ok(Verdict::Retry);
        };
        let (stage, wanted) = self.wanted(uplink).await;
        if stage == "host" && self.control.serves(&name, uplink).await? {
            return Ok(Verdict::Settled);
        }
        if self.control.holds(&name, &wanted).await? {
            self.told.clear();
            return Ok(Verdict::Settled);
        }
        self.control.replace(&name, &wanted).await?;
        self.known
            .metrics
            .flow_writes
            .with_label_values(&[stage])
            .inc();
        tracing::info!(
            bridge = name,
            stage,
            flows = wanted.len(),
            "wrote the bridge's flows"
        );
        self.told.clear();
        Ok(Verdict::Settled)
    }

    fn tell(&mut self, text: String) {
        if self.told != text {
            tracing::warn!("{text}");
            self.told = text;
        }
    }
}

impl Subjects for BridgeSubjects {
    type Key = Key;

    async fn universe(&mut self) -> Option<Vec<Key>> {
        Some(vec![Key::Flows])
    }

    /// Never cancelled by the loop; a bundle is written whole or not at all.
    async fn pass(&mut self, _: &Key) -> Verdict {
        match self.flows().await {
            Ok(verdict) => verdict,
            Err(error) => {
                self.tell(format!(
                    "cannot look after the bridge's flows: {}",
                    Chain(&error)
                ));
                Verdict::Retry
            }
        }
    }
}
