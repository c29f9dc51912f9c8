//! One Node is broken.
//! In: a settled cluster. Out: the same with one fault, and all that it may cost. Invariant: of fifty nodes n25 is the culprit.
//! Not here: how a thing is broken (`table`), the comparison (`blast_radius`).

use super::*;

pub(crate) const OF_NODES: &[Fault] = &[
    Fault {
        what: "what a Node says of its subnets cannot be read",
        make: |o| annotate(o, SUBNETS, r#"{"default":["10.128.24.0/24"]"#),
        culprit: "n25",
        names: &["n25"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[
            Said(FABRIC, LEFT_OUT, "k8s.ovn.org/node-subnets"),
            Said(GREEN, LEFT_OUT, ""),
            Said(PODS, LEFT_OUT, ""),
            Said(BLUE, LEFT_OUT, ""),
            Said(N25, &["AllocationFailed", "NodeLeftOut"], ""),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "its subnet is none of the cluster's",
        make: |o| default_subnet(o, "10.99.24.0/24"),
        culprit: "n25",
        names: &["n25"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[
            Said(FABRIC, LEFT_OUT, "10.99.24.0/24 lies outside"),
            Said(PODS, LEFT_OUT, "10.99.24.0/24 lies outside"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "its subnet is another node's",
        make: |o| default_subnet(o, "10.128.23.0/24"),
        culprit: "n25",
        names: &["n24", "n25"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[
            Said(FABRIC, LEFT_OUT, "of node n24"),
            Said(PODS, LEFT_OUT, "of node n24"),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "its subnet is the whole cluster's",
        make: |o| default_subnet(o, "10.128.0.0/14"),
        culprit: "n25",
        names: &["n25"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[
            Said(FABRIC, LEFT_OUT, "allowed: a /24"),
            Said(PODS, LEFT_OUT, "allowed: a /24"),
        ],
        // Nobody is given what a node claims, and this one claims everything: a node that comes gets no subnet of the default
        // network, although the claim is refused (`plan_cluster::networks` stops on purpose, and names the holder).
        except: &[
            "meanwhile Node/n51 says AllocationFailed",
            "meanwhile what is said names {\"n25\", \"n51\"}",
            "meanwhile FRRConfiguration /n51.spec.bgp.routers",
            "meanwhile Node n51.metadata.annotations.k8s.ovn.org/node-subnets.default null",
        ],
        ..NO_FAULT
    },
    Fault {
        what: "a Node has no InternalIP",
        make: |o| node(o, "n25")["status"]["addresses"] = json!([]),
        culprit: "n25",
        names: &["n25"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[
            Said(FABRIC, LEFT_OUT, "no InternalIP"),
            Said(GREEN, LEFT_OUT, ""),
            Said(PODS, LEFT_OUT, ""),
            Said(BLUE, LEFT_OUT, ""),
            Said(N25, &["NodeLeftOut"], ""),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "its InternalIP is no address",
        make: |o| internal_ip(o, "172.30.0.999"),
        culprit: "n25",
        names: &["n25"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[
            Said(FABRIC, LEFT_OUT, "172.30.0.999"),
            Said(GREEN, LEFT_OUT, ""),
            Said(PODS, LEFT_OUT, ""),
            Said(BLUE, LEFT_OUT, ""),
            Said(N25, &["NodeLeftOut"], ""),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "its InternalIP is that of an elder node: it must not have that node, which is now itself, as a neighbor",
        make: |o| internal_ip(o, "172.30.0.24"),
        culprit: "n25",
        names: &["n24", "n25"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[
            Said(FABRIC, LEFT_OUT, "172.30.0.24 is also node n24's"),
            Said(GREEN, LEFT_OUT, ""),
            Said(PODS, LEFT_OUT, ""),
            Said(BLUE, LEFT_OUT, ""),
            Said(N25, &["NodeLeftOut"], ""),
        ],
        costs: &["n25"],
        writes: &["FRRConfiguration FABRIC/FABRIC/n24"],
        ..NO_FAULT
    },
    Fault {
        what: "its id is that of an elder node",
        make: |o| annotate(o, ID, "25"),
        mend: Some(without_id),
        culprit: "n25",
        names: &["n24", "n25"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[Said(N25, &["DuplicateNodeId"], "")],
        ..NO_FAULT
    },
    Fault {
        what: "its id is no number",
        make: |o| annotate(o, ID, "one"),
        mend: Some(without_id),
        culprit: "n25",
        names: &["n25"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[
            Said(FABRIC, LEFT_OUT, "k8s.ovn.org/node-id"),
            Said(GREEN, LEFT_OUT, ""),
            Said(PODS, LEFT_OUT, ""),
            Said(BLUE, LEFT_OUT, ""),
            Said(N25, &["AllocationFailed", "NodeLeftOut"], ""),
        ],
        ..NO_FAULT
    },
    Fault {
        what: "a Node lost the label that its objects select it by",
        make: |o| {
            node(o, "n25")["metadata"]["labels"] = json!({"noverlay.io/bgp-fabric": "member"})
        },
        culprit: "n25",
        names: &["n25"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[
            Said(FABRIC, LEFT_OUT, "kubernetes.io/hostname"),
            Said(GREEN, LEFT_OUT, ""),
            Said(PODS, LEFT_OUT, ""),
            Said(BLUE, LEFT_OUT, ""),
            Said(N25, &["NodeLeftOut"], ""),
        ],
        costs: &["n25"],
        ..NO_FAULT
    },
    Fault {
        what: "a Node took another's label, so that it loads what is that one's",
        make: |o| node(o, "n25")["metadata"]["labels"]["kubernetes.io/hostname"] = "n24".into(),
        culprit: "n25",
        names: &["n24", "n25"],
        touches: N25_AND_ITS_ADDRESS,
        says: &[
            Said(FABRIC, LEFT_OUT, "is also node n24's"),
            Said(GREEN, LEFT_OUT, ""),
            Said(PODS, LEFT_OUT, ""),
            Said(BLUE, LEFT_OUT, ""),
            Said(N25, &["NodeLeftOut"], ""),
        ],
        costs: &["n25"],
        ..NO_FAULT
    },
];
