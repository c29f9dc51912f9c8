//! What counts as well, and what the table says.

use super::*;
use serde_json::json;

struct Objects {
    nodes: Vec<KubeNode>,
    routes: Vec<NodeRoutes>,
    states: Vec<FRRNodeState>,
    sessions: Vec<BGPSessionState>,
    ras: Vec<RouteAdvertisements>,
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
    Objects {
        nodes: vec![node],
        routes: vec![routes],
        states: vec![state],
        sessions: vec![session("a", "Established"), session("b", "Established")],
        ras: vec![ra],
    }
}

fn report(change: impl Fn(&mut Objects)) -> Report {
    let mut o = objects();
    change(&mut o);
    Report {
        nodes: node_lines(&o.nodes, &o.routes, &o.states, &o.sessions),
        route_advertisements: o.ras.iter().map(advertisement_line).collect(),
    }
}

#[test]
fn a_whole_cluster_is_well_and_the_table_has_a_line_each() {
    let report = report(|_| {});
    assert!(report.is_well(), "{report:?}");
    let table = report.table();
    for needle in ["n1", "10.128.0.0/24", "2/2", "ok", "ra"] {
        assert!(table.contains(needle), "{table}");
    }
    assert!(!table.contains("NOT OK"), "{table}");
}

#[test]
fn whatever_is_missing_or_unknown_is_not_well() {
    type Change = fn(&mut Objects);
    let cases: [(&str, Change); 8] = [
        ("no report", |o| o.routes.clear()),
        ("a route is missing", |o| {
            o.routes[0].status.as_mut().unwrap().networks[0].in_ovn = 1
        }),
        ("a condition of its routes is False", |o| {
            let conditions = json!([{"type": "WithinLimits", "status": "False", "reason": "OverLimit",
                "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
            o.routes[0].status.as_mut().unwrap().conditions =
                serde_json::from_value(conditions).unwrap();
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
fn what_is_held_and_what_is_left_out_is_told_and_is_well() {
    let report = report(|o| {
        let network = &mut o.routes[0].status.as_mut().unwrap().networks[0];
        network.held = 2;
        network.skipped = serde_json::from_value(json!([
            {"reason": "other_link", "count": 4, "examples": ["192.0.2.0/24", "198.51.100.0/24"]}]))
        .unwrap();
    });
    assert!(report.is_well(), "{report:?}");
    let table = report.table();
    for line in [
        "n1: 2 imported routes are held\n",
        "n1: 4 not imported, other_link: 192.0.2.0/24, 198.51.100.0/24, ...\n",
    ] {
        assert!(table.contains(line), "{table}");
    }
}
