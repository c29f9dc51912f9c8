//! What it costs when the link of one of several routers is cut, and mended.
//!
//! In: a running lab with routers beside its nodes. Out: under pings between all pods, how many were lost while the link was
//! away; `false` where pods did not reach each other over the routers that were left, or not all came back.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::pinger::Pinger;
use super::{AFTER, PATIENCE, watched};
use crate::example;
use crate::look::sessions;
use crate::node::link::{attach_port, detach_port};
use crate::reach::{attached, unreached};
use crate::run::{now, tell, until};
use crate::state::Lab;

/// How long the link is away.
const AWAY: Duration = Duration::from_secs(10);
/// How soon the pods have to reach each other over what is left.
const SOON: Duration = Duration::from_secs(30);

/// Cuts the link of this router, or of the first.
pub(super) fn demonstrate(lab: &Lab, name: Option<&str>) -> Result<bool> {
    let routers = lab
        .example
        .as_ref()
        .map(|example| example.routers.as_slice());
    let routers = routers.unwrap_or_default();
    let router = match name {
        Some(name) => example::router(lab, name)?,
        None => routers
            .first()
            .context("only a lab of --example has routers")?,
    };
    if routers.len() < 2 {
        bail!(
            "the link of a router is cut where there is another: {} is the only one",
            router.name
        );
    }
    watched(lab)?;
    let pods = attached(lab);
    let pinger = Pinger::start(lab, &pods)?;
    std::thread::sleep(Duration::from_secs(2));
    let start = now();
    detach_port(lab, router)?;
    let missing = unreached(lab, &pods, start + SOON);
    std::thread::sleep(AWAY.saturating_sub(start.elapsed()));
    attach_port(lab, router)?;
    let mended = now();
    let back = until(PATIENCE, Duration::from_millis(200), || {
        let up = |node: &str| {
            let all = sessions(lab, node).unwrap_or_default();
            !all.is_empty() && all.values().all(|session| session.state == "Established")
        };
        let all = lab.nodes.iter().all(|node| up(&node.name));
        all.then(|| mended.elapsed().as_secs_f64())
    });
    std::thread::sleep(AFTER);
    let lost = pinger.stop()?;
    tell(&format!(
        "link of router {} cut for {:.1} s:",
        router.name,
        mended.duration_since(start).as_secs_f64()
    ));
    tell(&format!("    {}", lost.shown()));
    for (from, to) in &missing {
        tell(&format!(
            "    the pod on {from} did not reach that on {to} meanwhile"
        ));
    }
    match back {
        Some(seconds) => tell(&format!(
            "    all sessions back {seconds:.1} s after it was mended"
        )),
        None => bail!(
            "not all sessions were back {} s after the link was mended",
            PATIENCE.as_secs()
        ),
    }
    Ok(missing.is_empty() && unreached(lab, &pods, now() + SOON).is_empty())
}
