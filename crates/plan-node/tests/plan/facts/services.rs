//! Services that networks of users may use: who waits for them, and what is believed of them.

use super::*;

fn with_blue() -> Facts {
    let mut facts = whole();
    let subnets = ["10.200.0.0/16/24"];
    let blue = mk_user_network("cluster_udn_blue", 5, &subnets, &["100.65.0.0/16"]);
    facts.networks.push(blue);
    let both: [(&str, &[&str]); 2] = [
        ("default", &["10.128.1.0/24"]),
        ("cluster_udn_blue", &["10.200.1.0/24"]),
    ];
    own(&mut facts).subnets = mk_node("n1", &both).subnets;
    if let Ok(links) = &mut facts.links {
        links.push(mk_link(9, "ovn-k8s-mp5"));
    }
    facts
}

fn services(addresses: &[&str]) -> plan_node::ServiceAddresses {
    let addresses = addresses.iter().map(|ip| ip.parse().unwrap());
    [("a/b".to_owned(), addresses.collect())].into()
}

#[test]
fn only_with_a_network_of_users_services_are_waited_for_and_what_was_known_stays() {
    let mut facts = whole();
    facts.services = None;
    assert_eq!(stale(&memory().snapshot(facts)), None);
    let mut facts = with_blue();
    facts.services = None;
    let mut memory = memory();
    let before = memory.snapshot(facts.clone());
    let blue = NetworkName::from("cluster_udn_blue");
    let why = &before.stale[&blue];
    assert!(why.to_string().contains("udn-allowed-default-services"));
    assert_eq!(why.reason(), None, "it passes");
    let here: Vec<String> = before.here().map(|(name, _)| name.to_string()).collect();
    assert_eq!(here, ["default"], "nobody else waits");
    assert_eq!(
        plan_node::plan(&before).unknown,
        ["cluster_udn_blue".into()]
    );
    facts.services = Some(services(&["172.31.0.1"]));
    let known = memory.snapshot(facts.clone());
    assert_eq!(known.stale, BTreeMap::new());
    facts.services = None;
    let after = memory.snapshot(facts);
    assert_eq!((after.node, after.stale), (known.node, known.stale));
}

#[test]
fn an_address_of_pods_or_of_a_family_that_nobody_has_is_no_service() {
    let mut facts = with_blue();
    facts.services = Some(services(&[
        "172.31.0.1",
        "10.200.3.3",
        "10.128.9.9",
        "fd02::1",
    ]));
    let node = memory().snapshot(facts).node.unwrap();
    let allowed = node.services.unwrap().allowed;
    assert_eq!(allowed, services(&["172.31.0.1"]));
    assert_eq!(memory().snapshot(whole()).node.unwrap().services, None);
}

/// The kernel knows a way to the ranges alone.
#[test]
fn a_service_outside_of_the_ranges_or_without_an_address_is_named_and_left_out() {
    let mut facts = with_blue();
    facts.services = Some(services(&["172.31.0.1", "172.32.0.1", "fd02::1"]));
    let snapshot = memory().snapshot(facts.clone());
    let node = snapshot.node.unwrap();
    assert_eq!(node.services.unwrap().allowed, services(&["172.31.0.1"]));
    let [problem] = snapshot.problems.as_slice() else {
        panic!("{:?}", snapshot.problems);
    };
    let text = "Service/a/b: ServiceOutOfRange: clusterIP 172.32.0.1 is in none of [kubernetes] service-cidrs (172.31.0.0/16); allowed:";
    assert!(
        problem.to_string().contains("clusterIP 172.32.0.1"),
        "{text} {problem}"
    );
    facts.services = Some(services(&[]));
    let absent = memory().snapshot(facts.clone()).problems;
    let text = "Service/a/b: [default] udn-allowed-default-services: it is not there";
    assert!(
        absent.len() == 1 && absent[0].to_string().starts_with(text),
        "{absent:?}"
    );
    facts.services = Some(services(&["10.200.3.3"]));
    let taken = memory().snapshot(facts.clone()).problems;
    let text = "clusterIP 10.200.3.3 is an address of pods of network cluster_udn_blue";
    assert!(taken.iter().any(|p| p.message.contains(text)), "{taken:?}");
    // Nobody may use them.
    facts.networks.truncate(1);
    assert_eq!(memory().snapshot(facts).problems, []);
}

/// Every node has the same address there, and it is no link-local one.
#[test]
fn the_hosts_masquerade_address_is_none_of_the_nodes_addresses() {
    let mut facts = whole();
    facts.networks[0]
        .subnets
        .push("fd00:10::/48/64".parse().unwrap());
    let mut masqueraded = facts.clone();
    if let Ok(links) = &mut masqueraded.links {
        let ours: [model::InterfaceAddr; 2] =
            ["169.254.0.2/17", "fd69::2/112"].map(|a| a.parse().unwrap());
        links[1].addresses.extend(ours);
    }
    let (plain, masqueraded) = (memory().snapshot(facts), memory().snapshot(masqueraded));
    assert_eq!(masqueraded.node, plain.node);
    assert_eq!(masqueraded.machine.host_cidrs, plain.machine.host_cidrs);
    assert_eq!(
        masqueraded.machine.bridge_addresses,
        plain.machine.bridge_addresses
    );
}
