//! All that is known of a destination.
//! In: fields. Out: which next hops it should have rows for. Invariant: what the kernel last asked for is kept while rows stand.
//! Not here: changing it.
//!
//! There are as many as routes, in each network: what most of them have none or one of takes no memory, or that of one.

use std::net::IpAddr;
use std::time::Duration;

use model::subnets::Owners;

/// Why a destination stays although the kernel has lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retained {
    /// FRR is gone or restarts.
    Restart,
    /// Nobody has looked at FRR since it was lost.
    Unexplained,
    /// Too many went at once while their sessions are up.
    MassWithdrawal,
}

/// All that is known of a destination.
#[derive(Debug, Clone)]
pub(super) struct Place<R> {
    /// The kernel has a route that is imported, over these next hops; or had one last.
    pub(super) hops: Box<[IpAddr]>,
    /// Whether it has it now.
    pub(super) wanted: bool,
    /// Why its route or some of its paths are left out.
    pub(super) reasons: Vec<&'static str>,
    /// What the kernel does with it, imported or not: forwards (true) or drops it; `None`: it has no route.
    pub(super) kernel: Option<bool>,
    /// The node that had the subnet when the kernel last asked for it.
    pub(super) owners: Owners,
    pub(super) rows: Vec<(IpAddr, R)>,
    /// Why it is retained, and over which next hops.
    pub(super) retained: Option<Box<(Retained, Vec<IpAddr>)>>,
    /// When it was first evaluated after the kernel had lost it.
    pub(super) lost: Option<Duration>,
}

impl<R> Default for Place<R> {
    fn default() -> Self {
        Self {
            hops: Box::default(),
            wanted: false,
            reasons: Vec::new(),
            kernel: None,
            owners: Owners::default(),
            rows: Vec::new(),
            retained: None,
            lost: None,
        }
    }
}

impl<R> Place<R> {
    /// Next hops that rows should exist for, the limit aside.
    pub(super) fn eligible(&self) -> &[IpAddr] {
        match self.retained.as_deref() {
            _ if self.wanted => &self.hops,
            Some((_, hops)) => hops,
            None => &[],
        }
    }

    /// Whether rows should exist for it, the limit aside.
    pub(super) fn is_wanted(&self) -> bool {
        !self.eligible().is_empty()
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        !self.wanted && !self.rows.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.wanted && self.reasons.is_empty() && self.rows.is_empty() && self.kernel.is_none()
    }
}
