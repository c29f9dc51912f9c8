//! What changed in the kernel: flags, and events of routes of BGP. Everything else that concerns routes asks for a dump.
//! In: multicast groups. Out: flags, hints. Invariant: whatever may have been lost is said as `lost`; where events do not
//! tell all about routes (links, nexthop objects, addresses, IPv6 routes without one, too many of them), the hints say so.
//! Not here: state; the kernel lets routes go without an event of theirs, so events alone are none.

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{AsyncSocket, AsyncSocketExt, Socket, SocketAddr, TokioSocket};
use nix::sys::socket::{setsockopt, sockopt};

use model::route::{Hints, PROTOCOL_BGP, RouteChange, RouteEvent};

use crate::message::{self, DEL_ROUTE, NEW_ROUTE};

/// Receive buffer that is asked for, bytes: about 40,000 route events fit in.
pub const BUFFER: usize = 32 << 20;

/// Message types of rtnetlink(7): RTM_NEWLINK to RTM_SETLINK, RTM_NEWADDR to RTM_GETADDR, RTM_NEWRULE to RTM_GETRULE,
/// RTM_NEWNEXTHOP to RTM_GETNEXTHOP.
const LINK_FIRST: u16 = 16;
const LINK_LAST: u16 = 19;
const ADDRESS_FIRST: u16 = 20;
const ADDRESS_LAST: u16 = 22;
const RULE_FIRST: u16 = 32;
const RULE_LAST: u16 = 34;
const NEXTHOP_FIRST: u16 = 104;
const NEXTHOP_LAST: u16 = 106;

/// RTNLGRP numbers: link, IPv4 address, route and rule, IPv6 address and route, IPv6 rule, nexthop.
const GROUPS: [u32; 8] = [1, 5, 7, 8, 9, 11, 19, 32];
/// `ENOBUFS`.
const NO_BUFFERS: i32 = 105;
const DONT_WAIT: i32 = 0x40;
/// `NLM_F_REPLACE`.
const REPLACE: u16 = 0x100;
/// So many datagrams are taken at once, unless something was lost; under endless churn the rest is for the next call.
const AT_ONCE: usize = 20_000;

/// Why there is no subscription.
#[derive(Debug, thiserror::Error)]
#[error("cannot subscribe to the kernel's events")]
pub struct WatchError(#[source] pub(crate) std::io::Error);

/// What changed since the last call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Routes, or nexthop objects.
    pub routes: bool,
    /// Routes of another protocol than BGP, or all routes after something was lost.
    pub other_routes: bool,
    /// What happened to routes of BGP.
    pub hints: Hints,
    /// Links.
    pub links: bool,
    /// Addresses.
    pub addresses: bool,
    /// Rules.
    pub rules: bool,
    /// Events were lost: everything may have changed.
    pub lost: bool,
}

/// The subscription.
pub struct Watcher {
    socket: TokioSocket,
    buffer: Vec<u8>,
    /// The receive buffer's size as the kernel has it, bytes.
    pub granted: usize,
}

impl Watcher {
    /// Subscribes with the usual buffer.
    ///
    /// # Errors
    /// When the kernel refuses the socket or a group.
    pub fn open() -> Result<Self, WatchError> {
        Self::open_with(BUFFER)
    }

    /// Subscribes with a buffer of about so many bytes; tests force an overrun with a small one.
    ///
    /// # Errors
    /// When the kernel refuses the socket or a group.
    pub fn open_with(bytes: usize) -> Result<Self, WatchError> {
        let open = || -> std::io::Result<Self> {
            let mut socket = TokioSocket::new(NETLINK_ROUTE)?;
            // Beyond the system's limit needs CAP_NET_ADMIN; without it, what the limit allows.
            if setsockopt(socket.socket_ref(), sockopt::RcvBufForce, &bytes).is_err() {
                socket.socket_ref().set_rx_buf_sz(bytes)?;
            }
            socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
            for group in GROUPS {
                socket.socket_mut().add_membership(group)?;
            }
            let granted = socket.socket_ref().get_rx_buf_sz()?;
            Ok(Self {
                socket,
                buffer: Vec::with_capacity(64 * 1024),
                granted,
            })
        };
        open().map_err(WatchError)
    }

