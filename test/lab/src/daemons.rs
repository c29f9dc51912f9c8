//! Our daemons: their configuration files, and how they are started.
//!
//! In: a lab and its values. Out: `cluster-manager` twice in the underlay, `node-agent`
//! and `frr-agent` in every node, each as the container that the installed manifests
//! describe: words, user, capabilities, mounts, account. What the lab adds is the text of
//! the configuration file, and where a node has the folders that the manifests name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::apiserver::{ACCOUNTS, PORT, get};
use crate::container::{Container, Surroundings};
use crate::frr_k8s;
use crate::node::pki;
use crate::objects::account;
use crate::process::{self, Start};
use crate::run::each;
use crate::services;
use crate::state::{Lab, Node, text, write_whole};
use crate::up::own_program;
use crate::values::SNAT_PORTS;

/// Names of the programs.
pub(crate) const PROGRAMS: [&str; 3] = ["cluster-manager", "node-agent", "frr-agent"];
/// Profiles of the managed fabric.
pub(crate) const PROFILES: [&str; 2] = ["resilient", "compat"];
/// Topologies of the managed fabric.
pub(crate) const TOPOLOGIES: [&str; 3] = ["full-mesh", "route-reflector", "auto"];
/// Where `topology = auto` changes it, if not at the usual numbers of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args, Serialize, Deserialize)]
pub(crate) struct AutoTopology {
    /// `[bgp-managed] auto-reflectors-above` of the daemons' configuration.
    #[arg(long, value_name = "NODES", conflicts_with = "example")]
    pub(crate) auto_reflectors_above: Option<u32>,
    /// `[bgp-managed] auto-full-mesh-below` of the daemons' configuration.
    #[arg(long, value_name = "NODES", conflicts_with = "example")]
    pub(crate) auto_full_mesh_below: Option<u32>,
}

impl AutoTopology {
    /// The keys that are set, each in a line.
    fn keys(self) -> String {
        let above = self.auto_reflectors_above;
        let above = above.map(|nodes| format!("auto-reflectors-above = {nodes}\n"));
        let below = self.auto_full_mesh_below;
        let below = below.map(|nodes| format!("auto-full-mesh-below = {nodes}\n"));
        above.unwrap_or_default() + &below.unwrap_or_default()
    }
}

/// Who routes what leaves pods, and with which address it leaves.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
pub(crate) struct Outward {
    /// `[gateway] mode` of the daemons' configuration.
    #[arg(long, value_parser = ["shared", "local"], default_value = "shared", conflicts_with = "example")]
    pub(crate) gateway_mode: String,
    /// `[default] transport` of the daemons' configuration.
    #[arg(long, value_parser = ["no-overlay", "geneve"], default_value = "no-overlay", conflicts_with = "example")]
    #[serde(default)]
    pub(crate) transport: String,
    /// `[no-overlay] outbound-snat` of the daemons' configuration; disabled: the outside host knows the way to pods.
    #[arg(long, value_parser = ["enabled", "disabled"], default_value = "enabled", conflicts_with = "example")]
    pub(crate) outbound_snat: String,
    /// `[no-overlay] routing` of the daemons' configuration; unmanaged: an administrator writes that all nodes are neighbors, and
    /// packets for a pod subnet without a route go to the default router.
    #[arg(long, value_parser = ["managed", "unmanaged"], default_value = "managed", conflicts_with_all = ["example", "topology", "profile"])]
    #[serde(default = "managed")]
    pub(crate) routing: String,
    /// Datapath of Open vSwitch: its own, or the kernel's module.
    #[arg(long, value_parser = ["userspace", "kernel"], default_value = "userspace")]
    pub(crate) datapath: String,
    /// `[ovnkubernetesfeature] advertised-udn-isolation-mode` of the daemons' configuration.
    #[arg(long, value_parser = ["strict", "loose"], default_value = "strict", conflicts_with = "example")]
    #[serde(default)]
    pub(crate) isolation: String,
    /// Our daemons run beside an imitation of OVN-Kubernetes (`[ovn] topology = adopt`), which has made a network of tunnels; networks of users have to be over tunnels, too (NAME=geneve:SUBNET/HOST).
    #[arg(long, conflicts_with_all = ["example", "transport"])]
    #[serde(default)]
    pub(crate) adopt: bool,
    /// MTU of the links between nodes, bytes; pods get it too, or with Geneve 100 less.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1380..=9216), default_value = "1500")]
    #[serde(default = "ethernet")]
    pub(crate) underlay_mtu: u32,
}

