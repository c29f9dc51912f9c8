//! Netlink messages in a buffer, and routes out of them.
//! In: bytes of one or more datagrams. Out: header and payload, message by message; `KernelRoute`s.
//! Invariant: a message that is cut off or cannot be read is an error; nothing is passed over in silence.
//! Not here: sockets.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use model::Prefix;
use model::route::{KernelRoute, Leg, RouteKind};
use netlink_packet_core::NetlinkBuffer;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteNextHopFlags, RouteType,
    RouteVia,
};

/// `NLMSG_ERROR` and `NLMSG_DONE`.
pub(crate) const ERROR: u16 = 2;
pub(crate) const DONE: u16 = 3;
/// `NLM_F_DUMP_INTR`: the table changed under the dump.
pub(crate) const INTERRUPTED: u16 = 0x10;
/// `RTM_NEWNEXTHOP`.
pub(crate) const NEW_NEXTHOP: u16 = 104;

/// Type, flags and payload of each message in a buffer; `None` stands for a rest that is no message.
pub(crate) fn messages(buffer: &[u8]) -> impl Iterator<Item = Option<(u16, u16, &[u8])>> {
    let mut rest = buffer;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Ok(message) = NetlinkBuffer::new_checked(rest) else {
            rest = &[];
            return Some(None);
        };
        let found = (message.message_type(), message.flags(), message.payload());
        let length = usize::try_from(message.length()).unwrap_or(usize::MAX);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Some(found))
    })
}

/// The error code of a DONE or ERROR message; 0 is success.
pub(crate) fn code(payload: &[u8]) -> i32 {
    payload
        .first_chunk::<4>()
        .map_or(0, |bytes| i32::from_ne_bytes(*bytes))
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    if let RouteAddress::Inet(ip) = address {
        return Some(IpAddr::V4(*ip));
    }
    if let RouteAddress::Inet6(ip) = address {
        return Some(IpAddr::V6(*ip));
    }
    None
}

fn via(via: &RouteVia) -> Option<IpAddr> {
    if let RouteVia::Inet(ip) = via {
        return Some(IpAddr::V4(*ip));
    }
    if let RouteVia::Inet6(ip) = via {
        return Some(IpAddr::V6(*ip));
    }
    None
}

/// A route as dumped: lifted, and the id of its nexthop object where only that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lifted {
    pub(crate) route: KernelRoute,
    pub(crate) nexthop_id: Option<u32>,
}

/// Lifts a unicast family's route. An error says what is wrong with it.
pub(crate) fn lift_route(message: &RouteMessage) -> Result<Lifted, &'static str> {
    let unspecified = if message.header.address_family == AddressFamily::Inet {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else if message.header.address_family == AddressFamily::Inet6 {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        return Err("a route of another family");
    };
    let (mut table, mut metric, mut nexthop_id) = (u32::from(message.header.table), 0, None);
    let (mut destination, mut gateway, mut oif) = (unspecified, None, 0);
    let mut legs = Vec::new();
    for attribute in &message.attributes {
        if let RouteAttribute::Table(n) = attribute {
            table = *n;
        } else if let RouteAttribute::Priority(n) = attribute {
            metric = *n;
        } else if let RouteAttribute::Destination(address) = attribute {
            destination = ip(address).ok_or("a destination of another family")?;
        } else if let RouteAttribute::Gateway(address) = attribute {
            gateway = ip(address);
        } else if let RouteAttribute::Via(address) = attribute {
            gateway = via(address);
        } else if let RouteAttribute::Oif(n) = attribute {
            oif = *n;
        } else if let RouteAttribute::NhId(n) = attribute {
            nexthop_id = Some(*n);
        } else if let RouteAttribute::MultiPath(hops) = attribute {
            legs.extend(hops.iter().filter_map(leg));
        }
    }
    if legs.is_empty() && (gateway.is_some() || oif != 0) {
        legs.push(Leg { gateway, oif });
    }
    legs.sort_unstable();
    legs.dedup();
    let prefix = Prefix::new(destination, message.header.destination_prefix_length)
        .map_err(|_| "a prefix too long")?;
    let kind = if message.header.kind == RouteType::Unicast {
        RouteKind::Unicast
    } else {
        RouteKind::Other
    };
    Ok(Lifted {
        nexthop_id: nexthop_id.filter(|_| legs.is_empty()),
        route: KernelRoute {
            table,
            prefix,
            metric,
            kind,
            legs,
        },
    })
}

