//! Networks of users that are routed in a VRF of their own, over links of their own: what an admin makes for them.
//!
//! In: a network of this kind, by its place among the lab's. Out: a link of each node that leads to no other network, enslaved to
//! the VRF as soon as the product has made it, and the objects by which the nodes speak BGP there and advertise the pods.
//! Invariant: addresses of the links may be the same as those of no other link; those of pods may be another such network's, too.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::UserNetwork;
use crate::node::link::{batch, no_offload};
use crate::run::{tool, until};
use crate::state::{Lab, Node};

/// Label of its FRRConfigurations; the value is the network.
const LABEL: &str = "lab/vrf";

/// The node's end of the link.
fn device(network: &UserNetwork) -> String {
    format!("up-{}", network.name)
}

/// Address of a node on the link of the network with this place.
fn address(lab: &Lab, network: &UserNetwork, node: &Node) -> Result<IpAddr> {
    let place = lab.networks.iter().position(|other| other == network);
    let place = u8::try_from(place.context("a network of the lab")?)?;
    Ok(Ipv4Addr::new(10, 230, place, u8::try_from(node.index)?).into())
}

/// Makes the link of each node, to a bridge of the underlay that leads nowhere else.
pub(super) fn connect(lab: &Lab, network: &UserNetwork) -> Result<()> {
    let underlay = lab.namespace("underlay");
    let (near, bridge) = (device(network), format!("br-{}", network.name));
    let made = format!(
        "link add {bridge} type bridge forward_delay 0
         link set {bridge} up"
    );
    batch(&underlay, &made)?;
    for node in &lab.nodes {
        let namespace = lab.namespace(&node.name);
        let far = format!("{}-{}", node.index, network.name);
        let own = address(lab, network, node)?;
        let link = format!(
            "link add {near} type veth peer name {far} netns {underlay}
             addr add {own}/24 dev {near}
             link set {near} up"
        );
        batch(&namespace, &link)?;
        batch(&underlay, &format!("link set {far} master {bridge} up"))?;
        no_offload(&namespace, &near)?;
        no_offload(&underlay, &far)?;
    }
    Ok(())
}

/// Enslaves a node's link to the VRF, when the product has made it; `false` where it has not in this time.
pub(super) fn enslave(lab: &Lab, network: &UserNetwork, node: &Node, wait: Duration) -> bool {
    let namespace = lab.namespace(&node.name);
    let words = format!("link set {} master {}", device(network), network.name);
    let done = until(wait, Duration::from_millis(200), || {
        tool("ip").words(&words).inside(&namespace).run().ok()
    });
    done.is_some()
}

/// An FRRConfiguration for each node, and the RouteAdvertisements.
pub(super) fn objects(lab: &Lab, network: &UserNetwork) -> Result<Vec<Value>> {
    let name = &network.name;
    let as_number = lab.values.as_number;
    let mut items = Vec::new();
    for node in &lab.nodes {
        let others = lab.nodes.iter().filter(|other| *other != node);
        let neighbors = others.map(|other| {
            let address = address(lab, network, other)?;
            Ok(
                json!({"address": address, "asn": as_number, "disableMP": true,
                "toReceive": {"allowed": {"mode": "all"}}}),
            )
        });
        let neighbors = neighbors.collect::<Result<Vec<Value>>>()?;
        items.push(json!({
            "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "FRRConfiguration",
            "metadata": {"name": format!("{name}-{}", node.name), "namespace": "frr-k8s-system", "labels": {LABEL: name}},
            "spec": {
                "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": node.name}},
                "bgp": {"routers": [{"asn": as_number, "vrf": name, "neighbors": neighbors}]},
            },
        }));
    }
    items.push(json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "RouteAdvertisements",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {}, "targetVRF": "auto",
            "frrConfigurationSelector": {"matchLabels": {LABEL: name}},
            "networkSelectors": [{
                "networkSelectionType": "ClusterUserDefinedNetworks",
                "clusterUserDefinedNetworkSelector":
                    {"networkSelector": {"matchLabels": {"advertised": name}}},
            }],
            "advertisements": ["PodNetwork"],
        },
    }));
    Ok(items)
}
