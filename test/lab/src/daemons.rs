//! Our daemons: their configuration files, and how they are started.
//!
//! In: a lab and its values. Out: `cluster-manager` twice in the underlay, `node-agent`
//! and `frr-agent` in every node. The lab knows their command lines and nothing else
//! of them: it links none of our code.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::frr_k8s;
use crate::objects::kubeconfig_of;
use crate::process::{self, Start};
use crate::state::{Lab, Node, text};
use crate::values::SNAT_PORTS;

/// Names of the programs.
pub(crate) const PROGRAMS: [&str; 3] = ["cluster-manager", "node-agent", "frr-agent"];
/// Profiles of the managed fabric.
pub(crate) const PROFILES: [&str; 2] = ["resilient", "compat"];
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
    for (identity, port) in MANAGERS.iter().zip([9103, 9104]) {
        let spec = Spec {
            node: "underlay",
            name: identity,
            program: "cluster-manager",
            port,
        };
        start(lab, &spec, &["--identity", identity])?;
    }
    Ok(())
}

/// Starts the agents of a node.
pub(crate) fn start_agents(lab: &Lab, node: &Node) -> Result<()> {
    for (program, port) in [("node-agent", 9101), ("frr-agent", 9102)] {
        let spec = Spec {
            node: &node.name,
            name: program,
            program,
            port,
        };
        start(lab, &spec, &["--node", &node.name])?;
    }
    match lab.frr_k8s {
        Some(_) => frr_k8s::start(lab, &node.name),
        None => Ok(()),
    }
}

struct Spec<'a> {
    /// Node, or `underlay`.
    node: &'a str,
    /// Name among the node's daemons.
    name: &'a str,
    /// File name of the program, and its service account.
    program: &'a str,
    /// Where it serves metrics and health.
    port: u16,
}

fn start(lab: &Lab, spec: &Spec<'_>, more: &[&str]) -> Result<()> {
    if !runs(lab, spec.program) {
        return Ok(());
    }
    let config =
        write_config(lab, spec).with_context(|| format!("configuration of {}", spec.name))?;
    let program = lab.places.daemons.join(spec.program);
    let mut argv = vec![text(&program), "--config".to_owned(), text(&config)];
    argv.extend(more.iter().map(|&word| word.to_owned()));
    let start = Start {
        node: spec.node.to_owned(),
        name: spec.name.to_owned(),
        argv,
        env: Vec::new(),
        log: lab.node_dir(spec.node).join(format!("{}.log", spec.name)),
        pidfile: None,
    };
    process::start(lab, start, 0).map(drop)
}

fn write_config(lab: &Lab, spec: &Spec<'_>) -> Result<PathBuf> {
    let path = lab.node_dir(spec.node).join(format!("{}.toml", spec.name));
    let mut content = cluster_sections(lab);
    content.push_str(&connection_sections(lab, spec));
    std::fs::write(&path, content)?;
    Ok(path)
}

/// What holds in the whole cluster.
fn cluster_sections(lab: &Lab) -> String {
    let v = &lab.values;
    format!(
        r#"[default]
transport = "no-overlay"
cluster-subnets = "{}/{}"
mtu = 1500

[no-overlay]
outbound-snat = "enabled"
routing = "managed"

[bgp-managed]
topology = "full-mesh"
as-number = {}
frr-namespace = "frr-k8s-system"
profile = "{}"

[gateway]
mode = "shared"
interface = "br-ex"
next-hop = "{}"
v4-join-subnet = "{}"
ephemeral-port-range = "{}-{}"

[ovn]
topology = "build"
networks = "own"
"#,
        v.cluster_subnet,
        v.host_prefix,
        v.as_number,
        lab.profile,
        v.outside_address(),
        v.join_subnet,
        SNAT_PORTS.start(),
        SNAT_PORTS.end(),
    )
}

/// Where this daemon finds its peers, and where it serves metrics.
fn connection_sections(lab: &Lab, spec: &Spec<'_>) -> String {
    let kubeconfig = text(&kubeconfig_of(lab, spec.program));
    let mut content = format!(
        r#"
[kubernetes]
kubeconfig = "{kubeconfig}"

[metrics]
bind-address = "127.0.0.1:{}"
"#,
        spec.port
    );
    if spec.node != "underlay" {
        let (ovs, frr) = (text(&lab.ovs_dir(spec.node)), text(&lab.frr_dir(spec.node)));
        content.push_str(&format!(
            r#"
[ovnnorth]
address = "unix:{ovs}/ovnnb_db.sock"

[ovs]
rundir = "{ovs}"

[frr]
vty-socket = "{frr}"
config-file = "{frr}/frr.conf"
"#
        ));
    }
    content
}
