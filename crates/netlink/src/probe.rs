//! Reads a buffer as the dumps and the watcher do, for the checks in `fuzz`.
//! In: bytes of a datagram. Out: what was in it. Invariant: the same functions as for the kernel's own bytes.
//! Not here: sockets, and what the routes mean.

use std::collections::BTreeMap;

use crate::facts;
use crate::message::{
    self, AF_INET, DEL_ROUTE, DONE, ERROR, NEW_ADDRESS, NEW_LINK, NEW_NEXTHOP, NEW_ROUTE, NEW_RULE,
};
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
    /// Routes that were decoded.
    pub routes: usize,
    /// Nexthop objects that were decoded.
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
            NEW_NEXTHOP => match message::decode_nexthop(payload) {
                Ok((id, object)) => {
                    found.nexthops += 1;
                    objects.insert(id, object);
                }
                Err(_) => found.refused += 1,
            },
            NEW_ROUTE | DEL_ROUTE => match message::decode_route(payload) {
                Ok(decoded) => {
                    found.routes += usize::from(decoded.is_some());
                    wanted.extend(decoded.and_then(|decoded| decoded.nexthop_id));
                }
                Err(_) => found.refused += 1,
            },
            NEW_LINK => found.refused += usize::from(facts::link(payload).is_err()),
            NEW_ADDRESS => found.refused += usize::from(facts::link_address(payload).is_err()),
            NEW_RULE => found.refused += usize::from(facts::rule(AF_INET, payload).is_err()),
            _ => {}
        }
        if kind == NEW_ROUTE {
            let _ = facts::table_route(payload);
        }
    }
    for id in wanted {
        let _ = message::resolve(id, &objects);
    }
    found
}
