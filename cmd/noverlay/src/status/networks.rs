//! `noverlay status`: one line a network of users.
//! In: ClusterUserDefinedNetworks, NetworkAttachmentDefinitions. Out: lines.
//! Invariant: a condition of an older generation is not known, not good.
//! Not here: the default network, whose state is that of the nodes.

use api::cluster_user_defined_network::{ClusterUserDefinedNetwork, Topology, Transport};
use api::nad::NetworkAttachmentDefinition;
use kube::ResourceExt;
use model::user_network::CUDN_PREFIX;
use plan_cluster::user_networks::{NETWORK_ID, NETWORK_NAME};
use serde::Serialize;

/// One ClusterUserDefinedNetwork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkLine {
    /// Its name.
    pub name: String,
    /// The network's id; absent where no namespace has it yet.
    pub id: Option<u16>,
    /// `spec.network.topology`.
    pub topology: Topology,
    /// `spec.network.transport`, Geneve where it says none.
    pub transport: Transport,
    /// Namespaces that have its NetworkAttachmentDefinition.
    pub namespaces: Vec<String>,
    /// `NetworkCreated` is True.
    pub created: bool,
    /// `TransportAccepted` is True.
    pub accepted: bool,
    /// Why not.
    pub message: String,
}

impl NetworkLine {
    pub(super) fn is_well(&self) -> bool {
        self.created && self.accepted
    }
}

/// A line for each.
pub(super) fn lines(
    networks: &[ClusterUserDefinedNetwork],
    attachments: &[NetworkAttachmentDefinition],
) -> Vec<NetworkLine> {
    let mut lines: Vec<NetworkLine> = networks.iter().map(|n| line(n, attachments)).collect();
    lines.sort_by(|a, b| a.name.cmp(&b.name));
    lines
}

fn line(
    object: &ClusterUserDefinedNetwork,
    attachments: &[NetworkAttachmentDefinition],
) -> NetworkLine {
    let name = object.name_any();
    let network = format!("{CUDN_PREFIX}{name}");
    let is_own = |a: &&NetworkAttachmentDefinition| {
        a.annotations().get(NETWORK_NAME) == Some(&network) && a.name_any() == name
    };
    let own: Vec<&NetworkAttachmentDefinition> = attachments.iter().filter(is_own).collect();
    let ids = own
        .iter()
        .filter_map(|a| a.annotations().get(NETWORK_ID)?.parse().ok());
    let current = object.metadata.generation;
    let status = object.status.clone().unwrap_or_default();
    let find = |kind: &str| {
        let mut all = status.conditions.iter();
        all.find(|c| c.type_ == kind && (c.observed_generation == current || current.is_none()))
    };
    let is = |kind: &str| find(kind).is_some_and(|c| c.status == "True");
    let mut bad = ["NetworkCreated", "TransportAccepted"]
        .into_iter()
        .filter(|kind| !is(kind));
    let message = bad.next().map(|kind| {
        find(kind).map_or_else(|| format!("{kind} is not known yet"), |c| c.message.clone())
    });
    let spec = &object.spec.network;
    let mut namespaces: Vec<String> = own.iter().filter_map(|a| a.namespace()).collect();
    namespaces.sort();
    NetworkLine {
        id: ids.min(),
        topology: spec.topology,
        transport: spec.transport.unwrap_or(Transport::Geneve),
        namespaces,
        created: is("NetworkCreated"),
        accepted: is("TransportAccepted"),
        message: message.unwrap_or_default(),
        name,
    }
}
