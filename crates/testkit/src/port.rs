//! TCP ports for servers that a test starts as processes.
//! In: nothing. Out: a port of 127.0.0.1. Invariant: no port twice in a process, none that the kernel gives to clients.
//! Not here: servers in the test's own process, which bind port 0.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below `net.ipv4.ip_local_port_range` as Linux sets it: from that range the kernel takes the port of each connection,
/// and a server started a moment later could not listen there.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// How many this process has been given.
static GIVEN: AtomicU32 = AtomicU32::new(0);

/// A port of 127.0.0.1 in 12000 to 31999 that nobody listens on at this moment. Where it begins to look differs by process,
/// so that tests of several processes do not race for the same ones.
///
/// # Panics
/// When all are taken.
#[must_use]
pub fn free() -> u16 {
    let begin = std::process::id().wrapping_mul(2_654_435_761) >> 8;
    for _try in 0..COUNT {
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        let offset = begin.wrapping_add(given) % u32::from(COUNT);
        let port = FIRST + u16::try_from(offset).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("each port of {FIRST} to {} is taken", FIRST + COUNT - 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_below_those_of_clients_and_not_where_somebody_listens() {
        let first = free();
        let taken = TcpListener::bind(("127.0.0.1", first + 1));
        let next = free();
        assert!((FIRST..FIRST + COUNT).contains(&first) && next != first);
        assert!(taken.is_err() || next != first + 1, "{next} is listened on");
    }
}
