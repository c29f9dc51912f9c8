//! Which objects there are, whose they are, and what they store.

use super::*;
use crate::samples::{mk_cudn, mk_world};
use model::network::{Routing, Topology};
use model::user_network::Layer2Extras;

/// A namespace that may have a primary network, of a tenant.
fn namespace(tenant: &str) -> Namespace {
    let labels = [("tenant", tenant), (PRIMARY_LABEL, "")];
    Namespace {
        labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        deleting: false,
        multicast: false,
    }
}

fn mk() -> World {
    let mut world = mk_world();
    for (name, tenant) in [("shop", "amber"), ("till", "amber"), ("mine", "cobalt")] {
        world.namespaces.insert(name.to_owned(), namespace(tenant));
    }
    for (name, n) in [("amber", 2), ("cobalt", 1)] {
        world.cudns.insert(name.to_owned(), mk_cudn(name, n));
    }
    world
}

fn planned(world: &World) -> Plan {
    plan(world, &BTreeMap::new())
}

/// The world with the planned objects in it.
fn stored(mut world: World) -> World {
    for (key, wanted) in planned(&world).desired {
        let attachment = Attachment {
            uid: format!("uid-of-{key}"),
            labels: wanted.labels,
            annotations: wanted.annotations,
            finalizers: [FINALIZER.to_owned()].into(),
            owner: Some(wanted.owner.1),
            deleting: false,
            config: String::new(),
            described: Some(wanted.network.1.clone()),
            network: Some((wanted.network.0, wanted.network.1.primary)),
            ..Attachment::default()
        };
        world.attachments.insert(key, attachment);
    }
    world
}

fn cudn<'a>(world: &'a mut World, name: &str) -> &'a mut ClusterUserDefinedNetwork {
    world.cudns.get_mut(name).unwrap()
}

fn keys(plan: &Plan) -> Vec<String> {
    plan.desired.keys().map(ToString::to_string).collect()
}

fn id(plan: &Plan, key: (&str, &str)) -> String {
    plan.desired[&ObjectKey::new(key.0, key.1)].annotations[NETWORK_ID].clone()
}

fn message(plan: &Plan, name: &str) -> String {
    let condition = &plan.created[name];
    format!(
        "{} {}: {}",
        condition.word(),
        condition.reason,
        condition.message
    )
}

#[test]
fn each_selected_namespace_has_one_object_and_all_of_a_network_one_id_that_stays() {
    let world = mk();
    let plan = planned(&world);
    assert_eq!(keys(&plan), ["mine/cobalt", "shop/amber", "till/amber"]);
    // The elder has the smaller one.
    assert_eq!(id(&plan, ("mine", "cobalt")), "1");
    assert_eq!(id(&plan, ("shop", "amber")), "2");
    assert_eq!(id(&plan, ("till", "amber")), "2");
    assert_eq!(
        plan.finalizers,
        [("amber".to_owned(), true), ("cobalt".to_owned(), true)].into()
    );
    // What stands is as it is wanted; the other's going does not move the id, and a new one takes what is free.
    let mut world = stored(world);
    let plan = planned(&world);
    let as_wanted =
        |(key, wanted): (&ObjectKey, &Wanted)| wanted.describes(&world.attachments[key]);
    assert!(plan.desired.iter().all(as_wanted));
    assert_eq!(plan.surplus, BTreeMap::new());
    world.cudns.remove("cobalt");
    world.attachments.retain(|key, _| key.name != "cobalt");
    world.cudns.insert("jade".to_owned(), mk_cudn("jade", 9));
    world
        .namespaces
        .insert("vault".to_owned(), namespace("jade"));
    let plan = planned(&world);
    assert_eq!(id(&plan, ("shop", "amber")), "2");
    assert_eq!(id(&plan, ("vault", "jade")), "1");
}

