//! The cluster-manager as a process of its own, for tests that signal it or cut its connections.
//! In: a configuration file and an identity, as arguments. Out: the daemon's own `run`, its end and its exit status.
//! Not here: tests.
#![allow(clippy::print_stderr, reason = "the tests read it")]

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(config), Some(identity)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: kube-tests-manager CONFIG IDENTITY");
        std::process::exit(2);
    };
    let config = config.into();
    if let Err(error) = cluster_manager::run(cluster_manager::Arguments { config, identity }) {
        eprintln!("{error:#}");
        std::process::exit(1);
    }
}
