//! One RouteAdvertisements or EgressIP is broken.
//! In: a settled cluster. Out: the same with one fault, and all that it may cost. Invariant: of fifty nodes n25 is the culprit.
//! Not here: how a thing is broken (`table`), the comparison (`blast_radius`).

use super::*;

pub(crate) const OF_ADVERTISEMENTS: &[Fault] = &[
    Fault {
        what: "a RouteAdvertisements selects no network",
        make: |o| {
            advertisement(
                o,
                "astray",
                "networkSelectors",
                json!([{
                    "networkSelectionType": "ClusterUserDefinedNetworks",
                    "clusterUserDefinedNetworkSelector": {"networkSelector": {"matchLabels": {"export": "nobody"}}},
                }]),
            )
        },
        culprit: "astray",
        touches: &["astray"],
        says: &[Said(ASTRAY, PENDING, "no networks selected")],
        ..NO_FAULT
    },
    Fault {
        what: "a RouteAdvertisements names a VRF that is not there",
        make: |o| advertisement(o, "astray", "targetVRF", "elsewhere".into()),
        culprit: "astray",
        touches: &["astray"],
        says: &[Said(ASTRAY, REFUSED, "elsewhere")],
        ..NO_FAULT
    },
    Fault {
        what: "a RouteAdvertisements selects no source",
        make: |o| {
            advertisement(
                o,
                "astray",
                "frrConfigurationSelector",
                json!({"matchLabels": {"use": "nobody"}}),
            )
        },
        culprit: "astray",
        touches: &["astray"],
        says: &[Said(ASTRAY, PENDING, "no FRRConfigurations selected")],
        ..NO_FAULT
    },
    Fault {
        what: "one that was in order names a VRF that is not there",
        make: |o| spec(o, RA, "pods")["targetVRF"] = "elsewhere".into(),
        culprit: "pods",
        names: &["grey"],
        touches: &["pods"],
        says: &[Said(PODS, REFUSED, "elsewhere")],
        ..NO_FAULT
    },
    Fault {
        what: "one that was in order cannot be read any more",
        make: |o| spec(o, RA, "pods")["nodeSelector"] = bad_selector(),
        culprit: "pods",
        touches: &["pods"],
        says: &[Said(PODS, REFUSED, "spec.nodeSelector")],
        ..NO_FAULT
    },
    Fault {
        what: "a node that is not selected has an EgressIP",
        make: |o| egress_ip(o, "n25", json!({"matchLabels": {"tenant": "grey"}})),
        culprit: "EgressIP astray",
        names: &["astray", "n25"],
        says: &[Said(EGRESS, LEFT_OUT, "n25")],
        ..NO_FAULT
    },
    Fault {
        what: "the selector of an EgressIP cannot be read",
        make: |o| egress_ip(o, "n06", bad_selector()),
        culprit: "EgressIP astray",
        names: &["astray"],
        says: &[Said(EGRESS, LEFT_OUT, "spec.namespaceSelector")],
        ..NO_FAULT
    },
    Fault {
        what: "an EgressIP is of another shape",
        make: |o| egress_ip(o, "n06", "all".into()),
        culprit: "EgressIP astray",
        names: &["astray"],
        says: &[Said(EGRESS, LEFT_OUT, "cannot be read")],
        ..NO_FAULT
    },
    Fault {
        what: "an EgressIP that was in order is of another shape",
        make: |o| spec(o, "EgressIP", "shop-out")["namespaceSelector"] = "all".into(),
        culprit: "EgressIP shop-out",
        names: &["shop-out"],
        says: &[Said(EGRESS, LEFT_OUT, "cannot be read")],
        ..NO_FAULT
    },
];
