//! Full reads of the kernel, blocking, each on a socket of its own with strict checking.
//! In: which table and protocol. Out: values. Invariant: `Ok` means that the kernel said DONE without an error code.
//! Not here: events. To be called from a thread that may block.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::address::Mac;
use model::host::LinkFact;
use model::route::{KernelRoute, MAIN_TABLE, TableId};
use model::{InterfaceAddr, Prefix};
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoVrf, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{RouteMessage, RouteProtocol};
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::message::{self, DONE, ERROR, INTERRUPTED, NEW_NEXTHOP, NEW_ROUTE, Nexthop};

/// Why a dump gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The socket failed.
    #[error("cannot dump {what}")]
    Socket {
        /// What was asked for.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The kernel refused.
    #[error("the kernel refused to dump {what}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// Its error code.
        source: std::io::Error,
    },
    /// A message cannot be read: the rest is not to be believed.
    #[error("cannot read a message of the dump of {what}: {why}")]
    Message {
        /// What was asked for.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The table changed under the dump five times in a row.
    #[error("the dump of {what} was interrupted again and again")]
    Interrupted {
        /// What was asked for.
        what: &'static str,
    },
}

const NO_ENTRY: i32 = 2;
const BUFFER: usize = 256 * 1024;

struct Dumper {
    socket: Socket,
    what: &'static str,
}

impl Dumper {
    fn open(what: &'static str) -> Result<Self, DumpError> {
        let fail = |source| DumpError::Socket { what, source };
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(fail)?;
        socket.bind_auto().map_err(fail)?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(fail)?;
        socket.set_netlink_get_strict_chk(true).map_err(fail)?;
        Ok(Self { socket, what })
    }

    /// Sends a dump request and hands each message to `each`; tried again where the kernel says that it was interrupted.
    fn dump<T>(
        &self,
        request: &[u8],
        each: impl Fn(u16, &[u8]) -> Result<Option<T>, String>,
    ) -> Result<Vec<T>, DumpError> {
        for _ in 0..5 {
            if let Some(found) = self.once(request, &each)? {
                return Ok(found);
            }
        }
        Err(DumpError::Interrupted { what: self.what })
    }

    fn once<T>(
        &self,
        request: &[u8],
        each: &impl Fn(u16, &[u8]) -> Result<Option<T>, String>,
    ) -> Result<Option<Vec<T>>, DumpError> {
        let what = self.what;
        let fail = |source| DumpError::Socket { what, source };
        self.socket.send(request, 0).map_err(fail)?;
        let mut found = Vec::new();
        let mut interrupted = false;
        let mut buffer = Vec::with_capacity(BUFFER);
        loop {
            buffer.clear();
            self.socket.recv(&mut buffer, 0).map_err(fail)?;
            for part in message::messages(&buffer) {
                let broken = |why: String| DumpError::Message { what, why };
                let (kind, flags, payload) =
                    part.ok_or_else(|| broken("it is cut off".to_owned()))?;
                interrupted |= flags & INTERRUPTED != 0;
                match kind {
                    DONE | ERROR => {
                        let code = message::code(payload);
                        if code != 0 {
                            let source = std::io::Error::from_raw_os_error(code.saturating_abs());
                            return Err(DumpError::Refused { what, source });
                        }
                        return Ok((!interrupted).then_some(found));
                    }
                    kind => found.extend(each(kind, payload).map_err(broken)?),
                }
            }
        }
    }
}

fn request(message: RouteNetlinkMessage) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    header.sequence_number = 1;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Decodes one message of a dump by putting its header back.
fn decode(kind: u16, payload: &[u8]) -> Result<RouteNetlinkMessage, String> {
    use netlink_packet_core::NetlinkDeserializable;
    let mut header = NetlinkHeader::default();
    header.message_type = kind;
    RouteNetlinkMessage::deserialize(&header, payload).map_err(|err| err.to_string())
}

/// Routes of one protocol, both families. `table` as given, else of all tables.
///
/// # Errors
/// When the kernel did not give the whole list. A table that does not exist has no routes, but main always exists.
pub fn routes(table: Option<TableId>, protocol: u8) -> Result<Vec<KernelRoute>, DumpError> {
    let lift = |kind, payload: &[u8]| {
        if kind == NEW_ROUTE {
            message::lift_route(payload).map_err(ToOwned::to_owned)
        } else {
            Ok(None)
        }
    };
    let mut out = Vec::new();
    let mut objects: Option<BTreeMap<u32, Nexthop>> = None;
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let lifted = dump_routes(family, table, protocol, lift)?;
        out.reserve(lifted.len());
        for mut one in lifted {
            if let Some(id) = one.nexthop_id {
                let objects = match &mut objects {
                    Some(objects) => objects,
                    none => none.insert(nexthops()?),
                };
                one.route.legs = message::resolve(id, objects);
            }
            out.push(one.route);
        }
    }
    Ok(out)
}

/// The messages themselves, of one family.
pub(crate) fn raw_routes(
    family: AddressFamily,
    table: Option<TableId>,
    protocol: u8,
) -> Result<Vec<RouteMessage>, DumpError> {
    dump_routes(family, table, protocol, |kind, payload| {
        if let RouteNetlinkMessage::NewRoute(route) = decode(kind, payload)? {
            Ok(Some(route))
        } else {
            Ok(None)
        }
    })
}

