//! `noverlay frr`: what FRR on a node gets, before anybody loads it.
//! In: files of objects, or the cluster's. Out: frr.conf, and what stands against it or will not work.
//! Invariant: it decides nothing; merge, text and lints are those that frr-agent uses (`frr`).
//! Not here: loading.

use std::path::{Path, PathBuf};

use anyhow::Context;
use model::names::NodeName;
use model::selector::Labels;

pub(crate) mod cluster;
pub(crate) mod documents;
pub(crate) mod render;

use documents::Documents;
use render::{Asked, forecast};

/// What `noverlay frr` can do.
#[derive(Debug, clap::Subcommand)]
pub enum FrrCommand {
    /// Print the frr.conf that a node gets from objects in files, or everything that stands against it.
    Render(RenderArguments),
    /// Tell where what FRR on a node runs differs in meaning from what objects would make it run.
    Diff(DiffArguments),
}

/// Where the objects come from and for which node.
#[derive(Debug, Clone, clap::Args)]
pub struct Objects {
    /// YAML or JSON with FRRConfigurations, Nodes and Secrets; may be given several times, `-` is standard input.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub files: Vec<String>,
    /// The node.
    #[arg(long, value_name = "NAME")]
    pub node: String,
    /// Labels of the node beside kubernetes.io/hostname, where no Node object of that name is among the objects.
    #[arg(long, value_name = "KEY=VALUE,...", value_delimiter = ',')]
    pub labels: Vec<String>,
    /// YAML or JSON with Secrets.
    #[arg(long, value_name = "FILE")]
    pub secrets: Option<PathBuf>,
    /// The namespace whose FRRConfigurations FRR is configured from; objects elsewhere are without effect.
    #[arg(long, default_value = "frr-k8s-system")]
    pub namespace: String,
    /// Nodes whose bgpd does not accept connections (started with -p 0); `*` is every node.
    #[arg(long, value_name = "NODE,...", value_delimiter = ',')]
    pub not_listening: Vec<String>,
}

/// Arguments of `noverlay frr render`.
#[derive(Debug, Clone, clap::Args)]
pub struct RenderArguments {
    /// What goes in.
    #[command(flatten)]
    pub objects: Objects,
    /// Print passwords in clear text.
    #[arg(long)]
    pub show_passwords: bool,
}

/// Arguments of `noverlay frr diff`.
#[derive(Debug, Clone, clap::Args)]
pub struct DiffArguments {
    /// What goes in; without files the cluster's own objects.
    #[command(flatten)]
    pub objects: Objects,
    /// A frr.conf, or a saved running configuration, to compare with; by default what FRR on the node runs.
    #[arg(long, value_name = "FILE")]
    pub against: Option<String>,
}

impl Objects {
    /// The objects of the files.
    fn read(&self) -> anyhow::Result<Documents> {
        let mut documents = Documents::default();
        for file in &self.files {
            documents.read(&documents::load(file)?, &self.namespace)?;
        }
        if let Some(file) = &self.secrets {
            let file = file.to_str().context("--secrets is not UTF-8")?;
            documents.read(&documents::load(file)?, &self.namespace)?;
        }
        Ok(documents)
    }

    fn asked(&self) -> anyhow::Result<Asked> {
        Ok(Asked {
            node: NodeName::from(self.node.as_str()),
            labels: labels(&self.labels)?,
            namespace: self.namespace.clone(),
            not_listening: self.not_listening.iter().cloned().collect(),
        })
    }
}

/// `key=value` texts as labels.
fn labels(given: &[String]) -> anyhow::Result<Labels> {
    let mut out = Labels::new();
    for text in given {
        let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
        let (key, value) = pair.with_context(|| {
            format!("--labels {text:?} is not a label; allowed is KEY=VALUE, several with commas between them")
        })?;
        if let Some(other) = out.insert(key.to_owned(), value.to_owned())
            && other != value
        {
            anyhow::bail!("--labels gives {key} two values, {other:?} and {value:?}");
        }
    }
    Ok(out)
}

/// Text for standard output and for standard error, and whether all is well.
pub(crate) struct Outcome {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) well: bool,
}

/// `noverlay frr render`.
pub(crate) fn render(arguments: &RenderArguments) -> anyhow::Result<Outcome> {
    let asked = arguments.objects.asked()?;
    if arguments.objects.files.is_empty() {
        anyhow::bail!("no objects given; name a file with -f (or - for standard input)");
    }
    let forecast = forecast(&arguments.objects.read()?, &asked);
    let mut err = forecast.messages();
    let out = match &forecast.text {
        None => String::new(),
        Some(text) if arguments.show_passwords => text.clone(),
        Some(text) => {
            let hidden = model::frr::without_passwords(text);
            if hidden != *text {
                err.push_str("note: passwords are not shown; --show-passwords prints them\n");
            }
            hidden
        }
    };
    Ok(Outcome {
        out,
        err,
        well: forecast.is_well(),
    })
}

/// `noverlay frr diff`; the cluster is asked only for what no file gives.
pub(crate) fn diff(
    arguments: &DiffArguments,
    kubeconfig: Option<&Path>,
) -> anyhow::Result<Outcome> {
    let asked = arguments.objects.asked()?;
    let from_cluster = arguments.objects.files.is_empty();
    let documents = if from_cluster {
        cluster::documents(kubeconfig, &arguments.objects)?
    } else {
        arguments.objects.read()?
    };
    let running = match &arguments.against {
        Some(file) => documents::load(file)?.text,
        None => cluster::running(kubeconfig, asked.node.as_str())?,
    };
    let forecast = forecast(&documents, &asked);
    let err = forecast.messages();
    let Some(text) = &forecast.text else {
        return Ok(Outcome {
            out: String::new(),
            err,
            well: false,
        });
    };
    let differences = frr::compare::compare(&running, text);
    Ok(Outcome {
        out: frr::compare::unified(&differences),
        err,
        well: differences.is_empty(),
    })
}

#[cfg(test)]
mod tests;
