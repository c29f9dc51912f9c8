//! Flows of the external bridge, by which host and gateway routers share one address and MAC.
//! In: a snapshot; of it ports, MAC and addresses of the bridge, and the networks behind it. Out: the whole table, to be put in as one bundle.
//! Invariant: no NORMAL action and no learning (but in [`plain_stage`], which serves no pods), so nothing can flap between host and OVN; what OVN sends from any other
//! source than a node address or a local pod is dropped.
//! Not here: VLANs, a second uplink, services.
//!
//! ```text
//!            uplink P
//!   arp, host |  | 300 local pods (no conntrack)   50 node address -> ct, table 1: whose connection?
//!    LOCAL H -+  +- T patch port of a network         ct_mark of a network -> T, else -> H
//! ```
//! A flow's text is in the spelling of `ovs-ofctl -O OpenFlow15 dump-flows`, so that both can be compared.

mod services;

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::address::{Family, Mac, Prefix};
use model::gateway::GatewayMode;
use model::names::NetworkName;
use model::ovs::{Flow, PortFact, patch_port};

use crate::snapshot::{NetworkView, Snapshot};

pub use services::ServiceInput;

/// Conntrack zone of the node address (OVN-Kubernetes: 64000).
const ZONE: u16 = 64000;
/// `ct_mark` of the host's connections (OVN-Kubernetes: 2).
const HOST_MARK: u32 = 2;
/// UDP port of Geneve (RFC 8926).
const GENEVE: u16 = 6081;
const ANY_GROUP: &str = "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00";

/// A network behind the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeNetwork {
    /// Network id, 0 for the default network; gives the `ct_mark`.
    pub network_id: u16,
    /// Port number of the network's patch port; numbers only, its name is too long for a flow.
    pub patch: u32,
    /// The node's own pod subnets.
    pub pod_subnets: Vec<Prefix>,
    /// With which its gateway router translates, for the bridge to make the node's of; none of the default network, whose
    /// gateway router has the node's.
    pub masquerade: Vec<IpAddr>,
    /// With which its cluster router translates what its pods send to the host; none of the default network.
    pub management: Vec<IpAddr>,
    /// Its subnets on all nodes, where it is advertised.
    pub advertised: Vec<Prefix>,
    /// It has no overlay.
    pub no_overlay: bool,
}

/// What the flows are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeInput {
    /// Port number of the uplink.
    pub uplink: u32,
    /// The networks whose patch port is there.
    pub networks: Vec<BridgeNetwork>,
    /// Patch ports of networks that are not known yet: they hear what everybody hears.
    pub unknown: Vec<u32>,
    /// Every network that may be declared is known.
    pub is_complete: bool,
    /// MAC of the bridge.
    pub mac: Mac,
    /// The node's addresses that host and gateway routers share.
    pub addresses: Vec<IpAddr>,
    /// Who forwards.
    pub mode: GatewayMode,
    /// A network has an overlay.
    pub tunnels: bool,
    /// How networks of users reach Services, by family; none while the node has no network of users.
    pub services: Vec<ServiceInput>,
}

/// What the bridge's flow table has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowTable {
    /// The uplink is not known: whatever stands is left as it is.
    Unknown {
        /// Why; one sentence.
        why: String,
    },
    /// Several ports could be the uplink: flows that serve one of them stay, and where there are none the bridge forwards for
    /// the host alone.
    SeveralUplinks {
        /// Their numbers.
        ports: Vec<u32>,
        /// [`plain_stage`].
        flows: Vec<Flow>,
        /// One sentence.
        why: String,
    },
    /// No network is known yet: [`host_stage`], where nothing that stands serves the uplink.
    Host {
        /// The uplink's number.
        uplink: u32,
        /// The flows.
        flows: Vec<Flow>,
    },
    /// The whole table.
    Full {
        /// The uplink's number.
        uplink: u32,
        /// The flows.
        flows: Vec<Flow>,
        /// False: there are networks that are not known yet, so what stands for them stays.
        complete: bool,
    },
}

