//! `noverlay plan`: what the cluster-manager would make of a cluster, or of a change to it, before anybody applies it.
//! In: objects of files or of the cluster, the configuration file, a change. Out: what would be written, conditions, and how
//! each node's frr.conf would differ.
//! Invariant: it decides nothing; the passes are the manager's (`offline`), the text is frr-agent's (`frr`). Nothing is written.
//! Not here: schemas and admission, which only an API server has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use model::intent::Condition;
use model::{NodeName, ObjectKey};
use offline::{Objects, Plans};
use serde_json::Value;
use settings::{File, InForce, Settings};
use similar::TextDiff;

use crate::conf::documents::{self, Documents};
use crate::conf::render::{Asked, Forecast, forecast};
use crate::conf::{Outcome, cluster};

/// Arguments of `noverlay plan`.
#[derive(Debug, Clone, clap::Args)]
pub struct PlanArguments {
    /// YAML or JSON with the cluster's objects; may be given several times, `-` is standard input. Without it they are read
    /// from the cluster.
    #[arg(long = "world", value_name = "FILE")]
    pub world: Vec<String>,
    /// The cluster-manager's configuration file; TOML where its name ends in .toml, ovnkube.conf (gcfg) syntax otherwise.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// YAML or JSON with objects to apply on top; may be given several times, `-` is standard input.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub change: Vec<String>,
    /// An object to delete, `KIND/NAME` or `KIND/NAMESPACE/NAME`; may be given several times.
    #[arg(long, value_name = "OBJECT")]
    pub delete: Vec<String>,
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = PlanFormat::Text)]
    pub output: PlanFormat,
    /// Print how each object differs, too.
    #[arg(long)]
    pub diff: bool,
}

/// Forms of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum PlanFormat {
    /// What would be written, conditions, and differences of each node's frr.conf.
    Text,
    /// Everything that would be there in the end, as YAML.
    Yaml,
}

/// Runs it; all is well where nothing is refused and every node's configuration loads.
pub(crate) fn plan(
    arguments: &PlanArguments,
    kubeconfig: Option<&std::path::Path>,
) -> anyhow::Result<Outcome> {
    let (name, file) = file_of(&arguments.config)?;
    let settings = settings_of(&name, &file)?;
    let file = File {
        settings: &settings,
        text: Some((&name, &file)),
    };
    let world = if arguments.world.is_empty() {
        cluster::world(kubeconfig, settings.openshift.is_some())?
    } else {
        read(&arguments.world)?
    };
    let mut after = world.clone();
    let mut in_force = offline::in_force(file, &after, None);
    let changes = !arguments.change.is_empty() || !arguments.delete.is_empty();
    let before = if changes {
        // What is not yet as the manager wants it is not the change's doing.
        settle(&in_force, &mut after)?;
        after.clone()
    } else {
        world
    };
    for file in &arguments.change {
        let file = documents::load(file)?;
        let applied = after.apply(&file.text);
        applied.map_err(|why| anyhow::anyhow!("{}: {why}", file.name))?;
    }
    for object in &arguments.delete {
        delete(&mut after, object)?;
    }
    if changes {
        in_force = offline::in_force(file, &after, Some(&in_force));
    }
    let plans = settle(&in_force, &mut after)?;
    let nodes = Nodes::of(&in_force.settings, &before, &after);
    let wrong = wrong(&in_force, &plans, &after);
    let out = match arguments.output {
        PlanFormat::Yaml => serde_saphyr::to_string(&offline::state(&plans, &after))?,
        PlanFormat::Text => text(arguments.diff, &before, &after, &wrong, &nodes),
    };
    let well = nodes.broken.is_empty() && wrong.is_empty();
    Ok(Outcome {
        out,
        err: String::new(),
        well,
    })
}

/// Name and text of the cluster-manager's file.
pub(crate) fn file_of(path: &Path) -> anyhow::Result<(String, String)> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read configuration file {}", path.display()))?;
    Ok((path.display().to_string(), text))
}

