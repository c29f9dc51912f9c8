//! Whether a network of users fits beside what the cluster has already: its subnets, and the size of its packets.
//! In: the world, the network. Out: why it does not, or nothing.
//! Invariant: another network of users is no reason: two of one subnet live in two VRFs. Not here: networks that share a VRF
//! (`advertise::select`), what follows (`attachments`, `transport`).

use model::Prefix;
use model::user_network::{UserNetwork, UserTransport};

use crate::world::World;

/// Bytes that Geneve adds to a packet, as OpenShift's design document counts them.
const GENEVE: u32 = 100;

/// Why the network's subnets cannot be used, naming the field; `None` where they can.
pub(crate) fn subnets(world: &World, network: &UserNetwork) -> Option<String> {
    let own = network.subnets.iter().map(|s| ("subnets", s.cidr));
    let join = network
        .join_subnets
        .iter()
        .map(|join| ("joinSubnets", *join));
    let mut all = own.chain(join);
    let used = all.find_map(|(field, prefix)| {
        let (what, other) = taken(world, &prefix)?;
        Some(format!(
            "spec.network {field} {prefix} overlaps {other}, {what}; allowed: a range that the cluster does not use"
        ))
    });
    used.or_else(|| joins(world, network))
}

/// What of the cluster lies in the subnets of the default network, naming the key; `None` where nothing does.
pub(crate) fn default_subnets(world: &World) -> Option<String> {
    let network = world.default_network()?;
    let reserved = world.reserved.iter().cloned();
    let nodes = world.nodes.values().flat_map(|node| {
        let name = &node.name;
        let ips = node.internal_ips.iter();
        ips.map(move |ip| (format!("an address of node {name}"), Prefix::host(*ip)))
    });
    let mut all = reserved.chain(nodes);
    all.find_map(|(what, other)| {
        let subnet = network.prefixes().find(|subnet| subnet.overlaps(&other))?;
        Some(format!(
            "[default] cluster-subnets {subnet} overlaps {other}, {what}: packets to one are taken for packets to the other; allowed: a range that the cluster does not use"
        ))
    })
}

/// What is wrong between the network and its own join subnets.
fn joins(world: &World, network: &UserNetwork) -> Option<String> {
    let joins = network.join_subnets_in_force();
    let mut pairs = network
        .subnets
        .iter()
        .flat_map(|subnet| joins.iter().map(move |join| (subnet.cidr, join)));
    if let Some((subnet, join)) = pairs.find(|(subnet, join)| subnet.overlaps(join)) {
        return Some(format!(
            "spec.network subnets {subnet} overlaps {join}, its join subnet; allowed: a range that joinSubnets has not"
        ));
    }
    let ids = world.nodes.values().filter_map(|n| n.node_id.known());
    let most = *ids.max()?;
    let small = joins
        .iter()
        .find(|join| join.nth(u128::from(most) + 1).is_none())?;
    Some(format!(
        "spec.network joinSubnets {small} is too small for node id {most}, which needs address {} of it",
        u128::from(most) + 1
    ))
}

/// What of the cluster overlaps a prefix.
fn taken(world: &World, prefix: &Prefix) -> Option<(String, Prefix)> {
    let default = world.default_network().into_iter();
    let default = default.flat_map(|network| network.prefixes());
    let default = default.map(|subnet| ("a subnet of the default network".to_owned(), subnet));
    let reserved = world.reserved.iter().cloned();
    let nodes = world.nodes.values().flat_map(|node| {
        let facts = [&node.primary, &node.host_cidrs];
        let listed = facts.into_iter().filter_map(|fact| fact.known()).flatten();
        let name = &node.name;
        let internal = node.internal_ips.iter().map(|ip| Prefix::host(*ip));
        let subnets = listed.map(|address| address.subnet());
        subnets
            .chain(internal)
            .map(move |p| (format!("where node {name} has an address"), p))
    });
    let mut all = default.chain(reserved).chain(nodes);
    all.find(|(_, other)| other.overlaps(prefix))
}

