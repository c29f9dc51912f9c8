//! One FRRConfiguration is broken, or fits others not.
//! In: a settled cluster. Out: the same with one fault, and all that it may cost. Invariant: of fifty nodes n25 is the culprit.
//! Not here: how a thing is broken (`table`), the comparison (`blast_radius`).

use super::*;

pub(crate) const OF_FRR: &[Fault] = &[
    Fault {
        what: "an FRRConfiguration of one node has a neighbor that is no address",
        make: |o| {
            foreign(
                o,
                "broken",
                Some("n25"),
                &json!([{"asn": 64512, "neighbors": [{"address": "999.1.1.1", "asn": 65001}]}]),
            )
        },
        culprit: "frr-k8s-system/broken",
        names: &["n25", "broken"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[
            Said(FABRIC, LEFT_OUT, "n25"),
            Said(GREEN, LEFT_OUT, ""),
            Said(PODS, LEFT_OUT, "999.1.1.1"),
            Said(BLUE, LEFT_OUT, ""),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "an FRRConfiguration of one node is of another shape",
        make: |o| foreign(o, "broken", Some("n25"), &json!([{"asn": "many"}])),
        culprit: "frr-k8s-system/broken",
        names: &["n25", "broken"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[
            Said(FABRIC, LEFT_OUT, "n25"),
            Said(GREEN, LEFT_OUT, ""),
            Said(PODS, LEFT_OUT, "many"),
            Said(BLUE, LEFT_OUT, ""),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "an FRRConfiguration of all nodes cannot be read: all keep what they have",
        make: |o| {
            foreign(
                o,
                "broken",
                None,
                &json!([{"asn": 64512, "neighbors": [{"address": "999.1.1.1", "asn": 65001}]}]),
            )
        },
        culprit: "frr-k8s-system/broken",
        names: &["broken"],
        of_all: true,
        says: &[
            Said(FABRIC, LEFT_OUT, "n01"),
            Said(GREEN, LEFT_OUT, ""),
            Said(PODS, LEFT_OUT, "more"),
            Said(BLUE, LEFT_OUT, ""),
            Said(EGRESS, LEFT_OUT, "n03"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "an FRRConfiguration that asks for nothing",
        make: |o| {
            let metadata = json!({"name": "empty", "namespace": "frr-k8s-system"});
            o.put(json!({"apiVersion": "frrk8s.metallb.io/v1beta1", "kind": FRR, "metadata": metadata})).unwrap();
        },
        ..NO_FAULT
    },
    Fault {
        what: "the source of two RouteAdvertisements cannot be read any more",
        make: |o| {
            spec(o, FRR, "frr-k8s-system/uplink")["bgp"]["routers"][0]["neighbors"][0]["asn"] =
                0.into()
        },
        culprit: "frr-k8s-system/uplink",
        names: &["uplink"],
        of_all: true,
        // What a new node would get is copied from it.
        touches: &["uplink"],
        says: &[
            Said(FABRIC, LEFT_OUT, ""),
            Said(GREEN, LEFT_OUT, ""),
            Said(
                PODS,
                LEFT_OUT,
                "none of the selected FRRConfigurations that can be read",
            ),
            Said(BLUE, LEFT_OUT, ""),
            Said(EGRESS, LEFT_OUT, ""),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "two objects of one node differ about a neighbor",
        make: |o| {
            foreign(
                o,
                "other",
                Some("n25"),
                &json!([{"asn": 64512, "neighbors": [{"address": "172.31.0.1", "asn": 65100, "holdTime": "30s", "keepaliveTime": "10s"}]}]),
            )
        },
        culprit: "frr-k8s-system/other",
        names: &["n25", "other", "uplink"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[
            Said(FABRIC, LEFT_OUT, "n25"),
            Said(GREEN, LEFT_OUT, ""),
            Said(PODS, LEFT_OUT, "holdTime"),
            Said(BLUE, LEFT_OUT, ""),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "two objects of one node differ about its AS number",
        make: |o| {
            foreign(
                o,
                "other",
                Some("n25"),
                &json!([{"asn": 64999, "neighbors": [{"address": "172.31.9.1", "asn": 65100}]}]),
            )
        },
        culprit: "frr-k8s-system/other",
        names: &["n25", "other", "uplink"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[
            Said(FABRIC, LEFT_OUT, "n25"),
            Said(GREEN, LEFT_OUT, ""),
            Said(PODS, LEFT_OUT, "64999"),
            Said(BLUE, LEFT_OUT, ""),
        ],
        ..NO_FAULT
    },
];
