//! Echo requests (RFC 792, RFC 4443) of a given size that nobody may fragment.
//! In: two addresses and a size. Out: whether the other end answered. Invariant: an answer counts only with the request's own
//! identifier, sequence number, random payload and length, and from the address that was asked; each request has a socket of
//! its own, so that what befalls one befalls no other. Not here: which sizes, and what an answer means (`plan_node::paths`).
//!
//! Ping sockets need no right where `net.ipv4.ping_group_range` has the process's group; else raw sockets need `CAP_NET_RAW`.

mod message;
mod socket;

use std::io::{Error, ErrorKind};
use std::net::IpAddr;
use std::time::Duration;

use nix::errno::Errno;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use self::message::Request;
use self::socket::Kind;

/// So many messages are taken before others have their turn.
const AT_ONCE: usize = 64;

/// What sending fails with where there is no way to the other end, or the own packet filter drops the packet.
const REFUSED: [Errno; 7] = [
    Errno::EHOSTUNREACH,
    Errno::ENETUNREACH,
    Errno::ENETDOWN,
    Errno::EHOSTDOWN,
    Errno::ECONNREFUSED,
    Errno::EACCES,
    Errno::EPERM,
];

/// So often a look is taken at what routers say.
const LOOK: Duration = Duration::from_millis(100);

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The other end answered.
    Answered,
    /// It did not in time, or the request could not get there.
    Lost {
        /// MTU in bytes that a router on the way has said to be the most.
        mtu: Option<u32>,
    },
}

/// Why nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum EchoError {
    /// The process may not send echo requests.
    #[error(
        "neither ping sockets (net.ipv4.ping_group_range) nor raw sockets (CAP_NET_RAW) are permitted"
    )]
    Forbidden(#[source] Error),
    /// Something is missing: a descriptor, memory, the own address; or the own link does not carry the packet.
    #[error("cannot send an echo request from {from} to {to}")]
    Socket {
        /// The own address.
        from: IpAddr,
        /// The other end's.
        to: IpAddr,
        /// Why.
        source: Error,
    },
}

/// Asks `to` from the own address `from` with an IP packet of exactly `size` bytes, and waits for so long. What the kernel has
/// noted of the path's MTU does not count.
///
/// # Errors
/// When nothing could be sent: it says nothing about the way.
pub async fn ask(
    from: IpAddr,
    to: IpAddr,
    size: u32,
    patience: Duration,
) -> Result<Answer, EchoError> {
    let failed = |source: Error| EchoError::Socket { from, to, source };
    let (socket, kind) = socket::open(to)?;
    socket::prepare(&socket, from, to).map_err(|errno| failed(errno.into()))?;
    let request = Request::new(to, kind, size).ok_or_else(|| {
        failed(Error::new(
            ErrorKind::InvalidInput,
            format!("no IP packet of {size} bytes"),
        ))
    })?;
    // Of all types that wait for a datagram socket it is the one that takes any.
    let socket = UdpSocket::from_std(socket.into()).map_err(failed)?;
    if let Err(errno) = socket::send(&socket, request.bytes()) {
        if errno == Errno::ENOBUFS {
            // The own link has dropped it. A queue that is full now may not be in a moment.
            tokio::time::sleep(patience).await;
        } else if !REFUSED.contains(&errno) {
            return Err(failed(errno.into()));
        }
        return Ok(Answer::Lost { mtu: None });
    }
    match tokio::time::timeout(patience, answer(&socket, &request, to, kind)).await {
        Ok(answer) => answer.map_err(failed),
        Err(_) => Ok(Answer::Lost {
            mtu: socket::said_mtu(&socket, size),
        }),
    }
}

/// Waits for the answer, or for a router's word that the request is too large.
async fn answer(
    socket: &UdpSocket,
    request: &Request,
    to: IpAddr,
    kind: Kind,
) -> Result<Answer, Error> {
    let mut buffer = vec![0; request.answer_len()];
    loop {
        // What stands in the socket's queue of errors makes it readable for nobody.
        let readable = tokio::time::timeout(LOOK, socket.readable()).await;
        readable.unwrap_or(Ok(()))?;
        for _ in 0..AT_ONCE {
            let receive = || socket::receive(socket, &mut buffer).map_err(Error::from);
            match socket.try_io(Interest::READABLE, receive) {
                Ok((length, from)) => {
                    let message = buffer.get(..length).unwrap_or_default();
                    if from == Some(to) && request.is_answered_by(message, kind) {
                        return Ok(Answer::Answered);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Somebody's word on the request; time tells the rest.
                Err(_) => {}
            }
        }
        let mtu = socket::said_mtu(socket, request.size());
        if mtu.is_some() {
            return Ok(Answer::Lost { mtu });
        }
    }
}
