//! FRR as it is at a moment.
//! In: fields. Out: values. Invariant: "did not answer" is never reported as "is not there".
//! Not here: what follows.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// FRR as it is at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrrStatus {
    /// Its daemons cannot be asked from here (no permission): nothing is known, and nothing is retained.
    Unseen,
    /// There is no folder where its sockets should be: gone if it was there before, else in another place.
    Absent,
    /// zebra or bgpd does not run.
    Gone,
    /// Both run.
    Up(Running),
}

/// Daemons that run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Identity of zebra and bgpd: another one means that one of them is new.
    pub instance: String,
    /// How long the younger of them has run.
    pub age: Duration,
    /// Whether bgpd is zebra's client; `None`: zebra did not answer. A zebra that ends parts with its clients before it
    /// removes their routes, and a bgpd that is new needs up to ten seconds to become one.
    pub linked: Option<bool>,
    /// What bgpd said.
    pub sessions: Sessions,
}

/// What bgpd said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sessions {
    /// Nothing: it is busy, or on its way down.
    Silent,
    /// It answered, and was not asked for sessions, or in a way that is not understood.
    NotAsked,
    /// Its peers in the default VRF.
    Peers(BTreeMap<Peer, Session>),
}

/// How a peer is named in bgpd's configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// By its address.
    Address(IpAddr),
    /// By the interface that it is on (unnumbered).
    Interface(String),
}

impl From<&str> for Peer {
    fn from(name: &str) -> Self {
        name.parse()
            .map_or_else(|_| Self::Interface(name.to_owned()), Self::Address)
    }
}

/// A session at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// Whether it is established.
    pub up: bool,
    /// For how long it has been; zero where it is not.
    pub since: Duration,
    /// How many established sessions to this peer have ended since bgpd started.
    pub falls: u64,
}
