//! What counts as well, and what the table says.

use super::*;
use serde_json::json;

fn objects() -> (
    Vec<KubeNode>,
    Vec<NodeRoutes>,
    Vec<FRRNodeState>,
    Vec<BGPSessionState>,
    Vec<RouteAdvertisements>,
) {
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
    (
        vec![node],
        vec![routes],
        vec![state],
        vec![session("a", "Established"), session("b", "Established")],
        vec![ra],
    )
}

fn report(
    change: impl Fn(
        &mut Vec<NodeRoutes>,
        &mut Vec<FRRNodeState>,
        &mut Vec<BGPSessionState>,
        &mut Vec<RouteAdvertisements>,
    ),
) -> Report {
    let (nodes, mut routes, mut states, mut sessions, mut ras) = objects();
    change(&mut routes, &mut states, &mut sessions, &mut ras);
    Report {
        nodes: node_lines(&nodes, &routes, &states, &sessions),
        route_advertisements: ras.iter().map(advertisement_line).collect(),
    }
}

#[test]
fn a_whole_cluster_is_well_and_the_table_has_a_line_each() {
    let report = report(|_, _, _, _| {});
    assert!(report.is_well(), "{report:?}");
    let table = report.table();
    assert!(
        table.contains("n1")
            && table.contains("10.128.0.0/24")
            && table.contains("2/2")
            && table.contains("ok"),
        "{table}"
    );
    assert!(table.contains("ra") && !table.contains("NOT OK"), "{table}");
}

#[test]
fn whatever_is_missing_or_unknown_is_not_well() {
    type Change = fn(
        &mut Vec<NodeRoutes>,
        &mut Vec<FRRNodeState>,
        &mut Vec<BGPSessionState>,
        &mut Vec<RouteAdvertisements>,
    );
    let cases: [(&str, Change); 7] = [
        ("no report", |r, _, _, _| r.clear()),
        ("a route is missing", |r, _, _, _| {
            r[0].status.as_mut().unwrap().networks[0].in_ovn = 1
        }),
        ("no FRR state", |_, s, _, _| s.clear()),
        ("a failed reload", |_, s, _, _| {
            s[0].status.as_mut().unwrap().last_reload_result = Some("line 1".to_owned())
        }),
        ("a session is down", |_, _, s, _| {
            s[0].status.as_mut().unwrap().bgp_status = Some("Active".to_owned())
        }),
        ("no advertisement", |_, _, _, ra| ra.clear()),
        ("an old condition", |_, _, _, ra| {
            ra[0].metadata.generation = Some(2)
        }),
    ];
    for (name, change) in cases {
        assert!(!report(change).is_well(), "{name}");
    }
}
