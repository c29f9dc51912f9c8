//! What is believed of FRR's sessions from one probe to the next.
//! In: what bgpd showed, or that it did not. Out: sessions to tell.
//! Invariant: a session is taken for gone only by a bgpd that answers; one of which bgpd tells nothing is never reported as
//! established for longer than [`BELIEVED`]; that we cannot ask changes nothing, and is reported in FRRNodeState.
//! Not here: asking.

use std::time::Duration;

use api::frr_state::BGPSessionStateStatus;
use model::frr::SessionState;
use tokio::time::Instant;

/// A bgpd that shows no session at all is believed after this time: one that has just started has none for a moment.
/// And for so long neither an answer that cannot be read nor one that does not come changes anything.
const BELIEVED: Duration = Duration::from_secs(10);

const IDLE: &str = "Idle";
const NO_BFD: &str = "N/A";

/// One probe at bgpd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// Its sessions.
    Sessions(Vec<SessionState>),
    /// It is away: nobody listens, or it ended while it was asked.
    Gone,
    /// It was asked at this time, and did not answer.
    Silent(Instant),
    /// It answers, and the answer cannot be read.
    Unreadable,
    /// We may not ask it, or lack a descriptor to do so: that is no word of bgpd's.
    Unasked,
}

/// The sessions that were shown last.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// `None`: none was ever shown.
    last: Option<Vec<SessionState>>,
    /// Since when it shows none.
    empty_since: Option<Instant>,
    /// The last answer could not be read, or not be asked for.
    puzzled: bool,
    /// Since when nothing can be known of it.
    dark_since: Option<Instant>,
}

impl Memory {
    /// Whether the last answer could not be read, or not be asked for.
    pub(super) fn is_puzzled(&self) -> bool {
        self.puzzled
    }

    /// The sessions to tell; `None` where nothing is known of any.
    pub(super) fn believed(&mut self, seen: Seen, now: Instant) -> Option<Vec<SessionState>> {
        self.puzzled = matches!(seen, Seen::Unreadable | Seen::Unasked);
        if matches!(seen, Seen::Sessions(_) | Seen::Gone) {
            self.dark_since = None;
        }
        match seen {
            Seen::Sessions(sessions) if sessions.is_empty() => {
                let since = *self.empty_since.get_or_insert(now);
                if now.saturating_duration_since(since) > BELIEVED {
                    self.last = Some(sessions);
                }
                self.all_idle();
            }
            Seen::Sessions(sessions) => {
                self.empty_since = None;
                self.last = Some(sessions);
            }
            Seen::Gone => {
                self.empty_since = None;
                self.all_idle();
            }
            Seen::Silent(asked) => self.dark(asked, now),
            Seen::Unreadable => self.dark(now, now),
            Seen::Unasked => self.empty_since = None,
        }
        self.last.clone()
    }

    fn dark(&mut self, from: Instant, now: Instant) {
        self.empty_since = None;
        let since = *self.dark_since.get_or_insert(from);
        if now.saturating_duration_since(since) > BELIEVED {
            self.all_idle();
        }
    }

    fn all_idle(&mut self) {
        for session in self.last.iter_mut().flatten() {
            IDLE.clone_into(&mut session.bgp);
            NO_BFD.clone_into(&mut session.bfd);
            (session.received, session.sent) = (0, 0);
        }
    }
}

