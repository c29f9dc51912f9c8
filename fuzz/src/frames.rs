//! The frame splitter: what it cuts out does not depend on how the bytes came.
//!
//! In: the cap in units of 8 bytes, a seed for the pieces, then the stream. Out: nothing.
//! Invariant: the same frames and the same error for the whole, for pieces and for single bytes; nothing between the
//! frames but white space is passed over.
//! Not here: what is in the frames.

use ovsdb::frame::{FrameError, Framer};

/// Splits the stream in three ways and compares.
///
/// # Panics
/// Where they differ.
pub fn check(bytes: &[u8]) {
    let [cap, seed, stream @ ..] = bytes else {
        return;
    };
    let max = 8 * usize::from(*cap) + 1;
    let whole = split(std::iter::once(stream), max);
    assert_eq!(whole, split(super::pieces(stream, *seed), max), "in pieces");
    assert_eq!(whole, split(stream.chunks(1), max), "in single bytes");

    let (frames, end) = whole;
    let mut rest = stream;
    for frame in &frames {
        assert!(frame.len() <= max, "a frame beyond the cap");
        assert!(frame.starts_with(b"{") && matches!(frame.last(), Some(b'}' | b']')));
        rest = rest.trim_ascii_start_json();
        rest = rest
            .strip_prefix(frame.as_slice())
            .expect("frames in order, without gaps");
    }
    if let Err(FrameError::NotAnObject { byte }) = end {
        assert_eq!(rest.trim_ascii_start_json().first(), Some(&byte));
    }
}

type Split = (Vec<Vec<u8>>, Result<(), FrameError>);

fn split<'a>(pieces: impl Iterator<Item = &'a [u8]>, max: usize) -> Split {
    let mut framer = Framer::new(max);
    let mut frames = Vec::new();
    for piece in pieces {
        framer.push(piece);
        loop {
            match framer.next_frame() {
                Ok(Some(frame)) => frames.push(frame.to_vec()),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, Ok(()))
}

trait Trim {
    fn trim_ascii_start_json(&self) -> &Self;
}

impl Trim for [u8] {
    /// Without the white space of JSON at the start.
    fn trim_ascii_start_json(&self) -> &Self {
        let at = self
            .iter()
            .position(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
        self.get(at.unwrap_or(self.len())..).unwrap_or_default()
    }
}
