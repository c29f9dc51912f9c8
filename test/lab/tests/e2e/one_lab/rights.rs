//! Our daemons have what the manifests give them, and need all of it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::Group;
use serde_json::{Value, json};

use crate::cluster::kubectl;
use crate::harness::{Standing, call, command, wait};
use crate::test_node::http;

/// Numbers of capabilities (linux/capability.h).
const CAPABILITIES: [(&str, u32); 4] = [
    ("CHOWN", 0),
    ("DAC_OVERRIDE", 1),
    ("NET_ADMIN", 12),
    ("NET_RAW", 13),
];
/// Every daemon: where it runs, its name there, and the object with its pod template.
const DAEMONS: [(&str, &str, &str, &str); 4] = [
    ("underlay", "cm-a", "deployment", "cluster-manager"),
    ("underlay", "cm-b", "deployment", "cluster-manager"),
    ("n1", "node-agent", "daemonset", "node-agent"),
    ("n1", "frr-agent", "daemonset", "frr-agent"),
];
/// Where the node-agent serves metrics.
const AGENT: u16 = 9101;
/// Name of an object of somebody else.
const EXTRA: &str = "somebody-elses";
/// How long a daemon gets to do what it may not do.
const PATIENCE: Duration = Duration::from_secs(5);

/// Compares the kernel's word about each process with the installed objects.
pub(super) fn as_the_manifests_say(lab: &Standing) {
    for (node, daemon, kind, object) in DAEMONS {
        let object = kubectl(&["get", kind, object, "-n", "noverlay-system", "-o", "json"]);
        let spec = object
            .pointer("/spec/template/spec")
            .expect("a pod template");
        let of = |path: &str| {
            let own = spec.pointer(&format!("/containers/0/securityContext/{path}"));
            own.or_else(|| spec.pointer(&format!("/securityContext/{path}")))
        };
        let uid = of("runAsUser").and_then(Value::as_u64).expect("a user");
        let mask = capabilities(of("capabilities/add"));
        let process = process(lab, node, daemon);
        let status = std::fs::read_to_string(process.join("status")).unwrap();
        let says = |field: &str, wanted: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
            assert_eq!(words.join(" "), wanted, "{field} of {daemon} on {node}");
        };
        says("Uid:", &[uid; 4].map(|uid| uid.to_string()).join(" "));
        says("CapBnd:", &format!("{mask:016x}"));
        says("CapInh:", "0000000000000000");
        // Only root gets them without a file that has them.
        let effective = if uid == 0 { mask } else { 0 };
        says("CapEff:", &format!("{effective:016x}"));
        says("NoNewPrivs:", "1");
        let groups = of("supplementalGroups").and_then(Value::as_array);
        let groups: Vec<String> = groups.into_iter().flatten().map(Value::to_string).collect();
        says("Groups:", &groups.join(" "));
        assert_eq!(of("readOnlyRootFilesystem"), Some(&json!(true)), "{daemon}");
        let root = process.join("root");
        for closed in ["", "etc", "usr/bin", "run", "etc/noverlay"] {
            let error = std::fs::write(root.join(closed).join("written"), "").unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::ReadOnlyFilesystem,
                "/{closed} of {daemon}"
            );
        }
        for mount in spec
            .pointer("/containers/0/volumeMounts")
            .unwrap()
            .as_array()
            .unwrap()
        {
            let path = mount.get("mountPath").and_then(Value::as_str).unwrap();
            assert!(
                root.join(path.trim_start_matches('/')).is_dir(),
                "{path} of {daemon}"
            );
        }
        // What no mount names is not there.
        assert!(!root.join("run/noverlay-lab").exists() && !root.join("root").exists());
    }
}

fn process(lab: &Standing, node: &str, daemon: &str) -> PathBuf {
    let record = lab.daemon_record(node, daemon);
    Path::new("/proc").join(record.get("pid").unwrap().to_string())
}

fn capabilities(names: Option<&Value>) -> u64 {
    let names = names.and_then(Value::as_array).into_iter().flatten();
    let numbers = names.map(|name| {
        let known = CAPABILITIES
            .iter()
            .find(|(known, _)| Some(*known) == name.as_str());
        assert!(known.is_some(), "{name}: add its number to the table");
        known.map_or(0, |(_, number)| *number)
    });
    numbers.fold(0, |mask, number| mask | 1 << number)
}

