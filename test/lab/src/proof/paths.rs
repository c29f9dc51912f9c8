//! Line 3: which source address each path shows.
//!
//! In: pods, nodes, Services and the outside host. Out: whether each receiver sees the address
//! that it must see (pods: their own, or the node's where it leaves the cluster, also by the address of a Service;
//! hosts: their own, or the management port's on the way to pods).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Result;

use super::{Failure, Layer, Verdict, World, diagnose, in_families, listed};
use crate::echo;
use crate::family::Family;
use crate::reach::{Attached, attached};
use crate::run::each;
use crate::services::{self, DNS, KUBERNETES};
use crate::state::Lab;
use crate::values::SNAT_PORTS;

/// One path: who asks whom, and what must be seen.
struct Path {
    /// For people.
    name: String,
    /// Where the client is.
    from: String,
    /// Where the server is.
    to: IpAddr,
    /// The source address that the server must see.
    source: IpAddr,
    /// Is the source port one of the SNAT row's?
    translated: bool,
    /// Does it begin at a host and end at a pod?
    host_to_pod: bool,
    /// By the address of a Service: nobody refuses there what it has no port for.
    service: Option<Service>,
}

/// What a pod sees that reaches itself by a Service of OVN-Kubernetes.
const HAIRPIN: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(169, 254, 0, 5),
    Ipv6Addr::new(0xfd69, 0, 0, 0, 0, 0, 0, 5),
);

/// Whose address is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Service {
    /// It leads out of the cluster's pods.
    Kubernetes,
    /// It leads to a pod, perhaps to the one that asks: that sees this address.
    OfPods(IpAddr),
}

/// Line 3.
pub(super) fn table(world: &mut World<'_>) -> Result<Verdict> {
    let lab = &*world.lab;
    let pods = attached(lab);
    let families = lab.values.families();
    for family in &families {
        serve(lab, &pods, *family)?;
    }
    let checked: Vec<(usize, Vec<(bool, String)>)> = each(&pods, |from| {
        let all = families.iter();
        let all = all.filter_map(|family| of_node(lab, &pods, from, *family));
        let paths: Vec<Path> = all.flatten().collect();
        (paths.len(), paths.iter().flat_map(complaints).collect())
    });
    let count: usize = checked.iter().map(|(paths, _)| paths).sum();
    let all: Vec<(bool, String)> = checked
        .into_iter()
        .flat_map(|(_, complaints)| complaints)
        .collect();
    if all.is_empty() && count > 0 {
        return Ok(Ok(format!(
            "{count} paths{}, each with TCP, UDP and, where no Service is asked, a closed port",
            in_families(lab)
        )));
    }
    let texts: Vec<String> = all.iter().map(|(_, text)| text.clone()).collect();
    let host_to_pod = all.iter().any(|(host_to_pod, _)| *host_to_pod);
    let (layer, why) = layer(lab, &pods, host_to_pod)?;
    let expected =
        "on every path the source address of the table, TCP and UDP, and ICMP from closed ports";
    Ok(Err(Failure::new(
        layer,
        expected,
        format!("{}; {why}", listed(&texts)),
    )))
}

/// Servers of one family everywhere.
fn serve(lab: &Lab, pods: &[Attached], family: Family) -> Result<()> {
    let outside = lab.values.outside_address(family)?;
    echo::serve(&lab.namespace("outside"), outside)?;
    let api = lab.values.api_address();
    if Family::of(api) == family {
        echo::serve(&lab.namespace("underlay"), api)?;
    }
    for (node, pod) in pods {
        let address = lab.values.address_of(node.index, family)?;
        echo::serve(&lab.namespace(&node.name), address)?;
        if let Some(own) = pod.in_family(family) {
            echo::serve(&lab.pod_namespace(&node.name), own.address)?;
        }
    }
    Ok(())
}

impl Path {
    fn new(name: String, from: &str, to: IpAddr, source: IpAddr) -> Self {
        let from = from.to_owned();
        Self {
            name,
            from,
            to,
            source,
            translated: false,
            host_to_pod: false,
            service: None,
        }
    }

    /// It goes by the address of a Service.
    fn by(self, service: Service) -> Self {
        Self {
            service: Some(service),
            ..self
        }
    }

    /// Its source is the node's, by OVN's SNAT row.
    fn translated_if(self, translated: bool) -> Self {
        Self { translated, ..self }
    }

    fn host_to_pod(self) -> Self {
        Self {
            host_to_pod: true,
            ..self
        }
    }
}

