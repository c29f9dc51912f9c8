//! Links, addresses, rules and our own routes out of netlink messages.
//! In: payloads (rtnetlink(7)). Out: facts. Invariant: only the attributes that are used are looked at, so nothing that
//! somebody writes into another one (an alias, a label, a kind of link) can keep a fact from being read.
//! Not here: sockets, BGP's routes (`message`).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use model::address::Mac;
use model::kernel::{LinkFact, RuleSelector};
use model::route::TableId;
use model::steering;
use model::{Family, InterfaceAddr, Prefix};

use crate::message::{AF_INET, AF_INET6, address, attributes, number};

/// `IFF_UP`.
const UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VRF_TABLE: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// `IFA_F_NOPREFIXROUTE`.
const NO_PREFIX_ROUTE: u32 = 0x200;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_PROTOCOL: u16 = 12;
/// `NUD_PERMANENT` and `NTF_PROXY`.
const PERMANENT: u16 = 0x80;
const PROXY: u8 = 0x08;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_PROTOCOL: u16 = 21;
/// `FR_ACT_TO_TBL` and `FR_ACT_UNREACHABLE`.
const TO_TABLE: u8 = 1;
/// `FIB_RULE_INVERT`.
const INVERT: u32 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_TABLE: u16 = 15;
const RTAX_MTU: u16 = 2;
/// `RTN_UNICAST` and `RTN_UNREACHABLE`.
const UNICAST: u8 = 1;
const UNREACHABLE: u8 = 7;

/// Text that ends with a zero byte. What is not UTF-8 is shown with U+FFFD: no name that we look for has one.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}

/// A link without its addresses: ifinfomsg of 16 bytes, then attributes.
pub(crate) fn link(payload: &[u8]) -> Result<LinkFact, &'static str> {
    let (&[_, _, _, _, i, j, k, l, f, g, h, m, ..], rest) = payload
        .split_first_chunk::<16>()
        .ok_or("a link message too short")?;
    let mut fact = LinkFact {
        index: u32::from_ne_bytes([i, j, k, l]),
        name: String::new(),
        mac: None,
        mtu: 0,
        up: u32::from_ne_bytes([f, g, h, m]) & UP != 0,
        addresses: Vec::new(),
        master: None,
        vrf_table: None,
        alias: String::new(),
        alternative_names: Vec::new(),
    };
    for attribute in attributes(rest) {
        let (kind, value) = attribute?;
        match kind {
            IFLA_IFNAME => fact.name = text(value),
            IFLA_ADDRESS => fact.mac = <[u8; 6]>::try_from(value).ok().map(Mac),
            IFLA_MTU => fact.mtu = number(value).ok_or("an MTU cut off")?,
            IFLA_MASTER => {
                let master = number(value).ok_or("a master cut off")?;
                fact.master = (master != 0).then_some(master);
            }
            IFLA_LINKINFO => fact.vrf_table = vrf_table(value)?,
            IFLA_IFALIAS => fact.alias = text(value),
            IFLA_PROP_LIST => fact.alternative_names = alternative_names(value)?,
            _ => {}
        }
    }
    Ok(fact)
}

/// The other names of a link, out of its properties.
fn alternative_names(properties: &[u8]) -> Result<Vec<String>, &'static str> {
    let mut names = Vec::new();
    for attribute in attributes(properties) {
        if let (IFLA_ALT_IFNAME, value) = attribute? {
            names.push(text(value));
        }
    }
    Ok(names)
}

/// The table of a VRF device. Its ports name it too, as data of a port: that is not looked at here.
fn vrf_table(info: &[u8]) -> Result<Option<TableId>, &'static str> {
    let (mut is_vrf, mut data) = (false, None);
    for attribute in attributes(info) {
        match attribute? {
            (IFLA_INFO_KIND, value) => is_vrf = text(value) == "vrf",
            (IFLA_INFO_DATA, value) => data = Some(value),
            _ => {}
        }
    }
    let Some(data) = data.filter(|_| is_vrf) else {
        return Ok(None);
    };
    for attribute in attributes(data) {
        if let (IFLA_VRF_TABLE, value) = attribute? {
            return number(value).map(Some).ok_or("a table of a VRF cut off");
        }
    }
    Ok(None)
}

/// An address as it was dumped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// Index of its link.
    pub(crate) link: u32,
    /// `None` where the message names none that we know.
    pub(crate) address: Option<InterfaceAddr>,
    /// The kernel makes a route to its subnet.
    pub(crate) prefix_route: bool,
    /// The message, to be sent back where the address has to go.
    pub(crate) payload: Vec<u8>,
}