/// Who routes where nothing else is said.
fn managed() -> String {
    "managed".to_owned()
}

/// What links have that nobody changed, bytes.
fn ethernet() -> u32 {
    1500
}

impl Outward {
    /// The kernel of the node routes, not OVN's gateway router.
    pub(crate) fn is_local(&self) -> bool {
        self.gateway_mode == "local"
    }

    /// Sessions between nodes are made by the cluster-manager.
    pub(crate) fn is_managed(&self) -> bool {
        self.routing == "managed"
    }

    /// Advertised networks reach each other where the physical network lets them.
    pub(crate) fn is_loose(&self) -> bool {
        self.isolation == "loose"
    }

    fn isolation_section(&self) -> &'static str {
        if self.is_loose() {
            "\n[ovnkubernetesfeature]\nadvertised-udn-isolation-mode = loose\n"
        } else {
            ""
        }
    }

    /// Pods of the default network reach each other over tunnels.
    pub(crate) fn is_overlay(&self) -> bool {
        self.transport == "geneve"
    }

    /// `[default] mtu`: what the underlay leaves.
    pub(crate) fn mtu(&self) -> u32 {
        if self.is_overlay() {
            self.underlay_mtu - 100
        } else {
            self.underlay_mtu
        }
    }

    /// What leaves the cluster bears the node's address.
    pub(crate) fn is_translated(&self) -> bool {
        self.outbound_snat == "enabled"
    }

    /// `Bridge.datapath_type`.
    pub(crate) fn datapath_type(&self) -> &'static str {
        if self.by_kernel() { "system" } else { "netdev" }
    }

    /// Packets are the kernel module's.
    pub(crate) fn by_kernel(&self) -> bool {
        self.datapath == "kernel"
    }

    /// One line that shows all.
    pub(crate) fn shown(&self) -> String {
        let Self {
            gateway_mode,
            transport,
            outbound_snat,
            routing,
            datapath,
            underlay_mtu,
            isolation,
            adopt,
        } = self;
        let transport = if *adopt { "no-overlay" } else { transport };
        format!(
            "transport {transport}, gateway mode {gateway_mode}, outbound SNAT {outbound_snat}, {routing} routing, {isolation} isolation, {datapath} datapath, MTU {underlay_mtu}"
        )
    }
}

/// Identities of the two managers.
pub(crate) const MANAGERS: [&str; 2] = ["cm-a", "cm-b"];

/// Are all programs there that this lab is to run?
pub(crate) fn check(lab: &Lab) -> Result<()> {
    for program in PROGRAMS {
        let path = lab.places.daemons.join(program);
        if runs(lab, program) && !path.exists() {
            bail!(
                "{} does not exist (built by hack/lab, or set NOVERLAY_BIN_DIR)",
                path.display()
            );
        }
    }
    Ok(())
}

/// Is this program part of the lab, or was it left out?
fn runs(lab: &Lab, program: &str) -> bool {
    let replaced = program == "frr-agent" && lab.frr_k8s.is_some();
    lab.without.as_deref() != Some(program) && !replaced
}

/// Starts both managers.
pub(crate) fn start_managers(lab: &Lab) -> Result<()> {
    managers().try_for_each(|spec| start(lab, &spec))
}

/// Writes the managers' configuration files anew, under the running managers.
pub(crate) fn configure_managers(lab: &Lab) -> Result<()> {
    managers().try_for_each(|spec| write_config(lab, &spec).map(drop))
}

/// The same with the node-agents'.
pub(crate) fn configure_agents(lab: &Lab) -> Result<()> {
    let all = lab.nodes.iter().flat_map(agents);
    let mut of_nodes = all.filter(|spec| spec.program == "node-agent");
    of_nodes.try_for_each(|spec| write_config(lab, &spec).map(drop))
}

