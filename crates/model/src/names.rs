//! Names of nodes, networks, routers and objects, and the names derived from them.
//! In: names as the API has them. Out: names of OVN rows and Linux devices (OVN-Kubernetes' rules).
//! Invariant: every derived name has exactly one function here.
//! Not here: whether a name exists anywhere.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Longest name of a Linux device, bytes (`IFNAMSIZ` without the closing zero).
const DEVICE_NAME: usize = 15;

/// Name of the cluster default network.
pub const DEFAULT_NETWORK: &str = "default";

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// `metadata.name` of a Node.
    NodeName
);
name_type!(
    /// Name of an OVN network: `default`, or `cluster_udn_<cudn>`.
    NetworkName
);
name_type!(
    /// `Logical_Router.name` in OVN_Northbound.
    RouterName
);

/// Namespace and name of an object; the namespace is empty for cluster-scoped ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// `metadata.namespace`, or empty.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl ObjectKey {
    /// A key from its two parts.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

impl NetworkName {
    /// The cluster default network, `default`.
    #[must_use]
    pub fn default_network() -> Self {
        Self(DEFAULT_NETWORK.into())
    }

    /// True for the cluster default network.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self.0 == *DEFAULT_NETWORK
    }

    /// The scope prefix of row names: empty for the default network, else the name with `-` and `/` as `.` and a `_`.
    #[must_use]
    pub fn scope(&self) -> String {
        if self.is_default() {
            String::new()
        } else {
            format!("{}_", self.0.replace(['-', '/'], "."))
        }
    }

    /// Name of the controller that owns indexed rows: `<net>-network-controller`.
    #[must_use]
    pub fn controller(&self) -> String {
        format!("{}-network-controller", self.0)
    }

    /// The node's logical switch.
    #[must_use]
    pub fn switch(&self, node: &NodeName) -> String {
        format!("{}{node}", self.scope())
    }

    /// The network's cluster router.
    #[must_use]
    pub fn cluster_router(&self) -> RouterName {
        RouterName(format!("{}ovn_cluster_router", self.scope()).into())
    }

    /// The node's gateway router.
    #[must_use]
    pub fn gateway_router(&self, node: &NodeName) -> RouterName {
        RouterName(format!("GR_{}{node}", self.scope()).into())
    }

    /// Whether a router has the name of a gateway router of one of these nodes ([`NetworkName::gateway_router`]); any may be one
    /// while they are not known (`None`).
    #[must_use]
    pub fn is_gateway_router(&self, router: &str, nodes: Option<&BTreeSet<NodeName>>) -> bool {
        nodes.is_none_or(|nodes| {
            let rest = router.strip_prefix("GR_");
            let node = rest.and_then(|rest| rest.strip_prefix(self.scope().as_str()));
            node.is_some_and(|node| nodes.contains(&NodeName::from(node)))
        })
    }

    /// The join switch.
    #[must_use]
    pub fn join_switch(&self) -> String {
        format!("{}join", self.scope())
    }

    /// The switch that cluster routers of all nodes meet on where the network has an overlay.
    #[must_use]
    pub fn transit_switch(&self) -> String {
        format!("{}transit_switch", self.scope())
    }

    /// A node's router port towards the transit switch.
    #[must_use]
    pub fn transit_router_port(&self, node: &NodeName) -> String {
        format!("{}rtots-{node}", self.scope())
    }

    /// The transit switch's port towards a node's cluster router.
    #[must_use]
    pub fn transit_switch_port(&self, node: &NodeName) -> String {
        format!("{}tstor-{node}", self.scope())
    }

    /// The switch of a layer-2 network, one for all nodes.
    #[must_use]
    pub fn layer2_switch(&self) -> String {
        format!("{}ovn_layer2_switch", self.scope())
    }

    /// The router of a layer-2 network that all nodes have a part of.
    #[must_use]
    pub fn transit_router(&self) -> RouterName {
        RouterName(format!("{}transit_router", self.scope()).into())
    }

    /// The external switch of the node.
    #[must_use]
    pub fn external_switch(&self, node: &NodeName) -> String {
        format!("ext_{}{node}", self.scope())
    }

    /// The Linux VRF device that carries the network: a `ClusterUserDefinedNetwork`'s own name where that fits a device
    /// (at most 15 bytes, not one of [`NO_VRF_DEVICES`]), else `mp<N>-udn-vrf`. `None` for the default network, which has no VRF.
    ///
    /// A name of the form `mp<N>-udn-vrf` is always the device of the network with id N: a network that is merely
    /// called so does not get it, or it would share another network's routing table.
    #[must_use]
    pub fn vrf_device(&self, network_id: u16) -> Option<String> {
        if self.is_default() {
            return None;
        }
        let own = self.0.strip_prefix("cluster_udn_");
        let fits = |name: &&str| {
            (1..=DEVICE_NAME).contains(&name.len())
                && !NO_VRF_DEVICES.contains(name)
                && !is_vrf_by_id(name)
        };
        Some(match own.filter(fits) {
            Some(name) => name.to_owned(),
            None => format!("mp{network_id}-udn-vrf"),
        })
    }

    /// The management port's logical switch port.
    #[must_use]
    pub fn management_lsp(&self, node: &NodeName) -> String {
        format!("k8s-{}{node}", self.scope())
    }
}

/// The VRF device that is made and removed to see whether the kernel makes such devices.
pub const TRIED_VRF: &str = "noverlay-try";

/// Names that no network's VRF device has: the kernel keeps `all` and `default` for sysctls of all devices (it refuses `all`).
pub const NO_VRF_DEVICES: [&str; 3] = ["default", "all", TRIED_VRF];

/// Whether a name is one that VRF devices get by network id.
fn is_vrf_by_id(name: &str) -> bool {
    name.strip_prefix("mp")
        .and_then(|rest| rest.strip_suffix("-udn-vrf"))
        .is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()))
}

/// The management port's device for a network id: `ovn-k8s-mp<N>`.
#[must_use]
pub fn management_device(network_id: u16) -> String {
    format!("{MANAGEMENT_DEVICE}{network_id}")
}

/// Whether a device's name is that of a management port: OVN-Kubernetes' or ours, of whatever network.
#[must_use]
pub fn is_management_device(name: &str) -> bool {
    let id = name.strip_prefix(MANAGEMENT_DEVICE);
    id.is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()))
}

/// How names of management ports' devices begin.
const MANAGEMENT_DEVICE: &str = "ovn-k8s-mp";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_router_is_told_by_its_name_and_is_of_one_network() {
        let networks =
            ["default", "cluster_udn_red", "cluster_udn_red-blue"].map(NetworkName::from);
        let nodes: BTreeSet<NodeName> = ["n1", "worker-1.example"].map(NodeName::from).into();
        let strangers = ["n2", "n", "n11", "cluster_udn_red_n1"].map(NodeName::from);
        for network in &networks {
            for node in &nodes {
                let router = network.gateway_router(node);
                assert!(
                    network.is_gateway_router(router.as_str(), Some(&nodes)),
                    "{router}"
                );
                for other in networks.iter().filter(|other| *other != network) {
                    assert!(
                        !other.is_gateway_router(router.as_str(), Some(&nodes)),
                        "{router}"
                    );
                }
            }
            for node in &strangers {
                let router = network.gateway_router(node);
                assert!(
                    !network.is_gateway_router(router.as_str(), Some(&nodes)),
                    "{router}"
                );
                assert!(network.is_gateway_router(router.as_str(), None), "{router}");
            }
        }
    }
}
