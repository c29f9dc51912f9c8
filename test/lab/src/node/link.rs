//! Namespaces and links of the underlay, the outside host and the nodes.
//!
//! In: values. Out: interfaces with addresses, kernel settings, offloads off, and the
//! packet filter that the userspace datapath needs. The kernel's own copy of what
//! arrives on a port of OVS is dropped, or it would answer everything a second time.

use anyhow::Result;

use crate::family::Family;
use crate::netns;
use crate::run::tool;
use crate::state::{Lab, Node};
use crate::values::{Values, mac};

/// Interface of a node that leads to the underlay; a port of br-ex.
pub(crate) const UPLINK: &str = "eth0";
/// The underlay's bridge.
pub(crate) const BRIDGE: &str = "br0";

/// Makes the underlay and the outside host.
pub(crate) fn up_underlay(lab: &Lab) -> Result<()> {
    let (underlay, outside) = (lab.namespace("underlay"), lab.namespace("outside"));
    let ipv6 = lab.values.has(Family::V6);
    netns::add(&underlay, ipv6)?;
    netns::add(&outside, ipv6)?;
    let api = addresses(lab, Values::API, BRIDGE);
    let mtu = lab.outward.underlay_mtu;
    // Else it is the lowest of its ports', and with each node that comes or goes nobody may find the API server for a while.
    let mac = mac(lab.values.api_address());
    batch(
        &underlay,
        &format!(
            "link add {BRIDGE} address {mac} type bridge forward_delay 0
             {api}link set {BRIDGE} up
             link add up0 mtu {mtu} type veth peer name {UPLINK} netns {outside} mtu {mtu}
             link set up0 master {BRIDGE} up"
        ),
    )?;
    let own = addresses(lab, Values::OUTSIDE, UPLINK);
    batch(&outside, &format!("{own}link set {UPLINK} up"))?;
    no_offload(&underlay, "up0")?;
    no_offload(&outside, UPLINK)?;
    if lab.networks.is_empty() {
        return Ok(());
    }
    // The VRFs of networks of users know no way but the default one, also to hosts of the link.
    let settings = [
        "net.ipv4.ip_forward=1",
        "net.ipv4.conf.all.send_redirects=0",
        "net.ipv4.conf.eth0.send_redirects=0",
    ];
    let forwarding = ipv6.then_some("net.ipv6.conf.all.forwarding=1");
    tool("sysctl")
        .args(["-qw"])
        .args(settings.into_iter().chain(forwarding))
        .inside(&outside)
        .run()
        .map(drop)
}

/// Lines for `ip` that give a device the addresses of the host with this index.
fn addresses(lab: &Lab, index: u32, device: &str) -> String {
    let all = lab.values.interface_addresses(index).into_iter();
    all.map(|address| format!("addr add {address} dev {device}\n"))
        .collect()
}

/// Makes a node's namespace, its kernel settings and its uplink.
pub(super) fn up(lab: &Lab, node: &Node) -> Result<()> {
    let (namespace, underlay) = (lab.namespace(&node.name), lab.namespace("underlay"));
    let ipv6 = lab.values.has(Family::V6);
    netns::add(&namespace, ipv6)?;
    // The product's SNAT takes its source ports from 32768 upwards.
    let settings = [
        "net.ipv4.ip_forward=1",
        "net.ipv4.conf.all.rp_filter=2",
        "net.ipv4.conf.default.rp_filter=2",
        "net.ipv4.ip_local_port_range=10000 29999",
    ];
    let forwarding = ipv6.then_some("net.ipv6.conf.all.forwarding=1");
    tool("sysctl")
        .args(["-qw"])
        .args(settings.into_iter().chain(forwarding))
        .inside(&namespace)
        .run()?;
    if !lab.networks.is_empty() {
        // What a VRF's pods send to the node is for whoever listens there.
        tool("sysctl")
            .words("-qw net.ipv4.tcp_l3mdev_accept=1 net.ipv4.udp_l3mdev_accept=1")
            .inside(&namespace)
            .run()?;
    }
    let (far, mtu) = (underlay_port(node), lab.outward.underlay_mtu);
    batch(
        &namespace,
        &format!(
            "link add {UPLINK} mtu {mtu} type veth peer name {far} netns {underlay} mtu {mtu}"
        ),
    )?;
    batch(&underlay, &format!("link set {far} master {BRIDGE} up"))?;
    let mac = mac(lab.address(node));
    no_ipv6(lab, &namespace, UPLINK)?;
    batch(&namespace, &format!("link set {UPLINK} address {mac} up"))?;
    no_offload(&namespace, UPLINK)?;
    no_offload(&underlay, &far)?;
    tool("nft")
        .args(["add table netdev lab"])
        .inside(&namespace)
        .run()?;
    drop_ingress(lab, &namespace, UPLINK)
}