/// The same with the node-agent of one node.
pub(crate) fn configure_node_agent(lab: &Lab, node: &Node) -> Result<()> {
    let mut of_node = agents(node).filter(|spec| spec.program == "node-agent");
    of_node.try_for_each(|spec| write_config(lab, &spec).map(drop))
}

fn managers() -> impl Iterator<Item = Spec<'static>> {
    MANAGERS.iter().zip([9103, 9104]).map(|(name, port)| Spec {
        node: "underlay",
        name,
        program: "cluster-manager",
        kind: "deployments",
        port,
    })
}

/// Starts the agents of a node.
pub(crate) fn start_agents(lab: &Lab, node: &Node) -> Result<()> {
    for spec in agents(node) {
        start(lab, &spec)?;
    }
    match lab.frr_k8s {
        Some(_) => frr_k8s::start(lab, &node.name),
        None => Ok(()),
    }
}

/// Starts managers and agents.
pub(crate) fn start_all(lab: &Lab) -> Result<()> {
    start_managers(lab)?;
    each(&lab.nodes, |node| start_agents(lab, node))
        .into_iter()
        .collect()
}

/// Starts the node-agent alone.
pub(crate) fn start_node_agent(lab: &Lab, node: &Node) -> Result<()> {
    let mut all = agents(node).filter(|spec| spec.program == "node-agent");
    all.try_for_each(|spec| start(lab, &spec))
}

fn agents(node: &Node) -> impl Iterator<Item = Spec<'_>> {
    let all = [("node-agent", 9101), ("frr-agent", 9102)].into_iter();
    all.map(|(program, port)| Spec {
        node: &node.name,
        name: program,
        program,
        kind: "daemonsets",
        port,
    })
}

struct Spec<'a> {
    /// Node, or `underlay`.
    node: &'a str,
    /// Name among the node's daemons.
    name: &'a str,
    /// File name of the program, and name of the object that has its pod template.
    program: &'a str,
    /// Plural of that object's kind.
    kind: &'a str,
    /// Where it serves metrics and health.
    port: u16,
}

fn start(lab: &Lab, spec: &Spec<'_>) -> Result<()> {
    if !runs(lab, spec.program) {
        return Ok(());
    }
    let dir = lab.node_dir(spec.node);
    let container = container(lab, spec)
        .with_context(|| format!("container of {} {}", spec.kind, spec.program))?;
    let file = dir.join(spec.name).join("container.json");
    std::fs::write(&file, serde_json::to_string_pretty(&container)?)?;
    let argv = [
        text(&own_program()?),
        "--name".to_owned(),
        lab.name.clone(),
        "container".to_owned(),
        text(&file),
    ];
    let start = Start {
        node: spec.node.to_owned(),
        name: spec.name.to_owned(),
        argv: argv.to_vec(),
        env: Vec::new(),
        log: dir.join(format!("{}.log", spec.name)),
        pidfile: None,
    };
    process::start(lab, start, 0).map(drop)
}

/// The container of a daemon, by the object that the API server holds.
fn container(lab: &Lab, spec: &Spec<'_>) -> Result<Container> {
    let (kind, name) = (spec.kind, spec.program);
    let path = format!("/apis/apps/v1/namespaces/{ACCOUNTS}/{kind}/{name}");
    let object = get(lab, &path)?;
    let template = object.pointer("/spec/template").context("no template")?;
    let user = template.pointer("/spec/serviceAccountName");
    let user = user.and_then(serde_json::Value::as_str);
    let around = Surroundings {
        programs: lab.places.daemons.clone(),
        fields: BTreeMap::from([
            ("spec.nodeName", spec.node.to_owned()),
            ("metadata.name", spec.name.to_owned()),
        ]),
        config: write_config(lab, spec)?,
        account: account(lab, user.context("no serviceAccountName")?),
        host: host(lab, spec.node),
        server: (lab.values.api_address().to_string(), PORT),
    };
    Container::of(template, &around)
}

