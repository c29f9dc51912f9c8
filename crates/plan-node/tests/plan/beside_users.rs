//! What is added beside OVN-Kubernetes for networks of users.

use std::collections::BTreeSet;

use model::names::NetworkName;
use model::nb::{BESIDE, Columns, OWNER, Owner, RowKey, Rows, Table, Value};
use model::network::{MissingRoute, Network, NoOverlay, Routing, Transport};
use model::user_network::UserTransport;
use plan_node::beside::signs::sysctls;
use plan_node::beside::steps::Step;
use plan_node::beside::{self, Asked, Routed, Steps, Translations, Wish, host, north};
use plan_node::{Declared, NetworkShare, Share, UnknownShare, Vrf};
use testkit::{View, mk_layer2_network, mk_link, mk_snapshot, mk_user_network, mk_view};

/// Network `red` on n1: pods 10.150.1.0/24 of 10.150.0.0/16, VRF `red` with table 1008.
fn mk_red() -> View {
    let mut view = mk_view(1);
    view.share = share("cluster_udn_red", 1, "10.150.0.0/16/24", "10.150.1.0/24");
    view
}

fn share(name: &str, id: u16, subnet: &str, own: &str) -> NetworkShare {
    let network = mk_user_network(name, id, &[subnet], &["100.65.0.0/16"]);
    let device = network.name.vrf_device(id).unwrap();
    NetworkShare {
        host_subnets: vec![own.parse().unwrap()],
        vrf: Some(Vrf {
            device,
            table: 1007 + u32::from(id),
        }),
        network,
        ..mk_view(1).share
    }
}

/// The row by which OVN-Kubernetes translates what leaves for the management port, with the columns that a recording of shared gateway
/// mode has in it.
fn recorded() -> Columns {
    let text = |text: &str| Value::Text(text.to_owned());
    let none = || Value::Set(BTreeSet::new());
    Columns::from([
        ("type", text("snat")),
        ("external_ip", text("169.254.0.12")),
        ("logical_ip", text("10.150.1.0/24")),
        ("external_port_range", text("32768-60999")),
        ("logical_port", Value::set(["rtos-cluster_udn_red_n1"])),
        ("match", text("eth.dst == 0a:58:0a:96:01:02")),
        ("priority", Value::Number(0)),
        ("exempted_ext_ips", none()),
        ("allowed_ext_ips", none()),
        ("options", Value::entries([("stateless", "false")])),
        (
            "external_ids",
            Value::entries([("k8s.ovn.org/network", "cluster_udn_red")]),
        ),
    ])
}

fn of_table(rows: &Rows, table: Table) -> Vec<(&RowKey, &Columns)> {
    rows.iter().filter(|(key, _)| key.table == table).collect()
}

#[test]
fn what_ovn_kubernetes_translates_is_translated_the_same_but_for_what_goes_between_pods() {
    let red = mk_red();
    let theirs = recorded();
    let rows = north::plan(red.get(), false, std::slice::from_ref(&theirs));
    let ours = of_table(&rows, Table::Nat);
    let set = north::pods(red.get().name(), model::Family::V4);
    assert_eq!(rows[&set]["addresses"], Value::set(["10.150.0.0/16"]));
    let halves: Vec<&Value> = ours
        .iter()
        .map(|(_, columns)| &columns["logical_ip"])
        .collect();
    let texts = ["10.150.1.0/25", "10.150.1.128/25"].map(|half| Value::Text(half.to_owned()));
    assert_eq!(halves, texts.iter().collect::<Vec<_>>());
    for (key, columns) in ours {
        assert!(key.is_child_of(Table::Router, "cluster_udn_red_ovn_cluster_router"));
        assert_eq!(columns["exempted_ext_ips"], Value::Ref(set.clone()));
        for same in [
            "type",
            "external_ip",
            "external_port_range",
            "logical_port",
            "match",
            "priority",
            "options",
            "allowed_ext_ips",
        ] {
            assert_eq!(columns[same], theirs[same], "{same}");
        }
        let ids = Value::entries([(OWNER, "cluster_udn_red"), BESIDE]);
        assert_eq!(columns["external_ids"], ids, "none of OVN-Kubernetes' own");
    }
    // What is of another node, or of no subnet, is none of this one's.
    for logical in ["10.150.2.0/24", "10.150.1.7", "x"] {
        let mut other = recorded();
        other.insert("logical_ip", Value::Text(logical.to_owned()));
        let rows = north::plan(red.get(), false, &[other]);
        assert_eq!(of_table(&rows, Table::Nat), [], "{logical}");
    }
}

