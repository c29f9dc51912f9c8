//! Which networks are declared by objects that are whole, broken, contradictory, late or gone.

use std::collections::BTreeMap;

use model::intent::PodAdvertisement;
use model::names::{NetworkName, ObjectKey};
use model::network::{MissingRoute, Network, Routing, Topology};
use model::user_network::attachment::{FINALIZER, LABEL, NETWORK_ID, NETWORK_NAME, ROUTING};
use model::user_network::{Attachment, Layer2Extras, Undescribed, UserNetwork, UserTransport};
use plan_node::declared::{Objects, Statement, Trouble, read};
use plan_node::{Declared, declare};

mod advertised;

type Attachments = BTreeMap<ObjectKey, Attachment>;
type Advertisements = BTreeMap<String, PodAdvertisement>;

fn default_key() -> ObjectKey {
    ObjectKey::new("ovn", "default")
}

/// What the cluster-manager writes for a network in a namespace; the id is the age, too.
fn mk(name: &str, id: u16) -> Attachment {
    let network = NetworkName::from(format!("cluster_udn_{name}"));
    let annotations = [
        (NETWORK_NAME, network.to_string()),
        (NETWORK_ID, id.to_string()),
        (ROUTING, "managed".to_owned()),
    ];
    Attachment {
        created: id.into(),
        annotations: annotations.map(|(k, v)| (k.to_owned(), v)).into(),
        owner: Some(format!("uid-of-{name}")),
        network: Some((network, true)),
        described: Some(UserNetwork {
            topology: Topology::Layer3,
            primary: true,
            subnets: vec!["10.60.0.0/16/24".parse().unwrap()],
            refused: Vec::new(),
            join_subnets: vec![
                "100.65.0.0/16".parse().unwrap(),
                "fd99::/64".parse().unwrap(),
            ],
            mtu: Some(1400),
            transport: UserTransport::NoOverlay {
                outbound_snat: true,
                routing: Routing::Unmanaged,
            },
            layer2: Layer2Extras::default(),
        }),
        ..Attachment::default()
    }
}

fn key(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').unwrap();
    ObjectKey::new(namespace, name)
}

/// Red in two namespaces, blue in one.
fn three() -> Attachments {
    let all = [
        ("a/red", "red", 2),
        ("b/red", "red", 2),
        ("c/blue", "blue", 1),
    ];
    all.map(|(at, name, id)| (key(at), mk(name, id))).into()
}

fn one<'a>(all: &'a mut Attachments, at: &str) -> &'a mut Attachment {
    all.get_mut(&key(at)).unwrap()
}

fn described<'a>(all: &'a mut Attachments, at: &str) -> &'a mut UserNetwork {
    one(all, at).described.as_mut().unwrap()
}

fn annotate(all: &mut Attachments, at: &str, annotation: &str, value: &str) {
    let annotations = &mut one(all, at).annotations;
    annotations.insert(annotation.to_owned(), value.to_owned());
}

fn declared_by(before: &Declared, all: &Attachments, ras: Option<&Advertisements>) -> Declared {
    let read = |(key, attachment): (&ObjectKey, &Attachment)| {
        Some((key.clone(), read(key, attachment, &default_key())?))
    };
    let statements: BTreeMap<ObjectKey, Statement> = all.iter().filter_map(read).collect();
    let statements = statements.iter().collect();
    let ras: Option<BTreeMap<&str, &PodAdvertisement>> =
        ras.map(|ras| ras.iter().map(|(name, ra)| (name.as_str(), ra)).collect());
    declare(
        before,
        Objects {
            attachments: Some(&statements),
            advertisements: ras.as_ref(),
        },
    )
}

fn after(before: &Declared, all: &Attachments) -> Declared {
    declared_by(before, all, Some(&Advertisements::new()))
}

fn fresh(all: &Attachments) -> Declared {
    after(&Declared::default(), all)
}

fn red() -> NetworkName {
    NetworkName::from("cluster_udn_red")
}

fn blue() -> NetworkName {
    NetworkName::from("cluster_udn_blue")
}

fn names(declared: &Declared) -> Vec<&str> {
    declared.networks.keys().map(NetworkName::as_str).collect()
}

