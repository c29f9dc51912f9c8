//! The command as a person runs it.

use std::io::Write;
use std::process::{Command, Stdio};

/// How it ended, and what it printed where.
pub(crate) struct Ran {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `noverlay` with words and standard input.
pub(crate) fn noverlay(words: &[&str], input: &str) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_noverlay"))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended before it read.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    let done = child.wait_with_output().unwrap();
    Ran {
        status: done.status.code(),
        out: String::from_utf8(done.stdout).unwrap(),
        err: String::from_utf8(done.stderr).unwrap(),
    }
}