    /// Waits for the next event and takes all that are there. Cancel-safe: nothing is taken before it returns.
    ///
    /// # Errors
    /// When the socket fails for good.
    pub async fn changed(&mut self) -> Result<Change, WatchError> {
        loop {
            self.buffer.clear();
            let first = self
                .socket
                .recv(&mut self.buffer)
                .await
                .map(|()| self.buffer.len());
            let mut change = Change::default();
            evaluate(&mut change, first, &self.buffer).map_err(WatchError)?;
            drain(self.socket.socket_ref(), &mut self.buffer, &mut change).map_err(WatchError)?;
            if change != Change::default() {
                return Ok(change);
            }
        }
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher")
            .field("granted", &self.granted)
            .finish_non_exhaustive()
    }
}

/// Takes every datagram that is there.
fn drain(socket: &Socket, buffer: &mut Vec<u8>, change: &mut Change) -> std::io::Result<()> {
    let mut taken = 0;
    // Once something was lost the kernel drops what comes until the queue is empty, without saying so again: whoever reads
    // everything after this call must not miss that. It fills no further meanwhile, so this ends.
    while taken < AT_ONCE || change.lost {
        buffer.clear();
        let received = socket.recv(buffer, DONT_WAIT);
        if !evaluate(change, received, buffer)? {
            break;
        }
        taken += 1;
    }
    Ok(())
}

/// Notes what one receive brought; false where nothing more is there.
fn evaluate(
    change: &mut Change,
    received: std::io::Result<usize>,
    buffer: &[u8],
) -> std::io::Result<bool> {
    match received {
        Ok(0) => Ok(false),
        Ok(_) => {
            message::messages(buffer).for_each(|message| note(change, message));
            Ok(true)
        }
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(true),
        Err(error) if error.raw_os_error() == Some(NO_BUFFERS) => {
            lost(change);
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn note(change: &mut Change, message: Option<(u16, u16, &[u8])>) {
    let Some((kind, flags, payload)) = message else {
        lost(change);
        return;
    };
    match kind {
        NEW_ROUTE | DEL_ROUTE => {
            change.routes = true;
            note_route(change, kind, flags, payload);
        }
        // With a link, an address or a nexthop object routes go that no event tells of.
        LINK_FIRST..=LINK_LAST => {
            change.hints = Hints::Dump;
            change.links = true;
        }
        ADDRESS_FIRST..=ADDRESS_LAST => {
            change.hints = Hints::Dump;
            change.addresses = true;
        }
        NEXTHOP_FIRST..=NEXTHOP_LAST => {
            change.hints = Hints::Dump;
            change.routes = true;
        }
        RULE_FIRST..=RULE_LAST => change.rules = true,
        _ => {}
    }
}

fn lost(change: &mut Change) {
    change.lost = true;
    change.other_routes = true;
    change.hints = Hints::Dump;
}

fn note_route(change: &mut Change, kind: u16, flags: u16, payload: &[u8]) {
    let decoded = match message::decode_route(payload) {
        Ok(Some(decoded)) => decoded,
        Ok(None) => return,
        Err(_) => {
            change.hints = Hints::Dump;
            return;
        }
    };
    let what = match (kind, flags & REPLACE != 0) {
        (DEL_ROUTE, _) => RouteChange::Gone,
        (_, true) => RouteChange::Replaced,
        (_, false) => RouteChange::Added,
    };
    change.other_routes |= decoded.protocol != PROTOCOL_BGP;
    // Another protocol's route matters only where it takes the place of one of ours.
    if decoded.protocol != PROTOCOL_BGP && what != RouteChange::Replaced {
        return;
    }
    // A path that is only an id is in another table of the kernel. IPv6 routes of one metric are joined to one, path by path,
    // and an event tells of all paths or of one; where they are of a nexthop object (as zebra has them), they never are.
    let is_whole = decoded.route.prefix.network().is_ipv4() || decoded.by_object;
    let reported = is_whole && decoded.nexthop_id.is_none() && decoded.tos == 0;
    if reported {
        change.hints.push(RouteEvent {
            change: what,
            protocol: decoded.protocol,
            route: decoded.route,
        });
    } else {
        change.hints = Hints::Dump;
    }
}