/// Routes of one family, each read by `each`. A table that is not there has none.
fn dump_routes<T>(
    family: AddressFamily,
    table: Option<TableId>,
    protocol: u8,
    each: impl Fn(u16, &[u8]) -> Result<Option<T>, String>,
) -> Result<Vec<T>, DumpError> {
    use netlink_packet_route::route::RouteAttribute;
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.header.protocol = RouteProtocol::from(protocol);
    match table.map(u8::try_from) {
        None => {}
        Some(Ok(small)) => message.header.table = small,
        Some(Err(_)) => message.attributes.extend(table.map(RouteAttribute::Table)),
    }
    let asked = request(RouteNetlinkMessage::GetRoute(message));
    let found = Dumper::open("routes")?.dump(&asked, each);
    match found {
        Err(DumpError::Refused { source, .. })
            if source.raw_os_error() == Some(NO_ENTRY) && table != Some(MAIN_TABLE) =>
        {
            Ok(Vec::new())
        }
        // Main can be absent only where the family has no table at all yet, as IPv6 switched off has it.
        Err(DumpError::Refused { source, .. })
            if source.raw_os_error() == Some(NO_ENTRY) && family == AddressFamily::Inet6 =>
        {
            Ok(Vec::new())
        }
        other => other,
    }
}

fn nexthops() -> Result<BTreeMap<u32, Nexthop>, DumpError> {
    // RTM_GETNEXTHOP with an nhmsg of zeros: every object.
    let mut bytes = Vec::new();
    bytes.extend(24_u32.to_ne_bytes());
    bytes.extend(106_u16.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes.extend(1_u32.to_ne_bytes());
    bytes.extend([0; 12]);
    let found = Dumper::open("nexthops")?.dump(&bytes, |kind, payload| {
        if kind == NEW_NEXTHOP {
            message::lift_nexthop(payload)
                .map(Some)
                .map_err(ToOwned::to_owned)
        } else {
            Ok(None)
        }
    })?;
    Ok(found.into_iter().collect())
}

/// Every address message.
pub(crate) fn raw_addresses() -> Result<Vec<AddressMessage>, DumpError> {
    let asked = request(RouteNetlinkMessage::GetAddress(AddressMessage::default()));
    Dumper::open("addresses")?.dump(&asked, |kind, payload| {
        if let RouteNetlinkMessage::NewAddress(address) = decode(kind, payload)? {
            Ok(Some(address))
        } else {
            Ok(None)
        }
    })
}

/// Every rule of a family.
pub(crate) fn raw_rules(family: AddressFamily) -> Result<Vec<RuleMessage>, DumpError> {
    let mut message = RuleMessage::default();
    message.header.family = family;
    let asked = request(RouteNetlinkMessage::GetRule(message));
    Dumper::open("rules")?.dump(&asked, |kind, payload| {
        if let RouteNetlinkMessage::NewRule(rule) = decode(kind, payload)? {
            Ok(Some(rule))
        } else {
            Ok(None)
        }
    })
}

/// The interface address of a message, where it has one.
pub(crate) fn interface_addr(message: &AddressMessage) -> Option<InterfaceAddr> {
    let mut ip: Option<IpAddr> = None;
    for attribute in &message.attributes {
        // On point-to-point links Address is the peer, Local is ours.
        if let AddressAttribute::Local(local) = attribute {
            ip = Some(*local);
        } else if let AddressAttribute::Address(address) = attribute {
            ip = ip.or(Some(*address));
        }
    }
    let ip = ip?;
    let len = message.header.prefix_len;
    Prefix::new(ip, len).ok().map(|_| InterfaceAddr { ip, len })
}

/// Every link with its addresses.
///
/// # Errors
/// When the kernel did not give the whole list.
pub fn links() -> Result<Vec<LinkFact>, DumpError> {
    let asked = request(RouteNetlinkMessage::GetLink(LinkMessage::default()));
    let messages = Dumper::open("links")?.dump(&asked, |kind, payload| {
        if let RouteNetlinkMessage::NewLink(link) = decode(kind, payload)? {
            Ok(Some(link))
        } else {
            Ok(None)
        }
    })?;
    let mut addresses: BTreeMap<u32, Vec<InterfaceAddr>> = BTreeMap::new();
    for message in raw_addresses()? {
        addresses
            .entry(message.header.index)
            .or_default()
            .extend(interface_addr(&message));
    }
    let mut links: Vec<LinkFact> = messages
        .iter()
        .map(|m| lift_link(m, &mut addresses))
        .collect();
    links.sort_by_key(|l| l.index);
    Ok(links)
}

fn lift_link(message: &LinkMessage, addresses: &mut BTreeMap<u32, Vec<InterfaceAddr>>) -> LinkFact {
    let mut fact = LinkFact {
        index: message.header.index,
        name: String::new(),
        mac: None,
        mtu: 0,
        up: message.header.flags.contains(LinkFlags::Up),
        addresses: addresses.remove(&message.header.index).unwrap_or_default(),
        master: None,
        vrf_table: None,
    };
    fact.addresses.sort_unstable();
    for attribute in &message.attributes {
        if let LinkAttribute::IfName(name) = attribute {
            fact.name.clone_from(name);
        } else if let LinkAttribute::Address(bytes) = attribute {
            fact.mac = <[u8; 6]>::try_from(bytes.as_slice()).ok().map(Mac);
        } else if let LinkAttribute::Mtu(mtu) = attribute {
            fact.mtu = *mtu;
        } else if let LinkAttribute::Controller(master) = attribute {
            fact.master = (*master != 0).then_some(*master);
        } else if let LinkAttribute::LinkInfo(info) = attribute {
            fact.vrf_table = vrf_table(info);
        }
    }
    fact
}

/// The table of a VRF device. Its ports name it too, as data of a port: that is not looked at here.
fn vrf_table(info: &[LinkInfo]) -> Option<TableId> {
    let data = info.iter().find_map(|part| {
        if let LinkInfo::Data(InfoData::Vrf(data)) = part {
            Some(data)
        } else {
            None
        }
    })?;
    data.iter().find_map(|part| {
        if let InfoVrf::TableId(table) = part {
            Some(*table)
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests;