/// Makes the namespace of a router and its link to the underlay.
pub(crate) fn up_router(lab: &Lab, router: &Node) -> Result<()> {
    let (namespace, underlay) = (lab.namespace(&router.name), lab.namespace("underlay"));
    netns::add(&namespace, lab.values.has(Family::V6))?;
    let (far, mac) = (underlay_port(router), mac(lab.address(router)));
    let mtu = lab.outward.underlay_mtu;
    let own = addresses(lab, router.index, UPLINK);
    batch(
        &namespace,
        &format!(
            "link add {UPLINK} mtu {mtu} type veth peer name {far} netns {underlay} mtu {mtu}
             {own}link set {UPLINK} address {mac} up"
        ),
    )?;
    batch(&underlay, &format!("link set {far} master {BRIDGE} up"))?;
    no_offload(&namespace, UPLINK)?;
    no_offload(&underlay, &far)?;
    let settings = [
        "net.ipv4.ip_forward=1",
        "net.ipv4.conf.all.rp_filter=0",
        "net.ipv4.conf.default.rp_filter=0",
        "net.ipv4.conf.eth0.rp_filter=0",
        // All are on one link: hosts are not to be told a shorter way.
        "net.ipv4.conf.all.send_redirects=0",
        "net.ipv4.conf.eth0.send_redirects=0",
    ];
    tool("sysctl")
        .args(["-qw"])
        .args(settings)
        .inside(&namespace)
        .run()
        .map(drop)
}

/// Gives br-ex the node's addresses; with routing by an administrator and with OVN-Kubernetes the node has a default router, the
/// outside host, too: what nodes do with packets that nobody has a route for is theirs then.
pub(super) fn address(lab: &Lab, node: &Node) -> Result<()> {
    let own = addresses(lab, node.index, "br-ex");
    let outside = lab.values.outside_addresses().into_iter();
    let routes: String = outside
        .filter(|_| !lab.outward.is_managed() || lab.ovn_kubernetes.is_some())
        .map(|via| format!("\nroute add default via {via} dev br-ex"))
        .collect();
    batch(
        &lab.namespace(&node.name),
        &format!("{own}link set br-ex up{routes}"),
    )
}

/// A port of OVS has no addresses of its own.
pub(crate) fn no_ipv6(lab: &Lab, namespace: &str, device: &str) -> Result<()> {
    if !lab.values.has(Family::V6) {
        return Ok(());
    }
    let words = format!("-qw net.ipv6.conf.{device}.disable_ipv6=1");
    tool("sysctl")
        .words(&words)
        .inside(namespace)
        .run()
        .map(drop)
}

/// Cuts a node's uplink so that nobody notices by itself: its port leaves the underlay's
/// bridge, and no carrier goes.
pub(crate) fn detach_port(lab: &Lab, node: &Node) -> Result<()> {
    let port = underlay_port(node);
    batch(
        &lab.namespace("underlay"),
        &format!("link set {port} nomaster"),
    )
}

/// Mends it.
pub(crate) fn attach_port(lab: &Lab, node: &Node) -> Result<()> {
    let port = underlay_port(node);
    batch(
        &lab.namespace("underlay"),
        &format!("link set {port} master {BRIDGE}"),
    )
}

/// The underlay's end of a node's uplink.
pub(crate) fn underlay_port(node: &Node) -> String {
    format!("up{}", node.index)
}

/// The kernel must not see what arrives on a port of OVS; the hook is behind the one
/// where the userspace datapath reads. The kernel's datapath takes packets itself.
pub(crate) fn drop_ingress(lab: &Lab, namespace: &str, device: &str) -> Result<()> {
    if lab.outward.by_kernel() {
        return Ok(());
    }
    let rule = format!(
        "add chain netdev lab in-{device} {{ type filter hook ingress device \"{device}\" priority 0; policy drop; }}"
    );
    tool("nft").args([rule]).inside(namespace).run().map(drop)
}

/// OVS reads raw packets: checksums must be finished and segments must be cut.
pub(crate) fn no_offload(namespace: &str, device: &str) -> Result<()> {
    let words = format!("-K {device} tx off rx off tso off gso off gro off");
    tool("ethtool")
        .words(&words)
        .inside(namespace)
        .run()
        .map(drop)
}

/// Several `ip` commands in one namespace, the first that fails ends it.
pub(crate) fn batch(namespace: &str, lines: &str) -> Result<()> {
    let lines: Vec<&str> = lines.lines().map(str::trim).collect();
    tool("ip")
        .args(["-n", namespace, "-batch", "-"])
        .input(lines.join("\n") + "\n")
        .run()
        .map(drop)
}
