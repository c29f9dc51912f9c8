//! Our daemons: their configuration files, and how they are started.
//!
//! In: a lab and its values. Out: `cluster-manager` twice in the underlay, `node-agent`
//! and `frr-agent` in every node. The lab knows their command lines and nothing else
//! of them: it links none of our code.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::objects::kubeconfig_of;
use crate::process::{self, Start};
use crate::state::{Lab, Node, text};

/// Names of the programs.
pub(crate) const PROGRAMS: [&str; 3] = ["cluster-manager", "node-agent", "frr-agent"];
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
    lab.without.as_deref() != Some(program)
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
    Ok(())
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
    let v = &lab.values;
    let quoted = |text: String| Value::String(text).to_string();
    let pods = format!("{}/{}", v.cluster_subnet, v.host_prefix);
    let mut sections = vec![
        (
            "default",
            vec![
                ("transport", quoted("no-overlay".to_owned())),
                ("cluster-subnets", quoted(pods)),
                ("mtu", "1500".to_owned()),
            ],
        ),
        (
            "no-overlay",
            vec![
                ("outbound-snat", quoted("enabled".to_owned())),
                ("routing", quoted("managed".to_owned())),
            ],
        ),
        (
            "bgp-managed",
            vec![
                ("topology", quoted("full-mesh".to_owned())),
                ("as-number", v.as_number.to_string()),
                ("frr-namespace", quoted("frr-k8s-system".to_owned())),
            ],
        ),
        (
            "gateway",
            vec![
                ("mode", quoted("shared".to_owned())),
                ("interface", quoted("br-ex".to_owned())),
                ("next-hop", quoted(v.outside_address().to_string())),
                ("v4-join-subnet", quoted(v.join_subnet.to_string())),
                ("ephemeral-port-range", quoted("32768-60999".to_owned())),
            ],
        ),
        (
            "ovn",
            vec![
                ("topology", quoted("build".to_owned())),
                ("networks", quoted("own".to_owned())),
            ],
        ),
        (
            "kubernetes",
            vec![(
                "kubeconfig",
                quoted(text(&kubeconfig_of(lab, spec.program))),
            )],
        ),
        (
            "metrics",
            vec![("bind-address", quoted(format!("127.0.0.1:{}", spec.port)))],
        ),
    ];
    if spec.node != "underlay" {
        let (ovs, frr) = (lab.ovs_dir(spec.node), lab.frr_dir(spec.node));
        let nb = format!("unix:{}", text(&ovs.join("ovnnb_db.sock")));
        sections.push(("ovnnorth", vec![("address", quoted(nb))]));
        sections.push(("ovs", vec![("rundir", quoted(text(&ovs)))]));
        sections.push((
            "frr",
            vec![
                ("vty-socket", quoted(text(&frr))),
                ("config-file", quoted(text(&frr.join("frr.conf")))),
            ],
        ));
    }
    let mut content = String::new();
    for (section, keys) in sections {
        content.push_str(&format!("[{section}]\n"));
        for (key, value) in keys {
            content.push_str(&format!("{key} = {value}\n"));
        }
    }
    let path = lab.node_dir(spec.node).join(format!("{}.toml", spec.name));
    std::fs::write(&path, content)?;
    Ok(path)
}
