//! The admin's command: tells what is true of a cluster, from API objects only.
//! In: a kubeconfig with the read-only role. Out: a table, JSON or YAML; exit status 0, 1 (something is wrong) or 2 (cannot be read).
//! Invariant: it writes nothing to the cluster.
//! Not here: how a state came about (daemons).

mod status;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

pub use status::{NodeLine, Report};

/// Command line.
#[derive(Debug, clap::Parser)]
#[command(
    name = "noverlay",
    about = "What is true of no-overlay networks",
    version
)]
pub struct Arguments {
    /// Kubeconfig; by default $KUBECONFIG, ~/.kube/config, or the pod's own.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Nodes, sessions and routes of the default network, and the RouteAdvertisements.
    Status {
        /// How to print it.
        #[arg(short, long, value_enum, default_value_t = Format::Table)]
        output: Format,
        /// Namespace of the FRRConfigurations.
        #[arg(long, default_value = "frr-k8s-system")]
        frr_namespace: String,
    },
}

/// Forms of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// One JSON object.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Runs a command: 0 where all is well, 1 where something is wrong, 2 where the cluster cannot be read.
pub fn main(arguments: Arguments) -> ExitCode {
    match run(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            let _ = writeln!(
                std::io::stderr(),
                "error: {}",
                telemetry::Chain(error.as_ref())
            );
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let Command::Status {
        output,
        frr_namespace,
    } = arguments.command;
    let report = runtime.block_on(async {
        let client = kube_edge::connect(arguments.kubeconfig.as_deref()).await?;
        status::gather(client, &frr_namespace).await
    })?;
    let text = match output {
        Format::Table => report.table(),
        Format::Json => serde_json::to_string_pretty(&report)? + "\n",
        Format::Yaml => serde_saphyr::to_string(&report)?,
    };
    // A closed pipe is the reader's choice, not a failure of ours.
    drop(std::io::stdout().write_all(text.as_bytes()));
    Ok(report.is_well())
}
