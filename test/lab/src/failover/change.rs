//! What changes of the nodes' configuration and programs cost those who use the network meanwhile.
//!
//! In: a running lab. Out: for each change how many pings between pods were lost, how long a lasting TCP connection stood
//! still, and how many new flows between pods bore another address than the pod's own: those must be none, because at no
//! moment of a change may pods' traffic to pods be translated.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::pinger::{Losses, Pinger};
use super::stream::{Exchanges, Seen, Streams, Way, serve, ways};
use super::topology::is_tolerable;
use crate::apiserver::kubectl;
use crate::daemons::{configure_agents, configure_managers};
use crate::netns::inside;
use crate::networks::{self, UserNetwork};
use crate::node::ovs::nbctl;
use crate::pods::has_switch_named;
use crate::process;
use crate::proof;
use crate::run::{each, now, tell, until};
use crate::state::{Lab, Node};

/// How long a change may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long traffic goes on before and after a change.
const AROUND: Duration = Duration::from_secs(3);
/// How often outbound SNAT is switched; even, so that it ends as it was.
const TURNS: u32 = 6;
/// Of so many flows one may be without an answer.
const UNANSWERED: u64 = 20;
/// Where node-agents serve their readiness.
const HEALTH: u16 = 9101;
/// A network that comes and goes; no lab has these addresses unless it is asked to.
const PASSING: &str = "passing=10.219.0.0/16/24";

/// All changes; `false` where one of them had pods' traffic to pods translated, or cost a pair of pods its way.
pub(super) fn demonstrate(lab: &Lab) -> Result<bool> {
    let all = ways(&networks::members(lab));
    serve(&all)?;
    let mut good = under_traffic(
        (lab, &all),
        &format!("outbound SNAT switched {TURNS} times"),
        || {
            let switched = switch_snat(lab);
            // Also where something went wrong on the way.
            configure(lab)?;
            switched
        },
    )?;
    good &= under_traffic(
        (lab, &all),
        "all node-agents killed and started again",
        || again(lab, "node-agent", Signal::SIGKILL),
    )?;
    good &= under_traffic(
        (lab, &all),
        "all node-agents ended by SIGTERM and started again",
        || again(lab, "node-agent", Signal::SIGTERM),
    )?;
    good &= under_traffic(
        (lab, &all),
        "all ovn-controllers killed and started again",
        || again(lab, "ovn-controller", Signal::SIGKILL),
    )?;
    if !lab.networks.is_empty() {
        let passing: UserNetwork = PASSING.parse()?;
        good &= under_traffic((lab, &all), "a network comes", || come(lab, &passing))?;
        good &= under_traffic((lab, &all), "it goes", || go(lab, &passing))?;
    }
    Ok(good)
}

pub(super) fn under_traffic(
    (lab, ways): (&Lab, &[Way]),
    name: &str,
    change: impl FnOnce() -> Result<()>,
) -> Result<bool> {
    let pinger = Pinger::of(ways)?;
    let streams = Streams::start(lab, ways)?;
    std::thread::sleep(AROUND);
    let start = now();
    let changed = change().with_context(|| name.to_owned());
    let seconds = start.elapsed().as_secs_f64();
    std::thread::sleep(AROUND);
    let lost = pinger.stop()?;
    let (seen, exchanges) = streams.stop();
    changed?;
    let nodes = lab.nodes.len();
    tell(&format!(
        "{name} on {nodes} nodes: done after {seconds:.1} s"
    ));
    for line in [lost.shown(), seen.shown(), exchanges.shown()] {
        tell(&format!("    {line}"));
    }
    let wrong = wrong(&lost, &seen, &exchanges);
    for line in &wrong {
        tell(&format!("    FAIL: {line}"));
    }
    Ok(wrong.is_empty())
}

