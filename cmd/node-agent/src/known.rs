//! What the four loops know in common, and the view of the network made from it.
//! In: settings, caches, local facts. Out: [`NetworkView`]s. Invariant: a view is whole or there is none; the last one is remembered.
//! Not here: writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use frr_edge::Frr;
use kube_edge::{Cache, Entry};
use model::address::Family;
use model::host::LinkFact;
use model::node::{Fact, Node};
use model::{InterfaceAddr, NetworkName, NodeName, ObjectKey, Prefix, Problem};
use netlink::dump;
use ovsdb::Client;
use plan_node::subnets::Subnets;
use plan_node::{GatewayView, MissingRoute, NetworkView};
use settings::Settings;

use crate::import::{Hearing, ImportState};
use crate::metrics::Metrics;

/// A Node, and those of its annotations that this agent writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeEntry {
    pub(crate) node: Node,
    pub(crate) published: BTreeMap<String, String>,
    /// Annotation `noverlay.io/release-withdrawals`.
    pub(crate) release: Option<String>,
}

/// Why there is no view of the network yet; one sentence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoView {
    #[error("the Nodes have not been listed yet")]
    Caches,
    #[error("there is no Node object {0}")]
    NoNode(NodeName),
    #[error("node {0} has no {1} yet")]
    Waiting(NodeName, &'static str),
    #[error("node {0}: {1}")]
    Malformed(NodeName, String),
    #[error("bridge {0} does not exist or has no MAC")]
    NoBridge(String),
    #[error("bridge {0} has no address of the cluster's families")]
    NoAddress(String),
    #[error("the local Open vSwitch database has no system-id yet")]
    NoChassis,
    #[error("external_ids:ovn-bridge-mappings of the local Open vSwitch does not name bridge {0}")]
    NoMapping(String),
    #[error("the default network is not a no-overlay one")]
    NoNetwork,
    #[error("{0}")]
    Unsound(Problem),
    #[error("cannot read the kernel's links")]
    Links(#[source] dump::DumpError),
}

/// Facts of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Local {
    pub(crate) bridge: LinkFact,
    pub(crate) gateway: GatewayView,
    pub(crate) host_cidrs: Vec<InterfaceAddr>,
    pub(crate) links: Vec<LinkFact>,
}

/// What all loops know.
pub(crate) struct Known {
    pub(crate) node: NodeName,
    pub(crate) network: NetworkName,
    pub(crate) settings: Settings,
    pub(crate) north: Client,
    pub(crate) switch: Client,
    pub(crate) metrics: Metrics,
    pub(crate) frr: Frr,
    /// What the import has to hear of the kernel.
    pub(crate) hearing: Arc<Hearing>,
    nodes: OnceLock<Cache<NodeEntry>>,
    last: Mutex<Option<NetworkView>>,
    import: OnceLock<ImportState>,
    imported: AtomicBool,
    epoch: AtomicU64,
}

impl Known {
    pub(crate) fn new(
        node: NodeName,
        settings: Settings,
        north: Client,
        switch: Client,
        metrics: Metrics,
    ) -> Self {
        let frr = Frr::new(
            settings.frr_vty_socket.clone(),
            settings.frr_config_file.clone(),
        );
        Self {
            frr,
            node,
            network: NetworkName::default_network(),
            settings,
            north,
            switch,
            metrics,
            nodes: OnceLock::new(),
            hearing: Arc::default(),
            last: Mutex::new(None),
            import: OnceLock::new(),
            imported: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
        }
    }

    /// Called once, when the caches are started.
    pub(crate) fn set_nodes(&self, nodes: Cache<NodeEntry>) {
        // A second call would be a bug of the wiring; the first caches stay.
        drop(self.nodes.set(nodes));
    }

    fn nodes(&self) -> Option<&Cache<NodeEntry>> {
        self.nodes.get().filter(|cache| cache.ready())
    }

    /// This node's object.
    pub(crate) fn own(&self) -> Option<Entry<NodeEntry>> {
        self.nodes()?.get(&ObjectKey::new("", self.node.as_str()))
    }