#[test]
fn a_namespace_has_one_primary_network_the_elders_and_secondary_ones_beside_it() {
    let mut world = mk();
    let all = model::LabelSelector::default();
    for name in ["amber", "cobalt"] {
        cudn(&mut world, name).namespaces = Ok(all.clone());
    }
    let plan = planned(&world);
    assert_eq!(
        keys(&plan),
        ["mine/cobalt", "shop/cobalt", "till/cobalt"],
        "created first"
    );
    let said = message(&plan, "amber");
    assert!(
        said.starts_with(
            "False NetworkAttachmentDefinitionSyncError: primary network already exist"
        ),
        "{said}"
    );
    // A secondary one needs no label, and disturbs no primary one.
    if let Ok(network) = &mut cudn(&mut world, "amber").network {
        network.primary = false;
        network.transport = UserTransport::Unset;
    }
    world.namespaces.get_mut("till").unwrap().labels.clear();
    let plan = planned(&world);
    assert_eq!(
        keys(&plan),
        [
            "mine/amber",
            "mine/cobalt",
            "shop/amber",
            "shop/cobalt",
            "till/amber"
        ]
    );
    assert!(
        message(&plan, "cobalt").contains("namespace till lacks label"),
        "{}",
        message(&plan, "cobalt")
    );
    // One that has its object keeps it, whatever becomes of the label.
    let mut world = stored(mk());
    world
        .namespaces
        .get_mut("till")
        .unwrap()
        .labels
        .remove(PRIMARY_LABEL);
    assert!(keys(&planned(&world)).contains(&"till/amber".to_owned()));
}

#[test]
fn objects_of_others_are_neither_written_nor_let_go() {
    let mut world = mk();
    let foreign = Attachment {
        labels: [(LABEL.to_owned(), String::new())].into(),
        ..Attachment::default()
    };
    world
        .attachments
        .insert(ObjectKey::new("shop", "amber"), foreign);
    let plan = planned(&world);
    assert_eq!(keys(&plan), ["mine/cobalt", "till/amber"]);
    assert!(plan.surplus.is_empty());
    let said = message(&plan, "amber");
    assert!(
        said.contains(
            "foreign NetworkAttachmentDefinition with the desired name already exist [shop/amber]"
        ),
        "{said}"
    );
}

#[test]
fn what_is_no_longer_selected_goes_and_the_network_after_its_last_object() {
    let mut world = stored(mk());
    world
        .namespaces
        .get_mut("till")
        .unwrap()
        .labels
        .remove("tenant");
    let plan = planned(&world);
    let surplus: Vec<String> = plan.surplus.keys().map(ToString::to_string).collect();
    assert_eq!(surplus, ["till/amber"]);
    cudn(&mut world, "amber").deleting = true;
    let plan = planned(&world);
    assert_eq!(plan.surplus.len(), 2);
    assert!(plan.finalizers["amber"], "its objects first");
    assert_eq!(
        message(&plan, "amber"),
        "False NetworkAttachmentDefinitionDeleted: NetworkAttachmentDefinition are being deleted: [shop till]"
    );
    world.attachments.retain(|key, _| key.name != "amber");
    let plan = planned(&world);
    assert!(!plan.finalizers["amber"]);
    // One that is gone without having waited leaves objects to let go, and one that cannot be read none.
    let mut world = stored(mk());
    world.cudns.remove("amber");
    let plan = planned(&world);
    assert_eq!(plan.surplus.values().collect::<Vec<_>>(), [&None, &None]);
    let mut world = stored(mk());
    cudn(&mut world, "amber").network = Err("it cannot be read".to_owned());
    let plan = planned(&world);
    assert!(plan.surplus.is_empty(), "{:?}", plan.surplus);
    assert_eq!(
        message(&plan, "amber"),
        "False NetworkNotSupported: it cannot be read"
    );
}

