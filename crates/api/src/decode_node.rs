//! Node into `model::node`.
//! In: a Node object. Out: facts; what is malformed stays beside them as a sentence.
//! Invariant: a malformed annotation never makes a node look as if it had none.
//! Not here: what follows for the node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node as KubeNode;
use model::node::{Fact, NODE_IDS, Node, NodeSubnets, Salvaged, annotation};
use model::{InterfaceAddr, NetworkName, NodeName, Prefix};
use serde::Deserialize;

use crate::underlay_ready;

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(list) => list,
        }
    }
}

/// Reads a Node.
#[must_use]
pub fn decode_node(object: &KubeNode) -> Node {
    let name = object.metadata.name.clone().unwrap_or_default();
    let annotations = object.metadata.annotations.clone().unwrap_or_default();
    let (internal_ips, bad_addresses) = internal_ips(object);
    let fact = |key: &'static str| Reader {
        key,
        text: annotations.get(key),
    };
    let node_id = fact(annotation::NODE_ID).read("a decimal number from 2 to 32767", |t| {
        t.parse().ok().filter(|id| NODE_IDS.contains(id))
    });
    let node_subnets =
        fact(annotation::NODE_SUBNETS).read("a JSON map of network to list of CIDR", subnets);
    let salvaged = Salvaged {
        subnets: of_malformed(&node_subnets, annotations.get(annotation::NODE_SUBNETS))
            .map(salvaged_subnets)
            .unwrap_or_default(),
        ids: of_malformed(&node_id, annotations.get(annotation::NODE_ID))
            .map(salvaged_ids)
            .unwrap_or_default(),
    };
    let conditions = object.status.as_ref().and_then(|s| s.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    Node {
        name: NodeName::from(name),
        labels: object.metadata.labels.clone().unwrap_or_default(),
        internal_ips,
        bad_addresses,
        node_id,
        underlay_ready: underlay_ready::of(object, &node_subnets),
        subnets: node_subnets,
        primary: fact(annotation::PRIMARY_IFADDR).read(
            "JSON such as {\"ipv4\":\"172.18.0.2/16\"}",
            |text| {
                let map: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
                addresses_of(map.into_values().filter(|t| !t.is_empty()))
            },
        ),
        host_cidrs: fact(annotation::HOST_CIDRS).read("a JSON list of CIDR", |text| {
            addresses_of(serde_json::from_str::<Vec<String>>(text).ok()?.into_iter())
        }),
        chassis: fact(annotation::CHASSIS_ID).read("a name without spaces and commas", name_of),
        encap_ips: fact(annotation::ENCAP_IPS).read("a JSON list of one address or more", ips_of),
        host_mtu: fact(annotation::HOST_MTU).read("a number of bytes", |t| t.parse().ok()),
        salvaged,
        ready: conditions
            .find(|c| c.type_ == "Ready")
            .map(|c| c.status == "True"),
        drain: annotations.contains_key(annotation::DRAIN),
        takeover: annotations.get(annotation::TAKEOVER).map(String::as_str) == Some("allow"),
        cordoned: object.spec.as_ref().and_then(|s| s.unschedulable) == Some(true),
    }
}

/// Addresses of type InternalIP, and those that are no addresses.
fn internal_ips(object: &KubeNode) -> (Vec<IpAddr>, Vec<String>) {
    let addresses = object.status.as_ref().and_then(|s| s.addresses.as_ref());
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let all = addresses.into_iter().flatten();
    for address in all.filter(|a| a.type_ == "InternalIP") {
        match address.address.parse() {
            Ok(ip) => good.push(ip),
            Err(_) => bad.push(address.address.clone()),
        }
    }
    (good, bad)
}

fn of_malformed<'a, T>(fact: &Fact<T>, text: Option<&'a String>) -> Option<&'a str> {
    match fact {
        Fact::Malformed(_) => text.map(String::as_str),
        Fact::Absent | Fact::Known(_) => None,
    }
}

