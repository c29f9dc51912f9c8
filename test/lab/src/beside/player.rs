//! What the imitation of OVN-Kubernetes keeps of a node, and what it does to what others put beside it.
//!
//! In: what stood at the handover, and what stands now. Out: OVN_Northbound, the bridge's flows and the host as OVN-Kubernetes leaves
//! them: flows and the host every fifteen seconds, rows of gateways when an address comes to the bridge or leaves it or a
//! RouteAdvertisements comes or goes, all rows at its start; rows of imported routes go when the kernel has no such route any more.
//! Invariant: it does to foreign rows, rules and routes what was recorded of OVN-Kubernetes (commit 8871cd9), as far as `survival`
//! compares it. Not here: making the topology, importing routes, and following what is declared; it is not the real thing.

mod host;
mod north;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::host::Host;
use self::north::{Kept, Moment};
use crate::apiserver::{get, kubectl};
use crate::look::{entry, rows};
use crate::node::ovs::{br_ex, nbctl};
use crate::objects::{self, items};
use crate::run::{now, tell, tool};
use crate::state::{Lab, Node, text, write_whole};

/// OVN-Kubernetes writes the bridge's flows so often; the host's part it repairs within a minute or two.
const ROUND: Duration = Duration::from_secs(15);
/// How often it looks for what happened.
const LOOK: Duration = Duration::from_millis(500);
const HOST_CIDRS: &str = "k8s.ovn.org/host-cidrs";

/// What a node had at the handover.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    north: Kept,
    host: Host,
}

/// How often it has done what, since the handover.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    /// Rounds over the bridge and the host.
    pub(crate) rounds: u64,
    /// Syncs of gateways.
    pub(crate) syncs: u64,
    /// Starts.
    pub(crate) starts: u64,
    /// Passes over imported routes.
    pub(crate) imports: u64,
}

/// Remembers what a node has, and its bridge's flows.
pub(super) fn remember(lab: &Lab, node: &Node) -> Result<()> {
    let flows = br_ex(lab, &node.name, "dump-flows")
        .args(["--no-stats"])
        .run()?;
    write_whole(&flows_file(lab, &node.name), &flows)?;
    host::make_ways(lab, &node.name)?;
    host::make_chains(lab, &node.name)?;
    let found = Found {
        north: Kept::read(lab, &node.name)?,
        host: Host::read(lab, &node.name),
    };
    write_whole(&file(lab, &node.name), &serde_json::to_string(&found)?)?;
    write_whole(
        &done_file(lab, &node.name),
        &serde_json::to_string(&Done::default())?,
    )
}

fn file(lab: &Lab, node: &str) -> PathBuf {
    lab.node_dir(node).join("imitation.json")
}

fn done_file(lab: &Lab, node: &str) -> PathBuf {
    lab.node_dir(node).join("imitation.done")
}

fn flows_file(lab: &Lab, node: &str) -> PathBuf {
    lab.node_dir(node).join("br-ex.flows")
}

/// How often it has done what on a node.
pub(crate) fn done(lab: &Lab, node: &str) -> Result<Done> {
    let file = done_file(lab, node);
    let text = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    Ok(serde_json::from_str(&text)?)
}

/// Writes the flows that were there at the handover: what others wrote into the bridge goes.
pub(crate) fn replace_flows(lab: &Lab, node: &str) -> Result<()> {
    let flows = text(&flows_file(lab, node));
    br_ex(lab, node, "replace-flows")
        .args([&flows])
        .run()
        .map(drop)
}

/// Changes rows of its own and writes them again as at a sync of the gateway.
pub(crate) fn sync(lab: &Lab, node: &str) -> Result<()> {
    spoil(lab, node)?;
    let changes = found(lab, node)?.north.write(lab, node, Moment::Sync)?;
    ensure!(changes > 0, "{node}: a sync of the gateway writes nothing");
    Ok(())
}