/// All paths of a family that begin on a node, and the one from outside to it; `None` where the lab has not that family.
fn of_node(
    lab: &Lab,
    pods: &[Attached],
    (node, pod): &Attached,
    family: Family,
) -> Option<Vec<Path>> {
    let (host, inner) = (lab.namespace(&node.name), lab.pod_namespace(&node.name));
    let address = lab.values.address_of(node.index, family).ok()?;
    let outside = lab.values.outside_address(family).ok()?;
    let own = pod.in_family(family)?;
    let (name, inside, management) = (&node.name, own.address, own.management());
    let from_outside = lab.namespace("outside");
    let by_ovn = is_by_row(lab);
    // In local gateway mode hosts take the routes of BGP themselves.
    let by_management = !lab.outward.is_local() || lab.outward.is_overlay();
    let to_pods = if by_management { management } else { address };
    let mut paths = vec![
        Path::new(
            format!("pod on {name} -> outside"),
            &inner,
            outside,
            if lab.outward.is_translated() {
                address
            } else {
                inside
            },
        )
        .translated_if(lab.outward.is_translated() && by_ovn),
        Path::new(
            format!("pod on {name} -> own node"),
            &inner,
            address,
            inside,
        ),
        Path::new(format!("{name} -> own pod"), &host, inside, management).host_to_pod(),
        Path::new(format!("{name} -> outside"), &host, outside, address),
        Path::new(
            format!("outside -> {name}"),
            &from_outside,
            address,
            outside,
        ),
    ];
    let api = lab.values.api_address();
    if Family::of(api) == family {
        // It needs no way back to pods, whether the rest of their traffic is translated or not.
        let to_api = Path::new(format!("pod on {name} -> API server"), &inner, api, address);
        paths.push(to_api.translated_if(by_ovn));
    }
    paths.extend(by_services(lab, (name, &inner), (inside, address)));
    for (other, far) in pods.iter().filter(|(other, _)| other != node) {
        let there = lab.values.address_of(other.index, family).ok()?;
        let (remote, pod) = (&other.name, far.in_family(family)?.address);
        paths.extend([
            Path::new(
                format!("pod on {name} -> pod on {remote}"),
                &inner,
                pod,
                inside,
            ),
            Path::new(format!("pod on {name} -> {remote}"), &inner, there, address)
                .translated_if(by_ovn),
            Path::new(format!("{name} -> pod on {remote}"), &host, pod, to_pods).host_to_pod(),
            Path::new(format!("{name} -> {remote}"), &host, there, address),
        ]);
    }
    Some(paths)
}

/// What leaves is translated by a row whose source ports the lab has given.
fn is_by_row(lab: &Lab) -> bool {
    !lab.outward.is_local() && lab.ovn_kubernetes.is_none()
}

/// From a pod by the addresses of Services: the API server sees the node, a pod sees a pod.
fn by_services(
    lab: &Lab,
    (name, inner): (&str, &str),
    (inside, address): (IpAddr, IpAddr),
) -> Vec<Path> {
    let (by_ovn, family) = (is_by_row(lab), Family::of(inside));
    // OVN-Kubernetes has the API server's Service by its own port alone, where nobody tells whom he sees.
    let has_api = Family::of(lab.values.api_address()) == family && lab.ovn_kubernetes.is_none();
    let Ok(dns) = services::address(lab, DNS, family) else {
        return Vec::new();
    };
    let itself = match (&lab.ovn_kubernetes, family) {
        (None, _) => dns,
        (Some(_), Family::V4) => HAIRPIN.0.into(),
        (Some(_), Family::V6) => HAIRPIN.1.into(),
    };
    let all = [
        (
            "default/kubernetes",
            KUBERNETES,
            address,
            Service::Kubernetes,
        ),
        ("kube-system/kube-dns", DNS, inside, Service::OfPods(itself)),
    ];
    let paths = all
        .into_iter()
        .filter(|(.., kind)| has_api || matches!(kind, Service::OfPods(_)))
        .filter_map(|(service, number, source, kind)| {
            let text = format!("pod on {name} -> Service {service}");
            let to = services::address(lab, number, family).ok()?;
            let is_translated = by_ovn && kind == Service::Kubernetes;
            let path = Path::new(text, inner, to, source);
            Some(path.translated_if(is_translated).by(kind))
        });
    paths.collect()
}

/// What is wrong with a path; the flag tells a host's way to a pod.
fn complaints(path: &Path) -> Vec<(bool, String)> {
    let Path { name, from, to, .. } = path;
    let name = format!("{name} at {to}");
    let seen = [("TCP", echo::tcp(from, *to)), ("UDP", echo::udp(from, *to))];
    let mut texts: Vec<String> = seen
        .into_iter()
        .filter_map(|(protocol, seen)| wrong(path, &name, protocol, seen))
        .collect();
    if path.service.is_none()
        && let Err(error) = echo::refused(from, *to)
    {
        texts.push(format!("{name}: {error:#}"));
    }
    texts
        .into_iter()
        .map(|text| (path.host_to_pod, text))
        .collect()
}

fn wrong(path: &Path, name: &str, protocol: &str, seen: Result<SocketAddr>) -> Option<String> {
    match seen {
        Err(error) => Some(format!("{name} ({protocol}): {error:#}")),
        Ok(seen) if path.service == Some(Service::OfPods(seen.ip())) => None,
        Ok(seen) if seen.ip() != path.source => Some(format!(
            "{name} ({protocol}): {} is seen instead of {}",
            seen.ip(),
            path.source
        )),
        Ok(seen) if path.translated && !SNAT_PORTS.contains(&seen.port()) => Some(format!(
            "{name} ({protocol}): source port {} is not one of the SNAT row's",
            seen.port()
        )),
        Ok(_) => None,
    }
}

fn layer(lab: &Lab, pods: &[Attached], host_to_pod: bool) -> Result<diagnose::Finding> {
    for (node, pod) in pods {
        if host_to_pod && let Some(seen) = diagnose::host_way(lab, node, pod)? {
            return Ok((Layer::Kernel, seen));
        }
        if let Some(finding) = diagnose::exemption(lab, node)? {
            return Ok(finding);
        }
    }
    for (from, _) in pods {
        for (to, _) in pods.iter().filter(|(to, _)| to != from) {
            if let Some(finding) = diagnose::route(lab, from, to)? {
                return Ok(finding);
            }
        }
    }
    Ok((
        Layer::Packets,
        "rules, routes and SNAT rows are as they must be".to_owned(),
    ))
}
