//! frr-agent: wired in `lib.rs`.

fn main() {}
