//! What caches keep of objects.
//! In: objects without their Rust type. Out: what passes look at. Invariant: one that cannot be read is there, with the reason.
//! Not here: the fields (`api`).

use api::frr_state::BGPSessionState;
use api::route_advertisements::{RouteAdvertisements, RouteAdvertisementsStatus};
use api::user_defined_network::NetworkStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::DynamicObject;
use model::frr::Source;
use model::{ObjectKey, intent};
use plan_cluster::sessions::End;
use serde_json::Value;

use super::{Advertisement, ExistingCondition, UserNetwork};

/// A session of the default VRF; frr-k8s writes IPv6 addresses whole, with dashes for colons.
pub(super) fn session(object: &DynamicObject) -> Option<End> {
    let typed: BGPSessionState = object.clone().try_parse().ok()?;
    let status = typed.status?;
    if !matches!(status.vrf.as_deref(), None | Some("" | "default")) {
        return None;
    }
    let peer = status.peer?;
    Some(End {
        node: status.node?.into(),
        peer: peer
            .parse()
            .or_else(|_| peer.replace('-', ":").parse())
            .ok()?,
        state: status.bgp_status?,
    })
}

pub(crate) fn frr(object: &DynamicObject) -> Source {
    let mut source = api::decode_source(key_of(object), api::read_source(object));
    if source.object.is_err() {
        source.remains = api::remains(object);
    }
    source
}

fn key_of(object: &DynamicObject) -> ObjectKey {
    ObjectKey::new(
        object.metadata.namespace.clone().unwrap_or_default(),
        object.metadata.name.clone().unwrap_or_default(),
    )
}

pub(super) fn advertisement(object: &DynamicObject) -> Advertisement {
    let typed = object.clone().try_parse::<RouteAdvertisements>();
    let status = serde_json::from_value::<RouteAdvertisementsStatus>(status_of(object));
    let status = status.unwrap_or_default();
    Advertisement {
        spec: match &typed {
            Ok(typed) => intent::RouteAdvertisements::try_from(typed),
            Err(err) => Err(format!("the object cannot be read: {err}")),
        },
        labels: object.metadata.labels.clone().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or(0),
        status: status.status.unwrap_or_default(),
        conditions: status.conditions.into_iter().map(existing).collect(),
    }
}

/// Read by itself: of an object whose spec cannot be read it is known what is said of that.
fn status_of(object: &DynamicObject) -> Value {
    object.data.get("status").cloned().unwrap_or_default()
}

fn existing(condition: Condition) -> ExistingCondition {
    ExistingCondition {
        status: condition.status == "True",
        kind: condition.type_,
        reason: condition.reason,
        message: condition.message,
        generation: condition.observed_generation.unwrap_or(0),
        since: condition.last_transition_time.0.to_string(),
    }
}

/// `beside`: OVN-Kubernetes builds the networks.
pub(super) fn cudn(object: &DynamicObject, beside: bool) -> UserNetwork {
    let spec = api::read_cudn(object);
    let status = serde_json::from_value::<NetworkStatus>(status_of(object)).unwrap_or_default();
    UserNetwork {
        generation: object.metadata.generation.unwrap_or(0),
        spec: if beside { spec.beside() } else { spec },
        conditions: status.conditions.into_iter().map(existing).collect(),
    }
}

#[cfg(test)]
mod tests;
