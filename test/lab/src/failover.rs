//! What failures cost: a bgpd that dies and comes back, a node's uplink that is cut, and
//! an FRR that is ended in good order.
//!
//! In: a running lab. Out: under pings between all pods, how many were lost while bgpd
//! was away; and how long after a cut the other nodes still have routes to the node, in
//! the kernel and in OVN. A cut is silent: no end of any link loses its carrier.

mod auto;
mod beside;
mod change;
mod frr_stop;
mod pinger;
mod reflector;
mod router;
mod stream;
mod topology;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::look::{Session, bfd_not_up, kernel_routes, last_reset, sessions};
use crate::node::frr::boot;
use crate::node::link::{attach_port, detach_port};
use crate::process;
use crate::reach::{attached, unreached};
use crate::run::{now, tell, until};
use crate::state::{Lab, Node};

use pinger::Pinger;
use watch::{Gaps, Side, Watch};

/// How long bgpd is away.
const AWAY: Duration = Duration::from_secs(5);
/// How long sessions may need to come back, and routes to go.
const PATIENCE: Duration = Duration::from_secs(200);
/// How long BFD may need to come up after its sessions: it begins with a packet a second.
const BFD_PATIENCE: Duration = Duration::from_secs(30);
/// How long pings go on after the last session is back: routes follow their sessions.
const AFTER: Duration = Duration::from_secs(8);

/// What is demonstrated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// bgpd is killed and started again.
    Bgpd,
    /// The uplink is cut.
    Cut,
}

/// Names on the command line. All but the first two take their time and have to be asked for.
pub(crate) const NAMES: [&str; 10] = [
    "bgpd",
    "cut",
    "frr-stop",
    "change",
    "topology",
    "auto",
    "router",
    "reflector",
    "beside",
    "beside-users",
];

/// How long pods may take to reach each other before anything is broken.
const FIRST: Duration = Duration::from_secs(10);

/// How often FRR is stopped in good order, and with how many more routes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stops {
    pub(crate) rounds: u32,
    pub(crate) routes: u16,
}

/// Demonstrates the first two, or one of them; `false` where a restart of FRR cost pings
/// although the fabric is a resilient one, or an orderly one cost rows.
pub(crate) fn demonstrate(
    lab: &Lab,
    only: Option<&str>,
    node: Option<&str>,
    stops: Stops,
) -> Result<bool> {
    frr_stop::check(stops.rounds, stops.routes)?;
    if only == Some("router") {
        tell(&format!(
            "failover: {} nodes, load {}",
            lab.nodes.len(),
            load()
        ));
        return router::demonstrate(lab, node);
    }
    let first = lab.nodes.first().context("the lab has no node")?;
    let node = match node {
        Some(name) => lab.node(name)?,
        None => first,
    };
    if lab.nodes.len() < 2 {
        bail!("a failure is seen from other nodes: at least two are needed");
    }
    let pods = attached(lab);
    // The first packet of a way may take longer than an answer is waited for, on a slow machine.
    if let Some((from, to)) = unreached(lab, &pods, now() + FIRST).first() {
        bail!("before anything is broken, the pod on {from} does not reach that on {to}");
    }
    tell(&format!(
        "failover: profile {}, {} nodes, load {}",
        lab.profile,
        lab.nodes.len(),
        load()
    ));
    if only == Some("frr-stop") {
        return frr_stop::demonstrate(lab, node, stops.rounds, stops.routes);
    }
    watched(lab)?;
    if only == Some("change") {
        return change::demonstrate(lab);
    }
    if only == Some("beside") || only == Some("beside-users") {
        return beside::demonstrate(lab, node, only == Some("beside-users"));
    }
    if only == Some("topology") {
        return topology::demonstrate(lab);
    }
    if only == Some("auto") {
        return auto::demonstrate(lab);
    }
    if only == Some("reflector") {
        return reflector::demonstrate(lab);
    }
    let wanted = |what: What| match what {
        What::Bgpd => only.is_none_or(|name| name == "bgpd"),
        What::Cut => only.is_none_or(|name| name == "cut"),
    };
    let mut good = true;
    if wanted(What::Bgpd) {
        good &= restart(lab, node)?;
    }
    if wanted(What::Cut) {
        cut(lab, node)?;
    }
    Ok(good)
}

/// A session that has been up for less is one that comes and goes while FRR starts.
const YOUNG: Duration = Duration::from_secs(10);

/// Waits until BFD watches every session that has it, and every session has been up for a while: what is broken before
/// costs a hold time, or the time in which a node-agent does not believe that a young session has ended.
fn watched(lab: &Lab) -> Result<()> {
    let mut down = Vec::new();
    let up = until(BFD_PATIENCE, Duration::from_millis(200), || {
        down.clear();
        for node in &lab.nodes {
            let of_node = bfd_not_up(lab, &node.name).and_then(|mut not_up| {
                not_up.extend(young(lab, &node.name)?);
                Ok(not_up)
            });
            let of_node = of_node.unwrap_or_else(|why| vec![format!("{why:#}")]);
            down.extend(of_node.iter().map(|peer| format!("{}: {peer}", node.name)));
        }
        down.is_empty().then_some(())
    });
    if up.is_none() {
        bail!(
            "BFD or sessions are not up after {} s: {}",
            BFD_PATIENCE.as_secs(),
            down.join(", ")
        );
    }
    Ok(())
}