/// The flow table of a snapshot. MAC and addresses are those that the host has now: an uplink that was exchanged brings another
/// MAC, and the host must be reached by it.
#[must_use]
pub fn plan(snapshot: &Snapshot) -> FlowTable {
    let machine = &snapshot.machine;
    let ports = machine.ports.as_ref().map(|ports| ports.ports.as_slice());
    let ports = ports.unwrap_or_default();
    let uplink = match uplink(&machine.bridge, ports) {
        Ok(uplink) => uplink,
        Err(NoUplink::Waiting(why)) => return FlowTable::Unknown { why },
        Err(NoUplink::Several { ports, why }) => {
            let flows = plain_stage(&ports);
            return FlowTable::SeveralUplinks { ports, flows, why };
        }
    };
    let patch = |name: &NetworkName| {
        let patch = patch_port(&machine.bridge, name, &machine.name);
        ports.iter().find(|port| port.name == patch)?.ofport
    };
    let mut networks: Vec<BridgeNetwork> = snapshot
        .here()
        .filter_map(|(name, view)| {
            Some(BridgeNetwork {
                network_id: view.share.network.id,
                patch: patch(name)?,
                pod_subnets: over_uplink(view),
                masquerade: view.gateway_masquerade(),
                management: view.management_masquerade(),
                advertised: advertised(view),
                no_overlay: view.no_overlay().is_some(),
            })
        })
        .collect();
    // One uplink: what arrives for a subnet can be one network's only, that of the smallest id (`check` says so).
    networks.sort_by_key(|network| network.network_id);
    let mut taken: BTreeSet<Prefix> = BTreeSet::new();
    for network in &mut networks {
        network.pod_subnets.retain(|subnet| taken.insert(*subnet));
    }
    let unknown = snapshot.unknown().filter_map(|(name, _)| patch(name));
    match &machine.gateway {
        Some(gateway) if !networks.is_empty() => FlowTable::Full {
            uplink,
            flows: full(&BridgeInput {
                uplink,
                networks,
                unknown: unknown.collect(),
                is_complete: !snapshot.unlisted && snapshot.unknown().next().is_none(),
                mac: gateway.mac,
                addresses: gateway.addresses.iter().map(|a| a.ip).collect(),
                mode: machine.mode,
                tunnels: snapshot.here().any(|(_, view)| view.is_overlay()),
                services: snapshot
                    .node
                    .as_ref()
                    .map_or_else(Vec::new, services::input),
            }),
            complete: snapshot.unknown().next().is_none(),
        },
        Some(_) | None => FlowTable::Host {
            uplink,
            flows: host_stage(uplink),
        },
    }
}

/// The node's subnets of a network whose pods are reached over the bridge: where nobody outside knows them there are none, and one that is advertised into its own VRF alone is
/// reached over that VRF's interfaces, and others may have the same subnets here.
pub(crate) fn over_uplink(view: NetworkView<'_>) -> Vec<Prefix> {
    let advertised = view.share.network.advertised;
    let elsewhere = advertised.own_vrf && !advertised.default_vrf;
    let subnets = view.share.host_subnets.iter().copied();
    subnets
        .filter(|_| view.is_advertised() && !elsewhere)
        .collect()
}

/// All subnets of a network that is advertised.
fn advertised(view: NetworkView<'_>) -> Vec<Prefix> {
    let subnets = view.share.network.prefixes();
    subnets.filter(|_| view.is_advertised()).collect()
}

/// Why there is no uplink.
#[derive(Debug, PartialEq, Eq)]
enum NoUplink {
    /// It is not there yet.
    Waiting(String),
    /// Several ports could be it.
    Several { ports: Vec<u32>, why: String },
}

/// The one port that is neither the bridge itself, nor internal, nor a patch. With several it cannot be known which of
/// them leads to the physical network.
fn uplink(bridge: &str, ports: &[PortFact]) -> Result<u32, NoUplink> {
    let inside = |p: &PortFact| p.name == bridge || p.kind == "internal" || p.kind == "patch";
    let outside: Vec<&PortFact> = ports.iter().filter(|p| !inside(p)).collect();
    match outside.as_slice() {
        [] => Err(NoUplink::Waiting(format!(
            "bridge {bridge} has no port to the physical network yet"
        ))),
        [port] => port.ofport.ok_or_else(|| {
            let why = format!("port {} of bridge {bridge} has no number yet", port.name);
            NoUplink::Waiting(why)
        }),
        several => {
            let names: Vec<&str> = several.iter().map(|p| p.name.as_str()).collect();
            let why = format!(
                "bridge {bridge} has several ports to the outside ({}); exactly one is allowed: flows that serve one of them stay as they are, without any the bridge forwards for the host alone",
                names.join(", ")
            );
            let ports = several.iter().filter_map(|p| p.ofport).collect();
            Err(NoUplink::Several { ports, why })
        }
    }
}

/// The first stage, from the uplink's number alone: everything goes between host and uplink.
/// BGP and the API server are reached by it before OVN is there.
#[must_use]
pub fn host_stage(uplink_port: u32) -> Vec<Flow> {
    let mut flows = vec![
        Flow::new(0, 10, format!("in_port={uplink_port}"), "LOCAL"),
        Flow::new(0, 10, "in_port=LOCAL", output(uplink_port)),
    ];
    flows.sort();
    flows
}

