//! Node ports in a lab with networks of users: what whoever runs Services does on a node.
//!
//! In: a lab whose Services have load balancers. Out: on each node a table of nftables that gives what arrives at a node port the
//! address of the Service, with the packet mark of the network of users that it is of. How a marked packet comes to that
//! network's gateway router (rule of the host, route, flow of the outer bridge) is the product's.

use anyhow::{Context, Result};

use crate::apiserver::get;
use crate::echo;
use crate::family::Family;
use crate::networks::{DEFAULT, UserNetwork};
use crate::run::tool;
use crate::services::{self, OTHER};
use crate::state::{Lab, Node};

/// The table's name, which nobody else has.
const TABLE: &str = "lab-node-ports";
/// OVN-Kubernetes' packet mark of a network of users, less the network's id.
const MARK: u32 = 0x1000;

/// Writes the table of each node.
///
/// # Errors
/// A network without an id, an nft that takes no rules.
pub(crate) fn write(lab: &Lab) -> Result<()> {
    let ports = ports(lab)?;
    lab.nodes.iter().try_for_each(|node| {
        let rules = rules(lab, node, &ports)?;
        tool("nft")
            .args(["-f", "-"])
            .input(rules)
            .inside(&lab.namespace(&node.name))
            .run()
            .map(drop)
            .with_context(|| format!("node ports of {}", node.name))
    })
}

/// A Service's node port, where that leads, and as what.
struct Port {
    number: u16,
    to: std::net::IpAddr,
    mark: Option<u32>,
}

fn ports(lab: &Lab) -> Result<Vec<Port>> {
    let mut ports = Vec::new();
    for family in lab.values.families() {
        ports.push(Port {
            number: services::node_port(lab, DEFAULT)?,
            to: services::address(lab, OTHER, family)?,
            mark: None,
        });
        for network in &lab.networks {
            let to = services::of_network(lab, &network.name, family)?;
            let (number, mark) = (
                services::node_port(lab, &network.name)?,
                MARK + id(lab, network)?,
            );
            ports.extend(to.map(|to| Port {
                number,
                to,
                mark: Some(mark),
            }));
        }
    }
    Ok(ports)
}

/// The id that the cluster-manager gave a network.
fn id(lab: &Lab, network: &UserNetwork) -> Result<u32> {
    let name = &network.name;
    let attachment = get(
        lab,
        &format!(
            "/apis/k8s.cni.cncf.io/v1/namespaces/{name}/network-attachment-definitions/{name}"
        ),
    )?;
    let id = attachment.pointer("/metadata/annotations/k8s.ovn.org~1network-id");
    let id = id.and_then(|id| id.as_str()?.parse().ok());
    id.with_context(|| format!("network {name} has no id: {attachment}"))
}

/// First the mark, by which the rule of the host chooses the table in which the new destination is looked up.
fn rules(lab: &Lab, node: &Node, ports: &[Port]) -> Result<String> {
    let word = |port: &Port| if port.to.is_ipv4() { "ip" } else { "ip6" };
    let mut addresses = Vec::new();
    for port in ports {
        addresses.push(lab.values.address_of(node.index, Family::of(port.to))?);
    }
    let of = |(port, address): (&Port, &std::net::IpAddr)| {
        format!("{} daddr {address} tcp dport {}", word(port), port.number)
    };
    let all = || ports.iter().zip(&addresses);
    let marks = all().filter_map(|(port, address)| {
        let mark = port.mark?;
        Some(format!("{} meta mark set {mark:#x}\n", of((port, address))))
    });
    let marks: String = marks.collect();
    let leads = all().map(|(port, address)| {
        let to = std::net::SocketAddr::new(port.to, echo::PORT);
        format!("{} dnat {} to {to}\n", of((port, address)), word(port))
    });
    let leads: String = leads.collect();
    Ok(format!(
        "table inet {TABLE} {{}}
delete table inet {TABLE}
table inet {TABLE} {{
chain marks {{ type filter hook prerouting priority mangle; policy accept;
{marks}}}
chain leads {{ type nat hook prerouting priority dstnat; policy accept;
{leads}}}
}}
"
    ))
}