    /// All nodes, or `None` while they have not been listed.
    pub(crate) fn all_nodes(&self) -> Option<Vec<Node>> {
        Some(
            self.nodes()?
                .with(|map| map.values().map(|e| e.value.node.clone()).collect()),
        )
    }

    /// The subnets of the network, and whose they are.
    pub(crate) fn owners(&self) -> Vec<(Prefix, NodeName)> {
        let nodes = self.all_nodes().unwrap_or_default();
        let of_node = |node: &Node| -> Vec<(Prefix, NodeName)> {
            let subnets = node.subnets.known().and_then(|map| map.get(&self.network));
            let subnets = subnets.into_iter().flatten();
            subnets.map(|s| (*s, node.name.clone())).collect()
        };
        nodes.iter().flat_map(of_node).collect()
    }

    /// Subnets of other networks on all nodes.
    pub(crate) fn other_networks(&self) -> Subnets<()> {
        let nodes = self.all_nodes().unwrap_or_default();
        let maps = nodes.iter().filter_map(|node| node.subnets.known());
        let others = maps.flatten().filter(|(name, _)| **name != self.network);
        others
            .flat_map(|(_, subnets)| subnets.iter().map(|subnet| (*subnet, ())))
            .collect()
    }

    /// The admin's word on withdrawals that are held.
    pub(crate) fn release(&self) -> Option<String> {
        self.own()?.value.release
    }

    /// Called once, when the import loop is made.
    pub(crate) fn set_import(&self, state: ImportState) {
        drop(self.import.set(state));
    }

    /// A pass of the import came to its end.
    pub(crate) fn set_imported(&self) {
        self.imported.store(true, Ordering::Release);
    }

    /// What the import knows; `None` before its first whole pass.
    pub(crate) fn imported(&self) -> Option<&ImportState> {
        self.import
            .get()
            .filter(|_| self.imported.load(Ordering::Acquire))
    }

