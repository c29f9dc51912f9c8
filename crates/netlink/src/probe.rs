//! Reads a buffer as the dumps and the watcher do, for the checks in `fuzz`.
//! In: bytes of a datagram. Out: what was in it. Invariant: the same functions as for the kernel's own bytes.
//! Not here: sockets, and what the routes mean.

use std::collections::BTreeMap;

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader};
use netlink_packet_route::RouteNetlinkMessage;

use crate::dump::interface_addr;
use crate::message::{self, DEL_ROUTE, DONE, ERROR, NEW_NEXTHOP, NEW_ROUTE};
use crate::watch::{Change, note};

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
    /// What the watcher makes of it.
    pub change: Change,
}

/// Reads every message of `buffer`.
#[must_use]
pub fn read(buffer: &[u8]) -> Found {
    let mut found = Found::default();
    message::messages(buffer).for_each(|message| note(&mut found.change, message));
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
            NEW_ROUTE | DEL_ROUTE => match message::lift_route(payload) {
                Ok(lifted) => {
                    found.routes += usize::from(lifted.is_some());
                    wanted.extend(lifted.and_then(|lifted| lifted.nexthop_id));
                }
                Err(_) => found.refused += 1,
            },
            kind => {
                let mut header = NetlinkHeader::default();
                header.message_type = kind;
                let decoded = RouteNetlinkMessage::deserialize(&header, payload);
                if let Ok(RouteNetlinkMessage::NewAddress(address)) = &decoded {
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
