//! The imitation of OVN-Kubernetes, held to what was recorded of it.
//!
//! In: a lab beside it whose default network has IPv4. Out: for each thing that others may leave beside or in what it has: whether it
//! stands when nothing happened, after a sync of the gateway and after a start, and whether that is what was recorded of OVN-Kubernetes
//! (commit 8871cd9, OVN 26.03.1, over tunnels); and that at the end the node is as it was found but for what our daemons, which run all
//! the while and keep their policies and address sets, have added.
//! Not here: EgressIP, networks without an overlay, IPv6, and what lies in a VRF, which not every kernel has.

mod lines;
mod scene;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use self::lines::{Group, Line};
use self::scene::Scene;
use super::player::{Done, done};
use super::{KEEPER, found, unsteered};
use crate::process;
use crate::run::{each, tell, tool, until};
use crate::state::{Lab, Node, text};

/// Longer than two rounds over bridge and host.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);
/// An address that comes to the bridge: a sync of the gateway.
const ADDRESS: &str = "198.18.0.9/32";
/// A route of BGP that comes and goes.
const ROUTE: &str = "198.18.9.0/24";
const MOMENTS: [&str; 4] = ["nothing happened", "gateway sync", "BGP routes", "start"];

/// All lines, those that need each other's rows whole on nodes of their own; `false` where something became of one of them that was
/// not recorded.
pub(crate) fn demonstrate(lab: &Lab) -> Result<bool> {
    if lab.adopted.is_none() || lab.ovn_kubernetes.is_some() {
        bail!("only a lab that came up with --adopt has an imitation of OVN-Kubernetes");
    }
    let groups: Vec<(&Node, Group)> = lab.nodes.iter().zip(lines::GROUPS).collect();
    if groups.len() < lines::GROUPS.len() {
        bail!("it takes {} nodes", lines::GROUPS.len());
    }
    let (mut count, mut wrong) = (0, 0);
    for told in each(&groups, |(node, group)| on_node(lab, node, *group)) {
        let (lines, failed) = told?;
        count += lines;
        wrong += failed;
    }
    tell(&format!(
        "{count} foreign or changed rows, rules, routes and the like; {wrong} not as recorded"
    ));
    Ok(wrong == 0)
}

/// Those of a group on a node: how many, and how many not as recorded.
fn on_node(lab: &Lab, node: &Node, group: Group) -> Result<(usize, usize)> {
    let scene = Scene::of(lab, node)?;
    let lines = group(&scene);
    let told = under(lab, node, &lines);
    let address = format!("ip address del {ADDRESS} dev br-ex || true");
    run(lab, node, &address)?;
    for line in &lines {
        run(lab, node, &line.away).with_context(|| line.what.clone())?;
    }
    let wrong = told?;
    let difference = found::difference(lab, node)?;
    let strangers = found::strangers(&difference);
    if !strangers.is_empty() {
        bail!(
            "{}: not as it was found: {}",
            node.name,
            strangers.join(" | ")
        );
    }
    Ok((lines.len(), wrong.len()))
}

/// Puts all, and tells at each moment what stands; the names of those that are not as recorded.
fn under(lab: &Lab, node: &Node, lines: &[Line]) -> Result<Vec<String>> {
    let mut seen: Vec<Vec<bool>> = vec![Vec::new(); lines.len()];
    for (moment, name) in MOMENTS.iter().enumerate() {
        let looked_at = |line: &&Line| line.stands.get(moment).is_some_and(Option::is_some);
        for line in lines.iter().filter(looked_at) {
            if !is_there(lab, node, line)? {
                run(lab, node, &line.put).with_context(|| line.what.clone())?;
            }
            if !is_there(lab, node, line)? {
                bail!("{}: cannot be put: {}", line.what, line.put);
            }
        }
        happen(lab, node, moment).with_context(|| (*name).to_owned())?;
        for (line, seen) in lines.iter().zip(&mut seen) {
            seen.push(is_there(lab, node, line)?);
        }
        let missing = unsteered(lab)?;
        if !missing.is_empty() {
            bail!("{name}: our daemons' part: {}", missing.join("; "));
        }
    }
    let mut wrong = Vec::new();
    for (line, seen) in lines.iter().zip(&seen) {
        let as_recorded = line.stands.iter().zip(seen);
        let as_recorded = as_recorded
            .into_iter()
            .all(|(of, seen)| of.is_none_or(|of| of == *seen));
        let verdict = if as_recorded { "  ok  " } else { "  FAIL" };
        let moments = MOMENTS.iter().zip(seen);
        let moments = moments
            .map(|(moment, seen)| format!("{moment}: {}", if *seen { "stands" } else { "gone" }));
        let moments: Vec<String> = moments.collect();
        tell(&format!(
            "{verdict} {}: {}: {}",
            node.name,
            line.what,
            moments.join(", ")
        ));
        if !as_recorded {
            wrong.push(line.what.clone());
        }
    }
    Ok(wrong)
}

/// Waits until the imitation has done what it does at that moment.
fn happen(lab: &Lab, node: &Node, moment: usize) -> Result<()> {
    let before = done(lab, &node.name)?;
    if [0, MOMENTS.len() - 1].contains(&moment) {
        // Two rounds: one of them began after everything was put.
        waited(lab, node, |now| now.rounds >= before.rounds + 2)?;
    }
    let ip = |words: String| run(lab, node, &format!("ip {words}")).map(drop);
    match moment {
        0 => Ok(()),
        1 => {
            ip(format!("address add {ADDRESS} dev br-ex"))?;
            waited(lab, node, |now| now.syncs > before.syncs)?;
            ip(format!("address del {ADDRESS} dev br-ex"))?;
            waited(lab, node, |now| now.syncs > before.syncs + 1)
        }
        2 => {
            ip(format!("route add blackhole {ROUTE} proto bgp"))?;
            waited(lab, node, |now| now.imports > before.imports)?;
            ip(format!("route del blackhole {ROUTE} proto bgp"))?;
            waited(lab, node, |now| now.imports > before.imports + 1)
        }
        _ => {
            process::stop(lab, &node.name, KEEPER, Signal::SIGKILL)?;
            let record = process::record(lab, &node.name, KEEPER)?;
            process::start(lab, record.start, 0)?;
            waited(lab, node, |now| now.starts > before.starts)
        }
    }
}

fn waited(lab: &Lab, node: &Node, has: impl Fn(&Done) -> bool) -> Result<()> {
    let seen = until(PATIENCE, LOOK, || {
        done(lab, &node.name).ok().filter(|now| has(now)).map(drop)
    });
    seen.context("the imitation has not done its work: see `hack/lab logs`")
}

fn is_there(lab: &Lab, node: &Node, line: &Line) -> Result<bool> {
    Ok(shell(lab, node, &line.there).output()?.status.success())
}

fn run(lab: &Lab, node: &Node, script: &str) -> Result<String> {
    shell(lab, node, script).run()
}

fn shell(lab: &Lab, node: &Node, script: &str) -> crate::run::Tool {
    let rundir = text(&lab.ovs_dir(&node.name));
    tool("sh")
        .args(["-ec", script])
        .env("OVS_RUNDIR", &rundir)
        .env("OVN_RUNDIR", &rundir)
        .inside(&lab.namespace(&node.name))
}
