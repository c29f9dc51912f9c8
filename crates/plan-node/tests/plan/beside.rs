//! What is added beside OVN-Kubernetes.

use model::Family;
use model::gateway::GatewayMode;
use model::names::{NetworkName, NodeName};
use model::nb::{Owner, Table, Value};
use model::nft;
use model::node::Node;
use plan_node::beside::signs::{Found, forbids, sysctls};
use plan_node::beside::steps::Step;
use plan_node::beside::{self, Routed, Steps, Translations, host, north};
use testkit::{View, mk_dual_view, mk_node, mk_snapshot, mk_user_network, mk_view};

/// Table and a column of each row that has it.
fn column(view: &View, steers: bool, name: &str) -> Vec<(Table, String)> {
    let rows = north::plan(view.get(), steers, &[]);
    let texts = rows.iter().filter_map(|(key, columns)| {
        let Value::Text(text) = columns.get(name)? else {
            return None;
        };
        Some((key.table, text.clone()))
    });
    texts.collect()
}

#[test]
fn the_management_port_tracks_nothing_between_pods_of_two_nodes() {
    let f = "(ip4.src == 10.128.1.0/24 && ip4.dst == 10.128.0.0/16 && ip4.dst != 10.128.1.0/24) || (ip4.src == 10.128.0.0/16 && ip4.src != 10.128.1.0/24 && ip4.dst == 10.128.1.0/24)";
    assert_eq!(
        column(&mk_view(1), false, "match"),
        [
            (Table::GroupAcl, format!("inport == \"k8s-n1\" && ({f})")),
            (Table::GroupAcl, format!("outport == \"k8s-n1\" && ({f})")),
        ]
    );
    let both = column(&mk_dual_view(1), false, "match");
    assert_eq!(both.len(), 2, "one ACL a direction for both families");
    assert!(
        both.iter()
            .all(|(_, text)| text.contains("ip6.dst == fd01::/48")),
        "{both:?}"
    );
}

#[test]
fn what_is_in_the_set_goes_to_the_host_and_nothing_that_comes_from_it() {
    let matches = column(&mk_dual_view(1), true, "match");
    let policies: Vec<&str> = matches
        .iter()
        .filter(|(table, _)| *table == Table::Policy)
        .map(|(_, text)| text.as_str())
        .collect();
    assert_eq!(
        policies,
        [
            "inport == \"rtos-n1\" && ip4.src == 10.128.1.0/24 && ip4.src != 10.128.1.2 && ip4.dst == $noverlay_routed_default_v4",
            "inport == \"rtos-n1\" && ip6.src == fd01:0:0:1::/64 && ip6.src != fd01:0:0:1::2 && ip6.dst == $noverlay_routed_default_v6",
        ]
    );
    let rows = north::plan(mk_dual_view(1).get(), true, &[]);
    let sets = rows
        .iter()
        .filter(|(key, _)| key.table == Table::AddressSet);
    for (key, columns) in sets {
        assert!(
            !columns.contains_key("addresses"),
            "{key}: they are the import's"
        );
    }
}

#[test]
fn a_node_without_pods_has_nothing() {
    let mut view = mk_view(1);
    view.share.host_subnets.clear();
    assert!(north::plan(view.get(), true, &[]).is_empty());
    assert_eq!(
        host::entries(view.get()),
        model::steering::Entries::default()
    );
    let ruleset = host::ruleset(view.get(), &[], true);
    assert!(ruleset.is_empty() && ruleset.table == nft::Table::Own);
}

#[test]
fn names_are_what_expressions_take_and_differ_between_networks() {
    let network = mk_user_network("cluster_udn_red-1.a", 3, &["10.150.0.0/16/24"], &[]);
    let set = north::routed(&network.name, Family::V6).id;
    assert_eq!(set, "noverlay_routed_cluster_udn_red_1.a_v6");
    let default = NetworkName::default_network();
    assert_eq!(north::port_group(&default).id, "noverlay_mp_default");
}

