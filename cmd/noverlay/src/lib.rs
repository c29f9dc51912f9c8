//! The admin's command: tells what is true of a cluster, from API objects only, and what objects and changes would become.
//! In: a kubeconfig with the read-only role, or files. Out: text; exit status 0, 1 (something is wrong) or 2 (cannot be read).
//! Invariant: it writes nothing to the cluster.
//! Not here: how a state came about (daemons).

mod conf;
mod convert;
mod plan;
mod status;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use settings::Settings;

pub use conf::{DiffArguments, FrrCommand, Objects, RenderArguments};
pub use convert::ConvertArguments;
pub use plan::{PlanArguments, PlanFormat};
pub use status::{AdvertisementLine, FabricLine, NetworkLine, NodeLine, Report};

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
    /// Networks, RouteAdvertisements, the managed fabric, and of each node sessions and routes of the default network.
    Status {
        /// How to print it.
        #[arg(short, long, value_enum, default_value_t = Format::Table)]
        output: Format,
        /// Namespace of the FRRConfigurations.
        #[arg(long, default_value = "frr-k8s-system")]
        frr_namespace: String,
        /// The cluster-manager's configuration file; TOML where its name ends in .toml, ovnkube.conf (gcfg) syntax otherwise.
        /// No object says what it declares of the default network's transport where that one is not managed.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// What FRR on a node gets from FRRConfigurations.
    #[command(subcommand)]
    Frr(FrrCommand),
    /// What the cluster-manager would write, and what a change would do, before it is applied.
    Plan(PlanArguments),
    /// Objects in older forms of the design documents, in the current one.
    Convert(ConvertArguments),
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
    match arguments.command {
        Command::Status {
            output,
            frr_namespace,
            config,
        } => {
            let read = |path: &Path| {
                let (name, text) = plan::file_of(path)?;
                plan::settings_of(&name, &text)
            };
            let settings = config.as_deref().map(read).transpose()?;
            let kubeconfig = arguments.kubeconfig.as_deref();
            status(kubeconfig, output, &frr_namespace, settings.as_ref())
        }
        Command::Frr(command) => {
            let outcome = match command {
                FrrCommand::Render(render) => conf::render(&render)?,
                FrrCommand::Diff(diff) => conf::diff(&diff, arguments.kubeconfig.as_deref())?,
            };
            Ok(shown(&outcome))
        }
        Command::Plan(plan) => {
            let outcome = plan::plan(&plan, arguments.kubeconfig.as_deref())?;
            Ok(shown(&outcome))
        }
        Command::Convert(convert) => Ok(shown(&convert::convert(&convert)?)),
    }
}

/// Prints what a command has to say; whether all is well.
fn shown(outcome: &conf::Outcome) -> bool {
    print(&outcome.out);
    drop(std::io::stderr().write_all(outcome.err.as_bytes()));
    outcome.well
}

fn status(
    kubeconfig: Option<&Path>,
    output: Format,
    frr_namespace: &str,
    settings: Option<&Settings>,
) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let report = runtime.block_on(async {
        let client = kube_edge::connect(kubeconfig).await?;
        let report = status::gather(client.clone(), frr_namespace, settings).await;
        // A kind that is not installed is seldom the only one.
        if report.as_ref().is_err_and(status::lacks_a_kind) {
            for line in status::definitions(&client).await {
                drop(writeln!(std::io::stderr(), "{line}"));
            }
        }
        report
    })?;
    let text = match output {
        Format::Table => report.table(),
        Format::Json => serde_json::to_string_pretty(&report)? + "\n",
        Format::Yaml => serde_saphyr::to_string(&report)?,
    };
    print(&text);
    Ok(report.is_well())
}

/// A closed pipe is the reader's choice, not a failure of ours.
fn print(text: &str) {
    drop(std::io::stdout().write_all(text.as_bytes()));
}
