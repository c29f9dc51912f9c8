//! One process of a kind on a host.
//! In: a name. Out: a socket that keeps others out for as long as it is open, or which process is there already.
//! Invariant: it ends with the process, however that ends, and leaves no file; who is not of the same user keeps nobody out.
//! Not here: daemons of which several share the work (by a lease).

use std::io::ErrorKind;
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    self, AddressFamily, SockFlag, SockType, UnixAddr, getsockopt, sockopt::PeerCredentials,
};
use tokio::time::Instant;

/// For so long one that is about to end is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// It is asked for so often.
const AGAIN: Duration = Duration::from_millis(200);

/// Why a process is not the only one.
#[derive(Debug, thiserror::Error)]
pub enum Taken {
    /// Another one is there.
    #[error("another {name} runs on this host already{}", shown(*process))]
    Another {
        /// The daemon.
        name: &'static str,
        /// Its number, as this process sees it; nothing where so many have asked already that it cannot.
        process: Option<i32>,
    },
    /// The socket cannot be had for another reason.
    #[error("cannot tell whether another {name} runs on this host")]
    Unknown {
        /// The daemon.
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
}

fn shown(process: Option<i32>) -> String {
    process
        .map(|process| format!(" (process {process})"))
        .unwrap_or_default()
}

/// Who has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// A process of the same user, and its number where it is told.
    Ours(Option<i32>),
    /// Somebody else, or nobody any more.
    Others,
}

/// Makes this process the only one of this name in its network namespace (abstract socket, `unix(7)`).
///
/// Returns what keeps others out; nothing where somebody else has the name.
///
/// # Errors
/// When another one of the same user is there and stays.
pub(crate) async fn claim(name: &'static str) -> Result<Option<UnixListener>, Taken> {
    let until = Instant::now() + PATIENCE;
    loop {
        let holder = match bind(name) {
            Ok(socket) => return Ok(Some(socket)),
            Err(error) if error.kind() == ErrorKind::AddrInUse => holder(name),
            Err(source) => return Err(Taken::Unknown { name, source }),
        };
        if Instant::now() < until {
            tokio::time::sleep(AGAIN).await;
            continue;
        }
        let Holder::Ours(process) = holder else {
            // It may just have ended.
            if let Ok(socket) = bind(name) {
                return Ok(Some(socket));
            }
            tracing::warn!(
                "somebody else holds the abstract socket noverlay/{name}: not known whether another {name} runs on this host"
            );
            return Ok(None);
        };
        return Err(Taken::Another { name, process });
    }
}

fn path(name: &str) -> String {
    format!("noverlay/{name}")
}

fn bind(name: &str) -> std::io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(path(name))?)
}

/// Whose the socket is.
fn holder(name: &str) -> Holder {
    let (family, kind) = (AddressFamily::Unix, SockType::Stream);
    let Ok(asks) = socket::socket(family, kind, SockFlag::SOCK_NONBLOCK, None) else {
        return Holder::Others;
    };
    let Ok(address) = UnixAddr::new_abstract(path(name).as_bytes()) else {
        return Holder::Others;
    };
    // Nobody accepts: one more in the queue is enough to be told.
    match socket::connect(asks.as_raw_fd(), &address) {
        Ok(()) => {}
        Err(Errno::EAGAIN) => return Holder::Ours(None),
        Err(_) => return Holder::Others,
    }
    match getsockopt(&asks, PeerCredentials) {
        Ok(peer) if peer.uid() == nix::unistd::geteuid().as_raw() => Holder::Ours(Some(peer.pid())),
        _ => Holder::Others,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_one_is_refused_by_name_and_comes_in_when_the_first_is_gone() {
        let first = claim("test-of-two").await.unwrap();
        let refused = claim("test-of-two").await.unwrap_err().to_string();
        let own = std::process::id();
        assert_eq!(
            refused,
            format!("another test-of-two runs on this host already (process {own})")
        );
        let other = claim("test-of-another").await;
        assert!(other.unwrap().is_some(), "another name");
        let waits = tokio::spawn(claim("test-of-two"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(first);
        let claimed = waits.await.unwrap().unwrap();
        assert!(claimed.is_some(), "the first has ended in time");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_asked_very_often_keeps_others_out_and_nobody_hangs() {
        let _first = claim("test-of-many").await.unwrap();
        // The queue is as long as net.core.somaxconn.
        let is_full = (0..100_000).any(|_| holder("test-of-many") == Holder::Ours(None));
        assert!(is_full, "it never was asked too often");
        let refused = claim("test-of-many").await.unwrap_err().to_string();
        assert_eq!(refused, "another test-of-many runs on this host already");
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_nobody_listens_at_keeps_nobody_out() {
        let (family, kind) = (AddressFamily::Unix, SockType::Stream);
        let stranger = socket::socket(family, kind, SockFlag::empty(), None).unwrap();
        let address = UnixAddr::new_abstract(b"noverlay/test-of-a-stranger").unwrap();
        socket::bind(stranger.as_raw_fd(), &address).unwrap();
        let claimed = claim("test-of-a-stranger").await;
        assert!(claimed.unwrap().is_none(), "it had the name");
    }
}
