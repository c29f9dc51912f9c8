//! Listings as nft prints them, and the scripts that follow.
use super::*;
use model::nft::{AddressSet, Hook};

const SHARED: &str = "inet ovn-kubernetes";

fn set(elements: &[&str]) -> AddressSet {
    AddressSet {
        family: Family::V4,
        elements: elements.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

fn wanted() -> Ruleset {
    let hook = Hook {
        kind: "nat",
        hook: "postrouting",
        priority: 101,
    };
    let rule = "ip saddr 10.128.1.0/24 ip daddr @no-overlay-snat-exempt-v4 return";
    Ruleset {
        table: Table::Shared,
        sets: [(
            "no-overlay-snat-exempt-v4".to_owned(),
            set(&["10.128.0.0/16", "10.128.1.0/24", "172.30.0.1/32"]),
        )]
        .into(),
        chains: [
            (
                "ovn-kube-local-gw-masq".to_owned(),
                Chain {
                    hook: Some(hook),
                    rules: vec!["jump ovn-kube-pod-subnet-masq".to_owned()],
                },
            ),
            (
                "ovn-kube-pod-subnet-masq".to_owned(),
                Chain {
                    hook: None,
                    rules: vec![rule.to_owned()],
                },
            ),
        ]
        .into(),
    }
}

const LISTING: &str = "table ip nat {
	chain ovn-kube-pod-subnet-masq {
	}
}
table inet ovn-kubernetes {
	set no-overlay-snat-exempt-v4 {
		type ipv4_addr
		flags interval
		auto-merge
		elements = { 10.128.0.0/16,
			     172.30.0.1 }
	}

	set others {
		type ipv4_addr
		elements = { 1.1.1.1 }
	}

	chain ovn-kube-local-gw-masq {
		comment \"a word of somebody\"
		type nat hook postrouting priority 101; policy accept;
		jump ovn-kube-pod-subnet-masq
	}

	chain ovn-kube-pod-subnet-masq {
		ip saddr 10.128.1.0/24 ip daddr @no-overlay-snat-exempt-v4 return
	}

	chain others {
		drop
	}
}
table inet other {
	set remote-node-ips-v4 {
		type ipv4_addr
	}
}
";

/// What comes, where everything is known.
const ALL: Part = Part::Comes { complete: true };

#[test]
fn what_stands_as_wanted_is_left_alone() {
    let held = parse(Table::Shared, LISTING);
    for part in [ALL, Part::Comes { complete: false }, Part::Goes] {
        assert_eq!(script(&held, &wanted(), part), None);
    }
    assert_eq!(held.sets.len(), 1, "another table's set is not ours");
}

#[test]
fn a_set_is_filled_before_rules_that_use_it_in_one_script() {
    let script = script(&Held::default(), &wanted(), ALL).unwrap();
    let at = |word: &str| script.find(word).unwrap();
    assert!(at("add element") < at("add rule"), "{script}");
    assert!(
        at("add chain inet ovn-kubernetes ovn-kube-pod-subnet-masq") < at("add rule"),
        "{script}"
    );
}

#[test]
fn one_chain_that_differs_is_written_and_no_other() {
    let mut held = parse(Table::Shared, LISTING);
    let chain = held.chains.get_mut("ovn-kube-pod-subnet-masq").unwrap();
    chain
        .1
        .insert(0, "ip saddr 10.0.0.0/8 masquerade".to_owned());
    let script = script(&held, &wanted(), ALL).unwrap();
    assert_eq!(script.lines().count(), 4, "{script}");
    assert!(!script.contains("local-gw-masq"), "{script}");
}

#[test]
fn what_is_not_wanted_goes_while_everything_is_known() {
    let held = parse(Table::Shared, LISTING);
    assert_eq!(script(&held, &Ruleset::default(), ALL), None);
    let said = script(&held, &Ruleset::default(), Part::Goes).unwrap();
    for name in ["ovn-kube-local-gw-masq", "ovn-kube-pod-subnet-masq"] {
        assert!(
            said.contains(&format!("delete chain {SHARED} {name}")),
            "{said}"
        );
    }
    assert!(said.contains("delete set"), "{said}");
    assert!(!said.contains("others"), "{said}");
    assert_eq!(
        script(&held, &Ruleset::default(), Part::Comes { complete: false }),
        None
    );
}

#[test]
fn a_set_only_grows_while_something_is_unknown() {
    let held = parse(Table::Shared, LISTING);
    let mut less = wanted();
    let name = "no-overlay-snat-exempt-v4";
    less.sets.insert(name.to_owned(), set(&["10.128.0.0/16"]));
    assert_eq!(script(&held, &less, Part::Comes { complete: false }), None);
    let gone = script(&held, &less, Part::Goes).unwrap();
    let words = format!("delete element {SHARED} {name} {{ 172.30.0.1 }}");
    assert!(gone.contains(&words) && !gone.contains("flush"), "{gone}");
    less.sets
        .insert(name.to_owned(), set(&["10.128.0.0/16", "192.0.2.1/32"]));
    let grown = script(&held, &less, Part::Comes { complete: false }).unwrap();
    assert!(
        grown.contains("192.0.2.1") && !grown.contains("flush set"),
        "{grown}"
    );
    assert!(
        !grown.contains("10.128.0.0/16"),
        "what stands is not touched: {grown}"
    );
    // Part of a stretch that stands as one.
    less.sets.insert(name.to_owned(), set(&["10.128.0.0/17"]));
    assert_eq!(script(&held, &less, ALL), None);
    let anew = script(&held, &less, Part::Goes).unwrap();
    assert!(
        anew.contains("flush set") && anew.contains("10.128.0.0/17"),
        "{anew}"
    );
}

#[test]
fn neighbors_of_a_set_that_does_not_merge_them_are_not_deleted_as_one() {
    let two = "192.0.2.0/25,\n\t\t\t     192.0.2.128/25,\n\t\t\t     172.30.0.1 }";
    let listing = LISTING.replace("172.30.0.1 }", two);
    let gone = script(&parse(Table::Shared, &listing), &wanted(), Part::Goes).unwrap();
    assert!(gone.contains("{ 192.0.2.0-192.0.2.255 }"), "{gone}");
    let listing = listing.replace("\t\tauto-merge\n", "");
    let anew = script(&parse(Table::Shared, &listing), &wanted(), Part::Goes).unwrap();
    assert!(!anew.contains("delete element"), "{anew}");
    assert!(
        anew.contains("flush set") && anew.contains("172.30.0.1"),
        "{anew}"
    );
}

/// What keeps hosts out of a network's subnets but for the addresses that are spared.
fn host_drop(spared: &[&str], dropped: &[&str]) -> Ruleset {
    let hook = Some(Hook {
        kind: "filter",
        hook: "output",
        priority: 0,
    });
    let rules = [
        "ip daddr @advertised-udn-spared-v4 accept",
        "ct state new ip daddr @advertised-udn-subnets-v4 drop",
    ];
    let rules = rules.map(str::to_owned).into();
    let sets = [("spared", spared), ("subnets", dropped)];
    let sets = sets.map(|(name, elements)| (format!("advertised-udn-{name}-v4"), set(elements)));
    Ruleset {
        table: Table::Shared,
        sets: sets.into(),
        chains: [("udn-bgp-drop".to_owned(), Chain { hook, rules })].into(),
    }
}

const HOST_DROP: &str = "table inet ovn-kubernetes {
	set advertised-udn-spared-v4 {
		type ipv4_addr
		flags interval
		auto-merge
		elements = { 10.153.0.9 }
	}

	set advertised-udn-subnets-v4 {
		type ipv4_addr
		flags interval
		auto-merge
		elements = { 10.153.0.0/16 }
	}

	chain udn-bgp-drop {
		type filter hook output priority 0; policy accept;
		ip daddr @advertised-udn-spared-v4 accept
		ct state new ip daddr @advertised-udn-subnets-v4 drop
	}
}
";