/// The first stage where several ports lead out of the node and nobody can tell which is the one: the switch forwards as
/// if it had no flows at all, so that the host is not cut off. What comes from a patch port is dropped: no pods.
#[must_use]
pub fn plain_stage(ports: &[u32]) -> Vec<Flow> {
    let from = |port: String| Flow::new(0, 10, format!("in_port={port}"), "NORMAL");
    let mut flows: Vec<Flow> = ports.iter().map(|port| from(port.to_string())).collect();
    flows.push(from("LOCAL".to_owned()));
    flows.sort();
    flows
}

/// The whole table, sorted.
#[must_use]
pub fn full(input: &BridgeInput) -> Vec<Flow> {
    let uplink = input.uplink;
    let mac = input.mac;
    let mut flows = vec![
        // The rest for our MAC is the host's, and so is what goes to everybody.
        Flow::new(0, 10, format!("in_port={uplink},dl_dst={mac}"), "LOCAL"),
        Flow::new(0, 5, format!("in_port={uplink},{ANY_GROUP}"), "LOCAL"),
        Flow::new(0, 10, "in_port=LOCAL", output(uplink)),
        // Of the node address's traffic, what is no network's is the host's; sessions picked up after a restart too.
        Flow::new(1, 0, "", "LOCAL"),
    ];
    for address in &input.addresses {
        flows.extend(host_address(input, *address));
        if input.tunnels {
            flows.extend(tunnels(input, Family::of(*address)));
        }
    }
    for network in &input.networks {
        flows.extend(patch(input, network));
        for subnet in &network.pod_subnets {
            flows.extend(pods(input, network, *subnet));
        }
        for address in &input.addresses {
            flows.extend(gateway_address(input, network, *address));
        }
    }
    flows.extend(services::flows(input));
    flows.sort();
    flows.dedup();
    flows
}

/// Tunnels of the host, without conntrack.
fn tunnels(input: &BridgeInput, family: Family) -> [Flow; 2] {
    let BridgeInput { uplink, mac, .. } = input;
    let udp = match family {
        Family::V4 => "udp",
        Family::V6 => "udp6",
    };
    let own = format!("{udp},in_port={uplink},dl_dst={mac},tp_dst={GENEVE}");
    let others = format!("{udp},in_port=LOCAL,tp_dst={GENEVE}");
    [
        Flow::new(0, 205, own, "LOCAL"),
        Flow::new(0, 200, others, output(*uplink)),
    ]
}

/// The host's share of an address.
fn host_address(input: &BridgeInput, address: IpAddr) -> Vec<Flow> {
    let BridgeInput { uplink, mac, .. } = input;
    let (ip, source, destination) = words(Family::of(address));
    // What was translated here goes back as it came; networks that are not known yet may rely on it.
    let translates = input.networks.iter().any(|n| !n.masquerade.is_empty());
    let back = if translates || !input.unknown.is_empty() {
        ",nat"
    } else {
        ""
    };
    let everybody = std::iter::once("LOCAL".to_owned())
        .chain(input.networks.iter().map(|network| output(network.patch)))
        .chain(input.unknown.iter().map(|patch| output(*patch)))
        .collect::<Vec<_>>()
        .join(",");
    let mut flows = vec![
        Flow::new(
            0,
            100,
            format!("{ip},in_port=LOCAL,{source}={address}"),
            format!("{},{}", commit(HOST_MARK), output(*uplink)),
        ),
        Flow::new(
            0,
            50,
            format!("{ip},in_port={uplink},dl_dst={mac},{destination}={address}"),
            format!("ct(table=1,zone={ZONE}{back})"),
        ),
        Flow::new(
            1,
            50,
            format!("ct_state=+new+trk,{ip}"),
            format!("{},LOCAL", commit(HOST_MARK)),
        ),
    ];
    // The kernel answers for the address, once; answers of others feed host and gateway routers alike.
    match address {
        IpAddr::V4(_) => flows.extend([
            Flow::new(
                0,
                30,
                format!("arp,in_port={uplink},arp_tpa={address},arp_op=1"),
                "LOCAL",
            ),
            Flow::new(0, 20, format!("arp,in_port={uplink}"), everybody),
        ]),
        // Neighbor discovery is IP, so its rows have to beat those for the address.
        IpAddr::V6(_) => flows.extend([
            Flow::new(
                0,
                130,
                format!("icmp6,in_port={uplink},icmp_type=135,icmp_code=0,nd_target={address}"),
                "LOCAL",
            ),
            Flow::new(
                0,
                120,
                format!("icmp6,in_port={uplink},icmp_type=136"),
                everybody,
            ),
        ]),
    }
    flows
}

