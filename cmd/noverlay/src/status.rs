//! `noverlay status`: one line a node, one line a network, one line a RouteAdvertisements, one about the managed fabric.
//! In: Node, NodeRoutes, FRRNodeState, BGPSessionState, ClusterUserDefinedNetwork, RouteAdvertisements objects, and the
//! configuration file where it is given. Out: a report.
//! Invariant: what is not known is shown as such, never as good.
//! Not here: anything that asks a node itself.

use std::collections::BTreeMap;

use anyhow::Context;
use api::cluster_user_defined_network::ClusterUserDefinedNetwork;
use api::frr_state::{BGPSessionState, FRRNodeState};
use api::nad::NetworkAttachmentDefinition;
use api::node_routes::{NetworkRoutes, NodeRoutes, NodeRoutesStatus};
use api::route_advertisements::RouteAdvertisements;
use daemon::crds::Lacking;
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use model::NetworkName;
use model::node::{Fact, Node};
use serde::Serialize;
use settings::{OvnTopology, Settings};

mod advertisements;
mod fabric;
mod networks;
mod table;

pub use advertisements::AdvertisementLine;
pub use fabric::FabricLine;
pub use networks::NetworkLine;

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLine {
    /// Its name.
    pub name: String,
    /// `k8s.ovn.org/node-id`.
    pub node_id: Option<u32>,
    /// Its pod subnets of the default network.
    pub subnets: Vec<String>,
    /// The node's condition `Ready`; absent where nobody says. What is reported of a node that is not Ready is old.
    pub ready: Option<bool>,
    /// BGP sessions that are up.
    pub sessions_up: usize,
    /// BGP sessions in all that are reported.
    pub sessions: usize,
    /// FRRNodeState: success, or what is wrong; `unknown` where nobody tells.
    pub frr: String,
    /// Subnets of other nodes that have to be reachable; absent where the agent has not reported.
    pub expected: Option<i32>,
    /// How many of them kernel routes cover.
    pub in_kernel: Option<i32>,
    /// How many of them rows of the gateway router cover.
    pub in_ovn: Option<i32>,
    /// The first that are missing.
    pub missing: Vec<String>,
    /// Annotations that cannot be read, and conditions of its NodeRoutes that are False.
    pub problems: Vec<String>,
    /// What is as it should be and worth knowing: routes that are retained, those that are left out, and conditions of its
    /// NodeRoutes that are Unknown.
    pub notes: Vec<String>,
}

/// The whole report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// By name.
    pub nodes: Vec<NodeLine>,
    /// The managed fabric; absent where no node takes part in one.
    pub fabric: Option<FabricLine>,
    /// The default network, then the others by name.
    pub networks: Vec<NetworkLine>,
    /// By name.
    pub route_advertisements: Vec<AdvertisementLine>,
    /// What daemons use and the installed custom resource definitions lack, a sentence each, or why that is not known.
    pub definitions: Vec<String>,
}

impl NodeLine {
    fn is_well(&self) -> bool {
        self.ready == Some(true)
            && self.frr == "success"
            && self.sessions_up == self.sessions
            && self.knows_sessions()
            && self.expected.is_some()
            && self.expected == self.in_kernel
            && self.expected == self.in_ovn
            && self.problems.is_empty()
            && !self.subnets.is_empty()
    }
}

impl NodeLine {
    /// None at all are right only where there is no other node.
    fn knows_sessions(&self) -> bool {
        self.sessions > 0 || self.expected == Some(0)
    }
}

impl Report {
    /// Nothing is missing and nothing is unknown.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.nodes.iter().all(NodeLine::is_well)
            && self.networks.iter().all(NetworkLine::is_well)
            && !self.route_advertisements.is_empty()
            && self
                .route_advertisements
                .iter()
                .all(AdvertisementLine::is_well)
    }
}

async fn list<K>(api: Api<K>, what: &str) -> anyhow::Result<Vec<K>>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let params = ListParams::default();
    let answer = tokio::time::timeout(kube_edge::client::CALL_DEADLINE, api.list(&params)).await;
    let answer = answer.with_context(|| format!("cannot list {what}: no answer"))?;
    Ok(answer.with_context(|| format!("cannot list {what}"))?.items)
}

/// Namespace of the agents' pods.
const NAMESPACE: &str = "noverlay-system";
/// The label's key by which pods of a daemon are known.
const APP: &str = "app.kubernetes.io/name";
const AGENTS: [&str; 2] = ["node-agent", "frr-agent"];

