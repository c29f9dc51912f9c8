//! Netlink buffers: read to their end, or refused.
//!
//! In: where to cut, then the bytes of a datagram. Out: nothing.
//! Invariant: reading ends; a buffer cut off inside a message is reported as such, never as a shorter list, and the watcher
//! says that something was lost.
//! Not here: sockets.

use netlink::probe::read;

/// Reads the buffer as a dump and as the watcher does, whole and cut.
///
/// # Panics
/// Where a cut goes unnoticed.
pub fn check(bytes: &[u8]) {
    let [low, high, buffer @ ..] = bytes else {
        return;
    };
    let whole = read(buffer);
    assert!(
        whole.messages * 16 <= buffer.len(),
        "a message is at least a header"
    );
    assert!(!whole.cut_off || whole.change.lost, "what is lost is said");
    assert!(whole.routes + whole.nexthops == 0 || whole.change.routes);
    let at = usize::from(u16::from_le_bytes([*low, *high])) % (buffer.len() + 1);
    let cut = read(&buffer[..at]);
    assert!(cut.messages <= whole.messages);
    if !whole.cut_off && cut.messages < whole.messages {
        let boundary = whole
            .ends
            .iter()
            .any(|&(end, padded)| (end..=padded).contains(&at))
            || at == 0;
        assert_eq!(cut.cut_off, !boundary, "cut at {at} of {:?}", whole.ends);
    }
}
