//! Sockets for echo requests.
//! In: addresses. Out: a socket of one of two kinds, bound and connected, whose packets are not fragmented.
//! Invariant: calls do not block. Not here: what is sent.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::sockopt::{self, SetStruct};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType,
    SockaddrStorage, bind, connect, recvfrom, recvmsg, setsockopt, socket,
};
use tokio::net::UdpSocket;

use super::EchoError;

/// Which of both kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The kernel gives the identifier, and answers to it alone.
    Ping,
    /// All of the other end's ICMP messages come.
    Raw,
}

/// So many errors are taken from a socket's queue at once.
const ERRORS: usize = 16;

/// `IP_MTU_DISCOVER`, ip(7).
#[derive(Debug, Clone, Copy)]
struct MtuDiscover;
nix::setsockopt_impl!(
    MtuDiscover,
    libc::IPPROTO_IP,
    libc::IP_MTU_DISCOVER,
    libc::c_int,
    SetStruct<libc::c_int>
);

/// `IPV6_MTU_DISCOVER`, ipv6(7).
#[derive(Debug, Clone, Copy)]
struct Ipv6MtuDiscover;
nix::setsockopt_impl!(
    Ipv6MtuDiscover,
    libc::IPPROTO_IPV6,
    libc::IPV6_MTU_DISCOVER,
    libc::c_int,
    SetStruct<libc::c_int>
);

/// A socket of the kind that is permitted, of the family of `to`.
pub(super) fn open(to: IpAddr) -> Result<(OwnedFd, Kind), EchoError> {
    let (family, protocol) = match to {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let open = |kind: SockType| socket(family, kind, flags, protocol);
    if let Ok(ping) = open(SockType::Datagram) {
        return Ok((ping, Kind::Ping));
    }
    match open(SockType::Raw) {
        Ok(raw) => Ok((raw, Kind::Raw)),
        Err(errno @ (Errno::EPERM | Errno::EACCES)) => Err(EchoError::Forbidden(errno.into())),
        Err(errno) => Err(EchoError::Socket {
            from: match to {
                IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
            },
            to,
            source: errno.into(),
        }),
    }
}

/// Nobody may fragment, what is noted of the path's MTU does not count, and errors on the way are kept.
pub(super) fn prepare(socket: &OwnedFd, from: IpAddr, to: IpAddr) -> Result<(), Errno> {
    match to {
        IpAddr::V4(_) => {
            setsockopt(socket, MtuDiscover, &libc::IP_PMTUDISC_PROBE)?;
            setsockopt(socket, sockopt::Ipv4RecvErr, &true)?;
        }
        IpAddr::V6(_) => {
            setsockopt(socket, Ipv6MtuDiscover, &libc::IPV6_PMTUDISC_PROBE)?;
            setsockopt(socket, sockopt::Ipv6DontFrag, &true)?;
            setsockopt(socket, sockopt::Ipv6RecvErr, &true)?;
        }
    }
    let address = |ip: IpAddr| SockaddrStorage::from(SocketAddr::new(ip, 0));
    bind(socket.as_raw_fd(), &address(from))?;
    connect(socket.as_raw_fd(), &address(to))
}

pub(super) fn send(socket: &UdpSocket, bytes: &[u8]) -> Result<(), Errno> {
    nix::sys::socket::send(socket.as_raw_fd(), bytes, MsgFlags::empty()).map(drop)
}

/// What has come, and from whom.
pub(super) fn receive(
    socket: &UdpSocket,
    buffer: &mut [u8],
) -> Result<(usize, Option<IpAddr>), Errno> {
    let (length, from) = recvfrom::<SockaddrStorage>(socket.as_raw_fd(), buffer)?;
    Ok((length, from.as_ref().and_then(ip)))
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in();
    let v4 = v4.map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| Some(IpAddr::V6(address.as_sockaddr_in6()?.ip())))
}

/// Takes all errors that are kept. Of those that say a packet to be too large, the last MTU below `size`, bytes.
pub(super) fn said_mtu(socket: &UdpSocket, size: u32) -> Option<u32> {
    let mut found = None;
    for _ in 0..ERRORS {
        let mut control = cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6);
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let fd = socket.as_raw_fd();
        let message = recvmsg::<SockaddrStorage>(fd, &mut [], Some(&mut control), flags);
        let Ok(Ok(messages)) = message.as_ref().map(|message| message.cmsgs()) else {
            break;
        };
        for control in messages {
            let (ControlMessageOwned::Ipv4RecvErr(error, _)
            | ControlMessageOwned::Ipv6RecvErr(error, _)) = control
            else {
                continue;
            };
            let is_size = i32::try_from(error.ee_errno) == Ok(libc::EMSGSIZE);
            if is_size && error.ee_info < size {
                found = Some(error.ee_info);
            }
        }
    }
    found
}
