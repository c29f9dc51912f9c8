//! Ids and subnets are given once, however late the manager learns of Nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube_tests::{ApiServer, tools, until};

use super::process::{Daemon, MANAGED, generated, settled, text, writes_of};
use super::proxy::Proxy;

#[test]
fn every_node_is_given_one_id_and_one_subnet_though_the_watch_of_nodes_is_late() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    let proxy = Proxy::start(&api, "cluster-manager", Duration::from_secs(3));
    let daemon = Daemon::start(&api, "a", &proxy.kubeconfig, MANAGED);
    until("the manager leads", 20, || {
        match daemon.metric("noverlay_cluster_manager_leader")? {
            1.0 => Ok(()),
            other => Err(other.to_string()),
        }
    });
    // 20 nodes, and no order that any name has.
    for n in (0..20_u32).map(|n| (n * 7 + 3) % 20) {
        api.node(&format!("n{n:02}"), &format!("172.30.0.{}", n + 1));
    }
    let (id, subnets) = ("k8s.ovn.org/node-id", "k8s.ovn.org/node-subnets");
    let given = |key: &str| -> Vec<String> {
        let path = format!("/metadata/annotations/{}", key.replace('/', "~1"));
        let nodes = api.items("nodes");
        nodes
            .iter()
            .map(|n| text(n, &path))
            .filter(|t| !t.is_empty())
            .collect()
    };
    until("all have their annotations", 60, || {
        let count = (given(id).len(), given(subnets).len());
        if count == (20, 20) {
            Ok(())
        } else {
            Err(format!("{count:?}"))
        }
    });
    // Whatever the late watch may still tell.
    std::thread::sleep(Duration::from_secs(5));
    for key in [id, subnets] {
        let all: BTreeSet<String> = given(key).into_iter().collect();
        assert_eq!(all.len(), 20, "nothing is given twice: {all:?}");
        let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let path = format!(
            "/requestObject/metadata/annotations/{}",
            key.replace('/', "~1")
        );
        for event in api.audited() {
            let ours = text(&event, "/user/uid") == "cluster-manager"
                && text(&event, "/objectRef/resource") == "nodes";
            let taken = event
                .pointer("/responseStatus/code")
                .is_some_and(|c| *c == 200);
            if ours && taken {
                let name = text(&event, "/objectRef/name");
                values.entry(name).or_default().insert(text(&event, &path));
            }
        }
        assert_eq!(values.len(), 20);
        assert!(values.values().all(|v| v.len() == 1), "{key}: {values:?}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn a_network_keeps_its_id_and_takes_no_foreign_object_though_the_watch_of_objects_is_late() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    let proxy = Proxy::start(&api, "cluster-manager", Duration::from_secs(4));
    let daemon = Daemon::start(&api, "a", &proxy.kubeconfig, MANAGED);
    let network = |name: &str, n: u8| {
        format!(
            "{{apiVersion: k8s.ovn.org/v1, kind: ClusterUserDefinedNetwork, metadata: {{name: {name}}}, spec: {{namespaceSelector: {{matchLabels: {{tenant: {name}}}}}, \
             network: {{topology: Layer3, layer3: {{role: Primary, subnets: [{{cidr: 10.{n}.0.0/16, hostSubnet: 24}}]}}}}}}}}\n---\n"
        )
    };
    let namespace = |name: &str, tenant: &str| {
        format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{tenant: {tenant}, k8s.ovn.org/primary-user-defined-network: ''}}}}}}\n---\n"
        )
    };
    let nad = "network-attachment-definitions";
    let id = "jsonpath={.metadata.annotations.k8s\\.ovn\\.org/network-id}";
    let wide =
        |name: &str, path: &str| api.try_kubectl(&["get", nad, name, "-n", "shop", "-o", path]);
    // Both have an id, but only one has stored it.
    api.apply(&[network("amber", 61), network("cobalt", 62)].concat());
    let finalizer = [
        "get",
        "clusteruserdefinednetworks",
        "-o",
        "jsonpath={.items[*].metadata.finalizers[0]}",
    ];
    until("both networks are known", 30, || {
        let seen = api.output(&finalizer);
        if seen.split(' ').count() == 2 {
            Ok(())
        } else {
            Err(format!("{seen}\n{}", daemon.said()))
        }
    });
    api.apply(&namespace("shop", "cobalt"));
    until("the object is there", 20, || {
        match wide("cobalt", id)?.as_str() {
            "2" => Ok(()),
            other => Err(other.to_owned()),
        }
    });
    // What the manager knows of objects is older than this.
    api.kubectl(&[
        "delete",
        "clusteruserdefinednetworks",
        "amber",
        "--wait=false",
    ]);
    api.apply(&network("jade", 63));
    let foreign = "{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: jade, namespace: mine}, spec: {config: '{}'}}";
    api.apply(&format!("{}{foreign}", namespace("mine", "nobody")));
    api.kubectl(&["label", "--overwrite", "namespace", "mine", "tenant=jade"]);
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(wide("cobalt", id).unwrap(), "2");
    let config = [
        "get",
        nad,
        "jade",
        "-n",
        "mine",
        "-o",
        "jsonpath={.spec.config}",
    ];
    assert_eq!(api.output(&config), "{}");
    let written = api.writes("cluster-manager");
    assert!(
        !written.contains(&format!("patch {nad}/jade")),
        "{written:?}"
    );
}

#[test]
fn a_node_that_joins_is_not_told_of_as_one_that_waits_for_the_subnets_that_it_was_given() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    // Longer than the passes that follow take, shorter than what others wait for.
    let proxy = Proxy::start(&api, "cluster-manager", Duration::from_millis(600));
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let _daemon = Daemon::start(&api, "a", &proxy.kubeconfig, MANAGED);
    settled(&api, 2, 30);
    let statuses = || {
        let of_ra = |(words, _): &&(String, u64)| words.starts_with("patch routeadvertisements/");
        writes_of(&api, "cluster-manager")
            .iter()
            .filter(of_ra)
            .count()
    };
    let before = statuses();
    assert!(before > 0);
    // As a kubelet does it: with its address from the start.
    let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n3","labels":{"kubernetes.io/hostname":"n3"}},
        "status":{"addresses":[{"type":"InternalIP","address":"172.30.0.3"}]}}"#;
    api.try_kubectl_with(&["create", "-f", "-"], node).unwrap();
    settled(&api, 3, 30);
    assert_eq!(
        statuses(),
        before,
        "{:?}",
        writes_of(&api, "cluster-manager")
    );
}

#[test]
fn annotations_that_somebody_takes_away_each_time_are_written_ever_later_and_all_others_are_served()
{
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let _daemon = Daemon::managed(&api, "a");
    settled(&api, 2, 30);
    let written = || {
        let mut all = writes_of(&api, "cluster-manager");
        all.retain(|(write, _)| write == "patch nodes/n2");
        all.len()
    };
    let before = written();
    for turn in 0..40 {
        let key = "k8s.ovn.org/node-subnets-";
        api.kubectl(&["annotate", "node", "n2", key]);
        if turn == 10 {
            api.node("n3", "172.30.0.3");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let attempts = written() - before;
    assert!((2..12).contains(&attempts), "{attempts} attempts");
    assert!(generated(&api).contains_key("n3"));
    settled(&api, 3, 60);
}
