//! Services of a lab: what whoever runs Services would write.
//!
//! In: a lab whose pods are attached. Out: Service objects of DNS, of one more and of each
//! network of users, and their load balancers: on each node's switch and gateway router of the
//! default network, or on the network's own switches and gateway routers. In a lab with networks of users they have node ports,
//! too: on the switches, where its own pods ask, and for all others on the nodes (`node_ports`). How networks of users come to
//! the default network's is the product's.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use ipnet::IpNet;
use serde_json::json;

use crate::apiserver::{self, kubectl};
use crate::echo;
use crate::family::Family;
use crate::networks::{DEFAULT, UserNetwork};
use crate::node::ovs::nbctl;
use crate::node_ports;
use crate::objects::items;
use crate::reach;
use crate::state::{Lab, Node, Pod};
use crate::values::nth;

/// The API server's own Service.
pub(crate) const KUBERNETES: u32 = 1;
/// `kube-system/kube-dns`, which networks of users may use, too.
pub(crate) const DNS: u32 = 10;
/// `default/other`, which they may not.
pub(crate) const OTHER: u32 = 20;

/// The first of those of networks of users, in the order of networks.
const OF_NETWORKS: u32 = 30;
/// Where the API server's default range of node ports begins.
const FIRST_NODE_PORT: u16 = 30_000;

/// Address of the Service of a network of users, of a family that the network has.
pub(crate) fn of_network(lab: &Lab, name: &str, family: Family) -> Result<Option<IpAddr>> {
    let mut numbers = (OF_NETWORKS..).zip(&lab.networks);
    let found = numbers.find(|(_, network)| network.name == name && network.has(family));
    let address = found.map(|(number, _)| address(lab, number, family));
    address.transpose()
}

/// The node port of a network's Service: of a network of users, or of `default/other` for the default one.
pub(crate) fn node_port(lab: &Lab, network: &str) -> Result<u16> {
    let mut numbers = (OF_NETWORKS..).zip(&lab.networks);
    let found = numbers.find(|(_, one)| one.name == network);
    let number = found.map_or(OTHER, |(number, _)| number);
    Ok(FIRST_NODE_PORT + u16::try_from(number)?)
}

/// Addresses of all nodes at the node port of a network, as load balancers have them.
fn at_nodes(lab: &Lab, network: &str, family: Family) -> Result<Vec<String>> {
    let port = node_port(lab, network)?;
    let of = |node: &Node| {
        let address = lab.values.address_of(node.index, family)?;
        Ok(SocketAddr::new(address, port).to_string())
    };
    lab.nodes.iter().map(of).collect()
}

/// The ranges of Services, one for each of the lab's families; that of the API server's own address comes first.
pub(crate) fn ranges(lab: &Lab) -> Result<String> {
    let families = lab.values.families().into_iter();
    let ranges = families.map(|family| Ok(range(family)?.to_string()));
    Ok(ranges.collect::<Result<Vec<_>>>()?.join(","))
}

fn range(family: Family) -> Result<IpNet> {
    let range = match family {
        Family::V4 => "10.254.0.0/24",
        Family::V6 => "fd97:254::/112",
    };
    Ok(range.parse()?)
}

/// Address of a Service.
pub(crate) fn address(lab: &Lab, number: u32, family: Family) -> Result<IpAddr> {
    anyhow::ensure!(lab.values.has(family), "the lab has no {family:?}");
    Ok(nth(range(family)?, number))
}

/// `[kubernetes] service-cidrs` of the daemons' configuration, in a lab with networks of users.
pub(crate) fn section(lab: &Lab) -> Result<String> {
    if lab.networks.is_empty() {
        return Ok(String::new());
    }
    let ranges = ranges(lab)?;
    Ok(format!("\n[kubernetes]\nservice-cidrs = {ranges}\n"))
}

