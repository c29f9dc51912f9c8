//! Sessions that never come up, as the real cluster-manager tells them on a real API server.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use kube_tests::{ApiServer, tools, until};

use crate::harness::{Manager, condition};

/// What the agents of n1 and n2 report of the session between them.
fn report(api: &ApiServer, state: &str) {
    for (node, peer) in [("n1", "172.30.0.2"), ("n2", "172.30.0.1")] {
        api.apply(&format!(
            "apiVersion: frrk8s.metallb.io/v1beta1\nkind: BGPSessionState\nmetadata: {{name: {node}-s, namespace: frr-k8s-system, labels: {{frrk8s.metallb.io/node: {node}}}}}\nspec: {{}}\n"
        ));
        let patch = format!(
            r#"{{"status":{{"node":"{node}","peer":"{peer}","vrf":"","bgpStatus":"{state}","bfdStatus":"N/A"}}}}"#
        );
        api.kubectl(&[
            "patch",
            "bgpsessionstate",
            &format!("{node}-s"),
            "-n",
            "frr-k8s-system",
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ]);
    }
}

fn events(api: &ApiServer, reason: &str) -> usize {
    let all = api.items("events.events.k8s.io");
    let of = all.iter().filter(|e| e["reason"] == reason);
    of.map(|e| {
        e.pointer("/series/count")
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(1)
    })
    .map(|count| usize::try_from(count).unwrap())
    .sum()
}

fn status_writes(api: &ApiServer) -> usize {
    let writes = api.writes("serviceaccount:noverlay-system:cluster-manager");
    writes
        .iter()
        .filter(|w| w.contains("routeadvertisements/"))
        .count()
}

#[test]
fn sessions_that_both_ends_try_in_vain_are_reported_after_30_seconds_once_and_taken_back_when_they_stand()
 {
    let Some(tools) = tools() else { return };
    let api = ApiServer::start(tools);
    for n in 1..=2 {
        api.node(&format!("n{n}"), &format!("172.30.0.{n}"));
    }
    let manager = Manager::start(&api, "a");
    until("Complete is True", 30, || {
        match condition(&api, "Complete") {
            Some((status, _, _)) if status == "True" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    report(&api, "Active");
    std::thread::sleep(std::time::Duration::from_secs(10));
    assert_eq!(condition(&api, "SessionsUp"), None, "too early to tell");
    until("the pair is named", 60, || {
        match condition(&api, "SessionsUp") {
            Some((status, reason, message))
                if status == "False"
                    && reason == "SessionsDown"
                    && message.contains("n1 and n2")
                    && message.contains("-p 0") =>
            {
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    });
    until("an event says so", 10, || {
        match events(&api, "SessionsDown") {
            1 => Ok(()),
            n => Err(format!("{n} events")),
        }
    });
    let before = status_writes(&api);
    // Attempts go on; nothing new is to be reported.
    report(&api, "Connect");
    report(&api, "Active");
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(status_writes(&api), before);
    // A new leader keeps what stands.
    manager.stop();
    let manager = Manager::start(&api, "b");
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert_eq!(status_writes(&api), before);
    report(&api, "Established");
    until("the condition is True", 20, || {
        match condition(&api, "SessionsUp") {
            Some((status, _, _)) if status == "True" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    assert_eq!(events(&api, "SessionsDown"), 1);
    until("an event says so", 10, || {
        match events(&api, "SessionsEstablished") {
            1 => Ok(()),
            n => Err(format!("{n} events")),
        }
    });
    assert_eq!(condition(&api, "Complete").unwrap().0, "True");
    manager.stop();
}
