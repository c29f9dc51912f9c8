//! Router ids of nodes that have no IPv4 address.
//! In: a node's merged configuration, its addresses. Out: the configuration with an id for every router that lacks one.
//! Invariant: the id depends on the node's name alone, so that no event on the node resets its sessions.
//! Not here: ids that objects set (`merge`); of a node with an IPv4 address FRR takes that.

use std::net::Ipv4Addr;

use crate::config::NodeConfig;

/// FRR takes a router id from an interface's IPv4 address. Without one it is 0.0.0.0, which no peer accepts, and where the only
/// ones are those of a container bridge it is the same on all nodes. frr-k8s makes the id of such a node from its name, too.
#[must_use]
pub fn with_router_ids(mut config: NodeConfig, is_ipv6_only: bool) -> NodeConfig {
    if is_ipv6_only {
        let id = router_id(&config.hostname).to_string();
        for router in &mut config.routers {
            router.id.get_or_insert_with(|| id.clone());
        }
    }
    config
}

/// CRC-32 of the name, as an address that is a host's: not 0.0.0.0, and none from 224.0.0.0 on.
fn router_id(name: &str) -> Ipv4Addr {
    let sum = crc32(name.as_bytes());
    let number = if sum >= 0xe000_0000 {
        sum & 0x7fff_ffff
    } else {
        sum.max(1)
    };
    Ipv4Addr::from(number)
}

/// IEEE 802.3, as `crc32(1)` has it.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    };
    !bytes.iter().fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{merged, mk_neighbor, mk_object, mk_router};
    use crate::render::render;

    fn config() -> NodeConfig {
        let routers = ["", "blue"].map(|vrf| mk_router(vrf, &[], vec![mk_neighbor("fd00:30::2")]));
        let mut with_id = mk_object("own", routers.into());
        with_id.routers[1].id = Some("10.0.0.7".to_owned());
        merged(&[with_id]).unwrap()
    }

    #[test]
    fn a_node_without_ipv4_gets_an_id_of_its_name_where_no_object_sets_one() {
        let filled = with_router_ids(config(), true);
        let ids = filled.routers.iter().map(|r| r.id.as_deref());
        let own = router_id("node1").to_string();
        assert_eq!(
            ids.collect::<Vec<_>>(),
            [Some(own.as_str()), Some("10.0.0.7")]
        );
        assert!(render(&filled).contains(&format!("\n  bgp router-id {own}\n")));
    }

    #[test]
    fn a_node_with_ipv4_gets_none() {
        assert_eq!(with_router_ids(config(), false), config());
    }

    #[test]
    fn an_id_is_the_checksum_of_the_name_and_always_a_hosts_address() {
        // The check value of CRC-32/ISO-HDLC.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(
            router_id("123456789"),
            Ipv4Addr::new(0xcb, 0xf4, 0x39, 0x26)
        );
        assert_eq!(router_id(""), Ipv4Addr::new(0, 0, 0, 1));
        let ids: std::collections::BTreeSet<Ipv4Addr> =
            (0..5000).map(|n| router_id(&format!("node-{n}"))).collect();
        assert_eq!(ids.len(), 5000);
        let legal = |id: &Ipv4Addr| !id.is_unspecified() && id.octets()[0] < 224;
        assert!(ids.iter().all(legal));
    }
}
