//! Routes of BGP put into the kernel, as zebra does it.
//! In: a destination and a next hop. Out: one netlink message, acknowledged.
//! Invariant: when a function returns the kernel has it. Not here: many at once; `ip -batch` does that.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail};
use model::route::{PROTOCOL_BGP, TableId};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::testbed::LINK;

const NEW_ROUTE: u16 = 24;
const DEL_ROUTE: u16 = 25;
/// REQUEST, ACK, CREATE, REPLACE.
const REPLACE: u16 = 0x1 | 0x4 | 0x400 | 0x100;
const REQUEST: u16 = 0x1 | 0x4;
const METRIC: u32 = 20;

/// A socket to the kernel.
pub(crate) struct Kernel {
    socket: Socket,
    buffer: Vec<u8>,
    link: u32,
    /// The routing table; main where it is `None`.
    pub(crate) table: Option<TableId>,
}

impl Kernel {
    /// Routes go over this link.
    pub(crate) fn open(link: &str) -> Result<Self> {
        let links = netlink::dump::links()?;
        let found = links.iter().find(|l| l.name == link);
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            socket,
            buffer: Vec::with_capacity(4096),
            link: found
                .with_context(|| format!("there is no link {link}"))?
                .index,
            table: None,
        })
    }

    /// Adds a /24, or gives it another next hop.
    pub(crate) fn replace(&mut self, to: Ipv4Addr, via: Ipv4Addr) -> Result<()> {
        self.send(NEW_ROUTE, REPLACE, to, Some(via))
    }

    pub(crate) fn delete(&mut self, to: Ipv4Addr) -> Result<()> {
        self.send(DEL_ROUTE, REQUEST, to, None)
    }

    fn send(&mut self, kind: u16, flags: u16, to: Ipv4Addr, via: Option<Ipv4Addr>) -> Result<()> {
        // RTNH_F_ONLINK: the router need not be in a subnet of the link.
        let on_link = if via.is_some() { 4_u32 } else { 0 };
        let main = if self.table.is_some() { 0 } else { 254 };
        let mut body = vec![2, 24, 0, 0, main, PROTOCOL_BGP, 0, 1];
        body.extend(on_link.to_ne_bytes());
        attribute(&mut body, 1, to.octets());
        attribute(&mut body, 6, METRIC.to_ne_bytes());
        if let Some(table) = self.table {
            attribute(&mut body, 15, table.to_ne_bytes());
        }
        if let Some(via) = via {
            attribute(&mut body, 5, via.octets());
            attribute(&mut body, 4, self.link.to_ne_bytes());
        }
        let mut message = Vec::with_capacity(64);
        message.extend(u32::try_from(body.len() + 16)?.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        message.extend(body);
        self.socket.send(&message, 0)?;
        self.buffer.clear();
        self.socket.recv(&mut self.buffer, 0)?;
        let code = self.buffer.get(16..20).context("an answer too short")?;
        let code = i32::from_ne_bytes(code.try_into()?);
        if code != 0 {
            bail!("route {to}/24: the kernel says {code}");
        }
        Ok(())
    }
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: [u8; 4]) {
    body.extend(8_u16.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}

/// The `number`-th /24 from 20.0.0.0 on.
pub(crate) fn prefix(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x1400_0000 + (number << 8))
}

/// The `number`-th router on the gateway's link.
pub(crate) fn router(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0xac1e_0100 + number)
}

/// Lines for `ip -batch`: so many /24 of this table.
pub(crate) fn lines_in(table: TableId, count: u32) -> String {
    let via = format!("via {} dev {LINK} onlink", router(1));
    let line = |number| {
        let to = prefix(number);
        format!("route add {to}/24 table {table} proto bgp metric {METRIC} {via}\n")
    };
    (0..count).map(line).collect()
}

/// Lines for `ip -batch`: so many /24 with so many next hops each.
pub(crate) fn lines(command: &str, first: u32, count: u32, hops: u32) -> String {
    let hop = |number| format!(" nexthop via {} dev {LINK} onlink", router(number));
    let hops: String = if hops == 1 {
        format!(" via {} dev {LINK} onlink", router(1))
    } else {
        (1..=hops).map(hop).collect()
    };
    (first..first + count)
        .map(|number| {
            let to = prefix(number);
            if command == "del" {
                format!("route del {to}/24 proto bgp metric {METRIC}\n")
            } else {
                format!("route {command} {to}/24 proto bgp metric {METRIC}{hops}\n")
            }
        })
        .collect()
}
