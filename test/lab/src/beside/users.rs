//! Networks of users beside the imitation of OVN-Kubernetes: those of layer 3 over tunnels, led past them by an annotation.
//!
//! In: a lab that came up with `--adopt` and such networks. Out: their rows in OVN-Kubernetes' forms; annotations, and how far nodes
//! have followed; how the underlay carries what goes between their pods. Not here: what it costs (`failover`).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{OWNER, wait};
use crate::apiserver::{get, kubectl};
use crate::look::{Row, entry, members, router_rows, rows, word};
use crate::networks::{self, UserNetwork, Way};
use crate::node::link::BRIDGE;
use crate::node::ovs::nbctl;
use crate::proof::Capture;
use crate::run::{each, tool};
use crate::state::{Lab, Node};

/// Annotation of a ClusterUserDefinedNetwork.
const NO_OVERLAY: &str = "noverlay.io/no-overlay";
/// What tunnels are sent to.
const GENEVE: &str = "udp port 6081";

/// The networks that can be led past the tunnels.
pub(crate) fn over_tunnels(lab: &Lab) -> Vec<&UserNetwork> {
    let all = lab.networks.iter();
    all.filter(|network| network.way == Way::Tunnels).collect()
}

/// Their cluster routers.
pub(super) fn cluster_router(network: &UserNetwork) -> String {
    format!("{}_ovn_cluster_router", network.network())
}

/// Has what leaves for the management port translated whatever its destination: our daemons exempt pods. OVN-Kubernetes' own row also has a
/// `match` (`eth.dst` of the management port), for which OVN 23.03 has no column.
pub(super) fn translate(lab: &Lab, node: &Node) -> Result<()> {
    for network in over_tunnels(lab) {
        let router = cluster_router(network);
        let mut changed = 0;
        for row in router_rows(lab, &node.name, &router, "nat", "nat")? {
            let uuid = word(&row, "_uuid");
            for column in ["exempted_ext_ips", "allowed_ext_ips"] {
                nbctl(lab, &node.name)
                    .args(["clear", "nat", &uuid, column])
                    .run()?;
            }
            changed += 1;
        }
        ensure!(changed > 0, "{}: {router} translates nothing", node.name);
    }
    Ok(())
}

/// Leads all of them past the tunnels, or back, and waits until every node has followed.
pub(crate) fn lead(lab: &Lab, past: bool) -> Result<()> {
    let asked = json!({"outboundSNAT": "Enabled", "routing": "Managed"}).to_string();
    let word = if past {
        format!("{NO_OVERLAY}={asked}")
    } else {
        format!("{NO_OVERLAY}-")
    };
    for network in over_tunnels(lab) {
        kubectl(lab)
            .args(["annotate", "--overwrite", "clusteruserdefinednetwork"])
            .args([&network.name, &word])
            .run()?;
    }
    if past {
        let what = format!("{:?}", unled(lab)?);
        return wait(&what, || Ok(unled(lab)?.is_empty())).with_context(|| {
            let now = unled(lab).unwrap_or_default();
            format!("now: {}", now.join("; "))
        });
    }
    wait("networks of users are not back", || {
        let left = each(&lab.nodes, |node| left(lab, node));
        let left = left.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(left.iter().all(Vec::is_empty))
    })
}

/// Deletes the row by which a network is translated on its way to the host, and makes it anew: ours are made of it.
pub(crate) fn translation(lab: &Lab, node: &Node) -> Result<()> {
    for network in over_tunnels(lab) {
        let router = cluster_router(network);
        let of_router = || router_rows(lab, &node.name, &router, "nat", "nat");
        let is_ours = |row: &Row| entry(row, "external_ids", OWNER).is_some();
        let ours =
            || -> Result<usize> { Ok(of_router()?.iter().filter(|row| is_ours(row)).count()) };
        let all = of_router()?;
        let theirs = all.iter().find(|row| !is_ours(row));
        let theirs = theirs.with_context(|| format!("{router}: no row of others"))?;
        let before = ours()?;
        ensure!(before > 0, "{router} has no row of ours");
        let uuid = word(theirs, "_uuid");
        let columns = ["type", "external_ip", "logical_ip", "logical_port"];
        let columns = columns.map(|column| format!("{column}={:?}", word(theirs, column)));
        nbctl(lab, &node.name)
            .args(["remove", "logical_router", &router, "nat", &uuid])
            .run()?;
        wait("ours have not gone with theirs", || Ok(ours()? < before))?;
        nbctl(lab, &node.name)
            .args(["--id=@row", "create", "nat"])
            .args(columns)
            .args(["options:stateless=false", "external_port_range=32768-60999"])
            .args(["--", "add", "logical_router", &router, "nat", "@row"])
            .run()?;
        wait("ours have not come back", || Ok(ours()? == before))?;
    }
    wait("networks are not led", || Ok(unled(lab)?.is_empty()))
}

/// What nodes lack of leading them past the tunnels to all others.
fn unled(lab: &Lab) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for network in over_tunnels(lab) {
        let subnets = networks::subnets(lab, network)?;
        for node in &lab.nodes {
            let led = steered(lab, node, network)?;
            let others = subnets.iter().filter(|(name, _)| **name != node.name);
            for subnet in others.flat_map(|(_, subnets)| subnets) {
                if !led.contains(&subnet.to_string()) {
                    missing.push(format!("{}: {subnet} is in no set", node.name));
                }
            }
        }
    }
    Ok(missing)
}

