//! Addresses as values: prefixes, interface addresses, MACs.
//! In: text from objects, databases and the kernel. Out: canonical values with one spelling.
//! Invariant: a `Prefix` never has host bits; text forms are RFC 5952 (IPv6) and dotted quad (IPv4).
//! Not here: which address belongs to whom; that is the planners'.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use sha2::{Digest, Sha256};

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// `v4` or `v6`: how OVN-Kubernetes' ids name it.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }

    /// `ip4` or `ip6`: its protocol in a match (ovn-sb(5), Logical_Flow).
    #[must_use]
    pub fn ovn_protocol(self) -> &'static str {
        match self {
            Self::V4 => "ip4",
            Self::V6 => "ip6",
        }
    }

    /// Prefix length of one host, in bits: 32 or 128.
    #[must_use]
    pub fn host_len(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

/// Why a text is not an address, prefix or MAC; the message names the text and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct AddressError {
    /// The text as it was given.
    pub text: String,
    /// What would have been right.
    pub wanted: &'static str,
}

/// An IP prefix without host bits, ordered by address then length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(IpNet);

impl Prefix {
    /// A prefix from an address and a length in bits; host bits are cleared.
    ///
    /// # Errors
    /// When `len` is over 32 (IPv4) or 128 (IPv6).
    pub fn new(ip: IpAddr, len: u8) -> Result<Self, AddressError> {
        IpNet::new(ip, len)
            .map(|net| Self(net.trunc()))
            .map_err(|_| AddressError {
                text: format!("{ip}/{len}"),
                wanted: "a prefix (length at most 32 for IPv4, 128 for IPv6)",
            })
    }

    /// The prefix that holds one address only.
    #[must_use]
    pub fn host(ip: IpAddr) -> Self {
        Self(IpNet::from(ip))
    }

    /// Everything of a family: `0.0.0.0/0` or `::/0`.
    #[must_use]
    pub fn all(family: Family) -> Self {
        Self(match family {
            Family::V4 => Ipv4Net::default().into(),
            Family::V6 => Ipv6Net::default().into(),
        })
    }

    /// First address of the prefix.
    #[must_use]
    pub fn network(&self) -> IpAddr {
        self.0.network()
    }

    /// Length in bits.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.0.prefix_len()
    }

    /// True for `0.0.0.0/0` and `::/0`.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.0.prefix_len() == 0
    }

    /// The family.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of(self.0.addr())
    }

    /// True where `other` lies wholly inside (equal counts).
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.0.contains(&other.0)
    }

    /// True where the address lies inside.
    #[must_use]
    pub fn contains_ip(&self, ip: IpAddr) -> bool {
        self.0.contains(&ip)
    }

    /// True where the two share an address.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other) || other.contains(self)
    }

    /// The address `offset` after the first one, or `None` where the prefix ends before it.
    #[must_use]
    pub fn nth(&self, offset: u128) -> Option<IpAddr> {
        let ip = match self.network() {
            IpAddr::V4(ip) => {
                let offset = u32::try_from(offset).ok()?;
                IpAddr::V4(u32::from(ip).checked_add(offset)?.into())
            }
            IpAddr::V6(ip) => IpAddr::V6(u128::from(ip).checked_add(offset)?.into()),
        };
        self.contains_ip(ip).then_some(ip)
    }

    /// The `index`-th subnet of `len` bits, or `None` where the prefix ends before it or is smaller than `len`.
    #[must_use]
    pub fn subnet(&self, index: u128, len: u8) -> Option<Self> {
        if len < self.bits() || len > self.family().host_len() {
            return None;
        }
        let shift = u32::from(self.family().host_len().checked_sub(len)?);
        let offset = if shift == 128 {
            0
        } else {
            index.checked_mul(1_u128 << shift)?
        };
        Self::new(self.nth(offset)?, len).ok()
    }

    /// How many subnets of `len` bits fit; 0 where `len` is shorter than the prefix. Saturates.
    #[must_use]
    pub fn subnet_count(&self, len: u8) -> u128 {
        match len.checked_sub(self.bits()) {
            Some(bits) if len <= self.family().host_len() => {
                1_u128.checked_shl(u32::from(bits)).unwrap_or(u128::MAX)
            }
            _ => 0,
        }
    }
}

