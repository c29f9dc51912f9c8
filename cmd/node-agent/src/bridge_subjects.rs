//! The external bridge's flows.
//! In: local facts, and the last known view of the network. Out: one bundle where the bridge differs.
//! Invariant: the host stage needs neither the API server nor OVN; a whole table that stands there is never replaced by the host stage for want of knowledge.
//! Not here: which flows (`plan_node::bridge`).

use std::sync::Arc;

use host::BridgeControl;
use model::ovs::{BridgeFact, Flow, PortFact, patch_port};
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

    /// The one port to the physical network, or why there is none.
    fn uplink(&self) -> Result<u32, String> {
        let ports = self.fact.as_ref().map(|fact| fact.ports.as_slice());
        uplink(
            &self.known.settings.gateway.interface,
            ports.unwrap_or_default(),
        )
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
                    mode: GatewayMode::Shared,
                };
                ("full", bridge::full(&input))
            }
            _ => ("host", bridge::host_stage(uplink)),
        }
    }

    async fn flows(&mut self) -> Result<Verdict, host::FlowError> {
        self.refresh();
        let name = self.known.settings.gateway.interface.clone();
        let uplink = match self.uplink() {
            Ok(uplink) => uplink,
            Err(why) => {
                self.tell(why);
                return Ok(Verdict::Retry);
            }
        };
        let (stage, wanted) = self.wanted(uplink).await;
        if stage == "host" && self.control.serves(&name, uplink).await? {
            return Ok(Verdict::Settled);
        }
        if self.control.holds(&name, &wanted).await? {
            self.told.clear();
            return Ok(Verdict::Settled);
        }
        if let Err(error) = self.control.replace(&name, &wanted).await {
            // A switch that refuses the whole table still gets the host its way.
            if stage == "full" && !self.control.serves(&name, uplink).await? {
                let host = bridge::host_stage(uplink);
                self.control.replace(&name, &host).await?;
            }
            return Err(error);
        }
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

/// The one port that is neither the bridge itself, nor internal, nor a patch. With several it cannot be told which of
/// them leads to the physical network, and the flows stay as they are.
fn uplink(bridge: &str, ports: &[PortFact]) -> Result<u32, String> {
    let inside = |p: &PortFact| p.name == bridge || p.kind == "internal" || p.kind == "patch";
    let outside: Vec<&PortFact> = ports.iter().filter(|p| !inside(p)).collect();
    match outside.as_slice() {
        [] => Err(format!(
            "bridge {bridge} has no port to the physical network yet"
        )),
        [port] => port
            .ofport
            .ok_or_else(|| format!("port {} of bridge {bridge} has no number yet", port.name)),
        several => {
            let names: Vec<&str> = several.iter().map(|p| p.name.as_str()).collect();
            Err(format!(
                "bridge {bridge} has several ports to the outside ({}); exactly one is allowed, its flows stay as they are",
                names.join(", ")
            ))
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

#[cfg(test)]
mod tests;