#[test]
fn a_second_subnet_of_a_network_has_rules_of_its_own() {
    let mut view = mk_view(1);
    view.add_subnet("10.132.0.0/18/24");
    let entries = host::entries(view.get());
    let shown: Vec<String> = entries.rules.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "rule 2898 from 10.128.0.0/16 to 10.128.0.0/16 lookup main suppress_prefixlength 16",
            "rule 2898 from 10.128.0.0/16 to 10.132.0.0/18 lookup main suppress_prefixlength 18",
            "rule 2898 from 10.132.0.0/18 to 10.128.0.0/16 lookup main suppress_prefixlength 16",
            "rule 2898 from 10.132.0.0/18 to 10.132.0.0/18 lookup main suppress_prefixlength 18",
            "rule 2899 to 10.128.0.0/16 iif lo lookup main suppress_prefixlength 16",
            "rule 2899 to 10.132.0.0/18 iif lo lookup main suppress_prefixlength 18",
            "rule 2900 to 10.128.1.0/24 lookup main suppress_prefixlength 16",
            "rule 2901 to 10.128.0.0/16 lookup 2900000000",
            "rule 2901 to 10.132.0.0/18 lookup 2900000000",
        ]
    );
    let routes: Vec<String> = entries.routes.iter().map(ToString::to_string).collect();
    assert_eq!(
        routes,
        [
            "route 10.128.0.0/16 via 10.128.1.1 dev ovn-k8s-mp0 table 2900000000",
            "route 10.132.0.0/18 via 10.128.1.1 dev ovn-k8s-mp0 table 2900000000",
        ]
    );
}

#[test]
fn the_packet_filter_is_a_table_of_our_own_with_three_chains_for_each_family() {
    let ruleset = host::ruleset(mk_dual_view(1).get(), &[], true);
    assert_eq!(ruleset.table, nft::Table::Own);
    let rules = |chain: &str| ruleset.chains[chain].rules.clone();
    assert_eq!(
        rules("post"),
        [
            "oifname \"br-ex\" ip daddr @pods-v4 fib saddr type local snat ip to 10.128.1.2",
            "oifname \"br-ex\" ip6 daddr @pods-v6 fib saddr type local snat ip6 to fd01:0:0:1::2",
        ]
    );
    assert_eq!(
        rules("guard"),
        [
            "iifname \"br-ex\" oifname \"ovn-k8s-mp0\" ip daddr @pods-v4 ip saddr != @pods-v4 ct state new drop",
            "iifname \"ovn-k8s-mp0\" oifname \"ovn-k8s-mp0\" ip saddr @pods-v4 ip daddr @pods-v4 ct state untracked drop",
            "iifname \"br-ex\" oifname \"ovn-k8s-mp0\" ip6 daddr @pods-v6 ip6 saddr != @pods-v6 ct state new drop",
            "iifname \"ovn-k8s-mp0\" oifname \"ovn-k8s-mp0\" ip6 saddr @pods-v6 ip6 daddr @pods-v6 ct state untracked drop",
        ]
    );
    assert_eq!(rules("raw").len(), 4, "a rule for each device and family");
    assert_eq!(ruleset.sets.len(), 2);
}