/// Reads everything the report needs; `settings` where the configuration file is given.
pub(crate) async fn gather(
    client: kube::Client,
    frr_namespace: &str,
    settings: Option<&Settings>,
) -> anyhow::Result<Report> {
    let nodes: Vec<KubeNode> = list(Api::all(client.clone()), "nodes").await?;
    let routes: Vec<NodeRoutes> = list(Api::all(client.clone()), "noderoutes").await?;
    let states: Vec<FRRNodeState> = list(Api::all(client.clone()), "frrnodestates").await?;
    let sessions: Vec<BGPSessionState> = list(
        Api::namespaced(client.clone(), frr_namespace),
        "bgpsessionstates",
    )
    .await?;
    let ras: Vec<RouteAdvertisements> =
        list(Api::all(client.clone()), "routeadvertisements").await?;
    let networks: Vec<ClusterUserDefinedNetwork> =
        list(Api::all(client.clone()), "clusteruserdefinednetworks").await?;
    let attachments: Vec<NetworkAttachmentDefinition> =
        list(Api::all(client.clone()), "network-attachment-definitions").await?;
    let pods: Vec<Pod> = list(Api::namespaced(client.clone(), NAMESPACE), "pods").await?;
    let lines = node_lines(&nodes, &routes, &states, &sessions, &pods);
    let nodes: Vec<Node> = nodes.iter().map(api::decode_node).collect();
    let in_force = networks::InForce::of(&attachments);
    let declared = settings.map(|settings| &settings.network.transport);
    let mut all = vec![networks::default_line(&ras, &nodes, in_force, declared)];
    // Where nobody says who builds the topology it is OVN-Kubernetes.
    let beside = settings.is_none_or(|settings| settings.ovn.topology == OvnTopology::Adopt);
    all.extend(networks::lines(&networks, &attachments, &nodes, beside));
    Ok(Report {
        nodes: lines,
        fabric: fabric::line(&nodes),
        networks: all,
        route_advertisements: advertisements::lines(&ras),
        definitions: definitions(&client).await,
    })
}

/// Whether the cluster cannot be read since a kind is not installed.
pub(crate) fn lacks_a_kind(error: &anyhow::Error) -> bool {
    let is_not_found = |cause: &kube::Error| matches!(cause, kube::Error::Api(s) if s.code == 404);
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref());
    causes.any(is_not_found)
}

/// What is told of custom resource definitions. None of it is an error: what cannot be done without is told where it is needed.
pub(crate) async fn definitions(client: &kube::Client) -> Vec<String> {
    told(&daemon::crds::lacking(client).await)
}

fn told(lacking: &Lacking) -> Vec<String> {
    let missing = lacking.missing.iter();
    let missing = missing.map(|what| format!("custom resource definitions lack {what}"));
    let unknown = lacking.unknown.iter().map(|(version, error)| {
        format!("which fields custom resource definitions of {version} have is not known: {error}")
    });
    missing.chain(unknown).collect()
}

fn node_lines(
    nodes: &[KubeNode],
    routes: &[NodeRoutes],
    states: &[FRRNodeState],
    sessions: &[BGPSessionState],
    pods: &[Pod],
) -> Vec<NodeLine> {
    let agents = AGENTS.map(|app| Agents::of(app, pods));
    let routes: BTreeMap<String, &NodeRoutes> = routes.iter().map(|r| (r.name_any(), r)).collect();
    let states: BTreeMap<String, &FRRNodeState> =
        states.iter().map(|s| (s.name_any(), s)).collect();
    let line = |object: &KubeNode| {
        let name = object.name_any();
        let of_node = |s: &&BGPSessionState| {
            s.status.as_ref().and_then(|s| s.node.as_deref()) == Some(name.as_str())
        };
        let own: Vec<&BGPSessionState> = sessions.iter().filter(of_node).collect();
        let status = routes.get(&name).and_then(|r| r.status.as_ref());
        node_line(object, status, states.get(&name).copied(), &own, &agents)
    };
    let mut lines: Vec<NodeLine> = nodes.iter().map(line).collect();
    lines.sort_by(|a, b| a.name.cmp(&b.name));
    lines
}