#[test]
fn addresses_that_are_spared_come_before_the_drop_and_go_with_the_subnet() {
    let red = host_drop(&["10.153.0.9/32"], &["10.153.0.0/16"]);
    let came = script(&Held::default(), &red, ALL).unwrap();
    let at = |word: &str| came.find(word).unwrap();
    assert!(at("{ 10.153.0.9") < at("add rule"), "{came}");
    let held = parse(Table::Shared, HOST_DROP);
    assert_eq!(script(&held, &red, Part::Goes), None);
    // The network goes: what comes leaves both as they are, and both go in one transaction.
    let none = host_drop(&[], &[]);
    assert_eq!(script(&held, &none, ALL), None);
    let goes = script(&held, &none, Part::Goes).unwrap();
    for element in ["{ 10.153.0.9 }", "{ 10.153.0.0-10.153.255.255 }"] {
        assert!(goes.contains(element), "{goes}");
    }
    // It is not known, and another one's node joins: nothing of the first goes.
    let blue = host_drop(&["10.160.0.9/32"], &["10.160.0.0/16"]);
    let came = script(&held, &blue, Part::Comes { complete: false }).unwrap();
    assert!(came.contains("10.160.0.9"), "{came}");
    for word in ["flush", "10.153.0.9"] {
        assert!(!came.contains(word), "{came}");
    }
}

