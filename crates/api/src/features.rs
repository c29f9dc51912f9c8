//! Objects of features that work by the overlay: what each of them is about.
//! In: objects as JSON; their kinds are OVN-Kubernetes' and need not be installed. Out: the networks or namespaces that they reach.
//! Invariant: whatever does not have the shape of its kind is unreadable, with the field.
//! Not here: what the features do.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as KubeSelector;
use model::LabelSelector;
use model::user_network::Reach;
use serde_json::Value;

use crate::selector;

/// A `k8s.ovn.org/v1` EgressService: it is about the pods of its own namespace.
#[must_use]
pub fn egress_service(object: &Value) -> Reach {
    match object
        .pointer("/metadata/namespace")
        .and_then(Value::as_str)
    {
        Some(namespace) => Reach::Namespace(namespace.to_owned()),
        None => Reach::Unreadable("metadata.namespace is missing".to_owned()),
    }
}

/// A `k8s.ovn.org/v1` AdminPolicyBasedExternalRoute: `spec.from.namespaceSelector`.
#[must_use]
pub fn external_route(object: &Value) -> Reach {
    let read = selector_at(object, "/spec/from/namespaceSelector");
    match read {
        Ok(Some(selector)) => Reach::Namespaces(selector),
        Ok(None) => Reach::Unreadable("spec.from.namespaceSelector is missing".to_owned()),
        Err(why) => Reach::Unreadable(why),
    }
}

/// A `k8s.ovn.org/v1` ClusterNetworkConnect: `spec.networkSelectors`. UserDefinedNetworks always have the overlay.
#[must_use]
pub fn network_connect(object: &Value) -> Reach {
    let Some(list) = object
        .pointer("/spec/networkSelectors")
        .and_then(Value::as_array)
    else {
        return Reach::Unreadable("spec.networkSelectors is missing".to_owned());
    };
    let path = "/clusterUserDefinedNetworkSelector/networkSelector";
    let selectors: Result<Vec<Option<LabelSelector>>, String> =
        list.iter().map(|item| selector_at(item, path)).collect();
    match selectors {
        Ok(selectors) => Reach::Networks(selectors.into_iter().flatten().collect()),
        Err(why) => Reach::Unreadable(why),
    }
}

fn selector_at(object: &Value, path: &str) -> Result<Option<LabelSelector>, String> {
    let Some(value) = object.pointer(path).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let name = path.trim_start_matches('/').replace('/', ".");
    let typed: KubeSelector =
        serde_json::from_value(value.clone()).map_err(|err| format!("{name}: {err}"))?;
    let decoded = selector::decode(&typed).map_err(|err| format!("{name}: {err}"))?;
    Ok(Some(decoded))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_says_what_it_is_about_or_which_field_is_wrong() {
        let service = json!({"metadata": {"namespace": "shop", "name": "web"}});
        assert_eq!(
            egress_service(&service),
            Reach::Namespace("shop".to_owned())
        );
        let labels = json!({"matchLabels": {"tenant": "red"}});
        let red = LabelSelector::label("tenant", "red");
        let route = json!({"spec": {"from": {"namespaceSelector": labels}}});
        assert_eq!(external_route(&route), Reach::Namespaces(red.clone()));
        let connect = json!({"spec": {"networkSelectors": [
            {"networkSelectionType": "ClusterUserDefinedNetworks", "clusterUserDefinedNetworkSelector": {"networkSelector": labels}},
            {"networkSelectionType": "PrimaryUserDefinedNetworks", "primaryUserDefinedNetworkSelector": {"namespaceSelector": {}}},
        ]}});
        assert_eq!(network_connect(&connect), Reach::Networks(vec![red]));
        let wrong = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
        for (reach, field) in [
            (egress_service(&json!({})), "metadata.namespace"),
            (
                external_route(&json!({})),
                "spec.from.namespaceSelector is missing",
            ),
            (
                external_route(&json!({"spec": {"from": {"namespaceSelector": wrong}}})),
                "spec.from.namespaceSelector: ",
            ),
            (
                external_route(&json!({"spec": {"from": {"namespaceSelector": 7}}})),
                "spec.from.namespaceSelector: ",
            ),
            (
                network_connect(&json!({"spec": {}})),
                "spec.networkSelectors",
            ),
            (
                network_connect(
                    &json!({"spec": {"networkSelectors": [{"clusterUserDefinedNetworkSelector": {"networkSelector": wrong}}]}}),
                ),
                "clusterUserDefinedNetworkSelector.networkSelector: ",
            ),
        ] {
            let Reach::Unreadable(why) = reach else {
                panic!("{field}: {reach:?}");
            };
            assert!(why.starts_with(field), "{why}");
        }
    }
}