/// The number of FRR's group, which differs from machine to machine, is all that the installed pod templates have and the
/// manifests have not.
pub(super) fn one_group_is_added(lab: &Standing) {
    let text = |words: &[&str]| {
        let output = command(words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let file = lab.dir("underlay").join("kustomized");
    let path = file.to_string_lossy().into_owned();
    let manifests = lab.record("/places/manifests");
    std::fs::write(&file, text(&["kubectl", "kustomize", &manifests])).unwrap();
    let create = ["kubectl", "create", "-o", "json", "-f", &path];
    let all = text(&[&create[..], &["--dry-run=client"]].concat());
    let all = serde_json::Deserializer::from_str(&all).into_iter::<Value>();
    let all: Vec<Value> = all.map(Result::unwrap).collect();
    let group = Group::from_name("frrvty").unwrap().expect("Debian's group");
    let added = json!([group.gid.as_raw()]);
    let mut compared = 0;
    for (kind, name) in DAEMONS.map(|(_, _, kind, object)| (kind, object)) {
        let installed = kubectl(&["get", kind, name, "-n", "noverlay-system", "-o", "json"]);
        let is = |object: &&Value| {
            let word = |path: &str| object.pointer(path).and_then(Value::as_str);
            let same = word("/kind").is_some_and(|k| k.eq_ignore_ascii_case(kind));
            same && word("/metadata/name") == Some(name)
        };
        let mut object = all.iter().find(is).expect("in the manifests").clone();
        // The API server fills in what the manifests leave to it, as if the object were another one.
        *object.pointer_mut("/metadata/name").unwrap() = json!("kustomized");
        std::fs::write(&file, object.to_string()).unwrap();
        let filled = text(&[&create[..], &["--dry-run=server"]].concat());
        let filled: Value = serde_json::from_str(&filled).unwrap();
        let template = |object: &Value| object.pointer("/spec/template").cloned().unwrap();
        let mut wanted = template(&filled);
        if name == "node-agent" {
            let security = wanted.pointer_mut("/spec/securityContext");
            let security = security.and_then(Value::as_object_mut).unwrap();
            let before = security.insert("supplementalGroups".to_owned(), added.clone());
            assert_eq!(before, None, "the manifests name groups themselves");
        }
        assert_eq!(template(&installed), wanted, "{kind} {name}");
        compared += 1;
    }
    println!("{compared} pod templates compared, {added} added to one");
}

/// Takes each capability of each daemon away, and sees that something is not done.
pub(super) fn no_capability_is_idle(lab: &Standing) {
    for (node, daemon) in [("n1", "node-agent"), ("n1", "frr-agent")] {
        let file = lab.container(node, daemon);
        let text = std::fs::read_to_string(&file).unwrap();
        let whole: Value = serde_json::from_str(&text).unwrap();
        let all = whole.get("capabilities").and_then(Value::as_array).unwrap();
        for (number, one) in all.iter().enumerate() {
            let mut less = whole.clone();
            let rest: Vec<&Value> = all.iter().filter(|other| *other != one).collect();
            *less.get_mut("capabilities").unwrap() = json!(rest);
            lab.daemon("stop", node, daemon);
            let what = Work {
                node,
                daemon,
                capability: one.as_str().unwrap_or_default(),
                number,
            };
            broken(lab, &what);
            std::fs::write(&file, less.to_string()).unwrap();
            lab.daemon("start", node, daemon);
            // As long as it may take with all of them, below.
            let done = wait(PATIENCE * 3, || corrected(lab, &what));
            lab.daemon("stop", node, daemon);
            std::fs::write(&file, &text).unwrap();
            lab.daemon("start", node, daemon);
            assert!(!done, "{daemon} does its work without {one}");
            let back = wait(PATIENCE * 3, || corrected(lab, &what));
            assert!(back, "{daemon} does not do its work with {one} again");
            println!("{daemon} needs {one}");
        }
    }
    call(&[
        "kubectl",
        "delete",
        "frrconfiguration",
        EXTRA,
        "-n",
        "frr-k8s-system",
    ]);
    let gone = wait(PATIENCE * 3, || !running(lab, "n1").contains("203.0.113."));
    assert!(gone, "the object is gone, its neighbor is not");
    lab.recovers("1,5");
}

/// What a daemon does with a capability.
struct Work<'a> {
    node: &'a str,
    daemon: &'a str,
    capability: &'a str,
    /// Of the capability among the daemon's own.
    number: usize,
}

/// Gives the daemon something to do: a rule to put back, an object to bring into FRR. Other nodes it asks in any case.
fn broken(lab: &Standing, what: &Work<'_>) {
    let Work { node, number, .. } = *what;
    if what.daemon == "node-agent" {
        lab.exec(node, &["ip", "rule", "del", "pref", "31"]);
    } else {
        let object = json!({
            "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "FRRConfiguration",
            "metadata": {"name": EXTRA, "namespace": "frr-k8s-system"},
            "spec": {
                "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": node}},
                "bgp": {"routers": [{
                    "asn": lab.record("/values/as_number").parse::<u32>().unwrap(),
                    "neighbors": [{"address": neighbor(number), "asn": 64999}],
                }]},
            },
        });
        let file = lab.dir(node).join("extra.json");
        std::fs::write(&file, object.to_string()).unwrap();
        let said = call(&["kubectl", "apply", "-f", &file.to_string_lossy()]);
        assert!(said.good, "{}", said.text);
    }
    assert!(!corrected(lab, what), "nothing is broken");
}

fn corrected(lab: &Standing, what: &Work<'_>) -> bool {
    let Work { node, number, .. } = *what;
    if what.capability == "NET_RAW" {
        // The lab's nodes are new namespaces, in which nobody may use ping sockets.
        answered(node) > 0
    } else if what.daemon == "node-agent" {
        let rule = lab.exec(node, &["ip", "rule", "show", "pref", "31"]);
        !rule.trim().is_empty()
    } else {
        running(lab, node).contains(&format!("neighbor {} remote-as", neighbor(number)))
    }
}

/// Echo requests of a node's node-agent that other nodes have answered.
fn answered(node: &str) -> u64 {
    let (_, text) = http(node, AGENT, "/metrics");
    let of = "noverlay_path_mtu_probes_total{result=\"answered\"} ";
    let count = text.lines().find_map(|line| line.strip_prefix(of));
    let count = count.and_then(|count| count.trim().parse().ok());
    count.unwrap_or(0)
}

fn neighbor(number: usize) -> String {
    format!("203.0.113.{}", number + 1)
}

fn running(lab: &Standing, node: &str) -> String {
    let sockets = lab.dir(node).join("frr").to_string_lossy().into_owned();
    let words = [
        "vtysh",
        "--vty_socket",
        &sockets,
        "-c",
        "show running-config",
    ];
    lab.exec(node, &words)
}
