//! What counts as well, and what the table says.

use super::*;
use api::cluster_user_defined_network::Transport as UserTransport;
use model::network::{MissingRoute, NoOverlay, Routing, Transport};
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

impl Objects {
    fn report(&self, declared: Option<&Transport>) -> Report {
        let nodes: Vec<Node> = self.nodes.iter().map(api::decode_node).collect();
        let in_force = networks::InForce::of(&self.nads);
        let mut networks = vec![networks::default_line(
            &self.ras, &nodes, in_force, declared,
        )];
        networks.extend(networks::lines(&self.cudns, &self.nads, &nodes, true));
        Report {
            nodes: node_lines(
                &self.nodes,
                &self.routes,
                &self.states,
                &self.sessions,
                &self.pods,
            ),
            fabric: fabric::line(&nodes),
            networks,
            route_advertisements: advertisements::lines(&self.ras),
            definitions: Vec::new(),
        }
    }
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
        "k8s.ovn.org/node-id": "2",
        "k8s.ovn.org/node-subnets": "{\"default\":[\"10.128.0.0/24\"],\"cluster_udn_blue\":[\"10.61.0.0/24\"]}"}}}));
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
        "spec": {"networkSelectors": [{"networkSelectionType": "DefaultNetwork"}], "nodeSelector": {}, "frrConfigurationSelector": {}, "advertisements": ["PodNetwork"]},
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
    o.report(None)
}

/// The table's rows, with one blank between words.
fn rows(table: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    table.lines().map(words).collect()
}

/// Gives a RouteAdvertisements a condition about its generation.
fn add_condition(ra: &mut RouteAdvertisements, kind: &str, status: &str, message: &str) {
    let condition = json!({"type": kind, "status": status, "reason": kind, "message": message,
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let conditions = &mut ra.status.as_mut().unwrap().conditions;
    conditions.retain(|c| c.type_ != kind);
    conditions.push(serde_json::from_value(condition).unwrap());
}

#[test]
fn what_is_in_force_of_the_configuration_is_told_and_what_is_refused_is_not_well() {
    let nad = |refused: serde_json::Value| -> NetworkAttachmentDefinition {
        serde_json::from_value(json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": "default", "namespace": "ovn-kubernetes", "annotations": {
            "noverlay.io/configuration-in-force": "[default]\ntransport = \"no-overlay\"\n[no-overlay]\noutbound-snat = \"enabled\"\nrouting = \"unmanaged\"\n",
            "noverlay.io/configuration-refused": refused}}, "spec": {}}))
        .unwrap()
    };
    let mut objects = objects();
    let mut silent = nad(json!(""));
    let annotations = silent.metadata.annotations.as_mut().unwrap();
    annotations.remove("noverlay.io/configuration-refused");
    objects.nads.push(silent);
    // The file says something else: it is not what runs.
    let line = |objects: &Objects| objects.report(Some(&Transport::Geneve)).networks.remove(0);
    let well = line(&objects);
    assert_eq!(
        (well.transport, well.routing, well.is_well()),
        (
            Some(api::cluster_user_defined_network::Transport::NoOverlay),
            Some(api::cluster_user_defined_network::Routing::Unmanaged),
            true
        )
    );
    objects.nads.pop();
    objects.nads.push(nad(json!("one\nanother")));
    let refused = line(&objects);
    assert_eq!(refused.configuration_refused, ["one", "another"]);
    let report = objects.report(None);
    assert!(!report.is_well());
    let table = rows(&report.table());
    for line in [
        "default: configuration refused: one",
        "default: configuration refused: another",
    ] {
        assert!(table.iter().any(|row| row == line), "{table:?}");
    }
}

#[test]
fn a_whole_cluster_is_well_and_the_table_has_a_line_each() {
    let report = report(|_| {});
    assert!(report.is_well(), "{report:?}");
    let table = report.table();
    for row in [
        "n1 2 10.128.0.0/24 2/2 success 2 2 2 ok",
        "default 0 ? - 1/1 - true",
        "blue 3 NoOverlay Managed 1/1 shop true true",
        "ra true true -",
    ] {
        assert!(rows(&table).contains(&row.to_owned()), "{row}\n{table}");
    }
    assert!(!table.contains("NOT OK"), "{table}");
}

