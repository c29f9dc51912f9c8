//! Label selectors as Kubernetes evaluates them.
//! In: a selector and labels. Out: match or not. Invariant: an empty selector matches everything.
//! Not here: field selectors.

use std::collections::BTreeMap;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// `metav1.LabelSelector`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// All of these must be there with these values.
    pub match_labels: Labels,
    /// And all of these must hold.
    pub match_expressions: Vec<Requirement>,
}

/// One `matchExpressions` entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// What is asked of it.
    pub operator: Operator,
    /// For `In` and `NotIn`; not looked at otherwise.
    pub values: Vec<String>,
}

/// Operators of `matchExpressions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// The label is there with one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl LabelSelector {
    /// A selector for one label.
    #[must_use]
    pub fn label(key: &str, value: &str) -> Self {
        Self {
            match_labels: Labels::from([(key.to_owned(), value.to_owned())]),
            match_expressions: Vec::new(),
        }
    }

    /// True where nothing is asked, so that everything matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Whether an object with these labels is selected.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|r| r.matches(labels))
    }
}

impl Requirement {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.contains(v)),
            Operator::NotIn => value.is_none_or(|v| !self.values.contains(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests;
