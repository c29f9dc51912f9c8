//! Annotations of a Node, which its own kubelet and every agent may write.
//!
//! In: lines `key=value` of annotations. Out: nothing.
//! Invariant: reading ends; what is malformed says so with its key and its value, of a long one with the beginning; no annotation changes what another means.
//! Not here: what follows for the node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node as KubeNode;
use model::node::{Fact, Node, annotation};

const KEYS: [&str; 5] = [
    annotation::NODE_ID,
    annotation::NODE_SUBNETS,
    annotation::PRIMARY_IFADDR,
    annotation::HOST_CIDRS,
    annotation::HOST_MTU,
];

/// Reads a Node with these annotations, and with each of them alone.
///
/// # Panics
/// Where an annotation is lost or rules another one.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let annotations: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .filter_map(|(key, value)| {
            let key = KEYS
                .iter()
                .find(|known| known.ends_with(key) && !key.is_empty())?;
            Some(((*key).to_owned(), value.to_owned()))
        })
        .collect();
    let all = states(&annotations);
    for (at, key) in KEYS.into_iter().enumerate() {
        let given = annotations.get(key);
        assert_eq!(all[at].is_none(), given.is_none(), "{key}");
        let Some(value) = given else { continue };
        let alone = states(&BTreeMap::from([(key.to_owned(), value.clone())]));
        assert_eq!(all[at], alone[at], "{key}");
        if let Some(Err(why)) = &all[at] {
            assert!(why.contains(key), "{why:?} does not name {key}");
            assert!(
                quotes(why, value),
                "{why:?} does not say what {key} has: {value:?}"
            );
        }
    }
}

/// Whether a message has the value, or of one of more than a hundred characters these, and that there is more.
fn quotes(message: &str, value: &str) -> bool {
    if message.contains(&format!("{value:?}")) {
        return true;
    }
    let beginning: String = value.chars().take(100).collect();
    let quoted = format!("{beginning:?}");
    let long = beginning.len() < value.len();
    // A long value is cut somewhere behind its hundredth character.
    long && message.contains(quoted.trim_end_matches('"')) && message.contains("and so on")
}

/// What each annotation says: absent, a value, or why it cannot be read.
fn states(annotations: &BTreeMap<String, String>) -> [Option<Result<String, String>>; 5] {
    let mut object = KubeNode::default();
    object.metadata.name = Some("n1".to_owned());
    object.metadata.annotations = Some(annotations.clone());
    let Node {
        node_id,
        subnets,
        primary,
        host_cidrs,
        host_mtu,
        ..
    } = api::decode_node(&object);
    [
        state(node_id),
        state(subnets),
        state(primary),
        state(host_cidrs),
        state(host_mtu),
    ]
}

fn state<T: std::fmt::Debug>(fact: Fact<T>) -> Option<Result<String, String>> {
    match fact {
        Fact::Absent => None,
        Fact::Known(value) => Some(Ok(format!("{value:?}"))),
        Fact::Malformed(why) => Some(Err(why)),
    }
}