#[test]
fn what_the_definitions_lack_is_told_a_line_each_and_is_no_fault_of_the_cluster() {
    let mut report = report(|_| {});
    let field = "field spec.network.noOverlayOptions of k8s.ovn.org/v1 ClusterUserDefinedNetwork";
    let version = "k8s.ovn.org/v1";
    let why = "no answer".to_owned();
    report.definitions = told(&Lacking {
        missing: vec![field.to_owned()],
        unknown: vec![(version, why)],
    });
    assert!(report.is_well(), "the other spelling does");
    let line = format!("custom resource definitions lack {field}");
    assert!(rows(&report.table()).contains(&line));
    let line =
        "which fields custom resource definitions of k8s.ovn.org/v1 have is not known: no answer";
    assert!(rows(&report.table()).contains(&line.to_owned()));
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
fn what_a_node_cannot_try_is_shown_and_is_well_and_a_narrow_way_is_not() {
    let of = |status: &str| {
        report(|o| {
            let conditions = json!([{"type": "PathsCarryMtu", "status": status, "reason": "R",
                "message": "words", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
            let status = o.routes[0].status.as_mut().unwrap();
            status.networks[0].conditions = serde_json::from_value(conditions).unwrap();
        })
    };
    for (status, well, shown) in [
        ("True", true, false),
        ("Unknown", true, true),
        ("False", false, true),
    ] {
        let report = of(status);
        assert_eq!(report.is_well(), well, "{status}");
        let rows = rows(&report.table());
        let has = rows.iter().any(|row| row.contains("R: words"));
        assert_eq!(has, shown, "{status}: {rows:?}");
    }
}

#[test]
fn every_condition_that_is_not_true_is_shown_with_its_words() {
    let report = report(|o| add_condition(&mut o.ras[0], "SessionsUp", "False", "n1 and n2"));
    let line = &report.route_advertisements[0];
    assert_eq!(
        (line.sessions_up.as_deref(), line.message.as_str()),
        (Some("False"), "n1 and n2")
    );
    assert!(!report.is_well());
    let shown = rows(&report.table());
    assert!(shown.contains(&"ra true true false n1 and n2".to_owned()));

    let report = self::report(|o| {
        add_condition(&mut o.ras[0], "Complete", "False", "node n2: no subnet");
        add_condition(&mut o.ras[0], "SessionsUp", "Unknown", "n3 does not report");
    });
    let shown = rows(&report.table());
    let row = "ra true false unknown node n2: no subnet; n3 does not report";
    assert!(shown.contains(&row.to_owned()), "{shown:?}");

    let report = self::report(|o| add_condition(&mut o.ras[0], "SessionsUp", "True", "all"));
    assert!(report.is_well(), "{report:?}");
    let shown = rows(&report.table());
    assert!(shown.contains(&"ra true true true".to_owned()), "{shown:?}");

    // Nothing is out of order while the topology changes.
    let report = self::report(|o| {
        add_condition(&mut o.ras[0], "SessionsUp", "True", "all");
        add_condition(
            &mut o.ras[0],
            "TopologyInForce",
            "False",
            "no FRRNodeState n1",
        );
    });
    assert!(report.is_well(), "{report:?}");
    let shown = rows(&report.table());
    let row = "ra true true true no FRRNodeState n1";
    assert!(shown.contains(&row.to_owned()), "{shown:?}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn the_default_networks_transport_is_what_the_file_declares_or_that_it_is_managed() {
    let no_overlay = |routing| {
        Transport::NoOverlay(NoOverlay {
            outbound_snat: true,
            routing,
            missing_route: MissingRoute::Discard,
        })
    };
    let managed = |o: &mut Objects| {
        let labels = json!({"app.kubernetes.io/managed-by": "noverlay",
            "k8s.ovn.org/managed-internal-fabric": "bgp"});
        o.ras[0].metadata.labels = serde_json::from_value(labels).unwrap();
    };
    let refused = |o: &mut Objects| add_condition(&mut o.ras[0], "Accepted", "False", "why");
    let other = |o: &mut Objects| {
        let of_users = json!([{"networkSelectionType": "ClusterUserDefinedNetworks",
            "clusterUserDefinedNetworkSelector": {"networkSelector": {}}}]);
        o.ras[0].spec.network_selectors = serde_json::from_value(of_users).unwrap();
    };
    let hint = "what transport it has is in the configuration file (--config)";
    let (of_fabric, of_admin) = (no_overlay(Routing::Managed), no_overlay(Routing::Unmanaged));
    type Change<'a> = &'a dyn Fn(&mut Objects);
    let cases: [(Change, Option<&Transport>, String, bool); 9] = [
        (&|_| {}, None, "default 0 ? - 1/1 - true".into(), true),
        (
            &managed,
            None,
            "default 0 NoOverlay Managed 1/1 - true".into(),
            true,
        ),
        (
            &|_| {},
            Some(&of_fabric),
            "default 0 NoOverlay Managed 1/1 - true".into(),
            true,
        ),
        (
            &|_| {},
            Some(&of_admin),
            "default 0 NoOverlay Unmanaged 1/1 - true".into(),
            true,
        ),
        (
            &|_| {},
            Some(&Transport::Geneve),
            "default 0 Geneve - 1/1 - true".into(),
            true,
        ),
        (
            &refused,
            None,
            "default 0 ? - 1/1 - false not accepted: ra".into(),
            false,
        ),
        (&other, None, format!("default 0 ? - 1/1 - ? {hint}"), true),
        (
            &other,
            Some(&of_admin),
            "default 0 NoOverlay Unmanaged 1/1 - false no RouteAdvertisements advertises it".into(),
            false,
        ),
        (
            &other,
            Some(&Transport::Geneve),
            "default 0 Geneve - 1/1 - true".into(),
            true,
        ),
    ];
    for (change, declared, row, well) in cases {
        let mut o = objects();
        change(&mut o);
        let report = o.report(declared);
        let shown = rows(&report.table());
        assert!(shown.contains(&row), "{row}\n{shown:#?}");
        assert_eq!(report.is_well(), well, "{row}");
    }
}

#[test]
fn a_network_is_shown_with_who_routes_it_and_how_many_nodes_have_a_subnet() {
    let report = report(|o| {
        o.nodes.push(
            serde_json::from_value(json!({"metadata": {"name": "n2", "annotations": {
            "k8s.ovn.org/node-subnets": "{\"default\":[\"10.128.1.0/24\"]}"}}}))
            .unwrap(),
        );
        let mut overlay = cudn();
        overlay.metadata.name = Some("green".to_owned());
        (
            overlay.spec.network.transport,
            overlay.spec.network.no_overlay,
        ) = (None, None);
        let mut older = cudn();
        older.metadata.name = Some("red".to_owned());
        let network = &mut older.spec.network;
        (network.no_overlay_options, network.no_overlay) = (network.no_overlay, None);
        let key = "noverlay.io/no-overlay";
        let mut led = overlay.clone();
        led.metadata.name = Some("led".to_owned());
        let asked = r#"{"outboundSNAT":"Enabled","routing":"Managed"}"#;
        let asks = |text: &str| Some([(key.to_owned(), text.to_owned())].into());
        led.metadata.annotations = asks(asked);
        let mut refused = led.clone();
        refused.metadata.name = Some("refused".to_owned());
        refused.metadata.annotations = asks("yes");
        // OVN-Kubernetes has accepted both for itself.
        let of_ours = &mut led.status.as_mut().unwrap().conditions;
        let mut accepted = of_ours.last().unwrap().clone();
        accepted.type_ = "noverlay.io/TransportAccepted".to_owned();
        of_ours.push(accepted);
        o.cudns.extend([led, refused]);
        let mut flat = cudn();
        flat.metadata.name = Some("yellow".to_owned());
        let layer2 = json!({"topology": "Layer2", "layer2": {"role": "Primary", "subnets": ["10.9.0.0/16"]}});
        flat.spec.network = serde_json::from_value(layer2).unwrap();
        o.cudns.extend([flat, overlay, older]);
    });
    let shown = rows(&report.table());
    for row in [
        "default 0 ? - 2/2 - true",
        "blue 3 NoOverlay Managed 1/2 shop true true",
        "green ? Geneve - 0/2 true true",
        "led ? NoOverlay Managed 0/2 true true",
        "refused ? Geneve - 0/2 true false noverlay.io/TransportAccepted is not known yet",
        "red ? NoOverlay Managed 0/2 true true",
        "yellow ? Geneve - - true true",
    ] {
        assert!(shown.contains(&row.to_owned()), "{row}\n{shown:#?}");
    }
}

#[test]
fn where_noverlay_builds_the_topology_nobody_reads_the_annotation() {
    let mut led = cudn();
    let asked = r#"{"outboundSNAT":"Enabled","routing":"Managed"}"#;
    let asked = ("noverlay.io/no-overlay".to_owned(), asked.to_owned());
    led.metadata.annotations = Some([asked].into());
    (led.spec.network.transport, led.spec.network.no_overlay) = (None, None);
    for (beside, transport, accepted) in [
        (false, UserTransport::Geneve, true),
        (true, UserTransport::NoOverlay, false),
    ] {
        let lines = networks::lines(&[led.clone()], &[], &[], beside);
        assert_eq!(lines[0].transport, Some(transport));
        assert_eq!(lines[0].accepted, Some(accepted));
    }
}

#[test]
fn the_fabric_is_what_the_nodes_labels_say() {
    let with = |roles: &[(&str, &str)]| {
        report(|o| {
            o.nodes.clear();
            for (name, role) in roles {
                let node =
                    json!({"metadata": {"name": name, "labels": {"noverlay.io/bgp-fabric": role}}});
                o.nodes.push(serde_json::from_value(node).unwrap());
            }
        })
    };
    assert_eq!(report(|_| {}).fabric, None);
    let mesh = with(&[("n1", "member"), ("n2", "member")]);
    let line = "managed fabric: full-mesh, 2 nodes\n";
    assert!(mesh.table().contains(line), "{}", mesh.table());
    let reflected = with(&[
        ("n3", "route-reflector"),
        ("n1", "member"),
        ("n2", "route-reflector"),
        ("n4", "somewhere"),
    ]);
    let line = "managed fabric: route-reflector, 3 nodes, route reflectors n2, n3, without n4\n";
    assert!(reflected.table().contains(line), "{}", reflected.table());
    let value = serde_json::to_value(&reflected).unwrap();
    let wanted = json!({"topology": "route-reflector", "members": 3,
        "routeReflectors": ["n2", "n3"], "outside": ["n4"]});
    assert_eq!(value["fabric"], wanted);
}