#[test]
fn pods_keep_their_addresses_towards_the_outside_where_that_is_wanted_and_the_host_forwards_them() {
    let mut view = mk_dual_view(1);
    view.node.service_cidrs = vec!["172.31.0.0/16".parse().unwrap()];
    view.node.api_servers = ["172.30.0.101".parse().unwrap()].into();
    let keeps = |view: &View| {
        host::ruleset(view.get(), &[], true)
            .chains
            .contains_key("keep")
    };
    for mode in [GatewayMode::Local, GatewayMode::Shared] {
        view.node.mode = mode;
        assert!(!keeps(&view), "{mode:?}: OVN-Kubernetes' translation stays");
        assert!(!host::is_translated_all_the_same(view.get()));
    }
    view.no_overlay(|options| options.outbound_snat = false);
    assert!(!keeps(&view) && host::is_translated_all_the_same(view.get()));
    view.node.mode = GatewayMode::Local;
    assert!(!host::is_translated_all_the_same(view.get()));
    let ruleset = host::ruleset(view.get(), &[], true);
    let chain = &ruleset.chains["keep"];
    assert_eq!(chain.hook.as_ref().unwrap().priority, 98);
    assert_eq!(
        chain.rules,
        [
            "iifname \"ovn-k8s-mp0\" oifname \"br-ex\" ip saddr 10.128.1.0/24 ip saddr != 10.128.1.2 ip daddr != @translated-v4 snat ip to ip saddr",
            "iifname \"ovn-k8s-mp0\" oifname \"br-ex\" ip6 saddr fd01:0:0:1::/64 ip6 saddr != fd01:0:0:1::2 ip6 daddr != @translated-v6 snat ip6 to ip6 saddr",
        ]
    );
    let elements = |name: &str| {
        let elements = ruleset.sets[name].elements.iter();
        elements.map(ToString::to_string).collect::<Vec<_>>()
    };
    let v4 =
        "10.128.0.0/16 172.30.0.1/32 172.30.0.2/32 172.30.0.3/32 172.30.0.101/32 172.31.0.0/16";
    assert_eq!(elements("translated-v4").join(" "), v4);
    assert_eq!(elements("translated-v6"), ["fd01::/48"]);
    // On the way back to the tunnels nothing is kept any more.
    view.share.network.transport = model::network::Transport::Geneve;
    assert!(!keeps(&view) && !host::is_translated_all_the_same(view.get()));
}

/// A snapshot of nodes n1 (own), n2 and n3, of which `ready` say that they take packets from the physical network.
fn snapshot_with(ready: &[&str]) -> plan_node::Snapshot {
    let view = mk_view(1);
    let mut snapshot = mk_snapshot(&view.node, std::slice::from_ref(&view.share));
    let default = NetworkName::default_network();
    let claims = snapshot.machine.claims.get_mut(&default).unwrap();
    let all = [
        ("n1", "10.128.1.0/24"),
        ("n2", "10.128.2.0/24"),
        ("n3", "10.128.3.0/24"),
    ];
    let nodes: Vec<Node> = all
        .iter()
        .map(|(name, subnet)| mk_node(name, &[("default", &[*subnet])]))
        .collect();
    *claims = plan_node::claims::evaluate(&view.share.network, &nodes, &[]);
    let of = |name: &&str| {
        let node = nodes.iter().find(|node| node.name.as_str() == *name)?;
        let subnets = node.subnets.known()?.get(&default)?;
        let said = [(default.clone(), subnets.clone())];
        Some((node.name.clone(), said.into()))
    };
    snapshot.machine.underlay_ready = ready.iter().filter_map(of).collect();
    snapshot
}

#[test]
fn each_step_has_what_those_before_it_have_and_its_own() {
    let default = NetworkName::default_network();
    let snapshot = snapshot_with(&["n2"]);
    let mut before = (0, 0, 0, 0);
    for (step, wanted) in [
        (Step::Absent, (0, 0, 0, 0)),
        (Step::Untracked, (3, 0, 0, 0)),
        (Step::Filtered, (3, 0, 3, 0)),
        (Step::Host, (3, 4, 3, 0)),
        (Step::Ready, (3, 4, 3, 0)),
        (Step::Steering, (5, 4, 3, 1)),
    ] {
        let plan = beside::plan(
            &snapshot,
            &[(default.clone(), step)].into(),
            &Routed::default(),
            &Translations::new(),
        );
        let rows = plan.north.get(&Owner::Network(default.clone()));
        let sets = plan.learn[&default].sets.clone().unwrap();
        let steered: usize = sets.values().map(std::collections::BTreeMap::len).sum();
        let now = (
            rows.map_or(0, model::nb::Rows::len),
            plan.steering.rules.len(),
            plan.nft.chains.len(),
            steered,
        );
        assert_eq!(now, wanted, "{step:?}");
        assert!(now >= before && plan.is_complete());
        before = now;
        // Nothing of OVN-Kubernetes' own is planned.
        assert!(
            plan.ports.is_empty()
                && plan.south.is_none()
                && matches!(plan.flows, plan_node::FlowTable::Unknown { .. })
        );
        assert_eq!(plan.kernel, model::kernel::Entries::default());
        let keys: Vec<&String> = plan.annotations.iter().flat_map(|all| all.keys()).collect();
        assert_eq!(keys, ["noverlay.io/host-mtu"]);
    }
}