/// An address: ifaddrmsg of 8 bytes, then attributes.
pub(crate) fn link_address(payload: &[u8]) -> Result<Address, &'static str> {
    let (&[_, len, _, _, i, j, k, l], rest) = payload
        .split_first_chunk::<8>()
        .ok_or("an address message too short")?;
    let mut ip: Option<IpAddr> = None;
    let mut flags = 0;
    for attribute in attributes(rest) {
        // On point-to-point links Address is the peer, Local is ours.
        match attribute? {
            (IFA_LOCAL, value) => ip = address(value).or(ip),
            (IFA_ADDRESS, value) => ip = ip.or_else(|| address(value)),
            (IFA_FLAGS, value) => flags = number(value).ok_or("flags cut off")?,
            _ => {}
        }
    }
    let checked = |ip| Prefix::new(ip, len).ok().map(|_| InterfaceAddr { ip, len });
    Ok(Address {
        link: u32::from_ne_bytes([i, j, k, l]),
        address: ip.and_then(checked),
        prefix_route: flags & NO_PREFIX_ROUTE == 0,
        payload: payload.to_vec(),
    })
}

/// Addresses by link, sorted.
pub(crate) fn by_link(addresses: Vec<Address>) -> BTreeMap<u32, Vec<InterfaceAddr>> {
    let mut out: BTreeMap<u32, Vec<InterfaceAddr>> = BTreeMap::new();
    for one in addresses {
        out.entry(one.link).or_default().extend(one.address);
    }
    out.values_mut().for_each(|of| of.sort_unstable());
    out
}

/// A permanent neighbor as it was dumped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Neighbor {
    /// Index of its link.
    pub(crate) link: u32,
    pub(crate) ip: IpAddr,
    pub(crate) mac: Mac,
    /// Who made it; 0 where nobody said so.
    pub(crate) protocol: u8,
    /// The message, to be sent back where the neighbor has to go.
    pub(crate) payload: Vec<u8>,
}

/// A neighbor: ndmsg of 12 bytes, then attributes. `None` is one that is not permanent, a proxy, or of a link without MACs.
pub(crate) fn neighbor(payload: &[u8]) -> Result<Option<Neighbor>, &'static str> {
    let (&[_, _, _, _, i, j, k, l, s, t, flags, _], rest) = payload
        .split_first_chunk::<12>()
        .ok_or("a neighbor message too short")?;
    let is_permanent = u16::from_ne_bytes([s, t]) & PERMANENT != 0 && flags & PROXY == 0;
    let (mut ip, mut mac, mut protocol) = (None, None, 0);
    for attribute in attributes(rest) {
        match attribute? {
            (NDA_PROTOCOL, value) => protocol = value.first().copied().unwrap_or(0),
            (NDA_DST, value) => ip = address(value),
            (NDA_LLADDR, value) => mac = <[u8; 6]>::try_from(value).ok().map(Mac),
            _ => {}
        }
    }
    let found = ip.zip(mac).filter(|_| is_permanent);
    Ok(found.map(|(ip, mac)| Neighbor {
        link: u32::from_ne_bytes([i, j, k, l]),
        ip,
        mac,
        protocol,
        payload: payload.to_vec(),
    }))
}

/// A rule as it was dumped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) preference: u32,
    pub(crate) table: TableId,
    /// `None`: for everything, or for something else than we use.
    pub(crate) selector: Option<RuleSelector>,
    /// From the host itself (`iif lo`) into a table.
    pub(crate) is_local: bool,
    /// Who made it (`FRA_PROTOCOL`); 0 where nobody said.
    pub(crate) protocol: u8,
    /// The message, to be sent back where the rule has to go.
    pub(crate) payload: Vec<u8>,
}

