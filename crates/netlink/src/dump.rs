//! Full reads of the kernel, blocking, each on a socket of its own with strict checking.
//! In: which table and protocol. Out: values. Invariant: `Ok` means that the kernel said DONE without an error code.
//! Not here: events. To be called from a thread that may block.

use std::collections::BTreeMap;

use model::kernel::LinkFact;
use model::route::{KernelRoute, MAIN_TABLE, RouteKind, TableId};
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::route::{RouteMessage, RouteProtocol};
use netlink_packet_route::rule::RuleMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::facts::{self, Address, FoundRule, Neighbor, Rule, TableRoute};
use crate::message::{
    self, AF_INET, AF_INET6, DONE, ERROR, INTERRUPTED, NEW_ADDRESS, NEW_LINK, NEW_NEIGHBOR,
    NEW_NEXTHOP, NEW_ROUTE, NEW_RULE, Nexthop,
};

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
/// `EAFNOSUPPORT`.
const NO_FAMILY: i32 = 97;
/// How often a dump is tried that was interrupted.
const TRIES: usize = 5;
const BUFFER: usize = 256 * 1024;
/// How long one answer of the kernel may take, seconds: it answers at once, and a thread that waits for one that was lost would
/// do so for ever.
const ANSWER: i64 = 10;

/// A socket that asks the kernel.
fn asking() -> std::io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(ANSWER))?;
    Ok(socket)
}

struct Dumper {
    socket: Socket,
    what: &'static str,
}

impl Dumper {
    fn open(what: &'static str) -> Result<Self, DumpError> {
        let fail = |source| DumpError::Socket { what, source };
        let socket = asking().map_err(fail)?;
        socket.set_netlink_get_strict_chk(true).map_err(fail)?;
        Ok(Self { socket, what })
    }

