//! That something changed in the packet filter (nftables), whoever changed it.
//! In: the kernel's multicast group. Out: a wake-up. Invariant: lost events are an event too.
//! Not here: what changed, and reading or writing it (`host::nft`).

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};

use crate::watch::WatchError;

/// `NFNLGRP_NFTABLES`.
const GROUP: u32 = 7;
/// `ENOBUFS`.
const NO_BUFFERS: i32 = 105;
const DONT_WAIT: i32 = 0x40;
/// So many datagrams are taken at once; a rule is one.
const AT_ONCE: usize = 10_000;

/// The subscription.
pub struct FilterWatcher {
    socket: TokioSocket,
    buffer: Vec<u8>,
}

impl FilterWatcher {
    /// Subscribes.
    ///
    /// # Errors
    /// When the kernel has no nftables, or refuses the group.
    pub fn open() -> Result<Self, WatchError> {
        let open = || -> std::io::Result<Self> {
            let mut socket = TokioSocket::new(NETLINK_NETFILTER)?;
            socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
            socket.socket_mut().add_membership(GROUP)?;
            Ok(Self {
                socket,
                buffer: Vec::with_capacity(64 * 1024),
            })
        };
        open().map_err(WatchError)
    }

    /// Waits for a change and takes all that is there. Cancel-safe.
    ///
    /// # Errors
    /// When the socket fails for good.
    pub async fn changed(&mut self) -> Result<(), WatchError> {
        self.buffer.clear();
        match self.socket.recv(&mut self.buffer).await {
            Err(error) if error.raw_os_error() != Some(NO_BUFFERS) => {
                return Err(WatchError(error));
            }
            Ok(()) | Err(_) => {}
        }
        for _ in 0..AT_ONCE {
            self.buffer.clear();
            let more = self.socket.socket_ref().recv(&mut self.buffer, DONT_WAIT);
            match more {
                Ok(length) if length > 0 => {}
                Err(error) if error.raw_os_error() == Some(NO_BUFFERS) => {}
                Ok(_) | Err(_) => break,
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for FilterWatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilterWatcher").finish_non_exhaustive()
    }
}
