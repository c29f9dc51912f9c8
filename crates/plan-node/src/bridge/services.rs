//! Flows by which the host, networks of users and the default network's gateway router meet for Services.
//! In: what the other flows are made of. Out: flows of tables 0 and 2 to 5. Invariant: nothing while the node has no network of
//! users; a network of users reaches only Services that it may use, and nothing of the range leaves by the uplink.
//! Not here: which Services a load balancer knows.
//!
//! ```text
//!  host H: range of Services             500  from .2 -> table 2        (550: masquerade and pods' addresses as they are)
//!  H: .1, or a network's gateway router  500  back to what it was -> table 5 -> table 2
//!  T: from Services, to masquerade       500  back to what it was -> table 3
//!  T: from the node, to .2               500  to the node -> table 4, from .1 -> table 3
//!
//!  table 2  whose gateway router: allowed Services: the default network's; by mark: that network's; other networks: none
//!  table 3  to the host;  4  from whom;  5  to whom it was translated
//! ```
//! Forms: OVN-Kubernetes `go-controller/pkg/node/bridgeconfig/bridgeflows.go`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::address::{Family, Prefix};
use model::gateway::GatewayMode;
use model::ovs::Flow;

use super::{BridgeInput, BridgeNetwork, mark, output, words};
use crate::kernel;
use crate::snapshot::{NodeView, Reserved};

/// Conntrack zone of what the host sends to OVN (OVN-Kubernetes: 64001).
const HOST_ZONE: u16 = 64001;
/// Conntrack zone of what OVN sends to the host (OVN-Kubernetes: 64002).
const OVN_ZONE: u16 = 64002;

/// What the flows are made of beside the networks; one for each family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceInput {
    /// Ranges of Services.
    pub ranges: Vec<Prefix>,
    /// The masquerade subnet.
    pub masquerade: Prefix,
    /// Its reserved addresses of OVN and of the host.
    pub ovn: IpAddr,
    /// The host's.
    pub host: IpAddr,
    /// The node's address.
    pub node: IpAddr,
    /// Services that networks of users may use.
    pub allowed: BTreeSet<IpAddr>,
}

/// What the flows are made of.
pub(super) fn input(node: &NodeView) -> Vec<ServiceInput> {
    let Some(services) = &node.services else {
        return Vec::new();
    };
    let of = |family| {
        let ranges = node.service_cidrs.iter().copied();
        Some(ServiceInput {
            ranges: ranges.filter(|range| range.family() == family).collect(),
            masquerade: node.masquerade_subnet(family)?,
            ovn: node.reserved(Reserved::Ovn, family)?.ip,
            host: node.reserved(Reserved::Host, family)?.ip,
            node: node.gateway.address(family)?,
            allowed: services.addresses(family).collect(),
        })
    };
    Family::ALL.into_iter().filter_map(of).collect()
}

/// The flows of all families.
pub(super) fn flows(input: &BridgeInput) -> Vec<Flow> {
    let mut flows = Vec::new();
    let default = input.networks.iter().find(|n| n.network_id == 0);
    for services in &input.services {
        let maker = Maker { input, services };
        maker.host(&mut flows);
        for network in &input.networks {
            maker.patch(network, &mut flows);
            if network.network_id > 0 {
                maker.network_of_users(network, &mut flows);
            }
        }
        if let Some(default) = default {
            maker.default_network(default, &mut flows);
        }
    }
    if !input.services.is_empty() {
        let mac = input.mac;
        // The two are at one address of the link: what the one sends bears the other's as its source.
        let to_host =
            format!("move:NXM_OF_ETH_DST[]->NXM_OF_ETH_SRC[],set_field:{mac}->eth_dst,LOCAL");
        flows.push(Flow::new(3, 0, "", to_host));
        if let Some(default) = default {
            let from = |services: &ServiceInput| {
                let (ip, source, _) = words(services.masquerade.family());
                format!("{ip},{source}={}", services.host)
            };
            // Whoever comes by, but where a network is not known yet: nothing keeps it from Services that are not for it.
            let who: Vec<String> = match input.is_complete {
                true => vec![String::new()],
                false => input.services.iter().map(from).collect(),
            };
            flows.extend(
                who.into_iter()
                    .map(|who| Flow::new(2, 100, who, to_patch(input, default))),
            );
        }
    }
    flows
}

fn to_patch(input: &BridgeInput, network: &BridgeNetwork) -> String {
    format!("set_field:{}->eth_dst,{}", input.mac, output(network.patch))
}

struct Maker<'a> {
    input: &'a BridgeInput,
    services: &'a ServiceInput,
}

