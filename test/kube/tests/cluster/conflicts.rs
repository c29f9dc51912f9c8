//! Other people's FRRConfigurations beside those of the real cluster-manager, on a real API server.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;

use kube_tests::{ApiServer, tools, until};
use serde_json::Value;

use crate::harness::{Manager, condition, served};

/// As MetalLB writes it, but for the AS number: node n1 already peers with that address under 64777.
const FOREIGN: &str = "
apiVersion: frrk8s.metallb.io/v1beta1
kind: FRRConfiguration
metadata: {name: metallb-n1, namespace: frr-k8s-system}
spec:
  nodeSelector: {matchLabels: {kubernetes.io/hostname: n1}}
  bgp:
    routers:
    - asn: 64777
      prefixes: [192.0.2.1/32]
      neighbors:
      - address: 172.30.0.2
        asn: 65001
        toAdvertise: {allowed: {prefixes: [192.0.2.1/32]}}
";

/// Names and resource versions of generated objects.
fn generated(api: &ApiServer) -> BTreeMap<String, String> {
    let text = |o: &Value, path: &str| o.pointer(path).unwrap().as_str().unwrap().to_owned();
    let all = api.items("frrconfigurations");
    all.iter()
        .map(|o| {
            let [name, version] =
                ["name", "resourceVersion"].map(|key| text(o, &format!("/metadata/{key}")));
            (name, version)
        })
        .filter(|(name, _)| name.starts_with("ovnk-generated-"))
        .collect()
}

fn nodes_of(api: &ApiServer) -> Vec<String> {
    served(api).into_keys().collect()
}

fn complete(api: &ApiServer) {
    until("Complete is True", 30, || {
        match condition(api, "Complete") {
            Some((status, _, _)) if status == "True" => Ok(()),
            other => Err(format!("{other:?} {:?}", nodes_of(api))),
        }
    });
}

fn events(api: &ApiServer, reason: &str) -> Vec<String> {
    let all = api.items("events.events.k8s.io");
    let of = all.iter().filter(|e| e["reason"] == reason);
    of.map(|e| e["note"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn a_foreign_object_that_conflicts_is_named_in_condition_and_event_costs_its_node_only_and_heals_when_it_goes()
 {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=3 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    api.apply(FOREIGN);
    let theirs = || {
        api.output(&[
            "get",
            "frrconfiguration",
            "metallb-n1",
            "-n",
            "frr-k8s-system",
            "-o",
            "json",
            "--show-managed-fields",
        ])
    };
    let untouched = theirs();
    let manager = Manager::start(&api, "a");
    let words = [
        "node n1: its FRR configuration would not load",
        "routers[vrf default].neighbors[172.30.0.2].asn is ",
        "65001 in frr-k8s-system/metallb-n1",
        "64777 in frr-k8s-system/ovnk-generated-",
    ];
    let named = |text: &str| {
        // Which of the two comes first is a matter of their names.
        words.iter().all(|w| text.contains(w))
    };
    until(
        "the condition names node, object, field and values",
        30,
        || match condition(&api, "Complete") {
            Some((status, _, message)) if status == "False" && named(&message) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
    assert_eq!(condition(&api, "Accepted").unwrap().0, "True");
    until("the event says the same", 10, || {
        let seen = events(&api, "LeftOut");
        if seen.iter().any(|note| named(note)) {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    });
    until(
        "the others have their objects, n1 has none",
        10,
        || match nodes_of(&api) {
            nodes if nodes == ["n2", "n3"] => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );

    api.kubectl(&[
        "delete",
        "frrconfiguration",
        "metallb-n1",
        "-n",
        "frr-k8s-system",
    ]);
    complete(&api);
    assert_eq!(nodes_of(&api), ["n1", "n2", "n3"]);

    // Now that n1 works, the same object neither takes its configuration away nor is it touched.
    let before = generated(&api);
    api.apply(FOREIGN);
    until("the conflict is reported again", 30, || {
        match condition(&api, "Complete") {
            Some((status, _, message)) if status == "False" && named(&message) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    assert_eq!(generated(&api), before, "what works is left as it is");
    let spec = |text: &str| serde_json::from_str::<Value>(text).unwrap()["spec"].clone();
    let managers = |text: &str| {
        let object: Value = serde_json::from_str(text).unwrap();
        let list = object["metadata"]["managedFields"].as_array().cloned();
        format!(
            "{:?} {:?}",
            list.unwrap().len(),
            object["metadata"]["labels"]
        )
    };
    assert_eq!(spec(&theirs()), spec(&untouched));
    assert_eq!(managers(&theirs()), managers(&untouched));

    // Equal session fields, as our objects have them: both merge.
    let agreed = FOREIGN.replace(
        "asn: 65001",
        "asn: 64777\n        holdTime: 9s\n        keepaliveTime: 3s\n        connectTime: 2s",
    );
    api.apply(&agreed);
    complete(&api);

    // One that cannot be read stops the nodes that it selects.
    api.apply(&FOREIGN.replace(
        "asn: 65001",
        "asn: 64777\n        holdTime: 9x\n        keepaliveTime: 3s",
    ));
    until(
        "the unreadable object is named with its node",
        30,
        || match condition(&api, "Complete") {
            Some((_, _, message))
                if message.contains("node n1: ")
                    && message.contains("spec.bgp.routers[0].neighbors[0].holdTime")
                    && !message.contains("node n2: ") =>
            {
                Ok(())
            }
            other => Err(format!("{other:?}")),
        },
    );
    api.kubectl(&[
        "delete",
        "frrconfiguration",
        "metallb-n1",
        "-n",
        "frr-k8s-system",
    ]);
    complete(&api);
    manager.stop();
}
