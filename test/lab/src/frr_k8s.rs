//! frr-k8s's own controller in place of frr-agent, where somebody has its binary.
//!
//! In: the binary, a node. Out: the controller in a mount namespace of its own, and
//! beside it the reloader that it expects: a process whose number stands in a file, and
//! which loads frr.conf into FRR on SIGHUP. The controller writes its status files at a
//! fixed place and shares names in /tmp, so each node has its own of both.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{AccessFlags, access};
use serde_json::json;

use crate::apiserver::kubectl;
use crate::node::frr::{RELOAD_TOOL, vtysh};
use crate::process::{self, Start};
use crate::run::tool;
use crate::state::{Lab, text, write_whole};
use crate::up::own_program;

/// Name among a node's daemons.
pub(crate) const NAME: &str = "frr-k8s";
/// Where the controller has its files, whatever it is configured with.
const FIXED: &str = "/etc/frr_reloader";

/// Can this be run at all?
pub(crate) fn check(binary: &Path) -> Result<()> {
    if !binary.is_file() {
        bail!("--frr-k8s {}: there is no such file", binary.display());
    }
    access(binary, AccessFlags::X_OK)
        .with_context(|| format!("--frr-k8s {}: not executable", binary.display()))
}

/// The folder of a node that the controller sees as its fixed place.
pub(crate) fn folder(lab: &Lab, node: &str) -> PathBuf {
    lab.node_dir(node).join("reloader")
}

/// The one kind of frr-k8s that the lab's manifests have not: the controller watches it.
pub(crate) fn install(lab: &Lab) -> Result<()> {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let names = json!({"kind": "FRRK8sConfiguration", "listKind": "FRRK8sConfigurationList",
        "plural": "frrk8sconfigurations", "singular": "frrk8sconfiguration"});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "frrk8sconfigurations.frrk8s.metallb.io"},
        "spec": {"group": "frrk8s.metallb.io", "names": names, "scope": "Namespaced", "versions": [
            {"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": open},
             "subresources": {"status": {}}},
        ]},
    });
    kubectl(lab)
        .args(["apply", "--server-side", "-f", "-"])
        .input(definition.to_string())
        .run()
        .map(drop)
}

/// Starts reloader and controller of a node.
pub(crate) fn start(lab: &Lab, node: &str) -> Result<()> {
    for part in ["reloader", "tmp", "etc/upper/frr_reloader", "etc/work"] {
        std::fs::create_dir_all(lab.node_dir(node).join(part))?;
    }
    let program = text(&own_program()?);
    let ours = |command: &str| -> Vec<String> {
        ["--name", &lab.name, command, node]
            .map(str::to_owned)
            .to_vec()
    };
    let daemon = |name: &str, argv: Vec<String>, env: Vec<(String, String)>| Start {
        node: node.to_owned(),
        name: name.to_owned(),
        argv: [vec![program.clone()], argv].concat(),
        env,
        log: lab.node_dir(node).join(format!("{name}.log")),
        pidfile: None,
    };
    process::start(lab, daemon("reloader", ours("reloader"), Vec::new()), 0)?;
    let kubeconfig = lab.node_dir("underlay").join("admin.kubeconfig");
    let env = [
        ("KUBECONFIG", text(&kubeconfig)),
        ("FRR_CONFIG_FILE", format!("{FIXED}/frr.conf")),
        ("FRR_RELOADER_PID_FILE", format!("{FIXED}/reloader.pid")),
        // For who reports sessions, too: in a pod FRR's sockets have their usual place, here each node has its own.
        ("FRR_VTY_SOCKET", text(&lab.frr_dir(node))),
    ];
    let env = env.map(|(key, value)| (key.to_owned(), value)).to_vec();
    process::start(lab, daemon(NAME, ours("frr-k8s"), env), 0).map(drop)
}

/// Becomes the controller of a node, inside its own mounts.
pub(crate) fn become_controller(lab: &Lab, node: &str) -> Result<()> {
    let binary = lab.frr_k8s.clone().context("the lab runs no frr-k8s")?;
    let dir = lab.node_dir(node);
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace")?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    // The binary may lie in /tmp, which is about to be another one.
    let program = dir.join(NAME);
    std::fs::write(&program, "")?;
    bind(&binary, &program)?;
    if !Path::new(FIXED).exists() {
        // Nothing is made in the machine's own /etc.
        let (upper, work) = (dir.join("etc/upper"), dir.join("etc/work"));
        let layers = format!(
            "lowerdir=/etc,upperdir={},workdir={}",
            upper.display(),
            work.display()
        );
        let overlay = Some("overlay");
        mount(
            overlay,
            "/etc",
            overlay,
            MsFlags::empty(),
            Some(layers.as_str()),
        )
        .context("an overlay on /etc")?;
    }
    bind(&folder(lab, node), Path::new(FIXED))?;
    bind(&dir.join("tmp"), Path::new("/tmp"))?;
    let error = Command::new(&program)
        .args(["--node-name", node, "--namespace", "frr-k8s-system"])
        .args(["--metrics-bind-address", "0"])
        .args(["--health-probe-bind-address", "0"])
        .args(["--bgp-debounce-timeout", "500"])
        .exec();
    Err(error).with_context(|| format!("starting {}", binary.display()))
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    let none: Option<&str> = None;
    mount(Some(from), to, none, MsFlags::MS_BIND, none)
        .with_context(|| format!("binding {} to {}", from.display(), to.display()))
}

/// Is the reloader of a node: on SIGHUP a dry run, then the real one, then the result.
pub(crate) fn reload_for_ever(lab: &Lab, node: &str) -> Result<()> {
    let folder = folder(lab, node);
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGHUP);
    // Before the number is known: a signal that comes early waits.
    signals.thread_block()?;
    write_whole(
        &folder.join("reloader.pid"),
        &std::process::id().to_string(),
    )?;
    loop {
        signals.wait()?;
        let good = reload(lab, node, &folder)?;
        let word = if good { "success" } else { "failure" };
        let running = vtysh(lab, node, &["show running-config"]).output()?;
        let running = String::from_utf8_lossy(&running.stdout).into_owned();
        write_whole(&folder.join("running-config"), &running)?;
        let seconds = crate::run::wall().as_secs();
        write_whole(&folder.join(".status"), &format!("{seconds} {word}\n"))?;
    }
}

fn reload(lab: &Lab, node: &str, folder: &Path) -> Result<bool> {
    let frr = text(&lab.frr_dir(node));
    let run = |what: &[&str]| {
        tool("python3")
            .args([RELOAD_TOOL])
            .args(what)
            .args([
                "--stdout",
                "--vty_socket",
                &frr,
                "--confdir",
                &frr,
                "--rundir",
                &frr,
            ])
            .args([text(&folder.join("frr.conf"))])
            .inside(&lab.namespace(node))
            .output()
    };
    let dry = run(&["--test"])?;
    write_whole(
        &folder.join("last-error"),
        &String::from_utf8_lossy(&[dry.stdout, dry.stderr].concat()),
    )?;
    if !dry.status.success() {
        return Ok(false);
    }
    Ok(run(&["--reload", "--overwrite"])?.status.success())
}
