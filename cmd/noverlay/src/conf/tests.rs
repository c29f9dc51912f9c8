//! What counts of what is given.

use super::documents::File;
use super::*;

const OBJECT: &str = "\
apiVersion: frrk8s.metallb.io/v1beta1
kind: FRRConfiguration
metadata: {name: c1, namespace: frr-k8s-system}
spec:
  nodeSelector: {matchLabels: {rack: r1}}
  bgp:
    routers:
    - asn: 64512
      neighbors:
      - {address: 172.30.0.2, asn: 64512, passwordSecret: {name: peering}}
";
const SECRET: &str = "\
apiVersion: v1
kind: Secret
metadata: {name: peering, namespace: frr-k8s-system}
type: kubernetes.io/basic-auth
stringData: {password: s3cret}
";

fn read(text: &str) -> anyhow::Result<Documents> {
    let mut documents = Documents::default();
    let file = File {
        name: "in.yaml".to_owned(),
        text: text.to_owned(),
    };
    documents.read(&file, "frr-k8s-system")?;
    Ok(documents)
}

fn asked(labels: &[&str]) -> Asked {
    let given: Vec<String> = labels.iter().map(|l| (*l).to_owned()).collect();
    Asked {
        node: NodeName::from("n1"),
        labels: super::labels(&given).unwrap(),
        namespace: "frr-k8s-system".to_owned(),
        not_listening: std::collections::BTreeSet::new(),
    }
}

fn forecast_of(text: &str, labels: &[&str]) -> render::Forecast {
    forecast(&read(text).unwrap(), &asked(labels))
}

fn neighbors(forecast: &render::Forecast) -> usize {
    let text = forecast.text.as_deref().unwrap();
    text.matches(" remote-as ").count()
}

#[test]
fn labels_decide_which_objects_count_and_a_node_object_gives_them() {
    let text = format!("{OBJECT}---\n{SECRET}");
    assert_eq!(neighbors(&forecast_of(&text, &["rack=r1"])), 1);
    let without = forecast_of(&text, &[]);
    assert_eq!(neighbors(&without), 0);
    assert!(
        without
            .messages()
            .contains("no FRRConfiguration of namespace frr-k8s-system selects node n1")
    );
    let node = "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {rack: r1, kubernetes.io/hostname: host1}}\nstatus: {addresses: [{type: InternalIP, address: 172.30.0.2}]}\n";
    let with = forecast_of(&format!("{text}{node}"), &["rack=r2"]);
    assert!(with.text.as_deref().unwrap().contains("hostname host1\n"));
    assert!(with.messages().contains("--labels is without effect"));
    // Its address is the neighbor's.
    assert_eq!(with.lints[0].reason, "SelfNeighbor");
    assert_eq!(neighbors(&with), 0);
}

