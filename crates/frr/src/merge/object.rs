//! One object's router and neighbors, checked on their own and decoded into parts that can be united.
//! In: an object, one of its routers, passwords. Out: a `Part` per neighbor, problems.
//! Invariant: a part holds only prefixes that the object itself originates or imports and that the session carries.
//! Not here: comparing objects with each other (`neighbor`).

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::address::{Family, Prefix};
use model::frr::{FrrConfiguration, Neighbor, Router, Session};
use model::names::ObjectKey;
use model::problem::Problem;

use super::neighbor::Part;
use crate::config::{AskedTimers, Families, Outgoing, Passwords, subject, vrf_name};

const PORT: u16 = 179;
const HOLD: u64 = 180;
const KEEPALIVE: u64 = 60;
/// FRR's own default differs; this is the value that frr-k8s takes for it, and drops.
const CONNECT: u64 = 60;

/// What a neighbor may refer to: its own router and what stands beside it in the same object.
pub(super) struct Scope<'a> {
    key: &'a ObjectKey,
    router: &'a Router,
    prefixes: BTreeSet<Prefix>,
    profiles: BTreeSet<&'a str>,
    passwords: &'a Passwords,
}

impl<'a> Scope<'a> {
    pub(super) fn new(
        object: &'a FrrConfiguration,
        router: &'a Router,
        passwords: &'a Passwords,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut prefixes: BTreeSet<Prefix> = router.prefixes.iter().copied().collect();
        for import in &router.imports {
            let wanted = if import == "default" {
                ""
            } else {
                import.as_str()
            };
            let mut found = false;
            for other in object.routers.iter().filter(|r| r.vrf == wanted) {
                found = true;
                prefixes.extend(other.prefixes.iter().copied());
            }
            if !found {
                problems.push(Problem::new(
                    subject(&object.key),
                    "ImportUndefined",
                    format!(
                        "routers[vrf {}].imports names VRF {import}, but {} has no router of that VRF",
                        vrf_name(&router.vrf),
                        object.key
                    ),
                ));
            }
        }
        Self {
            key: &object.key,
            router,
            prefixes,
            profiles: object
                .bfd_profiles
                .iter()
                .map(|p| p.name.as_str())
                .collect(),
            passwords,
        }
    }

