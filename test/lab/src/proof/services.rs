//! Of line 9: what pods of networks of users reach beside pods: nodes, the API server, DNS.
//!
//! In: pods of a network of users. Out: whether they reach the Services that they may use, no
//! other Service, every node and the API server, and whether the receiver sees an address
//! that it has a way back to; and that no host reaches such a pod.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Result;

use super::networks::{Found, PATIENCE};
use crate::echo;
use crate::family::Family;
use crate::networks::{DEFAULT, Members};
use crate::run::until;
use crate::services::{self, DNS, KUBERNETES, OTHER};
use crate::state::{Lab, Node, Pod, PodAddress};

/// Servers of hosts; line 3 may have started them.
pub(super) fn serve(lab: &Lab) -> Result<()> {
    let api = lab.values.api_address();
    drop(echo::serve(&lab.namespace("underlay"), api));
    for node in &lab.nodes {
        for family in lab.values.families() {
            let address = lab.values.address_of(node.index, family)?;
            drop(echo::serve(&lab.namespace(&node.name), address));
        }
    }
    Ok(())
}

/// Whom the receiver must see.
#[derive(Debug, Clone, Copy)]
enum Seen {
    /// This address.
    Exactly(IpAddr),
    /// Any but this one, which it has no way back to.
    AnyBut(IpAddr),
}

impl Seen {
    fn is(self, address: IpAddr) -> bool {
        match self {
            Self::Exactly(wanted) => address == wanted,
            Self::AnyBut(own) => address != own,
        }
    }
}

/// After so many ways that stay closed the others are tried once.
const TOO_LATE: usize = 3;

/// A client: it tells whom the server sees.
type Ask = fn(&str, IpAddr) -> Result<SocketAddr>;

/// Services of networks: by cluster address their own pods reach them and nobody else, by node port pods of every network.
pub(super) fn clusters(lab: &Lab, one: &Members, all: &[Members], found: &mut Found) -> Result<()> {
    for network in all {
        let is_own = network.name == one.name;
        // Node ports are the lab's, not OVN-Kubernetes'.
        let is_there = |at: &Option<&str>| at.is_none() || lab.ovn_kubernetes.is_none();
        let asked = of(lab, &network.name)?.into_iter();
        for (column, to, at) in asked.filter(|(.., at)| is_there(at)) {
            let family = Family::of(to.ip());
            let able = |pod: &Pod| pod.in_family(family).is_some();
            for (node, pod, namespace) in one.pods.iter().filter(|(_, pod, _)| able(pod)) {
                let of_other = |at: &str| enters(lab, one, &network.name, at == node.name);
                let may = is_own || at.is_some_and(of_other);
                let seen = if may && found.wrong.len() < TOO_LATE {
                    until(PATIENCE, Duration::from_millis(500), || {
                        echo::tcp_at(namespace, to).ok()
                    })
                } else {
                    echo::tcp_at(namespace, to).ok()
                };
                found.count += 1;
                found.matrix.note(&one.name, &column, seen.is_some());
                // Another network has no way back to the pod's own address.
                let is_its_own = |seen: &SocketAddr| {
                    let own = pod.in_family(Family::of(seen.ip()));
                    own.is_some_and(|own| own.address == seen.ip())
                };
                let seen_right = is_own || !seen.as_ref().is_some_and(is_its_own);
                if seen.is_some() != may || !seen_right {
                    let text = format!(
                        "pod of {} on {} -> {column} at {to}: {seen:?} is seen, expected {}",
                        one.name,
                        node.name,
                        if may { "an answer" } else { "none" }
                    );
                    found.wrong.push(text);
                }
            }
        }
    }
    Ok(())
}

/// Whether a pod enters another network by a node port: who gives a Service one opens it to all (limits of isolation in the design
/// of BGP advertisements), and a pod is seen at another node with its node's address. A pod of a network of users that asks its
/// own node comes there by its VRF: it is led into other networks of users by their packet mark, but, with its own address as it
/// has it there without an overlay, not with local gateway mode and strict isolation, and never into the default network, for which
/// there is no mark. Where nothing else is translated (`outbound-snat = disabled`) it is towards its own node, and so it is let in.
/// In OVN-Kubernetes none of these works (a defect known there).
fn enters(lab: &Lab, one: &Members, network: &str, is_own_node: bool) -> bool {
    let is_strict = lab.outward.is_local() && !lab.outward.is_loose();
    let is_kept_out = is_strict && !one.has_tunnels && one.is_translated;
    let by_mark = network != DEFAULT && !is_kept_out;
    !is_own_node || one.name == DEFAULT || by_mark
}

