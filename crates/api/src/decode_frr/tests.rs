//! What is carried over, and what is a problem by name.

use super::*;

fn decode(yaml: &str) -> Result<m::FrrConfiguration, Vec<Problem>> {
    let object: FRRConfiguration = serde_saphyr::from_str(&format!(
        "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\nmetadata: {{name: c, namespace: ns}}\nspec:\n{yaml}"
    ))
    .unwrap();
    m::FrrConfiguration::try_from(&object)
}

#[test]
fn an_object_goes_to_the_model_and_back_unchanged() {
    let value = decode(
        r#"
  nodeSelector: {matchLabels: {a: b}}
  raw: {priority: 10, rawConfig: "x"}
  bgp:
    routers:
    - asn: 64512
      id: 1.2.3.4
      prefixes: [10.0.1.0/24]
      imports: [{vrf: red}]
      neighbors:
      - address: 10.0.0.2
        asn: 64513
        holdTime: 9s
        keepaliveTime: 3s
        connectTime: 2s
        port: 1179
        ebgpMultiHop: true
        toAdvertise:
          allowed: {prefixes: [10.0.1.0/24]}
          withLocalPref: [{localPref: 5, prefixes: [10.0.1.0/24]}]
          withCommunity: [{community: "large:1:2:3", prefixes: [10.0.1.0/24]}]
        toReceive: {allowed: {prefixes: [{prefix: 10.0.0.0/16, ge: 24, le: 24}]}}
      - interface: eth1
        dynamicASN: external
        toReceive: {allowed: {mode: all}}
    bfdProfiles: [{name: fast, receiveInterval: 100}]
"#,
    )
    .unwrap();
    let back = FRRConfiguration::from(&value);
    assert_eq!(m::FrrConfiguration::try_from(&back).unwrap(), value);
    assert_eq!(value.routers[0].neighbors[0].session.hold_time, Some(9));
    assert!(value.routers[0].neighbors[1].receive.all);
}

#[test]
fn every_field_that_cannot_be_honoured_is_named_and_all_are_reported_at_once() {
    let problems = decode(
        r#"
  bgp:
    routers:
    - asn: 0
      prefixes: [10.0.1.0]
      neighbors:
      - {address: 10.0.0.2, interface: x, asn: 1}
      - {asn: 1}
      - {address: router, asn: 1}
      - {address: 10.0.0.3}
      - {address: 10.0.0.4, asn: 1, dynamicASN: internal}
      - {address: 10.0.0.5, asn: 1, holdTime: 9s}
      - {address: 10.0.0.6, asn: 1, holdTime: 2s, keepaliveTime: 1s}
      - {address: 10.0.0.7, asn: 1, holdTime: 9s, keepaliveTime: 10s}
      - {address: 10.0.0.8, asn: 1, connectTime: 0s}
      - {address: 10.0.0.9, asn: 1, port: -1}
      - {address: 10.0.0.10, asn: 1, password: x, passwordSecret: {name: y}}
      - {address: 10.0.0.11, asn: 1, toReceive: {allowed: {prefixes: [{prefix: 10.0.0.0/16, ge: 8}]}}}
      - {address: 10.0.0.12, asn: 1, toReceive: {allowed: {prefixes: [{prefix: 10.0.0.0/16, ge: 24, le: 20}]}}}
      - {address: 10.0.0.13, asn: 1, toAdvertise: {withCommunity: [{community: "70000:1", prefixes: [10.0.0.0/8]}]}}
      - {address: 10.0.0.14, asn: 1, toAdvertise: {nextHop: {ipv4: "fd00::1"}}}
      - {address: 10.0.0.15, asn: 23456}
"#,
    )
    .unwrap_err();
    for needle in [
        "routers[0].asn: AS number 0 is reserved",
        "routers[0].prefixes: \"10.0.1.0\"",
        "neighbors[0]: address \"10.0.0.2\" and interface \"x\"",
        "neighbors[1]: neither address nor interface",
        "neighbors[2].address: \"router\"",
        "neighbors[3]: neighbor without asn",
        "neighbors[4]: asn 1 and dynamicASN",
        "neighbors[5].holdTime: holdTime \"9s\" is set without keepaliveTime",
        "neighbors[6].holdTime: 2s is too short",
        "neighbors[7].keepaliveTime: 10s is longer",
        "neighbors[8].connectTime: out of range",
        "neighbors[9].port: -1",
        "neighbors[10].password",
        "ge 8 of prefix 10.0.0.0/16 is out of range",
        "ge 24 of prefix 10.0.0.0/16 is more than le 20",
        "\"70000:1\" is neither",
        "nextHop.ipv4: \"fd00::1\"",
        "neighbors[15].asn: AS number 23456",
    ] {
        assert!(
            problems.iter().any(|p| p.message.contains(needle)),
            "{needle} not in {problems:#?}"
        );
    }
    assert_eq!(problems.len(), 18);
    assert!(
        problems
            .iter()
            .all(|p| p.subject == "FRRConfiguration/ns/c")
    );
}

