//! `noverlay` (also `kubectl noverlay`): arguments in, exit status out; everything else is wired in `lib.rs`.

use clap::Parser;
use noverlay::Arguments;

fn main() -> std::process::ExitCode {
    noverlay::main(Arguments::parse())
}
