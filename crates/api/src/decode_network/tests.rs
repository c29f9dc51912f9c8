//! ClusterUserDefinedNetworks that the schema takes and that are wrong all the same.

use serde_json::{Value, json};

use super::*;

fn decoded(selector: Value, subnets: Value) -> m::ClusterUserDefinedNetwork {
    let object: ClusterUserDefinedNetwork = serde_json::from_value(json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "ClusterUserDefinedNetwork",
        "metadata": {"name": "blue"},
        "spec": {
            "namespaceSelector": selector,
            "network": {"topology": "Layer3", "layer3": {"role": "Primary", "subnets": subnets}},
        },
    }))
    .unwrap();
    m::ClusterUserDefinedNetwork::from(&object)
}

#[test]
fn a_subnet_that_cannot_be_used_costs_itself_and_the_only_one_the_network() {
    let good = json!({"cidr": "10.70.0.0/16"});
    for (cidr, words) in [
        (
            "10.71.0.0/25",
            "subnets[1].hostSubnet is absent, which is 24; allowed: 26 to 31",
        ),
        (
            "fd00:10::/64",
            "subnets[1].hostSubnet is absent, which is 64; allowed: 65 to 127",
        ),
    ] {
        let both = decoded(json!({}), json!([good, {"cidr": cidr}]))
            .network
            .unwrap();
        assert_eq!(both.subnets.len(), 1);
        assert_eq!(both.subnets[0].to_string(), "10.70.0.0/16/24");
        assert_eq!(both.refused.len(), 1);
        assert!(both.refused[0].contains(words), "{:?}", both.refused);
        let alone = decoded(json!({}), json!([{"cidr": cidr}])).network;
        assert!(alone.unwrap_err().contains("hostSubnet is absent"));
    }
}

#[test]
fn a_selector_that_cannot_be_read_costs_the_selector_only() {
    let selector =
        json!({"matchExpressions": [{"key": "team", "operator": "in", "values": ["a"]}]});
    let cudn = decoded(selector, json!([{"cidr": "10.70.0.0/16"}]));
    let why = cudn.namespaces.clone().unwrap_err();
    assert!(why.starts_with("spec.namespaceSelector: "), "{why}");
    assert!(cudn.network.is_ok());
    let namespace = m::Namespace {
        labels: [("team".to_owned(), "a".to_owned())].into(),
        deleting: false,
        multicast: false,
    };
    assert!(!cudn.selects(&namespace));
}

#[test]
fn an_object_of_another_shape_keeps_what_it_is_and_what_it_selects() {
    let mut object = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "ClusterUserDefinedNetwork",
        "metadata": {
            "name": "blue", "uid": "u1", "generation": 3, "labels": {"team": "a"},
            "creationTimestamp": "1970-01-01T00:01:40Z", "deletionTimestamp": "1970-01-01T00:02:00Z",
            "finalizers": ["f"],
        },
        "spec": {
            "namespaceSelector": {"matchLabels": {"tenant": "blue"}},
            "network": {"topology": "Layer9"},
        },
    });
    let cudn = read_cudn(&object);
    assert_eq!((cudn.name.as_str(), cudn.uid.as_str()), ("blue", "u1"));
    assert_eq!((cudn.generation, cudn.created), (3, 100));
    assert_eq!(cudn.labels["team"], "a");
    assert!(cudn.deleting && cudn.finalizers.contains("f"));
    assert_eq!(
        cudn.namespaces.unwrap().match_labels,
        [("tenant".to_owned(), "blue".to_owned())].into()
    );
    assert!(cudn.network.unwrap_err().contains("Layer9"));

    object["spec"] = Value::Null;
    let cudn = read_cudn(&object);
    assert_eq!(cudn.name, "blue");
    let why = cudn.namespaces.unwrap_err();
    assert!(why.starts_with("spec.namespaceSelector: "), "{why}");

    object["spec"] = json!({
        "namespaceSelector": {},
        "network": {"topology": "Layer3", "layer3": {"role": "Primary", "subnets": [{"cidr": "10.70.0.0/16"}]}},
    });
    assert!(read_cudn(&object).network.is_ok());
}

