//! noverlay: wired in `lib.rs`.

fn main() {}
