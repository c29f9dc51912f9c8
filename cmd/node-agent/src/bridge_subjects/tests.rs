//! Which port leads out of the node, and when the whole table can be made.

use model::ovs::{BridgeFact, PortFact};

use super::*;

fn mk_switch(ports: &[(&str, &str, Option<u32>)]) -> Switch {
    let ports = ports
        .iter()
        .map(|(name, kind, ofport)| PortFact {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            ofport: *ofport,
        })
        .collect();
    Switch {
        bridges: [("br-ex".to_owned(), BridgeFact { ports })].into(),
        ..Switch::default()
    }
}

#[test]
fn the_uplink_is_the_one_port_that_is_neither_internal_nor_a_patch() {
    let own = ("br-ex", "internal", Some(65534));
    let patch = ("patch-br-ex_n1-to-br-int", "patch", Some(2));
    let eth0 = ("eth0", "", Some(1));
    assert_eq!(uplink(&mk_switch(&[own, patch, eth0]), "br-ex"), Ok(1));
    let told = |ports: &[_]| uplink(&mk_switch(ports), "br-ex").unwrap_err();
    assert!(told(&[own, patch]).contains("no uplink"));
    assert!(told(&[own, ("eth0", "", None)]).contains("no number"));
    assert!(told(&[eth0, ("eth1", "", Some(3))]).contains("several"));
    assert!(uplink(&Switch::default(), "br-ex").is_err());
}

#[test]
fn the_patch_ports_number_is_found_by_its_long_name() {
    let switch = mk_switch(&[("patch-br-ex_n1-to-br-int", "patch", Some(2))]);
    let network = NetworkName::default_network();
    assert_eq!(patch(&switch, "br-ex", &network, &"n1".into()), Some(2));
    assert_eq!(patch(&switch, "br-ex", &network, &"n2".into()), None);
}
