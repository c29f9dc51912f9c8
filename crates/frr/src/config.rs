//! The values between merging and rendering: what goes in for a node, and what its objects amount to.
//! In: nothing but constructors' arguments. Out: plain values for `merge`, `render` and `lint`.
//! Invariant: routers are sorted by VRF, neighbors by their text, BFD profiles by name, raw text by (priority, name).
//! Not here: the rules (`merge`), the spelling (`render`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use model::address::{Family, Prefix};
use model::asn::Asn;
use model::frr::{BfdProfile, FrrConfiguration, Peer, PrefixRange, Session};
use model::names::{NodeName, ObjectKey};
use model::problem::Problem;
use model::selector::Labels;

/// What has to be known of a node to merge its configuration.
#[derive(Debug, Clone)]
pub struct NodeInput<'a> {
    /// `metadata.name` of the Node; messages name it.
    pub name: NodeName,
    /// `metadata.labels` of the Node; each object's `nodeSelector` is matched against them.
    pub labels: &'a Labels,
    /// The `hostname` line of frr.conf.
    pub hostname: String,
    /// All objects of the namespace that the node's FRR is configured from, selecting it or not, in any order.
    pub objects: &'a [Arc<FrrConfiguration>],
    /// Passwords of the Secrets of that namespace.
    pub passwords: &'a Passwords,
}

/// Secret name -> its password, or why it has none (`is of type Opaque; ...`); a name that is absent is a Secret that is.
pub type Passwords = BTreeMap<String, Result<String, String>>;

/// Everything that is configured in one node's FRR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// The node.
    pub node: NodeName,
    /// The `hostname` line.
    pub hostname: String,
    /// One per VRF, sorted by VRF; the default VRF (empty) comes first.
    pub routers: Vec<RouterConfig>,
    /// Sorted by name.
    pub bfd_profiles: Vec<BfdProfile>,
    /// The objects that define each of them, by its name.
    pub bfd_sources: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Sorted by (priority, object name).
    pub raw: Vec<RawText>,
    /// What the merge had to decide because two objects differ in a field that frr-k8s does not compare.
    pub notes: Vec<Problem>,
}

impl NodeConfig {
    /// The configuration of a node without objects.
    #[must_use]
    pub fn empty(node: NodeName, hostname: String) -> Self {
        Self {
            node,
            hostname,
            routers: Vec::new(),
            bfd_profiles: Vec::new(),
            bfd_sources: BTreeMap::new(),
            raw: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// The raw text of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawText {
    /// The object that brings it.
    pub source: ObjectKey,
    /// `spec.raw.priority`, ascending.
    pub priority: i64,
    /// `spec.raw.rawConfig`.
    pub config: String,
}

/// All routers of one VRF, united.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterConfig {
    /// The own AS number.
    pub asn: Asn,
    /// The router id, where an object sets one.
    pub id: Option<String>,
    /// Empty is the default VRF.
    pub vrf: String,
    /// Sorted by the peer's text.
    pub neighbors: Vec<NeighborConfig>,
    /// Prefixes to originate.
    pub prefixes: BTreeSet<Prefix>,
    /// VRFs to import from; `default` is the default VRF.
    pub imports: BTreeSet<String>,
    /// The objects that have a router of the VRF.
    pub sources: BTreeSet<ObjectKey>,
}

/// One neighbor of one VRF, united.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeighborConfig {
    /// The peer, in the objects' spelling.
    pub peer: Peer,
    /// The session. A value equal to its default (port 179, 180, 60 and 60 s) is absent, a password is in clear text.
    pub session: Session,
    /// The timers as the objects have them, defaults included.
    pub asked: AskedTimers,
    /// What it gets.
    pub advertise: Outgoing,
    /// What is taken from it.
    pub receive: Incoming,
    /// The objects that name it.
    pub sources: BTreeSet<ObjectKey>,
}

/// Timers as objects ask for them, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AskedTimers {
    /// `holdTime`.
    pub hold: Option<u64>,
    /// `keepaliveTime`.
    pub keepalive: Option<u64>,
    /// `connectTime`.
    pub connect: Option<u64>,
}

/// What a neighbor gets; prefixes of families that the session does not carry are not in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// Prefixes that pass.
    pub prefixes: BTreeSet<Prefix>,
    /// Local preference -> prefixes that get it.
    pub local_prefs: BTreeMap<u32, BTreeSet<Prefix>>,
    /// Community (`a:b` or `large:a:b:c`) -> prefixes that get it.
    pub communities: BTreeMap<String, BTreeSet<Prefix>>,
    /// Next hop of IPv4 prefixes, where one is set.
    pub next_hop_v4: Option<Ipv4Addr>,
    /// Next hop of IPv6 prefixes, where one is set.
    pub next_hop_v6: Option<Ipv6Addr>,
}

/// What is taken from a neighbor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Incoming {
    /// Everything.
    pub all: bool,
    /// Otherwise these; empty is nothing.
    pub prefixes: BTreeSet<PrefixRange>,
}

/// The address families that a session carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4 unicast.
    V4,
    /// IPv6 unicast.
    V6,
    /// Both.
    Dual,
}

impl Families {
    /// A session over an interface and one with `dualStackAddressFamily` carry both, others that of their address.
    #[must_use]
    pub fn of(peer: &Peer, dual_stack: bool) -> Self {
        match peer.ip() {
            None => Self::Dual,
            Some(_) if dual_stack => Self::Dual,
            Some(IpAddr::V4(_)) => Self::V4,
            Some(IpAddr::V6(_)) => Self::V6,
        }
    }

    /// Whether a family is carried.
    #[must_use]
    pub fn has(self, family: Family) -> bool {
        match self {
            Self::V4 => family == Family::V4,
            Self::V6 => family == Family::V6,
            Self::Dual => true,
        }
    }

    /// The word in the name of a neighbor's inbound prefix-list.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
            Self::Dual => "dual",
        }
    }
}

impl NeighborConfig {
    /// The families that the session carries.
    #[must_use]
    pub fn families(&self) -> Families {
        Families::of(&self.peer, self.session.dual_stack)
    }

    /// The stem of the neighbor's route-maps and prefix-lists: the peer's text, with `-<vrf>` outside the default VRF.
    #[must_use]
    pub fn id(&self, vrf: &str) -> String {
        if vrf.is_empty() {
            self.peer.as_str().to_owned()
        } else {
            format!("{}-{vrf}", self.peer.as_str())
        }
    }
}

/// The subject of a problem with an object: `FRRConfiguration/<namespace>/<name>`.
pub(crate) fn subject(key: &ObjectKey) -> String {
    format!("FRRConfiguration/{key}")
}

/// A VRF as messages have it: the default one is called `default`.
pub(crate) fn vrf_name(vrf: &str) -> &str {
    if vrf.is_empty() { "default" } else { vrf }
}