/// The subnets of a network that a node leads past the tunnels.
fn steered(lab: &Lab, node: &Node, network: &UserNetwork) -> Result<Vec<String>> {
    let sets = rows(lab, &node.name, "address_set", &[])?;
    let name = format!("noverlay_routed_{}_", network.network());
    let ours = sets.iter();
    let ours = ours.filter(|set| word(set, "name").starts_with(&name));
    Ok(ours.flat_map(|set| members(set, "addresses")).collect())
}

/// What is left of them on a node, in words.
fn left(lab: &Lab, node: &Node) -> Result<Vec<String>> {
    let mut left = Vec::new();
    let of_users = |marker: &str| marker.starts_with("cluster_udn_");
    for table in [
        "logical_router_policy",
        "port_group",
        "acl",
        "address_set",
        "nat",
    ] {
        let all = rows(lab, &node.name, table, &[])?;
        let ours = all
            .iter()
            .filter(|row| entry(row, "external_ids", OWNER).is_some_and(|m| of_users(&m)));
        left.extend(ours.map(|_| format!("a row of {table}")));
    }
    let namespace = lab.namespace(&node.name);
    let inside = |program: &str, words: &str| tool(program).words(words).inside(&namespace).run();
    let rules = inside("ip", "rule show")? + &inside("ip", "-6 rule show")?;
    let into_vrf = |line: &&str| line.starts_with("2900:") && line.contains("iif br-ex");
    left.extend(rules.lines().filter(into_vrf).map(str::to_owned));
    let filter = inside("nft", "list ruleset")?;
    let sets = filter.lines().map(str::trim);
    let sets = sets.filter(|line| line.starts_with("set pods-") && !line.starts_with("set pods-v"));
    left.extend(sets.map(str::to_owned));
    let object = get(lab, &format!("/api/v1/nodes/{}", node.name))?;
    let said = object.pointer("/metadata/annotations/noverlay.io~1underlay-ready");
    let said = said.and_then(serde_json::Value::as_str).unwrap_or_default();
    if of_any(said) {
        left.push(format!("annotation {said}"));
    }
    Ok(left)
}

fn of_any(said: &str) -> bool {
    said.contains("cluster_udn_")
}

/// How the underlay carries echo requests between the pods of each: on the wire as they are, and in no tunnel, or the other way
/// round.
pub(crate) fn carried(lab: &Lab, past: bool) -> Result<()> {
    for network in over_tunnels(lab) {
        let filter = format!("icmp or icmp6 or {GENEVE}");
        let capture = Capture::start(&lab.namespace("underlay"), BRIDGE, &[], &filter)?;
        let pods = networks::attached(lab, network);
        let mut sent = 0;
        for (from, _) in &pods {
            let namespace = network.namespace(lab, &from.name);
            let others = pods.iter().filter(|(node, _)| node != from);
            for own in others.flat_map(|(_, pod)| &pod.addresses) {
                let words = format!("-c 3 -i 0.3 -W 5 {}", own.address);
                tool("ping").words(&words).inside(&namespace).run()?;
                sent += 3;
            }
        }
        let said = capture.stop()?;
        let all = pods.iter().flat_map(|(_, pod)| &pod.addresses);
        let (plain, tunneled) = counted(&said, &all.map(|own| own.address).collect());
        let is_so = if past {
            plain >= sent && tunneled == 0
        } else {
            tunneled >= sent && plain == 0
        };
        let mut words = String::new();
        write!(
            words,
            "network {}: of {sent} echo requests {plain} on the wire as they are, {tunneled} in tunnels",
            network.name
        )?;
        ensure!(is_so, "{words}");
        crate::run::tell(&format!("    {words}"));
    }
    Ok(())
}

/// Echo requests between these addresses: as they are, and in tunnels.
fn counted(said: &str, pods: &BTreeSet<IpAddr>) -> (usize, usize) {
    let is_between = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.windows(3).any(|three| match three {
            [from, ">", to] => {
                let to = to.trim_end_matches(':');
                let is_pod = |text: &str| text.parse().is_ok_and(|ip: IpAddr| pods.contains(&ip));
                is_pod(from) && is_pod(to)
            }
            _ => false,
        })
    };
    let requests = said.lines().filter(|line| line.contains("echo request"));
    let between: Vec<&str> = requests.filter(is_between).collect();
    let tunneled = between.iter().filter(|line| line.contains("Geneve"));
    let tunneled = tunneled.count();
    (between.len() - tunneled, tunneled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_requests_between_pods_are_told_by_how_they_are_carried() {
        let said = "\
12:00:00.1 IP 10.150.1.5 > 10.150.2.5: ICMP echo request, id 1, seq 1, length 64
12:00:00.2 IP 172.30.0.1.60000 > 172.30.0.2.6081: Geneve, Flags [C], vni 0x5, options [8 bytes]: IP 10.150.1.5 > 10.150.2.5: ICMP echo request, id 1, seq 2, length 64
12:00:00.3 IP 172.30.0.1.60000 > 172.30.0.2.6081: Geneve, Flags [C], vni 0x5, options [8 bytes]: IP 10.128.1.5 > 10.128.2.5: ICMP echo request, id 1, seq 2, length 64
12:00:00.4 IP 10.150.2.5 > 10.150.1.5: ICMP echo reply, id 1, seq 1, length 64
12:00:00.5 IP 172.30.0.1 > 10.150.2.5: ICMP echo request, id 1, seq 1, length 64
12:00:00.6 IP6 fd00::5 > fd01::5: ICMP6, echo request, id 1, seq 1, length 64
";
        let pods = ["10.150.1.5", "10.150.2.5", "fd00::5", "fd01::5"];
        let pods = pods.map(|pod| pod.parse().unwrap()).into();
        assert_eq!(counted(said, &pods), (2, 1));
    }
}