/// Whether one of these changes stands.
pub(crate) fn is_spoiled(lab: &Lab, node: &str) -> Result<bool> {
    for (table, name) in [
        ("logical_router", format!("GR_{node}")),
        ("logical_router_port", format!("rtoe-GR_{node}")),
    ] {
        let rows = rows(lab, node, table, &[&format!("name={name}")])?;
        let row = rows.first().with_context(|| format!("no {table} {name}"))?;
        if entry(row, "options", "spoiled").is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Changes rows of the gateway that it writes at a sync and when it starts.
pub(crate) fn spoil(lab: &Lab, node: &str) -> Result<()> {
    let options = "options:spoiled=yes";
    let (router, port) = (format!("GR_{node}"), format!("rtoe-GR_{node}"));
    let words = ["set", "logical_router", &router, options, "--", "set"];
    nbctl(lab, node)
        .args(words)
        .args(["logical_router_port", &port, options])
        .run()
        .map(drop)
}

/// Deletes its rows of address translation and inserts them anew in the next transaction.
pub(crate) fn make_translations_anew(lab: &Lab, node: &str) -> Result<()> {
    let found = found(lab, node)?;
    found.north.delete_translations(lab, node)?;
    let changes = found.north.write(lab, node, Moment::Sync)?;
    ensure!(
        changes > 0,
        "{node}: no row of address translation came back"
    );
    Ok(())
}

/// As where OVN-Kubernetes is told to route the default network without an overlay, or no more: its gateway router leads to the node's
/// subnets alone, or to the whole network.
pub(crate) fn route_itself(lab: &Lab, node: &str, itself: bool) -> Result<()> {
    let mut found = found(lab, node)?;
    let subnets = objects::subnets(lab)?;
    let own = subnets.get(node).context("a node without subnets")?;
    let ranges = &lab.values.default_network()?.ranges;
    for range in ranges {
        let mut own = own.iter().filter(|own| range.subnet.contains(*own));
        let own = own.next().context("no subnet of a family")?.to_string();
        let whole = range.subnet.to_string();
        let (from, to) = if itself { (whole, own) } else { (own, whole) };
        // The other way round again is no change.
        let changed = found.north.lead(&from, &to) > 0;
        ensure!(
            changed || !itself,
            "{node}: its gateway router does not lead to {from}"
        );
    }
    write_whole(&file(lab, node), &serde_json::to_string(&found)?)?;
    let changes = found.north.write(lab, node, Moment::Sync)?;
    ensure!(
        !itself || changes >= ranges.len(),
        "{node}: {changes} rows written"
    );
    Ok(())
}

fn found(lab: &Lab, node: &str) -> Result<Found> {
    let file = file(lab, node);
    let text = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    Ok(serde_json::from_str(&text)?)
}

/// Does its work for ever.
pub(crate) fn play(lab: &Lab, node: &str) -> Result<()> {
    let mut player = Player::start(lab, node)?;
    loop {
        std::thread::sleep(LOOK);
        if let Err(error) = player.turn() {
            tell(&format!("{error:#}"));
        }
    }
}

/// What makes it write rows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Addresses of the outer bridge.
    addresses: BTreeSet<String>,
    /// Names of RouteAdvertisements.
    advertisements: BTreeSet<String>,
    /// Routes of BGP, as the kernel shows them.
    bgp: String,
}

struct Player<'a> {
    lab: &'a Lab,
    node: &'a str,
    found: Found,
    done: Done,
    seen: Seen,
    round: std::time::Instant,
}

impl<'a> Player<'a> {
    fn start(lab: &'a Lab, node: &'a str) -> Result<Self> {
        let mut player = Self {
            lab,
            node,
            found: found(lab, node)?,
            done: done(lab, node)?,
            seen: Seen::default(),
            round: now(),
        };
        player.seen = player.look()?;
        player.found.north.write(lab, node, Moment::Start)?;
        player.host(true)?;
        player.done.starts += 1;
        player.tell_done()?;
        Ok(player)
    }

    fn look(&self) -> Result<Seen> {
        let namespace = self.lab.namespace(self.node);
        let show = |words: &str| tool("ip").words(words).inside(&namespace).run();
        let addresses = show("-o address show dev br-ex scope global")?;
        let of_line = |line: &str| line.split_whitespace().nth(3).map(str::to_owned);
        // Without the API server it goes on with the rest.
        let objects = get(self.lab, "/apis/k8s.ovn.org/v1/routeadvertisements");
        let name = |object: &Value| Some(object.pointer("/metadata/name")?.as_str()?.to_owned());
        Ok(Seen {
            // Its own, of the masquerade subnet, are none of the node's.
            addresses: (addresses.lines().filter_map(of_line))
                .filter(|text| !text.starts_with("169.254.") && !text.starts_with("fd69::"))
                .collect(),
            advertisements: match objects {
                Ok(objects) => items(&objects).iter().filter_map(name).collect(),
                Err(_) => self.seen.advertisements.clone(),
            },
            bgp: show("route show proto bgp")? + &show("-6 route show proto bgp")?,
        })
    }

    fn turn(&mut self) -> Result<()> {
        let seen = self.look()?;
        let has_moved = seen.addresses != self.seen.addresses;
        let is_sync = has_moved || seen.advertisements != self.seen.advertisements;
        let is_import = seen.bgp != self.seen.bgp;
        if has_moved {
            self.tell_addresses(&seen)?;
        }
        if is_sync {
            self.write(Moment::Sync)?;
            self.done.syncs += 1;
        }
        if is_import {
            self.write(Moment::Import)?;
            self.done.imports += 1;
        }
        self.seen = seen;
        let is_round = self.round.elapsed() >= ROUND;
        if is_round {
            self.round = now();
            replace_flows(self.lab, self.node)?;
            self.host(false)?;
            self.done.rounds += 1;
        }
        if is_sync || is_import || is_round {
            self.tell_done()?;
        }
        Ok(())
    }

    fn write(&mut self, moment: Moment) -> Result<()> {
        // It may have been told to route itself.
        self.found = found(self.lab, self.node)?;
        let changes = self.found.north.write(self.lab, self.node, moment)?;
        tell(&format!("{moment:?}: {changes} changes"));
        Ok(())
    }

    fn host(&self, at_start: bool) -> Result<()> {
        self.found.host.repair(self.lab, self.node, at_start)
    }

    /// Addresses of the bridge are the node's.
    fn tell_addresses(&self, seen: &Seen) -> Result<()> {
        let value = serde_json::to_string(&seen.addresses)?;
        let patch = json!({"metadata": {"annotations": {(HOST_CIDRS): value}}}).to_string();
        let words = ["patch", "node", self.node, "--type=merge"];
        kubectl(self.lab)
            .args(words)
            .args(["--field-manager=ovnkube", "--patch", &patch])
            .run()
            .map(drop)
    }

    fn tell_done(&self) -> Result<()> {
        let text = serde_json::to_string(&self.done)?;
        write_whole(&done_file(self.lab, self.node), &text)
    }
}
