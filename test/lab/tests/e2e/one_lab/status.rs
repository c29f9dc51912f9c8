//! `noverlay status` as an admin calls it, with the read-only account and nothing else.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::cluster::kubectl;
use crate::harness::{Standing, call, command, wait};

/// How soon reports are there.
const SOON: Duration = Duration::from_secs(30);

/// Exit status and output.
fn noverlay(words: &[&str]) -> (Option<i32>, String, String) {
    let output = command(&[&["noverlay"], words].concat()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn becomes(wanted: i32) -> String {
    let mut last = (None, String::new(), String::new());
    let is = wait(SOON, || {
        last = noverlay(&["status"]);
        last.0 == Some(wanted)
    });
    assert!(is, "noverlay status does not end with {wanted}: {last:?}");
    last.1 + &last.2
}

/// 0, 1 and 2, each for its reason; the table, JSON and YAML.
pub(super) fn every_exit_status(lab: &Standing) {
    let table = becomes(0);
    print!("{table}");
    for number in 0..3 {
        let node = lab.node(number);
        let words: Vec<&str> = row(&table, &node).split_whitespace().collect();
        let subnet = lab.subnet(number);
        assert_eq!(words.get(2), Some(&subnet.as_str()), "{table}");
        assert_eq!(
            words.get(3..),
            Some(&["2/2", "success", "2", "2", "2", "ok"][..]),
            "{table}"
        );
    }
    let (status, json, _) = noverlay(&["status", "-o", "json"]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let count = |key: &str| report.get(key).and_then(Value::as_array).map(Vec::len);
    assert_eq!(
        (status, count("nodes"), count("routeAdvertisements")),
        (Some(0), Some(3), Some(1)),
        "{json}"
    );
    let (status, yaml, _) = noverlay(&["status", "-o", "yaml"]);
    let node = format!("name: {}", lab.node(0));
    assert!(
        status == Some(0) && yaml.contains("routeAdvertisements:") && yaml.contains(&node),
        "{yaml}"
    );
    // Something is wrong.
    let node = lab.node(0);
    lab.daemon("stop", &node, "bgpd");
    let mut table = becomes(1);
    let bad = wait(SOON, || {
        table = noverlay(&["status"]).1;
        row(&table, &node).trim_end().ends_with("NOT OK")
    });
    assert!(bad, "{table}");
    lab.daemon("start", &node, "bgpd");
    becomes(0);
    // The cluster cannot be read: no such file, and a server that accepts and says nothing.
    let (status, _, error) = noverlay(&["status", "--kubeconfig", "/nowhere"]);
    assert!(
        status == Some(2) && error.contains("/nowhere"),
        "{status:?} {error}"
    );
    lab.daemon("freeze", "underlay", "kube-apiserver");
    let mut asking = command(&["noverlay", "status"]);
    let asking = asking.stderr(Stdio::piped()).spawn().unwrap();
    let kubeconfig = kubeconfig_of(asking.id());
    let asked = asking.wait_with_output().unwrap();
    lab.daemon("thaw", "underlay", "kube-apiserver");
    let error = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(
        asked.status.code() == Some(2) && error.contains("cannot list nodes"),
        "{asked:?}"
    );
    becomes(0);
    may_only_look(&kubeconfig);
}

/// A node's row of the table.
fn row<'a>(table: &'a str, node: &str) -> &'a str {
    let first = |line: &&str| line.split_whitespace().next() == Some(node);
    table.lines().find(first).unwrap_or_default()
}

/// The kubeconfig file that `hack/lab noverlay` gives the command: this process becomes it.
fn kubeconfig_of(process: u32) -> String {
    let mut words = Vec::new();
    let of = |file: &str| std::fs::read_to_string(format!("/proc/{process}/{file}"));
    let runs = wait(SOON, || {
        let line = of("cmdline").unwrap_or_default();
        words = line.split('\0').map(str::to_owned).collect();
        words
            .first()
            .is_some_and(|word| word.ends_with("/noverlay"))
    });
    assert!(runs, "{words:?}");
    // Nothing else says where the cluster is.
    assert_eq!(
        words.get(1..),
        Some(&["status".to_owned(), String::new()][..])
    );
    let environment = of("environ").unwrap();
    let mut variables = environment.split('\0');
    let file = variables.find_map(|word| word.strip_prefix("KUBECONFIG="));
    file.expect("KUBECONFIG").to_owned()
}

/// Whose file it is, and what that one may do.
fn may_only_look(kubeconfig: &str) {
    let with = ["--kubeconfig", kubeconfig];
    let review = kubectl(&[&["auth", "whoami", "-o", "json"], &with[..]].concat());
    let who = review.pointer("/status/userInfo/username");
    assert_eq!(
        who.and_then(Value::as_str),
        Some("system:serviceaccount:noverlay-system:noverlay-view"),
        "{kubeconfig}: {review}"
    );
    for (verb, resource, may) in [
        ("list", "nodes", true),
        ("list", "noderoutes.noverlay.io", true),
        ("patch", "nodes", false),
        ("create", "frrconfigurations.frrk8s.metallb.io", false),
        ("get", "secrets", false),
    ] {
        let ask = ["kubectl", "auth", "can-i", verb, resource, "-A"];
        let said = call(&[&ask[..], &with[..]].concat());
        assert_eq!(said.good, may, "{verb} {resource}: {}", said.text);
    }
}
