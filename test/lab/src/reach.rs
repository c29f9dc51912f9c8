//! Do the pods reach each other?
//!
//! In: pods with their namespaces. Out: the pairs that did not answer in time. Uses
//! ping and nothing else; what lies between is not looked at here.

use std::time::{Duration, Instant};

use crate::run::{each, now, tool};
use crate::state::{Lab, Node, Pod};

/// A node and its pod.
pub(crate) type Attached = (Node, Pod);

/// The nodes whose pod is attached.
pub(crate) fn attached(lab: &Lab) -> Vec<Attached> {
    let pod = |node: &Node| Some((node.clone(), lab.pod(&node.name)?));
    lab.nodes.iter().filter_map(pod).collect()
}

/// Pings every pair until it has answered once in each family or the deadline has passed; gives the
/// pairs that never answered, by node name.
pub(crate) fn unreached(lab: &Lab, pods: &[Attached], deadline: Instant) -> Vec<(String, String)> {
    let from_one = |(from, _): &Attached| {
        let namespace = lab.pod_namespace(&from.name);
        let mut open: Vec<&Attached> = pods.iter().filter(|(to, _)| to != from).collect();
        loop {
            open.retain(|(_, pod)| !answers(&namespace, pod));
            if open.is_empty() || now() >= deadline {
                return open
                    .into_iter()
                    .map(|(to, _)| (from.name.clone(), to.name.clone()))
                    .collect();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let found: Vec<Vec<(String, String)>> = each(pods, from_one);
    found.into_iter().flatten().collect()
}

fn answers(namespace: &str, pod: &Pod) -> bool {
    pod.addresses.iter().all(|to| {
        let ping = tool("ping").words(&format!("-n -q -c 1 -W 0.5 {}", to.address));
        ping.inside(namespace).run().is_ok()
    })
}
