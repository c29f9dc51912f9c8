//! At which layer does a path stop?
//!
//! In: two nodes whose pods do not reach each other as they should. Out: the first
//! layer, from object to packet, that has not what it must have, and what that is.

use anyhow::Result;
use ipnet::IpNet;

use super::Layer;
use crate::family::Family;
use crate::look::{
    frr_routes, gateway_router, imported, kernel_routes, members, router_rows, rows, sessions, word,
};
use crate::node::ovs::br_ex;
use crate::objects::{frr_configured, reflectors, subnets};
use crate::pods::has_switch;
use crate::process;
use crate::run::tool;
use crate::state::{Lab, Node, Pod, PodAddress, text};

/// A layer and what is wrong with it.
pub(super) type Finding = (Layer, String);

/// Why a node has no pod.
pub(super) fn missing_pod(lab: &Lab, node: &Node) -> Finding {
    match subnets(lab) {
        Err(error) => (
            Layer::Object,
            format!("the API server does not answer: {error:#}"),
        ),
        Ok(found) if !found.contains_key(&node.name) => (
            Layer::Object,
            format!(
                "node {} has no annotation k8s.ovn.org/node-subnets",
                node.name
            ),
        ),
        Ok(_) if !has_switch(lab, &node.name) => (
            Layer::Ovn,
            format!(
                "the Northbound DB of {0} has no switch {0}{1}",
                node.name,
                lost(lab, node).unwrap_or_default()
            ),
        ),
        Ok(_) => (
            Layer::Lab,
            format!("the lab has not attached the pod of {}", node.name),
        ),
    }
}

/// Packets of which Open vSwitch's datapath had no flow and that never came to ovs-vswitchd, where there are any: the node reaches
/// nobody then, whatever flows the bridge has.
fn lost(lab: &Lab, node: &Node) -> Option<String> {
    let pid = process::record(lab, &node.name, "ovs-vswitchd").ok()?.pid;
    let control = lab
        .ovs_dir(&node.name)
        .join(format!("ovs-vswitchd.{pid}.ctl"));
    let shown = tool("ovs-appctl").args(["-t", &text(&control), "dpctl/show", "-s"]);
    let shown = shown.run().ok()?;
    let lookups = shown.lines().find(|line| line.contains("lookups:"))?.trim();
    let count =
        |of: &str| -> Option<u64> { lookups.split_once(of)?.1.split(' ').next()?.parse().ok() };
    // A few are lost while bridges are made.
    (count("lost:")? > count("missed:")? / 2)
        .then(|| format!("; packets are lost between the datapath and ovs-vswitchd ({lookups})"))
}

/// The same in words.
pub(crate) fn why_no_pod(lab: &Lab, node: &Node) -> String {
    missing_pod(lab, node).1
}

/// Why packets between two pods are lost or changed, in either direction.
pub(super) fn pods(lab: &Lab, from: &Node, to: &Node) -> Finding {
    let found = one_way(lab, from, to).and_then(|first| match first {
        Some(finding) => Ok(Some(finding)),
        None => one_way(lab, to, from),
    });
    match found {
        Ok(Some(finding)) => finding,
        Ok(None) => (
            Layer::Packets,
            "objects, FRR, kernel, OVN and bridge have what they must have".to_owned(),
        ),
        Err(error) => (
            Layer::Lab,
            format!("looking for the reason failed: {error:#}"),
        ),
    }
}

fn one_way(lab: &Lab, from: &Node, to: &Node) -> Result<Option<Finding>> {
    let (Some(near), Some(far)) = (lab.pod(&from.name), lab.pod(&to.name)) else {
        return Ok(None);
    };
    if let Some(finding) = route(lab, from, to)? {
        return Ok(Some(finding));
    }
    if let Some(finding) = exemption(lab, from)? {
        return Ok(Some(finding));
    }
    for a in &near.addresses {
        let (source, _) = a.family().flow_words();
        let out = format!("{source}={}", a.subnet);
        if let Some(seen) = flow(lab, from, &out, "lets its pods' packets out")? {
            return Ok(Some((Layer::Packets, seen)));
        }
    }
    for a in &far.addresses {
        let (_, destination) = a.family().flow_words();
        let inward = format!("{destination}={}", a.subnet);
        if let Some(seen) = flow(lab, to, &inward, "takes packets for its pods in")? {
            return Ok(Some((Layer::Packets, seen)));
        }
    }
    Ok(None)
}

