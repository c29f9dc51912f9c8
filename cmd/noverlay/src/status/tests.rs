//! What counts as well, and what the table says.

use super::*;
use serde_json::json;

struct Objects {
    nodes: Vec<KubeNode>,
    routes: Vec<NodeRoutes>,
    states: Vec<FRRNodeState>,
    sessions: Vec<BGPSessionState>,
    ras: Vec<RouteAdvertisements>,
    pods: Vec<Pod>,
    cudns: Vec<ClusterUserDefinedNetwork>,
    nads: Vec<NetworkAttachmentDefinition>,
}

fn pod(node: &str, ready: &str) -> Pod {
    pod_of("node-agent", node, ready)
}

fn pod_of(app: &str, node: &str, ready: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": format!("{app}-{node}"), "labels": {"app.kubernetes.io/name": app}},
        "spec": {"nodeName": node, "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
    .unwrap()
}

fn cudn() -> ClusterUserDefinedNetwork {
    let conditions = ["NetworkCreated", "TransportAccepted"].map(|t| {
        json!({"type": t, "status": "True", "reason": t, "message": "m", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    });
    serde_json::from_value(json!({"apiVersion": "k8s.ovn.org/v1", "kind": "ClusterUserDefinedNetwork",
        "metadata": {"name": "blue", "generation": 1}, "spec": {"namespaceSelector": {}, "network": {
        "topology": "Layer3", "layer3": {"role": "Primary", "subnets": [{"cidr": "10.61.0.0/16"}]},
        "transport": "NoOverlay", "noOverlay": {"outboundSNAT": "Enabled", "routing": "Managed"}}},
        "status": {"conditions": conditions}}))
    .unwrap()
}

fn nad() -> NetworkAttachmentDefinition {
    serde_json::from_value(json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "blue", "namespace": "shop", "annotations": {
        "k8s.ovn.org/network-id": "3", "k8s.ovn.org/network-name": "cluster_udn_blue"}}, "spec": {}}))
    .unwrap()
}

fn set_ready(o: &mut Objects, status: &str) {
    let conditions = json!([{"type": "Ready", "status": status, "message": "Kubelet stopped posting node status."}]);
    let node = o.nodes[0].status.get_or_insert_default();
    node.conditions = serde_json::from_value(conditions).unwrap();
}