/// The cluster-manager's settings.
pub(crate) fn settings_of(name: &str, text: &str) -> anyhow::Result<Settings> {
    let metrics = SocketAddr::from(([127, 0, 0, 1], 9160));
    Ok(settings::parse(name, text, metrics)?)
}

fn read(files: &[String]) -> anyhow::Result<Objects> {
    let mut objects = Objects::default();
    for file in files {
        let file = documents::load(file)?;
        let read = objects.read(&file.text);
        read.map_err(|why| anyhow::anyhow!("{}: {why}", file.name))?;
    }
    Ok(objects)
}

fn settle(in_force: &InForce, objects: &mut Objects) -> anyhow::Result<Plans> {
    offline::settle_refusing(in_force, objects).map_err(anyhow::Error::msg)
}

/// Deletes an object as a person would: one with a finalizer waits for whoever put that there.
fn delete(objects: &mut Objects, object: &str) -> anyhow::Result<()> {
    let (kind, name) = object.split_once('/').with_context(|| {
        format!("--delete {object:?}: allowed is KIND/NAME or KIND/NAMESPACE/NAME")
    })?;
    let Some(found) = objects.get_mut(kind, name) else {
        bail!("--delete {object:?}: there is no {kind} {name}");
    };
    let finalizers = found
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array);
    if finalizers.is_some_and(|list| !list.is_empty()) {
        if let Some(metadata) = found.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert(
                "deletionTimestamp".to_owned(),
                "1970-01-01T00:00:00Z".into(),
            );
        }
    } else {
        objects.remove(kind, name);
    }
    Ok(())
}

/// What each node's FRR gets, before and after.
struct Nodes {
    /// Differences of frr.conf in meaning, by node.
    differs: BTreeMap<String, String>,
    /// Why a node loads nothing.
    broken: BTreeMap<String, Vec<String>>,
}

impl Nodes {
    fn of(settings: &Settings, before: &Objects, after: &Objects) -> Self {
        let namespace = &settings.managed.frr_namespace;
        let (old, new) = (documents_of(before), documents_of(after));
        let mut out = Self {
            differs: BTreeMap::new(),
            broken: BTreeMap::new(),
        };
        let names: BTreeSet<&NodeName> = old.nodes.keys().chain(new.nodes.keys()).collect();
        for name in names {
            let of = |documents: &Documents| -> Forecast {
                let asked = Asked {
                    node: name.clone(),
                    labels: BTreeMap::new(),
                    namespace: namespace.clone(),
                    not_listening: BTreeSet::new(),
                };
                if documents.nodes.contains_key(name) {
                    forecast(documents, &asked)
                } else {
                    Forecast::default()
                }
            };
            let (was, is) = (of(&old), of(&new));
            let text = |f: &Forecast| f.text.clone().unwrap_or_default();
            let differences = frr::compare::compare(&text(&was), &text(&is));
            if is.text.is_some() && !differences.is_empty() {
                out.differs
                    .insert(name.to_string(), frr::compare::unified(&differences));
            }
            if !is.conflicts.is_empty() {
                let reasons = is.conflicts.iter().map(ToString::to_string).collect();
                out.broken.insert(name.to_string(), reasons);
            }
        }
        out
    }
}

