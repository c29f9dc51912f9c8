//! The parts of one neighbor, one per object that names it, united.
//! In: parts in the order of their objects' names. Out: one `NeighborConfig`, conflicts.
//! Invariant: the first part is what the others are held against, so three objects with two values give one problem per odd one.
//! Not here: what a single object may say (`object`).

use std::collections::{BTreeMap, BTreeSet};

use model::address::Prefix;
use model::frr::{Peer, Receive, Session};
use model::names::ObjectKey;
use model::problem::Problem;

use super::conflict;
use crate::config::{AskedTimers, Families, Incoming, NeighborConfig, Outgoing, subject, vrf_name};

const SAME: &str = "every object that touches a neighbor on a node has to give the same value";

/// A neighbor as one object has it.
pub(super) struct Part<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) peer: &'a Peer,
    /// Without default values, with the password in clear text.
    pub(super) session: Session,
    pub(super) asked: AskedTimers,
    /// False where the Secret is missing, so that nothing can be said about the password.
    pub(super) password_known: bool,
    pub(super) advertise: Outgoing,
    /// Mode `all`: every prefix of this very object.
    pub(super) all: bool,
    pub(super) receive: &'a Receive,
}

/// The parts as one neighbor; `None` only for an empty group.
pub(super) fn unite(
    vrf: &str,
    parts: &[Part<'_>],
    owners: &BTreeMap<Prefix, &ObjectKey>,
    problems: &mut Vec<Problem>,
    notes: &mut Vec<Problem>,
) -> Option<NeighborConfig> {
    let (first, others) = parts.split_first()?;
    let place = format!(
        "routers[vrf {}].neighbors[{}]",
        vrf_name(vrf),
        first.peer.as_str()
    );
    for part in others {
        compare_session(&place, part, first, problems);
        note_graceful_restart(&place, part, first, notes);
    }
    let advertise = unite_outgoing(&place, parts, problems);
    note_all_of_nothing(&place, parts, &advertise, owners, notes);
    let mut session = first.session.clone();
    session.bfd_profile = unite_bfd(&place, parts, problems);
    session.graceful_restart = parts.iter().any(|part| part.session.graceful_restart);
    Some(NeighborConfig {
        peer: first.peer.clone(),
        session,
        asked: AskedTimers {
            hold: parts.iter().find_map(|part| part.asked.hold),
            keepalive: parts.iter().find_map(|part| part.asked.keepalive),
            connect: parts.iter().find_map(|part| part.asked.connect),
        },
        advertise,
        receive: unite_incoming(parts),
        sources: parts.iter().map(|part| part.key.clone()).collect(),
    })
}

fn compare_session(place: &str, part: &Part<'_>, first: &Part<'_>, problems: &mut Vec<Problem>) {
    for ((field, value), (_, wanted)) in fields(part).into_iter().zip(fields(first)) {
        if value != wanted {
            problems.push(conflict(
                "NeighborConflict",
                &format!("{place}.{field}"),
                (part.key, &value),
                (first.key, &wanted),
                SAME,
            ));
        }
    }
    let known = part.password_known && first.password_known;
    if known && part.session.password != first.session.password {
        // The text itself must not get into a condition or a log.
        let word = |session: &Session| match session.password {
            Some(_) => "a password of its own",
            None => "absent",
        };
        problems.push(conflict(
            "NeighborConflict",
            &format!("{place}.password"),
            (part.key, word(&part.session)),
            (first.key, word(&first.session)),
            SAME,
        ));
    }
}

/// The fields that have to be equal, with their values as text.
fn fields(part: &Part<'_>) -> [(&'static str, String); 9] {
    let session = &part.session;
    let seconds = |time: Option<u64>, default: &str| {
        time.map_or_else(|| default.to_owned(), |time| format!("{time}s"))
    };
    let dual = Families::of(part.peer, session.dual_stack) == Families::Dual;
    [
        ("asn", session.remote_as.to_string()),
        (
            "localASN",
            session
                .local_as
                .map_or_else(|| "absent".to_owned(), |asn| asn.to_string()),
        ),
        (
            "sourceaddress",
            session
                .source
                .clone()
                .unwrap_or_else(|| "absent".to_owned()),
        ),
        (
            "port",
            session
                .port
                .map_or_else(|| "absent or 179".to_owned(), |port| port.to_string()),
        ),
        ("holdTime", seconds(session.hold_time, "absent or 180s")),
        (
            "keepaliveTime",
            seconds(session.keepalive_time, "absent or 60s"),
        ),
        (
            "connectTime",
            seconds(session.connect_time, "absent or 60s"),
        ),
        ("ebgpMultiHop", session.ebgp_multi_hop.to_string()),
        ("dualStackAddressFamily", dual.to_string()),
    ]
}

