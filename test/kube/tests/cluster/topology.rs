//! A change of the fabric's topology that cannot go on, as the real cluster-manager tells it on a real API server.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::collections::BTreeMap;

use kube_tests::{ApiServer, tools, until};

use crate::configuration::publish;
use crate::faults::process::holder;
use crate::harness::{Manager, condition, configuration};

const NODES: u8 = 4;
const KIND: &str = "TopologyInForce";

/// What the agents of these two report of the session between them.
fn established(api: &ApiServer, pair: (u8, u8)) {
    for (node, peer) in [pair, (pair.1, pair.0)] {
        let name = format!("n{node}-{peer}");
        api.apply(&format!(
            "apiVersion: frrk8s.metallb.io/v1beta1\nkind: BGPSessionState\nmetadata: {{name: {name}, namespace: frr-k8s-system, labels: {{frrk8s.metallb.io/node: n{node}}}}}\nspec: {{}}\n"
        ));
        let status = format!(
            r#"{{"status":{{"node":"n{node}","peer":"172.30.0.{peer}","vrf":"","bgpStatus":"Established","bfdStatus":"N/A"}}}}"#
        );
        let namespace = ["-n", "frr-k8s-system"];
        patch(
            api,
            &[&["bgpsessionstate", &name], &namespace[..]].concat(),
            &status,
        );
    }
}

/// The sessions of the mesh without that of this pair.
fn all_but_one(api: &ApiServer, without: (u8, u8)) {
    let pairs = (1..NODES).flat_map(|a| (a + 1..=NODES).map(move |b| (a, b)));
    for pair in pairs.filter(|pair| *pair != without) {
        established(api, pair);
    }
}

/// What a node's FRR runs.
fn running(api: &ApiServer, node: &str, configuration: &str) {
    api.apply(&format!(
        "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRNodeState\nmetadata: {{name: {node}}}\nspec: {{}}\n"
    ));
    let status = format!(r#"{{"status":{{"runningConfig":"{configuration}"}}}}"#);
    patch(api, &["frrnodestate", node], &status);
}

fn patch(api: &ApiServer, object: &[&str], body: &str) {
    let how = ["--subresource=status", "--type=merge", "-p", body];
    api.kubectl(&[&["patch"], object, &how[..]].concat());
}

/// Waits until the condition has this status and reason, and this in its message.
fn says(api: &ApiServer, (status, reason): (&str, &str), part: &str) {
    until(&format!("{KIND} says {part:?}"), 30, || {
        match condition(api, KIND) {
            Some(c) if (c.0.as_str(), c.1.as_str()) == (status, reason) && c.2.contains(part) => {
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    });
}

/// How often an event with each reason of ours was told of a RouteAdvertisements, repetitions in a series counted.
fn told(api: &ApiServer) -> BTreeMap<String, u64> {
    let ours = ["RouteReflectorsAwaited", "FullMeshAwaited", KIND];
    let mut told = BTreeMap::new();
    for event in api.items("events.events.k8s.io") {
        let reason = event["reason"].as_str().unwrap();
        if event["regarding"]["kind"] == "RouteAdvertisements" && ours.contains(&reason) {
            let times = event["series"]["count"].as_u64().unwrap_or(1);
            *told.entry(reason.to_owned()).or_default() += times;
        }
    }
    told
}

/// How often the manager has read FRRNodeStates: it asks for those of the reflectors while it waits for them.
fn looks(api: &ApiServer) -> usize {
    let reads = api.reads();
    let looks = reads
        .iter()
        .filter(|read| read.starts_with("get ") && read.contains("/frrnodestates/"));
    looks.count()
}

/// Waits until this manager leads and has looked at the reflectors more than once: at all three, then at those that do not reflect.
fn leads_and_looks(api: &ApiServer, identity: &str) {
    until("it leads", 30, || match holder(api) {
        name if name == identity => Ok(()),
        name => Err(name),
    });
    let before = looks(api);
    until("it looks at the reflectors", 30, || match looks(api) {
        now if now >= before + 4 => Ok(()),
        now => Err(format!("{before} reads, then {now}")),
    });
}

#[test]
fn a_topology_that_waits_for_its_reflectors_says_for_which_and_why_until_it_is_in_force() {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=NODES {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let path = api.path("noverlay.toml");
    let mesh = configuration(&api);
    publish(&path, &mesh);
    let manager = Manager::follow("a", &path);
    until("Complete is True", 30, || {
        match condition(&api, "Complete") {
            Some((status, _, _)) if status == "True" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    assert_eq!(condition(&api, KIND), None, "nothing is waited for");

    publish(&path, &mesh.replace("full-mesh", "route-reflector"));
    let waits = ("False", "RouteReflectorsAwaited");
    says(&api, waits, "no BGPSessionState of a node that is Ready");
    all_but_one(&api, (1, 4));
    says(&api, waits, "node n1 and n4 do not both report");
    established(&api, (1, 4));
    let missing = ["n1", "n2", "n3"].map(|node| format!("there is no FRRNodeState {node}"));
    says(&api, waits, &missing.join("; "));
    let list = "ip prefix-list noverlay-announced seq 5 permit 10.128.0.0/16 ge 24 le 24";
    running(&api, "n1", list);
    running(
        &api,
        "n2",
        &list.replace("10.128.0.0/16 ge 24 le 24", "10.128.1.0/24"),
    );
    running(&api, "n3", list);
    says(
        &api,
        waits,
        "reflect the routes of the managed BGP fabric: runningConfig of FRRNodeState n2 has no prefix list noverlay-announced",
    );
    // Another manager says the same, and no event again.
    let events = until("an event says so", 10, || match told(&api) {
        all if all.contains_key("RouteReflectorsAwaited") => Ok(all),
        all => Err(format!("{all:?}")),
    });
    let before = condition(&api, KIND);
    manager.stop();
    let manager = Manager::follow("b", &path);
    leads_and_looks(&api, "b");
    assert_eq!(condition(&api, KIND), before);
    assert_eq!(told(&api), events);
    assert_eq!(events.len(), 1, "{events:?}");
    running(&api, "n2", list);
    says(&api, ("True", KIND), "those of its topology");
    until("an event says so", 10, || match told(&api) {
        all if all.contains_key(KIND) => Ok(()),
        all => Err(format!("{all:?}")),
    });

    // Back: the sessions of the mesh are reported as before.
    publish(&path, &mesh);
    says(&api, ("False", "FullMeshAwaited"), "nothing is missing");
    says(&api, ("True", KIND), "those of its topology");
    manager.stop();
}
