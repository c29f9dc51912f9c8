//! Routing of the default network that an administrator writes: BGP between all nodes.
//!
//! In: a lab with `--routing unmanaged`. Out: a RouteAdvertisements of the default network, and the FRRConfiguration that it selects,
//! with every node as a neighbor; written anew when a node joins or leaves.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::apiserver::kubectl;
use crate::run::until;
use crate::state::Lab;

/// Where FRRConfigurations are.
const NAMESPACE: &str = "frr-k8s-system";
/// Name of both objects, and what selects the one by the other.
const NAME: &str = "all-nodes";

/// Writes the objects, where routing is the administrator's.
///
/// # Errors
/// An API server that takes none.
pub(crate) fn apply(lab: &Lab) -> Result<()> {
    if lab.outward.is_managed() {
        return Ok(());
    }
    for object in [frr_configuration(lab)?, route_advertisements()] {
        let mut last = String::new();
        let done = until(
            Duration::from_secs(20),
            Duration::from_millis(300),
            || match kubectl(lab)
                .args(["apply", "--server-side", "-f", "-"])
                .input(object.to_string())
                .run()
            {
                Ok(_) => Some(()),
                Err(error) => {
                    last = format!("{error:#}");
                    None
                }
            },
        );
        done.with_context(|| format!("routing of the default network: {last}"))?;
    }
    Ok(())
}

/// Each node leaves itself out of its neighbors.
fn frr_configuration(lab: &Lab) -> Result<Value> {
    let as_number = lab.values.as_number;
    let mut neighbors = Vec::new();
    for node in &lab.nodes {
        for family in lab.values.families() {
            neighbors.push(json!({
                "address": lab.values.address_of(node.index, family)?.to_string(),
                "asn": as_number,
                "disableMP": true,
                "toReceive": {"allowed": {"mode": "all"}},
            }));
        }
    }
    Ok(json!({
        "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "FRRConfiguration",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"routing": NAME}},
        "spec": {"bgp": {"routers": [{"asn": as_number, "neighbors": neighbors}]}},
    }))
}

fn route_advertisements() -> Value {
    json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "RouteAdvertisements",
        "metadata": {"name": NAME},
        "spec": {
            "advertisements": ["PodNetwork"],
            "nodeSelector": {},
            "frrConfigurationSelector": {"matchLabels": {"routing": NAME}},
            "networkSelectors": [{"networkSelectionType": "DefaultNetwork"}],
        },
    })
}