fn objects() -> Objects {
    let from = |v| serde_json::from_value(v).unwrap();
    let node: KubeNode = from(json!({"metadata": {"name": "n1", "annotations": {
        "k8s.ovn.org/node-id": "2", "k8s.ovn.org/node-subnets": "{\"default\":[\"10.128.0.0/24\"]}"}}}));
    let routes: NodeRoutes = serde_json::from_value(json!({"apiVersion": "noverlay.io/v1alpha1", "kind": "NodeRoutes",
        "metadata": {"name": "n1"}, "spec": {}, "status": {"networks": [{"name": "default", "expected": 2,
        "inKernel": 2, "inOvn": 2, "imported": 2, "digest": "x"}]}}))
    .unwrap();
    let state: FRRNodeState =
        serde_json::from_value(json!({"apiVersion": "frrk8s.metallb.io/v1beta1",
        "kind": "FRRNodeState", "metadata": {"name": "n1"}, "spec": {},
        "status": {"lastConversionResult": "success", "lastReloadResult": "success"}}))
        .unwrap();
    let session = |peer: &str, bgp: &str| -> BGPSessionState {
        serde_json::from_value(json!({"apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "BGPSessionState",
            "metadata": {"name": peer}, "spec": {}, "status": {"node": "n1", "peer": peer, "bgpStatus": bgp}}))
        .unwrap()
    };
    let conditions = ["Accepted", "Complete"].map(|t| {
        json!({"type": t, "status": "True", "reason": t, "message": "m", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    });
    let ra: RouteAdvertisements = serde_json::from_value(json!({"apiVersion": "k8s.ovn.org/v1",
        "kind": "RouteAdvertisements", "metadata": {"name": "ra", "generation": 1},
        "spec": {"networkSelectors": [], "nodeSelector": {}, "frrConfigurationSelector": {}, "advertisements": ["PodNetwork"]},
        "status": {"conditions": conditions}}))
    .unwrap();
    let mut objects = Objects {
        nodes: vec![node],
        routes: vec![routes],
        states: vec![state],
        sessions: vec![session("a", "Established"), session("b", "Established")],
        ras: vec![ra],
        pods: vec![pod("n1", "True")],
        cudns: vec![cudn()],
        nads: vec![nad()],
    };
    set_ready(&mut objects, "True");
    objects
}

fn report(change: impl Fn(&mut Objects)) -> Report {
    let mut o = objects();
    change(&mut o);
    Report {
        nodes: node_lines(&o.nodes, &o.routes, &o.states, &o.sessions, &o.pods),
        networks: networks::lines(&o.cudns, &o.nads),
        route_advertisements: o.ras.iter().map(advertisement_line).collect(),
    }
}

#[test]
fn a_whole_cluster_is_well_and_the_table_has_a_line_each() {
    let report = report(|_| {});
    assert!(report.is_well(), "{report:?}");
    let table = report.table();
    let of_network = "blue     3   NoOverlay  shop        true     true";
    for needle in ["n1", "10.128.0.0/24", "2/2", "ok", "ra", of_network] {
        assert!(table.contains(needle), "{table}");
    }
    assert!(!table.contains("NOT OK"), "{table}");
}

#[test]
fn whatever_is_missing_or_unknown_is_not_well() {
    type Change = fn(&mut Objects);
    let cases: [(&str, Change); 19] = [
        ("a network's transport is not accepted", |o| {
            o.cudns[0].status.as_mut().unwrap().conditions[1].status = "False".to_owned();
        }),
        ("a network's condition is of an older generation", |o| {
            o.cudns[0].metadata.generation = Some(2);
        }),
        ("nobody says anything of a network", |o| {
            o.cudns[0].status = None
        }),
        ("its frr-agent does not work", |o| {
            o.pods.push(pod_of("frr-agent", "n1", "False"))
        }),
        ("the node's Lease is no longer renewed", |o| {
            set_ready(o, "Unknown")
        }),
        ("the node is not ready", |o| set_ready(o, "False")),
        ("nobody says whether the node is ready", |o| {
            o.nodes[0].status = None;
        }),
        ("its agent restarts and has not looked yet", |o| {
            o.pods = vec![pod("n1", "False")];
        }),
        ("its agent ends", |o| {
            o.pods[0].metadata.deletion_timestamp =
                Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        }),
        ("the agent runs on other nodes only", |o| {
            o.pods = vec![pod("n2", "True")];
        }),
        ("no session is reported", |o| o.sessions.clear()),
        ("no report", |o| o.routes.clear()),
        ("a route is missing", |o| {
            o.routes[0].status.as_mut().unwrap().networks[0].in_ovn = 1
        }),
        ("a condition of its routes is False", |o| {
            let conditions = json!([{"type": "WithinLimits", "status": "False", "reason": "OverLimit",
                "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
            let status = o.routes[0].status.as_mut().unwrap();
            status.networks[0].conditions = serde_json::from_value(conditions).unwrap();
        }),
        ("no FRR state", |o| o.states.clear()),
        ("a failed reload", |o| {
            o.states[0].status.as_mut().unwrap().last_reload_result = Some("line 1".to_owned());
        }),
        ("a session is down", |o| {
            o.sessions[0].status.as_mut().unwrap().bgp_status = Some("Active".to_owned());
        }),
        ("no advertisement", |o| o.ras.clear()),
        ("an old condition", |o| {
            o.ras[0].metadata.generation = Some(2)
        }),
    ];
    for (name, change) in cases {
        assert!(!report(change).is_well(), "{name}");
    }
}

#[test]
fn what_is_retained_and_what_is_left_out_is_reported_and_is_well() {
    let report = report(|o| {
        let network = &mut o.routes[0].status.as_mut().unwrap().networks[0];
        network.retained = 2;
        network.skipped = serde_json::from_value(json!([
            {"reason": "other_link", "count": 4, "examples": ["192.0.2.0/24", "198.51.100.0/24"]}]))
        .unwrap();
    });
    assert!(report.is_well(), "{report:?}");
    let table = report.table();
    for line in [
        "n1: 2 imported routes are retained\n",
        "n1: 4 not imported, other_link: 192.0.2.0/24, 198.51.100.0/24, ...\n",
    ] {
        assert!(table.contains(line), "{table}");
    }
}

#[test]
fn what_is_not_known_is_shown_as_such() {
    let report = report(|o| {
        o.sessions.clear();
        set_ready(o, "Unknown");
    });
    let table = report.table();
    assert!(!table.contains("0/0") && table.contains('?'), "{table}");
    let why = "n1: condition Ready is Unknown (Kubelet stopped posting node status.): what is reported of it may be old\n";
    assert!(table.contains(why), "{table}");
}

#[test]
fn a_lone_node_has_no_sessions_and_is_well() {
    let report = report(|o| {
        o.sessions.clear();
        let network = &mut o.routes[0].status.as_mut().unwrap().networks[0];
        (network.expected, network.in_kernel, network.in_ovn) = (0, 0, 0);
    });
    assert!(report.is_well(), "{report:?}");
    assert!(report.table().contains("0/0"));
}

#[test]
fn json_and_yaml_say_what_the_table_says() {
    let report = report(|_| {});
    let value = serde_json::to_value(&report).unwrap();
    assert_eq!(value["nodes"][0]["ready"], true);
    assert_eq!(value["nodes"][0]["sessionsUp"], 2);
    assert_eq!(value["routeAdvertisements"][0]["accepted"], true);
    let yaml = serde_saphyr::to_string(&report).unwrap();
    let read: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(read, value);
}

#[test]
fn a_pair_of_nodes_without_a_session_is_named() {
    let report = report(|o| {
        let down = json!({"type": "SessionsUp", "status": "False", "reason": "SessionsDown",
            "message": "n1 and n2", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = o.ras[0].status.as_mut().unwrap();
        status
            .conditions
            .push(serde_json::from_value(down).unwrap());
    });
    assert_eq!(report.route_advertisements[0].message, "n1 and n2");
    assert!(report.table().contains("n1 and n2"));
}