/// Whatever looks like an address or a prefix, of whichever network.
fn salvaged_subnets(text: &str) -> Vec<InterfaceAddr> {
    let words = text.split(|c: char| !c.is_ascii_hexdigit() && !matches!(c, '.' | ':' | '/'));
    words.filter_map(salvaged_subnet).collect()
}

/// A word may have colons of its surroundings at its ends, or a key before them.
fn salvaged_subnet(word: &str) -> Option<InterfaceAddr> {
    let behind_key = word.rsplit(':').next().filter(|t| t.contains('.'));
    let mut spellings = [Some(word), Some(word.trim_matches(':')), behind_key]
        .into_iter()
        .flatten();
    spellings.find_map(|text| {
        let host = |ip| Prefix::host(ip).bits();
        let lone = || {
            text.parse()
                .ok()
                .map(|ip| InterfaceAddr { ip, len: host(ip) })
        };
        text.parse().ok().or_else(lone)
    })
}

fn salvaged_ids(text: &str) -> Vec<u32> {
    let numbers = text.split(|c: char| !c.is_ascii_digit());
    numbers
        .filter_map(|n| n.parse().ok())
        .filter(|id| NODE_IDS.contains(id))
        .collect()
}

/// Most characters of a value that a message quotes.
const QUOTED: usize = 120;

fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((at, _)) => format!("{:?} and so on", text.get(..at).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}

struct Reader<'a> {
    key: &'a str,
    text: Option<&'a String>,
}

impl Reader<'_> {
    fn read<T>(&self, wanted: &str, parse: impl Fn(&str) -> Option<T>) -> Fact<T> {
        match self.text {
            None => Fact::Absent,
            Some(text) => match parse(text) {
                Some(value) => Fact::Known(value),
                None => Fact::Malformed(format!(
                    "annotation {} = {} is not {wanted}",
                    self.key,
                    quoted(text)
                )),
            },
        }
    }
}

fn subnets(text: &str) -> Option<NodeSubnets> {
    let map: BTreeMap<String, OneOrMany> = serde_json::from_str(text).ok()?;
    map.into_iter()
        .map(|(network, list)| {
            let list = list
                .into_vec()
                .iter()
                .map(|t| t.parse().ok())
                .collect::<Option<Vec<Prefix>>>()?;
            Some((NetworkName::from(network), list))
        })
        .collect()
}

fn name_of(text: &str) -> Option<String> {
    // A comma would make a list of it in `Logical_Switch_Port.options:requested-chassis`.
    let is_name = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == ',');
    is_name.then(|| text.to_owned())
}

fn ips_of(text: &str) -> Option<Vec<IpAddr>> {
    let list: Vec<String> = serde_json::from_str(text).ok()?;
    let all: Option<Vec<IpAddr>> = list.iter().map(|address| address.parse().ok()).collect();
    all.filter(|all| !all.is_empty())
}

