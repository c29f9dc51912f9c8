//! Which port leads out of the node.

use super::*;

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
    let why = |ports: &[PortFact]| uplink("br-ex", ports).unwrap_err();
    assert!(why(&[]).contains("no port"));
    assert!(why(&[own, patch]).contains("no port"));
    assert!(why(&[mk_port("eth0", "", None)]).contains("no number"));
    assert!(why(&[eth0, mk_port("eth1", "", Some(3))]).contains("several"));
}