#[test]
fn a_network_is_one_however_many_namespaces_have_an_object_of_it() {
    let declared = fresh(&three());
    assert_eq!(names(&declared), ["cluster_udn_blue", "cluster_udn_red"]);
    assert!(declared.listed && declared.troubles.is_empty() && declared.ignored.is_empty());
    let network = &declared.networks[&red()];
    assert_eq!(network.id, 2);
    let join: Vec<String> = network
        .join_subnets
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(join, ["100.65.0.0/16"], "of its families alone");
    let options = network.transport.no_overlay().unwrap();
    assert_eq!(options.routing, Routing::Managed);
    assert_eq!(options.missing_route, MissingRoute::Discard);
    // One of two goes: nothing changes. The last one goes: so does the network.
    let mut all = three();
    all.remove(&key("a/red"));
    assert_eq!(after(&declared, &all).networks, declared.networks);
    all.remove(&key("b/red"));
    let gone = after(&declared, &all);
    assert_eq!(names(&gone), ["cluster_udn_blue"]);
    assert!(gone.troubles.is_empty());
}

#[test]
fn a_join_subnet_that_an_object_does_not_name_is_the_usual_one() {
    let mut all = three();
    described(&mut all, "c/blue").join_subnets.clear();
    let join = &fresh(&all).networks[&blue()].join_subnets;
    assert_eq!(join, &["100.65.0.0/16".parse().unwrap()]);
}

#[test]
fn who_routes_is_what_the_annotation_says_and_changes_with_it() {
    let mut all = three();
    let missing = |declared: &Declared| {
        let options = declared.networks[&blue()].transport.no_overlay().unwrap();
        (options.routing, options.missing_route)
    };
    let managed = fresh(&all);
    assert_eq!(missing(&managed), (Routing::Managed, MissingRoute::Discard));
    annotate(&mut all, "c/blue", ROUTING, "unmanaged");
    let unmanaged = (Routing::Unmanaged, MissingRoute::Forward);
    assert_eq!(missing(&after(&managed, &all)), unmanaged);
    one(&mut all, "c/blue").annotations.remove(ROUTING);
    assert_eq!(missing(&fresh(&all)), unmanaged);
}

