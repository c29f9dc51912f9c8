//! Whether frr-k8s writes FRR on this node, too: two writers of one FRR would undo each other for ever.
//! In: the node's FRRNodeState, read once at the start and watched from then on. Out: yes or no.
//! Invariant: only frr-k8s counts; whoever annotates or edits the object does not.
//! Not here: what follows (`lib`, `configuration`, `report`, `sessions`).

use std::time::Duration;

use anyhow::bail;
use api::frr_state::FRRNodeState;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_edge::Cache;
use model::{NodeName, ObjectKey};

use crate::caches::State;

/// The field manager of frr-k8s's controller: the API server takes the name of the program, which is `/frr-k8s` in its image.
const FRR_K8S: &str = "frr-k8s";

/// Whether frr-k8s has written the object.
pub(crate) fn is_of_frr_k8s(metadata: &ObjectMeta) -> bool {
    let managers = metadata.managed_fields.iter().flatten();
    managers
        .filter_map(|entry| entry.manager.as_deref())
        .any(|manager| manager == FRR_K8S)
}

/// What is to be done about it.
pub(crate) fn words(node: &str) -> String {
    format!(
        "FRRNodeState {node} is written by {FRR_K8S:?}: frr-k8s manages FRR on this node; remove it from the node, or this agent (and delete the FRRNodeState that it left)"
    )
}

/// An API server that does not answer is no reason to stay away: the node's last good configuration has to be looked after.
///
/// # Errors
/// When frr-k8s manages FRR on the node.
pub(crate) async fn refuse(client: &kube::Client, node: &str) -> anyhow::Result<()> {
    let api: kube::Api<FRRNodeState> = kube::Api::all(client.clone());
    let asked = tokio::time::timeout(Duration::from_secs(5), api.get_opt(node)).await;
    if let Ok(Ok(Some(state))) = asked
        && is_of_frr_k8s(&state.metadata)
    {
        bail!(words(node));
    }
    Ok(())
}

/// The same question while the agent runs; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Beside {
    node: NodeName,
    state: Cache<State>,
}

impl Beside {
    pub(crate) fn new(node: NodeName, state: Cache<State>) -> Self {
        Self { node, state }
    }

    /// False as long as it is not known.
    pub(crate) fn frr_k8s(&self) -> bool {
        let key = ObjectKey::new("", self.node.as_str());
        self.state
            .with(|map| map.get(&key).is_some_and(|e| e.value.of_frr_k8s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(managers: &[&str]) -> ObjectMeta {
        let fields: Vec<_> = managers
            .iter()
            .map(|m| serde_json::json!({"manager": m, "operation": "Update"}))
            .collect();
        serde_json::from_value(serde_json::json!({"name": "n1", "managedFields": fields})).unwrap()
    }

    #[test]
    fn frr_k8s_is_known_by_its_name_and_nobody_else_is_taken_for_it() {
        assert!(is_of_frr_k8s(&by(&["noverlay-frr-agent", "frr-k8s"])));
        for others in [
            &["noverlay-frr-agent", "kubectl-annotate"][..],
            &["kubectl-edit", "kubectl-client-side-apply", "argocd"],
            &[],
        ] {
            assert!(!is_of_frr_k8s(&by(others)), "{others:?}");
        }
        assert!(!is_of_frr_k8s(&ObjectMeta::default()));
    }
}
