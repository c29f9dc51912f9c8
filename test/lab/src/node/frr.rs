//! FRR of one node: zebra, bgpd, bfdd and staticd, without configuration.
//!
//! In: a node with its address. Out: four daemons with their sockets in a folder that
//! belongs to the user frr. bgpd listens. Its configuration is the product's.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::{Group, User, chown};

use crate::process::{self, Start};
use crate::run::{Tool, each, tool, until};
use crate::state::{Lab, Node, text};

const PROGRAMS: &str = "/usr/lib/frr";
/// FRR's own reload tool.
pub(crate) const RELOAD_TOOL: &str = "/usr/lib/frr/frr-reload.py";
/// The daemons of a node.
pub(crate) const DAEMONS: [&str; 4] = ["zebra", "bgpd", "bfdd", "staticd"];

/// Starts the four daemons and waits for their sockets.
pub(crate) fn up(lab: &Lab, node: &Node) -> Result<()> {
    let dir = lab.frr_dir(&node.name);
    std::fs::create_dir_all(&dir)?;
    // Without the file vtysh complains at every call; without the line `write` would go to the machine's own /etc/frr.
    std::fs::write(dir.join("vtysh.conf"), "service integrated-vtysh-config\n")?;
    let user = User::from_name("frr")?.context("no user frr: is FRR installed?")?;
    let group = Group::from_name("frr")?.context("no group frr")?;
    chown(&dir, Some(user.uid), Some(group.gid))?;
    chown(&dir.join("vtysh.conf"), Some(user.uid), Some(group.gid))?;
    process::start(lab, daemon(lab, node, "zebra"), 0)?;
    let rest = ["bgpd", "bfdd", "staticd"];
    for started in each(&rest, |name| {
        process::start(lab, daemon(lab, node, name), 0)
    }) {
        started?;
    }
    until(Duration::from_secs(5), Duration::from_millis(10), || {
        DAEMONS
            .iter()
            .all(|daemon| dir.join(format!("{daemon}.vty")).exists())
            .then_some(())
    })
    .context("not all of FRR's daemons opened their socket within 5 s")
}

fn daemon(lab: &Lab, node: &Node, name: &str) -> Start {
    let dir = lab.frr_dir(&node.name);
    let file = |name: String| text(&dir.join(name));
    let pidfile = dir.join(format!("{name}.pid"));
    let log = dir.join(format!("{name}.log"));
    let mut argv = vec![format!("{PROGRAMS}/{name}")];
    argv.extend(["-d", "-u", "frr", "-g", "frr", "-P", "0"].map(str::to_owned));
    argv.extend(["--vty_socket".to_owned(), text(&dir)]);
    argv.extend(["-i".to_owned(), text(&pidfile)]);
    argv.extend(["-z".to_owned(), file("zserv.api".to_owned())]);
    argv.extend(["--log".to_owned(), format!("file:{}", text(&log))]);
    match name {
        "bfdd" => argv.extend(["--bfdctl".to_owned(), file("bfdd.sock".to_owned())]),
        "bgpd" => argv.extend(["-p".to_owned(), "179".to_owned()]),
        _ => {}
    }
    Start {
        node: node.name.clone(),
        name: name.to_owned(),
        argv,
        env: Vec::new(),
        log,
        pidfile: Some(pidfile),
    }
}

/// What bgpd says to neighbors that have graceful restart already.
const TWICE: &str = "The Graceful Restart command used is not valid at this moment";

/// Gives a daemon that was started again its part of frr.conf, as watchfrr does. The agent may have done so already.
pub(crate) fn boot(lab: &Lab, node: &str, daemon: &str) -> Result<()> {
    let dir = text(&lab.frr_dir(node));
    let words = ["--vty_socket", &dir, "--config_dir", &dir];
    let loaded = tool("vtysh")
        .args(words)
        .args(["-b", "-d", daemon])
        .inside(&lab.namespace(node))
        .run();
    match loaded {
        Err(error) if !format!("{error:#}").contains(TWICE) => {
            Err(error).with_context(|| format!("loading frr.conf into {daemon} of {node}"))
        }
        _ => Ok(()),
    }
}

/// Loads a configuration file into all daemons of a router.
pub(crate) fn load(lab: &Lab, router: &str, file: &Path) -> Result<()> {
    let vtysh = tool("vtysh").args(["--vty_socket", &text(&lab.frr_dir(router))]);
    vtysh
        .args(["-f", &text(file)])
        .inside(&lab.namespace(router))
        .run()
        .map(drop)
}

/// `vtysh` of a node, with commands.
pub(crate) fn vtysh(lab: &Lab, node: &str, commands: &[&str]) -> Tool {
    let mut vtysh = tool("vtysh").args(["--vty_socket", &text(&lab.frr_dir(node))]);
    for command in commands {
        vtysh = vtysh.args(["-c", command]);
    }
    vtysh.inside(&lab.namespace(node))
}
