//! What the four loops know in common, and the view of the network made from it.
//! In: settings, caches, local facts. Out: [`NetworkView`]s. Invariant: a view is whole or there is none; the last one is remembered.
//! Not here: writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use frr_edge::Frr;
use kube_edge::{Cache, Entry};
use model::address::Family;
use model::host::LinkFact;
use model::node::{Fact, Node};
use model::{InterfaceAddr, NetworkName, NodeName, ObjectKey, Prefix, Problem};
use netlink::dump;
use ovsdb::Client;
use plan_node::claims::{self, Claims};
use plan_node::mtu::HostMtus;
use plan_node::{GatewayView, NetworkView};
use settings::Settings;

use crate::importing::{EventBuffer, ImportState};
use crate::metrics::Metrics;

/// So many new problems are logged at a time.
const NAMED: usize = 20;

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
    #[error("subnet {1} of node {0} is in none of the subnets of the default network")]
    Outside(NodeName, Prefix),
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
}

/// What the kernel says of this machine's links.
#[derive(Debug, Clone)]
pub(crate) struct Links {
    pub(crate) bridge: LinkFact,
    /// Addresses of the bridge that can be used, the Node's InternalIPs first.
    pub(crate) addresses: Vec<InterfaceAddr>,
    pub(crate) host_cidrs: Vec<InterfaceAddr>,
    pub(crate) all: Vec<LinkFact>,
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
    pub(crate) event_buffer: Arc<EventBuffer>,
    nodes: OnceLock<Cache<NodeEntry>>,
    last: Mutex<Option<NetworkView>>,
    /// Claims that are not believed, as they were last reported.
    told: Mutex<BTreeSet<Problem>>,
    /// The other nodes' MTUs that count.
    mtus: Mutex<HostMtus>,
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
            event_buffer: Arc::default(),
            last: Mutex::new(None),
            told: Mutex::default(),
            mtus: Mutex::default(),
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

    /// What the Nodes' annotations say of subnets, as far as it is believed; what is not is reported once.
    pub(crate) fn claims(&self) -> Claims {
        let nodes = self.all_nodes().unwrap_or_default();
        let pods = self.cluster_subnets();
        let join = &self.settings.gateway.join_subnets;
        let mut claims = claims::judge(&self.network, &pods, join, &nodes);
        claims.problems.extend(self.late_mtus(&nodes));
        let count = i64::try_from(claims.problems.len()).unwrap_or(i64::MAX);
        self.metrics.claims_ignored.set(count);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let now: BTreeSet<Problem> = claims.problems.iter().cloned().collect();
        for problem in now.difference(&told).take(NAMED) {
            tracing::warn!(reason = problem.reason, "{problem}");
        }
        *told = now;
        claims
    }

    /// Of the Nodes, whose host MTU is not followed any more.
    fn late_mtus(&self, nodes: &[Node]) -> Vec<Problem> {
        // With a configured one no host's matters; before the first view nothing works with any.
        let view = self.last_view().filter(|_| self.settings.mtu.is_none());
        view.map_or_else(Vec::new, |view| {
            self.host_mtus().problems(&self.node, nodes, view.mtu)
        })
    }

    fn host_mtus(&self) -> MutexGuard<'_, HostMtus> {
        self.mtus.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The admin's word on withdrawals that are retained.
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

    /// Reads the kernel's links: the bridge and addresses.
    pub(crate) async fn links(&self) -> Result<Links, NoView> {
        let links = match tokio::task::spawn_blocking(dump::links).await {
            Ok(links) => links.map_err(NoView::Links)?,
            Err(_) => Vec::new(),
        };
        let name = &self.settings.gateway.interface;
        let bridge = links.iter().find(|l| l.name == *name).cloned();
        let bridge = bridge.ok_or_else(|| NoView::NoBridge(name.clone()))?;
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
        let ours = |l: &&LinkFact| l.name != "lo" && !l.name.starts_with("ovn-k8s-mp");
        let host_cidrs = links
            .iter()
            .filter(ours)
            .flat_map(|l| l.addresses.iter())
            .filter(usable)
            .copied();
        Ok(Links {
            host_cidrs: host_cidrs.collect(),
            bridge,
            addresses,
            all: links,
        })
    }

