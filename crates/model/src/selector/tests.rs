//! Every operator, with and without the label.

use super::*;

#[test]
fn every_operator_matches_as_kubernetes_says() {
    let labels = Labels::from([("a".to_owned(), "1".to_owned())]);
    let check = |key: &str, operator, values: &[&str]| {
        LabelSelector {
            match_labels: Labels::new(),
            match_expressions: vec![Requirement {
                key: key.to_owned(),
                operator,
                values: values.iter().map(|v| (*v).to_owned()).collect(),
            }],
        }
        .matches(&labels)
    };
    assert!(check("a", Operator::In, &["1", "2"]));
    assert!(!check("a", Operator::In, &["2"]));
    assert!(!check("b", Operator::In, &["1"]));
    assert!(check("b", Operator::NotIn, &["1"]));
    assert!(!check("a", Operator::NotIn, &["1"]));
    assert!(check("a", Operator::Exists, &[]));
    assert!(!check("b", Operator::Exists, &[]));
    assert!(check("b", Operator::DoesNotExist, &[]));
    assert!(!check("a", Operator::DoesNotExist, &[]));
    assert!(LabelSelector::default().matches(&labels));
    assert!(LabelSelector::label("a", "1").matches(&labels));
    assert!(!LabelSelector::label("a", "2").matches(&labels));
}