#[test]
fn text_that_would_end_its_line_is_refused_wherever_it_becomes_part_of_one_and_is_not_repeated() {
    let problems = decode(
        r#"
  bgp:
    routers:
    - asn: 1
      id: "1.1.1.1\n x"
      vrf: "red\n x"
      imports: [{vrf: "blue\n x"}]
      neighbors:
      - {address: 10.0.0.2, asn: 1, sourceaddress: "lo\n x", password: "hush\n x", bfdProfile: "b\n x"}
      - {interface: "eth0\r x", asn: 1}
      - {address: "10.0.0.2\n x", asn: 1}
    bfdProfiles: [{name: "b\t x"}]
"#,
    )
    .unwrap_err();
    for field in [
        "routers[0].id",
        "routers[0].vrf",
        "routers[0].imports.vrf",
        "neighbors[0].sourceaddress",
        "neighbors[0].password",
        "neighbors[0].bfdProfile",
        "neighbors[1].interface",
        "neighbors[2].address",
        "bfdProfiles[0].name",
    ] {
        let named = problems.iter().any(|p| p.message.contains(field));
        assert!(named, "{field} is not in {problems:#?}");
    }
    assert_eq!(problems.len(), 9);
    for problem in &problems {
        assert!(!problem.message.contains(char::is_control), "{problem}");
        assert!(!problem.message.contains("hush"), "{problem}");
    }
}

#[test]
fn what_can_be_read_of_an_object_of_a_wrong_shape_is_read() {
    let object: DynamicObject = serde_json::from_value(serde_json::json!({
        "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "FRRConfiguration",
        "metadata": {"name": "x", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"nodeSelector": {"matchLabels": {"e": "f"}}, "bgp": {"routers": [
            {"asn": "no number", "prefixes": ["10.1.0.0/24", 7, "x"]},
            {"asn": 1, "vrf": "default", "prefixes": ["fd00::/64"]},
            {"asn": 1, "vrf": "red", "prefixes": ["10.2.0.0/24"]},
            "no router",
        ]}},
    }))
    .unwrap();
    let found = remains(&object);
    assert_eq!(found.labels["a"], "b");
    assert_eq!(found.annotations["c"], "d");
    assert_eq!(found.node_selector, Some(LabelSelector::label("e", "f")));
    let prefixes: Vec<String> = found.prefixes.iter().map(ToString::to_string).collect();
    assert_eq!(prefixes, ["10.1.0.0/24", "fd00::/64"]);
    let nothing = remains(&DynamicObject {
        data: serde_json::json!({"spec": {"nodeSelector": 7, "bgp": []}}),
        ..object
    });
    assert_eq!(
        (nothing.node_selector, nothing.prefixes),
        (None, Vec::new())
    );
}

#[test]
fn an_object_without_spec_asks_for_nothing_and_selects_everybody() {
    for spec in [
        None,
        Some(serde_json::Value::Null),
        Some(serde_json::json!({})),
    ] {
        let mut object = serde_json::json!({
            "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "FRRConfiguration",
            "metadata": {"name": "empty", "namespace": "frr-k8s-system"},
        });
        if let Some(spec) = spec {
            object["spec"] = spec;
        }
        let key = ObjectKey::new("frr-k8s-system", "empty");
        let source = decode_source(key.clone(), read_source(&object));
        let read = source.object.unwrap();
        assert_eq!(read.key, key);
        assert!(read.routers.is_empty() && read.raw.is_none());
        assert_eq!(read.node_selector, LabelSelector::default());
    }
    let wrong = serde_json::json!({"metadata": {"name": "x"}, "spec": {"bgp": 5}});
    assert!(read_source(&wrong).is_err());
}
