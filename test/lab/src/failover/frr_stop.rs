//! zebra and bgpd are ended in good order and started again, as an admin or a rollout does it.
//!
//! In: a running lab, how often, with how many more routes. Out: under pings between all
//! pods, whether a row ever left the node's OVN, and how often its kernel was short. More
//! routes come from a bgpd on the outside host, with which the node has a session.

use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use serde_json::json;

use super::pinger::Pinger;
use super::watch::{Side, Watch};
use super::{PATIENCE, watched};
use crate::apiserver::kubectl;
use crate::family::Family;
use crate::look::{kernel_routes, sessions};
use crate::node::frr::boot;
use crate::process;
use crate::reach::attached;
use crate::run::{each, tell, tool, until};
use crate::state::{Lab, Node, text};

/// How long the daemons are away.
const AWAY: Duration = Duration::from_secs(1);
/// From the last route's return to the next stop: what the agent holds is let go by then.
const REST: Duration = Duration::from_secs(7);
/// The outside host's AS.
const AS: u32 = 64_999;
/// More routes than this are not asked for.
pub(crate) const MOST: u16 = 10_000;

/// What is ended together.
struct Stop {
    daemons: &'static [&'static str],
    /// Ended when those are started again: watchfrr does so after zebra, because bgpd does
    /// not tell a new zebra what it sent to the old one.
    after: &'static [&'static str],
    /// The node-agent is replaced as soon as they are back.
    agent: bool,
}

const STOPS: [Stop; 4] = [
    Stop {
        daemons: &["zebra"],
        after: &["bgpd"],
        agent: false,
    },
    Stop {
        daemons: &["bgpd"],
        after: &[],
        agent: false,
    },
    Stop {
        daemons: &["zebra", "bgpd"],
        after: &[],
        agent: false,
    },
    Stop {
        daemons: &["zebra", "bgpd"],
        after: &[],
        agent: true,
    },
];

/// Stops and starts; `false` where a row left OVN.
pub(super) fn demonstrate(lab: &Lab, node: &Node, rounds: u32, more: u16) -> Result<bool> {
    let outside = match more {
        0 => None,
        _ => Some(Outside::start(lab, node, more)?),
    };
    let routes: Vec<String> = (0..more).map(prefix).collect();
    let mut good = true;
    for stop in &STOPS {
        good &= rounds_of(lab, node, stop, rounds, &routes)?;
    }
    drop(outside);
    Ok(good)
}

fn rounds_of(lab: &Lab, node: &Node, stop: &Stop, rounds: u32, more: &[String]) -> Result<bool> {
    complete(lab, node, more.len())?;
    watched(lab)?;
    let pinger = Pinger::start(lab, &attached(lab))?;
    let watch = Watch::start(lab, &[&node.name], more)?;
    let mut back = Ok(());
    for _ in 0..rounds {
        back = round(lab, node, stop).and_then(|()| complete(lab, node, more.len()));
        if back.is_err() {
            break;
        }
        std::thread::sleep(REST);
    }
    let lost = pinger.stop()?;
    back?;
    watch.control(lab, &node.name)?;
    let gaps = watch.stop()?;
    let short = |side: Side| {
        let of_side = gaps.iter().find(|gaps| gaps.side == side);
        of_side.map_or(0, |gaps| gaps.times())
    };
    let routes = lab.nodes.len() - 1 + more.len();
    tell(&format!(
        "{}{} of {} ended and started {rounds} times with {routes} routes: the kernel was short of routes {} times",
        stop.daemons.join(" and "),
        if stop.agent {
            ", then the node-agent,"
        } else {
            ""
        },
        node.name,
        short(Side::Kernel),
    ));
    tell(&format!("    {}", lost.shown()));
    for gaps in gaps.iter().filter(|gaps| gaps.side == Side::Ovn) {
        tell(&format!("    {}", gaps.shown()));
    }
    // Pings are reported and not evaluated: with zebra, BFD ends too, and then the others take
    // their routes to this node away.
    Ok(short(Side::Ovn) == 0)
}

fn round(lab: &Lab, node: &Node, stop: &Stop) -> Result<()> {
    let record = |daemon: &&str| process::record(lab, &node.name, daemon);
    let records = stop.daemons.iter().chain(stop.after).map(record);
    let records: Vec<process::Record> = records.collect::<Result<_>>()?;
    let end = |daemon: &&str| process::stop(lab, &node.name, daemon, Signal::SIGTERM);
    // At once, as systemd and a pod's end do it.
    each(stop.daemons, end)
        .into_iter()
        .collect::<Result<()>>()?;
    std::thread::sleep(AWAY);
    each(stop.after, end).into_iter().collect::<Result<()>>()?;
    for record in records {
        let daemon = record.start.name.clone();
        process::start(lab, record.start, record.restarts)?;
        boot(lab, &node.name, &daemon)?;
    }
    if stop.agent {
        let record = process::record(lab, &node.name, "node-agent")?;
        process::stop(lab, &node.name, "node-agent", Signal::SIGTERM)?;
        process::start(lab, record.start, record.restarts)?;
    }
    Ok(())
}