/// A network of this shape whose annotation asks for something.
fn annotated(network: Value, text: &str) -> m::ClusterUserDefinedNetwork {
    read_cudn(&json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "ClusterUserDefinedNetwork",
        "metadata": {"name": "blue", "annotations": {"noverlay.io/no-overlay": text}},
        "spec": {"namespaceSelector": {}, "network": network},
    }))
}

const ASKED: &str = r#"{"outboundSNAT":"Disabled","routing":"Managed"}"#;

#[test]
fn an_annotation_asks_for_what_the_object_says_otherwise_and_counts_beside_others_only() {
    let layer3 = json!({"role": "Primary", "subnets": [{"cidr": "10.70.0.0/16"}]});
    let asked = m::UserTransport::NoOverlay {
        outbound_snat: false,
        routing: Routing::Managed,
    };
    let transport = |cudn: m::ClusterUserDefinedNetwork| cudn.network.unwrap().transport;
    let cudn = annotated(json!({"topology": "Layer3", "layer3": layer3}), ASKED);
    assert_eq!(cudn.annotated, Some(Ok(asked)));
    assert_eq!(transport(cudn.clone()), m::UserTransport::Unset);
    assert_eq!(transport(cudn.beside()), asked);
    let bare = decoded(json!({}), json!([{"cidr": "10.70.0.0/16"}]));
    assert_eq!(bare.annotated, None);
    assert_eq!(transport(bare.beside()), m::UserTransport::Geneve);
    // The object's own word is OVN-Kubernetes' to follow.
    let options = json!({"outboundSNAT": "Enabled", "routing": "Unmanaged"});
    let own = annotated(
        json!({"topology": "Layer3", "layer3": layer3, "transport": "NoOverlay", "noOverlay": options}),
        ASKED,
    );
    let why = own.annotated.clone().unwrap().unwrap_err();
    assert!(why.contains("spec.network.transport NoOverlay"), "{why}");
    assert_eq!(transport(own.beside()), m::UserTransport::Geneve);
}

