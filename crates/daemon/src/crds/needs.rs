//! The custom resources that each daemon reads or writes, with the fields of them that it reads or writes.
//! In: nothing. Out: a table for each daemon.
//! Invariant: what a daemon cannot do its work without, or not all of it, is in its table.
//! Not here: which of them are installed.

use super::Need;

/// FRRConfiguration, as the cluster-manager writes it and the frr-agent applies it.
const FRR_CONFIGURATION: Need = Need {
    version: "frrk8s.metallb.io/v1beta1",
    kind: "FRRConfiguration",
    fields: &[
        "spec.nodeSelector",
        "spec.bgp.bfdProfiles",
        "spec.bgp.routers.neighbors.bfdProfile",
        "spec.bgp.routers.neighbors.connectTime",
        "spec.bgp.routers.neighbors.enableGracefulRestart",
        "spec.bgp.routers.neighbors.holdTime",
        "spec.bgp.routers.neighbors.keepaliveTime",
        "spec.bgp.routers.neighbors.toReceive",
        "spec.bgp.routers.prefixes",
    ],
};
/// BGPSessionState.
const BGP_SESSION_STATE: Need = Need {
    version: "frrk8s.metallb.io/v1beta1",
    kind: "BGPSessionState",
    fields: &["status.bgpStatus"],
};
/// FRRNodeState: the frr-agent writes these, and the cluster-manager reads what a reflector's FRR runs.
const FRR_NODE_STATE: Need = Need {
    version: "frrk8s.metallb.io/v1beta1",
    kind: "FRRNodeState",
    fields: &[
        "status.lastConversionResult",
        "status.lastReloadResult",
        "status.runningConfig",
    ],
};

/// What the cluster-manager needs.
pub const CLUSTER_MANAGER: &[Need] = &[
    Need {
        version: "k8s.ovn.org/v1",
        kind: "RouteAdvertisements",
        fields: &[
            "spec.advertisements",
            "spec.frrConfigurationSelector",
            "spec.networkSelectors",
            "spec.nodeSelector",
            "spec.targetVRF",
            "status.conditions",
        ],
    },
    Need {
        version: "k8s.ovn.org/v1",
        kind: "ClusterUserDefinedNetwork",
        fields: &[
            "spec.namespaceSelector",
            "spec.network.layer2",
            "spec.network.layer3",
            "spec.network.noOverlay",
            "spec.network.noOverlayOptions",
            "spec.network.transport",
            "status.conditions",
        ],
    },
    Need {
        version: "k8s.ovn.org/v1",
        kind: "EgressIP",
        fields: &["spec.namespaceSelector", "status.items"],
    },
    FRR_CONFIGURATION,
    FRR_NODE_STATE,
    BGP_SESSION_STATE,
    Need {
        version: "k8s.cni.cncf.io/v1",
        kind: "NetworkAttachmentDefinition",
        fields: &["spec.config"],
    },
    Need {
        version: "noverlay.io/v1alpha1",
        kind: "NodeRoutes",
        fields: &["status.networks"],
    },
];

/// What the node-agent needs.
pub const NODE_AGENT: &[Need] = &[Need {
    version: "noverlay.io/v1alpha1",
    kind: "NodeRoutes",
    fields: &["status.networks.conditions"],
}];

/// What the frr-agent needs.
pub const FRR_AGENT: &[Need] = &[FRR_CONFIGURATION, FRR_NODE_STATE, BGP_SESSION_STATE];