/// frr-k8s takes the flag of whichever object it meets first; here it is on as soon as one object wants it.
fn note_graceful_restart(place: &str, part: &Part<'_>, first: &Part<'_>, notes: &mut Vec<Problem>) {
    if part.session.graceful_restart != first.session.graceful_restart {
        notes.push(conflict(
            "GracefulRestartDiffers",
            &format!("{place}.enableGracefulRestart"),
            (part.key, &part.session.graceful_restart.to_string()),
            (first.key, &first.session.graceful_restart.to_string()),
            "it is on here, with frr-k8s it is a matter of chance",
        ));
    }
}

/// Mode `all` means the prefixes of its own object; one that has none advertises nothing, without an error.
fn note_all_of_nothing(
    place: &str,
    parts: &[Part<'_>],
    advertise: &Outgoing,
    owners: &BTreeMap<Prefix, &ObjectKey>,
    notes: &mut Vec<Problem>,
) {
    let in_vain = |part: &&Part<'_>| part.all && part.advertise.prefixes.is_empty();
    for part in parts.iter().filter(in_vain) {
        let families = Families::of(part.peer, part.session.dual_stack);
        let mut left = owners
            .iter()
            .filter(|(p, _)| families.has(p.family()) && !advertise.prefixes.contains(p));
        if let Some((prefix, owner)) = left.next() {
            notes.push(Problem::new(
                subject(part.key),
                "AllOfNothing",
                format!(
                    "{place}.toAdvertise.allowed.mode is all in {}, which has no prefixes that the session carries; {prefix} of {owner} is not advertised to this neighbor. Mode all means the prefixes of its own object",
                    part.key
                ),
            ));
        }
    }
}

/// A profile in one object only stands; two names do not.
fn unite_bfd(place: &str, parts: &[Part<'_>], problems: &mut Vec<Problem>) -> Option<String> {
    let mut chosen: Option<(&ObjectKey, &str)> = None;
    for part in parts {
        let Some(name) = part.session.bfd_profile.as_deref() else {
            continue;
        };
        let (key, known) = *chosen.get_or_insert((part.key, name));
        if known != name {
            problems.push(conflict(
                "NeighborConflict",
                &format!("{place}.bfdProfile"),
                (part.key, name),
                (key, known),
                "a neighbor has one BFD profile",
            ));
        }
    }
    chosen.map(|(_, name)| name.to_owned())
}

fn unite_outgoing(place: &str, parts: &[Part<'_>], problems: &mut Vec<Problem>) -> Outgoing {
    let mut out = Outgoing::default();
    let mut prefs: BTreeMap<Prefix, (&ObjectKey, u32)> = BTreeMap::new();
    let mut hop_v4 = None;
    let mut hop_v6 = None;
    for part in parts {
        let advertise = &part.advertise;
        out.prefixes.extend(advertise.prefixes.iter().copied());
        for (community, prefixes) in &advertise.communities {
            let all: &mut BTreeSet<Prefix> = out.communities.entry(community.clone()).or_default();
            all.extend(prefixes.iter().copied());
        }
        for (value, prefixes) in &advertise.local_prefs {
            let all: &mut BTreeSet<Prefix> = out.local_prefs.entry(*value).or_default();
            all.extend(prefixes.iter().copied());
            for prefix in prefixes {
                let (key, known) = *prefs.entry(*prefix).or_insert((part.key, *value));
                if known != *value {
                    problems.push(conflict(
                        "LocalPrefConflict",
                        &format!("{place}.toAdvertise.withLocalPref of prefix {prefix}"),
                        (part.key, &value.to_string()),
                        (key, &known.to_string()),
                        "a prefix has one local preference",
                    ));
                }
            }
        }
        out.next_hop_v4 = next_hop(
            place,
            part.key,
            advertise.next_hop_v4,
            &mut hop_v4,
            problems,
        );
        out.next_hop_v6 = next_hop(
            place,
            part.key,
            advertise.next_hop_v6,
            &mut hop_v6,
            problems,
        );
    }
    out
}

/// The next hop so far; one that another object sets differently is a conflict.
fn next_hop<'a, A: Copy + PartialEq + std::fmt::Display>(
    place: &str,
    key: &'a ObjectKey,
    hop: Option<A>,
    chosen: &mut Option<(&'a ObjectKey, A)>,
    problems: &mut Vec<Problem>,
) -> Option<A> {
    if let Some(hop) = hop {
        let (first, known) = *chosen.get_or_insert((key, hop));
        if known != hop {
            problems.push(conflict(
                "NextHopConflict",
                &format!("{place}.toAdvertise.nextHop"),
                (key, &hop.to_string()),
                (first, &known.to_string()),
                "a neighbor has one next hop for each family",
            ));
        }
    }
    chosen.map(|(_, hop)| hop)
}

fn unite_incoming(parts: &[Part<'_>]) -> Incoming {
    if parts.iter().any(|part| part.receive.all) {
        return Incoming {
            all: true,
            prefixes: BTreeSet::new(),
        };
    }
    Incoming {
        all: false,
        prefixes: parts
            .iter()
            .flat_map(|part| part.receive.prefixes.iter().copied())
            .collect(),
    }
}