/// Peers whose sessions are not up, or not for long.
fn young(lab: &Lab, node: &str) -> Result<Vec<String>> {
    let all = sessions(lab, node)?;
    let old = |s: &Session| s.state == "Established" && Duration::from_millis(s.uptime) >= YOUNG;
    let young = all.iter().filter(|(_, session)| !old(session));
    Ok(young
        .map(|(peer, s)| format!("{peer} {}", s.state))
        .collect())
}

/// Mean number of running processes in the last minute, as the kernel counts it.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("?").to_owned()
}

/// bgpd dies, and comes back as watchfrr brings it back.
fn restart(lab: &Lab, node: &Node) -> Result<bool> {
    let pods = attached(lab);
    let peers = lab.nodes.len().saturating_sub(1);
    let pinger = Pinger::start(lab, &pods)?;
    std::thread::sleep(Duration::from_secs(2));
    let all: Vec<&str> = lab.nodes.iter().map(|n| n.name.as_str()).collect();
    let watch = Watch::start(lab, &all, &[])?;
    let start = now();
    let record = process::record(lab, &node.name, "bgpd")?;
    process::stop(lab, &node.name, "bgpd", Signal::SIGKILL)?;
    std::thread::sleep(AWAY);
    // bgpd keeps the last reason only: asked before sessions are tried again.
    let ended = ends(lab, node)?;
    process::start(lab, record.start, record.restarts)?;
    boot(lab, &node.name, "bgpd")?;
    let back = until(PATIENCE, Duration::from_millis(200), || {
        let all = sessions(lab, &node.name).ok()?;
        let up = all.values().filter(|s| s.state == "Established").count();
        let routes = kernel_routes(lab, &node.name).ok()?.len();
        (up == peers && routes >= peers).then(|| start.elapsed().as_secs_f64())
    });
    std::thread::sleep(AFTER);
    let lost = pinger.stop()?;
    // Where all is back: what is not is reported below.
    if back.is_some() {
        watch.control(lab, &node.name)?;
    }
    let gaps = watch.stop()?;
    let Some(back) = back else {
        bail!(
            "bgpd of {}: not all of its {peers} sessions and routes were back after {} s",
            node.name,
            PATIENCE.as_secs()
        );
    };
    tell(&format!(
        "bgpd of {} killed, started again after {} s, all sessions and routes back after {back:.1} s:",
        node.name,
        AWAY.as_secs()
    ));
    tell(&format!("    {}", lost.shown()));
    let told = |g: &&Gaps| g.node == node.name || g.first().is_some();
    for gaps in gaps.iter().filter(told) {
        tell(&format!("    {}", gaps.shown()));
    }
    let short: BTreeSet<&str> = (gaps.iter().filter(|g| g.first().is_some()))
        .map(|gaps| gaps.node.as_str())
        .collect();
    for (peer, why) in ended
        .iter()
        .filter(|(peer, _)| short.contains(peer.as_str()))
    {
        tell(&format!("    {peer}'s session with {}: {why}", node.name));
    }
    Ok(lost.lost == 0 || lab.profile != "resilient")
}

/// Why the other nodes' sessions with this one ended, by node.
fn ends(lab: &Lab, node: &Node) -> Result<BTreeMap<String, String>> {
    let others = lab.nodes.iter().filter(|other| other.name != node.name);
    let why = |other: &Node| {
        let why = last_reset(lab, &other.name, lab.address(node))?;
        Ok((other.name.clone(), why))
    };
    others.map(why).collect()
}

/// The uplink is cut and reconnected.
fn cut(lab: &Lab, node: &Node) -> Result<()> {
    let others = lab.nodes.iter().filter(|other| *other != node);
    let others: Vec<&str> = others.map(|other| other.name.as_str()).collect();
    let watch = Watch::start(lab, &others, &[])?;
    let start = now();
    detach_port(lab, node)?;
    let gone = until(PATIENCE, Duration::from_millis(20), || {
        watch.all_short().then(|| start.elapsed().as_secs_f64())
    });
    if gone.is_some() {
        // A route that is held or comes back would show here.
        std::thread::sleep(Duration::from_secs(1));
    }
    let gaps = watch.stop()?;
    let corrected = now();
    attach_port(lab, node)?;
    let pods = attached(lab);
    let missing = unreached(lab, &pods, corrected + PATIENCE);
    let back = corrected.elapsed().as_secs_f64();
    if gone.is_none() {
        bail!(
            "uplink of {} cut: others still have its routes after {} s",
            node.name,
            PATIENCE.as_secs()
        );
    }
    let first = |name: &str, side: Side| {
        let of = gaps.iter().find(|g| g.node == name && g.side == side)?;
        Some(of.first()?.saturating_duration_since(start).as_secs_f64())
    };
    let (mut kernel, mut ovn) = (Vec::new(), Vec::new());
    for other in &others {
        kernel.extend(first(other, Side::Kernel));
        ovn.extend(first(other, Side::Ovn));
    }
    let most = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    let share = kernel.iter().zip(&ovn).map(|(k, o)| (o - k).max(0.0));
    let share: Vec<f64> = share.collect();
    tell(&format!(
        "uplink of {} cut: its routes gone from the kernel of the last other node after {:.2} s, from OVN after {:.2} s (the node-agent's share at most {:.2} s)",
        node.name,
        most(&kernel),
        most(&ovn),
        most(&share)
    ));
    if missing.is_empty() {
        tell(&format!(
            "    all pods reach each other again {back:.1} s after it was repaired"
        ));
        return Ok(());
    }
    bail!(
        "{} pairs of pods do not reach each other {back:.0} s after the uplink was repaired",
        missing.len()
    )
}
