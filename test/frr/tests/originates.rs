//! What a real bgpd says of prefixes that it originates itself and of those that it has learned.
//! In: two FRRs with a session. Out: what `frr-edge` reads. Not here: the session.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test program: whatever is unexpected ends it"
)]

use std::time::Duration;

use frr_tests::{Frr, missing};
use model::Prefix;

fn conf(router: u8, networks: &str) -> String {
    let peer = 3 - router;
    format!(
        "hostname fn1\nrouter bgp 64512\n bgp router-id 172.31.7.{router}\n no bgp network import-check\n neighbor 172.31.7.{peer} remote-as 64512\n\
         address-family ipv4 unicast\n  network 10.99.0.0/24\n{networks} exit-address-family\n\
         address-family ipv6 unicast\n  network fd01:0:0:9::/64\n  neighbor 172.31.7.{peer} activate\n exit-address-family\nexit\n\
         router bgp 64512 vrf red\n bgp router-id 172.31.7.{router}\n no bgp network import-check\n\
         address-family ipv4 unicast\n  network 10.150.{router}.0/24\n exit-address-family\nexit\n"
    )
}

#[tokio::test]
async fn what_bgpd_originates_is_told_from_what_it_has_learned() {
    let missing = missing();
    if !missing.is_empty() {
        println!("skipped: there is no {}", missing.join(", no "));
        return;
    }
    let (near, far) = (Frr::start().unwrap(), Frr::start().unwrap());
    near.connect(&far, 7).unwrap();
    let own = "  network 10.128.1.0/24\n";
    for (frr, router, networks) in [(&near, 1, own), (&far, 2, "")] {
        let said = frr.load(&conf(router, networks)).unwrap();
        assert!(said.clean, "{}", said.output);
    }
    let edge = |frr: &Frr| frr_edge::Frr::new(frr.dir().to_owned(), frr.dir().join("frr.conf"));
    let (asked, others) = (edge(&near), edge(&far));
    let prefix = |text: &str| text.parse::<Prefix>().unwrap();
    let pods = prefix("10.128.1.0/24");
    let mut learned = false;
    for _ in 0..100 {
        learned = far
            .vtysh("show bgp ipv4 unicast 10.128.1.0/24 json")
            .unwrap()
            .contains("\"valid\":true");
        if learned {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(learned, "the other one has not learned it");
    assert!(asked.originates(None, &pods).await.unwrap());
    assert!(
        asked
            .originates(None, &prefix("fd01:0:0:9::/64"))
            .await
            .unwrap()
    );
    assert!(
        !others.originates(None, &pods).await.unwrap(),
        "it is another's"
    );
    for nowhere in ["10.128.2.0/24", "fd01:0:0:2::/64"] {
        assert!(!asked.originates(None, &prefix(nowhere)).await.unwrap());
    }
    // What a VRF has is not the default one's, and the other way round.
    let (red, of_red) = (Some("red"), prefix("10.150.1.0/24"));
    assert!(asked.originates(red, &of_red).await.unwrap());
    assert!(!asked.originates(None, &of_red).await.unwrap());
    assert!(!asked.originates(red, &pods).await.unwrap());
    let nowhere = asked.originates(Some("blue"), &of_red).await;
    assert!(nowhere.is_err(), "it has no such VRF: {nowhere:?}");
    let said = near.load(&conf(1, "")).unwrap();
    assert!(said.clean, "{}", said.output);
    assert!(
        !asked.originates(None, &pods).await.unwrap(),
        "it is withdrawn"
    );
}
