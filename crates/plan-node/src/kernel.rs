//! What the node's kernel and the integration bridge hold for its networks.
//! In: each network's share of the node. Out: VRF devices, management ports with their addresses, routes and rules.
//! Invariant: shared gateway mode: only what starts on the host takes its way to pods of the default network through OVN; local
//! gateway mode: what comes out of a management port for a pod without a route never goes back into it.
//! Not here: packet filter (`nft`), BGP's routes.
//!
//! ```text
//!                  | default network, main and table 7             | network of users, table T of its VRF
//!  shared          | rule 31 iif lo to CIDR -> 7: CIDR via .1       | subnets via .1; default via the node's next hops
//!  local           | missing-route = discard: unreachable CIDR      | own subnet via .1; default ...; unreachable CIDR
//!  both            |                                                | rules 2000 -> T: its packet mark, the masquerade address of its
//!                  |                                                | management port, its subnets where main is to lead to them
//! ```
//! Forms: OVN-Kubernetes `go-controller/pkg/node/gateway_udn.go`, `gateway_init.go`.

pub mod services;

use std::net::IpAddr;

use model::address::{Family, InterfaceAddr, Prefix};
use model::gateway::GatewayMode;
use model::kernel::{
    Entries, KernelEntry, KernelKey, LAST_METRIC, POD_RULE_PREFERENCE, POD_RULE_TABLE, RouteTarget,
    RuleSelector, VRF_RULE_PREFERENCE, route_metric,
};
use model::names::management_device;
use model::network::Topology;
use model::ovs::{INTEGRATION_BRIDGE, InternalPort};
use model::route::{MAIN_TABLE, TableId};

use crate::snapshot::{NetworkView, Vrf, mac_of, of_family};

/// Packet mark of a network of users (OVN-Kubernetes: 4096 + id).
#[must_use]
pub fn mark(network_id: u16) -> u32 {
    0x1000 + u32::from(network_id)
}

/// The kernel's side of one network; nothing while the node has no subnet of it. A network of users without VRF device has its
/// port and nothing else: in main its addresses would be everybody's.
#[must_use]
pub fn plan(view: NetworkView<'_>) -> Entries {
    let mut entries = Builder {
        device: management_device(view.share.network.id),
        entries: Entries::new(),
    };
    let addresses = view.management();
    if addresses.is_empty() {
        return entries.entries;
    }
    match (&view.share.vrf, view.name().is_default()) {
        (_, true) => {
            entries.port(None, &addresses, true);
            match view.node.mode {
                GatewayMode::Local if !view.is_overlay() => {
                    entries.unreachable(view, MAIN_TABLE);
                }
                GatewayMode::Shared | GatewayMode::Local => entries.way_to_pods(view),
            }
        }
        (Some(vrf), false) => entries.vrf(view, vrf, &addresses),
        (None, false) => {}
    }
    entries.entries
}

struct Builder {
    device: String,
    entries: Entries,
}

impl Builder {
    fn port(&mut self, vrf: Option<&Vrf>, addresses: &[InterfaceAddr], prefix_route: bool) {
        let device = || self.device.clone();
        let link = KernelEntry::Link {
            up: true,
            vrf: vrf.map(|vrf| vrf.device.clone()),
        };
        let key = KernelKey::Link { device: device() };
        self.entries.insert(key, link);
        for address in addresses {
            let key = KernelKey::Address {
                device: device(),
                address: *address,
            };
            let entry = KernelEntry::Address { prefix_route };
            self.entries.insert(key, entry);
        }
    }

    fn rule(&mut self, preference: u32, selector: RuleSelector, table: TableId, local: bool) {
        let key = KernelKey::Rule {
            preference,
            selector,
            table,
        };
        self.entries.insert(key, KernelEntry::Rule { local });
    }

    fn route(&mut self, table: TableId, to: Prefix, target: RouteTarget) {
        let metric = match target {
            RouteTarget::Unreachable => LAST_METRIC,
            RouteTarget::Device { .. } => route_metric(to.family(), 0),
        };
        let key = KernelKey::Route { table, to, metric };
        self.entries.insert(key, KernelEntry::Route(target));
    }

    /// Over the management port.
    fn inside(&mut self, table: TableId, to: Prefix, via: Option<IpAddr>, mtu: Option<u32>) {
        let target = RouteTarget::Device {
            device: Some(self.device.clone()),
            via,
            source: None,
            mtu,
        };
        self.route(table, to, target);
    }

