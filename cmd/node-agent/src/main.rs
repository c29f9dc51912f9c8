//! `node-agent`: arguments in, exit status out; everything else is wired in `lib.rs`.

use clap::Parser;
use node_agent::Arguments;

fn main() -> std::process::ExitCode {
    telemetry::exit_code(node_agent::run(Arguments::parse()))
}
