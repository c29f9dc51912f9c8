//! The table that was proven by hand, row by row.

use super::*;

const MAC: &str = "0a:58:ac:1e:00:01";

fn input(mode: GatewayMode) -> BridgeInput {
    BridgeInput {
        uplink: 1,
        networks: vec![BridgeNetwork {
            network_id: 0,
            patch: 2,
            pod_subnets: vec!["10.128.1.0/24".parse().unwrap()],
            masquerade: Vec::new(),
            management: Vec::new(),
            advertised: Vec::new(),
            no_overlay: true,
        }],
        unknown: Vec::new(),
        is_complete: true,
        mac: MAC.parse().unwrap(),
        addresses: vec!["172.30.0.1".parse().unwrap()],
        mode,
        tunnels: false,
        services: Vec::new(),
    }
}

fn texts(flows: &[Flow]) -> Vec<String> {
    flows
        .iter()
        .map(|flow| {
            format!(
                "{}/{} {} => {}",
                flow.table, flow.priority, flow.matches, flow.actions
            )
        })
        .collect()
}

fn action<'a>(flows: &'a [Flow], priority: u16, matches: &str) -> Option<&'a str> {
    flows
        .iter()
        .find(|flow| flow.priority == priority && flow.matches == matches)
        .map(|flow| flow.actions.as_str())
}

#[test]
fn the_host_stage_needs_the_uplink_only() {
    assert_eq!(
        texts(&host_stage(1)),
        ["0/10 in_port=1 => LOCAL", "0/10 in_port=LOCAL => output:1"]
    );
}

#[test]
fn the_shared_table_is_the_proven_one() {
    let ct = "ct(commit,zone=64000,exec(set_field:";
    assert_eq!(
        texts(&full(&input(GatewayMode::Shared))),
        [
            "0/5 in_port=1,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00 => LOCAL".to_owned(),
            "0/9 in_port=2 => drop".to_owned(),
            format!("0/10 in_port=1,dl_dst={MAC} => LOCAL"),
            "0/10 in_port=LOCAL => output:1".to_owned(),
            "0/20 arp,in_port=1 => LOCAL,output:2".to_owned(),
            format!("0/20 arp,in_port=2,dl_src={MAC},arp_spa=172.30.0.1 => output:1"),
            "0/30 arp,in_port=1,arp_tpa=172.30.0.1,arp_op=1 => LOCAL".to_owned(),
            format!("0/50 ip,in_port=1,dl_dst={MAC},nw_dst=172.30.0.1 => ct(table=1,zone=64000)"),
            format!(
                "0/100 ip,in_port=2,dl_src={MAC},nw_src=172.30.0.1 => {ct}0x1->ct_mark)),output:1"
            ),
            format!("0/100 ip,in_port=LOCAL,nw_src=172.30.0.1 => {ct}0x2->ct_mark)),output:1"),
            format!("0/104 ip,in_port=2,dl_src={MAC},nw_src=10.128.1.0/24 => output:1"),
            format!("0/300 ip,in_port=1,dl_dst={MAC},nw_dst=10.128.1.0/24 => output:2"),
            "1/0  => LOCAL".to_owned(),
            format!("1/50 ct_state=+new+trk,ip => {ct}0x2->ct_mark)),LOCAL"),
            "1/100 ct_state=+est+trk,ct_mark=0x1 => output:2".to_owned(),
            "1/100 ct_state=+rel+trk,ct_mark=0x1 => output:2".to_owned(),
        ]
    );
}

#[test]
fn in_local_mode_pods_go_through_the_host() {
    let flows = full(&input(GatewayMode::Local));
    assert_eq!(
        action(&flows, 300, "ip,in_port=1,nw_dst=10.128.1.0/24"),
        Some("LOCAL")
    );
    let outward = format!("ip,in_port=LOCAL,dl_src={MAC},nw_src=10.128.1.0/24");
    assert_eq!(action(&flows, 104, &outward), Some("output:1"));
}

#[test]
fn without_a_patch_port_all_is_the_hosts() {
    let mut input = input(GatewayMode::Shared);
    input.networks.clear();
    let flows = full(&input);
    assert_eq!(action(&flows, 20, "arp,in_port=1"), Some("LOCAL"));
    assert!(flows.iter().all(|flow| !flow.actions.contains("output:2")));
}

#[test]
fn each_network_has_its_own_mark_and_hears_neighbors() {
    let mut input = input(GatewayMode::Shared);
    input.networks.push(BridgeNetwork {
        network_id: 1,
        patch: 7,
        pod_subnets: vec!["10.10.1.0/24".parse().unwrap()],
        masquerade: vec!["169.254.0.11".parse().unwrap()],
        management: Vec::new(),
        advertised: Vec::new(),
        no_overlay: true,
    });
    let flows = full(&input);
    assert_eq!(
        action(&flows, 20, "arp,in_port=1"),
        Some("LOCAL,output:2,output:7")
    );
    assert_eq!(
        action(&flows, 100, "ct_state=+est+trk,ct_mark=0x4"),
        Some("output:7")
    );
}

