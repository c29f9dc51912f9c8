//! What FRR says: bgpd's list of neighbors, the shell's and the reload tool's complaints, two running configurations.
//!
//! In: one byte that chooses what it is, then the text. Out: nothing.
//! Invariant: reading ends; a neighbor that bgpd lists is a session or the whole list is an error; a configuration
//! differs from itself nowhere, and from another one the same way from both sides.
//! Not here: sockets and processes.

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
            for session in &sessions {
                assert!(!session.bgp.is_empty() || text.contains("\"bgpState\""));
            }
            let mut sorted = sessions.clone();
            sorted.sort();
            assert_eq!(sessions, sorted);
        }
        1 => {
            for refusal in frr_edge::refusal::lift(&text) {
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