    /// Sends a dump request and hands each message to `each`; tried again where the kernel says that it was interrupted.
    fn dump<T>(
        &self,
        request: &[u8],
        each: impl Fn(u16, &[u8]) -> Result<Option<T>, String>,
    ) -> Result<Vec<T>, DumpError> {
        for _ in 0..TRIES {
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

/// Sends a request to change something, as the whole message behind its header, and waits for the kernel's answer.
/// Blocking.
pub(crate) fn change(kind: u16, payload: &[u8]) -> Result<(), std::io::Error> {
    /// `NLM_F_REQUEST` and `NLM_F_ACK`.
    const FLAGS: u16 = 5;
    let socket = asking()?;
    socket.send(&framed(kind, FLAGS, payload), 0)?;
    let mut buffer = Vec::with_capacity(BUFFER);
    socket.recv(&mut buffer, 0)?;
    match message::messages(&buffer).next() {
        Some(Some((ERROR, _, payload))) => match message::code(payload) {
            0 => Ok(()),
            code => Err(std::io::Error::from_raw_os_error(code.saturating_abs())),
        },
        _ => Err(std::io::Error::other("the kernel's answer is no answer")),
    }
}

/// A message with its header (netlink(7)): length, type, flags, sequence number, port.
fn framed(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len().saturating_add(16)).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(payload.len().saturating_add(16));
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(1_u32.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(payload);
    bytes
}

/// Routes of one protocol, both families. `table` as given, else of all tables.
///
/// # Errors
/// When the kernel did not give the whole list. A table that does not exist has no routes, but main always exists.
pub fn routes(table: Option<TableId>, protocol: u8) -> Result<Vec<KernelRoute>, DumpError> {
    for _ in 0..TRIES {
        if let Some(found) = routes_once(table, protocol)? {
            return Ok(found);
        }
    }
    Err(DumpError::Interrupted { what: "routes" })
}

/// `None` where a route names a nexthop object that is not there any more: what took the object away took the route along
/// or gave it another one, so the routes are of another moment than the objects.
fn routes_once(
    table: Option<TableId>,
    protocol: u8,
) -> Result<Option<Vec<KernelRoute>>, DumpError> {
    let mut out = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let decoded = dump_routes(family, table, protocol, message::decode_route)?;
        let by_id = decoded.iter().any(|one| one.nexthop_id.is_some());
        // Behind the routes of each family: an object that came between would not be known yet.
        let objects = if by_id { nexthops()? } else { BTreeMap::new() };
        out.reserve(decoded.len());
        for mut one in decoded {
            if let Some(id) = one.nexthop_id {
                let Some((paths, encapsulated)) = message::resolve(id, &objects) else {
                    return Ok(None);
                };
                one.route.paths = paths;
                if encapsulated && one.route.kind == RouteKind::Unicast {
                    one.route.kind = RouteKind::Encapsulated;
                }
            }
            out.push(one.route);
        }
    }
    Ok(Some(out))
}

/// The routes of a table that we write to, of one family and protocol.
pub(crate) fn table_routes(
    family: u8,
    table: TableId,
    protocol: u8,
) -> Result<Vec<TableRoute>, DumpError> {
    let found = dump_routes(family, Some(table), protocol, |payload| {
        facts::table_route(payload).map(Some)
    });
    match found {
        // Also main is not there where nothing has ever been up.
        Err(DumpError::Refused { source, .. }) if source.raw_os_error() == Some(NO_ENTRY) => {
            Ok(Vec::new())
        }
        other => other,
    }
}

/// Routes of one family, each read by `each`. A table that is not there has none.
fn dump_routes<T>(
    family: u8,
    table: Option<TableId>,
    protocol: u8,
    each: impl Fn(&[u8]) -> Result<Option<T>, &'static str>,
) -> Result<Vec<T>, DumpError> {
    use netlink_packet_route::route::RouteAttribute;
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::from(family);
    message.header.protocol = RouteProtocol::from(protocol);
    match table.map(u8::try_from) {
        None => {}
        Some(Ok(small)) => message.header.table = small,
        Some(Err(_)) => message.attributes.extend(table.map(RouteAttribute::Table)),
    }
    let asked = request(RouteNetlinkMessage::GetRoute(message));
    let found = Dumper::open("routes")?.dump(&asked, |kind, payload| {
        // With IPv6 switched off at boot the kernel answers a dump of it with the routes of all families that it has.
        if kind == NEW_ROUTE && payload.first() == Some(&family) {
            each(payload).map_err(ToOwned::to_owned)
        } else {
            Ok(None)
        }
    });
    match found {
        Err(DumpError::Refused { source, .. })
            if source.raw_os_error() == Some(NO_ENTRY) && table != Some(MAIN_TABLE) =>
        {
            Ok(Vec::new())
        }
        // Main can be absent only where the family has no table at all yet, as IPv6 switched off has it.
        Err(DumpError::Refused { source, .. })
            if source.raw_os_error() == Some(NO_ENTRY) && family == AF_INET6 =>
        {
            Ok(Vec::new())
        }
        other => other,
    }
}

fn nexthops() -> Result<BTreeMap<u32, Nexthop>, DumpError> {
    // RTM_GETNEXTHOP with an nhmsg of zeros: every object.
    let bytes = framed(106, NLM_F_REQUEST | NLM_F_DUMP, &[0; 8]);
    let found = Dumper::open("nexthops")?.dump(&bytes, |kind, payload| {
        if kind == NEW_NEXTHOP {
            message::decode_nexthop(payload)
                .map(Some)
                .map_err(ToOwned::to_owned)
        } else {
            Ok(None)
        }
    })?;
    Ok(found.into_iter().collect())
}

/// Every address.
pub(crate) fn addresses() -> Result<Vec<Address>, DumpError> {
    let asked = request(RouteNetlinkMessage::GetAddress(AddressMessage::default()));
    Dumper::open("addresses")?.dump(&asked, |kind, payload| match kind {
        NEW_ADDRESS => Ok(Some(facts::link_address(payload)?)),
        _ => Ok(None),
    })
}

/// Every permanent neighbor of a family. IPv6 that is switched off at boot has none, and no dump of them either.
pub(crate) fn neighbors(family: u8) -> Result<Vec<Neighbor>, DumpError> {
    // RTM_GETNEIGH with an ndmsg of a family and else zeros.
    let mut asked = [0; 12];
    asked[0] = family;
    let bytes = framed(30, NLM_F_REQUEST | NLM_F_DUMP, &asked);
    let found = Dumper::open("neighbors")?.dump(&bytes, |kind, payload| {
        // As with routes, the answer may be of all families.
        if kind == NEW_NEIGHBOR && payload.first() == Some(&family) {
            facts::neighbor(payload).map_err(ToOwned::to_owned)
        } else {
            Ok(None)
        }
    });
    match found {
        Err(DumpError::Refused { source, .. })
            if source.raw_os_error() == Some(NO_FAMILY) && family == AF_INET6 =>
        {
            Ok(Vec::new())
        }
        other => other,
    }
}

/// Every rule of a family.
pub(crate) fn rules(family: u8) -> Result<Vec<Rule>, DumpError> {
    dump_rules(family, |payload| facts::rule(family, payload))
}

/// The same, with all fields that rules beside OVN-Kubernetes have.
pub(crate) fn found_rules(family: u8) -> Result<Vec<FoundRule>, DumpError> {
    dump_rules(family, |payload| facts::found_rule(family, payload))
}

/// Rules of one family, each read by `each`. IPv6 that is switched off at boot has none, and no dump of them either.
fn dump_rules<T>(
    family: u8,
    each: impl Fn(&[u8]) -> Result<Option<T>, &'static str>,
) -> Result<Vec<T>, DumpError> {
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::from(family);
    let asked = request(RouteNetlinkMessage::GetRule(message));
    let found = Dumper::open("rules")?.dump(&asked, |kind, payload| match kind {
        NEW_RULE => Ok(each(payload)?),
        _ => Ok(None),
    });
    match found {
        Err(DumpError::Refused { source, .. })
            if source.raw_os_error() == Some(NO_FAMILY) && family == AF_INET6 =>
        {
            Ok(Vec::new())
        }
        other => other,
    }
}

/// Every link with its addresses.
///
/// # Errors
/// When the kernel did not give the whole list.
pub fn links() -> Result<Vec<LinkFact>, DumpError> {
    let asked = request(RouteNetlinkMessage::GetLink(LinkMessage::default()));
    let mut links = Dumper::open("links")?.dump(&asked, |kind, payload| match kind {
        NEW_LINK => Ok(Some(facts::link(payload)?)),
        _ => Ok(None),
    })?;
    let mut addresses = facts::by_link(addresses()?);
    for link in &mut links {
        link.addresses = addresses.remove(&link.index).unwrap_or_default();
    }
    links.sort_by_key(|l| l.index);
    Ok(links)
}

#[cfg(test)]
mod tests;