#[test]
fn the_policy_and_the_access_lists_name_the_networks_own_ports() {
    let red = mk_red();
    let rows = north::plan(red.get(), true, &[]);
    let matches = |table: Table| -> Vec<String> {
        let of = of_table(&rows, table).into_iter();
        of.map(|(_, columns)| format!("{:?}", columns["match"]))
            .collect()
    };
    let policies = matches(Table::Policy);
    assert_eq!(policies.len(), 1);
    for part in [
        "rtos-cluster_udn_red_n1",
        "10.150.1.0/24",
        "10.150.1.2",
        "$noverlay_routed_cluster_udn_red_v4",
    ] {
        assert!(policies[0].contains(part), "{part}: {}", policies[0]);
    }
    for list in matches(Table::GroupAcl) {
        assert!(list.contains("k8s-cluster_udn_red_n1"), "{list}");
    }
    // Whatever there is has a name that is looked for.
    let keys = north::keys(red.get().name(), &red.node.name);
    let rows = north::plan(red.get(), true, &[recorded()]);
    let roots = rows.keys().filter(|key| key.table.parent().is_none());
    for key in roots {
        assert!(keys.contains(key), "{key:?}");
    }
}

#[test]
fn what_comes_from_the_wire_is_led_into_the_vrf_and_the_host_has_no_way() {
    let red = mk_red();
    let entries = host::entries(red.get());
    let rules: Vec<String> = entries.rules.iter().map(ToString::to_string).collect();
    assert_eq!(
        rules,
        ["rule 2900 to 10.150.1.0/24 iif br-ex lookup 1008 suppress_prefixlength 16"]
    );
    assert!(entries.routes.is_empty());
    assert_eq!(host::by_tunnel(red.get()), Default::default());
    assert_eq!(
        sysctls(red.get()),
        ["br-ex", "ovn-k8s-mp1", "red"].map(|device| format!("net/ipv4/conf/{device}/forwarding"))
    );
}

#[test]
fn the_packet_filter_sees_a_packet_of_a_vrf_by_each_of_its_devices() {
    let red = mk_red();
    let uplinks = ["eth1".to_owned()];
    let ruleset = host::ruleset(red.get(), &uplinks, true);
    let chains: Vec<&str> = ruleset.chains.keys().map(String::as_str).collect();
    assert_eq!(chains, ["guard", "raw"], "the host sends nothing to pods");
    let raw = |device: &str| {
        format!(
            "iifname \"{device}\" ip saddr @pods-1-v4 ip daddr @pods-1-v4 ip daddr != 10.150.1.2 notrack"
        )
    };
    let devices = ["br-ex", "ovn-k8s-mp1", "red", "eth1"];
    assert_eq!(ruleset.chains["raw"].rules, devices.map(raw));
    assert_eq!(
        ruleset.chains["guard"].rules,
        [
            "meta sdifname != \"ovn-k8s-mp1\" oifname \"ovn-k8s-mp1\" ip daddr @pods-1-v4 ip saddr != @pods-1-v4 ct state new drop",
            "meta sdifname \"ovn-k8s-mp1\" oifname \"ovn-k8s-mp1\" ip saddr @pods-1-v4 ip daddr @pods-1-v4 ct state untracked drop",
        ]
    );
    let names: Vec<&String> = ruleset.sets.keys().collect();
    assert!(
        names.iter().all(|name| host::sets_of(1).contains(name)),
        "{names:?}"
    );
    assert_eq!(host::sets_of(0), ["pods-v4", "pods-v6"]);
    // With the default network in one table.
    let mut both = host::ruleset(mk_view(1).get(), &[], true);
    both.extend(ruleset);
    assert_eq!(both.sets.len(), 2);
    assert_eq!(both.chains["raw"].rules.len(), 6);
}