#[test]
fn a_network_that_is_not_ours_to_make_keeps_what_it_has() {
    let mut world = stored(mk());
    cudn(&mut world, "amber").network =
        Err("spec.network.transport EVPN is not supported".to_owned());
    let plan = planned(&world);
    assert_eq!(keys(&plan), ["mine/cobalt"]);
    assert!(plan.surplus.is_empty());
    assert_eq!(
        message(&plan, "amber"),
        "False NetworkNotSupported: spec.network.transport EVPN is not supported"
    );
}

#[test]
fn layer_2_networks_have_tunnel_keys_that_stay_and_no_two_have_one() {
    let mut world = mk();
    for name in ["amber", "cobalt"] {
        if let Ok(network) = &mut cudn(&mut world, name).network {
            network.topology = Topology::Layer2;
            network.transport = UserTransport::Unset;
            network.layer2 = Layer2Extras::default();
        }
    }
    let tunnel_keys = |world: &World| -> Vec<String> {
        let plan = planned(world);
        let all = ["mine/cobalt", "shop/amber", "till/amber"];
        let of = |key: &ObjectKey| all.contains(&key.to_string().as_str());
        plan.desired
            .iter()
            .filter(|(key, _)| of(key))
            .map(|(_, w)| w.annotations[TUNNEL_KEYS].clone())
            .collect()
    };
    // By the id, and the first ones that are free.
    let wanted = [
        "[16711684,16715779]",
        "[16711685,16715780]",
        "[16711685,16715780]",
    ];
    assert_eq!(tunnel_keys(&world), wanted);
    let mut world = stored(world);
    world.cudns.insert("jade".to_owned(), mk_cudn("jade", 0));
    world
        .namespaces
        .insert("vault".to_owned(), namespace("jade"));
    assert_eq!(
        tunnel_keys(&world),
        wanted,
        "an elder one without objects takes none of them"
    );
    // A secondary one has the first key only.
    if let Ok(network) = &mut cudn(&mut world, "cobalt").network {
        network.primary = false;
    }
    assert_eq!(tunnel_keys(&world)[0], "[16711684]");
}

