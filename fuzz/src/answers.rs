//! What FRR says: bgpd's list of neighbors, the shell's and the reload tool's complaints, two running configurations.
//!
//! In: one byte that chooses what it is, then the text. Out: nothing.
//! Invariant: reading ends; each neighbor that bgpd lists is a session with its VRF, address and state, and nothing else is,
//! or the whole list is an error; a configuration differs from itself nowhere, and from another one the same way from both
//! sides.
//! Not here: sockets and processes.

use serde_json::Value;

/// Reads the text as an answer of that kind.
///
/// # Panics
/// Where a neighbor is lost, or a comparison has sides.
pub fn check(bytes: &[u8]) {
    let [kind, text @ ..] = bytes else { return };
    let text = String::from_utf8_lossy(text);
    match kind % 3 {
        0 => {
            let Ok(sessions) = frr_edge::show::read_sessions(&text) else {
                return;
            };
            let seen: Vec<_> = (sessions.iter())
                .map(|s| (s.vrf.clone(), s.peer.clone(), s.bgp.clone()))
                .collect();
            let mut listed = listed(&text);
            listed.sort();
            assert_eq!(seen, listed, "sessions, and the neighbors that are listed");
            let mut sorted = sessions.clone();
            sorted.sort();
            assert_eq!(sessions, sorted);
        }
        1 => {
            for refusal in frr_edge::refusal::decode(&text) {
                assert!(!refusal.to_string().is_empty());
            }
        }
        _ => {
            let (one, two) = text.split_once('\0').unwrap_or((&text, ""));
            assert!(frr::compare::compare(one, one).is_empty());
            let there = frr::compare::compare(one, two).len();
            assert_eq!(there, frr::compare::compare(two, one).len());
        }
    }
}

/// VRF, address and state of each neighbor in the list, read without our types: the neighbors are the maps inside the maps.
fn listed(text: &str) -> Vec<(String, String, String)> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    let all: Value = serde_json::from_str(text).expect("sessions were read of what is no JSON");
    let mut out = Vec::new();
    for (vrf, members) in all.as_object().expect("sessions were read of no map") {
        for (peer, neighbor) in members.as_object().into_iter().flatten() {
            if neighbor.is_object() {
                let state = neighbor["bgpState"].as_str().expect("a neighbor's state");
                let vrf = if vrf == "default" { "" } else { vrf };
                out.push((vrf.to_owned(), peer.clone(), state.to_owned()));
            }
        }
    }
    out
}
