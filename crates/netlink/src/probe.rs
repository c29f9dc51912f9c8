//! Reads a buffer as the dumps and the watcher do, for the checks in `fuzz`.
//! In: bytes of a datagram. Out: what was in it. Invariant: the same functions as for the kernel's own bytes.
//! Not here: sockets, and what the routes mean.

use std::collections::BTreeMap;

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader};
use netlink_packet_route::RouteNetlinkMessage;

use crate::dump::interface_addr;
use crate::message::{self, DONE, ERROR, NEW_NEXTHOP};

/// What a buffer held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Whole messages.
    pub messages: usize,
    /// Whether the rest is no message.
    pub cut_off: bool,
    /// Of each message, where it ends, without and with padding.
    pub ends: Vec<(usize, usize)>,
    /// Routes that were lifted.
    pub routes: usize,
    /// Nexthop objects that were lifted.
    pub nexthops: usize,
    /// Messages whose content was refused.
    pub refused: usize,
}

/// Reads every message of `buffer`.
#[must_use]
pub fn read(buffer: &[u8]) -> Found {
    let mut found = Found::default();
    let (mut objects, mut wanted, mut at) = (BTreeMap::new(), Vec::new(), 0_usize);
    for part in message::messages(buffer) {
        let Some((kind, _, payload)) = part else {
            found.cut_off = true;
            continue;
        };
        found.messages += 1;
        let end = at.saturating_add(16).saturating_add(payload.len());
        at = end.next_multiple_of(4).min(buffer.len());
        found.ends.push((end, at));
        match kind {
            DONE | ERROR => {
                let _ = message::code(payload);
            }
            NEW_NEXTHOP => match message::lift_nexthop(payload) {
                Ok((id, object)) => {
                    found.nexthops += 1;
                    objects.insert(id, object);
                }
                Err(_) => found.refused += 1,
            },
            kind => {
                let mut header = NetlinkHeader::default();
                header.message_type = kind;
                let decoded = RouteNetlinkMessage::deserialize(&header, payload);
                if let Ok(RouteNetlinkMessage::NewRoute(route)) = &decoded {
                    match message::lift_route(route) {
                        Ok(lifted) => {
                            found.routes += 1;
                            wanted.extend(lifted.nexthop_id);
                        }
                        Err(_) => found.refused += 1,
                    }
                } else if let Ok(RouteNetlinkMessage::NewAddress(address)) = &decoded {
                    let _ = interface_addr(address);
                } else {
                    found.refused += usize::from(decoded.is_err());
                }
            }
        }
    }
    for id in wanted {
        let _ = message::resolve(id, &objects);
    }
    found
}