impl FromStr for Prefix {
    type Err = AddressError;

    /// Reads `address/length`; host bits are cleared, a missing length is refused.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        IpNet::from_str(text)
            .map(|net| Self(net.trunc()))
            .map_err(|_| AddressError {
                text: text.to_owned(),
                wanted: "a prefix in CIDR notation",
            })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An address with the length of its subnet, as an interface has it (`172.18.0.2/16`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceAddr {
    /// The address itself.
    pub ip: IpAddr,
    /// Length of the subnet in bits.
    pub len: u8,
}

impl InterfaceAddr {
    /// The subnet the address lies in.
    #[must_use]
    pub fn subnet(&self) -> Prefix {
        Prefix::new(self.ip, self.len).unwrap_or_else(|_| Prefix::host(self.ip))
    }
}

impl FromStr for InterfaceAddr {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        IpNet::from_str(text)
            .map(|net| Self {
                ip: net.addr(),
                len: net.prefix_len(),
            })
            .map_err(|_| AddressError {
                text: text.to_owned(),
                wanted: "an interface address in CIDR notation",
            })
    }
}

impl fmt::Display for InterfaceAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.len)
    }
}

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The address that OVN-Kubernetes derives from an IP address: `0a:58`, and of IPv4 its four bytes, of IPv6 the first four of
    /// the SHA-256 of its text.
    #[must_use]
    pub fn of_ip(ip: IpAddr) -> Self {
        let [a, b, c, d] = match ip {
            IpAddr::V4(ip) => ip.octets(),
            IpAddr::V6(ip) => {
                let digest = Sha256::digest(ip.to_string());
                digest.first_chunk().copied().unwrap_or_default()
            }
        };
        Self([0x0a, 0x58, a, b, c, d])
    }
}

impl FromStr for Mac {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || AddressError {
            text: text.to_owned(),
            wanted: "a MAC address (six hexadecimal bytes with colons)",
        };
        let mut bytes = [0_u8; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A cluster subnet with the prefix length of each node's share: `10.128.0.0/16/24`.
/// Source: `[default] cluster-subnets`, NAD `subnets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterSubnet {
    /// The whole range of pod addresses.
    pub cidr: Prefix,
    /// Prefix length of one node's subnet, in bits.
    pub host_len: u8,
}

impl FromStr for ClusterSubnet {
    type Err = AddressError;

    /// Reads `cidr/host-length`; without the last part IPv4 takes /24 and IPv6 /64.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || AddressError {
            text: text.to_owned(),
            wanted: "a cluster subnet such as 10.128.0.0/14/23 (the last number longer than the second and at most 30, or 64 for IPv6)",
        };
        let parts: Vec<&str> = text.split('/').collect();
        let (cidr, host_len) = match parts.as_slice() {
            [ip, len] => (format!("{ip}/{len}"), None),
            [ip, len, host] => (
                format!("{ip}/{len}"),
                Some(host.parse::<u8>().map_err(|_| wrong())?),
            ),
            _ => return Err(wrong()),
        };
        let net = IpNet::from_str(&cidr).map_err(|_| wrong())?;
        let cidr = Prefix(net.trunc());
        let (default, longest) = match cidr.family() {
            Family::V4 => (24, 30),
            Family::V6 => (64, 64),
        };
        let host_len = host_len.unwrap_or(default);
        if host_len <= cidr.bits() || host_len > longest || net.addr() != cidr.network() {
            return Err(wrong());
        }
        if cidr.family() == Family::V6 && host_len != 64 {
            return Err(wrong());
        }
        Ok(Self { cidr, host_len })
    }
}

impl fmt::Display for ClusterSubnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cidr, self.host_len)
    }
}

#[cfg(test)]
mod tests;
