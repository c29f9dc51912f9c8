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
    #[error("another {name} runs on this host already (process {process})")]
    Another {
        /// The daemon.
        name: &'static str,
        /// Its number, as this process sees it; 0 where it cannot.
        process: i32,
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

/// Makes this process the only one of this name in its network namespace (abstract socket, `unix(7)`).
///
/// Returns what keeps others out; nothing where somebody else has the name.
///
/// # Errors
/// When another one of the same user is there and stays.
pub(crate) async fn claim(name: &'static str) -> Result<Option<UnixListener>, Taken> {
    let until = Instant::now() + PATIENCE;
    loop {
        let process = match bind(name) {
            Ok(socket) => return Ok(Some(socket)),
            Err(error) if error.kind() == ErrorKind::AddrInUse => holder(name),
            Err(source) => return Err(Taken::Unknown { name, source }),
        };
        if Instant::now() < until {
            tokio::time::sleep(AGAIN).await;
            continue;
        }
        let Some(process) = process else {
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

/// The process that has the socket, where it is of the same user; 0 where that many have asked already that no more can.
fn holder(name: &str) -> Option<i32> {
    let (family, kind) = (AddressFamily::Unix, SockType::Stream);
    let asks = socket::socket(family, kind, SockFlag::SOCK_NONBLOCK, None).ok()?;
    let address = UnixAddr::new_abstract(path(name).as_bytes()).ok()?;
    // Nobody accepts: one more in the queue is enough to be told.
    match socket::connect(asks.as_raw_fd(), &address) {
        Ok(()) => {}
        Err(Errno::EAGAIN) => return Some(0),
        Err(_) => return None,
    }
    let peer = getsockopt(&asks, PeerCredentials).ok()?;
    (peer.uid() == nix::unistd::geteuid().as_raw()).then(|| peer.pid())
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
        let asked: Vec<Option<i32>> = (0..6000).map(|_| holder("test-of-many")).collect();
        assert!(asked.iter().all(Option::is_some));
        let refused = claim("test-of-many").await.unwrap_err().to_string();
        assert!(refused.contains("another test-of-many runs"), "{refused}");
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
