//! `noverlay status`: one line a network.
//! In: ClusterUserDefinedNetworks, NetworkAttachmentDefinitions, RouteAdvertisements, Nodes. Out: lines.
//! Invariant: a condition of an older generation is not known, not good.
//! Not here: routes, which are those of nodes.

use api::cluster_user_defined_network::{
    ClusterUserDefinedNetwork, Routing, Topology, Transport as UserTransport,
};
use api::nad::NetworkAttachmentDefinition;
use api::route_advertisements::{Advertisement, NetworkSelectionType, RouteAdvertisements};
use kube::ResourceExt;
use model::NetworkName;
use model::network::IN_FORCE;
use model::network::{self, Transport};
use model::node::Node;
use model::user_network::CUDN_PREFIX;
use plan_cluster::attachments::REFUSED;
use plan_cluster::fabric;
use plan_cluster::transport::BESIDE;
use plan_cluster::user_networks::{NETWORK_ID, NETWORK_NAME};
use serde::Serialize;
use settings::Settings;

use super::advertisements::is_accepted;

/// The default network, or one of a ClusterUserDefinedNetwork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkLine {
    /// `default`, or the ClusterUserDefinedNetwork's name.
    pub name: String,
    /// The network's id; absent where no namespace has it yet.
    pub id: Option<u16>,
    /// `spec.network.topology`.
    pub topology: Topology,
    /// `spec.network.transport`, Geneve where it says none. The default network's is what its NetworkAttachmentDefinition says
    /// to be in force, else what the configuration file says; where that is not given, a managed one is known to be `NoOverlay`,
    /// and of any other it is absent.
    pub transport: Option<UserTransport>,
    /// Who routes it where there is no overlay; absent otherwise.
    pub routing: Option<Routing>,
    /// Nodes that have a subnet of it; absent where nodes get none.
    pub nodes_with_subnets: Option<usize>,
    /// Namespaces that have its NetworkAttachmentDefinition.
    pub namespaces: Vec<String>,
    /// `NetworkCreated` is True; absent of the default network.
    pub created: Option<bool>,
    /// `TransportAccepted` is True. Of the default network without an overlay: an accepted RouteAdvertisements advertises it;
    /// absent where none does and its transport is not known.
    pub accepted: Option<bool>,
    /// Why not.
    pub message: String,
    /// Of the default network: what the configuration file says and is not in force.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub configuration_refused: Vec<String>,
}

impl NetworkLine {
    pub(super) fn is_well(&self) -> bool {
        self.created != Some(false)
            && self.accepted != Some(false)
            && self.configuration_refused.is_empty()
    }
}

/// What the default network's NetworkAttachmentDefinition says of the configuration.
#[derive(Debug, Default)]
pub(super) struct InForce {
    transport: Option<Transport>,
    refused: Vec<String>,
}

impl InForce {
    /// Of these objects that of the default network is the one that says anything.
    pub(super) fn of(attachments: &[NetworkAttachmentDefinition]) -> Self {
        let mut said = attachments.iter().map(|a| a.annotations());
        let Some(said) = said.find(|all| all.contains_key(IN_FORCE)) else {
            return Self::default();
        };
        let text = said.get(IN_FORCE).map(String::as_str).unwrap_or_default();
        let refused = said
            .get(REFUSED)
            .map(|text| text.lines().map(str::to_owned));
        Self {
            transport: Settings::of_network_in_force(IN_FORCE, text)
                .ok()
                .map(|settings| settings.network.transport),
            refused: refused.into_iter().flatten().collect(),
        }
    }
}

