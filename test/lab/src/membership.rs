//! Nodes that join a running lab, and leave it.
//!
//! In: a running lab and a name. Out: the lab with one node more or less. Joining is
//! what happens to a node in `up`; leaving is an admin who deletes the Node object and
//! switches the machine off.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::run::now;
use crate::state::{Lab, Node, check_name};
use crate::up::{Steps, attach};
use crate::values::Values;
use crate::{daemons, down, node, objects, ovn_kubernetes, services, unmanaged};

/// How long a new node gets until it reaches all pods, and how much more for each node that has to take it up: all of
/// them reload FRR at once on this one machine.
const WAIT: Duration = Duration::from_secs(60);
const WAIT_A_NODE: Duration = Duration::from_secs(4);

/// Adds a node and waits until its pod and all others reach each other, for as long as is wanted or usual; gives the
/// seconds from the Node object on.
pub(crate) fn add(
    lab: &mut Lab,
    name: &str,
    patience: Option<Duration>,
    steps: Steps,
) -> Result<f64> {
    check_name("node", name, 12)?;
    if lab.nodes.iter().any(|node| node.name == name) {
        bail!("there is a node {name} already");
    }
    let used: Vec<u32> = lab.nodes.iter().map(|node| node.index).collect();
    let index = Values::free_index(&used).context("the underlay is full")?;
    let node = Node {
        name: name.to_owned(),
        index,
    };
    lab.nodes.push(node.clone());
    lab.save()?;
    node::up(lab, &node)?;
    steps.say(&format!(
        "{name}: OVS, OVN and FRR run at {}",
        lab.address(&node)
    ));
    let start = now();
    objects::create_nodes(lab, std::slice::from_ref(&node))?;
    unmanaged::apply(lab)?;
    if lab.ovn_kubernetes.is_some() {
        ovn_kubernetes::start_node(lab, &node)?;
    }
    daemons::start_agents(lab, &node)?;
    let nodes = u32::try_from(lab.nodes.len())?;
    let patience = patience.unwrap_or(WAIT + WAIT_A_NODE * nodes);
    attach(lab, &[node], patience, steps)?;
    services::of_default_network(lab)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Deletes the Node object and switches the node off.
pub(crate) fn remove(lab: &mut Lab, name: &str, steps: Steps) -> Result<()> {
    let node = lab.node(name)?.clone();
    objects::delete_node(lab, name)?;
    if lab.ovn_kubernetes.is_some() {
        ovn_kubernetes::cni::forget(lab, name)?;
    }
    let port = crate::node::link::underlay_port(&node);
    down::node(lab, &node)?;
    // Goes with the namespace, but later than the name does.
    let underlay = lab.namespace("underlay");
    drop(
        crate::run::tool("ip")
            .args(["-n", &underlay, "link", "del", &port])
            .output(),
    );
    lab.nodes.retain(|other| other.name != name);
    lab.save()?;
    unmanaged::apply(lab)?;
    services::of_default_network(lab)?;
    steps.say(&format!(
        "{name}: Node object, daemons and namespaces are gone"
    ));
    Ok(())
}
