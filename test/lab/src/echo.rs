//! Servers and clients in namespaces, to see which source address arrives.
//!
//! In: a namespace. Out: a server there that answers each TCP connection and each UDP
//! packet with the address it came from, and clients that ask it. Sockets stay in the
//! namespace they were made in, so one process plays all hosts.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::netns::inside;
use crate::run::now;

/// Where the servers listen, with TCP and UDP.
pub(crate) const PORT: u16 = 7007;
/// Where nobody listens.
const CLOSED: u16 = 7099;
const PATIENCE: Duration = Duration::from_secs(2);

/// Starts a server in a namespace; it ends with this process. It is bound to its
/// address: a host would answer from another one that lies nearer to the client.
pub(crate) fn serve(namespace: &str, address: IpAddr) -> Result<()> {
    let at = (address, PORT);
    let sockets = inside(namespace, || {
        Ok((TcpListener::bind(at)?, UdpSocket::bind(at)?))
    });
    let (tcp, udp) = sockets.with_context(|| format!("listening in {namespace}"))?;
    std::thread::spawn(move || {
        while let Ok((mut stream, peer)) = tcp.accept() {
            // A client that went away is the client's loss.
            drop(stream.write_all(peer.to_string().as_bytes()));
        }
    });
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, peer)) = udp.recv_from(&mut buffer) {
            drop(udp.send_to(peer.to_string().as_bytes(), peer));
        }
    });
    Ok(())
}

/// The address that the server at `to` sees of a TCP client in this namespace.
pub(crate) fn tcp(namespace: &str, to: IpAddr) -> Result<SocketAddr> {
    tcp_at(namespace, SocketAddr::from((to, PORT)))
}

/// The same where a load balancer has another port than the server. A packet that is lost costs no answer: within the time the
/// kernel asks a second time.
pub(crate) fn tcp_at(namespace: &str, to: SocketAddr) -> Result<SocketAddr> {
    inside(namespace, || {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.parse()?)
    })
}

/// The same with UDP; asks three times, because UDP may lose.
pub(crate) fn udp(namespace: &str, to: IpAddr) -> Result<SocketAddr> {
    udp_from(namespace, 0, to)
}

/// The same from a port of this number; 0: from any.
pub(crate) fn udp_from(namespace: &str, port: u16, to: IpAddr) -> Result<SocketAddr> {
    inside(namespace, || {
        let socket = asking(port, (to, PORT))?;
        let mut buffer = [0; 64];
        for _ in 0..3 {
            socket.send(b"?")?;
            if let Ok(length) = socket.recv(&mut buffer) {
                let answer = buffer.get(..length).unwrap_or_default();
                return Ok(std::str::from_utf8(answer)?.parse()?);
            }
        }
        bail!("no answer to 3 packets")
    })
}

/// How long each of so many exchanges with the server at `to` takes, one after the other over one socket. More than one in a
/// hundred without an answer is an error.
pub(crate) fn round_trips(namespace: &str, to: IpAddr, count: u32) -> Result<Vec<Duration>> {
    inside(namespace, || {
        let socket = asking(0, (to, PORT))?;
        let mut buffer = [0; 64];
        let mut all = Vec::new();
        for _ in 0..count {
            let start = now();
            socket.send(b"?")?;
            if socket.recv(&mut buffer).is_ok() {
                all.push(start.elapsed());
            }
        }
        let answered = u32::try_from(all.len())?;
        if answered < count - count / 100 {
            bail!("{answered} of {count} packets were answered");
        }
        Ok(all)
    })
}

/// Does a UDP packet to a closed port bring back the ICMP message?
pub(crate) fn refused(namespace: &str, to: IpAddr) -> Result<()> {
    inside(namespace, || {
        let socket = asking(0, (to, CLOSED))?;
        let mut buffer = [0; 64];
        // Hosts send such messages at a limited rate.
        for _ in 0..3 {
            let sent = socket.send(b"?").and_then(|_| socket.recv(&mut buffer));
            if sent.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
                return Ok(());
            }
        }
        bail!("no ICMP message about the closed port")
    })
}

fn asking(from: u16, (to, port): (IpAddr, u16)) -> Result<UdpSocket> {
    let any: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, from))?;
    socket.connect((to, port))?;
    socket.set_read_timeout(Some(Duration::from_millis(700)))?;
    Ok(socket)
}