/// The same for a session of which only the object is known.
pub(super) fn idle(mut status: BGPSessionStateStatus) -> BGPSessionStateStatus {
    status.bgp_status = Some(IDLE.to_owned());
    status.bfd_status = Some(NO_BFD.to_owned());
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up() -> Seen {
        Seen::Sessions(vec![SessionState {
            vrf: String::new(),
            peer: "10.0.0.2".to_owned(),
            bgp: "Established".to_owned(),
            bfd: "Up".to_owned(),
            received: 3,
            sent: 1,
        }])
    }

    fn reported(memory: &mut Memory, seen: Seen, now: Instant) -> String {
        match memory.believed(seen, now) {
            None => "unknown".to_owned(),
            Some(sessions) => sessions.iter().map(|s| s.bgp.clone()).collect(),
        }
    }

    #[test]
    fn sessions_are_idle_while_bgpd_is_away_and_gone_only_when_it_shows_none_for_long() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let none = || Seen::Sessions(Vec::new());
        for (seen, seconds, wanted) in [
            (up(), 0, "Established"),
            (Seen::Gone, 1, "Idle"),
            (Seen::Gone, 100, "Idle"),
            (none(), 101, "Idle"),
            (none(), 110, "Idle"),
            // It went away once more in between.
            (Seen::Gone, 111, "Idle"),
            (none(), 113, "Idle"),
            (none(), 122, "Idle"),
            (up(), 123, "Established"),
            (none(), 124, "Idle"),
            (none(), 135, ""),
        ] {
            assert_eq!(
                reported(&mut memory, seen, at(seconds)),
                wanted,
                "{seconds}"
            );
        }
    }

    #[test]
    fn an_answer_that_cannot_be_read_takes_no_session_away_and_is_no_good_news_for_long() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for (seen, seconds, wanted) in [
            (Seen::Unreadable, 0, "unknown"),
            (up(), 1, "Established"),
            (Seen::Unreadable, 2, "Established"),
            (Seen::Unreadable, 12, "Established"),
            (Seen::Unreadable, 13, "Idle"),
            (Seen::Unreadable, 1000, "Idle"),
            (up(), 1001, "Established"),
            (Seen::Unreadable, 1002, "Established"),
        ] {
            assert_eq!(
                reported(&mut memory, seen, at(seconds)),
                wanted,
                "{seconds}"
            );
        }
        assert!(memory.is_puzzled());
    }

    #[test]
    fn a_bgpd_that_is_slow_once_costs_nothing_and_one_that_is_silent_for_long_or_gone_does() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let silent = |asked| Seen::Silent(at(asked));
        for (seen, seconds, wanted) in [
            (silent(0), 5, "unknown"),
            (up(), 6, "Established"),
            // Slow once, for a second and for five.
            (silent(7), 8, "Established"),
            (up(), 9, "Established"),
            (silent(10), 15, "Established"),
            (up(), 16, "Established"),
            // Silent for more than ten seconds since it was asked in vain for the first time.
            (silent(20), 25, "Established"),
            (silent(25), 30, "Established"),
            (silent(30), 31, "Idle"),
            (silent(31), 1000, "Idle"),
            (up(), 1001, "Established"),
            // Silent and unreadable in turn are not each a time of their own.
            (silent(1002), 1007, "Established"),
            (Seen::Unreadable, 1012, "Established"),
            (silent(1012), 1013, "Idle"),
            (up(), 1014, "Established"),
            (Seen::Gone, 1015, "Idle"),
            (silent(1016), 1017, "Idle"),
            (up(), 1018, "Established"),
        ] {
            assert_eq!(
                reported(&mut memory, seen, at(seconds)),
                wanted,
                "{seconds}"
            );
            assert_eq!(memory.is_puzzled(), seconds == 1012);
        }
    }

    #[test]
    fn sessions_stay_as_they_were_while_bgpd_cannot_be_asked() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for (seen, seconds, wanted) in [
            (Seen::Unasked, 0, "unknown"),
            (up(), 1, "Established"),
            (Seen::Unasked, 2, "Established"),
            (Seen::Unasked, 1000, "Established"),
            (Seen::Gone, 1001, "Idle"),
            (Seen::Unasked, 1002, "Idle"),
            (up(), 1003, "Established"),
        ] {
            assert_eq!(
                reported(&mut memory, seen, at(seconds)),
                wanted,
                "{seconds}"
            );
        }
    }

    #[test]
    fn without_any_probe_that_showed_something_nothing_is_known_until_bgpd_shows_none_for_long() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for (seen, seconds, wanted) in [
            (Seen::Gone, 0, "unknown"),
            (Seen::Gone, 60, "unknown"),
            (Seen::Sessions(Vec::new()), 61, "unknown"),
            (Seen::Sessions(Vec::new()), 72, ""),
        ] {
            assert_eq!(
                reported(&mut memory, seen, at(seconds)),
                wanted,
                "{seconds}"
            );
        }
    }
}