    /// Reads the machine: the bridge, its addresses, the chassis.
    pub(crate) async fn local(&self) -> Result<Local, NoView> {
        let links = self.links().await?;
        self.local_of(links)
    }

    /// The machine, of its links.
    pub(crate) fn local_of(&self, links: Links) -> Result<Local, NoView> {
        let Links {
            bridge,
            addresses,
            host_cidrs,
            ..
        } = links;
        let name = &self.settings.gateway.interface;
        let mac = bridge.mac.ok_or_else(|| NoView::NoBridge(name.clone()))?;
        if addresses.is_empty() {
            return Err(NoView::NoAddress(name.clone()));
        }
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
        Ok(Local {
            host_cidrs,
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
        })
    }

    /// All subnets of the network.
    pub(crate) fn cluster_subnets(&self) -> Vec<Prefix> {
        let all = self.settings.cluster_subnets.iter();
        all.map(|subnet| subnet.cidr).collect()
    }

    /// Subnets of the join switch, of the network's families.
    pub(crate) fn join_subnets(&self) -> Vec<Prefix> {
        let families = self.families();
        let all = self.settings.gateway.join_subnets.iter();
        all.filter(|p| families.contains(&p.family()))
            .copied()
            .collect()
    }

    /// The node's own subnets; one that is outside of the network (reported with the claims) costs only itself.
    pub(crate) fn host_subnets(&self) -> Result<Vec<Prefix>, NoView> {
        let own = self
            .own()
            .ok_or_else(|| NoView::NoNode(self.node.clone()))?
            .value
            .node;
        let subnets = match own.subnets {
            Fact::Known(mut map) => map.remove(&self.network).unwrap_or_default(),
            Fact::Absent => Vec::new(),
            Fact::Malformed(why) => return Err(NoView::Malformed(self.node.clone(), why)),
        };
        let wait = NoView::Waiting(self.node.clone(), "subnet of the default network");
        let first = subnets.first().copied().ok_or(wait)?;
        let cluster = self.cluster_subnets();
        let inside = |subnet: &Prefix| cluster.iter().any(|c| c.contains(subnet));
        let subnets: Vec<Prefix> = subnets.into_iter().filter(inside).collect();
        if subnets.is_empty() {
            return Err(NoView::Outside(self.node.clone(), first));
        }
        Ok(subnets)
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
        let host_subnets = self.host_subnets()?;
        let families = self.families();
        let host_addresses: BTreeSet<_> = local.host_cidrs.iter().map(|a| a.ip).collect();
        let mut node_addresses = host_addresses.clone();
        for node in &nodes {
            node_addresses.extend(node.internal_ips.iter().copied());
            node_addresses.extend(node.host_cidrs.known().into_iter().flatten().map(|a| a.ip));
        }
        node_addresses.retain(|ip| families.contains(&Family::of(*ip)));
        let ruling = {
            let mut mtus = self.host_mtus();
            mtus.note(&self.node, &nodes);
            mtus.ruling(local.bridge.mtu)
        };
        let no_overlay = self
            .settings
            .transport
            .no_overlay()
            .ok_or(NoView::NoNetwork)?;
        let (first, last) = self.settings.gateway.ephemeral_port_range;
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
            join_subnets: self.join_subnets(),
            gateway: local.gateway.clone(),
            outbound_snat: no_overlay.outbound_snat,
            missing_route: no_overlay.missing_route,
            mtu: self.settings.mtu.unwrap_or(ruling),
            ephemeral_port_range: format!("{first}-{last}"),
            host_addresses,
            node_addresses,
            nat_has_match,
        };
        // A family without a node or join address costs only its own rows; an id that cannot be is not built on.
        let costly = |p: &Problem| !matches!(p.reason, "NoNodeAddress" | "NoJoinAddress");
        if let Some(problem) = view.problems().into_iter().find(costly) {
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
