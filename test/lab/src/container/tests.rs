//! What is read from pod templates, and what is refused.

use serde_json::json;

use super::*;

fn around() -> Surroundings {
    Surroundings {
        programs: "/build".into(),
        fields: BTreeMap::from([("spec.nodeName", "n1".to_owned())]),
        config: "/lab/config".into(),
        account: "/lab/account".into(),
        host: BTreeMap::from([("/var/run/frr", PathBuf::from("/"))]),
        server: ("172.30.0.250".to_owned(), 6443),
    }
}

fn template() -> Value {
    json!({"spec": {
        "hostNetwork": true,
        "securityContext": {"supplementalGroups": [107], "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "agent", "image": "x",
            "command": ["agent", "--config", "/etc/noverlay/noverlay.conf", "--node", "$(NODE_NAME)"],
            "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}],
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true, "runAsUser": 65532,
                "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
            },
            "volumeMounts": [
                {"name": "config", "mountPath": "/etc/noverlay", "readOnly": true},
                {"name": "run", "mountPath": "/var/run/frr"},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }],
        "volumes": [
            {"name": "config", "configMap": {"name": "c"}},
            {"name": "run", "hostPath": {"path": "/var/run/frr", "type": "Directory"}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }})
}

#[test]
fn user_rights_mounts_and_words_are_those_of_the_template() {
    let container = Container::of(&template(), &around()).unwrap();
    assert_eq!(container.program, Path::new("/build/agent"));
    assert_eq!(
        container.arguments,
        ["--config", "/etc/noverlay/noverlay.conf", "--node", "n1"]
    );
    assert_eq!((container.uid, container.gid), (65532, 0));
    assert_eq!(container.groups, [107]);
    assert_eq!(container.capabilities, ["NET_ADMIN"]);
    assert!(container.no_new_privileges && container.read_only);
    let mounts: Vec<(Option<&str>, &str, bool)> = container
        .mounts
        .iter()
        .map(|m| {
            let from = m.from.as_ref().and_then(|from| from.to_str());
            (from, m.to.to_str().unwrap(), m.read_only)
        })
        .collect();
    assert_eq!(
        mounts,
        [
            (Some("/lab/account"), ACCOUNT, true),
            (Some("/lab/config"), "/etc/noverlay", true),
            (Some("/"), "/var/run/frr", false),
            (None, "/tmp", false),
        ]
    );
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    let cases = [
        ("/spec/hostNetwork", json!(false), "hostNetwork"),
        ("/spec/hostPID", json!(true), "hostPID"),
        ("/spec/securityContext/fsGroup", json!(1), "fsGroup"),
        (
            "/spec/containers/0/securityContext/privileged",
            json!(true),
            "privileged",
        ),
        (
            "/spec/containers/0/securityContext/runAsUser",
            json!(0),
            "runAsNonRoot",
        ),
        (
            "/spec/containers/0/securityContext/capabilities/drop",
            json!([]),
            "drop",
        ),
        (
            "/spec/securityContext/seccompProfile/type",
            json!("Localhost"),
            "Localhost",
        ),
        (
            "/spec/volumes/1/hostPath/path",
            json!("/var/lib"),
            "/var/lib",
        ),
        ("/spec/volumes/1/hostPath/type", json!("Socket"), "Socket"),
        ("/spec/volumes/1/name", json!("other"), "run"),
        (
            "/spec/containers/0/volumeMounts/1/subPath",
            json!("x"),
            "subPath",
        ),
        (
            "/spec/containers/0/env/0/valueFrom/fieldRef/fieldPath",
            json!("status.podIP"),
            "status.podIP",
        ),
        ("/spec/containers/1", json!({}), "exactly one"),
    ];
    for (path, value, named) in cases {
        let mut template = template();
        let (parent, key) = path.rsplit_once('/').unwrap();
        let parent = template.pointer_mut(parent).unwrap();
        if let Some(items) = parent.as_array_mut() {
            items.push(value);
        } else {
            parent
                .as_object_mut()
                .unwrap()
                .insert(key.to_owned(), value);
        }
        let error = format!("{:#}", Container::of(&template, &around()).unwrap_err());
        assert!(error.contains(named), "{path}: {error}");
    }
}
