//! Netlink messages in a buffer, and routes out of them.
//! In: bytes of one or more datagrams. Out: header and payload, message by message; `KernelRoute`s.
//! Invariant: a message that is cut off or cannot be read is an error; nothing is passed over in silence.
//! Not here: sockets.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use model::Prefix;
use model::route::{KernelRoute, RouteKind, RoutePath};
use netlink_packet_core::NetlinkBuffer;

/// Address families of the system.
pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
pub(crate) const ERROR: u16 = 2;
pub(crate) const DONE: u16 = 3;
/// `NLM_F_DUMP_INTR`: the table changed under the dump.
pub(crate) const INTERRUPTED: u16 = 0x10;
/// `RTM_NEWROUTE` and `RTM_DELROUTE`.
pub(crate) const NEW_ROUTE: u16 = 24;
pub(crate) const DEL_ROUTE: u16 = 25;
/// `RTM_NEWLINK`, `RTM_NEWADDR` and `RTM_NEWRULE`; what removes one has the number behind it.
pub(crate) const NEW_LINK: u16 = 16;
pub(crate) const NEW_ADDRESS: u16 = 20;
pub(crate) const NEW_RULE: u16 = 32;
/// `RTM_NEWNEIGH`; what removes one has the number behind it.
pub(crate) const NEW_NEIGHBOR: u16 = 28;
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

/// The error code of a DONE or ERROR message; 0 is success. One without a code is no success (`EIO`).
pub(crate) fn code(payload: &[u8]) -> i32 {
    payload
        .first_chunk::<4>()
        .map_or(-5, |bytes| i32::from_ne_bytes(*bytes))
}

/// Number and value of each attribute; an error where one is cut off. The two top bits are flags.
pub(crate) fn attributes(
    mut rest: &[u8],
) -> impl Iterator<Item = Result<(u16, &[u8]), &'static str>> {
    std::iter::from_fn(move || {
        // What is shorter than a header is padding.
        let (&[a, b, c, d], _) = rest.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let kind = u16::from_ne_bytes([c, d]) & 0x3fff;
        let Some(value) = rest.get(4..length) else {
            rest = &[];
            return Some(Err("an attribute cut off"));
        };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Ok((kind, value)))
    })
}

pub(crate) fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk::<4>().map(|v| u32::from_ne_bytes(*v))
}

/// An address of the family that its length tells.
pub(crate) fn address(value: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(value)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from))
        .ok()
}

/// `struct rtvia`: family, then the address.
fn via(value: &[u8]) -> Option<IpAddr> {
    address(value.get(2..)?)
}

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_NH_ID: u16 = 30;
const RTN_UNICAST: u8 = 1;
/// `RTNH_F_DEAD`. A path whose link has lost its carrier is kept: OVN does not use that link. It is dead where the kernel
/// itself passes it over (`ignore_routes_with_linkdown`); of a single path the route's own flags say so.
const DEAD: u8 = 1;

/// A route as dumped: decoded, and the id of its nexthop object where only that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) route: KernelRoute,
    pub(crate) nexthop_id: Option<u32>,
    /// Whether its paths are those of a nexthop object.
    pub(crate) by_object: bool,
    /// rtm_protocol.
    pub(crate) protocol: u8,
    /// rtm_tos: routes that differ only in it are distinguished by nothing else here.
    pub(crate) tos: u8,
}

/// Decodes a route of family inet or inet6 from the payload of `RTM_NEWROUTE` or `RTM_DELROUTE`: rtmsg of 12 bytes, then
/// attributes (rtnetlink(7)). `None` is a route of another family. An error says what is wrong with it.
pub(crate) fn decode_route(payload: &[u8]) -> Result<Option<Decoded>, &'static str> {
    let (head, rest) = payload
        .split_first_chunk::<12>()
        .ok_or("a route message too short")?;
    let [family, length, _, tos, table, protocol, _, kind, flags @ ..] = *head;
    let dead = u32::from_ne_bytes(flags) & u32::from(DEAD) != 0;
    let unspecified = match family {
        AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AF_INET6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return Ok(None),
    };
    let (mut table, mut metric, mut nexthop_id) = (u32::from(table), 0, None);
    let (mut destination, mut gateway, mut oif) = (unspecified, None, 0);
    let (mut paths, mut encapsulated) = (Vec::new(), false);
    for attribute in attributes(rest) {
        let (kind, value) = attribute?;
        match kind {
            RTA_TABLE => table = number(value).ok_or("a table number cut off")?,
            RTA_PRIORITY => metric = number(value).ok_or("a priority cut off")?,
            RTA_DST => destination = address(value).ok_or("a destination cut off")?,
            RTA_GATEWAY => gateway = Some(address(value).ok_or("a gateway cut off")?),
            RTA_VIA => gateway = Some(via(value).ok_or("a gateway cut off")?),
            RTA_OIF => oif = number(value).ok_or("an interface index cut off")?,
            RTA_NH_ID => nexthop_id = Some(number(value).ok_or("a nexthop id cut off")?),
            RTA_MULTIPATH => encapsulated |= multipath(value, &mut paths)?,
            RTA_ENCAP_TYPE => encapsulated = true,
            _ => {}
        }
    }
    if destination.is_ipv4() != unspecified.is_ipv4() {
        return Err("a destination of another family");
    }
    if paths.is_empty() && !dead && (gateway.is_some() || oif != 0) {
        paths.push(RoutePath { gateway, oif });
    }
    paths.sort_unstable();
    paths.dedup();
    Ok(Some(Decoded {
        by_object: nexthop_id.is_some(),
        nexthop_id: nexthop_id.filter(|_| paths.is_empty() && !dead),
        route: KernelRoute {
            table,
            prefix: Prefix::new(destination, length).map_err(|_| "a prefix too long")?,
            metric,
            kind: match kind {
                RTN_UNICAST if encapsulated => RouteKind::Encapsulated,
                RTN_UNICAST => RouteKind::Unicast,
                _ => RouteKind::Other,
            },
            paths,
        },
        protocol,
        tos,
    }))
}

