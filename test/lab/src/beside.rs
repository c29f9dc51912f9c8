//! A lab beside OVN-Kubernetes (`ovn_kubernetes`), or beside an imitation of it.
//!
//! In: a lab whose pods reach each other over tunnels, as our daemons built it in the forms
//! that OVN-Kubernetes has. Out: the same network as somebody else's: no row bears our marker,
//! no field of a Node is ours, and in each node a process keeps what is its own as OVN-Kubernetes does
//! (`player`). Then our daemons beside it, in adopt mode.
//! Invariant: what was there at the handover is what the process keeps. Not here: what real
//! OVN-Kubernetes does otherwise; this is not it.

pub(crate) mod found;
pub(crate) mod player;
pub(crate) mod survival;
pub(crate) mod users;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use serde_json::{Map, Value, json};

use self::found::HOST_MTU;
use crate::apiserver::{get, kubectl};
use crate::daemons::{self, MANAGERS};
use crate::look::{Row, entry, members, router_rows, rows, word};
use crate::networks;
use crate::node::ovs::nbctl;
use crate::objects::items;
use crate::process::{self, Start};
use crate::run::{each, slower, tool, until};
use crate::state::{Lab, Node, text};
use crate::up::{Steps, own_program};

/// Name of the process in each node.
pub(crate) const KEEPER: &str = "ovnkube-imitation";
/// Our marker of rows.
const OWNER: &str = "noverlay.io/owner";
/// How long a change of all nodes may take; in an emulated machine several reloads of FRR, a minute each.
fn patience() -> Duration {
    Duration::from_secs(if slower() > 1 { 400 } else { 90 })
}
/// Tables that have rows of a topology.
const TABLES: [&str; 11] = [
    "logical_router",
    "logical_router_port",
    "logical_router_static_route",
    "logical_router_policy",
    "nat",
    "logical_switch",
    "logical_switch_port",
    "acl",
    "address_set",
    "port_group",
    "gateway_chassis",
];

/// Has our daemons run beside OVN-Kubernetes, which has made the network; without the real one what they built themselves becomes its
/// imitation's first.
pub(crate) fn adopt(lab: &mut Lab, wait: Duration, steps: Steps) -> Result<()> {
    if lab.ovn_kubernetes.is_some() {
        lab.adopted = Some("no-overlay".to_owned());
        lab.save()?;
        daemons::start_all(lab)?;
    } else {
        hand_over(lab, steps)?;
        daemons::start_managers(lab)?;
        for started in each(&lab.nodes, |node| daemons::start_node_agent(lab, node)) {
            started?;
        }
    }
    steps.say("our daemons run beside it ([ovn] topology = adopt)");
    let last = until(wait, Duration::from_millis(200), || {
        unsteered(lab)
            .is_ok_and(|missing| missing.is_empty())
            .then_some(())
    });
    match last {
        Some(()) => steps.say("every node leads pods past the tunnels"),
        None => steps.say(&format!(
            "not past the tunnels after {} s: {}",
            wait.as_secs(),
            unsteered(lab)?.join("; ")
        )),
    }
    Ok(())
}

/// Makes what our daemons built somebody else's.
fn hand_over(lab: &mut Lab, steps: Steps) -> Result<()> {
    for manager in MANAGERS {
        process::stop(lab, "underlay", manager, Signal::SIGTERM)?;
    }
    for stopped in each(&lab.nodes, |node| {
        process::stop(lab, &node.name, "node-agent", Signal::SIGTERM)?;
        unmark(lab, node)?;
        mark_tunnels(lab, node)?;
        users::translate(lab, node)?;
        keep(lab, node)
    }) {
        stopped?;
    }
    annotate(lab)?;
    for remembered in each(&lab.nodes, |node| found::remember(lab, node)) {
        remembered?;
    }
    // Those of networks of users are OVN-Kubernetes' now.
    kubectl(lab)
        .words("delete network-attachment-definitions -n ovn-kubernetes default --ignore-not-found")
        .run()?;
    steps.say("the network of tunnels is an imitation of OVN-Kubernetes' now: no row, rule or field is our daemons'");
    lab.adopted = Some("no-overlay".to_owned());
    lab.save()
}