#[test]
fn a_set_may_hold_subnets_of_ready_peers_and_no_others() {
    let default = NetworkName::default_network();
    let steered = |snapshot: &plan_node::Snapshot| -> Vec<String> {
        let steps = [(default.clone(), Step::Steering)].into();
        let plan = beside::plan(snapshot, &steps, &Routed::default(), &Translations::new());
        let sets = plan.learn[&default].sets.clone().unwrap();
        let all = sets.values().flat_map(|subnets| subnets.iter());
        all.map(|(subnet, above)| format!("{subnet} over {above}"))
            .collect()
    };
    assert_eq!(steered(&snapshot_with(&[])), [""; 0]);
    assert_eq!(steered(&snapshot_with(&["n1"])), [""; 0], "it is itself");
    assert_eq!(steered(&snapshot_with(&["n3"])), ["10.128.3.0/24 over 16"]);
    let both = ["10.128.2.0/24 over 16", "10.128.3.0/24 over 16"];
    assert_eq!(steered(&snapshot_with(&["n1", "n2", "n3"])), both);
    // Ready for another network.
    let mut snapshot = snapshot_with(&["n3"]);
    let second: model::Prefix = "10.128.2.0/24".parse().unwrap();
    let third: model::Prefix = "10.128.3.0/24".parse().unwrap();
    for said in [(NetworkName::from("red"), second), (default.clone(), third)] {
        // Nor for a subnet that it has got since.
        let said = [(said.0, vec![said.1])].into();
        let ready = &mut snapshot.machine.underlay_ready;
        ready.insert(NodeName::from("n2"), said);
        assert_eq!(steered(&snapshot), ["10.128.3.0/24 over 16"]);
    }
}

#[test]
fn a_network_without_a_step_is_not_known_and_neither_is_any_other_name() {
    let snapshot = snapshot_with(&["n2"]);
    let plan = beside::plan(
        &snapshot,
        &Steps::new(),
        &Routed::default(),
        &Translations::new(),
    );
    assert!(!plan.is_complete() && plan.north.is_empty() && plan.learn.is_empty());
    let default = NetworkName::default_network();
    for name in [default, NetworkName::from("cluster_udn_red")] {
        assert!(plan.unknown.contains(&name), "{name}");
    }
}

/// A node on which nothing forbids it, but for what `change` makes of it.
fn found(change: fn(&mut Found)) -> Found {
    let mut found = Found {
        vrf: true,
        router: true,
        port: true,
        tunnels: true,
        ..Found::default()
    };
    change(&mut found);
    found
}

/// A change, the reason that it leads to, and words of the message.
type Case = (fn(&mut Found), &'static str, &'static str);

#[test]
fn what_forbids_the_way_past_the_tunnels_is_said_in_words() {
    let view = mk_view(1);
    assert_eq!(forbids(view.get(), &found(|_| ()), true), None);
    let alone = found(|found| found.tunnels = false);
    assert_eq!(forbids(view.get(), &alone, false), None, "the only node");
    let all: [Case; 9] = [
        (|f| f.tunnels = false, "NoRoutesOverTunnels", "ic-node"),
        (
            |f| f.own_subnet_route = true,
            "OvnKubernetesRoutes",
            "GR_n1 has a route to the node's subnet",
        ),
        (
            |f| f.no_overlay_snat = true,
            "OvnKubernetesRoutes",
            "NAT row",
        ),
        (
            |f| f.router = false,
            "NotThere",
            "Logical_Router ovn_cluster_router",
        ),
        (|f| f.port = false, "NotThere", "Logical_Switch_Port k8s-n1"),
        (|f| f.built = true, "BuiltByNoverlay", "topology = build"),
        (|f| f.vrf = false, "NoVrfDevice", "no VRF device"),
        (
            |f| f.is_strict = true,
            "StrictReversePathFilter",
            "rp_filter",
        ),
        (
            |f| f.not_forwarding = vec!["net.ipv4.conf.br-ex.forwarding".to_owned()],
            "HostDoesNotForward",
            "net.ipv4.conf.br-ex.forwarding must be 1",
        ),
    ];
    for (change, reason, word) in all {
        let problem = forbids(view.get(), &found(change), true).unwrap();
        assert_eq!(problem.reason, reason);
        assert!(problem.message.contains(word), "{}", problem.message);
    }
    assert_eq!(
        sysctls(mk_dual_view(1).get()),
        [
            "net/ipv4/conf/br-ex/forwarding",
            "net/ipv4/conf/ovn-k8s-mp0/forwarding",
            "net/ipv6/conf/all/forwarding"
        ]
    );
}