/// Where a network's Service is asked: at its own address, which only networks of users have here, and at each node, which is named.
fn of<'a>(lab: &'a Lab, network: &str) -> Result<Vec<(String, SocketAddr, Option<&'a str>)>> {
    let mut all = Vec::new();
    let port = services::node_port(lab, network)?;
    for family in lab.values.families() {
        let own = services::of_network(lab, network, family)?;
        if let Some(address) = own {
            let to = SocketAddr::new(address, echo::PORT);
            all.push((format!("Service of {network}"), to, None));
        } else if network != DEFAULT {
            continue;
        }
        for node in &lab.nodes {
            let address = lab.values.address_of(node.index, family)?;
            all.push((
                format!("node port of {network}"),
                SocketAddr::new(address, port),
                Some(node.name.as_str()),
            ));
        }
    }
    Ok(all)
}

/// What a pod may reach, and whom that must see.
fn targets(
    lab: &Lab,
    one: &Members,
    (node, own): (&Node, &PodAddress),
) -> Result<Vec<(String, IpAddr, Seen)>> {
    let api = lab.values.api_address();
    let node_address = lab.values.address_of(node.index, own.family())?;
    let by_node = Seen::Exactly(node_address);
    let mut targets = Vec::new();
    if own.family() == Family::of(api) {
        targets.push(("API server".to_owned(), api, by_node));
        // OVN-Kubernetes has it by its own port alone, where nobody tells whom he sees.
        if lab.ovn_kubernetes.is_none() {
            let to = services::address(lab, KUBERNETES, own.family())?;
            targets.push(("Service default/kubernetes".to_owned(), to, by_node));
        }
    }
    let to = services::address(lab, DNS, own.family())?;
    let seen = Seen::AnyBut(own.address);
    targets.push(("Service kube-system/kube-dns".to_owned(), to, seen));
    for other in &lab.nodes {
        let seen = if other.name != node.name {
            by_node
        } else if lab.outward.is_local() && one.is_translated && !one.has_tunnels {
            // The host leads to pods itself. What has an overlay is translated towards nodes.
            Seen::Exactly(own.address)
        } else {
            Seen::AnyBut(own.address)
        };
        let to = lab.values.address_of(other.index, own.family())?;
        targets.push((format!("node {}", other.name), to, seen));
    }
    Ok(targets)
}

/// The paths to hosts and to Services of the default network, and from hosts.
pub(super) fn look(lab: &Lab, one: &Members, found: &mut Found) -> Result<()> {
    for (node, pod, namespace) in &one.pods {
        let from = format!("pod of {} on {}", one.name, node.name);
        for own in &pod.addresses {
            for (name, to, expected) in targets(lab, one, (node, own))? {
                found.count += 2;
                let clients: [(&str, Ask); 2] = [("TCP", echo::tcp), ("UDP", echo::udp)];
                for (protocol, ask) in clients {
                    let seen = until(PATIENCE, Duration::from_millis(500), || {
                        ask(namespace, to).ok()
                    });
                    let is_node = name.starts_with("node");
                    let column = if is_node { "nodes" } else { &name };
                    found.matrix.note(&one.name, column, seen.is_some());
                    if !seen.is_some_and(|seen| expected.is(seen.ip())) {
                        found.wrong.push(format!(
                            "{from} -> {name}, {protocol}: {seen:?} is seen, expected {expected:?}"
                        ));
                    }
                }
            }
            let seen = echo::tcp(namespace, services::address(lab, OTHER, own.family())?);
            let to = "Service default/other";
            refused(found, (&one.name, to), &format!("{from} -> {to}"), &seen);
            for host in &lab.nodes {
                let seen = echo::tcp(&lab.namespace(&host.name), own.address);
                let what = format!("node {} -> {from}", host.name);
                let column = format!("pods of {}", one.name);
                refused(found, ("hosts", &column), &what, &seen);
            }
        }
    }
    Ok(())
}

/// What nobody may answer.
fn refused(found: &mut Found, (from, to): (&str, &str), what: &str, seen: &Result<SocketAddr>) {
    found.count += 1;
    found.matrix.note(from, to, seen.is_ok());
    if let Ok(seen) = seen {
        found
            .wrong
            .push(format!("{what}: it answers and sees {seen}"));
    }
}
