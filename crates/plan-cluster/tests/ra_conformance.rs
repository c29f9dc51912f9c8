//! The planner against a recorded run of OVN-Kubernetes' own cluster manager.
//! In: the world of a case. Out: equality, as YAML says it and not only as our types read it, of labels, annotations, node
//! selectors, routers, BFD profiles, raw text, the condition, the base object and the events on the default network.
//! Not here: what differs on purpose: names of objects and of the fabric's label, the managed-by label, whom the base object
//! selects and what it lets in; the NAD's labels and annotations, which the manager makes itself.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::collections::BTreeMap;

use api::frr_configuration::FRRConfiguration;
use k8s_openapi::api::core::v1::Node as KubeNode;
use model::frr::{FrrConfiguration, RemoteAs, Session};
use model::network::Network;
use model::{Asn, NetworkName, intent};
use plan_cluster::advertise::Plan;
use plan_cluster::transport::{self, DefaultNetwork};
use plan_cluster::world::{FabricSettings, World};
use plan_cluster::{MANAGED_BY, RA_KEY, advertise, fabric};
use serde_json::Value;
use testkit::mk_network;

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).expect("test data are YAML")
}

fn recorded() -> Value {
    documents(include_str!(
        "ra-conformance/22-managed-default-three-nodes/expected.yaml"
    ))
    .remove(0)
}

fn world(resilient: bool) -> World {
    let mut world = World {
        networks: [(
            NetworkName::default_network(),
            Network {
                subnets: vec!["10.240.0.0/16/24".parse().unwrap()],
                ..mk_network()
            },
        )]
        .into(),
        frr_namespace: "frr-k8s-system".to_owned(),
        fabric: Some(FabricSettings {
            asn: Asn::try_from(64_777).unwrap(),
            namespace: "frr-k8s-system".to_owned(),
            resilient,
        }),
        ..World::default()
    };
    for object in documents(include_str!(
        "ra-conformance/22-managed-default-three-nodes/world.yaml"
    )) {
        if object["kind"] == "Node" {
            let node = api::decode_node(&serde_json::from_value::<KubeNode>(object).unwrap());
            world.nodes.insert(node.name.clone(), node);
        }
    }
    assert_eq!(world.nodes.len(), 3);
    fabric::complete(world)
}

fn planned(world: &World) -> (String, Plan) {
    let name = world.ras.keys().next().expect("the fabric has one").clone();
    let plan = advertise::plan(world, &name);
    assert!(plan.accepted(), "{:?}", plan.conditions);
    (name, plan)
}

/// Without what is the default of the server or of Go, as the recordings' own description lists it.
fn normal(value: &Value) -> Value {
    let default = |key: &str, value: &Value| match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty() || (key == "addressFamilies" && list == &["unicast"]),
        Value::String(text) => text.is_empty() || (key == "mode" && text == "filtered"),
        Value::Number(_) => false,
    };
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), normal(value)))
            .filter(|(key, value)| !default(key, value))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(list) => list.iter().map(normal).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn encoded(object: &FrrConfiguration) -> Value {
    normal(&serde_json::to_value(FRRConfiguration::from(object)).unwrap())
}

#[test]
fn managed_default_network_of_three_nodes_agrees() {
    let world = world(false);
    let (name, plan) = planned(&world);
    let base = fabric::base_name();
    let expected = recorded();
    let theirs = expected["frrconfigurations"].as_array().unwrap();
    let mut ours: BTreeMap<&str, &FrrConfiguration> = BTreeMap::new();
    for object in plan.desired.values() {
        ours.insert(
            &object.node_selector.match_labels["kubernetes.io/hostname"],
            object,
        );
    }
    assert_eq!(theirs.len(), ours.len());
    for object in theirs {
        let node = object["nodeSelector"]["matchLabels"]["kubernetes.io/hostname"]
            .as_str()
            .unwrap();
        let seen = encoded(ours[node]);
        assert_eq!(seen["metadata"]["namespace"], object["namespace"]);
        let mut spec = normal(&object["spec"]);
        spec["nodeSelector"] = normal(&object["nodeSelector"]);
        assert_eq!(seen["spec"], spec, "node {node}");
        // The same keys and values but for the names that are ours.
        let renamed = |text: &Value| {
            let text = text.as_str().unwrap();
            text.replace("ovnk-managed-bgp-default", &name)
                .replace("ovnk-managed-bgp", &base)
        };
        let mut labels: BTreeMap<String, String> =
            [(RA_KEY.to_owned(), renamed(&object["labels"][RA_KEY]))].into();
        assert_eq!(object["labels"].as_object().unwrap().len(), 1);
        labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned());
        assert_eq!(ours[node].labels, labels);
        let annotations = &object["annotations"];
        assert_eq!(annotations.as_object().unwrap().len(), 1);
        assert_eq!(
            ours[node].annotations,
            [(RA_KEY.to_owned(), renamed(&annotations[RA_KEY]))].into()
        );
    }
}

