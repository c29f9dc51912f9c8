//! The node annotations that the agent publishes.
//! In: the machine. Out: keys and values as OVN-Kubernetes writes and reads them.
//! Invariant: equal facts give equal text, so nothing is written when nothing changed.
//! Not here: `node-id` and `node-subnets`, which the cluster-manager gives out.
//!
//! Forms: OVN-Kubernetes `go-controller/pkg/util/node_annotations.go`.

use std::collections::BTreeMap;
use std::fmt;

use model::address::{Family, InterfaceAddr};
use model::gateway::GatewayMode;
use model::names::NetworkName;
use model::node::annotation;
use model::ovs;

use crate::snapshot::{GatewayView, Machine};

/// The annotations, by key; `None` until the gateway was known. A bridge without address gives no `node-primary-ifaddr` and no
/// `l3-gateway-config`.
#[must_use]
pub fn plan(machine: &Machine) -> Option<BTreeMap<String, String>> {
    let gateway = machine.gateway.as_ref()?;
    let host_mtu = machine.bridge_link()?.mtu;
    let mut all = BTreeMap::from([
        (annotation::CHASSIS_ID.to_owned(), gateway.chassis.clone()),
        (annotation::HOST_MTU.to_owned(), host_mtu.to_string()),
        (
            annotation::HOST_CIDRS.to_owned(),
            host_cidrs(&machine.host_cidrs),
        ),
    ]);
    if !machine.encap_ips.is_empty() {
        all.insert(annotation::ENCAP_IPS.to_owned(), array(&machine.encap_ips));
    }
    if !gateway.addresses.is_empty() {
        all.insert(
            annotation::PRIMARY_IFADDR.to_owned(),
            primary(&gateway.addresses),
        );
        all.insert(
            annotation::L3_GATEWAY.to_owned(),
            l3_gateway(machine, gateway),
        );
    }
    Some(all)
}

fn primary(addresses: &[InterfaceAddr]) -> String {
    let fields = [("ipv4", Family::V4), ("ipv6", Family::V6)]
        .into_iter()
        .filter_map(|(key, family)| {
            let address = addresses.iter().find(|a| Family::of(a.ip) == family)?;
            Some((key, quote(address)))
        })
        .collect();
    object(fields)
}

fn host_cidrs(addresses: &[InterfaceAddr]) -> String {
    let mut texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.sort();
    texts.dedup();
    array(&texts)
}

/// The fields in OVN-Kubernetes' order; the singular ones only where there is just one, empty lists left out.
fn l3_gateway(machine: &Machine, gateway: &GatewayView) -> String {
    let interface = ovs::localnet_port(
        &gateway.bridge,
        &NetworkName::default_network(),
        &machine.name,
    );
    let mode = match machine.mode {
        GatewayMode::Shared => "shared",
        GatewayMode::Local => "local",
    };
    let mut fields = vec![
        ("mode", quote(mode)),
        ("bridge-id", quote(&gateway.bridge)),
        ("interface-id", quote(interface)),
        ("mac-address", quote(gateway.mac)),
        ("ip-addresses", array(&gateway.addresses)),
    ];
    if let [address] = gateway.addresses.as_slice() {
        fields.push(("ip-address", quote(address)));
    }
    if !gateway.next_hops.is_empty() {
        fields.push(("next-hops", array(&gateway.next_hops)));
    }
    if let [next_hop] = gateway.next_hops.as_slice() {
        fields.push(("next-hop", quote(next_hop)));
    }
    fields.push(("node-port-enable", quote("true")));
    fields.push(("vlan-id", quote("0")));
    object(vec![("default", object(fields))])
}

/// A JSON object of keys without special characters and values that are JSON already.
fn object(fields: Vec<(&str, String)>) -> String {
    let fields: Vec<String> = fields
        .into_iter()
        .map(|(key, value)| format!("{}:{value}", quote(key)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn array<T: fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(quote).collect();
    format!("[{}]", items.join(","))
}

/// A JSON string (RFC 8259 section 7).
fn quote(value: impl fmt::Display) -> String {
    let text = value.to_string();
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => {
                out.push('\\');
                out.push(letter);
            }
            letter if u32::from(letter) < 0x20 => {
                out.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quote("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }
}
