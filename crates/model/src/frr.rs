//! An FRRConfiguration as a plain value, and what a running FRR shows of itself.
//! In: objects decoded by `api`, FRR's JSON decoded by `frr-edge`. Out: input of `frr` and of the planners.
//! Invariant: prefixes and AS numbers are parsed; neighbor addresses keep their spelling, because frr-k8s tells peers apart by text.
//! Not here: merging and rendering (`frr`), the object's YAML (`api`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::address::Prefix;
use crate::asn::Asn;
use crate::names::ObjectKey;
use crate::problem::Problem;
use crate::selector::{LabelSelector, Labels};

/// One `frrk8s.metallb.io/v1beta1` FRRConfiguration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrrConfiguration {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.labels`.
    pub labels: Labels,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `spec.nodeSelector`; empty selects every node.
    pub node_selector: LabelSelector,
    /// `spec.bgp.routers`, in the object's order.
    pub routers: Vec<Router>,
    /// `spec.bgp.bfdProfiles`.
    pub bfd_profiles: Vec<BfdProfile>,
    /// `spec.raw`, where text is set.
    pub raw: Option<Raw>,
}

impl FrrConfiguration {
    /// What of it is EVPN, which costs the object, and nobody else, its effect where frr-agent applies it.
    #[must_use]
    pub fn evpn(&self) -> Option<Problem> {
        let field = self.routers.iter().enumerate().find_map(|(at, router)| {
            let path = format!("spec.bgp.routers[{at}]");
            if router.evpn.is_some() {
                return Some(format!("{path}.evpn"));
            }
            let mut neighbors = router.neighbors.iter();
            let at = neighbors.position(|n| !n.address_families.is_empty())?;
            Some(format!("{path}.neighbors[{at}].addressFamilies"))
        })?;
        let subject = format!("FRRConfiguration/{}", self.key);
        let text = format!(
            "{subject} field {field}: EVPN is not supported; remove the field, or run frr-k8s on this node"
        );
        Some(Problem::new(subject, EVPN_UNSUPPORTED, text))
    }
}

/// Bytes of the longest password of a session that FRR takes (`PEER_PASSWORD_MAXLEN`, the kernel's limit for TCP MD5).
pub const LONGEST_PASSWORD: usize = 80;

/// `spec.raw`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Raw {
    /// Ascending; ties are broken by the object's name.
    pub priority: i64,
    /// Text that is put behind everything rendered.
    pub config: String,
}

/// `spec.bgp.routers[]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Router {
    /// `asn`.
    pub asn: Asn,
    /// `id`, the router id; not checked by anybody but FRR.
    pub id: Option<String>,
    /// `vrf`; empty is the default VRF.
    pub vrf: String,
    /// `neighbors`, in the object's order.
    pub neighbors: Vec<Neighbor>,
    /// `prefixes` to originate, as the object spells them but parsed.
    pub prefixes: Vec<Prefix>,
    /// `imports[].vrf`.
    pub imports: Vec<String>,
    /// `evpn`, its JSON: not ours to honour, and carried over.
    pub evpn: Option<String>,
}

impl Router {
    /// One of the default VRF that has no neighbor and originates nothing.
    #[must_use]
    pub fn new(asn: Asn) -> Self {
        Self {
            asn,
            id: None,
            vrf: String::new(),
            neighbors: Vec::new(),
            prefixes: Vec::new(),
            imports: Vec::new(),
            evpn: None,
        }
    }
}

/// How a neighbor is reached: exactly one of address and interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// `address`, an IP literal in the object's own spelling.
    Address(String),
    /// `interface`, unnumbered, both families.
    Interface(String),
}

impl Peer {
    /// The text that names the neighbor in frr.conf and in route-map names.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Address(text) | Self::Interface(text) => text,
        }
    }

    /// The parsed address, if it is one.
    #[must_use]
    pub fn ip(&self) -> Option<std::net::IpAddr> {
        match self {
            Self::Address(text) => text.parse().ok(),
            Self::Interface(_) => None,
        }
    }
}

/// The neighbor's AS: exactly one of `asn` and `dynamicASN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemoteAs {
    /// `asn`, not zero.
    Number(Asn),
    /// `dynamicASN: internal`.
    Internal,
    /// `dynamicASN: external`.
    External,
}

