//! What it costs those who use the network when our daemons, beside OVN-Kubernetes or an imitation of it, lead it past the tunnels
//! and back, and when something of it is changed under them.
//!
//! In: a lab that was brought up with `--adopt` or `--ovn-kubernetes`. Out: for each event what `change` tells: pings lost, the longest silence of
//! a TCP connection, flows between pods that bore another address. The tunnels are there: it should cost nothing, and no more is tolerated than of other changes.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use super::change::{again, under_traffic};
use super::stream::{Way, serve, ways};
use crate::apiserver::{get, kubectl};
use crate::beside::player::{self, replace_flows};
use crate::beside::{KEEPER, follow, found, is_back, unsteered, users, wait};
use crate::daemons::configure_node_agent;
use crate::look::{rows, word};
use crate::networks;
use crate::node::ovs::nbctl;
use crate::ovn_kubernetes;
use crate::process;
use crate::run::{each, tell, tool, wall};
use crate::state::{Lab, Node};

/// An event: what it is called, and what makes it.
type Event = (&'static str, fn(&Lab, &Node) -> Result<()>);

const EVENTS: [Event; 13] = [
    ("all nodes back to the tunnels", |lab, _| all(lab, "geneve")),
    ("all nodes past the tunnels", |lab, _| {
        all(lab, "no-overlay")
    }),
    (
        "one node after the other back to the tunnels, and past them",
        one_by_one,
    ),
    ("all node-agents killed and started again", |lab, _| {
        again(lab, "node-agent", Signal::SIGKILL)
    }),
    (
        "all node-agents ended by SIGTERM and started again",
        |lab, _| again(lab, "node-agent", Signal::SIGTERM),
    ),
    ("all ovn-controllers killed and started again", |lab, _| {
        again(lab, "ovn-controller", Signal::SIGKILL)
    }),
    ("an address comes to a node's bridge and goes", address),
    ("all node-agents stopped for ten seconds (SIGSTOP)", still),
    ("the policy of a node deleted by hand", |lab, node| {
        by_hand(lab, node, "logical_router_policy", "priority=1010")
    }),
    ("the access lists of a node deleted by hand", |lab, node| {
        by_hand(lab, node, "port_group", "name=noverlay_mp_default")
    }),
    ("an ip rule of a node deleted by hand", rule),
    (
        "the packet filter of a node deleted, others' tables and ours",
        filter,
    ),
    (
        "a node drained, its bgpd killed and started, and back",
        drain,
    ),
];

/// What the imitation does.
const OF_IMITATION: [Event; 5] = [
    ("the bridge's flows replaced on all nodes, ten times", flows),
    (
        "gateway rows of the imitation changed and written again on all nodes, ten times",
        syncs,
    ),
    (
        "the imitation killed and started again on all nodes",
        restart,
    ),
    (
        "NAT rows of the imitation deleted and re-created on nodes at random",
        anew,
    ),
    (
        "OVN-Kubernetes routes the network itself, and does not, on nodes at random",
        two_writers,
    ),
];

/// What the real one does.
const OF_OVN_KUBERNETES: [Event; 2] = [
    (
        "OVN-Kubernetes ended and started again on all nodes",
        |lab, _| start_again(lab, Signal::SIGTERM),
    ),
    (
        "OVN-Kubernetes killed and started again on all nodes",
        |lab, _| start_again(lab, Signal::SIGKILL),
    ),
];

/// After its gateway's rows OVN-Kubernetes writes the bridge's flows and the host's part.
const STARTED: Duration = Duration::from_secs(20);

/// An event that only the imitation can have.
const TRANSLATION: &str = "the row that others translate by deleted on a node, and made again";

/// With networks of users over tunnels.
const OF_USERS: [Event; 5] = [
    ("networks of users past the tunnels", |lab, _| {
        users::carried(lab, false)?;
        users::lead(lab, true)?;
        users::carried(lab, true)
    }),
    (
        "all node-agents killed and started again while they are",
        |lab, _| {
            again(lab, "node-agent", Signal::SIGKILL)?;
            users::carried(lab, true)
        },
    ),
    (TRANSLATION, |lab, node| users::translation(lab, node)),
    ("the packet filter of a node deleted while they are", filter),
    ("networks of users back to the tunnels", |lab, _| {
        users::lead(lab, false)?;
        users::carried(lab, false)
    }),
];

/// All events on the first node or on all; `false` where one of them cost something. `of_users`: those of networks of users.
pub(super) fn demonstrate(lab: &Lab, node: &Node, of_users: bool) -> Result<bool> {
    if !lab.is_steered() {
        bail!(
            "events beside OVN-Kubernetes need a lab that came up with --adopt or --ovn-kubernetes"
        );
    }
    if of_users && users::over_tunnels(lab).is_empty() {
        bail!(
            "events of networks of users need some over tunnels (up --adopt or --ovn-kubernetes FOLDER, --network red=geneve:10.150.0.0/16/24)"
        );
    }
    let all: Vec<Way> = ways(&networks::members(lab));
    serve(&all)?;
    let mut good = true;
    let theirs = match lab.ovn_kubernetes {
        Some(_) => &OF_OVN_KUBERNETES[..],
        None => &OF_IMITATION,
    };
    // The row of OVN-Kubernetes' own comes back when it starts, not before.
    let is_possible = |(name, _): &&Event| lab.ovn_kubernetes.is_none() || *name != TRANSLATION;
    let events: Vec<&Event> = if of_users {
        OF_USERS.iter().filter(is_possible).collect()
    } else {
        EVENTS.iter().chain(theirs).collect()
    };
    for (name, event) in events {
        good &= under_traffic((lab, &all), name, || event(lab, node))?;
    }
    Ok(good)
}

/// Configures all daemons with a transport and waits until every node has followed.
fn all(lab: &Lab, transport: &str) -> Result<()> {
    let other = Lab {
        adopted: Some(transport.to_owned()),
        ..lab.clone()
    };
    follow(&other)
}

fn steered(lab: &Lab) -> Result<()> {
    wait("not past the tunnels on each node", || {
        Ok(unsteered(lab)?.is_empty())
    })
}

fn one_by_one(lab: &Lab, _: &Node) -> Result<()> {
    let back = Lab {
        adopted: Some("geneve".to_owned()),
        ..lab.clone()
    };
    for node in &lab.nodes {
        configure_node_agent(&back, node)?;
        wait("it is not back", || is_back(lab, node))?;
    }
    for node in &lab.nodes {
        configure_node_agent(lab, node)?;
    }
    steered(lab)
}

fn flows(lab: &Lab, _: &Node) -> Result<()> {
    for _ in 0..10 {
        for replaced in each(&lab.nodes, |node| replace_flows(lab, &node.name)) {
            replaced?;
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    Ok(())
}

fn syncs(lab: &Lab, _: &Node) -> Result<()> {
    for _ in 0..10 {
        let written = each(&lab.nodes, |node| player::sync(lab, &node.name));
        written.into_iter().collect::<Result<()>>()?;
        std::thread::sleep(Duration::from_millis(300));
    }
    Ok(())
}

fn restart(lab: &Lab, _: &Node) -> Result<()> {
    let started = each(&lab.nodes, |node| {
        let before = player::done(lab, &node.name)?.starts;
        player::spoil(lab, &node.name)?;
        let record = process::record(lab, &node.name, KEEPER)?;
        process::stop(lab, &node.name, KEEPER, Signal::SIGKILL)?;
        process::start(lab, record.start, record.restarts)?;
        wait("its start is not done", || {
            Ok(player::done(lab, &node.name)?.starts > before)
        })
    });
    started.into_iter().collect()
}

fn start_again(lab: &Lab, signal: Signal) -> Result<()> {
    let started = each(&lab.nodes, |node| {
        let record = process::record(lab, &node.name, ovn_kubernetes::NODE)?;
        process::stop(lab, &node.name, ovn_kubernetes::NODE, signal)?;
        // It writes this again when it starts.
        player::spoil(lab, &node.name)?;
        let started = process::start(lab, record.start, record.restarts)?;
        wait("its gateway's rows are not written", || {
            Ok(!player::is_spoiled(lab, &node.name)?)
        })?;
        std::thread::sleep(STARTED);
        if !started.alive() {
            bail!("{}: OVN-Kubernetes has ended", node.name);
        }
        Ok(())
    });
    started.into_iter().collect::<Result<()>>()?;
    steered(lab)
}

/// Numbers at random. The seed is told: with `NOVERLAY_SEED` the same happens again.
struct Chance(u64);

impl Chance {
    fn told() -> Self {
        let seed = std::env::var("NOVERLAY_SEED").ok();
        let seed = seed.and_then(|text| text.parse().ok());
        let seed: u64 = seed.unwrap_or_else(|| u64::from(wall().subsec_nanos()));
        tell(&format!("    NOVERLAY_SEED={seed}"));
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        // Knuth's linear congruential generator: its upper bits are good enough for what happens when.
        self.0 = (self.0)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn node<'a>(&mut self, lab: &'a Lab) -> Result<&'a Node> {
        let number = self.below(u64::try_from(lab.nodes.len())?);
        lab.nodes.get(usize::try_from(number)?).context("a node")
    }
}

fn anew(lab: &Lab, _: &Node) -> Result<()> {
    let mut chance = Chance::told();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(chance.below(500)));
        player::make_translations_anew(lab, &chance.node(lab)?.name)?;
    }
    Ok(())
}

