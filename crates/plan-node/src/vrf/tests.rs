//! Tables of networks over links as they may be. In: names, ids, links. Out: tables.
//! Invariant: no other network's VRF is ever taken. Not here: real links; they are in `vm-tests`.

use proptest::prelude::*;

use super::*;

fn link(name: &str, vrf_table: Option<TableId>) -> LinkFact {
    LinkFact {
        index: 7,
        name: name.to_owned(),
        mac: None,
        mtu: 1500,
        up: true,
        addresses: Vec::new(),
        master: None,
        vrf_table,
        alias: String::new(),
        alternative_names: Vec::new(),
    }
}

fn cudn(name: &str) -> NetworkName {
    NetworkName::from(format!("cluster_udn_{name}"))
}

#[test]
fn the_default_network_is_in_main_whatever_links_there_are() {
    let network = NetworkName::default_network();
    assert_eq!(table(&network, 0, &[]), Some(MAIN_TABLE));
    let named_so = [link("default", Some(1000)), link("mp0-udn-vrf", Some(1001))];
    assert_eq!(table(&network, 0, &named_so), Some(MAIN_TABLE));
}

#[test]
fn a_network_is_in_the_table_of_the_vrf_of_its_name() {
    let links = [
        link("lo", None),
        link("blue", Some(1010)),
        link("mp2-udn-vrf", Some(1012)),
        link("mp3-udn-vrf", Some(1013)),
    ];
    for (network, id, wanted) in [
        (cudn("blue"), 1, Some(1010)),
        (cudn("red"), 1, None),
        (cudn("a-name-too-long-for-a-device"), 2, Some(1012)),
        (cudn("default"), 3, Some(1013)),
        (cudn(""), 3, Some(1013)),
        (NetworkName::from("team_blue"), 2, Some(1012)),
        (NetworkName::from("team_blue"), 9, None),
        // Called as the device of network 2, which is another network.
        (cudn("mp2-udn-vrf"), 3, Some(1013)),
        (cudn("mp2-udn-vrf"), 9, None),
    ] {
        assert_eq!(table(&network, id, &links), wanted, "{network}, id {id}");
    }
}

#[test]
fn fifteen_bytes_fit_a_device_and_sixteen_do_not() {
    let fits = cudn("exactly-fifteen");
    let long = cudn("exactly-sixteen!");
    assert_eq!(fits.vrf_device(4).as_deref(), Some("exactly-fifteen"));
    assert_eq!(long.vrf_device(4).as_deref(), Some("mp4-udn-vrf"));
    // The kernel refuses a device of the first name, and the second is made and removed by whoever tries.
    for name in ["all", "default", "noverlay-try"] {
        let device = cudn(name).vrf_device(4);
        assert_eq!(device.as_deref(), Some("mp4-udn-vrf"), "{name}");
    }
}

#[test]
fn a_device_of_that_name_that_is_no_vrf_carries_nothing() {
    assert_eq!(table(&cudn("blue"), 1, &[link("blue", None)]), None);
}

#[test]
fn a_name_that_another_device_has_beside_its_own_is_taken() {
    let other = LinkFact {
        alternative_names: vec!["uplink0".to_owned(), "blue".to_owned()],
        ..link("eth1", Some(1010))
    };
    let port = link("ovn-k8s-mp1", None);
    let planned = plan(&cudn("blue"), 1, &[other, port.clone()], &BTreeSet::new());
    let taken = NoVrf::NameTaken("blue".to_owned());
    assert_eq!(planned, Err(taken));
    let planned = plan(&cudn("blue"), 1, &[port], &BTreeSet::new());
    assert_eq!(planned.unwrap().unwrap().device, "blue");
}

#[test]
fn a_table_read_before_is_not_remembered() {
    let network = cudn("blue");
    for (links, wanted) in [
        (vec![link("blue", Some(1010))], Some(1010)),
        (vec![], None),
        // The id of a VRF's table follows its management port's index: a new device, another table.
        (vec![link("blue", Some(1044))], Some(1044)),
    ] {
        assert_eq!(table(&network, 1, &links), wanted);
    }
}

proptest! {
    #[test]
    fn the_answer_is_the_table_of_the_one_vrf_of_that_name_and_order_does_not_matter(
        own in "[a-z][a-z0-9-]{0,20}",
        id in 1_u16..4096,
        tables in proptest::collection::btree_map("[a-z][a-z0-9-]{0,14}", proptest::option::of(1_u32..), 0..8),
        there in any::<bool>(),
    ) {
        let network = cudn(&own);
        let device = network.vrf_device(id).unwrap();
        prop_assert!(device.len() <= 15, "{device} is no name of a device");
        let mut links: Vec<LinkFact> = tables.iter().map(|(name, table)| link(name, *table)).collect();
        links.retain(|link| link.name != device);
        if there {
            links.push(link(&device, Some(77)));
        }
        let wanted = there.then_some(77);
        prop_assert_eq!(table(&network, id, &links), wanted);
        links.reverse();
        prop_assert_eq!(table(&network, id, &links), wanted);
    }

    #[test]
    fn two_networks_never_share_a_device(
        a in "[a-z]{1,20}|mp[0-9]{0,2}-udn-vrf",
        b in "[a-z]{1,20}|mp[0-9]{0,2}-udn-vrf",
        ids in (1_u16..30, 1_u16..30),
    ) {
        prop_assume!(a != b && ids.0 != ids.1);
        prop_assert_ne!(cudn(&a).vrf_device(ids.0), cudn(&b).vrf_device(ids.1));
    }
}