impl std::fmt::Display for RemoteAs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(asn) => asn.fmt(f),
            Self::Internal => f.write_str("internal"),
            Self::External => f.write_str("external"),
        }
    }
}

/// The session-level fields of a neighbor: every object that touches it on a node has to repeat them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// `asn` or `dynamicASN`.
    pub remote_as: RemoteAs,
    /// `localASN`.
    pub local_as: Option<Asn>,
    /// `sourceaddress`: an IP or an interface name.
    pub source: Option<String>,
    /// `port`; absent is 179.
    pub port: Option<u16>,
    /// `password`, in clear text.
    pub password: Option<String>,
    /// Name of `passwordSecret`.
    pub password_secret: Option<String>,
    /// `holdTime` in seconds; 0 or at least 3. Both timers are set or neither.
    pub hold_time: Option<u64>,
    /// `keepaliveTime` in seconds, at most the hold time.
    pub keepalive_time: Option<u64>,
    /// `connectTime` in seconds, 1 to 65535.
    pub connect_time: Option<u64>,
    /// `ebgpMultiHop`.
    pub ebgp_multi_hop: bool,
    /// `bfdProfile`, defined in the same object.
    pub bfd_profile: Option<String>,
    /// `enableGracefulRestart`.
    pub graceful_restart: bool,
    /// `dualStackAddressFamily`.
    pub dual_stack: bool,
}

impl Session {
    /// A session with a remote AS and nothing else set.
    #[must_use]
    pub fn new(remote_as: RemoteAs) -> Self {
        Self {
            remote_as,
            local_as: None,
            source: None,
            port: None,
            password: None,
            password_secret: None,
            hold_time: None,
            keepalive_time: None,
            connect_time: None,
            ebgp_multi_hop: false,
            bfd_profile: None,
            graceful_restart: false,
            dual_stack: false,
        }
    }
}

/// `spec.bgp.routers[].neighbors[]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbor {
    /// `address` or `interface`.
    pub peer: Peer,
    /// Everything that describes the session.
    pub session: Session,
    /// `toAdvertise`.
    pub advertise: Advertise,
    /// `toReceive`.
    pub receive: Receive,
    /// `disableMP`, which means nothing any more and is carried over.
    pub disable_mp: bool,
    /// `addressFamilies` beside `unicast`, which is always there: not ours to honour, and carried over.
    pub address_families: Vec<String>,
}

impl Neighbor {
    /// One that gets nothing and of which nothing is taken.
    #[must_use]
    pub fn new(peer: Peer, session: Session) -> Self {
        Self {
            peer,
            session,
            advertise: Advertise::default(),
            receive: Receive::default(),
            disable_mp: false,
            address_families: Vec::new(),
        }
    }
}

/// `toAdvertise`: which of the router's prefixes the neighbor gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advertise {
    /// `allowed.mode: all`: every prefix of the same object and family.
    pub all: bool,
    /// `allowed.prefixes`, in mode `filtered`.
    pub prefixes: Vec<Prefix>,
    /// `nextHop.ipv4` and `nextHop.ipv6`.
    pub next_hops: Vec<std::net::IpAddr>,
    /// `withLocalPref`: a value and the prefixes that get it.
    pub local_prefs: Vec<(u32, Vec<Prefix>)>,
    /// `withCommunity`: a community (`a:b` or `large:a:b:c`) and the prefixes that get it.
    pub communities: Vec<(String, Vec<Prefix>)>,
}

/// `toReceive`: which prefixes are taken from the neighbor; by default none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Receive {
    /// `allowed.mode: all`.
    pub all: bool,
    /// `allowed.prefixes`, in mode `filtered`.
    pub prefixes: Vec<PrefixRange>,
}

/// A prefix with bounds of the length, as FRR's prefix lists have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrefixRange {
    /// `prefix`.
    pub prefix: Prefix,
    /// `ge`, at least the prefix's own length; absent: no bound.
    pub ge: Option<u8>,
    /// `le`, at least `ge`; absent: no bound.
    pub le: Option<u8>,
}