/// A plan for both networks at the last step.
fn plan_of(view: &View, steps: &Steps) -> plan_node::Plan {
    let shares = [mk_view(1).share, view.share.clone()];
    let mut snapshot = mk_snapshot(&view.node, &shares);
    let mut port = mk_link(40, "ovn-k8s-mp1");
    let mut uplink = mk_link(41, "eth1");
    let links = snapshot.machine.links.as_mut().unwrap();
    let vrf = links.iter().find(|link| link.name == "red").unwrap().index;
    (port.master, uplink.master) = (Some(vrf), Some(vrf));
    links.extend([port, uplink]);
    beside::plan(&snapshot, steps, &Routed::default(), &Translations::new())
}

#[test]
fn networks_are_led_each_for_itself() {
    let red = mk_red();
    let (default, name) = (NetworkName::default_network(), red.get().name().clone());
    let steps =
        |first: Step, second: Step| [(default.clone(), first), (name.clone(), second)].into();
    let plan = plan_of(&red, &steps(Step::Absent, Step::Steering));
    assert!(plan.is_complete());
    let owners: Vec<&Owner> = plan.north.keys().collect();
    assert_eq!(owners, [&Owner::Network(name.clone())]);
    assert_eq!(plan.steering.rules.len(), 1);
    assert!(plan.nft.sets.keys().all(|set| set.starts_with("pods-1-")));
    let raw = plan.nft.chains["raw"].rules.join("\n");
    assert!(raw.contains("eth1"), "an uplink of the VRF: {raw}");
    let plan = plan_of(&red, &steps(Step::Steering, Step::Absent));
    assert_eq!(
        plan.north.keys().collect::<Vec<_>>(),
        [&Owner::Network(default.clone())]
    );
    assert_eq!(plan.steering.rules.len(), 4);
    // One that has not begun is not known, and only that.
    let plan = plan_of(&red, &[(default.clone(), Step::Steering)].into());
    assert!(plan.unknown.contains(&name) && !plan.unknown.contains(&default));
    assert!(
        !plan
            .unknown
            .contains(&NetworkName::from("cluster_udn_gone"))
    );
}

#[test]
fn a_network_of_which_nothing_stands_costs_no_other_its_completeness() {
    let (default, name) = (
        NetworkName::default_network(),
        NetworkName::from("cluster_udn_red"),
    );
    let mut snapshot = mk_snapshot(&mk_view(1).node, &[mk_view(1).share]);
    let unknown = UnknownShare {
        network: None,
        host_subnets: Vec::new(),
    };
    snapshot
        .networks
        .insert(name.clone(), Share::Unknown(unknown));
    for (steps, is_complete) in [
        (Steps::from([(default.clone(), Step::Host)]), false),
        (
            Steps::from([(default, Step::Host), (name, Step::Absent)]),
            true,
        ),
    ] {
        let plan = beside::plan(&snapshot, &steps, &Routed::default(), &Translations::new());
        assert_eq!(plan.is_complete(), is_complete);
    }
    // Nor does one that somebody has to mend first.
    let mut refused = snapshot.clone();
    refused
        .networks
        .insert("cluster_udn_red".into(), Share::Refused);
    let steps = [(NetworkName::default_network(), Step::Host)].into();
    let plan = beside::plan(&refused, &steps, &Routed::default(), &Translations::new());
    assert!(plan.is_complete());
    snapshot.unlisted = true;
    let steps = [(NetworkName::default_network(), Step::Host)].into();
    let plan = beside::plan(&snapshot, &steps, &Routed::default(), &Translations::new());
    assert!(
        plan.unknown
            .contains(&NetworkName::from("cluster_udn_unheard_of"))
    );
}

const ASKED: UserTransport = UserTransport::NoOverlay {
    outbound_snat: false,
    routing: Routing::Unmanaged,
};

/// These networks are declared.
fn declared(networks: &[&Network]) -> Declared {
    let mut declared = Declared::default();
    declared.listed = true;
    let networks = networks.iter();
    declared.networks = networks.map(|n| (n.name.clone(), (*n).clone())).collect();
    declared
}

fn wish(name: &NetworkName, transport: Result<UserTransport, String>) -> Asked {
    let wish = Wish {
        created: 0,
        transport,
    };
    [(name.clone(), wish)].into()
}

