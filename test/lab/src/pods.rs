//! The lab as CNI: one pod per node.
//!
//! In: a node's subnet from its annotation, and the product's switch in the node's
//! Northbound DB. Out: the pod's switch port row, its namespace and its interface.
//! The row comes first, as a CNI would do it; other rows are the product's.

use anyhow::{Context, Result, bail};
use ipnet::IpNet;

use crate::family::Family;
use crate::netns;
use crate::node::link::{batch, drop_ingress, no_ipv6, no_offload};
use crate::node::ovs::{nbctl, vsctl, wait_port};
use crate::state::{Lab, Node, Pod, PodAddress};
use crate::values::mac;

/// The node's end of the pod's interface.
const VETH: &str = "veth-pod";

/// Name of a node's pod in OVN: namespace and name.
pub(crate) fn port_name(node: &str) -> String {
    format!("default_pod-{node}")
}

/// Where a pod is attached, and under which names.
pub(crate) struct Place {
    /// Its logical switch.
    pub(crate) switch: String,
    /// Its switch port.
    pub(crate) port: String,
    /// The node's end of its interface.
    pub(crate) device: String,
    /// Its namespace.
    pub(crate) namespace: String,
    /// The file in the node's folder that remembers it.
    pub(crate) file: String,
}

/// What a pod gets.
pub(crate) struct Seat {
    /// Its addresses.
    pub(crate) pod: Pod,
    /// MTU of its interface, bytes.
    pub(crate) mtu: u32,
    /// `Logical_Switch_Port.options` of its port, `KEY=VALUE` each.
    pub(crate) options: Vec<String>,
    /// The outside host sees its own address, and needs a way back to it.
    pub(crate) is_routed: bool,
}

impl Seat {
    /// In these subnets of a node.
    pub(crate) fn of(lab: &Lab, subnets: &[IpNet]) -> Self {
        Self {
            pod: Pod::of(subnets),
            mtu: lab.outward.mtu(),
            options: Vec::new(),
            is_routed: !lab.outward.is_translated(),
        }
    }
}

/// MAC and addresses of a pod, as its port has them.
pub(crate) fn row(pod: &Pod) -> Result<String> {
    let first = pod.addresses.first().context("no subnet")?;
    Ok(format!("{} {}", mac(first.address), pod.shown()))
}

/// Has the product made the node's switch?
pub(crate) fn has_switch(lab: &Lab, node: &str) -> bool {
    has_switch_named(lab, node, node)
}

/// Has the product made a switch of this name on a node?
pub(crate) fn has_switch_named(lab: &Lab, node: &str, name: &str) -> bool {
    let found = nbctl(lab, node).args([
        "--bare",
        "--columns=name",
        "find",
        "logical_switch",
        &format!("name={name}"),
    ]);
    found.run().is_ok_and(|found| found.trim() == name)
}

/// Attaches the pod of a node.
pub(crate) fn attach(lab: &Lab, node: &Node, subnets: &[IpNet]) -> Result<()> {
    let place = Place {
        switch: node.name.clone(),
        port: port_name(&node.name),
        device: VETH.to_owned(),
        namespace: lab.pod_namespace(&node.name),
        file: "pod.json".to_owned(),
    };
    attach_at(lab, node, Seat::of(lab, subnets), &place).map(drop)
}

/// Attaches a pod of a node to a switch.
pub(crate) fn attach_at(lab: &Lab, node: &Node, seat: Seat, place: &Place) -> Result<Pod> {
    let Place {
        switch,
        port,
        device,
        namespace: inner,
        ..
    } = place;
    let pod = seat.pod;
    let first = pod.addresses.first().context("no subnet")?;
    let mac = mac(first.address);
    let row = row(&pod)?;
    nbctl(lab, &node.name)
        .args(["lsp-add", switch, port])
        .args(["--", "lsp-set-addresses", port, &row])
        .args(["--", "lsp-set-port-security", port, &row])
        .args(["--", "lsp-set-options", port])
        .args(&seat.options)
        .run()
        .with_context(|| format!("switch port of the pod on {}", node.name))?;
    let namespace = lab.namespace(&node.name);
    netns::add(inner, lab.values.has(Family::V6))?;
    let mtu = lab.outward.underlay_mtu;
    batch(
        &namespace,
        &format!(
            "link add {device} mtu {mtu} type veth peer name eth0 netns {inner} address {mac} mtu {mtu}"
        ),
    )?;
    no_ipv6(lab, &namespace, device)?;
    batch(&namespace, &format!("link set {device} up"))?;
    address(inner, &pod, seat.mtu)?;
    no_offload(&namespace, device)?;
    no_offload(inner, "eth0")?;
    drop_ingress(lab, &namespace, device)?;
    vsctl(lab, &node.name)
        .args([
            "add-port",
            "br-int",
            device,
            "--",
            "set",
            "interface",
            device,
        ])
        .args([format!("external-ids:iface-id={port}")])
        .run()?;
    if !wait_port(lab, &node.name, device) {
        bail!(
            "the pod's interface on {} got no port number from ovs-vswitchd",
            node.name
        );
    }
    if seat.is_routed {
        route_back(lab, node, &pod)?;
    }
    lab.save_pod(&node.name, &place.file, &pod)?;
    Ok(pod)
}

/// Gives a pod its addresses and its default routes.
fn address(namespace: &str, pod: &Pod, mtu: u32) -> Result<()> {
    let lines = pod.addresses.iter().map(|a| {
        let prefix = a.subnet.prefix_len();
        format!("addr add {}/{prefix} dev eth0\n", a.address)
    });
    let gateways = pod.addresses.iter().map(PodAddress::gateway);
    let routes = gateways.map(|gateway| format!("\nroute add default via {gateway}"));
    let (addresses, routes): (String, String) = (lines.collect(), routes.collect());
    batch(
        namespace,
        &format!("{addresses}link set eth0 mtu {mtu} up{routes}"),
    )
}

/// Where nothing is translated the physical network's administrator has routes to pods; to a subnet that all nodes have, over
/// the last of them.
fn route_back(lab: &Lab, node: &Node, pod: &Pod) -> Result<()> {
    for a in &pod.addresses {
        let via = lab.values.address_of(node.index, a.family())?;
        let route = format!("route replace {} via {via}", a.subnet);
        batch(&lab.namespace("outside"), &route)?;
    }
    Ok(())
}