/// The paths of a multipath route: rtnexthop of 8 bytes each, then attributes. A dead one is none. Returns whether one of
/// them is encapsulated.
fn multipath(mut rest: &[u8], paths: &mut Vec<RoutePath>) -> Result<bool, &'static str> {
    let mut encapsulated = false;
    while let Some((&[a, b, flags, _, w, x, y, z], _)) = rest.split_first_chunk::<8>() {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let inside = rest.get(8..length).ok_or("a path cut off")?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        if flags & DEAD != 0 {
            continue;
        }
        let mut gateway = None;
        for attribute in attributes(inside) {
            match attribute? {
                (RTA_GATEWAY, value) => {
                    gateway = Some(address(value).ok_or("a gateway cut off")?);
                }
                (RTA_VIA, value) => gateway = Some(via(value).ok_or("a gateway cut off")?),
                (RTA_ENCAP_TYPE, _) => encapsulated = true,
                _ => {}
            }
        }
        let oif = u32::from_ne_bytes([w, x, y, z]);
        paths.push(RoutePath { gateway, oif });
    }
    Ok(encapsulated)
}

/// A nexthop object: one path, or a group of other objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Nexthop {
    pub(crate) group: Vec<u32>,
    pub(crate) path: Option<RoutePath>,
    pub(crate) encapsulated: bool,
}

/// Parses `RTM_NEWNEXTHOP`: nhmsg of 8 bytes, then NHA_ID 1, NHA_GROUP 2, NHA_BLACKHOLE 4, NHA_OIF 5, NHA_GATEWAY 6,
/// NHA_ENCAP_TYPE 7.
pub(crate) fn decode_nexthop(payload: &[u8]) -> Result<(u32, Nexthop), &'static str> {
    let rest = payload.get(8..).ok_or("a nexthop message too short")?;
    let (mut id, mut oif, mut gateway, mut blackhole) = (None, 0, None, false);
    let mut out = Nexthop::default();
    for attribute in attributes(rest) {
        let (kind, value) = attribute?;
        match kind {
            1 => id = number(value),
            2 => out.group = value.chunks_exact(8).filter_map(number).collect(),
            4 => blackhole = true,
            5 => oif = number(value).unwrap_or(0),
            6 => gateway = address(value),
            7 => out.encapsulated = true,
            _ => {}
        }
    }
    if out.group.is_empty() && !blackhole {
        out.path = Some(RoutePath { gateway, oif });
    }
    Ok((id.ok_or("a nexthop without id")?, out))
}

/// The paths of a nexthop object, and whether one is encapsulated; those of a group are its members'. `None` where one of
/// them is not among the objects: they are of another moment than what names them.
pub(crate) fn resolve(id: u32, objects: &BTreeMap<u32, Nexthop>) -> Option<(Vec<RoutePath>, bool)> {
    let object = objects.get(&id)?;
    let (mut paths, mut encapsulated) = (Vec::from_iter(object.path), object.encapsulated);
    for member in &object.group {
        let member = objects.get(member)?;
        paths.extend(member.path);
        encapsulated |= member.encapsulated;
    }
    paths.sort_unstable();
    paths.dedup();
    Some((paths, encapsulated))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
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
        let (id, seven) = decode_nexthop(&one).unwrap();
        assert_eq!((id, seven.path.unwrap().oif), (7, 3));
        let mut entries = Vec::new();
        for member in [7_u32, 8] {
            entries.extend(member.to_ne_bytes());
            entries.extend([0; 4]);
        }
        let (id, group) =
            decode_nexthop(&nexthop(&[(1, 9_u32.to_ne_bytes().into()), (2, entries)])).unwrap();
        assert_eq!(group.group, [7, 8]);
        let eight = seven.clone();
        let mut objects = BTreeMap::from([(7, seven), (id, group)]);
        assert_eq!(resolve(9, &objects), None, "a member is of another moment");
        assert_eq!(resolve(1, &objects), None);
        objects.insert(8, eight);
        assert_eq!(resolve(9, &objects).map(|(paths, _)| paths.len()), Some(1));
        let hole = nexthop(&[(1, 1_u32.to_ne_bytes().into()), (4, vec![])]);
        assert_eq!(decode_nexthop(&hole).unwrap().1.path, None);
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        assert!(decode_nexthop(&[0; 7]).is_err());
        assert!(
            decode_nexthop(&nexthop(&[(5, vec![1, 0, 0, 0])])).is_err(),
            "no id"
        );
        let mut cut = nexthop(&[(1, 7_u32.to_ne_bytes().into())]);
        cut.truncate(13);
        assert!(decode_nexthop(&cut).is_err());
        assert_eq!(messages(&[1, 2, 3]).collect::<Vec<_>>(), [None]);
        assert_eq!(messages(&[]).count(), 0);
    }
}
