//! What must hold for every input that a server, the kernel or a user may send, however broken.
//!
//! In: bytes. Out: nothing; a check panics where a property does not hold.
//! Invariant: what a check says follows from its bytes, so an input that failed fails again. One has more to say where
//! NOVERLAY_FUZZ_VTYSH is set: `objects` has FRR's shell read what it makes.
//! Not here: how inputs are made up; libFuzzer does (`hack/fuzz`), and the stored ones are in `corpus`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a check fails by panicking"
)]

pub mod answers;
pub mod frames;
pub mod netlink;
pub mod nodes;
pub mod objects;
pub mod replica;
pub mod session;
pub mod settings;
pub mod values;

/// A check by its name.
pub type Check = fn(&[u8]);

/// Every check, by the name of its target and of its folder in `corpus`.
pub const TARGETS: [(&str, Check); 9] = [
    ("frames", frames::check),
    ("values", values::check),
    ("replica", replica::check),
    ("session", session::check),
    ("netlink", netlink::check),
    ("objects", objects::check),
    ("nodes", nodes::check),
    ("settings", settings::check),
    ("answers", answers::check),
];

/// `bytes` in pieces of 1 to 16 bytes whose sizes follow from `seed`.
fn pieces(bytes: &[u8], seed: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    let mut state = u32::from(seed) + 1;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let size = usize::try_from((state >> 16) % 16 + 1).unwrap();
        let (piece, later) = rest.split_at(size.min(rest.len()));
        rest = later;
        Some(piece)
    })
}