/// A network's rows that no address is part of.
fn patch(input: &BridgeInput, network: &BridgeNetwork) -> Vec<Flow> {
    let patch = network.patch;
    let mark = mark(network.network_id);
    let mut flows = vec![
        // Nothing else leaves OVN: wrong sources, join addresses.
        Flow::new(0, 9, format!("in_port={patch}"), "drop"),
    ];
    for state in ["+est+trk", "+rel+trk"] {
        flows.push(Flow::new(
            1,
            100,
            format!("ct_state={state},ct_mark={mark:#x}"),
            output(patch),
        ));
    }
    if input.addresses.iter().any(IpAddr::is_ipv6) {
        flows.push(Flow::new(
            0,
            120,
            format!("icmp6,in_port={patch},dl_src={},icmp_type=135", input.mac),
            output(input.uplink),
        ));
    }
    flows
}

/// Pods of the node with their own addresses, without conntrack.
fn pods(input: &BridgeInput, network: &BridgeNetwork, subnet: Prefix) -> [Flow; 2] {
    let BridgeInput { uplink, mac, .. } = input;
    let (ip, source, destination) = words(subnet.family());
    let (inward, to, from) = match input.mode {
        GatewayMode::Shared => (
            format!("{ip},in_port={uplink},dl_dst={mac},{destination}={subnet}"),
            output(network.patch),
            network.patch.to_string(),
        ),
        GatewayMode::Local => (
            format!("{ip},in_port={uplink},{destination}={subnet}"),
            "LOCAL".to_owned(),
            "LOCAL".to_owned(),
        ),
    };
    [
        Flow::new(0, 300, inward, to),
        Flow::new(
            0,
            104,
            format!("{ip},in_port={from},dl_src={mac},{source}={subnet}"),
            output(*uplink),
        ),
    ]
}

/// A network's share of an address: what its gateway router translated, and its neighbor requests.
fn gateway_address(input: &BridgeInput, network: &BridgeNetwork, address: IpAddr) -> Vec<Flow> {
    let BridgeInput { uplink, mac, .. } = input;
    let patch = network.patch;
    let (ip, source, _) = words(Family::of(address));
    let mark = mark(network.network_id);
    let own = |address: &IpAddr| format!("{ip},in_port={patch},dl_src={mac},{source}={address}");
    let mut flows = if network.network_id == 0 {
        let actions = format!("{},{}", commit(mark), output(*uplink));
        vec![Flow::new(0, 100, own(&address), actions)]
    } else {
        // Several gateway routers share the address: a port that two of them chose must not be one connection.
        let actions = format!("{},{}", translate(mark, &address), output(*uplink));
        let masquerade = network.masquerade.iter();
        let masquerade = masquerade.filter(|ip| Family::of(**ip) == Family::of(address));
        let first = |ip: &IpAddr| {
            let mut same = input.addresses.iter();
            same.find(|other| Family::of(**other) == Family::of(*ip)) == Some(&address)
        };
        let translated = masquerade
            .filter(|ip| first(ip))
            .map(|ip| Flow::new(0, 100, own(ip), actions.clone()));
        let own = Flow::new(0, 99, own(&address), actions.clone());
        translated.chain([own]).collect()
    };
    if address.is_ipv4() {
        // Not to the host, which would see its own address in use.
        flows.push(Flow::new(
            0,
            20,
            format!("arp,in_port={patch},dl_src={mac},arp_spa={address}"),
            output(*uplink),
        ));
    }
    flows
}

fn output(port: u32) -> String {
    format!("output:{port}")
}

fn commit(mark: u32) -> String {
    format!("ct(commit,zone={ZONE},exec(set_field:{mark:#x}->ct_mark))")
}

/// The same, with the node's address as source, and a port that nobody has there.
fn translate(mark: u32, address: &IpAddr) -> String {
    format!("ct(commit,zone={ZONE},nat(src={address}),exec(set_field:{mark:#x}->ct_mark))")
}

/// `ct_mark` of a network's connections (OVN-Kubernetes: 1 for the default network, else 3 + id).
fn mark(network_id: u16) -> u32 {
    match network_id {
        0 => 1,
        id => 3 + u32::from(id),
    }
}

/// Protocol, source and destination in the words of ovs-fields(7).
fn words(family: Family) -> (&'static str, &'static str, &'static str) {
    match family {
        Family::V4 => ("ip", "nw_src", "nw_dst"),
        Family::V6 => ("ipv6", "ipv6_src", "ipv6_dst"),
    }
}

#[cfg(test)]
mod tests;
