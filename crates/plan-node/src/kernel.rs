//! What the node's kernel and the integration bridge hold for its networks, shared gateway mode.
//! In: each network's share of the node. Out: management ports with their addresses, and the host's own way to pods through OVN.
//! Invariant: only traffic that starts on the host takes that way; what is forwarded follows the routes of BGP in main.
//! Not here: local gateway mode, VRF devices.

use model::kernel::{Entries, KernelEntry, KernelKey, POD_RULE_PREFERENCE, POD_RULE_TABLE};
use model::names::management_device;
use model::ovs::{INTEGRATION_BRIDGE, InternalPort};

use crate::snapshot::{NetworkView, mac_of, of_family};

/// The kernel's side of one network; nothing while the node has no subnet of it.
/// OVN-Kubernetes: `ip rule pref 31 iif lo to CIDR lookup 7`, `CIDR via .1 dev ovn-k8s-mp0 mtu M table 7`.
#[must_use]
pub fn plan(view: NetworkView<'_>) -> Entries {
    let mut entries = Entries::new();
    let addresses = view.management();
    if addresses.is_empty() {
        return entries;
    }
    let device = management_device(view.share.network.id);
    let link = KernelKey::Link {
        device: device.clone(),
    };
    entries.insert(link, KernelEntry::Link { up: true });
    for address in addresses {
        let device = device.clone();
        entries.insert(KernelKey::Address { device, address }, KernelEntry::Address);
    }
    // Table and preference are the default network's: others have a VRF, and their subnets may be the same.
    if view.share.network.name.is_default() {
        entries.extend(way_to_pods(view, &device));
    }
    entries
}

fn way_to_pods(view: NetworkView<'_>, device: &str) -> Entries {
    let gateways = view.subnet_gateways();
    let mut entries = Entries::new();
    for to in view.share.network.prefixes() {
        let Some(via) = of_family(&gateways, to.family()) else {
            continue;
        };
        let (preference, table) = (POD_RULE_PREFERENCE, POD_RULE_TABLE);
        let rule = KernelKey::Rule {
            preference,
            to,
            table,
        };
        entries.insert(rule, KernelEntry::Rule { local: true });
        let route = KernelEntry::Route {
            via: Some(via),
            device: Some(device.to_owned()),
            mtu: Some(view.share.mtu),
        };
        entries.insert(KernelKey::Route { table, to }, route);
    }
    entries
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