/// A change of an object, and the words by which it is reported.
type Change = (fn(&mut Attachments, &str), &'static str);

const CONTRADICTIONS: [Change; 6] = [
    (
        |all, at| annotate(all, at, NETWORK_ID, "7"),
        "annotation k8s.ovn.org/network-id is 7; in force is that of X: 2",
    ),
    (
        |all, at| described(all, at).subnets = vec!["10.61.0.0/16/24".parse().unwrap()],
        "spec.config: subnets is 10.61.0.0/16/24; in force is that of X: 10.60.0.0/16/24",
    ),
    (
        |all, at| described(all, at).join_subnets = vec!["100.99.0.0/16".parse().unwrap()],
        "spec.config: joinSubnet is 100.99.0.0/16; in force is that of X: 100.65.0.0/16",
    ),
    (
        |all, at| described(all, at).mtu = None,
        "spec.config: mtu is absent; in force is that of X: 1400",
    ),
    (
        |all, at| {
            described(all, at).transport = UserTransport::NoOverlay {
                outbound_snat: false,
                routing: Routing::Unmanaged,
            }
        },
        "spec.config: outboundSNAT is disabled; in force is that of X: enabled",
    ),
    (
        |all, at| annotate(all, at, ROUTING, "unmanaged"),
        "annotation noverlay.io/routing is unmanaged; in force is that of X: managed",
    ),
];

#[test]
fn of_objects_that_contradict_each_other_what_is_in_force_stays_until_none_says_it() {
    let good = fresh(&three());
    for (change, words) in CONTRADICTIONS {
        for (changed, kept) in [("a/red", "b/red"), ("b/red", "a/red")] {
            let mut all = three();
            change(&mut all, changed);
            let declared = after(&good, &all);
            assert_eq!(declared.networks, good.networks, "{changed}: {words}");
            let said: Vec<String> = declared.ignored.iter().map(ToString::to_string).collect();
            let subject =
                format!("NetworkAttachmentDefinition/{changed}: network cluster_udn_red: ");
            let words = words.replace('X', kept);
            assert!(
                matches!(said.as_slice(), [one] if one.starts_with(&subject) && one.contains(&words)),
                "{words}: {said:?}"
            );
            // It is no trouble of a network that works, and the next look finds the same.
            assert!(declared.troubles.is_empty());
            assert_eq!(after(&declared, &all), declared);
            // The last one says so too, or is gone.
            all.remove(&key(kept));
            assert_ne!(
                after(&declared, &all).networks.get(&red()),
                good.networks.get(&red()),
                "{words}"
            );
        }
    }
}

#[test]
fn another_id_is_obeyed_only_where_every_object_can_be_read_or_the_network_was_made_anew() {
    let good = fresh(&three());
    let mut all = three();
    annotate(&mut all, "a/red", NETWORK_ID, "x");
    annotate(&mut all, "b/red", NETWORK_ID, "7");
    let declared = after(&good, &all);
    assert_eq!(declared.networks, good.networks, "a/red may still say it");
    let said: Vec<String> = declared.ignored.iter().map(ToString::to_string).collect();
    assert!(
        said.iter().any(
            |text| text.starts_with("NetworkAttachmentDefinition/b/red: ")
                && text.contains("k8s.ovn.org/network-id is 7; in force is what was before: 2")
        ),
        "{said:?}"
    );
    assert_eq!(after(&declared, &all), declared);
    // Made anew, or readable: it is said by all.
    let mut anew = all.clone();
    one(&mut anew, "b/red").owner = Some("another".to_owned());
    assert_eq!(after(&declared, &anew).networks[&red()].id, 7);
    annotate(&mut all, "a/red", NETWORK_ID, "7");
    assert_eq!(after(&declared, &all).networks[&red()].id, 7);
    // Without an id in force there is none to keep.
    annotate(&mut all, "a/red", NETWORK_ID, "x");
    assert_eq!(fresh(&all).networks[&red()].id, 7);
}

#[test]
fn without_anything_in_force_the_eldest_object_is_believed_whatever_came_first() {
    for (elder, younger) in [("a/red", "b/red"), ("b/red", "a/red")] {
        let mut all = three();
        one(&mut all, elder).created = 1;
        one(&mut all, younger).created = 2;
        described(&mut all, elder).mtu = Some(1300);
        assert_eq!(fresh(&all).networks[&red()].mtu, Some(1300));
        // The same objects, one after the other: the first that came stays, and everything that is seen is one of both.
        let mut first = all.clone();
        first.remove(&key(elder));
        let began = fresh(&first);
        assert_eq!(began.networks[&red()].mtu, Some(1400));
        assert_eq!(after(&began, &all).networks[&red()].mtu, Some(1400));
    }
    // Equally old ones by their names.
    let mut all = three();
    described(&mut all, "a/red").mtu = Some(1300);
    assert_eq!(fresh(&all).networks[&red()].mtu, Some(1300));
}

#[test]
fn an_object_that_is_being_deleted_holds_nothing_back_and_the_network_lives_by_it_alone() {
    let good = fresh(&three());
    let mut all = three();
    one(&mut all, "a/red").deleting = true;
    let grown = vec![
        "10.60.0.0/16/24".parse().unwrap(),
        "10.61.0.0/16/24".parse().unwrap(),
    ];
    described(&mut all, "b/red").subnets.clone_from(&grown);
    let declared = after(&good, &all);
    assert_eq!(declared.networks[&red()].subnets, grown);
    all.remove(&key("b/red"));
    assert_eq!(
        after(&declared, &all).networks.get(&red()),
        good.networks.get(&red())
    );
}

const MALFORMED: [Change; 7] = [
    (
        |all, at| drop(one(all, at).annotations.remove(NETWORK_ID)),
        "annotation k8s.ovn.org/network-id is not there yet",
    ),
    (
        |all, at| annotate(all, at, NETWORK_ID, "4096"),
        "annotation k8s.ovn.org/network-id is \"4096\"; allowed: 1 to 4095",
    ),
    (
        |all, at| annotate(all, at, ROUTING, "Managed"),
        "annotation noverlay.io/routing is \"Managed\"; allowed: managed, unmanaged",
    ),
    (
        |all, at| annotate(all, at, NETWORK_NAME, "cluster_udn_blue"),
        "annotation k8s.ovn.org/network-name is cluster_udn_blue; allowed: cluster_udn_red",
    ),
    (
        |all, at| one(all, at).network = Some((blue(), true)),
        "spec.config: name is cluster_udn_blue; allowed: cluster_udn_red",
    ),
    (
        |all, at| {
            one(all, at).network = None;
            one(all, at).described = None;
            one(all, at).undescribed = Some(Undescribed::Config("spec.config: no JSON".to_owned()));
        },
        "spec.config: no JSON",
    ),
    (
        |all, at| described(all, at).subnets.clear(),
        "spec.config: subnets is absent; allowed: at least one",
    ),
];

/// OVN-Kubernetes marks the objects of UserDefinedNetworks as it marks those of ClusterUserDefinedNetworks, and one may have a
/// ClusterUserDefinedNetwork's name.
#[test]
fn the_network_of_a_user_defined_network_is_nobodys_here() {
    let mut all = three();
    let of_namespace = one(&mut all, "c/blue");
    of_namespace.owner = None;
    of_namespace.finalizers = [FINALIZER.to_owned()].into();
    of_namespace.labels = [(LABEL.to_owned(), String::new())].into();
    let name = NetworkName::from("c_blue");
    of_namespace
        .annotations
        .insert(NETWORK_NAME.to_owned(), name.to_string());
    of_namespace.network = Some((name, true));
    let declared = fresh(&all);
    assert_eq!(names(&declared), ["cluster_udn_red"]);
    assert!(declared.troubles.is_empty() && declared.ignored.is_empty());
    // The control: of a ClusterUserDefinedNetwork by its name, it would be missed.
    one(&mut all, "c/blue").network = Some((red(), true));
    assert_eq!(fresh(&all).troubles.len(), 1);
}

#[test]
fn a_network_of_which_no_object_can_be_read_waits_or_stays_and_costs_no_other_one() {
    let good = fresh(&three());
    for (change, words) in MALFORMED {
        let mut all = three();
        change(&mut all, "a/red");
        // One object is enough.
        let declared = after(&good, &all);
        assert_eq!(declared.networks, good.networks, "{words}");
        assert!(
            declared.ignored[0].message.contains(words),
            "{:?}",
            declared.ignored
        );
        assert_eq!(fresh(&all).networks, good.networks, "{words}");
        change(&mut all, "b/red");
        let declared = after(&good, &all);
        assert_eq!(declared.networks, good.networks, "{words}: it is in force");
        assert!(
            matches!(&declared.troubles[&red()], Trouble::Waits(p) if p.message.contains(words))
        );
        assert_eq!(declared.waiting().count(), 0);
        assert_eq!(after(&declared, &all), declared);
        let declared = fresh(&all);
        assert_eq!(names(&declared), ["cluster_udn_blue"], "{words}");
        let waiting: Vec<_> = declared.waiting().collect();
        assert!(matches!(waiting.as_slice(), [(name, p)] if **name == red()
            && p.subject == "NetworkAttachmentDefinition/a/red" && p.message.contains(words)));
        // Mended, it works, and nobody speaks of it any more.
        let mended = after(&declared, &three());
        assert_eq!(
            (&mended.networks, mended.troubles.len()),
            (&good.networks, 0)
        );
    }
}

const REFUSED: [Change; 4] = [
    (
        |all, at| {
            one(all, at).described = None;
            let why = "spec.config: transport is \"evpn\"; allowed: noOverlay, or absent";
            one(all, at).undescribed = Some(Undescribed::Transport(why.to_owned()));
        },
        "transport is \"evpn\"",
    ),
    (
        |all, at| described(all, at).topology = Topology::Layer2,
        "topology is layer2, transport noOverlay",
    ),
    (
        |all, at| {
            described(all, at).transport = UserTransport::Geneve;
            described(all, at).topology = Topology::Layer2;
            described(all, at).layer2.gateways = vec!["10.60.0.9".to_owned()];
        },
        "defaultGatewayIPs has 10.60.0.9; this node builds the first address of each subnet as gateway; allowed: absent, or 10.60.0.1",
    ),
    (
        |all, at| {
            described(all, at).transport = UserTransport::Geneve;
            described(all, at).topology = Topology::Layer2;
            described(all, at).layer2.infrastructure = vec!["10.60.0.0/31".to_owned()];
        },
        "infrastructureSubnets is 10.60.0.0/31 without 10.60.0.2",
    ),
];

#[test]
fn a_network_that_is_not_built_here_is_refused_and_nothing_waits_for_it() {
    let good = fresh(&three());
    for (change, words) in REFUSED {
        let mut all = three();
        change(&mut all, "b/red");
        let one_of_two = fresh(&all);
        assert_eq!(one_of_two.networks, good.networks);
        assert!(one_of_two.ignored[0].message.contains(words));
        change(&mut all, "a/red");
        let declared = fresh(&all);
        assert_eq!(names(&declared), ["cluster_udn_blue"]);
        let Trouble::Refused(problem) = &declared.troubles[&red()] else {
            panic!("{:?}", declared.troubles);
        };
        let is_layout = !words.contains("transport");
        let reasons = ["TransportNotSupported", "LayoutNotSupported"];
        assert_eq!(problem.reason, reasons[usize::from(is_layout)]);
        assert!(problem.message.contains(words), "{problem}");
        assert_eq!(declared.waiting().count(), 0);
        // Somebody edited the objects of a network that runs: it runs on. It is another network of that name: it goes.
        let edited = after(&good, &all);
        assert_eq!(edited.networks, good.networks);
        assert!(edited.troubles.contains_key(&red()));
        assert_eq!(after(&edited, &all), edited);
        for at in ["a/red", "b/red"] {
            one(&mut all, at).owner = Some("another".to_owned());
        }
        assert_eq!(names(&after(&edited, &all)), ["cluster_udn_blue"]);
    }
}

#[test]
fn of_two_networks_with_one_id_or_one_name_of_rows_one_waits() {
    let good = fresh(&three());
    let mut all = three();
    annotate(&mut all, "c/blue", NETWORK_ID, "2");
    // Blue's object is the elder one.
    let declared = fresh(&all);
    assert_eq!(names(&declared), ["cluster_udn_blue"]);
    let waiting = declared.waiting().next().unwrap().1.to_string();
    let text = "NetworkAttachmentDefinition/a/red: network cluster_udn_red: annotation k8s.ovn.org/network-id is 2, as of network cluster_udn_blue";
    assert!(waiting.starts_with(text), "{waiting}");
    // Whoever had it keeps it.
    let declared = after(&good, &all);
    assert_eq!(names(&declared), ["cluster_udn_red"]);
    assert!(declared.troubles.contains_key(&blue()));
    // Rows of `r.ed` would be those of `r-ed`.
    let mut all = three();
    all.insert(key("d/r.ed"), mk("r.ed", 4));
    all.insert(key("d/r-ed"), mk("r-ed", 3));
    let declared = fresh(&all);
    let (name, problem) = declared.waiting().next().unwrap();
    assert_eq!(name.as_str(), "cluster_udn_r.ed");
    assert!(
        problem.message.contains(
            "rows of its name begin with cluster_udn_r.ed_, as of network cluster_udn_r-ed"
        )
    );
    assert_eq!(declared.networks.len(), 3);
}

#[test]
fn objects_of_nobody_and_of_secondary_networks_are_not_heard() {
    let mut all = three();
    let mut foreign = mk("red", 9);
    foreign.owner = None;
    all.insert(key("d/red"), foreign.clone());
    // Somebody took the reference to its owner away.
    foreign.finalizers.insert(FINALIZER.to_owned());
    foreign.labels.insert(LABEL.to_owned(), String::new());
    let mut secondary = mk("green", 3);
    secondary.network.as_mut().unwrap().1 = false;
    all.insert(key("d/green"), secondary);
    let declared = fresh(&all);
    assert_eq!(declared, fresh(&three()));
    all.insert(key("d/red"), foreign);
    assert_eq!(fresh(&all).ignored.len(), 1);
}

#[test]
fn what_has_not_been_listed_takes_nothing_away() {
    let good = fresh(&three());
    let unlisted = Objects {
        attachments: None,
        advertisements: None,
    };
    assert_eq!(declare(&good, unlisted), good);
    let nothing = declare(&Declared::default(), unlisted);
    assert!(!nothing.listed && nothing.default_network.is_none());
}

#[test]
fn what_is_in_force_depends_on_nothing_but_the_objects_while_they_agree() {
    let all = three();
    let mut orders: Vec<Vec<&ObjectKey>> = Vec::new();
    let keys: Vec<&ObjectKey> = all.keys().collect();
    for first in 0..3 {
        for second in (0..3).filter(|second| *second != first) {
            orders.push(vec![keys[first], keys[second], keys[3 - first - second]]);
        }
    }
    for order in orders {
        let (mut some, mut declared) = (Attachments::new(), Declared::default());
        for key in order {
            some.insert(key.clone(), all[key].clone());
            declared = after(&declared, &some);
        }
        assert_eq!(declared, fresh(&all));
    }
    let network: &Network = &fresh(&all).networks[&blue()];
    assert_eq!(network.name, blue());
}

/// A layer-2 network of both families, with its keys.
fn mk_layer2(name: &str, id: u16, keys: &str) -> Attachment {
    let mut attachment = mk(name, id);
    let annotations = &mut attachment.annotations;
    annotations.insert("k8s.ovn.org/tunnel-keys".to_owned(), keys.to_owned());
    let network = attachment.described.as_mut().unwrap();
    network.topology = Topology::Layer2;
    network.transport = UserTransport::Unset;
    network.subnets = ["10.160.0.0/16", "fd60::/64"]
        .map(testkit::mk_segment)
        .into();
    network.layer2.gateways = vec!["10.160.0.1".to_owned()];
    network.layer2.infrastructure = vec!["10.160.0.0/30".to_owned()];
    attachment
}

#[test]
fn a_layer_2_network_has_the_keys_that_its_objects_store_and_waits_for_them() {
    let declared = fresh(&[(key("a/red"), mk_layer2("red", 2, "[16711685,16715779]"))].into());
    let layer2 = declared.networks[&red()].layer2.clone().unwrap();
    assert_eq!(
        (layer2.switch_key, layer2.router_key),
        (16_711_685, 16_715_779)
    );
    let transit: Vec<String> = layer2
        .transit_subnets
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(transit, ["100.88.0.0/16", "fd97::/64"]);
    for keys in [
        "",
        "[]",
        "[16711685]",
        "[16711685,x]",
        "[7,7]",
        "[1,16777216]",
        "[0,1]",
        "[1,2,3]",
    ] {
        let declared = fresh(&[(key("a/red"), mk_layer2("red", 2, keys))].into());
        let Trouble::Waits(problem) = &declared.troubles[&red()] else {
            panic!("{keys}: {:?}", declared.troubles);
        };
        assert_eq!(problem.reason, "AttachmentMalformed");
        let words = "allowed: two numbers of 1 to 16777215, of switch and router";
        assert!(problem.message.contains(words), "{problem}");
    }
    // Another transit subnet than the usual one, and one that is none.
    let with_transit = |text: &str| {
        let mut attachment = mk_layer2("red", 2, "[16711685,16715779]");
        let network = attachment.described.as_mut().unwrap();
        network.layer2.transit = vec![text.to_owned()];
        fresh(&[(key("a/red"), attachment)].into())
    };
    let layer2 = with_transit("100.90.0.0/16").networks[&red()]
        .layer2
        .clone()
        .unwrap();
    assert_eq!(layer2.transit_subnets, ["100.90.0.0/16".parse().unwrap()]);
    let problem = with_transit("100.90.0.0").troubles[&red()]
        .problem()
        .to_string();
    assert!(
        problem.contains("transitSubnet is 100.90.0.0; allowed:"),
        "{problem}"
    );
}

#[test]
fn objects_of_a_layer_2_network_that_store_different_keys_are_named() {
    let all: Attachments = [
        (key("a/red"), mk_layer2("red", 2, "[16711685,16715779]")),
        (key("b/red"), mk_layer2("red", 2, "[16711685,16715780]")),
    ]
    .into();
    let declared = fresh(&all);
    let problem = declared.ignored[0].to_string();
    assert!(
        problem.contains(
            "tunnel-keys is [16711685,16715780]; in force is that of a/red: [16711685,16715779]"
        ),
        "{problem}"
    );
}

/// One key is one datapath: with two of it northd would give one of them another, and the other nodes know it by the first.
#[test]
fn of_two_networks_with_one_tunnel_key_one_waits() {
    let two = |red: &str, blue: &str| -> Attachments {
        [
            (key("a/red"), mk_layer2("red", 2, red)),
            (key("c/blue"), mk_layer2("blue", 1, blue)),
        ]
        .into()
    };
    let good = fresh(&two("[16711685,16715779]", "[16711684,16715778]"));
    assert_eq!(good.networks.len(), 2);
    for red in [
        "[16711685,16715778]",
        "[16711684,16715779]",
        "[16715778,16715779]",
    ] {
        let all = two(red, "[16711684,16715778]");
        // Blue is the elder one, and had it.
        for declared in [fresh(&all), after(&good, &all)] {
            assert_eq!(names(&declared), ["cluster_udn_blue"], "{red}");
            let problem = declared.troubles[&NetworkName::from("cluster_udn_red")]
                .problem()
                .to_string();
            assert!(problem.contains("its tunnel keys have 1671"), "{problem}");
            assert!(
                problem.contains("as of network cluster_udn_blue"),
                "{problem}"
            );
        }
    }
    // The elder one may not take it from who has it.
    let all = two("[16711685,16715779]", "[16711685,16715778]");
    let declared = after(&good, &all);
    assert_eq!(names(&declared), ["cluster_udn_red"]);
    assert!(declared.troubles.contains_key(&blue()));
}

#[test]
fn a_network_that_waits_keeps_the_keys_that_stand_for_it() {
    let mut all: Attachments = [
        (key("a/red"), mk_layer2("red", 2, "[16711685,16715779]")),
        (key("c/blue"), mk_layer2("blue", 1, "[16711684,16715778]")),
    ]
    .into();
    let good = fresh(&all);
    annotate(
        &mut all,
        "c/blue",
        "k8s.ovn.org/tunnel-keys",
        "[16711685,16715778]",
    );
    let waits = after(&good, &all);
    assert!(waits.troubles.contains_key(&blue()));
    // Its rows stand still, and a third network wants their keys.
    all.insert(key("d/green"), mk_layer2("green", 3, "[16711684,16715777]"));
    let again = after(&waits, &all);
    assert_eq!(names(&again), ["cluster_udn_red"]);
    let green = again.troubles[&NetworkName::from("cluster_udn_green")].problem();
    assert!(
        green
            .message
            .contains("16711684, as of network cluster_udn_blue"),
        "{green}"
    );
    // The edit is taken back: it is as it was.
    annotate(
        &mut all,
        "c/blue",
        "k8s.ovn.org/tunnel-keys",
        "[16711684,16715778]",
    );
    let back = after(&again, &all);
    assert_eq!(names(&back), ["cluster_udn_blue", "cluster_udn_red"]);
    all.remove(&key("c/blue"));
    let gone = after(&again, &all);
    assert_eq!(names(&gone), ["cluster_udn_green", "cluster_udn_red"]);
}

#[test]
fn a_layer_2_network_has_no_key_of_a_transit_switch() {
    // Of the default network, and of a layer-3 one with an overlay.
    let all: Attachments = [(key("a/red"), mk_layer2("red", 2, "[16711683,16715779]"))].into();
    let problem = fresh(&all).troubles[&red()].problem().to_string();
    assert!(
        problem.contains("16711683, as of network default;"),
        "{problem}"
    );
    let mut all: Attachments = [
        (key("a/red"), mk_layer2("red", 2, "[16711684,16715779]")),
        (key("c/blue"), mk("blue", 1)),
    ]
    .into();
    assert_eq!(fresh(&all).networks.len(), 2, "blue has no overlay");
    described(&mut all, "c/blue").transport = UserTransport::Unset;
    let declared = fresh(&all);
    assert_eq!(names(&declared), ["cluster_udn_blue"]);
    let problem = declared.troubles[&red()].problem().to_string();
    assert!(
        problem.contains("16711684, as of network cluster_udn_blue"),
        "{problem}"
    );
}
