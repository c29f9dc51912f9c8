//! Line 8: a node withdraws its subnet and brings it back.
//!
//! In: a running lab. Out: how long the others took to drop the route, whether their
//! pods' packets for it left anywhere (with unmanaged routing: whether they left for the default router, as they were sent), and
//! whether all was as before afterwards. The
//! node's own applier is frozen meanwhile, because it may repair what is done here.
//! That packets are seen nowhere says something only where they were sent, and where
//! such as must leave were seen: both are counted beside them.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use super::capture::{Capture, GENEVE, echo_request, is_geneve};
use super::{Failure, Layer, Verdict, World, diagnose, listed, lonely};
use crate::family::Family;
use crate::look::{Routes, frr_routes, imported, kernel_routes};
use crate::node::frr::vtysh;
use crate::node::link::BRIDGE;
use crate::process;
use crate::reach::{Attached, attached, unreached};
use crate::run::{each, now, tool, until};
use crate::state::{Lab, Node, PodAddress};

/// How long the others may still have the route.
const LIMIT: Duration = Duration::from_secs(2);
/// How long the way back may take.
const BACK: Duration = Duration::from_secs(10);

/// Line 8.
pub(super) fn and_restore(world: &mut World<'_>) -> Result<Verdict> {
    let lab = &*world.lab;
    if let Some(failure) = lonely(lab) {
        return Ok(Err(failure));
    }
    let pods = attached(lab);
    let (node, pod) = pods.first().context("no pod is attached")?;
    let mut remarks = Vec::new();
    for own in &pod.addresses {
        match one_subnet(lab, &pods, node, own)? {
            Ok(remark) if pod.addresses.len() == 1 => remarks.push(remark),
            Ok(remark) => remarks.push(format!("{}: {remark}", own.subnet)),
            Err(failure) => return Ok(Err(failure)),
        }
    }
    Ok(Ok(remarks.join("; ")))
}

/// Withdraws one subnet of a node and brings it back.
fn one_subnet(lab: &Lab, pods: &[Attached], node: &Node, pod: &PodAddress) -> Result<Verdict> {
    let others: Vec<&Node> = lab.nodes.iter().filter(|other| *other != node).collect();
    let running = vtysh(lab, &node.name, &["show running-config"]).run()?;
    let statement = format!("network {}", pod.subnet);
    if !running.lines().any(|line| line.trim() == statement) {
        let seen = format!("bgpd of {} has no `{statement}`", node.name);
        return Ok(Err(Failure::new(
            Layer::Frr,
            "each node announces its subnet",
            seen,
        )));
    }
    let applier = process::record(lab, &node.name, lab.applier()).ok();
    if let Some(record) = &applier {
        process::send(record, Signal::SIGSTOP)?;
    }
    let family = pod.family();
    let withdrawn = announce(lab, node, family, &format!("no {statement}"))
        .and_then(|()| gone(lab, &others, node, pod));
    let restored = announce(lab, node, family, &statement);
    if let Some(record) = &applier {
        process::send(record, Signal::SIGCONT)?;
    }
    restored?;
    let start = now();
    let missing = unreached(lab, pods, start + BACK);
    let seconds = match withdrawn? {
        Ok(seconds) => seconds,
        Err(failure) => return Ok(Err(failure)),
    };
    if let Some((from, to)) = missing.first() {
        let (layer, why) = diagnose::pods(lab, lab.node(from)?, lab.node(to)?);
        let expected = format!(
            "all pods reach each other again within {} s",
            BACK.as_secs()
        );
        return Ok(Err(Failure::new(
            layer,
            expected,
            format!("{from} -> {to}: no answer; {why}"),
        )));
    }
    let back = start.elapsed().as_secs_f64();
    for other in others {
        if let Some((layer, why)) = diagnose::route(lab, other, node)? {
            return Ok(Err(Failure::new(
                layer,
                "every layer as it was before",
                why,
            )));
        }
    }
    let went = if forwards(lab) {
        "to the default router with its own address"
    } else {
        "nowhere"
    };
    Ok(Ok(format!(
        "gone everywhere after {seconds:.2} s, {COUNT} pings from each other pod went {went}, reached again {back:.2} s after its return"
    )))
}

/// Whether packets for a pod subnet without a route take the default route: what nobody says otherwise of with unmanaged routing.
fn forwards(lab: &Lab) -> bool {
    !lab.outward.is_managed()
}