/// A rule: `fib_rule_hdr` of 12 bytes, then attributes. `None` is one of another family.
pub(crate) fn rule(wanted: u8, payload: &[u8]) -> Result<Option<Rule>, &'static str> {
    let (&[family, to_len, _, _, table, _, _, action, ..], rest) = payload
        .split_first_chunk::<12>()
        .ok_or("a rule message too short")?;
    if family != wanted {
        return Ok(None);
    }
    let (mut to, mut mark, mut from_host) = (None, None, false);
    let (mut preference, mut table, mut protocol) = (0, u32::from(table), 0);
    for attribute in attributes(rest) {
        match attribute? {
            (FRA_DST, value) => to = address(value),
            (FRA_IIFNAME, value) => from_host = text(value) == "lo",
            (FRA_PRIORITY, value) => preference = number(value).ok_or("a preference cut off")?,
            (FRA_TABLE, value) => table = number(value).ok_or("a table number cut off")?,
            (FRA_PROTOCOL, value) => protocol = value.first().copied().unwrap_or(0),
            (FRA_FWMARK, value) => mark = number(value).filter(|mark| *mark != 0),
            _ => {}
        }
    }
    let to = to.and_then(|ip| Prefix::new(ip, to_len).ok());
    let of_family = if wanted == AF_INET6 {
        Family::V6
    } else {
        Family::V4
    };
    let selector = match (to, mark) {
        (Some(to), None) => Some(RuleSelector::To(to)),
        (None, Some(mark)) => Some(RuleSelector::Mark(of_family, mark)),
        (Some(_), Some(_)) | (None, None) => None,
    };
    Ok(Some(Rule {
        preference,
        table,
        selector,
        is_local: from_host && action == TO_TABLE,
        protocol,
        payload: payload.to_vec(),
    }))
}

/// A rule as it was dumped, with all that rules beside OVN-Kubernetes are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundRule {
    pub(crate) preference: u32,
    /// `None`: it has something that ours never have, or lacks what they all have.
    pub(crate) rule: Option<steering::Rule>,
    /// Who made it (`FRA_PROTOCOL`); 0 where nobody said.
    pub(crate) protocol: u8,
    /// The message, to be sent back where the rule has to go.
    pub(crate) payload: Vec<u8>,
}

/// A rule: `fib_rule_hdr` of 12 bytes, then attributes. `None` is one of another family.
pub(crate) fn found_rule(wanted: u8, payload: &[u8]) -> Result<Option<FoundRule>, &'static str> {
    let (
        &[
            family,
            to_len,
            from_len,
            tos,
            table,
            _,
            _,
            action,
            f,
            g,
            h,
            i,
        ],
        rest,
    ) = payload
        .split_first_chunk::<12>()
        .ok_or("a rule message too short")?;
    if family != wanted {
        return Ok(None);
    }
    let is_inverted = u32::from_ne_bytes([f, g, h, i]) & INVERT != 0;
    let (mut to, mut from, mut device, mut suppress) = (None, None, None, None);
    let (mut preference, mut table, mut protocol) = (0, u32::from(table), 0);
    let mut is_plain = tos == 0 && !is_inverted;
    for attribute in attributes(rest) {
        match attribute? {
            (FRA_DST, value) => to = address(value),
            (FRA_SRC, value) => from = address(value),
            (FRA_IIFNAME, value) => device = Some(text(value)),
            (FRA_PRIORITY, value) => preference = number(value).ok_or("a preference cut off")?,
            (FRA_TABLE, value) => table = number(value).ok_or("a table number cut off")?,
            (FRA_PROTOCOL, value) => protocol = value.first().copied().unwrap_or(0),
            // The kernel says all ones where nothing is suppressed.
            (FRA_SUPPRESS_PREFIXLEN, value) => {
                suppress = number(value).and_then(|bits| u8::try_from(bits).ok());
            }
            (FRA_SUPPRESS_IFGROUP, value) => is_plain &= number(value) == Some(u32::MAX),
            // A mask of no mark, which the kernel sends along.
            (FRA_FWMARK | FRA_FWMASK, value) => is_plain &= number(value) == Some(0),
            _ => is_plain = false,
        }
    }
    is_plain &= action == TO_TABLE;
    let prefix = |ip: Option<IpAddr>, bits| ip.and_then(|ip| Prefix::new(ip, bits).ok());
    let to = prefix(to, to_len).filter(|_| is_plain);
    let rule = to.map(|to| steering::Rule {
        preference,
        from: prefix(from, from_len),
        to,
        device,
        table,
        suppress,
    });
    let payload = payload.to_vec();
    Ok(Some(FoundRule {
        preference,
        rule,
        protocol,
        payload,
    }))
}

/// What such a route does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableRouteKind {
    Unicast,
    Unreachable,
}

/// A route of a table that we write to, as it was dumped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableRoute {
    pub(crate) protocol: u8,
    pub(crate) table: TableId,
    /// `None` where the destination cannot be read: no route that we want.
    pub(crate) to: Option<Prefix>,
    pub(crate) metric: u32,
    /// `None`: of a kind that is never ours.
    pub(crate) kind: Option<TableRouteKind>,
    pub(crate) source: Option<IpAddr>,
    pub(crate) via: Option<IpAddr>,
    pub(crate) link: Option<u32>,
    pub(crate) mtu: Option<u32>,
    /// The message, to be sent back where the route has to go.
    pub(crate) payload: Vec<u8>,
}