#[test]
fn the_annotation_alone_counts() {
    let led = Transport::NoOverlay(NoOverlay {
        outbound_snat: false,
        routing: Routing::Unmanaged,
        missing_route: MissingRoute::Forward,
    });
    // One of them OVN-Kubernetes runs without an overlay itself.
    let own = mk_red().share.network;
    let red = Network {
        transport: Transport::Geneve,
        ..own.clone()
    };
    let segment = mk_layer2_network("cluster_udn_gray", 2, &["10.153.0.0/16"]);
    let bad = || Err("annotation".to_owned());
    for (network, asked, transport) in [
        (&red, Ok(ASKED), led),
        (&own, Ok(ASKED), led),
        (&own, bad(), Transport::Geneve),
        (&red, bad(), Transport::Geneve),
        (&segment, Ok(ASKED), Transport::Geneve),
    ] {
        let asked = wish(&network.name, asked);
        // Rows stand, so that it is planned for, whatever is asked.
        let owners = [network.name.clone()].into();
        let (all, undeclared) =
            beside::networks(&declared(&[network]), Some(&asked), Some(&owners), |_| {
                false
            });
        assert_eq!(all[0].transport, transport, "{asked:?}");
        assert!(!undeclared.unlisted);
    }
}

#[test]
fn a_network_that_nobody_asks_for_is_none_of_ours_unless_something_of_it_stands() {
    let red = mk_red().share.network;
    let name = &red.name;
    let declared = declared(&[&red]);
    let count = |asked: &Asked, owners: &BTreeSet<NetworkName>, begun: bool| {
        let (all, undeclared) = beside::networks(&declared, Some(asked), Some(owners), |_| begun);
        assert!(!undeclared.unlisted);
        all.len()
    };
    let (none, nobody) = (BTreeSet::new(), Asked::new());
    let standing = [name.clone()].into();
    assert_eq!(count(&nobody, &none, false), 0);
    assert_eq!(count(&nobody, &standing, false), 1);
    assert_eq!(count(&nobody, &none, true), 1);
    assert_eq!(count(&wish(name, Ok(ASKED)), &none, false), 1);
    assert_eq!(count(&wish(name, Err(String::new())), &none, false), 0);
}

#[test]
fn before_annotations_are_listed_what_stands_is_asked_for_by_somebody() {
    let red = mk_red().share.network;
    let declared = declared(&[&red]);
    let default: BTreeSet<NetworkName> = [NetworkName::default_network()].into();
    let both = || [NetworkName::default_network(), red.name.clone()].into();
    for (owners, unlisted) in [(None, true), (Some(both()), true), (Some(default), false)] {
        let (all, undeclared) = beside::networks(&declared, None, owners.as_ref(), |_| false);
        assert_eq!(all, [], "nobody knows by which way it is to go");
        // Where nothing stands of any network of users, the default one goes its way.
        assert_eq!(undeclared.unlisted, unlisted, "{owners:?}");
    }
}

/// Networks red and blue have common subnets, green and the default network have others.
fn overlapping() -> (plan_node::Snapshot, [NetworkName; 2]) {
    let (red, blue) = (
        share("cluster_udn_red", 1, "10.150.0.0/16/24", "10.150.1.0/24"),
        share(
            "cluster_udn_blue",
            2,
            "10.150.128.0/17/24",
            "10.150.129.0/24",
        ),
    );
    let apart = share("cluster_udn_green", 3, "10.151.0.0/16/24", "10.151.1.0/24");
    let names = [&red, &blue].map(|share| share.network.name.clone());
    let shares = [mk_view(1).share, red, blue, apart];
    (mk_snapshot(&mk_view(1).node, &shares), names)
}

/// Both are asked for; when they were made.
fn created(red: i64, blue: i64) -> Asked {
    let wish = |name: &str, created| {
        let transport = Ok(ASKED);
        (NetworkName::from(name), Wish { created, transport })
    };
    [wish("cluster_udn_red", red), wish("cluster_udn_blue", blue)].into()
}

/// Networks that another one keeps in the tunnels.
fn kept(snapshot: &plan_node::Snapshot, asked: &Asked, steps: &Steps) -> Vec<String> {
    kept_beside(snapshot, asked, &BTreeSet::new(), steps)
}

