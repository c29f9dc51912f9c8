//! What is added beside OVN-Kubernetes.

use model::Family;
use model::names::NetworkName;
use model::nb::{Table, Value};
use model::nft;
use plan_node::beside::{host, north};
use testkit::{View, mk_dual_view, mk_user_network, mk_view};

/// Table and a column of each row that has it.
fn column(view: &View, steers: bool, name: &str) -> Vec<(Table, String)> {
    let rows = north::plan(view.get(), steers);
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
    let rows = north::plan(mk_dual_view(1).get(), true);
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
    assert!(north::plan(view.get(), true).is_empty());
    assert_eq!(
        host::entries(view.get()),
        model::steering::Entries::default()
    );
    let ruleset = host::ruleset(view.get());
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
            "rule 2901 to 10.128.0.0/16 iif ovn-k8s-mp0 unreachable",
            "rule 2901 to 10.132.0.0/18 iif ovn-k8s-mp0 unreachable",
            "rule 2902 to 10.128.0.0/16 lookup 2900000000",
            "rule 2902 to 10.132.0.0/18 lookup 2900000000",
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
    let ruleset = host::ruleset(mk_dual_view(1).get());
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
        rules("guard")[0],
        "iifname \"br-ex\" oifname \"ovn-k8s-mp0\" ip daddr @pods-v4 ip saddr != @pods-v4 ct state new drop"
    );
    assert_eq!(rules("raw").len(), 4, "a rule for each device and family");
    assert_eq!(ruleset.sets.len(), 2);
}
