//! Ids and subnets are given once, however late the manager learns of Nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube_tests::{ApiServer, tools, until};

use super::process::{Daemon, MANAGED, text};
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
