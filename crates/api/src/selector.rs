//! Label selectors between Kubernetes' type and the model's.
//! In and out: both types. Invariant: an unknown operator is an error that names it.
//! Not here: matching (`model::selector`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector as KubeSelector, LabelSelectorRequirement,
};
use model::selector::{LabelSelector, Operator, Requirement};

/// Reads a selector.
///
/// # Errors
/// A sentence that names the operator or key that is not allowed.
pub fn decode(selector: &KubeSelector) -> Result<LabelSelector, String> {
    let match_expressions = selector
        .match_expressions
        .iter()
        .flatten()
        .map(|r| {
            let operator = match r.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(format!(
                        "matchExpressions operator {other:?} is not one of In, NotIn, Exists, DoesNotExist"
                    ));
                }
            };
            let values = r.values.clone().unwrap_or_default();
            if matches!(operator, Operator::In | Operator::NotIn) && values.is_empty() {
                return Err(format!("matchExpressions of key {:?} needs values with {}", r.key, r.operator));
            }
            Ok(Requirement {
                key: r.key.clone(),
                operator,
                values,
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(LabelSelector {
        match_labels: selector.match_labels.clone().unwrap_or_default(),
        match_expressions,
    })
}

/// Writes a selector.
#[must_use]
pub fn encode(selector: &LabelSelector) -> KubeSelector {
    let expressions: Vec<_> = selector
        .match_expressions
        .iter()
        .map(|r| LabelSelectorRequirement {
            key: r.key.clone(),
            operator: match r.operator {
                Operator::In => "In",
                Operator::NotIn => "NotIn",
                Operator::Exists => "Exists",
                Operator::DoesNotExist => "DoesNotExist",
            }
            .to_owned(),
            values: (!r.values.is_empty()).then(|| r.values.clone()),
        })
        .collect();
    KubeSelector {
        match_labels: (!selector.match_labels.is_empty()).then(|| selector.match_labels.clone()),
        match_expressions: (!expressions.is_empty()).then_some(expressions),
    }
}
