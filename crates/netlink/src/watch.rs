//! What changed in the kernel, without what it changed to: callers dump.
//! In: multicast groups. Out: flags. Invariant: whatever may have been lost is said as `lost`.
//! Not here: state. Only message types are read, so no message can be passed over for its content.

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{AsyncSocket, AsyncSocketExt, Socket, SocketAddr, TokioSocket};
use nix::sys::socket::{setsockopt, sockopt};

use crate::message;

/// Receive buffer that is asked for, bytes: room for about 40,000 route events.
pub const BUFFER: usize = 32 << 20;

/// RTNLGRP numbers: link, IPv4 address, route and rule, IPv6 address and route, IPv6 rule, nexthop.
const GROUPS: [u32; 8] = [1, 5, 7, 8, 9, 11, 19, 32];
/// `ENOBUFS`.
const NO_BUFFERS: i32 = 105;
const DONT_WAIT: i32 = 0x40;

/// Why there is no subscription.
#[derive(Debug, thiserror::Error)]
#[error("cannot subscribe to the kernel's events")]
pub struct WatchError(#[source] std::io::Error);

/// What changed since the last call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// Routes, or nexthop objects.
    pub routes: bool,
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
            judge(&mut change, first, &self.buffer).map_err(WatchError)?;
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
    loop {
        buffer.clear();
        let received = socket.recv(buffer, DONT_WAIT);
        if !judge(change, received, buffer)? {
            return Ok(());
        }
    }
}

/// Notes what one receive brought; false where nothing more is there.
fn judge(
    change: &mut Change,
    received: std::io::Result<usize>,
    buffer: &[u8],
) -> std::io::Result<bool> {
    match received {
        Ok(0) => Ok(false),
        Ok(_) => {
            message::messages(buffer).for_each(|m| note(change, m.map(|(kind, ..)| kind)));
            Ok(true)
        }
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(true),
        Err(error) if error.raw_os_error() == Some(NO_BUFFERS) => {
            change.lost = true;
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

fn note(change: &mut Change, kind: Option<u16>) {
    match kind {
        Some(16..=19) => change.links = true,
        Some(20..=22) => change.addresses = true,
        Some(24..=26 | 104..=106) => change.routes = true,
        Some(32..=34) => change.rules = true,
        Some(_) => {}
        None => change.lost = true,
    }
}
