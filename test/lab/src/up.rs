//! Bringing a lab up.
//!
//! In: what is wanted. Out: a running lab and a line for each step with its time.
//! Safe to repeat: the same lab, running whole, is kept; anything else that bears the
//! name is taken down first, so no interrupted run is in the way of the next.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::daemons::{AutoTopology, Outward};
use crate::example::{self, Example};
use crate::family::Family;
use crate::networks::{self, UserNetwork};
use crate::node::link;
use crate::process::{self, records, tail};
use crate::proof::diagnose;
use crate::reach::{attached, unreached};
use crate::run::{each, now, tell, tool};
use crate::state::{Lab, Node, Places, check_name};
use crate::supervisor;
use crate::values::Values;
use crate::{
    apiserver, beside, daemons, down, frr_k8s, netns, node, objects, ovn_kubernetes, pods,
    services, unmanaged,
};

/// More nodes than this overflow the kernel's neighbour table, which all namespaces
/// share.
const NEIGHBOURS: usize = 20;

/// What `up` is asked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Name of the lab.
    pub(crate) name: String,
    /// Addresses and names.
    pub(crate) values: Values,
    /// Number of nodes.
    pub(crate) nodes: u32,
    /// The daemon of ours that is left out.
    pub(crate) without: Option<String>,
    /// Profile of the managed fabric.
    pub(crate) profile: String,
    /// Who peers with whom in it.
    pub(crate) topology: String,
    /// Where `auto` changes that.
    pub(crate) auto: AutoTopology,
    /// Who routes what leaves pods, and with which address it leaves.
    pub(crate) outward: Outward,
    /// Networks of users.
    pub(crate) networks: Vec<UserNetwork>,
    /// frr-k8s's controller, to run in place of frr-agent.
    pub(crate) frr_k8s: Option<PathBuf>,
    /// Real OVN-Kubernetes, to run our daemons beside.
    pub(crate) ovn_kubernetes: Option<PathBuf>,
    /// The physical network and what its administrator writes, where it is not the demonstration's.
    pub(crate) example: Option<Example>,
    /// Programs.
    pub(crate) places: Places,
    /// How long to wait for the pods.
    pub(crate) wait: Duration,
}

/// Prints steps with the time since the command began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps(Instant);

impl Steps {
    /// The clock starts.
    pub(crate) fn begin() -> Self {
        Self(now())
    }

    /// One line.
    pub(crate) fn say(self, text: &str) {
        tell(&format!(
            "lab: {:6.2} s  {text}",
            self.0.elapsed().as_secs_f64()
        ));
    }

    /// Seconds since the command began.
    pub(crate) fn elapsed(self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// Brings the lab up, or keeps the one that runs.
pub(crate) fn up(wanted: &Wanted, steps: Steps) -> Result<Lab> {
    check(wanted)?;
    if let Some(lab) = kept(wanted) {
        steps.say(&format!(
            "lab {} is up with these values already and is kept",
            lab.name
        ));
        return Ok(lab);
    }
    if down::anything(&wanted.name) {
        steps.say("taking down what is left of an earlier lab of this name");
        down::down(&wanted.name)?;
    }
    let mut lab = begin(wanted)?;
    daemons::check(&lab).inspect_err(|_| drop(down::down(&lab.name)))?;
    let (values, outward) = (lab.values.shown(), lab.outward.shown());
    steps.say(&format!("{values}; {outward}{}", lab.beside_note()));
    modules(&lab);
    supervisor::launch(&lab)?;
    link::up_underlay(&lab).context("underlay")?;
    example::start_routers(&lab)?;
    steps.say(&format!(
        "underlay and outside host are there{}",
        lab.routers_note()
    ));
    if lab.ovn_kubernetes.is_some() {
        ovn_kubernetes::prepare(&lab)?;
    }
    bare(&lab, steps)?;
    objects::create_nodes(&lab, &lab.nodes)?;
    example::apply(&lab)?;
    unmanaged::apply(&lab)?;
    networks::create(&lab)?;
    services::create(&lab)?;
    if let Some(folder) = &lab.ovn_kubernetes {
        ovn_kubernetes::start(&lab, folder)?;
        steps.say("Node objects are there, OVN-Kubernetes runs");
    } else {
        daemons::start_all(&lab)?;
        steps.say(&format!(
            "Node objects are there, our daemons run{}",
            lab.applier_note()
        ));
    }
    attach(&lab, &lab.nodes, wanted.wait, steps)?;
    networks::attach(&lab, wanted.wait, steps)?;
    services::balance(&lab)?;
    if lab.outward.adopt {
        beside::adopt(&mut lab, wanted.wait, steps)?;
    }
    lab.complete = true;
    lab.save()?;
    Ok(lab)
}

fn check(wanted: &Wanted) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("must run as root: the lab makes network namespaces");
    }
    check_name("lab", &wanted.name, 8)?;
    if !(1..=24).contains(&wanted.nodes) {
        bail!("--nodes {}: 1 to 24 are possible", wanted.nodes);
    }
    if wanted.values.has(Family::V6) && !Path::new("/proc/net/if_inet6").exists() {
        bail!("--families: this machine's kernel has no IPv6");
    }
    if let Some(binary) = &wanted.frr_k8s {
        frr_k8s::check(binary)?;
    }
    if let Some(folder) = &wanted.ovn_kubernetes {
        let by_kernel = wanted.outward.by_kernel();
        ovn_kubernetes::check(folder, by_kernel, !wanted.networks.is_empty())?;
    }
    Ok(())
}