    /// A fact that views are made from may be another one now.
    pub(crate) fn note_facts(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Moves with every fact; what was made from facts of the same epoch is current.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The view of the last whole pass, for whom the API server must not matter to.
    pub(crate) fn last_view(&self) -> Option<NetworkView> {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn families(&self) -> BTreeSet<Family> {
        self.settings
            .cluster_subnets
            .iter()
            .map(|c| c.cidr.family())
            .collect()
    }

    /// Reads the machine: the bridge, its addresses, the chassis.
    pub(crate) async fn local(&self) -> Result<Local, NoView> {
        let links = match tokio::task::spawn_blocking(dump::links).await {
            Ok(links) => links.map_err(NoView::Links)?,
            Err(_) => Vec::new(),
        };
        let name = &self.settings.gateway.interface;
        let bridge = links.iter().find(|l| l.name == *name).cloned();
        let bridge = bridge.ok_or_else(|| NoView::NoBridge(name.clone()))?;
        let mac = bridge.mac.ok_or_else(|| NoView::NoBridge(name.clone()))?;
        let chassis = self
            .switch
            .with_replica(ovn::switch::system_id)
            .and_then(Result::ok)
            .flatten();
        let networks = self
            .switch
            .with_replica(ovn::switch::physical_networks)
            .and_then(Result::ok)
            .unwrap_or_default();
        let families = self.families();
        let usable = |a: &&InterfaceAddr| families.contains(&Family::of(a.ip)) && !is_link_local(a);
        let own: Vec<_> = self
            .own()
            .map(|e| e.value.node.internal_ips)
            .unwrap_or_default();
        let mut addresses: Vec<InterfaceAddr> =
            bridge.addresses.iter().filter(usable).copied().collect();
        // The Node's InternalIPs first: the first of a family is what the gateway router shares.
        addresses.sort_by_key(|a| (!own.contains(&a.ip), *a));
        if addresses.is_empty() {
            return Err(NoView::NoAddress(name.clone()));
        }
        let ours = |l: &&LinkFact| l.name != "lo" && !l.name.starts_with("ovn-k8s-mp");
        let host_cidrs = links
            .iter()
            .filter(ours)
            .flat_map(|l| l.addresses.iter())
            .filter(usable)
            .copied();
        Ok(Local {
            host_cidrs: host_cidrs.collect(),
            gateway: GatewayView {
                bridge: name.clone(),
                mac,
                addresses,
                next_hops: self.settings.gateway.next_hops.clone(),
                chassis: chassis.ok_or(NoView::NoChassis)?,
                physical_network: networks
                    .get(name)
                    .cloned()
                    .ok_or_else(|| NoView::NoMapping(name.clone()))?,
            },
            bridge,
            links,
        })
    }

    /// The view of the default network on this node.
    pub(crate) fn view(&self, local: &Local) -> Result<NetworkView, NoView> {
        let nodes = self.all_nodes().ok_or(NoView::Caches)?;
        let own = self
            .own()
            .ok_or_else(|| NoView::NoNode(self.node.clone()))?
            .value
            .node;
        let wait = |what| NoView::Waiting(self.node.clone(), what);
        let malformed = |why: &String| NoView::Malformed(self.node.clone(), why.clone());
        let node_id = match &own.node_id {
            Fact::Known(id) => *id,
            Fact::Absent => return Err(wait("node id")),
            Fact::Malformed(why) => return Err(malformed(why)),
        };
        let host_subnets = match &own.subnets {
            Fact::Known(map) => map.get(&self.network).cloned().unwrap_or_default(),
            Fact::Absent => Vec::new(),
            Fact::Malformed(why) => return Err(malformed(why)),
        };
        if host_subnets.is_empty() {
            return Err(wait("subnet of the default network"));
        }
        let families = self.families();
        let host_addresses: BTreeSet<_> = local.host_cidrs.iter().map(|a| a.ip).collect();
        let mut node_addresses = host_addresses.clone();
        for node in &nodes {
            node_addresses.extend(node.internal_ips.iter().copied());
            node_addresses.extend(node.host_cidrs.known().into_iter().flatten().map(|a| a.ip));
        }
        node_addresses.retain(|ip| families.contains(&Family::of(*ip)));
        let smallest = nodes
            .iter()
            .filter_map(|n| n.host_mtu.known().copied())
            .min();
        let no_overlay = self.settings.no_overlay.ok_or(NoView::NoNetwork)?;
        let (first, last) = self.settings.gateway.ephemeral_port_range;
        let used = |p: &&Prefix| families.contains(&p.family());
        let nat_has_match = self
            .north
            .schema()
            .is_some_and(|schema| ovn::north::nat_has_match(&schema));
        let view = NetworkView {
            network: self.network.clone(),
            network_id: 0,
            node: self.node.clone(),
            node_id,
            host_subnets,
            cluster_subnets: self.settings.cluster_subnets.clone(),
            join_subnets: self
                .settings
                .gateway
                .join_subnets
                .iter()
                .filter(used)
                .copied()
                .collect(),
            gateway: local.gateway.clone(),
            outbound_snat: no_overlay.outbound_snat,
            missing_route: match no_overlay.missing_route {
                settings::MissingRoute::Forward => MissingRoute::Forward,
                settings::MissingRoute::Discard => MissingRoute::Discard,
            },
            mtu: self.settings.mtu.or(smallest).unwrap_or(local.bridge.mtu),
            ephemeral_port_range: format!("{first}-{last}"),
            host_addresses,
            node_addresses,
            nat_has_match,
        };
        // A family without a node address costs only its own rows; a subnet or id that cannot be is not built on.
        let problems = view.problems().into_iter();
        if let Some(problem) = problems.into_iter().find(|p| p.reason != "NoNodeAddress") {
            return Err(NoView::Unsound(problem));
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(view.clone());
        Ok(view)
    }
}

fn is_link_local(address: &InterfaceAddr) -> bool {
    match address.ip {
        std::net::IpAddr::V4(ip) => ip.is_link_local(),
        std::net::IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}