/// Whether nothing of ours leads anywhere while OVN-Kubernetes routes, and it is said why.
fn given_way(lab: &Lab, node: &Node, stays: bool, rest: Duration) -> Result<()> {
    if !stays {
        std::thread::sleep(rest);
        return Ok(());
    }
    wait("two write", || is_back(lab, node))?;
    let path = format!("/apis/noverlay.io/v1alpha1/noderoutes/{}", node.name);
    wait("it is not said why", || {
        Ok(get(lab, &path)?.to_string().contains("OvnKubernetesRoutes"))
    })?;
    std::thread::sleep(rest);
    if !is_back(lab, node)? {
        bail!("{}: ours is there while OVN-Kubernetes routes", node.name);
    }
    Ok(())
}

/// While OVN-Kubernetes routes the network, nothing of ours leads pods' packets; what it lasted less than a minute we take back by
/// ourselves. Its rows, and what else there is of others, are as they were found afterwards.
fn two_writers(lab: &Lab, _: &Node) -> Result<()> {
    let mut chance = Chance::told();
    for turn in 0..4 {
        let node = chance.node(lab)?;
        // The first one is seen to give way, whatever the seed.
        let stays = turn == 0 || chance.below(3) > 0;
        if stays {
            steered(lab)?;
        }
        let rest = Duration::from_millis(chance.below(4000));
        let began = player::route_itself(lab, &node.name, true);
        let given = began.and_then(|()| given_way(lab, node, stays, rest));
        // Also where something went wrong meanwhile.
        player::route_itself(lab, &node.name, false)?;
        given?;
    }
    steered(lab)?;
    for node in &lab.nodes {
        let strangers = found::strangers(&found::difference(lab, node)?);
        if !strangers.is_empty() {
            bail!(
                "{}: not as it was found: {}",
                node.name,
                strangers.join(" | ")
            );
        }
    }
    Ok(())
}