#[test]
fn an_annotation_that_cannot_be_read_is_said_and_asks_for_nothing() {
    let layer3 = json!({"topology": "Layer3", "layer3": {"role": "Primary", "subnets": [{"cidr": "10.70.0.0/16"}]}});
    for (text, words) in [
        ("yes", "is \"yes\""),
        ("{}", "missing field"),
        (
            r#"{"outboundSNAT":"enabled","routing":"Managed"}"#,
            "enabled",
        ),
        (r#"{"outboundSNAT":"Enabled"}"#, "routing"),
        (
            r#"{"outboundSNAT":"Enabled","routing":"Managed","x":1}"#,
            "unknown field",
        ),
    ] {
        let cudn = annotated(layer3.clone(), text);
        let why = cudn.annotated.clone().unwrap().unwrap_err();
        for part in ["noverlay.io/no-overlay", words, "allowed: JSON such as"] {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(
            cudn.beside().network.unwrap().transport,
            m::UserTransport::Geneve
        );
    }
    let secondary = json!({"topology": "Layer3", "layer3": {"role": "Secondary", "subnets": [{"cidr": "10.70.0.0/16"}]}});
    let layer2 =
        json!({"topology": "Layer2", "layer2": {"role": "Primary", "subnets": ["10.70.0.0/16"]}});
    for (network, words) in [
        (secondary, "Layer3 primary"),
        (layer2, "Layer3 primary"),
        (json!({"topology": "Layer9"}), "the object cannot be read"),
    ] {
        let why = annotated(network, ASKED).annotated.unwrap().unwrap_err();
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn an_attachment_describes_its_network_and_one_that_says_more_describes_none() {
    let described = |config: &str| {
        let object = json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": "blue", "namespace": "ns"}, "spec": {"config": config},
        });
        decode_attachment(&serde_json::from_value(object).unwrap()).described
    };
    let routed = r#"{"cniVersion":"1.1.0","type":"ovn-k8s-cni-overlay","name":"cluster_udn_blue","netAttachDefName":"ns/blue","role":"primary","topology":"layer3","mtu":1400,"subnets":"10.61.0.0/16/24,fd01::/48/64","joinSubnet":"100.65.0.0/16,fd99::/64","transport":"noOverlay","outboundSNAT":"enabled"}"#;
    let network = described(routed).unwrap();
    assert_eq!(network.topology, Topology::Layer3);
    assert!(network.primary && network.refused.is_empty());
    let texts: Vec<String> = network.subnets.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["10.61.0.0/16/24", "fd01::/48/64"]);
    assert_eq!(network.join_subnets.len(), 2);
    assert_eq!(network.mtu, Some(1400));
    let transport = m::UserTransport::NoOverlay {
        outbound_snat: true,
        routing: Routing::Unmanaged,
    };
    assert_eq!(network.transport, transport);
    // As OVN-Kubernetes spells it.
    let spelled = routed.replace("noOverlay", "no-overlay");
    assert_eq!(described(&spelled).as_ref(), Some(&network));

    // It writes no length where nobody said one.
    let unsaid = routed.replace("10.61.0.0/16/24,fd01::/48/64", "10.61.0.0/16,fd01::/48");
    assert_eq!(described(&unsaid), Some(network.clone()));

    let flat = r#"{"type":"ovn-k8s-cni-overlay","name":"n","role":"secondary","topology":"layer2","subnets":"10.62.0.0/16","allowPersistentIPs":true,"reservedSubnets":"10.62.0.0/24"}"#;
    let network = described(flat).unwrap();
    assert_eq!(network.topology, Topology::Layer2);
    assert!(!network.primary && network.layer2.persistent_ips);
    assert_eq!(network.subnets[0].cidr.to_string(), "10.62.0.0/16");
    assert_eq!(network.layer2.reserved, ["10.62.0.0/24"]);
    assert_eq!(network.transport, m::UserTransport::Unset);

    for (text, by) in [
        (r#""transport":"noOverlay""#, r#""transport":"evpn""#),
        (r#""mtu":1400"#, r#""evpn":{"vtep":"v"}"#),
        (r#""mtu":1400"#, r#""mtu":"large""#),
        (r#""topology":"layer3""#, r#""topology":"localnet""#),
        ("10.61.0.0/16/24", "10.61.0.0/16/12"),
        ("10.61.0.0/16/24", "10.61.0.0"),
        ("ovn-k8s-cni-overlay", "bridge"),
        (r#"{"cniVersion""#, r#"["cniVersion""#),
    ] {
        let config = routed.replace(text, by);
        assert_ne!(config, routed, "{text}");
        assert_eq!(described(&config), None, "{config}");
    }
}

#[test]
fn why_an_attachment_describes_no_network_names_key_and_value() {
    let why = |config: &str| {
        let object = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"config": config}});
        let attachment = read_attachment(&object);
        assert_eq!(attachment.created, 1_767_225_600);
        match attachment.undescribed.unwrap() {
            m::Undescribed::Config(why) => ("config", why),
            m::Undescribed::Transport(why) => ("transport", why),
        }
    };
    let base = r#"{"type":"ovn-k8s-cni-overlay","topology":"layer3","mtu":"x"}"#;
    let text = "spec.config: mtu is \"x\"; allowed: a number of bytes";
    assert_eq!(why(base), ("config", text.to_owned()));
    // Which transport it is matters more than what else is said of it.
    let evpn = base.replace("\"mtu\":", "\"evpn\":{},\"transport\":\"evpn\",\"mtu\":");
    let text = "spec.config: transport is \"evpn\"; allowed: noOverlay, or absent";
    assert_eq!(why(&evpn), ("transport", text.to_owned()));
    let (kind, text) = why("nothing");
    assert!(kind == "config" && text.starts_with("spec.config: no JSON object: "));
}