fn addresses_of(texts: impl Iterator<Item = String>) -> Option<Vec<InterfaceAddr>> {
    texts.map(|t| t.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(annotations: &[(&str, &str)]) -> Node {
        let mut object = KubeNode::default();
        object.metadata.name = Some("w1".to_owned());
        object.metadata.annotations = Some(
            annotations
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        );
        decode_node(&object)
    }

    #[test]
    fn annotations_read_in_both_forms_and_malformed_ones_are_named() {
        let n = node(&[
            (
                annotation::NODE_SUBNETS,
                r#"{"default":["10.1.0.0/24"],"b":"10.2.0.0/24"}"#,
            ),
            (annotation::PRIMARY_IFADDR, r#"{"ipv4":"172.18.0.2/16"}"#),
            (annotation::NODE_ID, "2"),
        ]);
        assert_eq!(n.subnets.known().unwrap().len(), 2);
        assert_eq!(n.own_addresses().len(), 1);
        assert_eq!(n.node_id, Fact::Known(2));
        assert_eq!(n.host_mtu, Fact::Absent);
        assert_eq!(n.hostname(), "w1");
        for (key, text) in [
            (annotation::NODE_SUBNETS, r#"{"default":["10.1.0.0"]}"#),
            (annotation::NODE_SUBNETS, "10.1.0.0/24"),
            (annotation::NODE_ID, "1"),
            (annotation::NODE_ID, "32768"),
            (annotation::NODE_ID, "x"),
            (annotation::ENCAP_IPS, "[]"),
            (annotation::ENCAP_IPS, r#"["x"]"#),
            (annotation::CHASSIS_ID, ""),
            (annotation::CHASSIS_ID, "c2 c3"),
            (annotation::CHASSIS_ID, "c2,c3"),
        ] {
            let n = node(&[(key, text)]);
            let all: [&dyn std::fmt::Debug; 4] = [&n.subnets, &n.node_id, &n.encap_ips, &n.chassis];
            let wrong = all.map(|f| format!("{f:?}")).join(" ");
            assert!(
                wrong.contains("Malformed") && wrong.contains(key),
                "{wrong}"
            );
        }
    }

    #[test]
    fn what_the_admin_wishes_beside_ovn_kubernetes() {
        for (key, text, drain, takeover) in [
            ("noverlay.io/drain", "maintenance", true, false),
            ("noverlay.io/drain", "", true, false),
            ("noverlay.io/takeover", "allow", false, true),
            ("noverlay.io/takeover", "Allow", false, false),
            ("noverlay.io/takeover", "", false, false),
        ] {
            let n = node(&[(key, text)]);
            assert_eq!((n.drain, n.takeover), (drain, takeover), "{key}={text}");
        }
    }

    #[test]
    fn what_can_be_read_of_malformed_annotations_is_salvaged() {
        let subnets = |text: &str| -> Vec<String> {
            let n = node(&[(annotation::NODE_SUBNETS, text)]);
            let list = n.salvaged.subnets.iter();
            list.map(ToString::to_string).collect()
        };
        for (text, wanted) in [
            (r#"{"default":["10.1.0.0/24"]}"#, vec![]),
            (
                r#"{"default":["10.1.0.0/24","x"],"b":"10.2.0.0/24"}"#,
                vec!["10.1.0.0/24", "10.2.0.0/24"],
            ),
            (
                r#"{"default":["10.1.0.0/24"],"cluster_udn_blue":["10.61.0.0/24"],"x":["bad"]}"#,
                vec!["10.1.0.0/24", "10.61.0.0/24"],
            ),
            (r#"{"default":["10.1.3.0"]}"#, vec!["10.1.3.0/32"]),
            (r#"{"default":["10.1.3.0/24","#, vec!["10.1.3.0/24"]),
            (r#"{"default":["10.1.3.0/2"#, vec!["10.1.3.0/2"]),
            ("default:10.1.3.0/24;", vec!["10.1.3.0/24"]),
            ("node:10.1.3.0/24", vec!["10.1.3.0/24"]),
            (
                r#"["10.1.3.0/24","fd01:0:0:2::/64"]"#,
                vec!["10.1.3.0/24", "fd01:0:0:2::/64"],
            ),
            ("nothing at all", vec![]),
        ] {
            assert_eq!(subnets(text), wanted, "{text}");
        }
        for (text, wanted) in [("3", vec![]), (" 3", vec![3]), ("id 1 or 7", vec![7])] {
            assert_eq!(node(&[(annotation::NODE_ID, text)]).salvaged.ids, wanted);
        }
    }

    #[test]
    fn a_long_value_is_quoted_in_part() {
        let text = "x".repeat(200_000);
        let Fact::Malformed(why) = node(&[(annotation::NODE_SUBNETS, &text)]).subnets else {
            panic!("it is no JSON");
        };
        assert!(why.len() < 300 && why.contains("and so on"), "{why}");
    }
}