fn announce(lab: &Lab, node: &Node, family: Family, statement: &str) -> Result<()> {
    let router = format!("router bgp {}", lab.values.as_number);
    let part = format!("address-family {} unicast", family.afi());
    let commands = ["configure terminal", &router, &part, statement];
    vtysh(lab, &node.name, &commands).run().map(drop)
}

/// Seconds until no other node had the route; or why their packets do not stay inside then.
fn gone(
    lab: &Lab,
    others: &[&Node],
    node: &Node,
    pod: &PodAddress,
) -> Result<std::result::Result<f64, Failure>> {
    let start = now();
    // Each node is watched by itself: with many, a look at all of them takes long.
    let dropped: Vec<Option<f64>> = each(others, |other| {
        until(LIMIT, Duration::from_millis(10), || {
            let rows = imported(lab, &other.name).ok()?;
            let clean = rows.iter().all(|(subnet, _)| *subnet != pod.subnet);
            clean.then(|| start.elapsed().as_secs_f64())
        })
    });
    if let Some((other, _)) = others.iter().zip(&dropped).find(|(_, gone)| gone.is_none()) {
        let (subnet, limit) = (pod.subnet, LIMIT.as_secs());
        let expected = format!("no route to the withdrawn {subnet} after {limit} s");
        let (layer, seen) = keeps(lab, other, pod);
        return Ok(Err(Failure::new(layer, expected, seen)));
    }
    let seconds = dropped.into_iter().flatten().fold(0.0, f64::max);
    let leaving = leaving(lab, others, pod)?;
    Ok(match leaving.evaluated(node) {
        Some(failure) => Err(failure),
        None => Ok(seconds),
    })
}

/// Echo requests that each pod sends to the withdrawn one.
const COUNT: usize = 3;

/// What another node's pod sent, and what of it was seen.
struct Sent {
    node: String,
    /// Requests to the withdrawn pod that left the sender.
    left: usize,
    /// What ping said of them.
    said: String,
    /// Those of them that were handed to the default router, from the sender's own address.
    forwarded: usize,
    /// Whether its request to the outside host was seen there.
    control: bool,
}

/// What the other nodes' pods sent.
struct Leaving {
    pods: Vec<Sent>,
    /// The outside host.
    outside: IpAddr,
    /// Packets on the underlay that must not be there: Geneve, and for the withdrawn pod all, or all that do not go to the default
    /// router or come from there.
    leaked: Vec<String>,
    /// Then it is the default router's, whether they are answered.
    forwards: bool,
}

/// Has the others' pods ping the withdrawn one, and then the outside host, which every pod must reach.
fn leaving(lab: &Lab, others: &[&Node], pod: &PodAddress) -> Result<Leaving> {
    let outside = lab.values.outside_address(pod.family())?;
    let echo = pod.family().echo_filter();
    let (underlay, withdrawn, forwards) = (lab.namespace("underlay"), pod.address, forwards(lab));
    let router = outside_mac(lab)?;
    // What goes to the default router, and what that sends on, is counted by itself.
    let spared = if forwards {
        format!(" and not ether dst {router} and not ether src {router}")
    } else {
        String::new()
    };
    let filter = format!(
        "(dst host {withdrawn}{spared}) or udp port {GENEVE} or ({echo} and dst host {outside})"
    );
    let capture = Capture::start(&underlay, BRIDGE, &[], &filter)?;
    let filter = format!("{echo} and dst host {withdrawn} and ether dst {router}");
    let handed = Capture::start(&underlay, BRIDGE, &[], &filter)?;
    let sent = each(others, |other| {
        asked(&lab.pod_namespace(&other.name), pod, outside)
    });
    let sent = sent.into_iter().collect::<Result<Vec<_>>>()?;
    let (wire, handed) = (capture.stop()?, handed.stop()?);
    let handed: Vec<_> = handed.lines().filter_map(echo_request).collect();
    let seen: Vec<_> = wire.lines().filter_map(echo_request).collect();
    // Where nothing is translated the request bears the pod's own address.
    let own = |other: &Node| {
        let other = lab.pod(&other.name)?;
        other.in_family(pod.family()).map(|own| own.address)
    };
    let source = |other: &Node| {
        if lab.outward.is_translated() {
            return lab.values.address_of(other.index, pod.family()).ok();
        }
        own(other)
    };
    let count = |all: &[(IpAddr, IpAddr)], pair| all.iter().filter(|seen| **seen == pair).count();
    let ours = |line: &&str| echo_request(line).is_some_and(|(_, to)| to == outside);
    let pods = others.iter().zip(sent).map(|(other, (left, said))| Sent {
        node: other.name.clone(),
        left,
        said,
        forwarded: own(other).map_or(0, |own| count(&handed, (own, withdrawn))),
        control: source(other).is_some_and(|own| count(&seen, (own, outside)) > 0),
    });
    Ok(Leaving {
        pods: pods.collect(),
        outside,
        leaked: wire
            .lines()
            .filter(|line| line.contains(" IP ") || line.contains(" IP6 ") || is_geneve(line))
            .filter(|line| !ours(line))
            .map(str::to_owned)
            .collect(),
        forwards,
    })
}