#[test]
fn the_condition_says_what_was_recorded() {
    let world = world(false);
    let (_, plan) = planned(&world);
    let expected = recorded();
    let list = expected["conditions"].as_array().unwrap();
    let of_ra = list.iter().find(|c| c["kind"] == "RouteAdvertisements");
    let theirs = of_ra.unwrap_or(&list[0])["conditions"].as_array().unwrap();
    let [theirs] = theirs.as_slice() else {
        panic!("{theirs:?}");
    };
    let ours = &plan.conditions[0];
    assert_eq!(ours.kind, theirs["type"]);
    assert_eq!(ours.word(), theirs["status"]);
    assert_eq!(ours.reason, theirs["reason"]);
    assert_eq!(ours.message, theirs["message"]);
}

#[test]
fn the_base_object_and_the_advertisement_ask_for_the_same() {
    let world = world(false);
    let expected = recorded();
    let managed = expected["managed"].as_array().unwrap();
    let find = |kind: &str| managed.iter().find(|o| o["kind"] == kind).unwrap();
    let base = fabric::plan(&world).base.unwrap();
    // Whom it selects differs on purpose, no node loads it; so does what it lets in: it is a template for what nodes load.
    let without_receive = |mut bgp: Value| {
        for neighbor in bgp["routers"][0]["neighbors"].as_array_mut().unwrap() {
            neighbor.as_object_mut().unwrap().remove("toReceive");
        }
        bgp
    };
    assert_eq!(
        without_receive(encoded(&base)["spec"]["bgp"].clone()),
        without_receive(normal(&find("FRRConfiguration")["spec"]["bgp"]))
    );
    let theirs = find("RouteAdvertisements");
    let object = serde_json::json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "RouteAdvertisements",
        "metadata": {"name": theirs["name"]}, "spec": theirs["spec"],
    });
    let theirs: api::route_advertisements::RouteAdvertisements =
        serde_json::from_value(object).unwrap();
    let mut theirs = intent::RouteAdvertisements::try_from(&theirs).unwrap();
    let ours = fabric::plan(&world).advertisement.unwrap();
    theirs.name.clone_from(&ours.name);
    theirs.frr_selector.clone_from(&ours.frr_selector);
    assert_eq!(ours, theirs);
}

#[test]
fn the_default_networks_attachment_has_the_recorded_configuration() {
    let ours: Value = serde_json::from_str(&api::nad::default_config()).unwrap();
    assert_eq!(ours, recorded()["nads"][0]["config"]);
}

#[test]
fn events_on_the_default_network_have_the_recorded_words() {
    let expected = recorded();
    let mut before = None;
    let states = [
        DefaultNetwork::NoRouteAdvertisements,
        DefaultNetwork::NotAccepted(vec!["ovnk-managed-bgp-default".to_owned()]),
        DefaultNetwork::Ready,
    ];
    let theirs = expected["events"].as_array().unwrap();
    assert_eq!(theirs.len(), states.len());
    for (now, theirs) in states.into_iter().zip(theirs) {
        let event = transport::event(before.as_ref(), &now).unwrap();
        let kind = if event.warning { "Warning" } else { "Normal" };
        assert_eq!(kind, theirs["type"]);
        assert_eq!(event.reason, theirs["reason"]);
        assert_eq!(event.message, theirs["message"]);
        before = Some(now);
    }
}

#[test]
fn the_default_profile_adds_timers_bfd_and_graceful_restart_and_nothing_else() {
    let (_, bare) = planned(&world(false));
    let (_, mut whole) = planned(&world(true));
    assert_eq!(whole.conditions, bare.conditions);
    for object in whole.desired.values_mut() {
        let [profile] = object.bfd_profiles.as_slice() else {
            panic!("{:?}", object.bfd_profiles);
        };
        assert_eq!(profile.name, fabric::BFD_PROFILE);
        object.bfd_profiles.clear();
        for neighbor in object.routers.iter_mut().flat_map(|r| &mut r.neighbors) {
            let asn = RemoteAs::Number(Asn::try_from(64_777).unwrap());
            let session = Session {
                hold_time: Some(9),
                keepalive_time: Some(3),
                connect_time: Some(2),
                bfd_profile: Some(fabric::BFD_PROFILE.to_owned()),
                graceful_restart: true,
                ..Session::new(asn)
            };
            assert_eq!(neighbor.session, session);
            neighbor.session = Session::new(asn);
        }
    }
    assert_eq!(whole.desired, bare.desired);
}
