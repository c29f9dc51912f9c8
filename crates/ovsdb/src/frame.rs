//! Cuts a byte stream into JSON objects, which is all the framing OVSDB has.
//!
//! In: bytes as they were read, in pieces of any size. Out: one slice per whole object.
//! Invariant: every byte is looked at once, however the pieces are cut; neither the frames nor the error depend on
//! the cuts; a frame begins with its brace.
//! Not here: JSON. Brackets are counted outside of strings, and the parser checks the rest.
//!
//! ```text
//!   buffer:  | consumed frames | whole frame | half frame ... |
//!            0                 start         scanned           len
//! ```

/// The default for the greatest size of one frame: 512 MiB.
pub const DEFAULT_MAX_FRAME: usize = 512 << 20;

/// A buffer this much larger than its content is given back after a frame.
const KEEP_CAPACITY: usize = 1 << 20;

/// The stream is not a sequence of JSON objects of bounded size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Something else than an object begins.
    #[error("byte {byte:#04x} where a JSON object should begin")]
    NotAnObject {
        /// The byte found.
        byte: u8,
    },
    /// A frame grew beyond the cap before it ended.
    #[error("frame larger than {max} bytes")]
    TooLarge {
        /// The cap, bytes.
        max: usize,
    },
}

/// A resumable scanner for back-to-back JSON objects.
#[derive(Debug)]
pub struct Framer {
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    max: usize,
}

impl Framer {
    /// A framer that refuses frames larger than `max` bytes.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            depth: 0,
            in_string: false,
            escaped: false,
            max,
        }
    }

    /// Takes in bytes as they were read.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            // What remains here came with the last push, so the move costs no more than that push did.
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
            if self.buffer.capacity() > KEEP_CAPACITY && self.buffer.len() < KEEP_CAPACITY / 2 {
                self.buffer.shrink_to(KEEP_CAPACITY / 2);
            }
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, or nothing before more bytes come. After an error the stream is lost.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        if self.start == self.buffer.len() && self.buffer.capacity() > KEEP_CAPACITY {
            // All is consumed, and what follows a dump may be long in coming.
            self.buffer = Vec::new();
            (self.start, self.scanned) = (0, 0);
        }
        let unscanned = self.buffer.get(self.scanned..).unwrap_or_default();
        let mut end = None;
        for (at, &byte) in unscanned.iter().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'{' | b'[' if byte == b'{' || self.depth > 0 => self.depth += 1,
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        end = Some(self.scanned + at + 1);
                        break;
                    }
                }
                b'"' if self.depth > 0 => self.in_string = true,
                _ if self.depth > 0 => {}
                // White space between frames belongs to none, so it counts against no cap.
                b' ' | b'\t' | b'\r' | b'\n' => self.start = self.scanned + at + 1,
                _ => {
                    self.scanned += at;
                    return Err(FrameError::NotAnObject { byte });
                }
            }
        }
        let upto = end.unwrap_or(self.buffer.len());
        self.scanned = upto;
        if upto - self.start > self.max {
            return Err(FrameError::TooLarge { max: self.max });
        }
        if end.is_none() {
            return Ok(None);
        }
        let start = std::mem::replace(&mut self.start, upto);
        Ok(self.buffer.get(start..upto))
    }
}

#[cfg(test)]
mod tests;
