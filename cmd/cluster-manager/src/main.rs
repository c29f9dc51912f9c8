//! `cluster-manager`: arguments in, exit status out; everything else is wired in `lib.rs`.

use clap::Parser;
use cluster_manager::Arguments;

fn main() -> std::process::ExitCode {
    telemetry::exit_code(cluster_manager::run(Arguments::parse()))
}