/// What a change must not cost, each in its own words.
fn wrong(lost: &Losses, seen: &Seen, exchanges: &Exchanges) -> Vec<&'static str> {
    // Ways that saw nothing say nothing.
    let blind = seen.silent > 0 || exchanges.silent > 0 || seen.flows == 0;
    let all = [
        (blind, "on some way nothing was answered"),
        (seen.translated > 0, "flows between pods were translated"),
        (
            seen.unanswered * UNANSWERED > seen.flows,
            "too many flows were not answered",
        ),
        (!exchanges.broken.is_empty(), "connections broke"),
        (!is_tolerable(lost), "pings were lost"),
    ];
    let found = all.into_iter().filter(|(is_so, _)| *is_so);
    found.map(|(_, text)| text).collect()
}

pub(super) fn configure(lab: &Lab) -> Result<()> {
    configure_managers(lab)?;
    configure_agents(lab)
}

fn switch_snat(lab: &Lab) -> Result<()> {
    let mut turned = lab.clone();
    for _ in 0..TURNS {
        let other = if turned.outward.is_translated() {
            "disabled"
        } else {
            "enabled"
        };
        turned.outward.outbound_snat = other.to_owned();
        configure(&turned)?;
        let done = until(PATIENCE, Duration::from_millis(200), || {
            let all = each(&turned.nodes, |node| {
                proof::translates_as_asked(&turned, node)
            });
            all.iter().all(|right| *right).then_some(())
        });
        done.with_context(|| {
            format!(
                "outbound SNAT is not {other} everywhere after {} s",
                PATIENCE.as_secs()
            )
        })?;
        // What the last flows say comes after what the databases say.
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}

pub(super) fn again(lab: &Lab, daemon: &str, signal: Signal) -> Result<()> {
    let one = |node: &Node| {
        let record = process::record(lab, &node.name, daemon)?;
        process::stop(lab, &node.name, daemon, signal)?;
        process::start(lab, record.start, record.restarts).map(drop)
    };
    each(&lab.nodes, one).into_iter().collect::<Result<()>>()?;
    let works = |node: &Node| match daemon {
        "node-agent" => is_ready(&lab.namespace(&node.name)),
        // It answers when its ovn-controller has made flows of all rows.
        _ => nbctl(lab, &node.name)
            .args(["--wait=hv", "sync"])
            .run()
            .is_ok(),
    };
    for node in &lab.nodes {
        let back = until(PATIENCE, Duration::from_millis(200), || {
            works(node).then_some(())
        });
        back.with_context(|| format!("{daemon} of {} is not at work again", node.name))?;
    }
    // It reads, compares, and writes where something differs.
    std::thread::sleep(Duration::from_secs(5));
    Ok(())
}

/// Whether a node-agent says that its first passes are done.
fn is_ready(namespace: &str) -> bool {
    let asked = inside(namespace, || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, HEALTH))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    asked.is_ok_and(|answer| answer.lines().next().is_some_and(|l| l.contains(" 200 ")))
}

fn come(lab: &Lab, network: &UserNetwork) -> Result<()> {
    let more = Lab {
        networks: vec![network.clone()],
        ..lab.clone()
    };
    networks::create(&more)?;
    stands(lab, network, true)
}

fn go(lab: &Lab, network: &UserNetwork) -> Result<()> {
    let object = format!("delete clusteruserdefinednetwork {}", network.name);
    kubectl(lab).words(&object).run()?;
    stands(lab, network, false)
}

/// Waits until its switch is on every node, or on none.
fn stands(lab: &Lab, network: &UserNetwork, there: bool) -> Result<()> {
    let is_so = || {
        let all = each(&lab.nodes, |node| {
            let place = network.place(lab, &node.name);
            has_switch_named(lab, &node.name, &place.switch)
        });
        all.iter().all(|has| *has == there).then_some(())
    };
    until(PATIENCE, Duration::from_millis(500), is_so)
        .with_context(|| format!("network {} after {} s", network.name, PATIENCE.as_secs()))
}