fn still(lab: &Lab, _: &Node) -> Result<()> {
    let signal = |signal: Signal| {
        for node in &lab.nodes {
            process::send(&process::record(lab, &node.name, "node-agent")?, signal)?;
        }
        Ok(())
    };
    signal(Signal::SIGSTOP)?;
    std::thread::sleep(Duration::from_secs(10));
    signal(Signal::SIGCONT)
}

fn address(lab: &Lab, node: &Node) -> Result<()> {
    let ip = |verb: &str| {
        tool("ip")
            .args(["address", verb, "198.18.0.7/32", "dev", "br-ex"])
            .inside(&lab.namespace(&node.name))
            .run()
    };
    ip("add")?;
    std::thread::sleep(Duration::from_secs(2));
    ip("del")?;
    std::thread::sleep(Duration::from_secs(2));
    Ok(())
}

/// Takes a row away and waits until there is another one.
fn by_hand(lab: &Lab, node: &Node, table: &str, condition: &str) -> Result<()> {
    let found = || -> Result<Vec<String>> {
        let rows = rows(lab, &node.name, table, &[condition])?;
        Ok(rows.iter().map(|row| word(row, "_uuid")).collect())
    };
    let before = found()?;
    if before.is_empty() {
        bail!("{}: no row of {table} has {condition}", node.name);
    }
    for uuid in &before {
        match table {
            "logical_router_policy" => {
                let words = [
                    "remove",
                    "logical_router",
                    "ovn_cluster_router",
                    "policies",
                    uuid,
                ];
                nbctl(lab, &node.name).args(words).run()?;
            }
            _ => drop(
                nbctl(lab, &node.name)
                    .args(["destroy", table, uuid])
                    .run()?,
            ),
        }
    }
    wait("it has not come back", || {
        let now = found()?;
        Ok(now.len() == before.len() && now.iter().all(|uuid| !before.contains(uuid)))
    })
}

