//! cluster-manager: wired in `lib.rs`.

fn main() {}