#[test]
fn an_element_that_cannot_be_read_is_written_anew() {
    let held = parse(
        Table::Shared,
        &LISTING.replace("172.30.0.1 }", "something }"),
    );
    let anew = script(&held, &wanted(), Part::Goes).unwrap();
    assert!(
        anew.contains("flush set") && anew.contains("172.30.0.1"),
        "{anew}"
    );
}

#[test]
fn a_chain_keeps_its_rules_while_something_is_unknown() {
    let held = parse(Table::Shared, LISTING);
    let mut less = wanted();
    let chain = less.chains.get_mut("ovn-kube-local-gw-masq").unwrap();
    chain.rules.clear();
    assert_eq!(script(&held, &less, Part::Comes { complete: false }), None);
    assert!(script(&held, &less, ALL).is_some());
    let chain = less.chains.get_mut("ovn-kube-local-gw-masq").unwrap();
    chain.rules = vec!["jump ovn-kube-udn-masq".to_owned()];
    assert!(
        script(&held, &less, Part::Comes { complete: false }).is_some(),
        "a rule is missing"
    );
}

/// Rules of our own table, which hang on no order.
#[test]
fn rules_of_a_network_that_is_not_known_now_stay_beside_one_that_comes() {
    let listing = "table inet noverlay {
	chain guard {
		type filter hook forward priority 0; policy accept;
		default drop
		red drop
	}
}
";
    let held = parse(Table::Own, listing);
    let wanted = |rules: &[&str]| {
        let hook = Some(model::nft::Hook {
            kind: "filter",
            hook: "forward",
            priority: 0,
        });
        let rules = rules.iter().map(|rule| (*rule).to_owned()).collect();
        Ruleset {
            table: Table::Own,
            chains: [("guard".to_owned(), Chain { hook, rules })].into(),
            ..Ruleset::default()
        }
    };
    let unknown = Part::Comes { complete: false };
    assert_eq!(script(&held, &wanted(&["default drop"]), unknown), None);
    let both = wanted(&["default drop", "blue drop"]);
    let said = script(&held, &both, unknown).unwrap();
    for rule in ["default drop", "blue drop", "red drop"] {
        let line = format!("add rule inet noverlay guard {rule}");
        assert_eq!(said.matches(&line).count(), 1, "{said}");
    }
    let said = script(&held, &both, ALL).unwrap();
    assert!(!said.contains("red"), "{said}");
}

#[test]
fn what_somebody_took_away_has_not_the_form_of_what_was_written() {
    let mut held = parse(Table::Shared, LISTING);
    assert!(held.has_the_form_of(&wanted()));
    let rules = |held: &mut Held, rules: Vec<String>| {
        held.chains.get_mut("ovn-kube-pod-subnet-masq").unwrap().1 = rules;
    };
    rules(&mut held, vec!["spelled otherwise".to_owned()]);
    assert!(held.has_the_form_of(&wanted()));
    rules(&mut held, Vec::new());
    assert!(!held.has_the_form_of(&wanted()));
    let held = parse(
        Table::Shared,
        &LISTING.replace("172.30.0.1 }", "172.30.0.2 }"),
    );
    assert!(!held.has_the_form_of(&wanted()));
}

#[test]
fn a_policy_that_drops_what_is_forwarded_is_found_unless_rules_accept_pods() {
    let listing = "table ip filter {\n\tchain INPUT {\n\t\ttype filter hook input priority 0; policy drop;\n\t}\n\tchain FORWARD {\n\t\ttype filter hook forward priority 0; policy drop;\n\t}\n}\ntable inet own {\n\tchain guard {\n\t\ttype filter hook forward priority 0; policy accept;\n\t}\n}\n";
    assert_eq!(forward_drops(listing), ["ip filter FORWARD"]);
    let pods: Prefix = "10.128.0.0/16".parse().unwrap();
    let both = "\t\tip saddr 10.128.0.0/16 counter packets 0 bytes 0 accept\n\t\tip daddr 10.128.0.0/16 counter packets 7 bytes 9 accept\n";
    assert!(accepts(both, &pods));
    for rules in [
        "",
        "\t\tip saddr 10.128.0.0/16 accept\n",
        "\t\tip saddr 10.128.0.0/16 drop\n\t\tip daddr 10.128.0.0/16 accept\n",
        "\t\tip saddr 10.128.0.0/16 tcp dport 22 accept\n\t\tip daddr 10.128.0.0/16 accept\n",
        "\t\tip saddr 10.128.0.0/14 accept\n\t\tip daddr 10.128.0.0/14 accept\n",
    ] {
        assert!(!accepts(rules, &pods), "{rules}");
    }
}