/// The link address of the outside host, which is the default router.
fn outside_mac(lab: &Lab) -> Result<String> {
    let shown = tool("ip")
        .words("-o link show dev eth0")
        .inside(&lab.namespace("outside"))
        .run()?;
    let mut words = shown
        .split_whitespace()
        .skip_while(|word| *word != "link/ether");
    let mac = words
        .nth(1)
        .context("the outside host has no link address")?;
    Ok(mac.to_owned())
}

/// A pod pings the withdrawn one and then the outside host: how many requests to the first left it, and what ping said of them.
fn asked(namespace: &str, pod: &PodAddress, outside: IpAddr) -> Result<(usize, String)> {
    let filter = format!(
        "{} and dst host {}",
        pod.family().echo_filter(),
        pod.address
    );
    let own = Capture::start(namespace, "eth0", &["-Q", "out"], &filter)?;
    let ping = |count: usize, to: IpAddr| {
        let words = format!("-n -q -c {count} -i 0.2 -W 0.3 {to}");
        tool("ping").words(&words).inside(namespace).output()
    };
    let said = ping(COUNT, pod.address)?;
    ping(1, outside)?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let summary = said.lines().find(|line| line.contains("transmitted"));
    let left = own.stop()?.lines().filter_map(echo_request).count();
    Ok((left, summary.unwrap_or("nothing").to_owned()))
}

impl Leaving {
    /// Why this is not as it must be; `None` where it is.
    fn evaluated(&self, node: &Node) -> Option<Failure> {
        if !self.leaked.is_empty() {
            let but = if self.forwards {
                " but to and from the default router"
            } else {
                ""
            };
            let expected = format!(
                "no packet for the withdrawn pod of {} on the underlay{but}, and no Geneve",
                node.name
            );
            let seen = format!("{} packets: {}", self.leaked.len(), listed(&self.leaked));
            return Some(Failure::new(Layer::Packets, expected, seen));
        }
        for sent in &self.pods {
            let name = &sent.node;
            let expected = if sent.left < COUNT {
                format!("{COUNT} echo requests that leave the pod on {name}")
            } else if !self.forwards && !sent.said.contains(" 0 received") {
                format!("no answer to the pod on {name}")
            } else if self.forwards && sent.forwarded < COUNT {
                format!("{COUNT} echo requests of the pod on {name} to the default router")
            } else if !sent.control {
                let outside = self.outside;
                format!("an echo request of the pod on {name} to {outside} on the underlay")
            } else {
                continue;
            };
            let Sent {
                left,
                forwarded,
                said,
                ..
            } = sent;
            let seen = format!("{left} left, {forwarded} to the default router; ping: {said}");
            return Some(Failure::new(Layer::Packets, expected, seen));
        }
        None
    }
}

/// At which layer a node is the first to keep the route.
fn keeps(lab: &Lab, other: &Node, pod: &PodAddress) -> (Layer, String) {
    let name = &other.name;
    let has = |routes: Result<Routes>| {
        routes.is_ok_and(|routes| routes.iter().any(|(subnet, _)| *subnet == pod.subnet))
    };
    let layer = if has(frr_routes(lab, name)) {
        Layer::Frr
    } else if has(kernel_routes(lab, name)) {
        Layer::Kernel
    } else {
        Layer::Ovn
    };
    (layer, format!("{name} still has a route to {}", pod.subnet))
}
