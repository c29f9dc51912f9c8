//! What is added beside OVN-Kubernetes for networks of users.

use std::collections::BTreeSet;

use model::names::NetworkName;
use model::nb::{BESIDE, Columns, OWNER, Owner, RowKey, Rows, Table, Value};
use model::network::{Network, Routing, Transport};
use model::user_network::UserTransport;
use plan_node::beside::signs::sysctls;
use plan_node::beside::steps::Step;
use plan_node::beside::{self, Routed, Steps, Translations, host, north};
use plan_node::{NetworkShare, Share, UnknownShare, Vrf};
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

/// The row by which OVN-Kubernetes translates what leaves for the management port, as recorded in shared gateway mode.
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
    snapshot.unlisted = true;
    let steps = [(NetworkName::default_network(), Step::Host)].into();
    let plan = beside::plan(&snapshot, &steps, &Routed::default(), &Translations::new());
    assert!(
        plan.unknown
            .contains(&NetworkName::from("cluster_udn_unheard_of"))
    );
}

#[test]
fn the_annotation_counts_where_the_object_itself_gives_tunnels() {
    let asked = UserTransport::NoOverlay {
        outbound_snat: true,
        routing: Routing::Managed,
    };
    let geneve = |network: Network| Network {
        transport: Transport::Geneve,
        ..network
    };
    let red = geneve(mk_red().share.network);
    let transport = |network: &Network, asked| beside::asked(network, asked).transport;
    assert_eq!(transport(&red, None), Transport::Geneve);
    assert_eq!(transport(&red, Some(&asked)), asked.transport());
    let own = mk_red().share.network;
    let other = UserTransport::NoOverlay {
        outbound_snat: false,
        routing: Routing::Unmanaged,
    };
    assert_eq!(transport(&own, Some(&other)), own.transport);
    let segment = mk_layer2_network("cluster_udn_gray", 2, &["10.153.0.0/16"]);
    assert_eq!(transport(&segment, Some(&asked)), Transport::Geneve);
}
