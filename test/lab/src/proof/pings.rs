//! Lines 1 and 2: pods ping pods, and the underlay is watched meanwhile.
//!
//! In: attached pods. Out: whether every ping was answered, which source addresses the
//! receivers saw (tcpdump inside each pod), and what the underlay carried.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::Result;

use super::capture::{Capture, GENEVE, echo_request, is_geneve};
use super::{Failure, Layer, Verdict, World, diagnose, in_families, listed, lonely};
use crate::family::Family;
use crate::node::link::BRIDGE;
use crate::reach::{Attached, attached};
use crate::run::{each, tool};
use crate::state::{Lab, Node, PodAddress};

/// Echo requests per pair.
const COUNT: usize = 3;
/// Of a pair that lost one of them, which a machine that is busy starting the lab may: so many more, each of which has to be
/// answered.
const MORE: usize = 30;

/// What the pings and the captures showed.
pub(super) struct Pings {
    /// Pairs that lost some: from, to, how many came back.
    lost: Vec<(Node, Node, String)>,
    /// Pairs that lost one ping and none of many more, in words.
    once: Vec<String>,
    /// Receivers that saw a source which is no pod: to, source.
    foreign: Vec<(Node, IpAddr)>,
    /// Pairs whose packets a receiver never saw from the sender's address.
    unseen: Vec<(Node, Node)>,
    /// Echo requests sent from one node to another.
    sent: usize,
    /// Echo requests with pod source and pod destination on the underlay, as tcpdump shows them.
    plain: Vec<String>,
    /// Geneve packets on the underlay, as tcpdump shows them.
    geneve: Vec<String>,
}

/// So many of the packets that were counted are printed.
const SHOWN: usize = 3;

/// Line 1.
pub(super) fn every_pair(world: &mut World<'_>) -> Result<Verdict> {
    if let Some(failure) = lonely(world.lab) {
        return Ok(Err(failure));
    }
    let expected = "answers to all pings, each seen with its sender's pod address";
    if let Some(node) = world
        .lab
        .nodes
        .iter()
        .find(|node| world.lab.pod(&node.name).is_none())
    {
        let (layer, seen) = diagnose::missing_pod(world.lab, node);
        return Ok(Err(Failure::new(
            layer,
            format!("a pod on {}", node.name),
            seen,
        )));
    }
    let lab = &*world.lab;
    let pings = pinged(&mut world.pings, lab)?;
    let foreign = pings.foreign.iter();
    let lost = pings.lost.iter();
    let unseen = pings.unseen.iter();
    let complaints: Vec<String> =
        foreign
            .map(|(to, source)| format!("the pod on {} saw {source}", to.name))
            .chain(lost.map(|(from, to, came)| format!("{} -> {}: {came}", from.name, to.name)))
            .chain(unseen.map(|(from, to)| {
                format!("the pod on {} never saw that on {}", to.name, from.name)
            }))
            .collect();
    if !complaints.is_empty() {
        let lost = pings.lost.first().map(|(from, to, _)| (from, to));
        let pair = lost.or_else(|| pings.unseen.first().map(|(from, to)| (from, to)));
        let (layer, why) = match pair {
            Some((from, to)) => diagnose::pods(lab, from, to),
            None => (Layer::Packets, "no layer explains it".to_owned()),
        };
        let seen = format!("{}; {why}", listed(&complaints));
        return Ok(Err(Failure::new(layer, expected, seen)));
    }
    let nodes = lab.nodes.len();
    let once: String = pings.once.iter().map(|text| format!("; {text}")).collect();
    Ok(Ok(format!(
        "{} pairs{}, {} pings{once}",
        nodes * nodes.saturating_sub(1),
        in_families(lab),
        pings.sent
    )))
}

/// Line 2.
pub(super) fn underlay(world: &mut World<'_>) -> Result<Verdict> {
    let lab = &*world.lab;
    if let Some(failure) = lonely(lab) {
        return Ok(Err(failure));
    }
    let pings = pinged(&mut world.pings, lab)?;
    let (geneve, plain) = (pings.geneve.len(), pings.plain.len());
    let remark = format!(
        "{geneve} Geneve packets, {plain} echo requests with pod addresses for {} sent{}",
        pings.sent,
        shown(&pings.geneve)
    );
    let right = if lab.is_tunneled() {
        plain == 0 && geneve >= pings.sent
    } else {
        geneve == 0 && plain >= pings.sent
    };
    if right && pings.sent > 0 {
        return Ok(Ok(remark + &first(&pings.plain)));
    }
    if lab.is_tunneled() {
        let expected = "a Geneve packet for each ping sent, and none with pod addresses outside";
        return Ok(Err(Failure::new(Layer::Packets, expected, remark)));
    }
    let expected = format!(
        "no UDP port {GENEVE}, and an echo request with pod source and destination per ping sent"
    );
    let lost = pings.lost.first().map(|(from, to, _)| (from, to));
    let pair = lost.or_else(|| pings.unseen.first().map(|(from, to)| (from, to)));
    let (layer, why) = match pair {
        Some((from, to)) if geneve == 0 => diagnose::pods(lab, from, to),
        _ => (Layer::Packets, "no layer explains it".to_owned()),
    };
    let seen = format!("{remark}; {why}");
    Ok(Err(Failure::new(layer, expected, seen)))
}

/// The first packet of those that were counted.
fn first(packets: &[String]) -> String {
    let first = packets.first();
    first.map_or_else(String::new, |line| format!(", the first: {line}"))
}

