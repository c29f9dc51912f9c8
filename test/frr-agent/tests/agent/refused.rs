//! A session object that the API server refuses costs itself only.

use std::time::Duration;

use frr_agent_tests::{FAR, Fixture, NEAR, lacks_tools};
use kube_tests::until;

/// Refuses every write of the near peer's session object: it has its label when it is made.
const POLICY: &str = "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-near}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE, UPDATE], resources: [bgpsessionstates]}
  validations:
  - {expression: \"object.metadata.labels['frrk8s.metallb.io/peer'] != '172.31.10.2'\", message: not here}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-near}
spec: {policyName: no-near, validationActions: [Deny]}
";

/// Peers and states of the session objects.
fn reported(fixture: &Fixture) -> Vec<(String, String)> {
    let states = fixture.api.items("bgpsessionstates");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut all: Vec<(String, String)> = states
        .iter()
        .filter_map(|s| s.get("status"))
        .filter_map(|s| Some((text(s.get("peer")?), text(s.get("bgpStatus")?))))
        .collect();
    all.sort();
    all
}

fn are_reported(fixture: &Fixture, wanted: &[(&str, &str)], seconds: u64) {
    until(&format!("reported is {wanted:?}"), seconds, || {
        let seen = reported(fixture);
        let same = seen.len() == wanted.len()
            && seen
                .iter()
                .zip(wanted)
                .all(|((a, b), (c, d))| a == c && b == d);
        if same {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    });
}

#[test]
fn a_refused_session_object_costs_itself_only() {
    if lacks_tools() {
        return;
    }
    let mut fixture = Fixture::start("");
    fixture.api.apply(POLICY);
    let probe = fixture.api.path("probe.yaml");
    let object = format!(
        "apiVersion: frrk8s.metallb.io/v1beta1\nkind: BGPSessionState\nmetadata: {{name: probe, namespace: frr-k8s-system, labels: {{frrk8s.metallb.io/peer: {NEAR}}}}}\nspec: {{}}\n"
    );
    assert!(std::fs::write(&probe, object).is_ok());
    let probe = probe.display().to_string();
    until("the policy is in force", 30, || {
        let made = ["create", "--dry-run=server", "-f", probe.as_str()];
        match fixture.api.try_kubectl(&made) {
            Err(said) if said.contains("not here") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    fixture.start_agent();
    fixture.peer_with("", "");
    let _ = fixture.both_up();
    are_reported(&fixture, &[(FAR, "Established")], 20);
    // It stays like that, with news of the other one reported all the time; attempts become seldom.
    std::thread::sleep(Duration::from_secs(8));
    let refused = || {
        let all = fixture.api.audited();
        let mut codes = all.iter().filter(|e| {
            e.pointer("/objectRef/resource")
                .is_some_and(|r| r == "bgpsessionstates")
                && e.pointer("/user/uid").is_some_and(|u| u == "frr-agent")
        });
        let code = |e: &serde_json::Value| e.pointer("/responseStatus/code")?.as_u64();
        let count = codes
            .by_ref()
            .filter(|e| code(e).is_some_and(|c| c >= 400))
            .count();
        assert!(count > 0, "it was tried");
        count
    };
    let before = refused();
    std::thread::sleep(Duration::from_secs(10));
    let attempts = refused() - before;
    assert!(attempts <= 2, "{attempts} attempts in 10 s");
    // Once it is allowed both are reported.
    let binding = ["delete", "validatingadmissionpolicybinding", "no-near"];
    fixture.api.kubectl(&binding);
    are_reported(&fixture, &[(NEAR, "Established"), (FAR, "Established")], 60);
}