#[test]
fn pods_keep_their_addresses_only_while_others_know_the_way_to_them() {
    let default = NetworkName::default_network();
    let mut view = mk_view(1);
    view.node.mode = GatewayMode::Local;
    view.no_overlay(|options| options.outbound_snat = false);
    let snapshot = mk_snapshot(&view.node, std::slice::from_ref(&view.share));
    let keeps = |step: Step, is_known: bool| {
        let routed = Routed {
            own: is_known.then(|| default.clone()).into_iter().collect(),
            ..Routed::default()
        };
        let plan = beside::plan(
            &snapshot,
            &[(default.clone(), step)].into(),
            &routed,
            &Translations::new(),
        );
        plan.nft.chains.contains_key("keep")
    };
    for step in [Step::Untracked, Step::Filtered, Step::Host, Step::Ready] {
        assert!(
            !keeps(step, true),
            "{step:?}: on the way out they are taken back first"
        );
    }
    assert!(keeps(Step::Steering, true) && !keeps(Step::Steering, false));
}

#[test]
fn routes_to_pods_that_nobody_is_led_by_are_kept_from_the_hosts_packets() {
    let default = NetworkName::default_network();
    let snapshot = snapshot_with(&["n2"]);
    let rules = |step: Step, is_routed: bool| -> Vec<u32> {
        let routed = Routed {
            others: is_routed.then(|| default.clone()).into_iter().collect(),
            ..Routed::default()
        };
        let plan = beside::plan(
            &snapshot,
            &[(default.clone(), step)].into(),
            &routed,
            &Translations::new(),
        );
        assert!(step >= Step::Filtered || plan.nft.is_empty());
        let rules = plan.steering.rules.iter();
        rules.map(|rule| rule.preference).collect()
    };
    // Also where the table stands and the rules are only to come, or are gone already.
    for step in [Step::Absent, Step::Untracked, Step::Filtered] {
        assert_eq!(rules(step, false), [0; 0], "{step:?}");
        assert_eq!(rules(step, true), [2900, 2901], "{step:?}");
    }
    assert_eq!(rules(Step::Host, true), rules(Step::Host, false));
}

/// What others' chains have to accept, where pods keep their addresses, too.
#[test]
fn nobody_has_to_accept_what_is_translated_all_the_same() {
    let mut view = mk_dual_view(1);
    view.node.mode = GatewayMode::Local;
    view.no_overlay(|options| options.outbound_snat = false);
    let ruleset = host::ruleset(view.get(), &[], true);
    assert!(ruleset.sets.contains_key("translated-v4"));
    let between = host::between(&ruleset);
    let between: Vec<String> = between.iter().map(ToString::to_string).collect();
    assert_eq!(between, ["10.128.0.0/16", "fd01::/48"]);
}

#[test]
fn a_network_that_is_no_more_and_at_the_first_step_has_nothing() {
    let default = NetworkName::default_network();
    let mut snapshot = snapshot_with(&["n2"]);
    snapshot.networks.clear();
    let steps: Steps = [(default.clone(), Step::Absent)].into();
    let plan = beside::plan(&snapshot, &steps, &Routed::default(), &Translations::new());
    assert!(plan.is_complete() && plan.north.is_empty());
    assert!(plan.steering.rules.is_empty() && plan.nft.is_empty());
}
