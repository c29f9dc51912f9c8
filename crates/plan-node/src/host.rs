//! What the node's kernel and the integration bridge hold for a network, shared gateway mode.
//! In: `NetworkView`. Out: the management port with its addresses, and the host's own way to pods through OVN.
//! Invariant: only traffic that starts on the host takes that way; what is forwarded follows the routes of BGP in main.
//! Not here: local gateway mode, VRFs.

use model::host::{
    HostNetwork, HostRoute, LocalRule, ManagementPort, POD_RULE_PREFERENCE, POD_RULE_TABLE,
};
use model::names::management_device;
use model::ovs::{INTEGRATION_BRIDGE, InternalPort};

use crate::snapshot::{NetworkView, mac_of, of_family};

/// The kernel's side; `None` while the node has no subnet.
/// OVN-Kubernetes: `ip rule pref 31 iif lo to CIDR lookup 7`, `CIDR via .1 dev ovn-k8s-mp0 mtu M table 7`.
#[must_use]
pub fn plan(view: &NetworkView) -> Option<HostNetwork> {
    let addresses = view.management();
    let mac = mac_of(&addresses)?;
    let device = management_device(view.network_id);
    let gateways = view.subnet_gateways();
    let mut rules = Vec::new();
    let mut routes = Vec::new();
    for subnet in view.cluster_subnets.iter().map(|subnet| subnet.cidr) {
        let Some(via) = of_family(&gateways, subnet.family()) else {
            continue;
        };
        rules.push(LocalRule {
            preference: POD_RULE_PREFERENCE,
            to: subnet,
            table: POD_RULE_TABLE,
        });
        routes.push(HostRoute {
            table: POD_RULE_TABLE,
            to: subnet,
            via,
            device: device.clone(),
            mtu: view.mtu,
        });
    }
    rules.sort();
    routes.sort();
    Some(HostNetwork {
        port: ManagementPort {
            device,
            mac,
            addresses,
            mtu: view.mtu,
        },
        rules,
        routes,
    })
}

/// The management port on the integration bridge; `None` while the node has no subnet.
#[must_use]
pub fn port(view: &NetworkView) -> Option<InternalPort> {
    Some(InternalPort {
        bridge: INTEGRATION_BRIDGE.to_owned(),
        name: management_device(view.network_id),
        mac: mac_of(&view.management())?,
        iface_id: view.network.management_lsp(&view.node),
        mtu: view.mtu,
        owner: view.network.to_string(),
    })
}
