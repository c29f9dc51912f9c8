//! One network is broken.
//! In: a settled cluster. Out: the same with one fault, and all that it may cost. Invariant: of fifty nodes n25 is the culprit.
//! Not here: how a thing is broken (`table`), the comparison (`blast_radius`).

use super::*;

pub(crate) const OF_NETWORKS: &[Fault] = &[
    Fault {
        what: "a managed network's subnet holds that of an elder one",
        make: |o| pink(o, None),
        culprit: "pink",
        names: &["cluster_udn_pink", "cluster_udn_green", "shop"],
        touches: &["pink", "cluster_udn_pink", "10.60.0.0/15"],
        says: &[
            Said(
                "ClusterUserDefinedNetwork pink",
                &[
                    "NetworkCreated True NetworkAttachmentDefinitionCreated",
                    "TransportAccepted False NoOverlayRouteAdvertisementsNotAccepted",
                ],
                "",
            ),
            Said(
                "RouteAdvertisements fabric:cluster_udn_pink",
                PENDING,
                "10.60.0.0/15 overlaps 10.61.0.0/16 of network cluster_udn_green",
            ),
        ],
        // Its own objects; the subnets that nodes have of it, beside those of before.
        writes: &[
            "ClusterUserDefinedNetwork pink",
            "NetworkAttachmentDefinition shop/pink",
            "RouteAdvertisements fabric:cluster_udn_pink",
            "Node n",
        ],
        ..NO_FAULT
    },
    Fault {
        what: "a new network cannot be read",
        make: |o| pink(o, Some(json!({"topology": "Layer9"}))),
        culprit: "pink",
        says: &[Said(
            "ClusterUserDefinedNetwork pink",
            NOT_CREATED,
            "Layer9",
        )],
        ..NO_FAULT
    },
    Fault {
        what: "a managed network cannot be read any more",
        make: |o| spec(o, CUDN, "green")["network"]["topology"] = "Layer9".into(),
        culprit: "cluster_udn_green",
        names: &["cluster_udn_green"],
        says: &[
            Said("ClusterUserDefinedNetwork green", NOT_CREATED, "Layer9"),
            Said(GREEN, LEFT_OUT, "cluster_udn_green"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "a managed network has no readable subnet any more",
        make: |o| {
            spec(o, CUDN, "green")["network"]["layer3"]["subnets"][0]["cidr"] = "10.61.0.0".into()
        },
        culprit: "cluster_udn_green",
        names: &["cluster_udn_green"],
        says: &[
            Said(
                "ClusterUserDefinedNetwork green",
                NOT_CREATED,
                "subnets[0].cidr",
            ),
            Said(GREEN, LEFT_OUT, "cluster_udn_green"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "a network in a VRF of its own cannot be read any more",
        make: |o| spec(o, CUDN, "blue")["network"]["topology"] = "Layer9".into(),
        culprit: "cluster_udn_blue",
        names: &["cluster_udn_blue"],
        says: &[
            Said("ClusterUserDefinedNetwork blue", NOT_CREATED, "Layer9"),
            Said(BLUE, LEFT_OUT, "cluster_udn_blue"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "a network that shares a RouteAdvertisements with the default one cannot be read any more",
        make: |o| spec(o, CUDN, "grey")["network"]["layer3"] = Value::Null,
        culprit: "cluster_udn_grey",
        names: &["cluster_udn_grey"],
        says: &[
            Said(
                "ClusterUserDefinedNetwork grey",
                NOT_CREATED,
                "layer3 is missing",
            ),
            Said(PODS, LEFT_OUT, "cluster_udn_grey"),
            Said(EGRESS, LEFT_OUT, "cluster_udn_grey"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "the selector of a network's namespaces cannot be read",
        make: |o| spec(o, CUDN, "green")["namespaceSelector"] = bad_selector(),
        culprit: "cluster_udn_green",
        says: &[Said(
            "ClusterUserDefinedNetwork green",
            &["NetworkCreated False NetworkAttachmentDefinitionSyncError"],
            "spec.namespaceSelector",
        )],
        ..NO_FAULT
    },
    Fault {
        what: "an object of somebody else says that it is the network's",
        make: |o| {
            let config = r#"{"cniVersion":"1.1.0","type":"ovn-k8s-cni-overlay","name":"cluster_udn_green","role":"primary","topology":"layer3","subnets":"10.128.0.0/14/24"}"#;
            let annotations = json!({"k8s.ovn.org/network-name": "cluster_udn_green", "k8s.ovn.org/network-id": "2"});
            o.put(json!({
                "apiVersion": "k8s.cni.cncf.io/v1", "kind": NAD,
                "metadata": {"name": "green", "namespace": "shop", "uid": "u1", "annotations": annotations},
                "spec": {"config": config},
            })).unwrap();
        },
        ..NO_FAULT
    },
];
