//! What it costs the pods of other nodes when a route reflector dies and comes back, loses its link, and is drained.
//!
//! In: a running lab with `topology = route-reflector`. Out: after each step its time, and how many pings between the pods of
//! all other nodes were lost; `false` where a pair of them lost its way.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use super::topology::{PATIENCE, REFLECTORS, stands, step};
use super::{AWAY, watched};
use crate::apiserver::kubectl;
use crate::look::sessions;
use crate::node::frr::boot;
use crate::node::link::{attach_port, detach_port};
use crate::objects::reflectors;
use crate::process;
use crate::reach::{Attached, attached};
use crate::run::until;
use crate::state::{Lab, Node};

/// How long the link is away: longer than a hold time.
const CUT: Duration = Duration::from_secs(15);

/// All three, each with the first of the reflectors.
pub(super) fn demonstrate(lab: &Lab) -> Result<bool> {
    if lab.topology != "route-reflector" || lab.nodes.len() < REFLECTORS + 2 {
        bail!(
            "a reflector is missed in a lab of at least five nodes with --topology route-reflector"
        );
    }
    stands(lab, Some(REFLECTORS), None)?;
    let mut good = true;
    let (node, others) = first(lab)?;
    let killed = format!(
        "bgpd of reflector {} killed, started again after {} s",
        node.name,
        AWAY.as_secs()
    );
    good &= step((lab, &others), &killed, || {
        let record = process::record(lab, &node.name, "bgpd")?;
        process::stop(lab, &node.name, "bgpd", Signal::SIGKILL)?;
        std::thread::sleep(AWAY);
        process::start(lab, record.start, record.restarts)?;
        boot(lab, &node.name, "bgpd")?;
        all_up(lab)
    })?;
    watched(lab)?;
    let (node, others) = first(lab)?;
    let cut = format!(
        "uplink of reflector {} cut for {} s",
        node.name,
        CUT.as_secs()
    );
    good &= step((lab, &others), &cut, || {
        detach_port(lab, node)?;
        std::thread::sleep(CUT);
        attach_port(lab, node)?;
        all_up(lab)
    })?;
    watched(lab)?;
    let (node, others) = first(lab)?;
    let drained = format!("another reflector for {}, which is drained", node.name);
    good &= step((lab, &others), &drained, || {
        kubectl(lab).args(["cordon", &node.name]).run()?;
        stands(lab, Some(REFLECTORS), Some(&node.name))
    })?;
    kubectl(lab).args(["uncordon", &node.name]).run()?;
    Ok(good)
}

/// A reflector, and the pods of all nodes but it.
fn first(lab: &Lab) -> Result<(&Node, Vec<Attached>)> {
    let all = reflectors(lab)?;
    let node = lab.node(all.first().context("no node reflects")?)?;
    let pods = attached(lab).into_iter();
    Ok((node, pods.filter(|(other, _)| other != node).collect()))
}

/// Waits until every session of every node is established.
fn all_up(lab: &Lab) -> Result<()> {
    let up = |node: &Node| {
        let all = sessions(lab, &node.name).unwrap_or_default();
        !all.is_empty() && all.values().all(|session| session.state == "Established")
    };
    let done = until(PATIENCE, Duration::from_millis(500), || {
        lab.nodes.iter().all(up).then_some(())
    });
    done.with_context(|| format!("not all sessions were up after {} s", PATIENCE.as_secs()))
}