/// Waits until the node has its sessions and all routes are in its kernel.
fn complete(lab: &Lab, node: &Node, more: usize) -> Result<()> {
    let peers = lab.nodes.len() - 1 + usize::from(more > 0);
    let mut seen = (0, 0);
    let whole = until(PATIENCE, Duration::from_millis(200), || {
        let all = sessions(lab, &node.name).ok()?;
        let up = all.values().filter(|s| s.state == "Established").count();
        seen = (up, kernel_routes(lab, &node.name).ok()?.len());
        (seen.0 >= peers && seen.1 >= lab.nodes.len() - 1 + more).then_some(())
    });
    whole.with_context(|| {
        let (up, routes) = seen;
        format!(
            "{} has {up} of {peers} sessions and {routes} of {} routes after {} s",
            node.name,
            lab.nodes.len() - 1 + more,
            PATIENCE.as_secs()
        )
    })
}

/// Of 198.18.0.0/15, which is for tests of devices (RFC 2544), a prefix a number.
fn prefix(number: u16) -> String {
    let low = (number & 31) << 3;
    format!(
        "198.{}.{}.{low}/29",
        18 + (number >> 13),
        (number >> 5) & 255
    )
}

/// A bgpd on the outside host, and the object that gives the node a session with it.
struct Outside<'a> {
    lab: &'a Lab,
    child: Child,
}

const OBJECT: &str = "lab-failover-outside";

impl<'a> Outside<'a> {
    fn start(lab: &'a Lab, node: &Node, routes: u16) -> Result<Self> {
        let dir = lab.node_dir("outside").join("frr");
        std::fs::create_dir_all(&dir)?;
        let place = text(&dir);
        // One that did not end well leaves it behind.
        drop(std::fs::remove_file(dir.join("bgpd.vty")));
        // `down` ends it where this program does not come to its end.
        let child = tool("/usr/lib/frr/bgpd")
            .words("--skip_runas --no_zebra -P 0 --vty_socket")
            .args([&place, "-i", &format!("{place}/bgpd.pid")])
            .with(|c| {
                c.stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null());
            })
            .inside(&lab.namespace("outside"))
            .spawn()?;
        let outside = Self { lab, child };
        let socket = dir.join("bgpd.vty");
        until(Duration::from_secs(10), Duration::from_millis(20), || {
            socket.exists().then_some(())
        })
        .context("bgpd of the outside host opens no socket")?;
        let own = lab.values.outside_address(Family::V4)?;
        let (peer, asn) = (lab.address(node), lab.values.as_number);
        let mut config = format!(
            "router bgp {AS}\n bgp router-id {own}\n no bgp ebgp-requires-policy\n \
             no bgp network import-check\n neighbor {peer} remote-as {asn}\n \
             neighbor {peer} timers connect 2\n address-family ipv4 unicast\n"
        );
        for number in 0..routes {
            config.push_str(&format!("  network {}\n", prefix(number)));
        }
        let file = dir.join("outside.conf");
        std::fs::write(&file, config)?;
        std::fs::write(dir.join("vtysh.conf"), "")?;
        tool("vtysh")
            .args(["--vty_socket", &place, "--config_dir", &place])
            .args(["-d", "bgpd", "-f", &text(&file)])
            .inside(&lab.namespace("outside"))
            .run()?;
        let object = json!({
            "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "FRRConfiguration",
            "metadata": {"name": OBJECT, "namespace": "frr-k8s-system"},
            "spec": {
                "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": node.name}},
                "bgp": {"routers": [{"asn": asn, "neighbors": [{
                    "address": own.to_string(), "asn": AS, "connectTime": "2s",
                    "toReceive": {"allowed": {"mode": "all"}},
                }]}]},
            },
        });
        let apply = kubectl(lab).args(["apply", "-f", "-"]);
        apply.input(object.to_string()).run()?;
        Ok(outside)
    }
}

impl Drop for Outside<'_> {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        let words = "delete frrconfiguration --ignore-not-found -n frr-k8s-system";
        let deleted = kubectl(self.lab).words(words).args([OBJECT]).run();
        if let Err(error) = deleted {
            tell(&format!("{OBJECT} stays: {error:#}"));
        }
    }
}

/// Refuses what cannot be done.
pub(super) fn check(rounds: u32, more: u16) -> Result<()> {
    if rounds == 0 || more > MOST {
        bail!("--rounds {rounds} --routes {more}: allowed: from 1; to {MOST}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ipnet::Ipv4Net;

    use super::*;

    #[test]
    fn each_number_has_a_prefix_of_its_own_in_the_block_for_tests() {
        let block: Ipv4Net = "198.18.0.0/15".parse().unwrap();
        let all: BTreeSet<Ipv4Net> = (0..MOST).map(|n| prefix(n).parse().unwrap()).collect();
        assert_eq!(all.len(), usize::from(MOST));
        assert!(all.iter().all(|p| block.contains(p) && p.trunc() == *p));
    }
}
