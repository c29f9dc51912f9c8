//! Annotation `noverlay.io/underlay-ready` of a Node.
//! In: networks and the boot they are said in, or a Node's annotation. Out: the annotation, or the networks.
//! Invariant: what was said in another boot than the kubelet reports says nothing: rules and tables went with that boot.
//! Not here: when a node is ready (`plan_node::beside::steps`).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node as KubeNode;
use model::NetworkName;
use model::node::annotation;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct UnderlayReady {
    boot: String,
    networks: BTreeSet<String>,
}

/// The annotation's text. `boot`: `/proc/sys/kernel/random/boot_id`.
#[must_use]
pub fn underlay_ready<'a>(
    boot: &str,
    networks: impl IntoIterator<Item = &'a NetworkName>,
) -> String {
    let networks = networks.into_iter().map(ToString::to_string).collect();
    let said = UnderlayReady {
        boot: boot.to_owned(),
        networks,
    };
    serde_json::to_string(&said).unwrap_or_default()
}

/// The networks that a Node's annotation tells of.
pub(crate) fn of(object: &KubeNode) -> BTreeSet<NetworkName> {
    let info = object.status.as_ref().and_then(|s| s.node_info.as_ref());
    let boot = info.map(|info| info.boot_id.as_str());
    let annotations = object.metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(annotation::UNDERLAY_READY));
    text.map(|text| read(text, boot)).unwrap_or_default()
}

/// The networks that `text` tells of; none where it is malformed, or of another boot than `boot`
/// (`Node.status.nodeInfo.bootID`; empty where no kubelet says one, then any counts).
fn read(text: &str, boot: Option<&str>) -> BTreeSet<NetworkName> {
    let Ok(said) = serde_json::from_str::<UnderlayReady>(text) else {
        return BTreeSet::new();
    };
    let is_of_another = boot.is_some_and(|boot| !boot.is_empty() && boot != said.boot);
    if is_of_another {
        return BTreeSet::new();
    }
    said.networks.into_iter().map(NetworkName::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written_and_counts_in_its_boot_only() {
        let networks = [NetworkName::default_network(), NetworkName::from("red")];
        let text = underlay_ready("b1", &networks);
        assert_eq!(text, r#"{"boot":"b1","networks":["default","red"]}"#);
        let all: BTreeSet<NetworkName> = networks.into();
        for (boot, counts) in [
            (None, true),
            (Some(""), true),
            (Some("b1"), true),
            (Some("b2"), false),
        ] {
            let wanted = if counts { all.clone() } else { BTreeSet::new() };
            assert_eq!(read(&text, boot), wanted, "{boot:?}");
        }
        for text in ["", "[]", r#"["default"]"#, r#"{"networks":["default"]}"#] {
            assert_eq!(read(text, None), BTreeSet::new(), "{text}");
        }
    }
}