/// Creates the Service objects; that of the API server it makes itself.
pub(crate) fn create(lab: &Lab) -> Result<()> {
    let all = lab.values.families();
    let of_default = [
        ("kube-system", "kube-dns", DNS, all.clone()),
        ("default", "other", OTHER, all.clone()),
    ];
    let of_users = (OF_NETWORKS..).zip(&lab.networks);
    let of_users = of_users.map(|(number, network)| {
        let own = all.iter().copied().filter(|family| network.has(*family));
        (network.name.as_str(), "own", number, own.collect())
    });
    for (namespace, name, number, families) in of_default.into_iter().chain(of_users) {
        let addresses = families.iter().map(|family| address(lab, number, *family));
        let addresses = addresses.collect::<Result<Vec<IpAddr>>>()?;
        let policy = match addresses.len() {
            1 => "SingleStack",
            _ => "RequireDualStack",
        };
        let families: Vec<&str> = addresses
            .iter()
            .map(|ip| if ip.is_ipv4() { "IPv4" } else { "IPv6" })
            .collect();
        let object = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterIP": addresses.first(), "clusterIPs": addresses, "ipFamilies": families,
                "ipFamilyPolicy": policy, "ports": [
                {"name": "tcp", "protocol": "TCP", "port": echo::PORT},
                {"name": "udp", "protocol": "UDP", "port": echo::PORT},
            ]},
        });
        kubectl(lab)
            .args(["apply", "--server-side", "-f", "-"])
            .input(object.to_string())
            .run()
            .with_context(|| format!("Service {namespace}/{name}"))?;
    }
    Ok(())
}

/// Writes the load balancers of each node; where OVN-Kubernetes runs Services, what it makes them of.
pub(crate) fn balance(lab: &Lab) -> Result<()> {
    of_default_network(lab)?;
    if lab.ovn_kubernetes.is_some() {
        let names = lab.networks.iter().map(|network| network.name.as_str());
        return names
            .into_iter()
            .try_for_each(|network| endpoints(lab, network, "own", network));
    }
    if lab.networks.is_empty() {
        return Ok(());
    }
    for family in lab.values.families() {
        let at_nodes = at_nodes(lab, DEFAULT, family)?;
        let backends = all_of(echo::PORT, &pods(lab, family));
        let name = of_family("lab-node-port", family);
        for node in &lab.nodes {
            add(lab, node, (&name, &node.name), &at_nodes, &backends)?;
        }
    }
    for one in &lab.networks {
        for family in lab.values.families() {
            own(lab, one, family)?;
        }
    }
    node_ports::write(lab)
}

/// A name of a load balancer, which has addresses of one family.
fn of_family(name: &str, family: Family) -> String {
    format!("{name}-{}", family.afi())
}

/// The default network's pods.
fn pods(lab: &Lab, family: Family) -> BTreeSet<IpAddr> {
    let pods = reach::attached(lab);
    let pods = pods.iter().filter_map(|(_, pod)| pod.in_family(family));
    pods.map(|own| own.address).collect()
}

/// Addresses with a port, as load balancers have them.
fn all_of<'a>(port: u16, ips: impl IntoIterator<Item = &'a IpAddr>) -> String {
    let all = ips.into_iter();
    let all: Vec<String> = all
        .map(|ip| SocketAddr::new(*ip, port).to_string())
        .collect();
    all.join(",")
}

/// Those of the default network's Services that pods ask by their addresses, on each node that has a pod; again when a node came
/// or left.
pub(crate) fn of_default_network(lab: &Lab) -> Result<()> {
    if lab.ovn_kubernetes.is_some() {
        endpoints(lab, "kube-system", "kube-dns", "default")?;
        return endpoints(lab, "default", "other", "default");
    }
    let api = lab.values.api_address();
    let mut rows = Vec::new();
    for family in lab.values.families() {
        let pods = all_of(echo::PORT, &pods(lab, family));
        let mut services = vec![
            ("lab-kube-dns", DNS, pods.clone()),
            ("lab-other", OTHER, pods),
        ];
        if Family::of(api) == family {
            services.push(("lab-kubernetes", KUBERNETES, all_of(echo::PORT, [&api])));
        }
        for (name, number, backends) in services {
            let vip = SocketAddr::new(address(lab, number, family)?, echo::PORT).to_string();
            for protocol in ["tcp", "udp"] {
                let name = of_family(&format!("{name}-{protocol}"), family);
                rows.push((name, vip.clone(), backends.clone(), protocol));
            }
        }
    }
    let https = address(lab, KUBERNETES, Family::of(api))?;
    let https = SocketAddr::new(https, 443).to_string();
    let server = SocketAddr::new(api, apiserver::PORT).to_string();
    rows.push(("lab-kubernetes-https".to_owned(), https, server, "tcp"));
    for node in lab
        .nodes
        .iter()
        .filter(|node| lab.pod(&node.name).is_some())
    {
        let router = format!("GR_{}", node.name);
        for (name, vip, backends, protocol) in &rows {
            nbctl(lab, &node.name)
                .args(["--may-exist", "lb-add", name, vip, backends, protocol])
                .args(["--", "--may-exist", "lr-lb-add", &router, name])
                .args(["--", "--may-exist", "ls-lb-add", &node.name, name])
                .run()
                .with_context(|| format!("load balancer {name} on {}", node.name))?;
        }
    }
    Ok(())
}