/// Takes our marker off all rows of a node's Northbound DB.
fn unmark(lab: &Lab, node: &Node) -> Result<()> {
    let mut command: Vec<String> = Vec::new();
    for table in TABLES {
        for row in rows(lab, &node.name, table, &[])? {
            if entry(&row, "external_ids", OWNER).is_some() {
                let uuid = word(&row, "_uuid");
                let words = ["--", "remove", table, &uuid, "external_ids", OWNER];
                command.extend(words.map(str::to_owned));
            }
        }
    }
    if !command.is_empty() {
        nbctl(lab, &node.name).args(command).run()?;
    }
    Ok(())
}

/// Names the node that a route over tunnels leads to, as OVN-Kubernetes does, in each network.
fn mark_tunnels(lab: &Lab, node: &Node) -> Result<()> {
    let default = (
        "ovn_cluster_router".to_owned(),
        crate::objects::subnets(lab)?,
    );
    let mut all = vec![default];
    for network in users::over_tunnels(lab) {
        let router = users::cluster_router(network);
        all.push((router, networks::subnets(lab, network)?));
    }
    for (router, subnets) in &all {
        mark_tunnels_of(lab, node, router, subnets)?;
    }
    Ok(())
}

fn mark_tunnels_of<S: ToString>(
    lab: &Lab,
    node: &Node,
    router: &str,
    subnets: &BTreeMap<String, Vec<S>>,
) -> Result<()> {
    let routes = router_rows(
        lab,
        &node.name,
        router,
        "static_routes",
        "logical_router_static_route",
    )?;
    let mut command: Vec<String> = Vec::new();
    for (name, subnets) in subnets.iter().filter(|(name, _)| **name != node.name) {
        let subnets: Vec<String> = subnets.iter().map(ToString::to_string).collect();
        let of_node = |row: &&Row| subnets.contains(&word(row, "ip_prefix"));
        let ways: Vec<String> = routes
            .iter()
            .filter(of_node)
            .map(|row| word(row, "nexthop"))
            .collect();
        for row in routes
            .iter()
            .filter(|row| ways.contains(&word(row, "nexthop")))
        {
            let (uuid, id) = (word(row, "_uuid"), format!("external_ids:ic-node={name}"));
            let words = ["--", "set", "logical_router_static_route", &uuid, &id];
            command.extend(words.map(str::to_owned));
        }
    }
    if !command.is_empty() {
        nbctl(lab, &node.name).args(command).run()?;
    }
    Ok(())
}

/// Remembers what the node has, and starts the process that keeps it.
fn keep(lab: &Lab, node: &Node) -> Result<()> {
    player::remember(lab, node)?;
    let argv = [
        text(&own_program()?),
        "--name".to_owned(),
        lab.name.clone(),
        "ovnkube-imitation".to_owned(),
        node.name.clone(),
    ];
    let start = Start {
        node: node.name.clone(),
        name: KEEPER.to_owned(),
        argv: argv.to_vec(),
        env: Vec::new(),
        log: lab.node_dir(&node.name).join(format!("{KEEPER}.log")),
        pidfile: None,
    };
    process::start(lab, start, 0).map(drop)
}

/// What of a node is not as it was found, in words; nothing where all is. Real OVN-Kubernetes changes what it has by itself: there it
/// is what bears our marks.
fn touched(lab: &Lab, node: &Node) -> Result<Option<String>> {
    if lab.ovn_kubernetes.is_some() {
        return marked(lab, node);
    }
    let mut difference = found::difference(lab, node)?;
    if process::record(lab, &node.name, "node-agent").is_ok_and(|agent| agent.alive()) {
        difference = found::but_for_running_agents(difference);
    }
    if let Some((part, lines)) = difference.first_key_value() {
        let some: Vec<&str> = lines.iter().take(3).map(String::as_str).collect();
        let counted = found::counted(&difference);
        return Ok(Some(format!(
            "{}: {counted}; of {part}: {}",
            node.name,
            some.join(" | ")
        )));
    }
    Ok((!is_back(lab, node)?)
        .then(|| format!("{}: it tells its peers that it is ready", node.name)))
}

