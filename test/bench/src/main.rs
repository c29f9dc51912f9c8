//! Benchmarks of the product's parts on real ones: what changes cost, and how long they take.
//! In: a case by name. Out: a table, and one JSON object a line. Invariant: numbers are printed, never evaluated here.
//! Not here: tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a benchmark that cannot go on ends"
)]

mod agent;
mod cases;
mod floor;
mod kernel;
mod manager;
mod networks;
mod observe;
mod plan;
mod process;
mod rate;
mod report;
mod sets;
mod storm;
mod testbed;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "bench", about = "Benchmarks on real parts")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Route import: kernel routes of BGP into a real Northbound database.
    Import(ImportArguments),
    /// Planning alone, of the node-agent and of the cluster-manager, over many nodes and networks.
    Plan(plan::PlanArguments),
    /// The cluster-manager on a real API server: first start, nodes and networks that come and go, restart.
    Manager(manager::ManagerArguments),
    /// `import` into the whole node-agent of a running lab; `hack/bench import --whole` calls it.
    #[command(hide = true)]
    Whole(WholeArguments),
    /// The process under test of `import`: the node-agent's import and nothing else.
    #[command(hide = true)]
    Agent(agent::AgentArguments),
}

/// What of the import is measured.
#[derive(Debug, clap::Args)]
struct ImportArguments {
    /// Writes one JSON object a line into this file: bench, case, metric, unit, value, floor.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Only cases whose name contains this text, for example `10000x1` or `storm`.
    #[arg(long)]
    only: Option<String>,
    /// A choice of cases that takes less than a minute.
    #[arg(long)]
    quick: bool,
    /// Instead: so many networks of users in one process.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=4000), conflicts_with_all = ["only", "quick"])]
    networks: u16,
    /// Instead: into an Address_Set of so many subnets of other nodes, as beside OVN-Kubernetes.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=50_000), conflicts_with_all = ["only", "quick", "networks"])]
    sets: u32,
    /// With `--networks`: how many routes each of them has, one for each other node.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    routes: u32,
}

/// Where the whole node-agent runs.
#[derive(Debug, clap::Args)]
struct WholeArguments {
    /// Network namespace of the node.
    #[arg(long)]
    namespace: String,
    /// Socket of its Northbound database.
    #[arg(long)]
    north: PathBuf,
    /// Process of its Northbound database.
    #[arg(long)]
    database: u32,
    /// Process of its node-agent.
    #[arg(long)]
    agent: u32,
    /// As for `import`.
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().what {
        What::Import(arguments) => {
            netns_tests::in_namespace(|| cases::import(arguments));
            Ok(())
        }
        What::Plan(arguments) => {
            plan::plan(&arguments);
            Ok(())
        }
        What::Manager(arguments) => manager::manager(&arguments),
        What::Whole(arguments) => {
            let namespace = arguments.namespace.clone();
            netns_tests::in_namespace_of(&namespace, || cases::whole(arguments));
            Ok(())
        }
        What::Agent(arguments) => agent::run(&arguments),
    }
}