impl Maker<'_> {
    fn words(&self) -> (&'static str, &'static str, &'static str) {
        words(self.family())
    }

    fn family(&self) -> Family {
        self.services.masquerade.family()
    }

    fn host(&self, flows: &mut Vec<Flow>) {
        let (ip, source, destination) = self.words();
        let ServiceInput {
            masquerade,
            ovn,
            host,
            ..
        } = self.services;
        for range in &self.services.ranges {
            let to = format!("{destination}={range}");
            let as_it_is = format!("{ip},in_port=LOCAL,{source}={masquerade},{to}");
            let commit = format!("ct(commit,table=2,zone={HOST_ZONE})");
            flows.push(Flow::new(0, 550, as_it_is, commit));
            let from_host = format!("ct(commit,table=2,zone={HOST_ZONE},nat(src={host}))");
            flows.push(Flow::new(
                0,
                500,
                format!("{ip},in_port=LOCAL,{to}"),
                from_host,
            ));
        }
        let back = format!("ct(table=5,zone={OVN_ZONE},nat)");
        let to_ovn = format!("{ip},in_port=LOCAL,{destination}={ovn}");
        flows.push(Flow::new(0, 500, to_ovn, back));
        let from_ovn = format!("ct(commit,table=3,zone={OVN_ZONE},nat(src={ovn}))");
        flows.push(Flow::new(4, 0, ip, from_ovn));
        let to_ovn = format!("ct(commit,table=2,zone={HOST_ZONE},nat)");
        flows.push(Flow::new(5, 0, ip, to_ovn));
    }

    /// Of each gateway router's patch port.
    fn patch(&self, network: &BridgeNetwork, flows: &mut Vec<Flow>) {
        let (ip, source, destination) = self.words();
        let patch = network.patch;
        let ServiceInput {
            masquerade,
            host,
            node,
            ..
        } = self.services;
        for range in &self.services.ranges {
            let answer =
                format!("{ip},in_port={patch},{source}={range},{destination}={masquerade}");
            let back = format!("ct(table=3,zone={HOST_ZONE},nat)");
            flows.push(Flow::new(0, 500, answer, back));
            // No load balancer knew it.
            let lost = format!("{ip},in_port={patch},{destination}={range}");
            flows.push(Flow::new(0, 115, lost, "drop"));
        }
        let to_host = format!("{ip},in_port={patch},{source}={node},{destination}={host}");
        let commit = format!("ct(commit,table=4,zone={HOST_ZONE},nat(dst={node}))");
        flows.push(Flow::new(0, 500, to_host, commit));
        if self.input.mode == GatewayMode::Local {
            // Who forwards is the kernel, also for what a load balancer sent here.
            for protocol in ["tcp", "udp", "sctp"] {
                let protocol = match self.family() {
                    Family::V4 => protocol.to_owned(),
                    Family::V6 => format!("{protocol}6"),
                };
                let out = format!("{protocol},in_port={patch},{source}={node}");
                let to_kernel = format!("ct(table=4,zone={HOST_ZONE})");
                flows.push(Flow::new(0, 175, out, to_kernel));
            }
        }
    }

    fn default_network(&self, network: &BridgeNetwork, flows: &mut Vec<Flow>) {
        let (ip, source, destination) = self.words();
        for address in &self.services.allowed {
            let to = format!("{ip},{destination}={address}");
            flows.push(Flow::new(2, 300, to, to_patch(self.input, network)));
            let patch = network.patch;
            let answer = format!("{ip},in_port={patch},{source}={address}");
            let back = format!("ct(table=3,zone={HOST_ZONE},nat)");
            flows.push(Flow::new(0, 490, answer, back));
        }
    }

    fn network_of_users(&self, network: &BridgeNetwork, flows: &mut Vec<Flow>) {
        let (ip, source, destination) = self.words();
        let family = self.family();
        let subnets = || network.advertised.iter().filter(|s| s.family() == family);
        let no_others =
            |who: &dyn std::fmt::Display| Flow::new(2, 200, format!("{ip},{source}={who}"), "drop");
        let addresses = network
            .management
            .iter()
            .filter(|a| Family::of(**a) == family);
        flows.extend(addresses.map(|address| no_others(address)));
        for subnet in subnets() {
            flows.push(no_others(subnet));
            for range in &self.services.ranges {
                let own = format!("{ip},in_port=LOCAL,{source}={subnet},{destination}={range}");
                let commit = format!("ct(commit,table=2,zone={HOST_ZONE})");
                flows.push(Flow::new(0, 550, own, commit));
            }
        }
        let packet_mark = kernel::mark(network.network_id);
        let marked = format!("pkt_mark={packet_mark:#x},{ip}");
        flows.push(Flow::new(2, 250, marked, to_patch(self.input, network)));
        if self.input.mode == GatewayMode::Local && network.no_overlay {
            self.by_kernel(network, flows);
        }
    }

    /// Pods on other nodes, which a load balancer of the network chose: the kernel knows the way, and brings the answer back.
    fn by_kernel(&self, network: &BridgeNetwork, flows: &mut Vec<Flow>) {
        let (ip, _, destination) = self.words();
        let family = self.family();
        let mut routers = network.masquerade.iter();
        let Some(router) = routers.find(|address| Family::of(**address) == family) else {
            return;
        };
        let (patch, mark) = (network.patch, mark(network.network_id));
        let back = format!("ct(table=5,zone={OVN_ZONE},nat)");
        let to_router = format!("{ip},in_port=LOCAL,{destination}={router}");
        flows.push(Flow::new(0, 500, to_router, back));
        for subnet in network.advertised.iter().filter(|s| s.family() == family) {
            let out = format!("{ip},in_port={patch},{destination}={subnet}");
            let from_router = format!(
                "ct(commit,table=3,zone={OVN_ZONE},nat(src={router}),exec(set_field:{mark:#x}->ct_mark))"
            );
            flows.push(Flow::new(4, 100, out, from_router));
        }
        let answer = format!("ct_mark={mark:#x},{ip}");
        let to_router = format!(
            "ct(commit,zone={HOST_ZONE},nat),{}",
            to_patch(self.input, network)
        );
        flows.push(Flow::new(5, 100, answer, to_router));
    }
}