/// The endpoints of a Service, as the API server's controllers would write them: the pods of a namespace.
fn endpoints(lab: &Lab, namespace: &str, service: &str, pods: &str) -> Result<()> {
    let list = apiserver::get(lab, &format!("/api/v1/namespaces/{pods}/pods"))?;
    for family in lab.values.families() {
        let kind = match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        let endpoint = |pod: &serde_json::Value| {
            let all = pod.pointer("/status/podIPs")?.as_array()?.iter();
            let mut all = all.filter_map(|own| own.get("ip")?.as_str()?.parse::<IpAddr>().ok());
            let own = all.find(|own| Family::of(*own) == family)?;
            let name = pod.pointer("/metadata/name")?;
            let (node, uid) = (
                pod.pointer("/spec/nodeName")?,
                pod.pointer("/metadata/uid")?,
            );
            Some(json!({"addresses": [own], "nodeName": node,
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "targetRef": {"kind": "Pod", "namespace": pods, "name": name, "uid": uid}}))
        };
        let all = items(&list).iter().filter_map(endpoint);
        let object = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": kind,
            "metadata": {"namespace": namespace, "name": format!("{service}-{}", kind.to_lowercase()), "labels": {
                "kubernetes.io/service-name": service,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
            "endpoints": all.collect::<Vec<_>>(),
            "ports": [{"name": "tcp", "protocol": "TCP", "port": echo::PORT},
                {"name": "udp", "protocol": "UDP", "port": echo::PORT}],
        });
        kubectl(lab)
            .args(["apply", "--server-side", "--force-conflicts", "-f", "-"])
            .input(object.to_string())
            .run()
            .with_context(|| format!("endpoints of {namespace}/{service}"))?;
    }
    Ok(())
}

/// The load balancers of a network of users: for its own pods, and for those who come by a node port.
fn own(lab: &Lab, network: &UserNetwork, family: Family) -> Result<()> {
    let Some(vip) = of_network(lab, &network.name, family)? else {
        return Ok(());
    };
    let vip = SocketAddr::new(vip, echo::PORT).to_string();
    let pods = lab
        .nodes
        .iter()
        .filter_map(|node| network.pod(lab, &node.name));
    let backend = |pod: Pod| {
        let own = pod.in_family(family)?;
        Some(SocketAddr::new(own.address, echo::PORT).to_string())
    };
    let all: Vec<String> = pods.filter_map(backend).collect();
    let pods = all.join(",");
    for node in lab.nodes.iter().filter(|_| !pods.is_empty()) {
        let (name, switch) = (
            of_family(&format!("lab-{}", network.name), family),
            network.place(lab, &node.name).switch,
        );
        let addresses = [vec![vip.clone()], at_nodes(lab, &network.name, family)?].concat();
        add(lab, node, (&name, &switch), &addresses, &pods)?;
        // With OVN before 25.03 a layer-2 network's gateway router gets no answer from a pod of another node.
        let local = network.pod(lab, &node.name).and_then(backend);
        let backends = if network.is_layer2() {
            local.as_ref()
        } else {
            Some(&pods)
        };
        let (Some(backends), router) =
            (backends, format!("GR_{}_{}", network.network(), node.name))
        else {
            continue;
        };
        let name = format!("{name}-router");
        nbctl(lab, &node.name)
            .args(["--may-exist", "lb-add", &name, &vip, backends, "tcp"])
            .args(["--", "--may-exist", "lr-lb-add", &router, &name])
            .run()
            .with_context(|| format!("load balancer {name} on {}", node.name))?;
    }
    Ok(())
}

/// Writes a TCP load balancer of a switch on a node, with all of its addresses.
fn add(
    lab: &Lab,
    node: &Node,
    (name, switch): (&str, &str),
    addresses: &[String],
    backends: &str,
) -> Result<()> {
    let mut command = nbctl(lab, &node.name);
    for address in addresses {
        command = command.args([
            "--",
            "--may-exist",
            "lb-add",
            name,
            address,
            backends,
            "tcp",
        ]);
    }
    command
        .args(["--", "--may-exist", "ls-lb-add", switch, name])
        .run()
        .map(drop)
        .with_context(|| format!("load balancer {name} on {}", node.name))
}