/// A route: rtmsg of 12 bytes, then attributes.
pub(crate) fn table_route(payload: &[u8]) -> Result<TableRoute, &'static str> {
    let (&[family, to_len, _, _, table, protocol, _, kind, ..], rest) = payload
        .split_first_chunk::<12>()
        .ok_or("a route message too short")?;
    let mut to = match family {
        AF_INET => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        AF_INET6 => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        _ => None,
    };
    let mut route = TableRoute {
        protocol,
        table: u32::from(table),
        to: None,
        metric: 0,
        kind: match kind {
            UNICAST => Some(TableRouteKind::Unicast),
            UNREACHABLE => Some(TableRouteKind::Unreachable),
            _ => None,
        },
        source: None,
        via: None,
        link: None,
        mtu: None,
        payload: payload.to_vec(),
    };
    for attribute in attributes(rest) {
        match attribute? {
            (RTA_DST, value) => to = address(value),
            (RTA_GATEWAY, value) => route.via = address(value),
            (RTA_OIF, value) => route.link = number(value),
            (RTA_TABLE, value) => route.table = number(value).ok_or("a table number cut off")?,
            (RTA_PRIORITY, value) => route.metric = number(value).ok_or("a metric cut off")?,
            (RTA_PREFSRC, value) => route.source = address(value),
            (RTA_METRICS, value) => route.mtu = mtu(value)?,
            _ => {}
        }
    }
    route.to = to.and_then(|ip| Prefix::new(ip, to_len).ok());
    Ok(route)
}

fn mtu(metrics: &[u8]) -> Result<Option<u32>, &'static str> {
    for attribute in attributes(metrics) {
        if let (RTAX_MTU, value) = attribute? {
            return Ok(number(value));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::attribute;

    fn mk_link(parts: &[(u16, &[u8])]) -> Vec<u8> {
        let mut out = vec![0, 0, 1, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        for (kind, value) in parts {
            out.extend(attribute(*kind, value));
        }
        out
    }

    #[test]
    fn what_is_no_text_and_what_has_an_odd_size_costs_nothing_else() {
        // IFLA_IFALIAS, and IFLA_CARRIER with four bytes in place of one.
        let fact = link(&mk_link(&[
            (3, b"eth1\0"),
            (20, b"Z\xfcrich\0"),
            (33, &[1, 0, 0, 0]),
            (4, &1400_u32.to_ne_bytes()),
        ]));
        let fact = fact.unwrap();
        assert_eq!((fact.index, fact.name.as_str()), (7, "eth1"));
        assert_eq!((fact.mtu, fact.up), (1400, true));
        let odd = link(&mk_link(&[(3, b"et\xffh\0")])).unwrap();
        assert_eq!(odd.name, "et\u{fffd}h");
    }

    #[test]
    fn a_link_has_names_beside_its_own() {
        // IFLA_PROP_LIST comes with NLA_F_NESTED.
        let names = [attribute(53, b"uplink0\0"), attribute(53, b"enp0s1\0")].concat();
        let fact = link(&mk_link(&[(3, b"eth1\0"), (52 | 0x8000, &names)])).unwrap();
        assert_eq!(fact.name, "eth1");
        assert_eq!(fact.alternative_names, ["uplink0", "enp0s1"]);
    }

    #[test]
    fn only_a_vrf_has_a_table() {
        let of = |kind: &[u8]| {
            let mut info = attribute(1, kind);
            info.extend(attribute(2, &attribute(1, &1010_u32.to_ne_bytes())));
            link(&mk_link(&[(18, &info)])).unwrap().vrf_table
        };
        assert_eq!(of(b"vrf\0"), Some(1010));
        assert_eq!(of(b"bridge\0"), None);
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        let whole = mk_link(&[(3, b"eth1\0"), (4, &1400_u32.to_ne_bytes())]);
        assert!(link(&whole).is_ok());
        assert!(link(&whole[..15]).is_err());
        assert!(link(&whole[..whole.len() - 1]).is_err());
        assert!(link(&mk_link(&[(4, &[1, 2])])).is_err(), "half an MTU");
        assert!(link_address(&[0; 7]).is_err());
        assert!(rule(2, &[0; 11]).is_err());
        assert!(table_route(&[0; 11]).is_err());
    }
}
