//! Label selectors as the API server matches them, on objects as they are stored.
//! In: a selector, labels. Out: whether they match. Invariant: nothing of the product's own selectors is used.
//! Not here: which objects there are.

use serde_json::Value;

/// Whether a `metav1.LabelSelector` matches these labels; an absent one matches everything.
///
/// # Panics
/// On an operator that Kubernetes does not have.
#[must_use]
pub fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels[key].as_str();
    let equal = selector["matchLabels"].as_object();
    let mut equal = equal.into_iter().flatten();
    let rest = selector["matchExpressions"].as_array();
    let mut rest = rest.into_iter().flatten();
    let matches = |requirement: &Value| {
        let value = label(requirement["key"].as_str().unwrap_or_default());
        let values = requirement["values"].as_array();
        let among = || {
            let mut values = values.into_iter().flatten();
            value.is_some_and(|value| values.any(|other| other == value))
        };
        match requirement["operator"].as_str() {
            Some("In") => among(),
            Some("NotIn") => !among(),
            Some("Exists") => value.is_some(),
            Some("DoesNotExist") => value.is_none(),
            other => panic!("{other:?} is no operator"),
        }
    };
    equal.all(|(key, value)| label(key) == value.as_str()) && rest.all(matches)
}
