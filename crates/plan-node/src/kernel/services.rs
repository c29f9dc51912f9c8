//! What the kernel holds so that networks of users reach Services of the default network, and the host answers OVN.
//! In: a snapshot, or a network's share of it. Out: addresses, neighbors, routes and rules. Invariant: nothing while the node has
//! no network of users; what has no way back by the physical network is sent to OVN from a masquerade address.
//! Not here: flows that carry it between host and gateway routers (`bridge::services`), marks and translation of Services (whoever runs them).
//!
//! ```text
//!  bridge | .2 of the masquerade subnet; .1, .4 and each network's gateway router are permanent neighbors
//!  main   | range of Services via .4, from the node's address; .1 on the bridge; .3 via the default network's management port
//!  7      | range of Services via that port, for what rule 30 finds marked
//!  VRF    | range of Services via .4; .3 via the network's management port
//! ```
//! Forms: OVN-Kubernetes `go-controller/pkg/node/gateway_init_linux.go`, `gateway_udn.go`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::address::{Family, Mac, Prefix};
use model::kernel::{
    Entries, KernelEntry, KernelKey, MAIN_METRIC, POD_RULE_TABLE, RouteTarget, RuleSelector,
    SERVICE_MARK, SERVICE_RULE_PREFERENCE, route_metric,
};
use model::names::management_device;
use model::route::{MAIN_TABLE, TableId};

use crate::snapshot::{NetworkView, NodeView, Reserved, Snapshot, mac_of, of_family};

/// What the host itself needs, once for all networks of users.
#[must_use]
pub fn host(snapshot: &Snapshot) -> Entries {
    let mut builder = Builder::default();
    let Some(node) = snapshot.node.as_ref().filter(|n| n.services.is_some()) else {
        return builder.entries;
    };
    let users = || snapshot.here().map(|(_, view)| view);
    let users = || users().filter(|view| !view.name().is_default() && view.share.vrf.is_some());
    let families: BTreeSet<Family> = users().flat_map(|v| v.share.network.families()).collect();
    let default = snapshot.here().map(|(_, view)| view);
    let default = default.into_iter().find(|view| view.name().is_default());
    for family in families {
        builder.bridge(node, family);
        if let Some(view) = default {
            builder.default_network(view, family);
        }
    }
    for ip in users().flat_map(|view| view.gateway_masquerade()) {
        builder.neighbor(&node.gateway.bridge, ip, Mac::of_ip(ip));
    }
    builder.entries
}

/// What a network's VRF needs.
pub(super) fn vrf(view: NetworkView<'_>, table: TableId) -> Entries {
    let mut builder = Builder::default();
    if view.node.services.is_none() {
        return builder.entries;
    }
    let gateways = view.subnet_gateways();
    for family in view.share.network.families() {
        let host = view.node.reserved(Reserved::Host, family).map(|a| a.ip);
        builder.services(view, family, (table, 0), host);
        let device = management_device(view.share.network.id);
        builder.host_local(
            view.node,
            (&device, of_family(&gateways, family)),
            (table, 0),
            family,
        );
    }
    builder.entries
}

#[derive(Default)]
struct Builder {
    entries: Entries,
}

impl Builder {
    fn neighbor(&mut self, device: &str, ip: IpAddr, mac: Mac) {
        let device = device.to_owned();
        let entry = KernelEntry::Neighbor { mac };
        self.entries
            .insert(KernelKey::Neighbor { device, ip }, entry);
    }

    fn route(&mut self, (table, metric): (TableId, u32), to: Prefix, target: RouteTarget) {
        let metric = route_metric(to.family(), metric);
        let key = KernelKey::Route { table, to, metric };
        self.entries.insert(key, KernelEntry::Route(target));
    }

    /// The bridge is where host and OVN meet: neither asks for the other there.
    fn bridge(&mut self, node: &NodeView, family: Family) {
        let device = &node.gateway.bridge;
        let (Some(host), Some(ovn), Some(next_hop), Some(own)) = (
            node.reserved(Reserved::Host, family),
            node.reserved(Reserved::Ovn, family),
            node.reserved(Reserved::NextHop, family),
            node.gateway.address(family),
        ) else {
            return;
        };
        let key = KernelKey::Address {
            device: device.clone(),
            address: host,
        };
        let entry = KernelEntry::Address { prefix_route: true };
        self.entries.insert(key, entry);
        for ip in [ovn.ip, next_hop.ip] {
            self.neighbor(device, ip, Mac::of_ip(ip));
        }
        let target = RouteTarget::Device {
            device: Some(device.clone()),
            via: None,
            source: Some(own),
            mtu: None,
        };
        self.route((MAIN_TABLE, MAIN_METRIC), Prefix::host(ovn.ip), target);
    }

    fn default_network(&mut self, view: NetworkView<'_>, family: Family) {
        let main = (MAIN_TABLE, MAIN_METRIC);
        let gateways = view.subnet_gateways();
        let gateway = of_family(&gateways, family);
        let device = management_device(view.share.network.id);
        self.host_local(view.node, (&device, gateway), main, family);
        // The bridge gives it the masquerade address: who translates Services before it is asked needs the node's.
        let own = view.node.gateway.address(family);
        self.services(view, family, main, own);
        let Some((gateway, mac)) = gateway.zip(mac_of(&gateways)) else {
            return;
        };
        self.neighbor(&device, gateway, mac);
        let mut marked = false;
        for range in service_ranges(view.node, family) {
            let target = RouteTarget::Device {
                device: Some(device.clone()),
                via: Some(gateway),
                source: None,
                mtu: None,
            };
            self.route((POD_RULE_TABLE, 0), range, target);
            marked = true;
        }
        if marked {
            let key = KernelKey::Rule {
                preference: SERVICE_RULE_PREFERENCE,
                selector: RuleSelector::Mark(family, SERVICE_MARK),
                table: POD_RULE_TABLE,
            };
            self.entries.insert(key, KernelEntry::Rule { local: false });
        }
    }

    /// The range of Services: to the gateway router of the default network.
    fn services(
        &mut self,
        view: NetworkView<'_>,
        family: Family,
        at: (TableId, u32),
        source: Option<IpAddr>,
    ) {
        let next_hop = view.node.reserved(Reserved::NextHop, family);
        let (Some(next_hop), Some(source)) = (next_hop, source) else {
            return;
        };
        if view.node.gateway.address(family).is_none() {
            return;
        }
        for range in service_ranges(view.node, family) {
            let target = RouteTarget::Device {
                device: Some(view.node.gateway.bridge.clone()),
                via: Some(next_hop.ip),
                source: Some(source),
                mtu: Some(view.share.mtu),
            };
            self.route(at, range, target);
        }
    }

    fn host_local(
        &mut self,
        node: &NodeView,
        (device, gateway): (&str, Option<IpAddr>),
        at: (TableId, u32),
        family: Family,
    ) {
        let address = node.reserved(Reserved::HostLocal, family);
        if let (Some(address), Some(via)) = (address, gateway) {
            let target = RouteTarget::Device {
                device: Some(device.to_owned()),
                via: Some(via),
                source: None,
                mtu: None,
            };
            self.route(at, Prefix::host(address.ip), target);
        }
    }
}

fn service_ranges(node: &NodeView, family: Family) -> impl Iterator<Item = Prefix> + '_ {
    let ranges = node.service_cidrs.iter().copied();
    ranges.filter(move |range| range.family() == family)
}
