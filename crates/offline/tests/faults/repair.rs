//! The managed fabric's own objects after somebody, or the administrator, has changed something.
//! In: a settled cluster, one change. Out: the same objects again, or those that the change asks for.
//! Invariant: what the manager does after a restart is what it does at any time: it sees the objects as they are.
//! Not here: reflectors that come and go (`plan_cluster::fabric::roles`).

use model::NetworkName;
use offline::kind::{CUDN, FRR, NAD, NODE, RA};
use offline::{Objects, Plans, settle, world};
use plan_cluster::fabric;
use serde_json::{Value, json};

use crate::cluster::{cluster, loaded, settings, settings_of};

const MANAGED: &str = "[default]\ntransport = \"no-overlay\"\ncluster-subnets = \"SUBNETS\"\n[no-overlay]\noutbound-snat = \"enabled\"\nrouting = \"managed\"\n[bgp-managed]\ntopology = \"full-mesh\"\n[ovn]\ntopology = \"build\"\n[gateway]\nmode = \"local\"\n";
const OVERLAY: &str = "[default]\ntransport = \"geneve\"\ncluster-subnets = \"10.128.0.0/14/24\"\n[bgp-managed]\ntopology = \"full-mesh\"\n[ovn]\ntopology = \"build\"\n[gateway]\nmode = \"local\"\n";

fn ra_of(network: &str) -> String {
    fabric::advertisement_name(&NetworkName::from(network))
}

fn base() -> String {
    format!("frr-k8s-system/{}", fabric::base_name())
}

/// The fabric's own object of a kind and name, to be changed.
fn own<'a>(objects: &'a mut Objects, kind: &str) -> &'a mut Value {
    let name = if kind == FRR {
        base()
    } else {
        ra_of("default")
    };
    objects.get_mut(kind, &name).unwrap()
}