/// The folders of a node that the manifests mount.
fn host(lab: &Lab, node: &str) -> BTreeMap<&'static str, PathBuf> {
    if node == "underlay" {
        return BTreeMap::new();
    }
    let (ovs, frr) = (lab.ovs_dir(node), lab.frr_dir(node));
    BTreeMap::from([
        ("/var/run/ovn", ovs.clone()),
        ("/var/run/openvswitch", ovs),
        ("/var/run/frr", frr.clone()),
        ("/etc/frr", frr),
    ])
}

/// Becomes the container that a file describes.
pub(crate) fn become_container(file: &Path) -> Result<()> {
    let described = std::fs::read_to_string(file).with_context(|| text(file))?;
    let container: Container = serde_json::from_str(&described).with_context(|| text(file))?;
    container.run(&file.with_extension("root"))
}

/// Writes the configuration file and gives its folder, which stands for the ConfigMap.
fn write_config(lab: &Lab, spec: &Spec<'_>) -> Result<PathBuf> {
    let folder = lab.node_dir(spec.node).join(spec.name).join("config");
    std::fs::create_dir_all(&folder)?;
    let content = cluster_sections(lab)? + &own_section(lab, spec, &folder)?;
    write_whole(&folder.join("noverlay.conf"), &content)?;
    Ok(folder)
}

/// What holds in the whole cluster.
fn cluster_sections(lab: &Lab) -> Result<String> {
    if let Some(example) = &lab.example {
        return example.config();
    }
    let v = &lab.values;
    let network = v.default_network()?;
    let outside = v.outside_addresses().into_iter();
    let (transport, ovn) = match &lab.adopted {
        Some(transport) => (transport, "topology = adopt\nnetworks = observe"),
        None => (&lab.outward.transport, "topology = build\nnetworks = own"),
    };
    let without_overlay = if *transport == "geneve" {
        String::new()
    } else {
        let snat = &lab.outward.outbound_snat;
        let routing = &lab.outward.routing;
        format!("[no-overlay]\noutbound-snat = {snat}\nrouting = {routing}\n\n")
    };
    let fabric = fabric_section(lab);
    let isolation = lab.outward.isolation_section();
    let services = services::section(lab)?;
    let next_hops: Vec<String> = outside.map(|address| address.to_string()).collect();
    Ok(format!(
        "[default]
transport = {transport}
cluster-subnets = {}
mtu = {}

{without_overlay}{fabric}[gateway]
mode = {}
interface = br-ex
v4-masquerade-subnet = 169.254.0.0/17
v6-masquerade-subnet = fd69::/112
next-hop = {}
{}ephemeral-port-range = {}-{}

[ovn]
{ovn}
{isolation}{services}",
        network.cluster_subnets(),
        lab.outward.mtu(),
        lab.outward.gateway_mode,
        next_hops.join(", "),
        network.join_keys(),
        SNAT_PORTS.start(),
        SNAT_PORTS.end(),
    ))
}

/// What the cluster-manager makes sessions between nodes of; nothing where an administrator does for the only network.
fn fabric_section(lab: &Lab) -> String {
    if !lab.outward.is_managed() && lab.networks.is_empty() {
        return String::new();
    }
    format!(
        "[bgp-managed]
topology = {}
{}as-number = {}
frr-namespace = frr-k8s-system
profile = {}

",
        lab.topology,
        lab.auto.keys(),
        lab.values.as_number,
        lab.profile,
    )
}

/// Where this daemon serves metrics (several run on one host here, and nobody else is to ask them), where its Northbound database is,
/// if not where the manifests have it, and how long a reload of FRR may take.
fn own_section(lab: &Lab, spec: &Spec<'_>, folder: &Path) -> Result<String> {
    let metrics = format!("\n[metrics]\nbind-address = 127.0.0.1:{}\n", spec.port);
    let more = match spec.program {
        "node-agent" => pki::north_section(lab, spec.node, folder)?,
        // The kernel's datapath is that of an emulated machine: a reload that is ended half way is worse than one that takes long.
        "frr-agent" if lab.outward.by_kernel() => "\n[frr]\nreload-timeout = 300\n".to_owned(),
        _ => String::new(),
    };
    Ok(metrics + &more)
}
