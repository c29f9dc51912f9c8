//! The external bridge's flows.
//! In: local facts, and the last known view of the network. Out: one bundle where the bridge differs.
//! Invariant: the host stage needs neither the API server nor OVN; a whole table that stands there is never replaced by the host stage for want of knowledge.
//! Not here: which flows (`plan_node::bridge`).

use std::sync::Arc;

use host::BridgeControl;
use model::gateway::GatewayMode;
use model::ovs::{BridgeFact, Flow, PortFact, patch_port};
use plan_node::bridge::{self, BridgeInput, BridgeNetwork};
use plan_node::{GatewayView, NetworkView};
use reconcile::{Action, Reconciler};
use telemetry::Chain;

use crate::keys::BridgeKey;
use crate::known::Known;

/// Reconciles them.
pub(crate) struct BridgeReconciler {
    known: Arc<Known>,
    control: BridgeControl,
    fact: Option<BridgeFact>,
    told: String,
}

impl BridgeReconciler {
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
            .with_replica(|replica| ovn::switch::decode_bridge(replica, name));
        if let Some(Ok(Some(fact))) = fact {
            self.fact = Some(fact);
        }
    }

    /// The one port to the physical network, or why there is none.
    fn uplink(&self) -> Result<u32, NoUplink> {
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
        let local = self.known.local().await.ok();
        if let Some(local) = &local {
            drop(self.known.view(local));
        }
        match (self.known.last_view(), self.patch()) {
            (Some(view), Some(patch)) => {
                let gateway = local.as_ref().map(|local| &local.gateway);
                let input = input(&view, gateway, uplink, patch);
                ("full", bridge::full(&input))
            }
            _ => ("host", bridge::host_stage(uplink)),
        }
    }

    async fn flows(&mut self) -> Result<Action, host::FlowError> {
        self.refresh();
        let name = self.known.settings.gateway.interface.clone();
        let uplink = match self.uplink() {
            Ok(uplink) => uplink,
            Err(NoUplink::Waiting(why)) => {
                self.tell(why);
                return Ok(Action::Requeue);
            }
            Err(NoUplink::Several { ports, why }) => {
                self.tell(why);
                return self.plain(&name, &ports).await;
            }
        };
        let (stage, wanted) = self.wanted(uplink).await;
        if stage == "host" && self.control.serves(&name, uplink).await? {
            return Ok(Action::Done);
        }
        if self.control.holds(&name, &wanted).await? {
            self.told.clear();
            return Ok(Action::Done);
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
        Ok(Action::Done)
    }

    /// Flows that serve one of the ports stay; where there are none the host would be cut off.
    async fn plain(&mut self, name: &str, ports: &[u32]) -> Result<Action, host::FlowError> {
        for port in ports {
            if self.control.serves(name, *port).await? {
                return Ok(Action::AwaitChange);
            }
        }
        let flows = bridge::plain_stage(ports);
        self.control.replace(name, &flows).await?;
        let writes = &self.known.metrics.flow_writes;
        writes.with_label_values(&["plain"]).inc();
        tracing::info!(bridge = name, stage = "plain", "wrote the bridge's flows");
        Ok(Action::AwaitChange)
    }

    fn tell(&mut self, text: String) {
        if self.told != text {
            tracing::warn!("{text}");
            self.told = text;
        }
    }
}

/// What the flows are made of. MAC and addresses are those that the host has now (`fresh`), whatever keeps a view from being
/// made: an uplink that was exchanged brings another MAC, and the host must be reached by it.
fn input(view: &NetworkView, fresh: Option<&GatewayView>, uplink: u32, patch: u32) -> BridgeInput {
    let gateway = fresh.unwrap_or(&view.gateway);
    BridgeInput {
        uplink,
        networks: vec![BridgeNetwork {
            network_id: view.network_id,
            patch,
            pod_subnets: view.host_subnets.clone(),
        }],
        mac: gateway.mac,
        addresses: gateway.addresses.iter().map(|a| a.ip).collect(),
        mode: GatewayMode::Shared,
    }
}

/// Why there is no uplink.
#[derive(Debug, PartialEq, Eq)]
enum NoUplink {
    /// It is not there yet.
    Waiting(String),
    /// Several ports could be it.
    Several { ports: Vec<u32>, why: String },
}

/// The one port that is neither the bridge itself, nor internal, nor a patch. With several it cannot be known which of
/// them leads to the physical network.
fn uplink(bridge: &str, ports: &[PortFact]) -> Result<u32, NoUplink> {
    let inside = |p: &PortFact| p.name == bridge || p.kind == "internal" || p.kind == "patch";
    let outside: Vec<&PortFact> = ports.iter().filter(|p| !inside(p)).collect();
    match outside.as_slice() {
        [] => Err(NoUplink::Waiting(format!(
            "bridge {bridge} has no port to the physical network yet"
        ))),
        [port] => port.ofport.ok_or_else(|| {
            let why = format!("port {} of bridge {bridge} has no number yet", port.name);
            NoUplink::Waiting(why)
        }),
        several => {
            let names: Vec<&str> = several.iter().map(|p| p.name.as_str()).collect();
            let why = format!(
                "bridge {bridge} has several ports to the outside ({}); exactly one is allowed: flows that serve one of them stay as they are, without any the bridge forwards for the host alone",
                names.join(", ")
            );
            let ports = several.iter().filter_map(|p| p.ofport).collect();
            Err(NoUplink::Several { ports, why })
        }
    }
}

impl Reconciler for BridgeReconciler {
    type Key = BridgeKey;

    async fn keys(&mut self) -> Option<Vec<BridgeKey>> {
        Some(vec![BridgeKey::Flows])
    }

    /// Never cancelled by the loop; a bundle is written whole or not at all.
    async fn reconcile(&mut self, _: &BridgeKey) -> Action {
        match self.flows().await {
            Ok(verdict) => verdict,
            Err(error) => {
                self.tell(format!(
                    "cannot look after the bridge's flows: {}",
                    Chain(&error)
                ));
                Action::Requeue
            }
        }
    }
}

#[cfg(test)]
mod tests;
