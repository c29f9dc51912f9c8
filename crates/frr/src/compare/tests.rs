//! What counts as the same, and that everything else is seen.

use super::{compare, unified};

const FILE: &str = "\
log stdout informational
hostname n1
ip prefix-list l seq 1 permit 10.128.0.0/16 le 24 ge 24
route-map m permit 1
  match ip address prefix-list l
router bgp 64512
  no bgp ebgp-requires-policy
  neighbor fd00:30:0::2 remote-as 64512
  neighbor fd00:30:0::2 password s3cret
  neighbor 192.0.2.9 ebgp-multihop
  address-family ipv4 unicast
    neighbor 192.0.2.9 activate
  exit-address-family
  address-family ipv4 unicast
    network 10.128.1.5/24
  exit-address-family
bfd
  profile fast
    receive-interval 100
    detect-multiplier 3
router bgp 64512
 bgp bestpath as-path multipath-relax
ip prefix-list own permit 10.0.0.0/8
";
const SHOWN: &str = "\
Building configuration...

Current configuration:
!
frr version 8.4.4
frr defaults traditional
hostname other
no ipv6 forwarding
service integrated-vtysh-config
!
router bgp 64512
 no bgp ebgp-requires-policy
 bgp bestpath as-path multipath-relax
 neighbor 192.0.2.9 ebgp-multihop 255
 neighbor fd00:30::2 remote-as 64512
 neighbor fd00:30::2 password <retracted>
 !
 address-family ipv4 unicast
  network 10.128.1.0/24
  neighbor 192.0.2.9 activate
 exit-address-family
exit
!
ip prefix-list own seq 5 permit 10.0.0.0/8
ip prefix-list l seq 1 permit 10.128.0.0/16 ge 24 le 24
!
route-map m permit 1
 match ip address prefix-list l
exit
!
bfd
 profile fast
  receive-interval 100
 exit
 !
exit
!
end
";

#[test]
fn a_file_and_what_frr_shows_of_it_mean_the_same() {
    assert_eq!(compare(FILE, SHOWN), []);
    assert_eq!(compare(SHOWN, FILE), []);
}

#[test]
fn every_change_is_seen_under_its_context() {
    let rows = [
        (
            " ge 24 le 24",
            " ge 24 le 25",
            "-ip prefix-list l seq 1 permit 10.128.0.0/16 ge 24 le 24\n+ip prefix-list l seq 1 permit 10.128.0.0/16 ge 24 le 25\n",
        ),
        (
            "10.128.1.0/24",
            "10.128.2.0/24",
            " router bgp 64512\n  address-family ipv4 unicast\n-  network 10.128.1.0/24\n+  network 10.128.2.0/24\n",
        ),
        (
            "remote-as 64512",
            "remote-as 65001",
            " router bgp 64512\n- neighbor fd00:30::2 remote-as 64512\n+ neighbor fd00:30::2 remote-as 65001\n",
        ),
        (
            " neighbor fd00:30::2 password <retracted>\n",
            "",
            " router bgp 64512\n- neighbor fd00:30::2 password <retracted>\n",
        ),
        (
            " match ip address prefix-list l\n",
            "",
            " route-map m permit 1\n- match ip address prefix-list l\n",
        ),
        (
            "route-map m permit 1\n match ip address prefix-list l\n",
            "",
            "-route-map m permit 1\n- match ip address prefix-list l\n",
        ),
        (
            "receive-interval 100",
            "receive-interval 300",
            " bfd\n  profile fast\n-  receive-interval 100\n",
        ),
        (
            "profile fast",
            "profile slow",
            " bfd\n- profile fast\n-  receive-interval 100\n+ profile slow\n+  receive-interval 100\n",
        ),
        (
            "router bgp 64512",
            "router bgp 64513",
            "-router bgp 64512\n- bgp bestpath as-path multipath-relax\n- neighbor 192.0.2.9 ebgp-multihop 255\n- neighbor fd00:30::2 password <retracted>\n- neighbor fd00:30::2 remote-as 64512\n- no bgp ebgp-requires-policy\n- address-family ipv4 unicast\n-  neighbor 192.0.2.9 activate\n-  network 10.128.1.0/24\n+router bgp 64513\n+ bgp bestpath as-path multipath-relax\n+ neighbor 192.0.2.9 ebgp-multihop 255\n+ neighbor fd00:30::2 password <retracted>\n+ neighbor fd00:30::2 remote-as 64512\n+ no bgp ebgp-requires-policy\n+ address-family ipv4 unicast\n+  neighbor 192.0.2.9 activate\n+  network 10.128.1.0/24\n",
        ),
    ];
    for (from, to, wanted) in rows {
        let changed = SHOWN.replace(from, to);
        assert_ne!(changed, SHOWN, "{from}");
        assert_eq!(unified(&compare(FILE, &changed)), wanted, "{from}");
    }
}

#[test]
fn passwords_are_not_compared_and_not_shown() {
    let other = FILE.replace("s3cret", "hush");
    assert_eq!(compare(FILE, &other), []);
    let gone = FILE.replace("  neighbor fd00:30:0::2 password s3cret\n", "");
    assert!(!unified(&compare(FILE, &gone)).contains("s3cret"));
}