/// Why a node's bgpd has no session with a neighbor.
fn session(lab: &Lab, near: &str, neighbor: &str, far: &str) -> Result<Option<Finding>> {
    if !frr_configured(lab, near, neighbor)? {
        let seen = format!("no FRRConfiguration gives {near} the neighbor {neighbor} ({far})");
        return Ok(Some((Layer::Object, seen)));
    }
    let seen = match sessions(lab, near)?.get(neighbor) {
        None => format!("bgpd of {near} has no neighbor {neighbor} ({far})"),
        Some(session) if session.state != "Established" => format!(
            "session of {near} with {neighbor} ({far}) is {}",
            session.state
        ),
        Some(_) => return Ok(None),
    };
    Ok(Some((Layer::Frr, seen)))
}

/// Where the route from one node to another's subnets is missing; `None` where every
/// layer has it.
pub(super) fn route(lab: &Lab, from: &Node, to: &Node) -> Result<Option<Finding>> {
    let Some(pod) = lab.pod(&to.name) else {
        return Ok(Some(missing_pod(lab, to)));
    };
    for to_subnet in &pod.addresses {
        let found = route_to(lab, from, to, to_subnet)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn route_to(lab: &Lab, from: &Node, to: &Node, of: &PodAddress) -> Result<Option<Finding>> {
    let (near, far) = (&from.name, &to.name);
    let address = lab.values.address_of(to.index, of.family())?;
    let subnet = of.subnet;
    let neighbor = address.to_string();
    let reflectors = reflectors(lab)?;
    // Two nodes without a session get what the other announces by a reflector.
    let direct = reflectors.is_empty() || reflectors.contains(near) || reflectors.contains(far);
    if direct && let Some(finding) = session(lab, near, &neighbor, far)? {
        return Ok(Some(finding));
    }
    if !frr_routes(lab, near)?.contains(&(subnet, address)) {
        return Ok(Some((
            Layer::Frr,
            format!("bgpd of {near} has not learned {subnet} from {neighbor}"),
        )));
    }
    if !kernel_routes(lab, near)?.contains(&(subnet, address)) {
        return Ok(Some((
            Layer::Kernel,
            format!("main table of {near} has no route {subnet} via {neighbor}"),
        )));
    }
    if !imported(lab, near)?.contains(&(subnet, address)) {
        let router = gateway_router(near);
        return Ok(Some((
            Layer::Ovn,
            format!("{router} has no imported route {subnet} via {neighbor}"),
        )));
    }
    Ok(None)
}

/// What is wrong with what translates on a node; `None` where pods are exempt from it.
pub(super) fn exemption(lab: &Lab, node: &Node) -> Result<Option<Finding>> {
    for range in &lab.values.default_network()?.ranges {
        let fault = exemption_of(lab, node, range.subnet)?;
        if fault.is_some() {
            return Ok(fault.map(|fault| (Layer::Ovn, fault)));
        }
        let in_kernel = lab.outward.is_local();
        let fault = in_kernel.then(|| filter(lab, node, range.subnet));
        if let Some(fault) = fault.transpose()?.flatten() {
            return Ok(Some((Layer::Kernel, fault)));
        }
    }
    Ok(None)
}

/// What is wrong with the packet filter, which translates in local gateway mode.
fn filter(lab: &Lab, node: &Node, cluster: IpNet) -> Result<Option<String>> {
    let listed = tool("nft")
        .words("list table inet ovn-kubernetes")
        .inside(&lab.namespace(&node.name))
        .run()?;
    let family = Family::of(cluster.addr());
    let pod = lab.pod(&node.name);
    let Some(own) = pod.as_ref().and_then(|pod| pod.in_family(family)) else {
        return Ok(None);
    };
    let (ip, version) = match family {
        Family::V4 => ("ip", "v4"),
        Family::V6 => ("ip6", "v6"),
    };
    let subnet = own.subnet;
    let rules: Vec<&str> = listed.lines().map(str::trim).collect();
    let at = |rule: &str| {
        let rule = format!("{ip} saddr {subnet} {rule}");
        rules.iter().position(|line| *line == rule)
    };
    let exempt = at(&format!(
        "{ip} daddr @no-overlay-snat-exempt-{version} return"
    ));
    let to_nodes = at(&format!("{ip} daddr @remote-node-ips-{version} masquerade"));
    let all = at("masquerade");
    let right = if lab.outward.is_translated() {
        let holds = listed.contains(&cluster.to_string());
        exempt.is_some() && exempt < all && holds && to_nodes.is_none()
    } else {
        exempt.is_none() && all.is_none() && to_nodes.is_some()
    };
    Ok((!right).then(|| format!("{}: table inet ovn-kubernetes is {listed}", node.name)))
}

/// The row of the gateway router. Only in shared gateway mode with outbound SNAT it translates more than the way to nodes.
fn exemption_of(lab: &Lab, node: &Node, cluster: IpNet) -> Result<Option<String>> {
    let address = lab
        .values
        .address_of(node.index, Family::of(cluster.addr()))?;
    let cluster = cluster.to_string();
    let router = gateway_router(&node.name);
    let all = router_rows(lab, &node.name, &router, "nat", "nat")?;
    let mut ours = all
        .iter()
        .filter(|row| word(row, "logical_ip") == cluster && word(row, "type") == "snat");
    let (Some(row), None) = (ours.next(), ours.next()) else {
        return Ok(Some(format!(
            "{router} has not exactly one SNAT row for {cluster}"
        )));
    };
    let external = word(row, "external_ip");
    if external != address.to_string() {
        return Ok(Some(format!(
            "the SNAT row of {router} translates to {external:?}"
        )));
    }
    let whole = !lab.outward.is_local() && lab.outward.is_translated();
    let exempt = members(row, "exempted_ext_ips");
    if !whole {
        let limited =
            members(row, "allowed_ext_ips").len() == 1 || word(row, "match").contains("dst ==");
        let right = limited && exempt.is_empty();
        return Ok((!right).then(|| format!("the SNAT row of {router} is not limited to nodes")));
    }
    let sets = rows(lab, &node.name, "address_set", &[])?;
    let set = sets.iter().find(|set| exempt.contains(&word(set, "_uuid")));
    let Some(set) = set else {
        return Ok(Some(format!(
            "the SNAT row of {router} has no exempted_ext_ips"
        )));
    };
    let addresses = members(set, "addresses");
    let covered = addresses.contains(&cluster);
    Ok((!covered)
        .then(|| format!("the exemption set of {router} lacks {cluster}: it holds {addresses:?}")))
}

/// Does a flow of br-ex match this? `what` says what such a flow does.
fn flow(lab: &Lab, node: &Node, wanted: &str, what: &str) -> Result<Option<String>> {
    let shown = br_ex(lab, &node.name, "dump-flows").run()?;
    let there = shown.lines().any(|line| {
        let (matches, actions) = line.split_once(" actions=").unwrap_or((line, ""));
        matches.split([',', ' ']).any(|part| part == wanted) && actions != "drop"
    });
    Ok((!there).then(|| format!("br-ex of {} has no flow that {what} ({wanted})", node.name)))
}

/// Why a host does not reach pods; `None` where its rule and its table are right.
pub(super) fn host_way(lab: &Lab, node: &Node, pod: &Pod) -> Result<Option<String>> {
    if lab.outward.is_local() {
        return Ok(None);
    }
    for range in &lab.values.default_network()?.ranges {
        let family = Family::of(range.subnet.addr());
        let fault = match pod.in_family(family) {
            Some(own) => host_way_to(lab, node, own, range.subnet)?,
            None => None,
        };
        if fault.is_some() {
            return Ok(fault);
        }
    }
    Ok(None)
}

fn host_way_to(lab: &Lab, node: &Node, own: &PodAddress, cluster: IpNet) -> Result<Option<String>> {
    let namespace = lab.namespace(&node.name);
    let (gateway, family) = (own.gateway(), own.family().option());
    let rules = tool("ip")
        .args(["-n", &namespace, family, "rule", "show", "pref", "31"])
        .run()?;
    if !rules.contains(&cluster.to_string()) || !rules.contains("lookup 7") {
        return Ok(Some(format!("{}: no ip rule 31 for {cluster}", node.name)));
    }
    let table = tool("ip")
        .args(["-n", &namespace, family, "route", "show", "table", "7"])
        .run()?;
    let wanted = format!("{cluster} via {gateway} dev ovn-k8s-mp0");
    let there = table.lines().any(|line| line.starts_with(&wanted));
    Ok((!there).then(|| format!("{}: table 7 has no `{wanted}`", node.name)))
}