/// One path of a multipath route; a dead one is none.
fn leg(hop: &RouteNextHop) -> Option<Leg> {
    if hop
        .flags
        .intersects(RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown)
    {
        return None;
    }
    let mut gateway = None;
    for attribute in &hop.attributes {
        if let RouteAttribute::Gateway(address) = attribute {
            gateway = ip(address);
        } else if let RouteAttribute::Via(address) = attribute {
            gateway = via(address);
        }
    }
    Some(Leg {
        gateway,
        oif: hop.interface_index,
    })
}

/// A nexthop object: one leg, or a group of other objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Nexthop {
    pub(crate) group: Vec<u32>,
    pub(crate) leg: Option<Leg>,
}

/// Parses `RTM_NEWNEXTHOP`: nhmsg of 8 bytes, then NHA_ID 1, NHA_GROUP 2, NHA_BLACKHOLE 4, NHA_OIF 5, NHA_GATEWAY 6.
pub(crate) fn lift_nexthop(payload: &[u8]) -> Result<(u32, Nexthop), &'static str> {
    let mut rest = payload.get(8..).ok_or("a nexthop message too short")?;
    let (mut id, mut oif, mut gateway, mut blackhole) = (None, 0, None, false);
    let mut out = Nexthop::default();
    while let Some((head, _)) = rest.split_first_chunk::<4>() {
        let [a, b, c, d] = *head;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let kind = u16::from_ne_bytes([c, d]) & 0x3fff;
        let value = rest.get(4..length).ok_or("a nexthop attribute cut off")?;
        let number = || value.first_chunk::<4>().map(|v| u32::from_ne_bytes(*v));
        match kind {
            1 => id = number(),
            2 => {
                let entries = value
                    .chunks_exact(8)
                    .filter_map(|entry| entry.first_chunk::<4>());
                out.group = entries.map(|v| u32::from_ne_bytes(*v)).collect();
            }
            4 => blackhole = true,
            5 => oif = number().unwrap_or(0),
            6 => gateway = address(value),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    if out.group.is_empty() && !blackhole {
        out.leg = Some(Leg { gateway, oif });
    }
    Ok((id.ok_or("a nexthop without id")?, out))
}

fn address(value: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(value)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from))
        .ok()
}

/// The legs of a nexthop object; those of a group are its members'.
pub(crate) fn resolve(id: u32, objects: &BTreeMap<u32, Nexthop>) -> Vec<Leg> {
    let Some(object) = objects.get(&id) else {
        return Vec::new();
    };
    let members = object
        .group
        .iter()
        .filter_map(|m| objects.get(m))
        .filter_map(|m| m.leg);
    let mut legs: Vec<Leg> = object.leg.into_iter().chain(members).collect();
    legs.sort_unstable();
    legs.dedup();
    legs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut out = u16::try_from(value.len() + 4)
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        out.extend(kind.to_ne_bytes());
        out.extend(value);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    fn nexthop(parts: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut out = vec![2, 0, 0, 0, 0, 0, 0, 0];
        for (kind, value) in parts {
            out.extend(attribute(*kind, value));
        }
        out
    }

    #[test]
    fn a_nexthop_is_a_leg_or_a_group_of_others() {
        let one = nexthop(&[
            (1, 7_u32.to_ne_bytes().into()),
            (5, 3_u32.to_ne_bytes().into()),
            (6, vec![10, 0, 0, 1]),
        ]);
        let (id, seven) = lift_nexthop(&one).unwrap();
        assert_eq!((id, seven.leg.unwrap().oif), (7, 3));
        let mut entries = Vec::new();
        for member in [7_u32, 8] {
            entries.extend(member.to_ne_bytes());
            entries.extend([0; 4]);
        }
        let (id, group) =
            lift_nexthop(&nexthop(&[(1, 9_u32.to_ne_bytes().into()), (2, entries)])).unwrap();
        assert_eq!(group.group, [7, 8]);
        let objects = BTreeMap::from([(7, seven), (id, group)]);
        assert_eq!(
            resolve(9, &objects).len(),
            1,
            "a member that is gone is no leg"
        );
        assert!(resolve(1, &objects).is_empty());
        let hole = nexthop(&[(1, 1_u32.to_ne_bytes().into()), (4, vec![])]);
        assert_eq!(lift_nexthop(&hole).unwrap().1.leg, None);
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        assert!(lift_nexthop(&[0; 7]).is_err());
        assert!(
            lift_nexthop(&nexthop(&[(5, vec![1, 0, 0, 0])])).is_err(),
            "no id"
        );
        let mut cut = nexthop(&[(1, 7_u32.to_ne_bytes().into())]);
        cut.truncate(13);
        assert!(lift_nexthop(&cut).is_err());
        assert_eq!(messages(&[1, 2, 3]).collect::<Vec<_>>(), [None]);
        assert_eq!(messages(&[]).count(), 0);
    }
}