/// What bears our marks on a node that is back: rows, routes, and rules but those that keep the host's packets in the tunnels for as long
/// as others announce their pods.
fn marked(lab: &Lab, node: &Node) -> Result<Option<String>> {
    let mut left: Vec<String> = Vec::new();
    for table in TABLES {
        let all = rows(lab, &node.name, table, &[])?;
        let ours = all.iter();
        let ours = ours.filter_map(|row| entry(row, "external_ids", OWNER));
        left.extend(ours.map(|of| format!("a row of {table} of {of}")));
    }
    let namespace = lab.namespace(&node.name);
    for family in ["-4", "-6"] {
        let ip = |words: &str| {
            tool("ip")
                .words(&format!("{family} {words}"))
                .inside(&namespace)
                .run()
        };
        let rules = ip("-d rule show")?;
        let kept = |line: &&str| ["2900:", "2901:"].iter().any(|at| line.starts_with(at));
        let ours = rules
            .lines()
            .filter(|line| line.contains("proto 78") && !kept(line));
        left.extend(ours.map(str::to_owned));
        // Where its rules are, there is its route.
        let routes = ip("route show table all proto 78")?;
        let routes = routes
            .lines()
            .filter(|line| !line.contains("table 2900000000"));
        left.extend(routes.map(str::to_owned));
    }
    if !is_back(lab, node)? {
        left.push("a rule, the packet filter or the word of its Node".to_owned());
    }
    Ok((!left.is_empty()).then(|| format!("{}: {}", node.name, left.join(" | "))))
}

/// Whether a node leads nothing past the tunnels and tells nobody that it does. Rules that keep the host's packets in the tunnels,
/// while BGP's routes to other nodes' pods are there, may be.
pub(crate) fn is_back(lab: &Lab, node: &Node) -> Result<bool> {
    for table in ["logical_router_policy", "port_group", "acl", "address_set"] {
        let all = rows(lab, &node.name, table, &[])?;
        if all
            .iter()
            .any(|row| entry(row, "external_ids", OWNER).is_some())
        {
            return Ok(false);
        }
    }
    let namespace = lab.namespace(&node.name);
    let rules = tool("ip").words("rule show").inside(&namespace).run()?;
    let tables = tool("nft").words("list tables").inside(&namespace).run()?;
    let object = get(lab, &format!("/api/v1/nodes/{}", node.name))?;
    let word = object.pointer("/metadata/annotations/noverlay.io~1underlay-ready");
    let leads = ["2898:", "2899:"].iter().any(|rule| rules.contains(rule));
    Ok(!leads && !tables.contains("inet noverlay") && word.is_none())
}

/// Gives the fields of Nodes to somebody else: what our daemons do not write any more stays, but for what only noverlay says.
fn annotate(lab: &Lab) -> Result<()> {
    let nodes = get(lab, "/api/v1/nodes")?;
    for node in items(&nodes) {
        let name = node.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.context("a Node without name")?;
        let all = node.pointer("/metadata/annotations");
        let all = all.and_then(Value::as_object).cloned().unwrap_or_default();
        let theirs = all
            .into_iter()
            .filter(|(key, _)| key.starts_with("k8s.ovn.org/"));
        let theirs: Map<String, Value> = theirs.collect();
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": theirs}});
        kubectl(lab)
            .words("apply --server-side --force-conflicts --field-manager=ovnkube -f -")
            .input(object.to_string())
            .run()?;
        let none = json!({"metadata": {"annotations": {(HOST_MTU): null}}}).to_string();
        let patch = ["patch", "node", name, "--type=merge", "--patch", &none];
        kubectl(lab).args(patch).run()?;
    }
    Ok(())
}

/// Configures all daemons with the lab's transport and waits until every node has followed.
pub(crate) fn follow(lab: &Lab) -> Result<()> {
    daemons::configure_managers(lab)?;
    daemons::configure_agents(lab)?;
    if lab.is_steered() {
        return wait("not past the tunnels on each node", || {
            Ok(unsteered(lab)?.is_empty())
        });
    }
    as_found(lab)
}