/// The line of the default network; `declared`: its transport, where the configuration file is given. What is in force is the
/// truth.
pub(super) fn default_line(
    ras: &[RouteAdvertisements],
    nodes: &[Node],
    in_force: InForce,
    declared: Option<&Transport>,
) -> NetworkLine {
    let declared = in_force.transport.as_ref().or(declared);
    let name = NetworkName::default_network();
    let advertising: Vec<&RouteAdvertisements> = ras.iter().filter(|ra| advertises(ra)).collect();
    let is_managed = |ra: &&RouteAdvertisements| {
        let mut wanted = fabric::labels().into_iter();
        wanted.all(|(key, value)| ra.labels().get(&key) == Some(&value))
    };
    let (transport, routing) = match declared {
        Some(Transport::Geneve) => (Some(UserTransport::Geneve), None),
        Some(Transport::NoOverlay(options)) => {
            let routing = match options.routing {
                network::Routing::Managed => Routing::Managed,
                network::Routing::Unmanaged => Routing::Unmanaged,
            };
            (Some(UserTransport::NoOverlay), Some(routing))
        }
        None if advertising.iter().any(is_managed) => {
            (Some(UserTransport::NoOverlay), Some(Routing::Managed))
        }
        None => (None, None),
    };
    let by_accepted = advertising.iter().any(|ra| is_accepted(ra));
    let accepted = match transport {
        Some(UserTransport::NoOverlay) => Some(by_accepted),
        Some(_) => Some(true),
        None if advertising.is_empty() => None,
        None => Some(by_accepted),
    };
    let names: Vec<String> = advertising.iter().map(|ra| ra.name_any()).collect();
    let message = match (accepted, names.as_slice()) {
        (Some(false), []) => "no RouteAdvertisements advertises it".to_owned(),
        (Some(false), names) => format!("not accepted: {}", names.join(", ")),
        (None, _) => "what transport it has is in the configuration file (--config)".to_owned(),
        (Some(true), _) => String::new(),
    };
    NetworkLine {
        id: Some(0),
        topology: Topology::Layer3,
        transport,
        routing,
        nodes_with_subnets: Some(with_subnets(nodes, &name)),
        namespaces: Vec::new(),
        created: None,
        accepted,
        message,
        configuration_refused: in_force.refused,
        name: name.to_string(),
    }
}

/// Whether it advertises pod subnets of the default network.
fn advertises(ra: &RouteAdvertisements) -> bool {
    let mut selectors = ra.spec.network_selectors.iter();
    selectors.any(|s| s.network_selection_type == NetworkSelectionType::DefaultNetwork)
        && ra.spec.advertisements.contains(&Advertisement::PodNetwork)
}

fn with_subnets(nodes: &[Node], network: &NetworkName) -> usize {
    let subnets = nodes.iter().filter_map(|node| node.subnets.known());
    let of_network = subnets.filter_map(|map| map.get(network));
    of_network.filter(|subnets| !subnets.is_empty()).count()
}

/// A line for each ClusterUserDefinedNetwork, by name.
pub(super) fn lines(
    networks: &[ClusterUserDefinedNetwork],
    attachments: &[NetworkAttachmentDefinition],
    nodes: &[Node],
    beside: bool,
) -> Vec<NetworkLine> {
    let all = networks.iter().map(|n| line(n, attachments, nodes, beside));
    let mut lines: Vec<NetworkLine> = all.collect();
    lines.sort_by(|a, b| a.name.cmp(&b.name));
    lines
}

fn line(
    object: &ClusterUserDefinedNetwork,
    attachments: &[NetworkAttachmentDefinition],
    nodes: &[Node],
    beside: bool,
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
    // Beside OVN-Kubernetes the annotation counts, and has a condition of its own.
    let annotated = api::read_cudn(object).annotated.filter(|_| beside);
    let accepted = if annotated.is_some() {
        BESIDE
    } else {
        "TransportAccepted"
    };
    let mut bad = ["NetworkCreated", accepted]
        .into_iter()
        .filter(|kind| !is(kind));
    let message = bad.next().map(|kind| {
        find(kind).map_or_else(|| format!("{kind} is not known yet"), |c| c.message.clone())
    });
    let spec = &object.spec.network;
    let mut namespaces: Vec<String> = own.iter().filter_map(|a| a.namespace()).collect();
    namespaces.sort();
    let asked = annotated.and_then(Result::ok);
    let asked = asked.and_then(|asked| Some(asked.transport().no_overlay()?.routing));
    let said = spec.transport.unwrap_or(UserTransport::Geneve);
    let options = spec.no_overlay.or(spec.no_overlay_options);
    let options = options.filter(|_| said == UserTransport::NoOverlay);
    let transport = match asked {
        Some(_) => UserTransport::NoOverlay,
        None => said,
    };
    let asked = asked.map(|asked| match asked {
        model::network::Routing::Managed => Routing::Managed,
        model::network::Routing::Unmanaged => Routing::Unmanaged,
    });
    let is_layer3 = spec.topology == Topology::Layer3;
    NetworkLine {
        id: ids.min(),
        topology: spec.topology,
        transport: Some(transport),
        routing: options.map(|options| options.routing).or(asked),
        nodes_with_subnets: is_layer3.then(|| with_subnets(nodes, &network.as_str().into())),
        namespaces,
        created: Some(is("NetworkCreated")),
        accepted: Some(is(accepted)),
        message: message.unwrap_or_default(),
        configuration_refused: Vec::new(),
        name,
    }
}
