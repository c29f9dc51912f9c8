//! `frr-agent`: arguments in, exit status out; everything else is wired in `lib.rs`.

use clap::Parser;
use frr_agent::Arguments;

fn main() -> std::process::ExitCode {
    telemetry::exit_code(frr_agent::run(Arguments::parse()))
}
