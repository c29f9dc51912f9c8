//! Annotation `noverlay.io/underlay-ready` of a Node.
//! In: networks, the node's subnets of each and the boot they are said in, or a Node's annotations. Out: the annotation, or the networks.
//! Invariant: what was said in another boot than the kubelet reports says nothing: rules and tables went with that boot; nor does what
//! was said of subnets that the node has no more, as of a network that was made anew by the same name.
//! Not here: when a node is ready (`plan_node::beside::steps`).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node as KubeNode;
use model::node::{Fact, NodeSubnets, annotation};
use model::{NetworkName, Prefix};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct UnderlayReady {
    boot: String,
    networks: Networks,
}

/// Networks, with those of the node's subnets whose packets it takes from the physical network.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Networks {
    WithSubnets(BTreeMap<String, Vec<String>>),
    /// As agents wrote it that knew the default network alone.
    Names(BTreeSet<String>),
}

/// The node's subnets by network.
pub type ReadySubnets = BTreeMap<NetworkName, Vec<Prefix>>;

/// The annotation's text. `boot`: `/proc/sys/kernel/random/boot_id`.
#[must_use]
pub fn underlay_ready(boot: &str, networks: &ReadySubnets) -> String {
    let texts = |subnets: &[Prefix]| subnets.iter().map(ToString::to_string).collect();
    let networks = networks.iter();
    let networks = networks.map(|(name, subnets)| (name.to_string(), texts(subnets)));
    let said = UnderlayReady {
        boot: boot.to_owned(),
        networks: Networks::WithSubnets(networks.collect()),
    };
    serde_json::to_string(&said).unwrap_or_default()
}

/// What an annotation's text tells of; nothing where it is malformed, or of another boot than `boot`
/// (`/proc/sys/kernel/random/boot_id`): rules and tables of the host did not outlive it. Of a network without subnets no agent said
/// which.
#[must_use]
pub fn ready_subnets(text: &str, boot: &str) -> ReadySubnets {
    read(text, Some(boot)).unwrap_or_default()
}

/// What a Node's annotation tells of, by its subnets as they are now. A subnet that it has got since is not told of.
pub(crate) fn of(object: &KubeNode, subnets: &Fact<NodeSubnets>) -> NodeSubnets {
    let info = object.status.as_ref().and_then(|s| s.node_info.as_ref());
    let boot = info.map(|info| info.boot_id.as_str());
    let annotations = object.metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(annotation::UNDERLAY_READY));
    let said = text.and_then(|text| read(text, boot)).unwrap_or_default();
    let has = |network: &NetworkName, of_then: &[Prefix]| {
        let now = subnets.known().and_then(|all| all.get(network));
        // What cannot be read now is as it was.
        let is_known = matches!(subnets, Fact::Known(_));
        !is_known
            || of_then
                .iter()
                .all(|subnet| now.is_some_and(|now| now.contains(subnet)))
    };
    // Agents that named no subnets meant all of them.
    let all_of = |network: &NetworkName| {
        let now = subnets.known().and_then(|all| all.get(network));
        now.cloned().unwrap_or_default()
    };
    let said = said.into_iter();
    let said = said.filter(|(network, of_then)| has(network, of_then));
    said.map(|(network, of_then)| {
        let told = if of_then.is_empty() {
            all_of(&network)
        } else {
            of_then
        };
        (network, told)
    })
    .collect()
}

/// What `text` tells of; `None` where it is malformed, or of another boot than `boot`
/// (`Node.status.nodeInfo.bootID`; empty where no kubelet says one, then any counts).
fn read(text: &str, boot: Option<&str>) -> Option<ReadySubnets> {
    let said = serde_json::from_str::<UnderlayReady>(text).ok()?;
    let is_of_another = boot.is_some_and(|boot| !boot.is_empty() && boot != said.boot);
    if is_of_another {
        return None;
    }
    Some(match said.networks {
        Networks::Names(names) => {
            let names = names.into_iter();
            names.map(|name| (name.into(), Vec::new())).collect()
        }
        Networks::WithSubnets(all) => {
            let parsed = |(name, texts): (String, Vec<String>)| {
                let subnets = texts.iter().map(|text| text.parse().ok());
                let subnets: Option<Vec<Prefix>> = subnets.collect();
                Some((NetworkName::from(name), subnets?))
            };
            all.into_iter().filter_map(parsed).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(networks: &[(&str, &[&str])]) -> ReadySubnets {
        let of = |subnets: &[&str]| subnets.iter().map(|text| text.parse().unwrap()).collect();
        let all = networks.iter();
        all.map(|(name, subnets)| (NetworkName::from(*name), of(subnets)))
            .collect()
    }

    #[test]
    fn it_is_read_as_it_was_written_and_counts_in_its_boot_only() {
        let networks = ready(&[("default", &["10.128.1.0/24"]), ("red", &["10.150.1.0/24"])]);
        let text = underlay_ready("b1", &networks);
        assert_eq!(
            text,
            r#"{"boot":"b1","networks":{"default":["10.128.1.0/24"],"red":["10.150.1.0/24"]}}"#
        );
        assert_eq!(ready_subnets(&text, "b1"), networks);
        // What was said before the host was started again is not said once more.
        assert_eq!(ready_subnets(&text, "b2"), ReadySubnets::new());
        for (boot, counts) in [
            (None, true),
            (Some(""), true),
            (Some("b1"), true),
            (Some("b2"), false),
        ] {
            assert_eq!(
                read(&text, boot),
                counts.then(|| networks.clone()),
                "{boot:?}"
            );
        }
        // As it was written before.
        let names = r#"{"boot":"b1","networks":["default"]}"#;
        assert_eq!(ready_subnets(names, "b1"), ready(&[("default", &[])]));
        for text in [
            "",
            "[]",
            r#"["default"]"#,
            r#"{"networks":["default"]}"#,
            r#"{"boot":"b1","networks":{"default":["x"]}}"#,
        ] {
            assert_eq!(ready_subnets(text, "b1"), ReadySubnets::new(), "{text}");
        }
    }

    #[test]
    fn a_network_with_other_subnets_than_it_had_then_is_another_one() {
        let text = |subnet: &str| underlay_ready("b1", &ready(&[("red", &[subnet])]));
        let node = |annotation: &str| {
            let object = serde_json::json!({"metadata": {"annotations": {"noverlay.io/underlay-ready": annotation}}});
            serde_json::from_value::<KubeNode>(object).unwrap()
        };
        let subnets = |all: &[(&str, &[&str])]| Fact::Known(ready(all).into_iter().collect());
        let (same, other) = ("10.150.1.0/24", "10.151.1.0/24");
        for (now, counts) in [
            (subnets(&[("red", &[same])]), true),
            (subnets(&[("red", &[other, same])]), true),
            (subnets(&[("red", &[other])]), false),
            (subnets(&[("blue", &[same])]), false),
            (Fact::Absent, true),
            (Fact::Malformed("it is not JSON".to_owned()), true),
        ] {
            let of = of(&node(&text(same)), &now);
            let red = NetworkName::from("red");
            assert_eq!(of.contains_key(&red), counts, "{now:?}");
            let [same, other] = [same, other].map(|text| text.parse().unwrap());
            assert_eq!(of.has(&red, &same), counts, "{now:?}");
            assert!(!of.has(&red, &other), "nobody said so of it: {now:?}");
        }
    }
}