/// What is done, and how.
type Drift = (&'static str, fn(&mut Objects));

const DRIFTS: &[Drift] = &[
    ("the base object is deleted", |o| {
        assert!(o.remove(FRR, &base()))
    }),
    ("the base object selects everybody", |o| {
        own(o, FRR)["spec"]["nodeSelector"] = json!({})
    }),
    ("the base object has another AS number", |o| {
        own(o, FRR)["spec"]["bgp"]["routers"][0]["asn"] = 1.into()
    }),
    ("the base object lost its labels", |o| {
        own(o, FRR)["metadata"]["labels"] = json!({})
    }),
    ("the base object cannot be read", |o| {
        own(o, FRR)["spec"]["bgp"] = 5.into()
    }),
    ("the RouteAdvertisements is deleted", |o| {
        assert!(o.remove(RA, &ra_of("default")))
    }),
    ("that of a network is deleted", |o| {
        assert!(o.remove(RA, &ra_of("cluster_udn_green")))
    }),
    ("it selects other sources", |o| {
        own(o, RA)["spec"]["frrConfigurationSelector"] = json!({"matchLabels": {"a": "b"}})
    }),
    ("it selects some nodes", |o| {
        own(o, RA)["spec"]["nodeSelector"] = json!({"matchLabels": {"a": "b"}})
    }),
    ("it has another VRF", |o| {
        own(o, RA)["spec"]["targetVRF"] = "auto".into()
    }),
    ("it lost its labels", |o| {
        own(o, RA)["metadata"]["labels"] = json!({})
    }),
    ("it cannot be read", |o| {
        own(o, RA)["spec"]["networkSelectors"] = 5.into()
    }),
    (
        "a network lost the label that its RouteAdvertisements selects",
        |o| {
            let labels = &mut o.get_mut(CUDN, "green").unwrap()["metadata"]["labels"];
            assert!(
                labels
                    .as_object_mut()
                    .unwrap()
                    .remove("k8s.ovn.org/metadata.name")
                    .is_some()
            );
        },
    ),
    ("it has that of another network", |o| {
        o.get_mut(CUDN, "green").unwrap()["metadata"]["labels"]["k8s.ovn.org/metadata.name"] =
            "blue".into();
    }),
];

/// What is done to the one object of the network green.
const NAD_DRIFTS: &[Drift] = &[
    ("its network id is taken away", |o| {
        let annotations = &mut green(o)["metadata"]["annotations"];
        let annotations = annotations.as_object_mut().unwrap();
        assert!(annotations.remove("k8s.ovn.org/network-id").is_some());
    }),
    ("all its annotations are taken away", |o| {
        green(o)["metadata"]["annotations"] = json!({});
    }),
    ("its owner is taken away", |o| {
        let metadata = green(o)["metadata"].as_object_mut().unwrap();
        assert!(metadata.remove("ownerReferences").is_some());
    }),
    ("its spec is taken away", |o| {
        let object = green(o).as_object_mut().unwrap();
        assert!(object.remove("spec").is_some());
    }),
    ("its spec is of another shape", |o| {
        green(o)["spec"] = 5.into();
    }),
    ("its configuration is no JSON", |o| {
        green(o)["spec"]["config"] = "{".into();
    }),
    ("its finalizers and labels are taken away", |o| {
        green(o)["metadata"]["finalizers"] = json!([]);
        green(o)["metadata"]["labels"] = json!({});
    }),
];

fn green(objects: &mut Objects) -> &mut Value {
    objects.get_mut(NAD, "ns-green/green").unwrap()
}

#[test]
fn whatever_somebody_does_to_a_networks_object_the_network_goes_on_and_the_object_comes_back() {
    for settings in [settings("full-mesh"), settings_of(OVERLAY)] {
        let mut objects = cluster(4);
        settle(&settings, &mut objects).unwrap();
        for (what, drift) in NAD_DRIFTS {
            let mut changed = objects.clone();
            drift(&mut changed);
            assert!(changed != objects, "{what}");
            let first = Plans::of(&world(&settings, &changed), &settings);
            for (name, plan) in &first.advertisements {
                let surplus = &plan.surplus;
                assert!(surplus.is_empty(), "{what}: {name} withdraws {surplus:?}");
            }
            let healthy = Plans::of(&world(&settings, &objects), &settings);
            for (name, plan) in &healthy.advertisements {
                let roles = &first.advertisements[name].roles;
                assert_eq!(roles, &plan.roles, "{what}: {name}");
            }
            let surplus = &first.attachments.surplus;
            assert!(surplus.is_empty(), "{what}: {surplus:?}");
            settle(&settings, &mut changed).unwrap();
            assert!(
                changed == objects,
                "{what}: {}",
                first_difference(&objects, &changed)
            );
        }
    }
}

#[test]
fn whatever_somebody_does_to_the_fabrics_own_objects_is_undone() {
    let settings = settings("full-mesh");
    let mut objects = cluster(4);
    settle(&settings, &mut objects).unwrap();
    for (what, drift) in DRIFTS {
        let mut changed = objects.clone();
        drift(&mut changed);
        assert!(changed != objects, "{what}");
        let first = Plans::of(&world(&settings, &changed), &settings);
        for (name, plan) in &first.advertisements {
            let surplus = &plan.surplus;
            assert!(surplus.is_empty(), "{what}: {name} withdraws {surplus:?}");
        }
        settle(&settings, &mut changed).unwrap();
        assert!(
            changed == objects,
            "{what}: {}",
            first_difference(&objects, &changed)
        );
    }
}

fn first_difference(a: &Objects, b: &Objects) -> String {
    let differs = a
        .iter()
        .find(|((kind, name), object)| b.get(kind, name) != Some(object));
    let ((kind, name), object) = differs.expect("something is too many");
    format!("{object:#}\nis now\n{:#?}", b.get(kind, name))
}

#[test]
fn labels_that_select_nothing_change_nothing_but_the_networks_own_objects() {
    let settings = settings("full-mesh");
    let mut objects = cluster(3);
    settle(&settings, &mut objects).unwrap();
    let mut changed = objects.clone();
    changed.get_mut(NODE, "n02").unwrap()["metadata"]["labels"]["rack"] = "r1".into();
    changed.get_mut(CUDN, "green").unwrap()["metadata"]["labels"]["team"] = "ore".into();
    let given = changed.clone();
    settle(&settings, &mut changed).unwrap();
    let written = changed
        .iter()
        .filter(|((kind, name), object)| given.get(kind, name) != Some(object));
    let written: Vec<String> = written
        .map(|((kind, name), _)| format!("{kind} {name}"))
        .collect();
    assert_eq!(written, ["NetworkAttachmentDefinition ns-green/green"]);
}

#[test]
fn a_node_is_reached_by_its_new_address() {
    let settings = settings("full-mesh");
    let mut objects = cluster(4);
    settle(&settings, &mut objects).unwrap();
    let address = json!([{"type": "InternalIP", "address": "172.30.7.2"}]);
    objects.get_mut(NODE, "n02").unwrap()["status"]["addresses"] = address;
    settle(&settings, &mut objects).unwrap();
    for node in ["n01", "n03", "n04"] {
        let loaded = loaded(&objects, node);
        assert!(
            loaded.contains("default has neighbor \"172.30.7.2\""),
            "{loaded:?}"
        );
        assert!(
            !loaded.contains("default has neighbor \"172.30.0.2\""),
            "{loaded:?}"
        );
    }
    let own = loaded(&objects, "n02");
    assert!(
        !own.iter().any(|line| line.contains("172.30.7.2")),
        "{own:?}"
    );
}

#[test]
fn a_session_is_of_every_family_that_node_and_network_have() {
    let (v4, v6) = ("10.128.0.0/14/24", "fd00:10::/48/64");
    let both = format!("{v4},{v6}");
    // Addresses of n1 and n2, and which of n2's are a neighbor of n1.
    for (subnets, of_first, of_second, neighbors) in [
        (
            v4,
            &["172.30.0.1"][..],
            &["172.30.0.2"][..],
            &["172.30.0.2"][..],
        ),
        (v6, &["fd00:172::1"], &["fd00:172::2"], &["fd00:172::2"]),
        (
            &both,
            &["172.30.0.1", "fd00:172::1"],
            &["172.30.0.2", "fd00:172::2"],
            &["172.30.0.2", "fd00:172::2"],
        ),
        // A family that the network has not is no way for its packets.
        (
            v4,
            &["172.30.0.1", "fd00:172::1"],
            &["172.30.0.2", "fd00:172::2"],
            &["172.30.0.2"],
        ),
        (
            &both,
            &["172.30.0.1", "fd00:172::1"],
            &["172.30.0.2"],
            &["172.30.0.2"],
        ),
    ] {
        let settings = settings_of(&MANAGED.replace("SUBNETS", subnets));
        let mut objects = Objects::default();
        for (name, addresses) in [("n1", of_first), ("n2", of_second)] {
            let node = testkit::objects::node(name, addresses);
            objects.put(node).unwrap();
        }
        settle(&settings, &mut objects).unwrap();
        let loaded = loaded(&objects, "n1");
        let found = loaded
            .iter()
            .filter_map(|line| line.strip_prefix("default has neighbor "));
        let found: Vec<&str> = found.map(|text| text.trim_matches('"')).collect();
        assert_eq!(found, neighbors, "{subnets} {of_first:?} {of_second:?}");
        let template = &objects.get(FRR, &base()).unwrap()["spec"]["bgp"]["routers"];
        assert_eq!(template.as_array().unwrap().len(), 1);
        let originated = loaded
            .iter()
            .filter(|line| line.contains(" originates "))
            .count();
        assert_eq!(originated, subnets.split(',').count());
    }
}

/// Names of the fabric's objects, and how many objects are made for its nodes.
fn of_fabric(objects: &Objects) -> (Vec<String>, usize) {
    let names = objects
        .iter()
        .map(|((kind, name), _)| format!("{kind} {name}"));
    let names = names
        .filter(|name| name.contains(fabric::MANAGED_PREFIX))
        .collect();
    let made = objects.all(FRR).filter(|object| {
        let made_for =
            object["metadata"]["annotations"]["k8s.ovn.org/route-advertisements"].as_str();
        made_for.is_some_and(|text| text.starts_with(fabric::MANAGED_PREFIX))
    });
    (names, made.count())
}

#[test]
fn the_fabric_is_there_while_a_network_is_managed_and_gone_with_the_last_one() {
    let overlay = settings_of(OVERLAY);
    let mut objects = cluster(3);
    let green = objects.get(CUDN, "green").unwrap().clone();
    assert!(objects.remove(CUDN, "green"));
    settle(&overlay, &mut objects).unwrap();
    let untouched = objects.clone();
    // blue is unmanaged, grey and the default network are overlays.
    assert_eq!(of_fabric(&objects), (Vec::new(), 0));

    objects.put(green).unwrap();
    settle(&overlay, &mut objects).unwrap();
    let wanted = [
        format!("FRRConfiguration {}", base()),
        format!("{RA} {}", ra_of("cluster_udn_green")),
    ];
    let own = (wanted.to_vec(), 6);
    assert_eq!(
        of_fabric(&objects),
        own,
        "two objects for each of three nodes"
    );

    let managed = settings_of(&MANAGED.replace("SUBNETS", "10.128.0.0/14/24"));
    settle(&managed, &mut objects).unwrap();
    let (names, made) = of_fabric(&objects);
    assert!(
        names.contains(&format!("{RA} {}", ra_of("default"))),
        "{names:?}"
    );
    assert_eq!((names.len(), made), (3, 6));

    settle(&overlay, &mut objects).unwrap();
    assert_eq!(of_fabric(&objects), own);
    let green = objects.get_mut(CUDN, "green").unwrap();
    green["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    settle(&overlay, &mut objects).unwrap();
    assert_eq!(of_fabric(&objects), (Vec::new(), 0));
    assert!(
        objects == untouched,
        "{}",
        first_difference(&untouched, &objects)
    );
}