#[test]
fn labels_and_annotations_are_the_networks_but_for_those_that_belong_to_others() {
    let mut world = mk();
    let amber = cudn(&mut world, "amber");
    amber.labels.insert("export".to_owned(), "yes".to_owned());
    amber.annotations = [("note", "mine"), ("k8s.ovn.org/secret", "theirs")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
    let names = BTreeSet::from(["b".to_owned(), "a".to_owned()]);
    let advertised = BTreeMap::from([("cluster_udn_amber".into(), names)]);
    let plan = plan(&world, &advertised);
    let wanted = &plan.desired[&ObjectKey::new("shop", "amber")];
    let labels: Vec<(&str, &str)> = wanted
        .labels
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    assert_eq!(labels, [("export", "yes"), (LABEL, "")]);
    let annotations: Vec<&str> = wanted.annotations.keys().map(String::as_str).collect();
    assert_eq!(
        annotations,
        [
            NETWORK_ID,
            NETWORK_NAME,
            RA_KEY,
            TUNNEL_KEYS,
            "note",
            ROUTING
        ]
    );
    assert_eq!(wanted.annotations[RA_KEY], r#"["a","b"]"#);
    // Once named, an empty list.
    let world = {
        let mut world = stored(world);
        let attachment = world
            .attachments
            .get_mut(&ObjectKey::new("shop", "amber"))
            .unwrap();
        attachment
            .annotations
            .insert(RA_KEY.to_owned(), r#"["a"]"#.to_owned());
        world
    };
    let plan = planned(&world);
    assert_eq!(
        plan.desired[&ObjectKey::new("shop", "amber")].annotations[RA_KEY],
        "[]"
    );
    assert!(
        !plan.desired[&ObjectKey::new("till", "amber")]
            .annotations
            .contains_key(RA_KEY)
    );
}

#[test]
fn a_selector_that_cannot_be_read_takes_no_namespace_and_gives_none_back() {
    let mut world = stored(mk());
    let text = "spec.namespaceSelector: operator in".to_owned();
    cudn(&mut world, "amber").namespaces = Err(text.clone());
    world
        .namespaces
        .insert("new".to_owned(), namespace("amber"));
    let now = planned(&world);
    assert_eq!(keys(&now), ["mine/cobalt", "shop/amber", "till/amber"]);
    assert_eq!(now.surplus, BTreeMap::new());
    assert!(
        message(&now, "amber").contains(&text),
        "{}",
        message(&now, "amber")
    );
    // Nor do its network and its RouteAdvertisements go.
    world.networks.extend(user_networks::networks(&world));
    let fabric = crate::fabric::plan(&world);
    assert_eq!((fabric.advertisements.len(), fabric.labelled.len()), (3, 2));
}

#[test]
fn a_subnet_that_cannot_be_used_costs_a_new_network_everything_and_a_running_one_nothing() {
    let refused = "spec.network.layer3.subnets[1].hostSubnet is absent, which is 24".to_owned();
    let spoil = |world: &mut World| {
        let network = cudn(world, "amber").network.as_mut().unwrap();
        network.refused = vec![refused.clone()];
    };
    let mut new = mk();
    spoil(&mut new);
    let plan = planned(&new);
    assert_eq!(keys(&plan), ["mine/cobalt"]);
    let said = message(&plan, "amber");
    assert!(
        said.starts_with("False NetworkNotSupported") && said.contains(&refused),
        "{said}"
    );
    let mut running = stored(mk());
    spoil(&mut running);
    let plan = planned(&running);
    assert_eq!(keys(&plan).len(), 3);
    assert_eq!(plan.surplus, BTreeMap::new());
    let said = message(&plan, "amber");
    assert!(
        said.starts_with("False") && said.contains(&refused),
        "{said}"
    );
}

#[test]
fn packets_too_large_refuse_a_new_network_and_are_named_on_a_running_one() {
    let large = |world: &mut World| {
        let network = cudn(world, "amber").network.as_mut().unwrap();
        network.mtu = Some(9000);
        let nodes = world.nodes.values_mut();
        nodes.for_each(|node| node.host_mtu = model::node::Fact::Known(1500));
    };
    let mut new = mk();
    large(&mut new);
    let plan = planned(&new);
    assert_eq!(keys(&plan), ["mine/cobalt"]);
    let said = message(&plan, "amber");
    assert!(
        said.starts_with("False MTUTooLarge: spec.network mtu 9000"),
        "{said}"
    );
    let mut running = stored(mk());
    large(&mut running);
    let plan = planned(&running);
    assert_eq!(keys(&plan).len(), 3);
    let said = message(&plan, "amber");
    assert!(
        said.starts_with("True ") && said.contains("mtu 9000 is more than node n1"),
        "{said}"
    );
}

/// An annotated object of somebody who may write in `namespace`.
fn tenants(namespace: &str, network: &str, id: &str) -> (ObjectKey, Attachment) {
    let annotations = [
        (NETWORK_NAME, format!("cluster_udn_{network}")),
        (NETWORK_ID, id.to_owned()),
        (TUNNEL_KEYS, "[16711684,16715779]".to_owned()),
    ];
    let attachment = Attachment {
        annotations: annotations.map(|(k, v)| (k.to_owned(), v)).into(),
        labels: [(LABEL.to_owned(), String::new())].into(),
        finalizers: [FINALIZER.to_owned()].into(),
        ..Attachment::default()
    };
    (ObjectKey::new(namespace, "mine"), attachment)
}

#[test]
fn ids_and_tunnel_keys_are_believed_of_objects_that_the_network_owns_only() {
    let mut world = mk();
    if let Ok(network) = &mut cudn(&mut world, "cobalt").network {
        network.topology = Topology::Layer2;
        network.transport = UserTransport::Unset;
    }
    for world in [world.clone(), stored(world)] {
        let wanted = planned(&world);
        let networks = user_networks::networks(&world);
        for (network, id) in [("amber", "0"), ("amber", "1"), ("cobalt", "2"), ("x", "1")] {
            let mut world = world.clone();
            world.attachments.extend([tenants("aaa", network, id)]);
            assert_eq!(planned(&world), wanted, "{network} {id}");
            assert_eq!(user_networks::networks(&world), networks);
        }
    }
    // What a network has left behind keeps its id, and what cannot be an id is none.
    let mut world = mk();
    let (key, mut left) = tenants("aaa", "gone", "1");
    left.owner = Some("uid-of-gone".to_owned());
    world.attachments.insert(key, left);
    assert_eq!(id(&planned(&world), ("mine", "cobalt")), "2");
    let mut world = stored(mk());
    for attachment in world.attachments.values_mut() {
        let id = attachment.annotations.get_mut(NETWORK_ID).unwrap();
        "4096".clone_into(id);
    }
    assert_eq!(id(&planned(&world), ("mine", "cobalt")), "1");
}

#[test]
fn of_two_networks_with_one_id_the_elder_keeps_it_and_the_youngers_objects_stay_as_they_are() {
    let mut world = stored(mk());
    for key in [("shop", "amber"), ("till", "amber")] {
        let attachment = world.attachments.get_mut(&ObjectKey::new(key.0, key.1));
        let annotations = &mut attachment.unwrap().annotations;
        annotations.insert(NETWORK_ID.to_owned(), "1".to_owned());
    }
    let plan = planned(&world);
    assert_eq!(keys(&plan), ["mine/cobalt"]);
    assert_eq!(id(&plan, ("mine", "cobalt")), "1");
    assert!(plan.surplus.is_empty());
    assert_eq!(
        message(&plan, "amber"),
        "False NetworkAttachmentDefinitionSyncError: network id 1 of its NetworkAttachmentDefinitions is that of ClusterUserDefinedNetwork cobalt, which is older"
    );
    assert!(message(&plan, "cobalt").starts_with("True"));
}

#[test]
fn labels_that_others_put_on_an_object_are_theirs() {
    let mut world = stored(mk());
    let key = ObjectKey::new("shop", "amber");
    let labels = &mut world.attachments.get_mut(&key).unwrap().labels;
    labels.insert("backup".to_owned(), "nightly".to_owned());
    let wanted = &planned(&world).desired[&key];
    assert!(wanted.describes(&world.attachments[&key]));
    world.attachments.get_mut(&key).unwrap().labels.clear();
    assert!(!wanted.describes(&world.attachments[&key]));
}

#[test]
fn an_object_that_somebody_deletes_is_let_go_and_made_again_and_nobody_else_comes_in_between() {
    let mut world = stored(mk());
    let key = ObjectKey::new("shop", "amber");
    world.attachments.get_mut(&key).unwrap().deleting = true;
    // A younger primary network wants the namespace too.
    let mut jade = mk_cudn("jade", 9);
    jade.namespaces = Ok(model::LabelSelector::label("tenant", "amber"));
    world.cudns.insert("jade".to_owned(), jade);
    let plan = planned(&world);
    assert_eq!(keys(&plan), ["mine/cobalt", "till/amber"]);
    assert_eq!(
        plan.surplus,
        [(key.clone(), Some("amber".to_owned()))].into()
    );
    assert_eq!(
        message(&plan, "amber"),
        "False NetworkAttachmentDefinitionSyncError: NetworkAttachmentDefinition [shop/amber] is being deleted; it is made again once it is gone"
    );
    // Also where its network would not have it any more, but its pods still run.
    let mut others = world.clone();
    others.namespaces.remove("till");
    cudn(&mut others, "amber").namespaces = Ok(model::LabelSelector::label("tenant", "nobody"));
    let plan = planned(&others);
    assert_eq!(keys(&plan), ["mine/cobalt"]);
    let said = message(&plan, "jade");
    assert!(
        said.contains("primary network already exist in namespace \"shop\""),
        "{said}"
    );
    world.attachments.remove(&key);
    let plan = planned(&world);
    assert_eq!(keys(&plan), ["mine/cobalt", "shop/amber", "till/amber"]);
    assert_eq!(id(&plan, ("shop", "amber")), "2", "the till's");
    assert!(plan.surplus.is_empty());
    // One that is not served any more loses what is deleted all the same.
    let mut world = stored(mk());
    world.attachments.get_mut(&key).unwrap().deleting = true;
    cudn(&mut world, "amber").network = Err("no".to_owned());
    assert_eq!(planned(&world).surplus.len(), 1);
}

#[test]
fn the_condition_of_a_network_of_very_many_namespaces_is_one_that_the_api_server_takes() {
    let mut world = mk();
    for n in 0..1000 {
        let name = format!("{n:04}-{}", "x".repeat(58));
        world.namespaces.insert(name, namespace("amber"));
    }
    let plan = planned(&world);
    assert_eq!(plan.desired.len(), 1003);
    let created = &plan.created["amber"];
    assert!(created.status);
    assert_eq!(created.message.chars().count(), 32_768);
    assert!(created.message.ends_with(" ..."));
    assert!(created.message.contains("0000-"));
    assert!(plan.created["cobalt"].message.ends_with("[mine]"));
}

#[test]
fn who_edits_ids_in_objects_changes_no_network() {
    let set = |world: &mut World, name: &str, id: &str| {
        let attachment = world.attachments.get_mut(&ObjectKey::new(name, "amber"));
        let annotations = &mut attachment.unwrap().annotations;
        annotations.insert(NETWORK_ID.to_owned(), id.to_owned());
    };
    let id =
        |world: &World| user_networks::networks(world)[&NetworkName::from("cluster_udn_amber")].id;
    let world = stored(mk());
    let own = id(&world);
    assert!(own > 1, "there is a smaller one to be written");
    // What a network had a moment ago it has.
    let mut edited = world.clone();
    edited.known_ids = user_networks::known_ids(&world);
    for name in ["shop", "till"] {
        set(&mut edited, name, "9");
    }
    assert_eq!(id(&edited), own);
    assert_eq!(planned(&edited).desired, planned(&world).desired);
    // After a start most of its objects count.
    let mut edited = world.clone();
    let third = edited.attachments[&ObjectKey::new("till", "amber")].clone();
    edited
        .attachments
        .insert(ObjectKey::new("depot", "amber"), third);
    set(&mut edited, "shop", "1");
    assert_eq!(id(&edited), own);
    // An id that was taken over wrongly is mended in the objects of either.
    let mut wrong = world.clone();
    wrong.known_ids = user_networks::known_ids(&world);
    let uid = wrong.cudns["amber"].uid.clone();
    wrong.known_ids.insert(uid, 1);
    for (stored, expected) in [("1", 1), ("7", 7)] {
        for name in ["shop", "till"] {
            set(&mut wrong, name, stored);
        }
        assert_eq!(id(&wrong), expected);
    }
    // Without any it is the one that it is given now.
    let mut edited = world;
    for name in ["shop", "till"] {
        set(&mut edited, name, "none");
    }
    assert_eq!(id(&edited), own);
}

#[test]
fn who_routes_is_written_on_objects_of_networks_without_an_overlay() {
    let annotation = |transport| {
        let mut world = mk();
        if let Ok(network) = &mut cudn(&mut world, "amber").network {
            network.transport = transport;
        }
        let plan = planned(&world);
        let wanted = &plan.desired[&ObjectKey::new("shop", "amber")];
        wanted.annotations.get(ROUTING).cloned()
    };
    let no_overlay = |routing| UserTransport::NoOverlay {
        outbound_snat: true,
        routing,
    };
    assert_eq!(annotation(UserTransport::Geneve), None);
    let of = |routing| annotation(no_overlay(routing));
    assert_eq!(of(Routing::Managed).as_deref(), Some("managed"));
    assert_eq!(of(Routing::Unmanaged).as_deref(), Some("unmanaged"));
}