#[test]
fn lists_json_and_other_kinds_are_read_as_kubectl_prints_them() {
    let object: serde_json::Value = serde_saphyr::from_str(OBJECT).unwrap();
    let secret: serde_json::Value = serde_saphyr::from_str(SECRET).unwrap();
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [object, secret]});
    let pod = "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\"}}";
    let text = format!("{list}\n{pod}\n");
    assert_eq!(neighbors(&forecast_of(&text, &["rack=r1"])), 1);
    let mut bare = object.clone();
    bare.as_object_mut().unwrap().remove("kind");
    bare.as_object_mut().unwrap().remove("apiVersion");
    let typed = serde_json::json!({"apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "FRRConfigurationList", "items": [bare]});
    let text = format!(
        "---\n---\n{SECRET}---\n{}",
        serde_saphyr::to_string(&typed).unwrap()
    );
    assert_eq!(neighbors(&forecast_of(&text, &["rack=r1"])), 1);
}

#[test]
fn objects_of_other_namespaces_are_named_and_change_nothing() {
    let elsewhere = OBJECT.replace("frr-k8s-system", "metallb-system");
    let seen = forecast_of(&elsewhere, &["rack=r1"]);
    assert_eq!(neighbors(&seen), 0);
    assert!(seen.is_well());
    assert!(seen.messages().contains("FRRConfiguration/metallb-system/c1 is without effect: only namespace frr-k8s-system is read"));
    let homeless = OBJECT.replace(", namespace: frr-k8s-system", "");
    let seen = forecast_of(&format!("{homeless}---\n{SECRET}"), &["rack=r1"]);
    assert_eq!(neighbors(&seen), 1);
    assert!(
        seen.messages()
            .contains("FRRConfiguration/c1 names no namespace; taken as one of frr-k8s-system")
    );
}

#[test]
fn a_secret_without_password_is_a_conflict_that_says_why() {
    for (secret, why) in [
        (String::new(), "there is no Secret frr-k8s-system/peering"),
        (
            SECRET.replace("kubernetes.io/basic-auth", "Opaque"),
            "is of type Opaque",
        ),
        (SECRET.replace("password:", "pass:"), "has no key password"),
    ] {
        let seen = forecast_of(&format!("{OBJECT}---\n{secret}"), &["rack=r1"]);
        assert!(seen.text.is_none());
        assert!(seen.messages().contains(why), "{}", seen.messages());
        assert!(
            seen.messages()
                .contains("neighbors[172.30.0.2] of frr-k8s-system/c1: passwordSecret peering")
        );
    }
}

#[test]
fn an_object_that_uses_evpn_is_refused_by_name_and_the_rest_stands() {
    let evpn = OBJECT.replace("name: c1", "name: c2").replace(
        "asn: 64512\n",
        "asn: 64512\n      evpn: {advertiseVNIs: All}\n",
    );
    let seen = forecast_of(&format!("{OBJECT}---\n{evpn}---\n{SECRET}"), &["rack=r1"]);
    assert_eq!(neighbors(&seen), 1);
    assert!(!seen.is_well());
    assert!(
        seen.messages()
            .contains("FRRConfiguration/frr-k8s-system/c2 field spec.bgp.routers[0].evpn"),
        "{}",
        seen.messages()
    );
}

#[test]
fn a_field_that_cannot_be_honoured_stops_the_text_as_with_frr_k8s() {
    let broken = OBJECT.replace(
        "asn: 64512, passwordSecret",
        "asn: 64512, holdTime: 1x, passwordSecret",
    );
    let seen = forecast_of(&format!("{broken}---\n{SECRET}"), &["rack=r1"]);
    assert!(seen.text.is_none());
    assert!(
        seen.messages()
            .contains("spec.bgp.routers[0].neighbors[0].holdTime"),
        "{}",
        seen.messages()
    );
    // On a node that it does not select it costs nothing.
    assert!(forecast_of(&broken, &[]).text.is_some());
}

#[test]
fn an_object_without_spec_is_read_as_one_that_asks_for_nothing() {
    let text = "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\nmetadata: {name: a, namespace: ns}\n";
    let documents = read(text).unwrap();
    let source = &documents.sources[&model::ObjectKey::new("ns", "a")];
    assert!(source.object.as_ref().unwrap().routers.is_empty());
}

#[test]
fn what_cannot_be_read_names_file_and_document() {
    let rows = [
        ("a: [", "in.yaml is not YAML"),
        ("{\"a\": ", "in.yaml is not JSON"),
        ("just words", "document 1 is no object: it has no kind"),
        (
            "kind: FRRConfiguration\nmetadata: {name: a}\n",
            "without apiVersion",
        ),
        (
            "apiVersion: frrk8s.metallb.io/v1\nkind: FRRConfiguration\nmetadata: {name: a}\n",
            "apiVersion \"frrk8s.metallb.io/v1\" is not known",
        ),
        (
            "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\nmetadata: {name: a}\nspec: {bgp: {routers: 5}}\n",
            "in.yaml, document 1 is no FRRConfiguration",
        ),
        (
            "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\nmetadata: {}\nspec: {}\n",
            "without metadata.name",
        ),
    ];
    for (text, wanted) in rows {
        let error = format!("{:#}", read(text).unwrap_err());
        assert!(error.contains(wanted), "{text}: {error}");
    }
    let twice = format!("{OBJECT}---\n{OBJECT}");
    assert!(
        read(&twice)
            .unwrap_err()
            .to_string()
            .contains("frr-k8s-system/c1 is there twice")
    );
    for bad in ["x", "=y"] {
        let error = super::labels(&[bad.to_owned()]).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{bad:?} is not a label")),
            "{error}"
        );
    }
}

#[test]
fn nodes_that_do_not_listen_are_reported_for_each_neighbor_that_is_one() {
    let nodes: String = ["n1", "n2"].iter().enumerate().map(|(at, name)| format!("---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{rack: r1}}}}\nstatus: {{addresses: [{{type: InternalIP, address: 172.30.0.{}}}]}}\n", at + 1)).collect();
    let documents = read(&format!("{OBJECT}---\n{SECRET}{nodes}")).unwrap();
    for (deaf, reported) in [
        (vec!["*"], true),
        (vec!["n1", "n2"], true),
        (vec!["n1"], false),
        (vec![], false),
    ] {
        let mut asked = asked(&[]);
        asked.not_listening = deaf.iter().map(|n| (*n).to_owned()).collect();
        let seen = forecast(&documents, &asked);
        assert_eq!(
            seen.messages().contains("BGPListenDisabled"),
            reported,
            "{deaf:?}"
        );
    }
}