    /// A neighbor as a part, with everything that is wrong with it alone.
    pub(super) fn decode(&self, neighbor: &'a Neighbor, problems: &mut Vec<Problem>) -> Part<'a> {
        let mut session = neighbor.session.clone();
        let asked = AskedTimers {
            hold: session.hold_time,
            keepalive: session.keepalive_time,
            connect: session.connect_time,
        };
        drop_defaults(&mut session);
        self.check_session(neighbor, problems);
        let password_known = self.resolve_password(neighbor, &mut session, problems);
        Part {
            key: self.key,
            peer: &neighbor.peer,
            session,
            asked,
            password_known,
            advertise: self.outgoing(neighbor, problems),
            all: neighbor.advertise.all,
            receive: &neighbor.receive,
        }
    }

    fn problem(&self, neighbor: &Neighbor, reason: &'static str, text: &str) -> Problem {
        Problem::new(
            subject(self.key),
            reason,
            format!(
                "routers[vrf {}].neighbors[{}] of {}: {text}",
                vrf_name(&self.router.vrf),
                neighbor.peer.as_str(),
                self.key
            ),
        )
    }

    fn check_session(&self, neighbor: &Neighbor, problems: &mut Vec<Problem>) {
        let session = &neighbor.session;
        if session.local_as == Some(self.router.asn) {
            let text = format!(
                "localASN {} is the router's own asn; it has to be another number or absent",
                self.router.asn
            );
            problems.push(self.problem(neighbor, "LocalAsn", &text));
        }
        if session.hold_time.is_some() != session.keepalive_time.is_some() {
            let text = "holdTime and keepaliveTime are set together or not at all";
            problems.push(self.problem(neighbor, "TimersIncomplete", text));
        }
        if let Some(name) = session.bfd_profile.as_deref()
            && !self.profiles.contains(name)
        {
            let text = format!("bfdProfile {name} is not defined in bfdProfiles of this object");
            problems.push(self.problem(neighbor, "BfdProfileMissing", &text));
        }
    }

    /// Puts the Secret's text into the session; false where it cannot be had.
    fn resolve_password(
        &self,
        neighbor: &Neighbor,
        session: &mut Session,
        problems: &mut Vec<Problem>,
    ) -> bool {
        let Some(name) = session.password_secret.take() else {
            return true;
        };
        if session.password.is_some() {
            let text = format!(
                "password and passwordSecret {name} are both set; only one of them is allowed"
            );
            problems.push(self.problem(neighbor, "PasswordTwice", &text));
            return true;
        }
        let why = match self.passwords.get(&name) {
            Some(Ok(password)) => {
                session.password = Some(password.clone());
                return true;
            }
            Some(Err(why)) => format!("Secret {}/{name} {why}", self.key.namespace),
            None => format!("there is no Secret {}/{name}", self.key.namespace),
        };
        let text = format!("passwordSecret {name}: {why}");
        problems.push(self.problem(neighbor, "SecretMissing", &text));
        false
    }

    fn outgoing(&self, neighbor: &Neighbor, problems: &mut Vec<Problem>) -> Outgoing {
        let families = Families::of(&neighbor.peer, neighbor.session.dual_stack);
        let mut out = Outgoing {
            prefixes: self.allowed(neighbor, families, problems),
            ..Outgoing::default()
        };
        let advertise = &neighbor.advertise;
        for (value, prefixes) in &advertise.local_prefs {
            let what = format!("withLocalPref {value}");
            let chosen = self.modified(
                neighbor,
                families,
                (&what, prefixes),
                &out.prefixes,
                problems,
            );
            if out.local_prefs.insert(*value, chosen).is_some() {
                let text = format!("{what} is there twice; one entry takes all its prefixes");
                problems.push(self.problem(neighbor, "ListedTwice", &text));
            }
        }
        for (community, prefixes) in &advertise.communities {
            let what = format!("withCommunity {community}");
            let Some(name) = canonical_community(community) else {
                let text = format!(
                    "{what} is no community; allowed is a:b (16 bits each) or large:a:b:c (32 bits each)"
                );
                problems.push(self.problem(neighbor, "CommunityInvalid", &text));
                continue;
            };
            let chosen = self.modified(
                neighbor,
                families,
                (&what, prefixes),
                &out.prefixes,
                problems,
            );
            if out.communities.insert(name, chosen).is_some() {
                let text = format!("{what} is there twice; one entry takes all its prefixes");
                problems.push(self.problem(neighbor, "ListedTwice", &text));
            }
        }
        self.next_hops(neighbor, families, &mut out, problems);
        out
    }

    /// The prefixes that pass: in mode `all` those of the object that the session carries, else the listed ones.
    fn allowed(
        &self,
        neighbor: &Neighbor,
        families: Families,
        problems: &mut Vec<Problem>,
    ) -> BTreeSet<Prefix> {
        if neighbor.advertise.all {
            let all = self.prefixes.iter().copied();
            return all.filter(|p| families.has(p.family())).collect();
        }
        let mut allowed = BTreeSet::new();
        for prefix in &neighbor.advertise.prefixes {
            if !self.prefixes.contains(prefix) {
                let text = format!(
                    "toAdvertise names prefix {prefix}, which is not in prefixes of the router in this object"
                );
                problems.push(self.problem(neighbor, "PrefixNotConfigured", &text));
            }
            if families.has(prefix.family()) {
                allowed.insert(*prefix);
            } else {
                let text = format!(
                    "toAdvertise names prefix {prefix}, but the session carries {} only",
                    families.as_str()
                );
                problems.push(self.problem(neighbor, "PrefixFamily", &text));
            }
        }
        allowed
    }

    /// The prefixes of a local preference or community; those of a family that is not carried are left out silently.
    fn modified(
        &self,
        neighbor: &Neighbor,
        families: Families,
        (what, prefixes): (&str, &[Prefix]),
        allowed: &BTreeSet<Prefix>,
        problems: &mut Vec<Problem>,
    ) -> BTreeSet<Prefix> {
        let carried = prefixes.iter().filter(|p| families.has(p.family()));
        let mut chosen = BTreeSet::new();
        for prefix in carried {
            if !allowed.contains(prefix) {
                let text =
                    format!("{what} names prefix {prefix}, which toAdvertise does not allow");
                problems.push(self.problem(neighbor, "PrefixNotConfigured", &text));
            }
            chosen.insert(*prefix);
        }
        chosen
    }

    fn next_hops(
        &self,
        neighbor: &Neighbor,
        families: Families,
        out: &mut Outgoing,
        problems: &mut Vec<Problem>,
    ) {
        for hop in &neighbor.advertise.next_hops {
            if !families.has(Family::of(*hop)) {
                let text = format!(
                    "nextHop {hop}, but the session carries {} only",
                    families.as_str()
                );
                problems.push(self.problem(neighbor, "NextHopFamily", &text));
            }
            let replaced = match hop {
                IpAddr::V4(ip) => out.next_hop_v4.replace(*ip).map(IpAddr::V4),
                IpAddr::V6(ip) => out.next_hop_v6.replace(*ip).map(IpAddr::V6),
            };
            if let Some(other) = replaced.filter(|other| other != hop) {
                let text = format!("nextHop is {other} and {hop}; one for each family is allowed");
                problems.push(self.problem(neighbor, "NextHopConflict", &text));
            }
        }
    }
}

/// A value equal to its default is dropped, each by itself.
fn drop_defaults(session: &mut Session) {
    session.port = session.port.filter(|port| *port != PORT);
    session.hold_time = session.hold_time.filter(|time| *time != HOLD);
    session.keepalive_time = session.keepalive_time.filter(|time| *time != KEEPALIVE);
    session.connect_time = session.connect_time.filter(|time| *time != CONNECT);
}

/// The one spelling of a community, or `None`.
fn canonical_community(text: &str) -> Option<String> {
    if let Some(large) = text.strip_prefix("large:") {
        let parts: Vec<u32> = large
            .split(':')
            .map(|part| part.parse().ok())
            .collect::<Option<_>>()?;
        return match parts.as_slice() {
            [a, b, c] => Some(format!("large:{a}:{b}:{c}")),
            _ => None,
        };
    }
    let (a, b) = text.split_once(':')?;
    let (a, b): (u16, u16) = (a.parse().ok()?, b.parse().ok()?);
    Some(format!("{a}:{b}"))
}
