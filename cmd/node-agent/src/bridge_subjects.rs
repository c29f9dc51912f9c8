//! The flows of the external bridge.
//! In: one key. Out: the bridge holds the host's stage or the whole table. Invariant: the host is never cut off: without
//! the API server, without OVN and after every loss of flows there is at least the host's stage, and nothing that works
//! is replaced by less.
//! Not here: the flows themselves (`plan_node::bridge`), ovs-ofctl (`host`).
//!
//! ```text
//!  uplink known? --no--> blocked     view (now, or the last one) and patch port known? --no--> host stage, unless
//!        '--------------------------------------------------------------yes--> full table       ours serve the uplink
//! ```

use host::{BridgeControl, FlowError};
use model::NodeName;
use model::names::NetworkName;
use model::ovs::{self, Flow};
use ovn::Switch;
use plan_node::NetworkView;
use plan_node::bridge::{self, BridgeInput, BridgeNetwork, GatewayMode};
use reconcile::{Subjects, Verdict};
use telemetry::Chain;

use crate::said::{Complaint, Ledger, Unsettled};
use crate::sources::Sources;
use crate::view;

/// The subject, as logs and metrics name it.
pub(crate) const BRIDGE: &str = "bridge";

/// What can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The flow table.
    Flows,
}

/// Which table is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Host,
    Full,
}

impl Stage {
    fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Full => "full",
        }
    }
}

/// The loop's subjects.
pub(crate) struct BridgeSubjects {
    sources: Sources,
    ledger: Ledger,
    control: BridgeControl,
    /// The network as it was last known: flows must not wait for the API server.
    last: Option<NetworkView>,
    complaint: Complaint,
}

impl BridgeSubjects {
    pub(crate) fn new(sources: Sources, ledger: Ledger, control: BridgeControl) -> Self {
        Self {
            sources,
            ledger,
            control,
            last: None,
            complaint: Complaint::of(BRIDGE),
        }
    }

    async fn flows(&mut self) -> Result<(), Unsettled> {
        let bridge = self.sources.settings.gateway.interface.clone();
        let switch = self.sources.switch()?;
        let uplink = uplink(&switch, &bridge).map_err(Unsettled::blocked)?;
        if let Ok(view) = view::network(&self.sources).await {
            self.last = Some(view);
        }
        let full = self
            .last
            .as_ref()
            .and_then(|view| full(view, &switch, &bridge, uplink));
        let written = match full {
            None => self.host_stage(&bridge, uplink).await,
            Some(flows) => match self.put(&bridge, Stage::Full, &flows).await {
                // A switch that refuses the whole table still gets the host its way.
                Err(error @ FlowError::Failed { .. }) => {
                    let stage = self.host_stage(&bridge, uplink).await;
                    stage.and(Err(error))
                }
                other => other,
            },
        };
        written.map_err(|error| Unsettled::retry(Chain(&error)))
    }

    /// Writes the host's stage where no flow of ours takes the uplink's packets.
    async fn host_stage(&self, bridge: &str, uplink: u32) -> Result<(), FlowError> {
        if self.control.serves(bridge, uplink).await? {
            return Ok(());
        }
        self.put(bridge, Stage::Host, &bridge::host_stage(uplink))
            .await
    }

    async fn put(&self, bridge: &str, stage: Stage, flows: &[Flow]) -> Result<(), FlowError> {
        if self.control.holds(bridge, flows).await? {
            return Ok(());
        }
        let written = self.control.replace(bridge, flows).await;
        let result = if written.is_ok() {
            "success"
        } else {
            "failure"
        };
        self.ledger
            .metrics
            .flow_writes
            .with_label_values(&[stage.word(), result])
            .inc();
        written?;
        tracing::info!(
            bridge,
            stage = stage.word(),
            flows = flows.len(),
            "flows written"
        );
        Ok(())
    }
}

/// Number of the one port that leads out of the node.
fn uplink(switch: &Switch, bridge: &str) -> Result<u32, String> {
    match switch.uplinks(bridge).as_slice() {
        [] => Err(format!("{bridge} has no uplink yet")),
        [port] => port
            .ofport
            .ok_or_else(|| format!("uplink {} of {bridge} has no number yet", port.name)),
        several => {
            let names: Vec<&str> = several.iter().map(|port| port.name.as_str()).collect();
            Err(format!(
                "{bridge} has several uplinks ({}); exactly one is allowed, its flows stay as they are",
                names.join(", ")
            ))
        }
    }
}

/// The whole table; `None` while the patch port is missing.
fn full(view: &NetworkView, switch: &Switch, bridge: &str, uplink: u32) -> Option<Vec<Flow>> {
    let patch = patch(switch, bridge, &view.network, &view.node)?;
    Some(bridge::full(&BridgeInput {
        uplink,
        networks: vec![BridgeNetwork {
            network_id: view.network_id,
            patch,
            pod_subnets: view.host_subnets.clone(),
        }],
        mac: view.gateway.mac,
        addresses: view.gateway.addresses.iter().map(|a| a.ip).collect(),
        mode: GatewayMode::Shared,
    }))
}

fn patch(switch: &Switch, bridge: &str, network: &NetworkName, node: &NodeName) -> Option<u32> {
    switch.ofport(bridge, &ovs::patch_port(bridge, network, node))
}

impl Subjects for BridgeSubjects {
    type Key = Key;

    async fn universe(&mut self) -> Option<Vec<Key>> {
        Some(vec![Key::Flows])
    }

    /// The process may end at any moment: a bundle is taken whole or not at all.
    async fn pass(&mut self, _: &Key) -> Verdict {
        let outcome = self.flows().await;
        self.ledger.pass(&mut self.complaint, outcome)
    }
}

#[cfg(test)]
mod tests;