/// The same where these have another reason to stay in them.
fn kept_beside(
    snapshot: &plan_node::Snapshot,
    asked: &Asked,
    away: &BTreeSet<NetworkName>,
    steps: &Steps,
) -> Vec<String> {
    let step = |name: &NetworkName| steps.get(name).copied().unwrap_or(Step::Absent);
    let of = |(name, view): (&NetworkName, plan_node::NetworkView<'_>)| {
        let problem = beside::taken(snapshot, view, asked, away, step)?;
        assert_eq!(problem.reason, "SubnetsOverlap");
        Some(name.to_string())
    };
    snapshot.here().filter_map(of).collect()
}

#[test]
fn of_two_networks_with_common_subnets_every_node_takes_the_same_one() {
    let (mut snapshot, [_, of_blue]) = overlapping();
    let none = Steps::new();
    assert_eq!(
        kept(&snapshot, &created(1, 2), &none),
        ["cluster_udn_blue"],
        "red is elder"
    );
    assert_eq!(kept(&snapshot, &created(2, 1), &none), ["cluster_udn_red"]);
    assert_eq!(
        kept(&snapshot, &created(1, 1), &none),
        ["cluster_udn_red"],
        "by name"
    );
    // Some node is led past the tunnels for the younger one, this one or another.
    let blue_here = [(of_blue.clone(), Step::Ready)].into();
    assert_eq!(
        kept(&snapshot, &created(1, 2), &blue_here),
        ["cluster_udn_red"]
    );
    snapshot.machine.reported = [of_blue.clone()].into();
    assert_eq!(kept(&snapshot, &created(1, 2), &none), ["cluster_udn_red"]);
    // Nobody asks for blue any more: it is in the way while it goes back.
    let share = snapshot.networks.get_mut(&of_blue).unwrap();
    let Share::Here(here) = share else { panic!() };
    here.network.transport = Transport::Geneve;
    assert_eq!(
        kept(&snapshot, &created(1, 2), &blue_here),
        ["cluster_udn_red"]
    );
    assert_eq!(kept(&snapshot, &created(1, 2), &none), [""; 0]);
}

#[test]
fn a_network_that_cannot_be_led_here_keeps_no_other_one_back_unless_others_are_led_for_it() {
    let (mut snapshot, [of_red, _]) = overlapping();
    let (elder, none, refused) = (created(1, 2), Steps::new(), [of_red.clone()].into());
    assert_eq!(kept(&snapshot, &elder, &none), ["cluster_udn_blue"]);
    assert_eq!(kept_beside(&snapshot, &elder, &refused, &none), [""; 0]);
    // It goes back first.
    for step in [Step::Untracked, Step::Host] {
        let back = [(of_red.clone(), step)].into();
        let kept = kept_beside(&snapshot, &elder, &refused, &back);
        assert_eq!(kept, ["cluster_udn_blue"]);
    }
    snapshot.machine.reported = [of_red].into();
    let kept = kept_beside(&snapshot, &elder, &refused, &none);
    assert_eq!(kept, ["cluster_udn_blue"]);
}

#[test]
fn of_two_networks_with_common_subnets_one_waits_until_the_other_has_gone_back() {
    let (mut snapshot, [of_red, of_blue]) = overlapping();
    let none = Steps::new();
    // Both are asked for, red is led, and blue is on its way back here: red waits for it, too.
    let blue_back = [(of_blue.clone(), Step::Host)].into();
    snapshot.machine.reported = [of_red.clone()].into();
    assert_eq!(
        kept(&snapshot, &created(1, 2), &blue_back),
        ["cluster_udn_blue", "cluster_udn_red"]
    );
    let red_first = [(of_blue.clone(), Step::Host), (of_red.clone(), Step::Ready)];
    assert_eq!(
        kept(&snapshot, &created(1, 2), &red_first.into()),
        ["cluster_udn_blue"],
        "one that is told to others stays"
    );
    // Nodes have routes to pods of the default network, in the tunnels too.
    let mut covered = snapshot.clone();
    let Some(Share::Here(here)) = covered.networks.get_mut(&NetworkName::default_network()) else {
        panic!()
    };
    here.network.transport = Transport::Geneve;
    let wide = share("cluster_udn_wide", 4, "10.128.0.0/14/24", "10.130.1.0/24");
    let wide_name = wide.network.name.clone();
    covered.networks.insert(wide_name, Share::Here(wide));
    assert!(kept(&covered, &created(1, 2), &none).contains(&"cluster_udn_wide".to_owned()));
}