/// The first few, each on a line of its own; nothing where there is none.
fn shown(packets: &[String]) -> String {
    let lines = packets.iter().take(SHOWN);
    lines.map(|line| format!("\n          {line}")).collect()
}

/// Pings every pair once, for both lines.
fn pinged<'a>(kept: &'a mut Option<Pings>, lab: &Lab) -> Result<&'a Pings> {
    let pings = match kept.take() {
        Some(pings) => pings,
        None => ping(lab)?,
    };
    Ok(kept.insert(pings))
}

#[expect(clippy::too_many_lines, reason = "one sequence of events")]
fn ping(lab: &Lab) -> Result<Pings> {
    let pods = attached(lab);
    let echo = echo_filter(lab);
    let filter = format!("{echo} or udp port {GENEVE}");
    let outer = Capture::start(&lab.namespace("underlay"), BRIDGE, &[], &filter)?;
    let inner: Vec<Capture> = each(&pods, |(node, _)| {
        let namespace = lab.pod_namespace(&node.name);
        Capture::start(&namespace, "eth0", &["-Q", "in"], &echo)
    })
    .into_iter()
    .collect::<Result<_>>()?;
    let pinged = each(&pods, |from| pinged_from(lab, &pods, from));
    let (mut lost, mut once) = (Vec::new(), Vec::new());
    for (from, to, outcome) in pinged.into_iter().flatten() {
        match outcome {
            Outcome::Clean => {}
            Outcome::Once => once.push(format!(
                "{} -> {} lost one, and none of {MORE} more",
                from.name, to.name
            )),
            Outcome::Lost(summary) => lost.push((from, to, summary)),
        }
    }
    let seen: Vec<BTreeSet<IpAddr>> = inner
        .into_iter()
        .map(|capture| {
            Ok(capture
                .stop()?
                .lines()
                .filter_map(echo_request)
                .map(|(source, _)| source)
                .collect())
        })
        .collect::<Result<_>>()?;
    let wire = outer.stop()?;
    let addresses = pods.iter().flat_map(|(_, pod)| &pod.addresses);
    let addresses: BTreeSet<IpAddr> = addresses.map(|a| a.address).collect();
    let (mut foreign, mut unseen) = (Vec::new(), Vec::new());
    for ((to, _), sources) in pods.iter().zip(&seen) {
        foreign.extend(
            sources
                .iter()
                .filter(|s| !addresses.contains(s))
                .map(|s| (to.clone(), *s)),
        );
        let others = pods.iter().filter(|(from, _)| from != to);
        unseen.extend(
            others
                .filter(|(_, pod)| {
                    let mut all = pod.addresses.iter();
                    !all.all(|a| sources.contains(&a.address))
                })
                .map(|(from, _)| (from.clone(), to.clone())),
        );
    }
    let plain = |line: &str| {
        echo_request(line).is_some_and(|(s, d)| addresses.contains(&s) && addresses.contains(&d))
    };
    let counted = |wanted: &dyn Fn(&str) -> bool| {
        let lines = wire.lines().filter(|line| wanted(line));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    let (plain, geneve) = (counted(&plain), counted(&is_geneve));
    let families = lab.values.families().len();
    let sent = pods.len() * pods.len().saturating_sub(1) * COUNT * families;
    Ok(Pings {
        lost,
        once,
        foreign,
        unseen,
        sent,
        plain,
        geneve,
    })
}

/// tcpdump's filter for echo requests of all families of the lab.
fn echo_filter(lab: &Lab) -> String {
    let families = lab.values.families().into_iter();
    let filters: Vec<&str> = families.map(Family::echo_filter).collect();
    filters.join(" or ")
}

/// What came of a pair's pings.
enum Outcome {
    Clean,
    /// One was lost, and none of many more.
    Once,
    Lost(String),
}

fn pinged_from(lab: &Lab, pods: &[Attached], (from, _): &Attached) -> Vec<(Node, Node, Outcome)> {
    let namespace = lab.pod_namespace(&from.name);
    let others = pods.iter().filter(|(to, _)| to != from);
    let each_address = others.flat_map(|(to, pod)| pod.addresses.iter().map(move |a| (to, a)));
    let pinged = each_address.map(|(to, PodAddress { address, .. })| {
        let outcome = match received(&namespace, *address, COUNT) {
            (COUNT, _) => Outcome::Clean,
            (some, summary) if some + 1 == COUNT => match received(&namespace, *address, MORE) {
                (MORE, _) => Outcome::Once,
                (_, again) => Outcome::Lost(format!("{summary}; then {again}")),
            },
            (_, summary) => Outcome::Lost(summary),
        };
        (from.clone(), to.clone(), outcome)
    });
    pinged.collect()
}

/// How many of so many pings are answered, none where one is answered twice; with what ping says.
fn received(namespace: &str, to: IpAddr, count: usize) -> (usize, String) {
    let ping = tool("ping").words(&format!("-n -q -c {count} -i 0.1 -W 1 {to}"));
    let shown = match ping.inside(namespace).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => format!("{error:#}"),
    };
    let mut lines = shown.lines();
    let summary = lines.find(|line| line.contains("transmitted"));
    let summary = format!("{to}: {}", summary.unwrap_or("no answer"));
    let number = |text: &str| text.strip_suffix(" received")?.trim().parse().ok();
    let received = summary.split(',').find_map(number);
    let received = received.filter(|_| !summary.contains("duplicates"));
    (received.unwrap_or(0), summary)
}
