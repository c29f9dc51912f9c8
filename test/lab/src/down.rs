//! Taking a lab down, whole or half made.
//!
//! In: a lab's name. Out: no process, namespace, mount, file or kernel setting of it
//! is left. Invariant: works from the name alone; the record only adds what cannot be
//! seen (kernel settings to be put back).

use std::time::Duration;

use anyhow::{Context, Result};

use crate::netns;
use crate::process::{self, born, end_all, records};
use crate::state::{Lab, Node, remove_empty_base};
use crate::supervisor;

/// How long the daemons get to end by themselves.
const PATIENCE: Duration = Duration::from_secs(2);

/// Is there anything of a lab with this name?
pub(crate) fn anything(name: &str) -> bool {
    Lab::folder(name).exists() || !netns::names(&Lab::prefix(name)).is_empty()
}

/// Takes everything away.
pub(crate) fn down(name: &str) -> Result<()> {
    // The supervisor goes first: what follows are no deaths.
    if let Some(supervisor) = supervisor::running(name) {
        end_all(&[supervisor], PATIENCE);
    }
    let dir = Lab::folder(name);
    let mut processes: Vec<(i32, u64)> = records(&dir).iter().map(|r| (r.pid, r.born)).collect();
    let namespaces = netns::names(&Lab::prefix(name));
    // Whatever stands in a namespace of the lab is the lab's, recorded or not.
    for namespace in &namespaces {
        processes.extend(
            netns::processes(namespace)
                .into_iter()
                .filter_map(|p| Some((p, born(p)?))),
        );
    }
    end_all(&processes, PATIENCE);
    for namespace in &namespaces {
        netns::delete(namespace)?;
    }
    if let Some(lab) = Lab::load(name) {
        for (file, former) in &lab.settings {
            std::fs::write(file, former).with_context(|| format!("putting back {file}"))?;
        }
        if !lab.netns_folder {
            netns::remove_empty_folder();
        }
    }
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    remove_empty_base();
    Ok(())
}

/// Takes one node away: its daemons, its pod, its namespaces, its folder.
pub(crate) fn node(lab: &Lab, node: &Node) -> Result<()> {
    let mut processes = Vec::new();
    for record in records(&lab.dir())
        .into_iter()
        .filter(|r| r.start.node == node.name)
    {
        process::forget(lab, &record);
        processes.push((record.pid, record.born));
    }
    end_all(&processes, PATIENCE);
    let all = netns::names(&Lab::prefix(&lab.name));
    for namespace in [lab.pod_namespace(&node.name), lab.namespace(&node.name)] {
        if all.contains(&namespace) {
            netns::delete(&namespace)?;
        }
    }
    std::fs::remove_dir_all(lab.node_dir(&node.name))
        .with_context(|| format!("removing the folder of {}", node.name))
}
