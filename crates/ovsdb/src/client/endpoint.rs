//! Where an OVSDB server listens (ovsdb(7), Active Connection Methods).
//!
//! In: `unix:PATH`, `tcp:HOST:PORT`, `ssl:HOST:PORT`. Out: the same as a value.
//! Invariant: what parses prints to a text that parses to the same.
//! Not here: lists of endpoints, and passive methods.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A way to connect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A unix domain socket.
    Unix(PathBuf),
    /// Plain TCP.
    Tcp(HostPort),
    /// TCP with mutual TLS.
    Ssl(HostPort),
}

/// A host name or address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    pub host: Box<str>,
    /// The port, 1 to 65535.
    pub port: u16,
}

/// The text names no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no OVSDB endpoint: {reason}; allowed are unix:PATH, tcp:HOST:PORT and ssl:HOST:PORT (IPv6 as [ADDRESS])"
)]
pub struct EndpointError {
    text: Box<str>,
    reason: &'static str,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        decode(text).map_err(|reason| EndpointError {
            text: text.into(),
            reason,
        })
    }
}

fn decode(text: &str) -> Result<Endpoint, &'static str> {
    let (method, rest) = text.split_once(':').ok_or("it has no method")?;
    match method {
        "unix" if rest.is_empty() => Err("the path is empty"),
        "unix" => Ok(Endpoint::Unix(rest.into())),
        "tcp" => decode_host(rest).map(Endpoint::Tcp),
        "ssl" => decode_host(rest).map(Endpoint::Ssl),
        _ => Err("its method is unknown"),
    }
}

fn decode_host(text: &str) -> Result<HostPort, &'static str> {
    let (host, port) = text.rsplit_once(':').ok_or("it has no port")?;
    let host = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
        Some(Some(inner)) if inner.parse::<std::net::Ipv6Addr>().is_ok() => inner,
        Some(_) => return Err("the brackets hold no IPv6 address"),
        None if host.contains(':') => return Err("an IPv6 address needs brackets"),
        None if host.is_empty() || host.contains(char::is_whitespace) => {
            return Err("the host is empty or has spaces");
        }
        None => host,
    };
    match port.parse() {
        Ok(0) | Err(_) => Err("the port is not a number from 1 to 65535"),
        Ok(port) => Ok(HostPort {
            host: host.into(),
            port,
        }),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Ssl(address) => write!(f, "ssl:{address}"),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests;
