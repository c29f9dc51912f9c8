//! Of line 9: what pods of networks of users reach beside pods: nodes, the API server, DNS.
//!
//! In: pods of a network of users. Out: whether they reach the Services that they may use, no
//! other Service, every node and the API server, and whether the receiver sees an address
//! that it has a way back to; and that no host reaches such a pod.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Result;

use super::networks::PATIENCE;
use crate::echo;
use crate::family::Family;
use crate::networks::Members;
use crate::run::until;
use crate::services::{self, DNS, KUBERNETES, OTHER};
use crate::state::Lab;

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

/// A client: it tells whom the server sees.
type Ask = fn(&str, IpAddr) -> Result<SocketAddr>;

/// How many paths there are, and what is wrong with them.
pub(super) fn look(lab: &Lab, one: &Members) -> Result<(usize, Vec<String>)> {
    let (mut count, mut wrong) = (0, Vec::new());
    let api = lab.values.api_address();
    let family = Family::of(api);
    for (node, pod, namespace) in &one.pods {
        let from = format!("pod of {} on {}", one.name, node.name);
        for own in &pod.addresses {
            let node_address = lab.values.address_of(node.index, own.family())?;
            let mut paths = Vec::new();
            if own.family() == family {
                let by_node = Seen::Exactly(node_address);
                paths.push(("API server".to_owned(), api, by_node));
                for (name, number, seen) in [
                    ("Service default/kubernetes", KUBERNETES, by_node),
                    (
                        "Service kube-system/kube-dns",
                        DNS,
                        Seen::AnyBut(own.address),
                    ),
                ] {
                    let to = services::address(lab, number)?;
                    paths.push((name.to_owned(), to, seen));
                }
            }
            for other in &lab.nodes {
                let to = lab.values.address_of(other.index, own.family())?;
                let seen = if other != node {
                    Seen::Exactly(node_address)
                } else if lab.outward.is_local() && lab.outward.is_translated() {
                    // The host leads to pods itself.
                    Seen::Exactly(own.address)
                } else {
                    Seen::AnyBut(own.address)
                };
                paths.push((format!("node {}", other.name), to, seen));
            }
            for (name, to, expected) in paths {
                count += 2;
                for (protocol, ask) in [("TCP", echo::tcp as Ask), ("UDP", echo::udp as Ask)] {
                    let seen = until(PATIENCE, Duration::from_millis(500), || {
                        ask(namespace, to).ok()
                    });
                    if !seen.is_some_and(|seen| expected.is(seen.ip())) {
                        let text = format!(
                            "{from} -> {name}, {protocol}: {seen:?} is seen, expected {expected:?}"
                        );
                        wrong.push(text);
                    }
                }
            }
            if own.family() == family {
                count += 1;
                if let Ok(seen) = echo::tcp(namespace, services::address(lab, OTHER)?) {
                    let text =
                        format!("{from} -> Service default/other: it answers and sees {seen}");
                    wrong.push(text);
                }
            }
            for host in &lab.nodes {
                count += 1;
                if let Ok(seen) = echo::tcp(&lab.namespace(&host.name), own.address) {
                    let text = format!("node {} -> {from}: it answers and sees {seen}", host.name);
                    wrong.push(text);
                }
            }
        }
    }
    Ok((count, wrong))
}