/// The running lab, if it is what is wanted.
fn kept(wanted: &Wanted) -> Option<Lab> {
    let lab = Lab::load(&wanted.name)?;
    let same = lab.complete
        && lab.values == wanted.values
        && lab.nodes.len() == usize::try_from(wanted.nodes).ok()?
        && lab.without == wanted.without
        && lab.profile == wanted.profile
        && lab.topology == wanted.topology
        && lab.auto == wanted.auto
        && lab.outward == wanted.outward
        && lab.networks == wanted.networks
        && lab.frr_k8s == wanted.frr_k8s
        && lab.ovn_kubernetes == wanted.ovn_kubernetes
        && lab.example == wanted.example
        && lab.places == wanted.places
        && supervisor::running(&lab.name).is_some();
    let fit = records(&lab.dir())
        .iter()
        .all(|r| r.at_work() && !r.outdated());
    (same && fit).then_some(lab)
}

fn begin(wanted: &Wanted) -> Result<Lab> {
    let nodes = (1..=wanted.nodes)
        .map(|index| Node {
            name: wanted.values.node_name(index),
            index,
        })
        .collect();
    let mut lab = Lab {
        name: wanted.name.clone(),
        values: wanted.values.clone(),
        nodes,
        places: wanted.places.clone(),
        without: wanted.without.clone(),
        profile: wanted.profile.clone(),
        topology: wanted.topology.clone(),
        auto: wanted.auto,
        outward: wanted.outward.clone(),
        networks: wanted.networks.clone(),
        frr_k8s: wanted.frr_k8s.clone(),
        ovn_kubernetes: wanted.ovn_kubernetes.clone(),
        example: wanted.example.clone(),
        settings: Vec::new(),
        netns_folder: netns::folder_exists(),
        adopted: None,
        complete: false,
    };
    for folder in ["pids", "underlay"] {
        std::fs::create_dir_all(lab.dir().join(folder))?;
    }
    lab.save()?;
    if lab.nodes.len() > NEIGHBOURS {
        raise_neighbours(&mut lab)?;
    }
    Ok(lab)
}

/// Loads what a kernel may have as modules; where it has none, or all built in, what needs them tells.
fn modules(lab: &Lab) {
    let wanted: &[&str] = if lab.outward.by_kernel() {
        &["tun", "openvswitch"]
    } else {
        &["tun"]
    };
    drop(tool("modprobe").args(["-aq"]).args(wanted).run());
}

/// Remembers the kernel's limits before it raises them.
fn raise_neighbours(lab: &mut Lab) -> Result<()> {
    let wanted = [("3", 32768), ("2", 16384), ("1", 8192)];
    let file = |level: &str| format!("/proc/sys/net/ipv4/neigh/default/gc_thresh{level}");
    for (level, _) in wanted {
        lab.settings
            .push((file(level), std::fs::read_to_string(file(level))?));
    }
    lab.save()?;
    for (level, entries) in wanted {
        std::fs::write(file(level), entries.to_string())?;
    }
    Ok(())
}