/// `spec.bgp.bfdProfiles[]`; what is absent is FRR's default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BfdProfile {
    /// `name`.
    pub name: String,
    /// `receiveInterval`, milliseconds, 10 to 60000.
    pub receive_interval: Option<u32>,
    /// `transmitInterval`, milliseconds, 10 to 60000.
    pub transmit_interval: Option<u32>,
    /// `detectMultiplier`, 2 to 255.
    pub detect_multiplier: Option<u32>,
    /// `echoInterval`, milliseconds, 10 to 60000.
    pub echo_interval: Option<u32>,
    /// `echoMode`.
    pub echo_mode: bool,
    /// `passiveMode`.
    pub passive_mode: bool,
    /// `minimumTtl`, 1 to 254, multihop only.
    pub minimum_ttl: Option<u32>,
}

/// A BGP session as a running FRR reports it (`show bgp vrf all neighbors json`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionState {
    /// Empty is the default VRF.
    pub vrf: String,
    /// The neighbor as FRR names it.
    pub peer: String,
    /// Idle, Connect, Active, OpenSent, OpenConfirm or Established.
    pub bgp: String,
    /// Up, Down, or `N/A` where no BFD runs.
    pub bfd: String,
    /// Prefixes that were received and accepted, of all families.
    pub received: u64,
    /// Prefixes that were sent, of all families.
    pub sent: u64,
}

/// What is wrong with a neighbor that nothing says how to reach.
pub const NAMELESS_NEIGHBOR: &str = "neither address nor interface is set; exactly one is needed";

/// Reason of a problem that costs only the object that it is about: EVPN, which is not supported.
pub const EVPN_UNSUPPORTED: &str = "EvpnUnsupported";

/// An FRRConfiguration as it was read: whom it selects, and what it says or why that cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `None` where the selector itself cannot be read: it then counts as selecting every node.
    pub node_selector: Option<LabelSelector>,
    /// The object, or all that is wrong with it.
    pub object: Result<Arc<FrrConfiguration>, Vec<Problem>>,
    /// What can be read of it where `object` is an error; otherwise empty.
    pub remains: Remains,
}

/// What can still be read of an object that cannot be honoured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remains {
    /// `metadata.labels`.
    pub labels: Labels,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `spec.nodeSelector`; `None` where it cannot be read: it then counts as selecting every node.
    pub node_selector: Option<LabelSelector>,
    /// `prefixes` of its routers of the default VRF, those that can be read.
    pub prefixes: Vec<Prefix>,
}

/// What stands in the place of a password.
pub const RETRACTED: &str = "<retracted>";

/// A line of frr.conf with [`RETRACTED`] in place of what follows the word `password`.
#[must_use]
pub fn without_password(line: &str) -> String {
    const WORD: &str = "password";
    for (at, _) in line.match_indices(WORD) {
        let before = line.get(..at).unwrap_or_default();
        let after = line.get(at + WORD.len()..).unwrap_or_default();
        let part_of_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        if !before.ends_with(part_of_word) && after.starts_with(char::is_whitespace) {
            return format!("{before}{WORD} {RETRACTED}");
        }
    }
    line.to_owned()
}

/// The same for every line of a text.
#[must_use]
pub fn without_passwords(text: &str) -> String {
    let lines = text.lines().map(without_password);
    lines.flat_map(|line| [line, "\n".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_taken_out() {
        let text = " neighbor 1.1.1.1 password secret word\n neighbor 1.1.1.1 timers 3 9\n";
        assert_eq!(
            without_passwords(text),
            " neighbor 1.1.1.1 password <retracted>\n neighbor 1.1.1.1 timers 3 9\n"
        );
        for (line, wanted) in [
            ("password zebra", "password <retracted>"),
            ("enable password x", "enable password <retracted>"),
            (
                "\tneighbor x password\ty z",
                "\tneighbor x password <retracted>",
            ),
            ("`password x`: why", "`password <retracted>"),
            (" no neighbor x password", " no neighbor x password"),
            ("service password-encryption", "service password-encryption"),
            (
                "route-map no-password permit 1",
                "route-map no-password permit 1",
            ),
        ] {
            assert_eq!(without_password(line), wanted, "{line}");
        }
    }
}