fn inside(lab: &Lab, node: &Node, words: &str) -> Result<String> {
    let (program, arguments) = words
        .split_once(' ')
        .context("a program and its arguments")?;
    tool(program)
        .words(arguments)
        .inside(&lab.namespace(&node.name))
        .run()
}

fn rule(lab: &Lab, node: &Node) -> Result<()> {
    inside(lab, node, "ip rule del preference 2898")?;
    wait("it has not come back", || {
        Ok(inside(lab, node, "ip rule show")?.contains("2898:"))
    })
}

/// As by a service that loads its own rules (`flush ruleset`). Ours alone is not deleted here: until it is back, a moment later, OVN-Kubernetes'
/// own chain translates what comes for pods, and a connection of which it has seen a packet is lost.
fn filter(lab: &Lab, node: &Node) -> Result<()> {
    let listing = inside(lab, node, "nft -s list ruleset inet")?;
    let (_, others) = found::split_table(&listing);
    inside(lab, node, "nft flush ruleset inet")?;
    wait("it has not come back", || {
        Ok(inside(lab, node, "nft list tables")?.contains("table inet noverlay"))
    })?;
    let nft = tool("nft").words("-f -").input(others);
    nft.inside(&lab.namespace(&node.name)).run().map(drop)
}

/// As before maintenance: first the tunnels, then FRR may end.
fn drain(lab: &Lab, node: &Node) -> Result<()> {
    let name = &node.name;
    kubectl(lab)
        .args(["annotate", "node", name, "noverlay.io/drain=maintenance"])
        .run()?;
    kubectl(lab).args(["cordon", name]).run()?;
    wait("it is not back", || is_back(lab, node))?;
    let record = process::record(lab, name, "bgpd")?;
    process::stop(lab, name, "bgpd", Signal::SIGKILL)?;
    std::thread::sleep(Duration::from_secs(3));
    process::start(lab, record.start, record.restarts)?;
    kubectl(lab).args(["uncordon", name]).run()?;
    kubectl(lab)
        .args(["annotate", "node", name, "noverlay.io/drain-"])
        .run()?;
    steered(lab)
}