/// The API server and all nodes, at the same time.
fn bare(lab: &Lab, steps: Steps) -> Result<()> {
    std::thread::scope(|scope| {
        let api = scope.spawn(|| -> Result<()> {
            apiserver::up(lab)?;
            steps.say("etcd and kube-apiserver are ready");
            objects::install(lab)?;
            if lab.frr_k8s.is_some() {
                frr_k8s::install(lab)?;
            }
            if let Some(folder) = &lab.ovn_kubernetes {
                ovn_kubernetes::install(lab, folder)?;
            }
            steps.say("CRDs, roles and accounts are installed");
            Ok(())
        });
        let nodes = each(&lab.nodes, |node| {
            node::up(lab, node)?;
            steps.say(&format!(
                "{}: OVS, OVN and FRR run at {}",
                node.name,
                lab.address(node)
            ));
            Ok(())
        });
        let api = api
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        nodes.into_iter().collect::<Result<Vec<()>>>()?;
        api
    })
}

/// Attaches the pods of these nodes, each as soon as the product has made its switch,
/// and waits until all pods of the lab reach each other. That they do not is not an
/// error here: the proof tells what is wrong.
pub(crate) fn attach(lab: &Lab, nodes: &[Node], wait: Duration, steps: Steps) -> Result<()> {
    let start = now();
    let deadline = start + wait;
    let mut open: Vec<&Node> = nodes.iter().collect();
    while !open.is_empty() && now() < deadline {
        let subnets = objects::subnets(lab).unwrap_or_default();
        let (ready, rest): (Vec<&Node>, Vec<&Node>) = open.into_iter().partition(|node| {
            let is_ready = lab.ovn_kubernetes.is_none()
                || ovn_kubernetes::plugin_config(lab, &node.name).is_some();
            is_ready && subnets.contains_key(&node.name) && pods::has_switch(lab, &node.name)
        });
        for attached in each(&ready, |node| match subnets.get(&node.name) {
            Some(_) if lab.ovn_kubernetes.is_some() => {
                let inner = lab.pod_namespace(&node.name);
                ovn_kubernetes::cni::attach(lab, node, "default", &inner, "pod.json").map(drop)
            }
            Some(subnets) => pods::attach(lab, node, subnets),
            None => Ok(()),
        }) {
            attached?;
        }
        for node in ready {
            let pod = lab
                .pod(&node.name)
                .map(|pod| pod.shown())
                .unwrap_or_default();
            steps.say(&format!("{}: pod attached at {pod}", node.name));
        }
        open = rest;
        if !open.is_empty() {
            std::thread::sleep(Duration::from_millis(150));
        }
    }
    open.iter().for_each(|node| say_why(lab, node, steps));
    let pods = attached(lab);
    let missing = unreached(lab, &pods, deadline);
    if open.is_empty() && missing.is_empty() {
        steps.say(&format!(
            "all {} pods reach each other: {:.1} s after the command, {:.1} s after {} started",
            pods.len(),
            steps.elapsed(),
            start.elapsed().as_secs_f64(),
            match lab.ovn_kubernetes {
                Some(_) => "OVN-Kubernetes",
                None => "our daemons",
            }
        ));
    } else {
        let waited = start.elapsed().as_secs();
        steps.say(&format!(
            "{} pairs of pods do not reach each other after {waited} s",
            missing.len()
        ));
    }
    Ok(())
}

/// Why a node has no pod.
fn say_why(lab: &Lab, node: &Node, steps: Steps) {
    let why = diagnose::why_no_pod(lab, node);
    // Who makes switches and gives addresses.
    let maker = match lab.ovn_kubernetes {
        Some(_) => ovn_kubernetes::NODE,
        None => "node-agent",
    };
    let log = process::record(lab, &node.name, maker);
    let log = log
        .map(|record| tail(&record.start.log, 15))
        .unwrap_or_default();
    steps.say(&format!(
        "{}: no pod: {why}; what its {maker} said last:\n{log}",
        node.name
    ));
}

/// The lab program itself.
pub(crate) fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("own program")
}

/// The folder of the program itself: the daemons are built beside it.
pub(crate) fn own_folder() -> Result<PathBuf> {
    let program = own_program()?;
    Ok(program.parent().unwrap_or(Path::new("/")).to_owned())
}