/// Nodes and FRRConfigurations, with a stand-in for every Secret: passwords are not compared.
fn documents_of(objects: &Objects) -> Documents {
    let mut out = Documents::default();
    for node in objects.nodes() {
        out.nodes.insert(node.name.clone(), node);
    }
    for object in objects.all(offline::kind::FRR) {
        let text = |path: &str| {
            let text = object.pointer(path).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let key = ObjectKey::new(text("/metadata/namespace"), text("/metadata/name"));
        let typed = serde_json::from_value(object.clone());
        out.add(key, typed.map_err(|error| error.to_string()));
    }
    for name in cluster::secret_names(&out) {
        for namespace in out.namespaces() {
            let key = ObjectKey::new(namespace, &name);
            out.secrets.insert(key, Ok("of-a-secret".to_owned()));
        }
    }
    out
}

/// What of the settings is not in force, conditions that are not True, and what could not be allocated.
fn wrong(in_force: &InForce, plans: &Plans, objects: &Objects) -> Vec<String> {
    let of_ras = plans.advertisements.iter();
    let of_ras = of_ras.filter(|(name, _)| objects.get(offline::kind::RA, name).is_some());
    let of_ras = of_ras.map(|(name, plan)| (offline::kind::RA, name, &plan.conditions));
    let of_cudns = plans.conditions.iter();
    let of_cudns = of_cudns.filter(|(name, _)| objects.get(offline::kind::CUDN, name).is_some());
    let of_cudns = of_cudns.map(|(name, list)| (offline::kind::CUDN, name, list));
    let is_bad = |c: &&Condition| !c.status;
    let conditions = of_ras.chain(of_cudns).flat_map(|(kind, name, list)| {
        list.iter().filter(is_bad).map(move |c| {
            format!(
                "{kind} {name}: {} is {}, {}: {}",
                c.kind,
                c.word(),
                c.reason,
                c.message
            )
        })
    });
    let problems = plans.networks.problems.iter().chain(&plans.fabric.problems);
    let refused = in_force.refused.iter().cloned();
    refused
        .chain(conditions)
        .chain(problems.map(ToString::to_string))
        .collect()
}

fn text(diff: bool, before: &Objects, after: &Objects, wrong: &[String], nodes: &Nodes) -> String {
    let mut out = String::new();
    let keys: BTreeSet<&(String, String)> = before
        .iter()
        .chain(after.iter())
        .map(|(key, _)| key)
        .collect();
    let mut count = 0_usize;
    for (kind, name) in keys {
        let (was, is) = (before.get(kind, name), after.get(kind, name));
        let verb = match (was, is) {
            (None, Some(_)) => "create",
            (Some(_), None) => "delete",
            (Some(was), Some(is)) if was != is => "change",
            _ => continue,
        };
        count += 1;
        put(
            &mut out,
            &format!("{verb} {kind} {name}{}\n", of_node(is.or(was))),
        );
        if diff {
            let yaml = |value: Option<&Value>| {
                value.map_or_else(String::new, |v| {
                    serde_saphyr::to_string(v).unwrap_or_default()
                })
            };
            let (was, is) = (yaml(was), yaml(is));
            let lines = TextDiff::from_lines(&was, &is);
            put(
                &mut out,
                &lines.unified_diff().context_radius(2).to_string(),
            );
        }
    }
    if count == 0 {
        put(&mut out, "nothing would be written\n");
    }
    for (node, lines) in &nodes.differs {
        put(&mut out, &format!("\nfrr.conf of node {node}:\n{lines}"));
    }
    for (node, reasons) in &nodes.broken {
        put(&mut out, &format!("\nnode {node} would load nothing:\n"));
        for reason in reasons {
            put(&mut out, &format!("  {reason}\n"));
        }
    }
    if !wrong.is_empty() {
        put(&mut out, "\nnot as it is asked for:\n");
    }
    for line in wrong {
        put(&mut out, &format!("  {line}\n"));
    }
    out
}

/// The node that a generated object is for.
fn of_node(object: Option<&Value>) -> String {
    let labels = object.and_then(|o| o.pointer("/spec/nodeSelector/matchLabels"));
    let host = labels
        .and_then(|l| l.get("kubernetes.io/hostname"))
        .and_then(Value::as_str);
    host.map_or_else(String::new, |host| format!(" (node {host})"))
}

fn put(out: &mut String, text: &str) {
    // A String takes everything.
    let _ = out.write_str(text);
}
