//! The session: every call ends once, however the server's bytes come and whatever they say.
//!
//! In: a seed for the pieces, then what the server sends. Out: nothing.
//! Invariant: events, answers and the error are the same for the whole and for pieces; what is written is one JSON
//! object a frame.
//! Not here: sockets, and what the client makes of the events.

use std::time::{Duration, Instant};

use ovsdb::session::{Event, Loss, Request, Session, SessionConfig};
use serde_json::Value;

/// Calls 0 to 3 are sent, 4 and 5 are not.
const CALLS: usize = 6;
const SENT: usize = 4;
const CAP: usize = 4096;

/// Has the conversation twice and compares.
///
/// # Panics
/// Where it differs, or a call does not end once.
pub fn check(bytes: &[u8]) {
    let [seed, stream @ ..] = bytes else {
        return;
    };
    let now = start();
    let whole = converse(now, std::iter::once(stream));
    let pieces = converse(now, super::pieces(stream, *seed));
    assert_eq!(whole, pieces);
}

#[derive(Debug, PartialEq, Eq)]
struct Reported {
    events: Vec<String>,
    written: Vec<Value>,
    error: Option<String>,
}

fn converse<'a>(now: Instant, pieces: impl Iterator<Item = &'a [u8]>) -> Reported {
    let settings = SessionConfig {
        probe_interval: Duration::from_secs(10),
        max_frame: CAP,
    };
    let mut session = Session::new(settings, now);
    let mut ended = [0_u8; CALLS];
    for call in 0..CALLS {
        let limit = (call % 2 == 0).then_some(Duration::from_secs(1));
        session.call(now, Request::new("echo", &[call]).unwrap(), limit, call);
        if call < SENT {
            session.next_outgoing().unwrap();
        }
    }
    let mut events = Vec::new();
    let mut on = |event: Event<'_, usize>| {
        events.push(format!("{event:?}"));
        if let Event::Reply { token, .. } | Event::TimedOut { token } = event {
            ended[token] += 1;
        }
    };
    let mut error = None;
    for piece in pieces {
        if let Err(why) = session.receive(now, piece, &mut on) {
            error = Some(format!("{why:?}"));
            break;
        }
    }
    if error.is_none() {
        session
            .on_timeout(now + Duration::from_secs(1), &mut on)
            .unwrap();
        assert!(session.next_deadline() >= Some(now + Duration::from_secs(10)));
    }
    let mut written = Vec::new();
    while let Some(frame) = session.next_outgoing() {
        written.push(serde_json::from_slice(&frame).expect("one JSON value a frame"));
    }
    for (call, loss) in session.close() {
        // The rest was written just now.
        assert_eq!(loss, Loss::MaybeApplied);
        ended[call] += 1;
    }
    assert_eq!(ended, [1; CALLS], "every call ends once");
    Reported {
        events,
        written,
        error,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only way to an instant; all others are relative to it"
)]
fn start() -> Instant {
    Instant::now()
}