    fn way_to_pods(&mut self, view: NetworkView<'_>) {
        let gateways = view.subnet_gateways();
        for to in view.share.network.prefixes() {
            let Some(via) = of_family(&gateways, to.family()) else {
                continue;
            };
            let selector = RuleSelector::To(to);
            self.rule(POD_RULE_PREFERENCE, selector, POD_RULE_TABLE, true);
            self.inside(POD_RULE_TABLE, to, Some(via), Some(view.share.mtu));
        }
    }

    /// Pods without a route: all of BGP's routes to pods are better than this.
    fn unreachable(&mut self, view: NetworkView<'_>, table: TableId) {
        for to in view.share.network.prefixes().filter(|_| view.discards()) {
            self.route(table, to, RouteTarget::Unreachable);
        }
    }

    fn vrf(&mut self, view: NetworkView<'_>, vrf: &Vrf, addresses: &[InterfaceAddr]) {
        let table = vrf.table;
        let entry = KernelEntry::Vrf { table, up: true };
        let device = vrf.device.clone();
        self.entries.insert(KernelKey::Vrf { device }, entry);
        let by_kernel = view.node.mode == GatewayMode::Local
            && view.no_overlay().is_some()
            && view.share.network.topology == Topology::Layer3;
        // What the kernel itself routes between nodes must not find remote pods on the port.
        self.port(Some(vrf), addresses, !by_kernel);
        if by_kernel {
            self.own_subnets(view, table);
            self.unreachable(view, table);
        } else {
            self.all_subnets(view, table);
        }
        self.outside(view, table);
        self.entries.extend(services::vrf(view, table));
        self.vrf_rules(view, table);
    }

    fn own_subnets(&mut self, view: NetworkView<'_>, table: TableId) {
        let gateways = view.subnet_gateways();
        for subnet in &view.share.host_subnets {
            if let Some(via) = of_family(&gateways, subnet.family()) {
                self.inside(table, Prefix::host(via), None, None);
                self.inside(table, *subnet, Some(via), None);
            }
        }
    }

    /// Layer-2 networks have one segment, which the address' own route covers.
    fn all_subnets(&mut self, view: NetworkView<'_>, table: TableId) {
        if view.share.network.topology == Topology::Layer2 {
            return;
        }
        let gateways = view.subnet_gateways();
        for to in view.share.network.prefixes() {
            if let Some(via) = of_family(&gateways, to.family()) {
                self.inside(table, to, Some(via), None);
            }
        }
    }

    /// The way out: over the node's own next hops, unless the network is advertised into its own VRF alone; else nowhere, so
    /// that nothing of the network leaves by main.
    fn outside(&mut self, view: NetworkView<'_>, table: TableId) {
        let advertised = view.share.network.advertised;
        let only_own_vrf = advertised.own_vrf && !advertised.default_vrf;
        for family in view.share.network.families() {
            let everything = Prefix::all(family);
            self.route(table, everything, RouteTarget::Unreachable);
            let gateway = &view.node.gateway;
            let mut next_hops = gateway.next_hops.iter();
            let next_hop = next_hops.find(|ip| Family::of(**ip) == family);
            if let Some(via) = next_hop.filter(|_| !only_own_vrf) {
                let target = RouteTarget::Device {
                    device: Some(gateway.bridge.clone()),
                    via: Some(*via),
                    source: None,
                    mtu: Some(view.share.mtu),
                };
                self.route(table, everything, target);
            }
        }
        for address in view.management_masquerade() {
            let to = Prefix::host(address);
            self.inside(table, to, None, Some(view.share.mtu));
        }
    }

    fn vrf_rules(&mut self, view: NetworkView<'_>, table: TableId) {
        let network = &view.share.network;
        for family in network.families() {
            let selector = RuleSelector::Mark(family, mark(network.id));
            self.rule(VRF_RULE_PREFERENCE, selector, table, false);
        }
        let masquerade = view.management_masquerade();
        let subnets = network.prefixes();
        let subnets = subnets.filter(|_| network.advertised.default_vrf);
        for to in masquerade.into_iter().map(Prefix::host).chain(subnets) {
            let selector = RuleSelector::To(to);
            self.rule(VRF_RULE_PREFERENCE, selector, table, false);
        }
    }
}

/// The management port on the integration bridge; `None` while the node has no subnet.
#[must_use]
pub fn port(view: NetworkView<'_>) -> Option<InternalPort> {
    let network = &view.share.network;
    Some(InternalPort {
        bridge: INTEGRATION_BRIDGE.to_owned(),
        name: management_device(network.id),
        mac: mac_of(&view.management())?,
        iface_id: network.name.management_lsp(&view.node.name),
        mtu: view.share.mtu,
        owner: network.name.to_string(),
    })
}