fn node_line(
    object: &KubeNode,
    routes: Option<&NodeRoutesStatus>,
    state: Option<&FRRNodeState>,
    sessions: &[&BGPSessionState],
    [node_agents, frr_agents]: &[Agents<'_>; 2],
) -> NodeLine {
    let node = api::decode_node(object);
    let name = node.name.to_string();
    let default = NetworkName::default_network();
    let report = routes.and_then(|s| s.networks.iter().find(|n| n.name == default.as_str()));
    let networks = routes.into_iter().flat_map(|s| &s.networks);
    let conditions = networks.flat_map(|network| &network.conditions);
    let with = |status: &'static str| {
        let conditions = conditions.clone().filter(move |c| c.status == status);
        conditions.map(|c| format!("{}: {}", c.reason, c.message))
    };
    let is_up = |s: &&&BGPSessionState| {
        s.status.as_ref().and_then(|s| s.bgp_status.as_deref()) == Some("Established")
    };
    let faults = [
        not_ready(object),
        node_agents.fault(&name),
        frr_agents.fault(&name),
        malformed(&node.node_id),
        malformed(&node.subnets),
    ];
    let no_pods = node_agents
        .pods
        .is_empty()
        .then(|| "no node-agent runs as a pod: whether it still runs is not known".to_owned());
    let subnets = node.subnets.known().and_then(|map| map.get(&default));
    NodeLine {
        node_id: node.node_id.known().copied(),
        subnets: subnets
            .into_iter()
            .flatten()
            .map(ToString::to_string)
            .collect(),
        sessions_up: sessions.iter().filter(is_up).count(),
        sessions: sessions.len(),
        frr: state.map_or_else(|| "unknown".to_owned(), frr_word),
        expected: report.map(|r| r.expected),
        in_kernel: report.map(|r| r.in_kernel),
        in_ovn: report.map(|r| r.in_ovn),
        missing: report.map(|r| r.missing.clone()).unwrap_or_default(),
        problems: faults.into_iter().flatten().chain(with("False")).collect(),
        notes: no_pods
            .into_iter()
            .chain(report.map(notes).unwrap_or_default())
            .chain(with("Unknown"))
            .collect(),
        ready: node.ready,
        name,
    }
}

/// Why what is reported of a node may be as old as its last sign of life.
fn not_ready(node: &KubeNode) -> Option<String> {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let Some(ready) = conditions.find(|c| c.type_ == "Ready") else {
        return Some("it has no condition Ready: whether it is there is not known".to_owned());
    };
    (ready.status != "True").then(|| {
        let why = ready.message.as_deref().unwrap_or_default();
        format!(
            "condition Ready is {} ({why}): what is reported of it may be old",
            ready.status
        )
    })
}

/// The pods of a daemon that runs on every node; none where it runs otherwise, or another one in its place (frr-k8s).
struct Agents<'a> {
    app: &'static str,
    pods: Vec<&'a Pod>,
}

impl<'a> Agents<'a> {
    fn of(app: &'static str, pods: &'a [Pod]) -> Self {
        let is_agent = |p: &&Pod| p.labels().get(APP).map(String::as_str) == Some(app);
        let pods = pods.iter().filter(is_agent).collect();
        Self { app, pods }
    }

    /// Why what the node's agent reported may be older than it: it is ready only once it has looked at everything and reported.
    fn fault(&self, node: &str) -> Option<String> {
        let here = |p: &&&Pod| p.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(node);
        let own: Vec<&&Pod> = self.pods.iter().filter(here).collect();
        let is_ready = |p: &&Pod| {
            let conditions = p.status.as_ref().and_then(|s| s.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            p.metadata.deletion_timestamp.is_none()
                && conditions.any(|c| c.type_ == "Ready" && c.status == "True")
        };
        if self.pods.is_empty() || own.iter().any(|p| is_ready(p)) {
            return None;
        }
        let pods: Vec<String> = own.iter().map(|p| p.name_any()).collect();
        Some(match pods.as_slice() {
            [] => format!("no {} runs on it: its report may be old", self.app),
            pods => format!(
                "its {} (pod {}) is not ready: its report may be old",
                self.app,
                pods.join(", ")
            ),
        })
    }
}

/// What a report says beside reachability.
fn notes(report: &NetworkRoutes) -> Vec<String> {
    let retained =
        (report.retained > 0).then(|| format!("{} imported routes are retained", report.retained));
    let skipped = report.skipped.iter().map(|s| {
        let more = usize::try_from(s.count).unwrap_or(0) > s.examples.len();
        let examples = s.examples.join(", ");
        let more = if more { ", ..." } else { "" };
        format!("{} not imported, {}: {examples}{more}", s.count, s.reason)
    });
    retained.into_iter().chain(skipped).collect()
}

fn malformed<T>(fact: &Fact<T>) -> Option<String> {
    match fact {
        Fact::Malformed(why) => Some(why.clone()),
        Fact::Absent | Fact::Known(_) => None,
    }
}

fn frr_word(state: &FRRNodeState) -> String {
    let status = state.status.clone().unwrap_or_default();
    let results = [status.last_conversion_result, status.last_reload_result];
    results
        .into_iter()
        .map(|r| r.unwrap_or_else(|| "unknown".to_owned()))
        .find(|r| r != "success")
        .unwrap_or_else(|| "success".to_owned())
}

#[cfg(test)]
mod tests;