#[test]
fn a_network_of_users_leaves_with_the_nodes_address_and_a_port_of_its_own() {
    let mut input = input(GatewayMode::Shared);
    input.networks.push(BridgeNetwork {
        network_id: 1,
        patch: 7,
        pod_subnets: Vec::new(),
        masquerade: vec!["169.254.0.11".parse().unwrap(), "fd69::b".parse().unwrap()],
        management: Vec::new(),
        advertised: Vec::new(),
        no_overlay: true,
    });
    input.addresses.push("fd00:30::1".parse().unwrap());
    let flows = full(&input);
    let mac = MAC;
    for (family, own, field, node) in [
        ("ip", "169.254.0.11", "nw_src", "172.30.0.1"),
        ("ipv6", "fd69::b", "ipv6_src", "fd00:30::1"),
    ] {
        let out =
            format!("ct(commit,zone=64000,nat(src={node}),exec(set_field:0x4->ct_mark)),output:1");
        let from = |source| format!("{family},in_port=7,dl_src={mac},{field}={source}");
        assert_eq!(action(&flows, 100, &from(own)), Some(out.as_str()));
        assert_eq!(action(&flows, 99, &from(node)), Some(out.as_str()));
    }
    let to_node = format!("ip,in_port=1,dl_dst={mac},nw_dst=172.30.0.1");
    assert_eq!(
        action(&flows, 50, &to_node),
        Some("ct(table=1,zone=64000,nat)")
    );
    // Its share may not be known yet: what it translated still finds its way back.
    input.unknown = vec![input.networks.pop().unwrap().patch];
    let flows = full(&input);
    assert_eq!(
        action(&flows, 50, &to_node),
        Some("ct(table=1,zone=64000,nat)")
    );
}

#[test]
fn no_match_stands_twice_at_one_priority() {
    let mut input = input(GatewayMode::Shared);
    input.addresses.push("fd01::1".parse().unwrap());
    input.addresses.push("172.30.0.9".parse().unwrap());
    let flows = full(&input);
    for pair in flows.windows(2) {
        let key = |flow: &Flow| (flow.table, flow.priority, flow.matches.clone());
        assert!(key(&pair[0]) < key(&pair[1]), "{} | {}", pair[0], pair[1]);
    }
    assert!(!flows.iter().any(|flow| flow.actions.contains("NORMAL")));
}

#[test]
fn of_several_ports_to_the_outside_the_host_is_served_and_no_pod() {
    let flows = plain_stage(&[1, 3]);
    let shown: Vec<String> = flows
        .iter()
        .map(|f| format!("{} => {}", f.matches, f.actions))
        .collect();
    let wanted = [
        "in_port=1 => NORMAL",
        "in_port=3 => NORMAL",
        "in_port=LOCAL => NORMAL",
    ];
    assert_eq!(shown, wanted);
}

fn mk_port(name: &str, kind: &str, ofport: Option<u32>) -> PortFact {
    PortFact {
        name: name.to_owned(),
        kind: kind.to_owned(),
        ofport,
    }
}

#[test]
fn the_uplink_is_the_one_port_that_is_neither_internal_nor_a_patch() {
    let own = mk_port("br-ex", "internal", Some(65534));
    let patch = mk_port("patch-br-ex_n1-to-br-int", "patch", Some(2));
    let eth0 = mk_port("eth0", "", Some(1));
    let all = [own.clone(), patch.clone(), eth0.clone()];
    assert_eq!(uplink("br-ex", &all), Ok(1));
    let why = |ports: &[PortFact]| match uplink("br-ex", ports).unwrap_err() {
        NoUplink::Waiting(why) => why,
        NoUplink::Several { ports, why } => format!("{ports:?} {why}"),
    };
    assert!(why(&[]).contains("no port"));
    assert!(why(&[own, patch]).contains("no port"));
    assert!(why(&[mk_port("eth0", "", None)]).contains("no number"));
    let eth1 = mk_port("eth1", "", Some(3));
    let several = why(&[eth0, eth1, mk_port("eth2", "", None)]);
    assert!(
        several.starts_with("[1, 3] ") && several.contains("several"),
        "{several}"
    );
}

/// A network of users that is not known yet is kept from what is not for it by flows that are not planned yet.
#[test]
fn while_a_network_is_not_known_the_host_alone_reaches_every_service() {
    let mut input = input(GatewayMode::Shared);
    input.services = vec![ServiceInput {
        ranges: vec!["172.31.0.0/16".parse().unwrap()],
        masquerade: "169.254.0.0/17".parse().unwrap(),
        ovn: "169.254.0.1".parse().unwrap(),
        host: "169.254.0.2".parse().unwrap(),
        node: "172.30.0.1".parse().unwrap(),
        allowed: BTreeSet::new(),
    }];
    let to_default = |input: &BridgeInput| {
        let all = texts(&full(input));
        let of_it = all.into_iter().filter(|flow| flow.starts_with("2/"));
        let of_it =
            of_it.filter(|flow| flow.ends_with(&format!("=> set_field:{MAC}->eth_dst,output:2")));
        of_it.collect::<Vec<_>>()
    };
    let all = to_default(&input);
    assert!(all.len() == 1 && all[0].starts_with("2/100  =>"), "{all:?}");
    input.is_complete = false;
    let some = to_default(&input);
    assert!(
        some.len() == 1 && some[0].starts_with("2/100 ip,nw_src=169.254.0.2 =>"),
        "{some:?}"
    );
}