/// Waits until every node is as it was found: what it holds, and what is told of it.
fn as_found(lab: &Lab) -> Result<()> {
    let mut said = String::new();
    let done = until(patience(), Duration::from_millis(500), || {
        let all = each(&lab.nodes, |node| touched(lab, node));
        let left: Vec<String> = all
            .into_iter()
            .filter_map(|left| left.unwrap_or_else(|error| Some(format!("{error:#}"))))
            .collect();
        said = left.join("; ");
        said.is_empty().then_some(())
    });
    done.with_context(|| {
        format!(
            "not as it was found after {} s: {said}",
            patience().as_secs()
        )
    })
}

/// The same with another transport, which the lab has from then on. Says what is otherwise on nodes than it was found.
pub(crate) fn switch(lab: &mut Lab, transport: &str, steps: Steps) -> Result<()> {
    if lab.adopted.is_none() {
        bail!(
            "its daemons build the topology: the transport may change beside OVN-Kubernetes only (up --adopt, up --ovn-kubernetes FOLDER)"
        );
    }
    lab.adopted = Some(transport.to_owned());
    lab.save()?;
    follow(lab)?;
    if lab.ovn_kubernetes.is_some() {
        if !lab.is_steered() {
            steps.say("nothing on the nodes bears our marks; what else there is was not compared: OVN-Kubernetes changes it by itself");
        }
        return Ok(());
    }
    if !lab.is_steered() {
        steps.say(&format!(
            "all {} nodes are as they were found: OVN_Northbound, switches, links, rules, routes, sysctls, packet filter, annotations",
            lab.nodes.len()
        ));
        return Ok(());
    }
    for node in &lab.nodes {
        let difference = found::difference(lab, node)?;
        let strangers = found::strangers(&difference);
        if !strangers.is_empty() {
            bail!(
                "{}: changed and not our daemons': {}",
                node.name,
                strangers.join(" | ")
            );
        }
        steps.say(&format!(
            "{}: otherwise than it was found, all of it our daemons': {}",
            node.name,
            found::counted(&difference)
        ));
    }
    Ok(())
}

/// Waits until something holds; where it does not, `what` is said.
pub(crate) fn wait(what: &str, holds: impl Fn() -> Result<bool>) -> Result<()> {
    let done = until(patience(), Duration::from_millis(200), || {
        holds().is_ok_and(|holds| holds).then_some(())
    });
    done.with_context(|| format!("{what} after {} s", patience().as_secs()))
}

/// What each node lacks of leading pods past the tunnels to all others; nothing where all do.
pub(crate) fn unsteered(lab: &Lab) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for lacks in each(&lab.nodes, |node| lacking(lab, node)) {
        missing.extend(lacks?);
    }
    Ok(missing)
}

/// The subnets that a node leads past the tunnels.
pub(crate) fn steered(lab: &Lab, node: &str) -> Result<Vec<String>> {
    let sets = rows(lab, node, "address_set", &[])?;
    let sets = sets.iter();
    let ours = sets.filter(|set| word(set, "name").starts_with("noverlay_routed_default_"));
    Ok(ours.flat_map(|set| members(set, "addresses")).collect())
}

fn lacking(lab: &Lab, node: &Node) -> Result<Option<String>> {
    let policies = rows(lab, &node.name, "logical_router_policy", &["priority=1010"])?;
    let families = lab.values.families().len();
    let mut text = String::new();
    if policies.len() != families {
        write!(text, "{} policies of {families}", policies.len())?;
    }
    let subnets = crate::objects::subnets(lab)?;
    let steered = steered(lab, &node.name)?;
    let others = subnets.iter().filter(|(name, _)| **name != node.name);
    for subnet in others.flat_map(|(_, subnets)| subnets) {
        if !steered.contains(&subnet.to_string()) {
            write!(text, " {subnet} is in no set")?;
        }
    }
    Ok((!text.is_empty()).then(|| format!("{}: {}", node.name, text.trim())))
}
