//! The cluster-manager on a real API server, with the rights it is shipped with.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kube_tests::{ApiServer, tools, until};
use serde_json::Value;

use crate::harness::{Manager, condition, configuration, planned_writes, served};

fn annotation(node: &Value, key: &str) -> String {
    node["metadata"]["annotations"][key]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn settled(api: &ApiServer, nodes: usize) {
    until(
        "every node has its objects and the conditions are True",
        30,
        || {
            let seen = served(api);
            let full = seen.len() == nodes && seen.values().all(|peers| peers.len() == nodes - 1);
            let accepted = condition(api, "Accepted").is_some_and(|c| c.0 == "True");
            let complete = condition(api, "Complete").is_some_and(|c| c.0 == "True");
            if full && accepted && complete {
                Ok(())
            } else {
                Err(format!("{seen:?} {:?}", condition(api, "Complete")))
            }
        },
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn a_managed_cluster_is_served_and_bad_nodes_cost_only_themselves() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=3 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let manager = Manager::start(&api, "a");
    settled(&api, 3);
    let nodes = api.items("nodes");
    let ids: BTreeSet<String> = nodes
        .iter()
        .map(|n| annotation(n, "k8s.ovn.org/node-id"))
        .collect();
    assert_eq!(ids, ["2", "3", "4"].map(str::to_owned).into());
    let subnets: BTreeSet<String> = nodes
        .iter()
        .map(|n| annotation(n, "k8s.ovn.org/node-subnets"))
        .collect();
    assert_eq!(subnets.first().unwrap(), r#"{"default":["10.128.0.0/24"]}"#);
    assert_eq!(subnets.len(), 3);
    let nad = &api.items("network-attachment-definitions")[0];
    assert_eq!(nad["metadata"]["namespace"], "ovn-kubernetes");
    let ra = api.items("routeadvertisements")[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(ra.starts_with("ovnk-managed-"));
    until("the NAD names the RouteAdvertisements", 5, || {
        let text = annotation(
            &api.items("network-attachment-definitions")[0],
            "k8s.ovn.org/route-advertisements",
        );
        if text == format!("[\"{ra}\"]") {
            Ok(())
        } else {
            Err(text)
        }
    });

    // Of what stands the command line says that nothing is left to write.
    assert_eq!(planned_writes(&api), [""; 0]);

    bad_nodes(&api, &ra);

    // A restart writes nothing but the lease.
    manager.stop();
    let before = writes(&api).len();
    let manager = Manager::start(&api, "b");
    std::thread::sleep(Duration::from_secs(6));
    let new: Vec<String> = writes(&api).split_off(before);
    assert!(new.is_empty(), "a restart with nothing to do wrote {new:?}");

    // A node that goes takes its object and its place in the others with it.
    for bad in ["bad-ip", "bad-subnet", "twin"] {
        api.kubectl(&["delete", "node", bad]);
    }
    reports_of(&api, "n3");
    reports_of(&api, "n1");
    api.kubectl(&["delete", "node", "n3"]);
    settled(&api, 2);
    until("reports go with their node, and only those", 10, || {
        let names: Vec<String> = ["noderoutes", "frrnodestates", "bgpsessionstates"]
            .iter()
            .flat_map(|kind| api.items(kind))
            .map(|o| o["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        if names == ["n1", "n1", "n1-s"] {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    });
    api.node("n4", "172.30.0.4");
    settled(&api, 3);
    let n4 = api
        .items("nodes")
        .into_iter()
        .find(|n| n["metadata"]["name"] == "n4")
        .unwrap();
    assert_eq!(
        annotation(&n4, "k8s.ovn.org/node-id"),
        "4",
        "what a node had is free once it is gone"
    );
    foreign_changes_are_undone(&api);
    what_a_broken_annotation_meant_is_given_to_nobody_else(&api);
    manager.stop();
}

/// n1 has the first subnet and goes on announcing it, whatever its annotation says.
fn what_a_broken_annotation_meant_is_given_to_nobody_else(api: &ApiServer) {
    let key = "k8s.ovn.org/node-subnets";
    let subnets_of = |name: &str| {
        let nodes = api.items("nodes");
        let node = nodes.iter().find(|n| n["metadata"]["name"] == name);
        let text = node.and_then(|n| n["metadata"]["annotations"][key].as_str());
        text.unwrap_or_default().to_owned()
    };
    let before = subnets_of("n1");
    let annotate = |text: &str| {
        let value = format!("{key}={text}");
        api.kubectl(&["annotate", "node", "n1", "--overwrite", &value]);
    };
    annotate("gone");
    api.node("n5", "172.30.0.5");
    until("n5 has a subnet", 20, || match subnets_of("n5") {
        text if text.is_empty() => Err("none yet".to_owned()),
        _ => Ok(()),
    });
    for other in ["n2", "n4"] {
        assert_ne!(subnets_of("n5"), subnets_of(other));
    }
    assert_ne!(subnets_of("n5"), before, "n1 still announces it");
    annotate(&before);
    settled(api, 4);
}

/// Objects of nodes that were deleted before: n3's.
const DELETED_SO_FAR: usize = 2;

/// Writes of the manager but for leases and events.
fn writes(api: &ApiServer) -> Vec<String> {
    let mut list = api.writes("serviceaccount:noverlay-system:cluster-manager");
    list.retain(|w| !w.contains(" leases/"));
    list
}

/// What the agents of a node report.
fn reports_of(api: &ApiServer, node: &str) {
    let ours = "app.kubernetes.io/managed-by: noverlay";
    api.apply(&format!(
        "apiVersion: noverlay.io/v1alpha1\nkind: NodeRoutes\nmetadata: {{name: {node}, labels: {{{ours}}}}}\nspec: {{}}\n---\n\
         apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRNodeState\nmetadata: {{name: {node}, labels: {{{ours}}}}}\nspec: {{}}\n---\n\
         apiVersion: frrk8s.metallb.io/v1beta1\nkind: BGPSessionState\nmetadata: {{name: {node}-s, namespace: frr-k8s-system, labels: {{{ours}, frrk8s.metallb.io/node: {node}}}}}\nspec: {{}}\n"
    ));
}

#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn bad_nodes(api: &ApiServer, ra: &str) {
    let good = served(api);
    api.node("bad-ip", "");
    api.node("twin", "172.30.0.2");
    api.apply("apiVersion: v1\nkind: Node\nmetadata: {name: bad-subnet, labels: {kubernetes.io/hostname: bad-subnet}, annotations: {k8s.ovn.org/node-subnets: '{\"default\":[\"10.128\"]}'}}\n");
    api.kubectl(&[
        "patch",
        "node",
        "bad-subnet",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"addresses":[{"type":"InternalIP","address":"172.30.0.9"}]}}"#,
    ]);
    until("each bad node is named with its fault", 20, || {
        let (status, _, message) = condition(api, "Complete").unwrap_or_default();
        let needles = [
            "node bad-ip: it has no InternalIP",
            "node bad-subnet: annotation k8s.ovn.org/node-subnets",
            "node twin: its InternalIP 172.30.0.2 is also node n2's",
        ];
        if status == "False" && needles.iter().all(|n| message.contains(n)) {
            Ok(())
        } else {
            Err(message)
        }
    });
    assert_eq!(condition(api, "Accepted").unwrap().0, "True");
    assert_eq!(served(api), good, "the others are served as before");
    let bad = api
        .items("nodes")
        .into_iter()
        .find(|n| n["metadata"]["name"] == "bad-subnet")
        .unwrap();
    assert_eq!(
        annotation(&bad, "k8s.ovn.org/node-subnets"),
        r#"{"default":["10.128"]}"#,
        "it is never overwritten"
    );
    until(
        "there are events on the RouteAdvertisements and on the nodes",
        10,
        || {
            let about: BTreeSet<String> = api
                .items("events.events.k8s.io")
                .iter()
                .map(|e| {
                    e["regarding"]["name"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned()
                })
                .collect();
            if ["bad-ip", "bad-subnet", "twin", ra]
                .iter()
                .all(|n| about.contains(*n))
            {
                Ok(())
            } else {
                Err(format!("{about:?}"))
            }
        },
    );
    let status = api.output(&["get", "ra", ra, "-o", "jsonpath={.status.status}"]);
    assert_eq!(status, "Accepted");
}

#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn foreign_changes_are_undone(api: &ApiServer) {
    let all = api.items("frrconfigurations");
    let names = all.iter().map(|o| o["metadata"]["name"].as_str().unwrap());
    let mut base = names.filter(|name| name.starts_with("ovnk-managed-"));
    let name = base.next().unwrap().to_owned();
    api.kubectl(&[
        "patch",
        "frrconfiguration",
        &name,
        "-n",
        "frr-k8s-system",
        "--type=json",
        "-p",
        r#"[{"op":"replace","path":"/spec/bgp/routers/0/asn","value":65001}]"#,
    ]);
    api.kubectl(&["delete", "ra", "--all"]);
    std::thread::sleep(Duration::from_secs(1));
    let deleted = writes(api)
        .iter()
        .filter(|w| w.starts_with("delete ") && w.contains("frrconfigurations"))
        .count();
    until(
        "the changed object is as it was and the deleted one is back",
        20,
        || {
            let asn = api.output(&[
                "get",
                "frrconfiguration",
                &name,
                "-n",
                "frr-k8s-system",
                "-o",
                "jsonpath={.spec.bgp.routers[0].asn}",
            ]);
            if asn == "64777" && api.items("routeadvertisements").len() == 1 {
                Ok(())
            } else {
                Err(asn)
            }
        },
    );
    let after = writes(api)
        .iter()
        .filter(|w| w.starts_with("delete ") && w.contains("frrconfigurations"))
        .count();
    assert_eq!(
        (deleted, after),
        (DELETED_SO_FAR, DELETED_SO_FAR),
        "nothing that forwards was withdrawn meanwhile"
    );
    settled(api, 3);
    // An advertisement that cannot be served is reported so, and disturbs nobody.
    api.apply("apiVersion: k8s.ovn.org/v1\nkind: RouteAdvertisements\nmetadata: {name: a-user}\nspec: {targetVRF: red, networkSelectors: [{networkSelectionType: DefaultNetwork}], nodeSelector: {}, frrConfigurationSelector: {matchLabels: {use: me}}, advertisements: [PodNetwork]}\n");
    until("the user's advertisement is not accepted", 10, || {
        let text = api.output(&["get", "ra", "a-user", "-o", "jsonpath={.status.status}"]);
        if text.starts_with("Not Accepted: configuration error: spec.targetVRF") {
            Ok(())
        } else {
            Err(text)
        }
    });
    api.kubectl(&["delete", "ra", "a-user"]);
    settled(api, 3);
}

#[test]
fn a_role_in_the_fabric_is_taken_off_a_node_that_has_none_whoever_put_it_there() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let label = "noverlay.io/bgp-fabric";
    let labels = |node: &str| api.kubectl(&["label", "node", node, &format!("{label}=member")]);
    labels("n1");
    // Without a fabric nobody has a role.
    let fabric = "[bgp-managed]\ntopology = \"full-mesh\"\nas-number = 64777\n";
    let text = configuration(&api).replace(fabric, "");
    let text = text.replace("routing = \"managed\"", "routing = \"unmanaged\"");
    let file = api.path("unmanaged.toml");
    std::fs::write(&file, text).unwrap();
    let manager = Manager::follow("a", &file);
    let no_roles = || {
        until("nobody has a role, and all have subnets", 20, || {
            let nodes = api.items("nodes");
            let is_bare = |n: &Value| {
                n["metadata"]["labels"][label].is_null()
                    && !annotation(n, "k8s.ovn.org/node-subnets").is_empty()
            };
            if nodes.iter().all(is_bare) {
                Ok(())
            } else {
                Err(format!("{nodes:?}"))
            }
        });
    };
    no_roles();
    labels("n2");
    no_roles();
    let before = writes(&api).len();
    std::thread::sleep(Duration::from_secs(4));
    let new: Vec<String> = writes(&api).split_off(before);
    assert!(new.is_empty(), "everything stands: {new:?}");
    manager.stop();
}

#[test]
fn when_the_leader_is_killed_the_other_takes_over_within_20_seconds_and_writes_only_the_lease() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let first = Manager::start(&api, "first");
    settled(&api, 2);
    let second = Manager::start(&api, "second");
    std::thread::sleep(Duration::from_secs(3));
    let holder = || {
        api.output(&[
            "get",
            "lease",
            "noverlay-cluster-manager",
            "-n",
            "noverlay-system",
            "-o",
            "jsonpath={.spec.holderIdentity}",
        ])
    };
    assert_eq!(holder(), "first");
    let before = writes(&api).len();
    drop(first);
    let killed = Instant::now();
    until("the second leads", 20, || match holder() {
        h if h == "second" => Ok(()),
        h => Err(h),
    });
    assert!(killed.elapsed() < Duration::from_secs(20));
    std::thread::sleep(Duration::from_secs(3));
    let new: Vec<String> = writes(&api).split_off(before);
    assert!(new.is_empty(), "the new leader wrote {new:?}");
    // It does lead: a new node is served.
    api.node("n3", "172.30.0.3");
    settled(&api, 3);
    second.stop();
    assert_eq!(holder(), "", "a leader that ends gives the lease back");
}