/// Why packets of the network's size do not pass between the nodes, naming the node that carries least; `None` where they
/// do, or no node says what it carries.
pub(crate) fn mtu(world: &World, network: &UserNetwork) -> Option<String> {
    let asked = network.mtu?;
    let known = world
        .nodes
        .values()
        .filter_map(|n| Some((*n.host_mtu.known()?, &n.name)));
    let (carries, node) = known.min()?;
    let (overhead, why) = match network.transport {
        UserTransport::NoOverlay { .. } => (0, ""),
        UserTransport::Unset | UserTransport::Geneve => (GENEVE, ", of which Geneve takes 100"),
    };
    let most = carries.saturating_sub(overhead);
    (asked > most).then(|| {
        format!(
            "spec.network mtu {asked} is more than node {node} carries: its uplink has {carries} bytes{why}; allowed: at most {most}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{mk_cudn, mk_world};
    use model::node::Fact;

    #[test]
    fn a_range_that_the_cluster_uses_is_refused_and_one_of_another_network_is_not() {
        let mut world = mk_world();
        let join = "100.64.0.0/16".parse().unwrap();
        world.reserved = vec![("the join subnets of the default network".to_owned(), join)];
        let other = mk_cudn("other", 1);
        world.cudns.insert("other".to_owned(), other);
        let n1 = world.nodes.values_mut().next().unwrap();
        n1.primary = Fact::Known(vec!["172.30.0.1/24".parse().unwrap()]);
        for (subnet, wanted) in [
            ("10.61.0.0/16/24", None),
            (
                "10.128.64.0/18/24",
                Some("10.128.0.0/16, a subnet of the default network"),
            ),
            ("100.64.9.0/24/28", Some("100.64.0.0/16, the join subnets")),
            (
                "172.30.0.128/25/28",
                Some("172.30.0.0/24, where node n1 has an address"),
            ),
            ("172.30.0.0/30/31", Some("172.30.0.0/24, where node n1")),
        ] {
            let mut network = mk_cudn("new", 2).network.unwrap();
            let mut parts = subnet.rsplitn(2, '/');
            let host_len = parts.next().unwrap().parse().unwrap();
            let cidr = parts.next().unwrap().parse().unwrap();
            network.subnets = vec![model::address::ClusterSubnet { cidr, host_len }];
            let said = subnets(&world, &network);
            match wanted {
                None => assert_eq!(said, None, "{subnet}"),
                Some(words) => assert!(said.as_ref().unwrap().contains(words), "{said:?}"),
            }
        }
        let mut network = mk_cudn("new", 2).network.unwrap();
        network.join_subnets = vec!["100.64.128.0/17".parse().unwrap()];
        assert!(
            subnets(&world, &network)
                .unwrap()
                .contains("joinSubnets 100.64.128.0/17")
        );
    }

    #[test]
    fn its_own_join_subnets_must_have_room_for_every_node_and_no_pod() {
        let world = mk_world();
        let of = |subnet: &str, join: &[&str]| {
            let mut network = mk_cudn("new", 2).network.unwrap();
            network.subnets = vec![subnet.parse().unwrap()];
            network.join_subnets = join.iter().map(|text| text.parse().unwrap()).collect();
            subnets(&world, &network)
        };
        assert_eq!(of("10.61.0.0/16/24", &["100.70.0.0/24"]), None);
        for (subnet, join, words) in [
            (
                "100.65.0.0/16/24",
                &[][..],
                "overlaps 100.65.0.0/16, its join subnet",
            ),
            (
                "10.61.0.0/16/24",
                &["10.61.9.0/24"],
                "overlaps 10.61.9.0/24, its join subnet",
            ),
            (
                "10.61.0.0/16/24",
                &["100.70.0.0/30"],
                "100.70.0.0/30 is too small for node id 4",
            ),
        ] {
            let said = of(subnet, join).unwrap();
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn the_node_that_carries_least_decides_and_geneve_takes_its_share() {
        let mut world = mk_world();
        let of = |transport, mtu| {
            let mut network = mk_cudn("new", 1).network.unwrap();
            (network.transport, network.mtu) = (transport, Some(mtu));
            network
        };
        let routed = mk_cudn("new", 1).network.unwrap().transport;
        assert_eq!(
            mtu(&world, &of(routed, 9000)),
            None,
            "no node says anything"
        );
        for (node, host) in world.nodes.values_mut().zip([9000, 1500, 9000]) {
            node.host_mtu = Fact::Known(host);
        }
        assert_eq!(mtu(&world, &of(routed, 1500)), None);
        let said = mtu(&world, &of(routed, 1501)).unwrap();
        for words in ["mtu 1501", "node n2", "1500 bytes", "at most 1500"] {
            assert!(said.contains(words), "{said}");
        }
        assert_eq!(mtu(&world, &of(UserTransport::Geneve, 1400)), None);
        assert!(
            mtu(&world, &of(UserTransport::Unset, 1401))
                .unwrap()
                .contains("at most 1400")
        );
    }
}
