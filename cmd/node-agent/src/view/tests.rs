//! Facts into views: what is missing is named, what is malformed costs nothing that stands.

use std::net::{Ipv4Addr, SocketAddr};

use model::ovs::BridgeFact;

use super::*;

fn mk_settings(more: &str) -> Settings {
    let text = format!(
        r#"
[default]
transport = "no-overlay"
cluster-subnets = "10.128.0.0/16/24"
[no-overlay]
outbound-snat = "enabled"
routing = "managed"
[bgp-managed]
topology = "full-mesh"
[ovn]
topology = "build"
{more}
"#
    );
    let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    settings::parse("test.toml", &text, metrics).unwrap()
}

fn mk_node(name: &str, address: &str) -> Node {
    Node {
        name: name.into(),
        labels: model::selector::Labels::new(),
        internal_ips: vec![address.parse().unwrap()],
        bad_addresses: Vec::new(),
        node_id: Fact::Known(2),
        subnets: Fact::Known(
            [(
                NetworkName::default_network(),
                vec!["10.128.1.0/24".parse().unwrap()],
            )]
            .into(),
        ),
        primary: Fact::Absent,
        host_cidrs: Fact::Absent,
        host_mtu: Fact::Absent,
    }
}

fn mk_link(index: u32, name: &str, addresses: &[&str]) -> LinkFact {
    LinkFact {
        index,
        name: name.to_owned(),
        mac: Some("0a:58:ac:1e:00:01".parse().unwrap()),
        mtu: 1500,
        up: true,
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
    }
}

fn mk_links() -> Vec<LinkFact> {
    vec![
        mk_link(1, "lo", &["127.0.0.1/8", "192.0.2.9/32"]),
        mk_link(
            2,
            "br-ex",
            &["172.30.0.1/24", "fe80::1/64", "fd01::1/64", "172.30.0.0/24"],
        ),
        mk_link(3, "ovn-k8s-mp0", &["10.128.1.2/24"]),
        mk_link(4, "cni0", &["10.128.1.1/24", "169.254.1.1/16"]),
        mk_link(5, "eth1", &["10.5.0.1/16"]),
    ]
}

fn mk_switch() -> Switch {
    Switch {
        system_id: Some("chassis-1".to_owned()),
        physical_networks: [("br-ex".to_owned(), "physnet".to_owned())].into(),
        bridges: [("br-ex".to_owned(), BridgeFact::default())].into(),
    }
}

fn view_of(
    settings: &Settings,
    nodes: &[Node],
    switch: &Switch,
    links: &[LinkFact],
) -> Result<NetworkView, NoView> {
    assemble(&Facts {
        settings,
        node: &"n1".into(),
        nodes,
        switch,
        links,
        nat_has_match: false,
    })
}

fn reason(outcome: Result<NetworkView, NoView>) -> &'static str {
    match outcome {
        Err(NoView::Problems(problems)) => problems[0].reason,
        other => panic!("{other:?}"),
    }
}

fn texts<T: ToString>(items: impl IntoIterator<Item = T>) -> Vec<String> {
    items.into_iter().map(|item| item.to_string()).collect()
}

#[test]
fn a_view_has_the_nodes_own_address_first_and_everybodys_addresses() {
    let settings = mk_settings("");
    let mut other = mk_node("n2", "172.30.0.2");
    other.host_cidrs = Fact::Known(vec!["10.6.0.1/16".parse().unwrap()]);
    let nodes = [mk_node("n1", "172.30.0.1"), other];
    let view = view_of(&settings, &nodes, &mk_switch(), &mk_links()).unwrap();
    assert_eq!(
        texts(view.gateway.addresses),
        ["172.30.0.1/24", "172.30.0.0/24"],
        "InternalIP first, link-local and other families left out"
    );
    assert_eq!(view.gateway.physical_network, "physnet");
    assert_eq!(view.gateway.chassis, "chassis-1");
    assert_eq!(
        texts(&view.host_addresses),
        [
            "10.5.0.1",
            "172.30.0.0",
            "172.30.0.1",
            "192.0.2.9",
            "fd01::1"
        ]
    );
    for address in ["10.6.0.1", "172.30.0.2", "172.30.0.1"] {
        assert!(view.node_addresses.contains(&address.parse().unwrap()));
    }
    assert_eq!(texts(view.join_subnets), ["100.64.0.0/16"]);
    assert_eq!(view.mtu, 1500);
    assert_eq!(view.ephemeral_port_range, "32768-60999");
}

#[test]
fn the_smallest_mtu_counts_where_none_is_set() {
    let mut other = mk_node("n2", "172.30.0.2");
    other.host_mtu = Fact::Known(1400);
    let nodes = [mk_node("n1", "172.30.0.1"), other];
    let unset = view_of(&mk_settings(""), &nodes, &mk_switch(), &mk_links());
    assert_eq!(unset.unwrap().mtu, 1400);
}

#[test]
fn a_replaced_default_route_leaves_the_gateways_own_out() {
    let nodes = [mk_node("n1", "172.30.0.1")];
    for (word, hops) in [("ignore", 1), ("replace", 0)] {
        let settings = mk_settings(&format!(
            "[gateway]\nnext-hop = \"172.30.0.100\"\nbgp-default = \"{word}\"\n"
        ));
        let view = view_of(&settings, &nodes, &mk_switch(), &mk_links()).unwrap();
        assert_eq!(view.gateway.next_hops.len(), hops, "{word}");
    }
}

#[test]
fn what_is_missing_or_malformed_is_named_and_gives_no_view() {
    let settings = mk_settings("");
    let (switch, links) = (mk_switch(), mk_links());
    let own = mk_node("n1", "172.30.0.1");
    let with = |change: &dyn Fn(&mut Node)| {
        let mut node = own.clone();
        change(&mut node);
        reason(view_of(&settings, &[node], &switch, &links))
    };
    assert_eq!(with(&|node| node.name = "n9".into()), "NoNode");
    assert_eq!(with(&|node| node.node_id = Fact::Absent), "NotAllocated");
    assert_eq!(with(&|node| node.subnets = Fact::Absent), "NotAllocated");
    assert_eq!(
        with(&|node| node.subnets = Fact::Malformed("x".to_owned())),
        "Malformed"
    );

    let nodes = [own];
    let mut bare = switch.clone();
    bare.system_id = None;
    assert_eq!(
        reason(view_of(&settings, &nodes, &bare, &links)),
        "NoSystemId"
    );
    bare = switch.clone();
    bare.physical_networks.clear();
    assert_eq!(
        reason(view_of(&settings, &nodes, &bare, &links)),
        "NoBridgeMapping"
    );
    assert_eq!(reason(view_of(&settings, &nodes, &switch, &[])), "NoBridge");
    let unaddressed = [mk_link(2, "br-ex", &["fe80::1/64"])];
    assert_eq!(
        reason(view_of(&settings, &nodes, &switch, &unaddressed)),
        "NoBridgeAddress"
    );
}

#[test]
fn a_cluster_without_the_network_has_no_view() {
    let mut settings = mk_settings("");
    settings.no_overlay = None;
    let outcome = view_of(&settings, &[], &mk_switch(), &mk_links());
    assert!(matches!(outcome, Err(NoView::NoNetwork)));
}
