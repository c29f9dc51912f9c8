//! The text, line by line.

use model::frr::{BfdProfile, FrrConfiguration, Neighbor, Peer, PrefixRange, Raw, RemoteAs};

use crate::builders::{
    PEER, merged, mk_asn, mk_neighbor, mk_object, mk_peering, mk_prefix, mk_prefixes, mk_raw,
    mk_router,
};
use crate::render::render;

fn text(objects: &[FrrConfiguration]) -> String {
    render(&merged(objects).expect("the objects should merge"))
}

fn text_of(neighbor: Neighbor, prefixes: &[&str]) -> String {
    text(&[mk_peering("c1", prefixes, neighbor)])
}

/// Lines that contain a word, margins cut.
fn lines_with(text: &str, word: &str) -> Vec<String> {
    text.lines()
        .filter(|line| line.contains(word))
        .map(|line| line.trim().to_owned())
        .collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn two_objects_of_a_node_give_the_whole_file() {
    let session = |neighbor: &mut Neighbor| {
        neighbor.session.hold_time = Some(9);
        neighbor.session.keepalive_time = Some(3);
        neighbor.session.password_secret = Some("peering".to_owned());
        neighbor.session.bfd_profile = Some("fast".to_owned());
    };
    let fast = BfdProfile {
        name: "fast".to_owned(),
        receive_interval: Some(100),
        transmit_interval: Some(100),
        detect_multiplier: Some(3),
        ..BfdProfile::default()
    };
    let mut receiving = mk_neighbor("172.30.0.2");
    session(&mut receiving);
    receiving.receive.prefixes = vec![PrefixRange {
        prefix: mk_prefix("10.128.0.0/16"),
        ge: Some(24),
        le: Some(24),
    }];
    let mut base = mk_peering("base", &[], receiving);
    base.bfd_profiles = vec![fast.clone()];
    let mut advertising = mk_neighbor("172.30.0.2");
    session(&mut advertising);
    advertising.advertise.prefixes = mk_prefixes(&["10.128.1.0/24"]);
    let mut own = mk_peering("node1", &["10.128.1.0/24"], advertising);
    own.bfd_profiles = vec![fast];
    own.raw = Some(Raw {
        priority: 10,
        config: "router bgp 64512\n address-family ipv4 unicast\n  neighbor 172.30.0.2 route-reflector-client\n exit-address-family\n".to_owned(),
    });
    let wanted = "\
log stdout informational
log timestamp precision 3
hostname node1
ip nht resolve-via-default
ipv6 nht resolve-via-default
ip prefix-list 172.30.0.2-allowed-ipv4 seq 1 permit 10.128.1.0/24
ipv6 prefix-list 172.30.0.2-allowed-ipv6 seq 1 deny any
route-map 172.30.0.2-out permit 1
  match ip address prefix-list 172.30.0.2-allowed-ipv4
route-map 172.30.0.2-out permit 2
  match ipv6 address prefix-list 172.30.0.2-allowed-ipv6
ip prefix-list 172.30.0.2-inpl-ipv4 seq 1 permit 10.128.0.0/16 le 24 ge 24
ipv6 prefix-list 172.30.0.2-inpl-ipv4 seq 2 deny any
route-map 172.30.0.2-in permit 3
  match ip address prefix-list 172.30.0.2-inpl-ipv4
route-map 172.30.0.2-in permit 4
  match ipv6 address prefix-list 172.30.0.2-inpl-ipv4
router bgp 64512
  no bgp ebgp-requires-policy
  no bgp network import-check
  no bgp default ipv4-unicast
  bgp graceful-restart preserve-fw-state
  neighbor 172.30.0.2 remote-as 64512
  neighbor 172.30.0.2 timers 3 9
  neighbor 172.30.0.2 password s3cret
  neighbor 172.30.0.2 bfd
  neighbor 172.30.0.2 bfd profile fast
  address-family ipv4 unicast
    neighbor 172.30.0.2 activate
    neighbor 172.30.0.2 route-map 172.30.0.2-in in
    neighbor 172.30.0.2 route-map 172.30.0.2-out out
  exit-address-family
  address-family ipv4 unicast
    network 10.128.1.0/24
  exit-address-family
bfd
  profile fast
    receive-interval 100
    transmit-interval 100
    detect-multiplier 3
router bgp 64512
 address-family ipv4 unicast
  neighbor 172.30.0.2 route-reflector-client
 exit-address-family
";
    assert_eq!(text(&[own, base]), wanted);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_session_field_has_its_line() {
    type Row<'a> = (fn(&mut Neighbor), &'a [&'a str]);
    let rows: [Row<'_>; 12] = [
        (
            |n| n.session.remote_as = RemoteAs::Internal,
            &["neighbor 172.31.9.2 remote-as internal"],
        ),
        (
            |n| n.session.local_as = Some(mk_asn(64999)),
            &["neighbor 172.31.9.2 local-as 64999 no-prepend replace-as"],
        ),
        (
            |n| n.session.ebgp_multi_hop = true,
            &["neighbor 172.31.9.2 ebgp-multihop"],
        ),
        (
            |n| n.session.port = Some(1790),
            &["neighbor 172.31.9.2 port 1790"],
        ),
        (
            |n| (n.session.hold_time, n.session.keepalive_time) = (Some(9), Some(3)),
            &["neighbor 172.31.9.2 timers 3 9"],
        ),
        (
            |n| (n.session.hold_time, n.session.keepalive_time) = (Some(0), Some(0)),
            &["neighbor 172.31.9.2 timers 0 0"],
        ),
        (
            |n| n.session.connect_time = Some(5),
            &["neighbor 172.31.9.2 timers connect 5"],
        ),
        (
            |n| n.session.password = Some("x".to_owned()),
            &["neighbor 172.31.9.2 password x"],
        ),
        (
            |n| n.session.source = Some("172.31.9.1".to_owned()),
            &["neighbor 172.31.9.2 update-source 172.31.9.1"],
        ),
        (
            |n| n.session.graceful_restart = true,
            &["neighbor 172.31.9.2 graceful-restart"],
        ),
        (
            |n| n.peer = Peer::Interface("f1".to_owned()),
            &[
                "neighbor f1 interface remote-as 64512",
                "neighbor f1 activate",
            ],
        ),
        (
            |n| n.session.dual_stack = true,
            &[
                "ip prefix-list 172.31.9.2-inpl-dual seq 1 deny any",
                "ipv6 prefix-list 172.31.9.2-inpl-dual seq 2 deny any",
            ],
        ),
    ];
    for (change, wanted) in rows {
        let mut neighbor = mk_neighbor(PEER);
        change(&mut neighbor);
        let text = text_of(neighbor, &[]);
        for line in wanted {
            assert!(text.lines().any(|l| l.trim() == *line), "{line}\n{text}");
        }
    }
}

#[test]
fn a_timer_at_its_default_takes_the_timers_line_away() {
    for (hold, keepalive) in [(180, 30), (90, 60), (180, 60)] {
        let mut neighbor = mk_neighbor(PEER);
        neighbor.session.hold_time = Some(hold);
        neighbor.session.keepalive_time = Some(keepalive);
        neighbor.session.connect_time = Some(60);
        let found = lines_with(&text_of(neighbor, &[]), "timers");
        assert!(found.is_empty(), "{found:?}");
    }
}

#[test]
fn only_single_hop_external_ipv6_sessions_skip_the_connected_check() {
    let rows: [(&str, RemoteAs, bool, bool, bool); 7] = [
        (
            "fd00:31::2",
            RemoteAs::Number(mk_asn(65001)),
            false,
            false,
            true,
        ),
        ("fd00:31::2", RemoteAs::External, false, false, true),
        ("fd00:31::2", RemoteAs::Internal, false, false, false),
        (
            "fd00:31::2",
            RemoteAs::Number(mk_asn(64512)),
            false,
            false,
            false,
        ),
        ("fd00:31::2", RemoteAs::External, true, false, false),
        ("fd00:31::2", RemoteAs::External, false, true, false),
        ("172.31.9.2", RemoteAs::External, false, false, false),
    ];
    for (address, remote_as, multi_hop, dual_stack, wanted) in rows {
        let mut neighbor = mk_neighbor(address);
        neighbor.session.remote_as = remote_as;
        neighbor.session.ebgp_multi_hop = multi_hop;
        neighbor.session.dual_stack = dual_stack;
        let found = lines_with(&text_of(neighbor, &[]), "disable-connected-check");
        assert_eq!(!found.is_empty(), wanted, "{address} {remote_as}");
    }
}

#[test]
fn modifiers_come_first_and_the_maps_share_one_counter() {
    let mut neighbor = mk_neighbor(PEER);
    neighbor.advertise.all = true;
    neighbor.advertise.communities = vec![
        (
            "large:65000:1:2".to_owned(),
            mk_prefixes(&["10.128.1.0/24"]),
        ),
        (
            "65000:100".to_owned(),
            mk_prefixes(&["10.128.2.0/24", "10.128.1.0/24"]),
        ),
    ];
    neighbor.advertise.local_prefs = vec![(150, mk_prefixes(&["10.128.1.0/24"]))];
    neighbor.advertise.next_hops = vec!["192.0.2.1".parse().unwrap()];
    let text = text_of(neighbor, &["10.128.1.0/24", "10.128.2.0/24"]);
    let wanted = "\
ip prefix-list 172.31.9.2-150-ip-localpref-prefixes seq 1 permit 10.128.1.0/24
route-map 172.31.9.2-out permit 1
  match ip address prefix-list 172.31.9.2-150-ip-localpref-prefixes
  set local-preference 150
  on-match next
ip prefix-list 172.31.9.2-65000:100-ip-community-prefixes seq 1 permit 10.128.1.0/24
ip prefix-list 172.31.9.2-65000:100-ip-community-prefixes seq 2 permit 10.128.2.0/24
route-map 172.31.9.2-out permit 2
  match ip address prefix-list 172.31.9.2-65000:100-ip-community-prefixes
  set community 65000:100 additive
  on-match next
ip prefix-list 172.31.9.2-large:65000:1:2-ip-community-prefixes seq 1 permit 10.128.1.0/24
route-map 172.31.9.2-out permit 3
  match ip address prefix-list 172.31.9.2-large:65000:1:2-ip-community-prefixes
  set large-community 65000:1:2 additive
  on-match next
ip prefix-list 172.31.9.2-allowed-ipv4 seq 1 permit 10.128.1.0/24
ip prefix-list 172.31.9.2-allowed-ipv4 seq 2 permit 10.128.2.0/24
ipv6 prefix-list 172.31.9.2-allowed-ipv6 seq 1 deny any
route-map 172.31.9.2-out permit 4
  match ip address prefix-list 172.31.9.2-allowed-ipv4
  set ip next-hop 192.0.2.1
route-map 172.31.9.2-out permit 5
  match ipv6 address prefix-list 172.31.9.2-allowed-ipv6
ip prefix-list 172.31.9.2-inpl-ipv4 seq 1 deny any
ipv6 prefix-list 172.31.9.2-inpl-ipv4 seq 2 deny any
route-map 172.31.9.2-in permit 6
";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn modifiers_of_both_kinds_come_in_the_order_of_their_lists_names() {
    let one = || mk_prefixes(&["10.128.1.0/24"]);
    let mut neighbor = mk_neighbor(PEER);
    neighbor.advertise.all = true;
    neighbor.advertise.communities = vec![
        ("65000:200".to_owned(), one()),
        ("large:1:2:3".to_owned(), one()),
        ("65000:100".to_owned(), one()),
    ];
    let two = || mk_prefixes(&["10.128.2.0/24"]);
    neighbor.advertise.local_prefs = vec![(77, one()), (150, two())];
    let text = text_of(neighbor, &["10.128.1.0/24", "10.128.2.0/24"]);
    // As frr-k8s does it; text, not numbers, is compared.
    assert_eq!(
        lines_with(&text, "  set "),
        [
            "set local-preference 150",
            "set community 65000:100 additive",
            "set community 65000:200 additive",
            "set local-preference 77",
            "set large-community 1:2:3 additive",
        ]
    );
}

#[test]
fn names_outside_the_default_vrf_end_in_the_vrf() {
    let mut blue = mk_router("blue", &["10.1.0.0/24"], vec![mk_neighbor(PEER)]);
    blue.id = Some("10.9.9.9".to_owned());
    let mut default = mk_router("", &[], Vec::new());
    default.imports = vec!["blue".to_owned()];
    let text = text(&[mk_object("c1", vec![blue, default])]);
    for line in [
        "router bgp 64512 vrf blue",
        "  bgp router-id 10.9.9.9",
        "    neighbor 172.31.9.2 route-map 172.31.9.2-blue-in in",
        "ip prefix-list 172.31.9.2-blue-allowed-ipv4 seq 1 deny any",
        "ip prefix-list 172.31.9.2-blue-inpl-ipv4 seq 1 deny any",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    assert_eq!(lines_with(&text, "import vrf").len(), 2);
}

#[test]
fn prefixes_are_numbered_in_the_order_of_their_text() {
    let mut neighbor = mk_neighbor(PEER);
    neighbor.advertise.all = true;
    neighbor.receive.prefixes = ["9.0.0.0/8", "10.0.0.0/8"]
        .map(|prefix| PrefixRange {
            prefix: mk_prefix(prefix),
            ge: Some(9),
            le: None,
        })
        .to_vec();
    let text = text_of(neighbor, &["9.0.0.0/8", "10.0.0.0/8"]);
    assert_eq!(
        lines_with(&text, "permit 9.0.0.0/8"),
        [
            "ip prefix-list 172.31.9.2-allowed-ipv4 seq 2 permit 9.0.0.0/8",
            "ip prefix-list 172.31.9.2-inpl-ipv4 seq 2 permit 9.0.0.0/8 ge 9",
        ]
    );
}

#[test]
fn a_node_without_objects_gets_the_head_only_and_raw_text_stands_last() {
    assert_eq!(text(&[]).lines().count(), 5);
    let text = text(&[mk_raw("b", 5, "second\n"), mk_raw("a", 1, "first")]);
    assert!(text.ends_with("ipv6 nht resolve-via-default\nfirst\nsecond\n"));
}

#[test]
fn every_field_of_a_bfd_profile_has_its_line() {
    let mut object = mk_object("c1", Vec::new());
    object.bfd_profiles = vec![BfdProfile {
        name: "full".to_owned(),
        receive_interval: Some(100),
        transmit_interval: Some(110),
        detect_multiplier: Some(5),
        echo_interval: Some(70),
        echo_mode: true,
        passive_mode: true,
        minimum_ttl: Some(200),
    }];
    let text = text(&[object]);
    let wanted = [
        "bfd",
        "  profile full",
        "    receive-interval 100",
        "    transmit-interval 110",
        "    detect-multiplier 5",
        "    echo transmit-interval 70",
        "    echo receive-interval 70",
        "    minimum-ttl 200",
        "    echo-mode",
        "    passive-mode",
    ];
    assert_eq!(text.lines().skip(5).collect::<Vec<_>>(), wanted);
}
