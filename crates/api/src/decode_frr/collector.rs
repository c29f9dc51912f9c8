//! Problems of one object while it is read.
//! In: fields with their paths. Out: values, or a problem that names object and field. Invariant: a password is in no message.
//! Not here: which fields there are.

use model::{Asn, Prefix, Problem};

use crate::duration;

/// What is said of a text with a control character in it.
const CONTROL: &str =
    "the text contains a control character (a line break, a tab, ...); none is allowed";

/// Collects problems of one object, each with the field's path.
pub(super) struct Collector {
    pub(super) subject: String,
    pub(super) problems: Vec<Problem>,
}

impl Collector {
    pub(super) fn add(&mut self, field: &str, message: impl std::fmt::Display) {
        let text = format!("{} field {field}: {message}", self.subject);
        self.problems
            .push(Problem::new(self.subject.clone(), "ConversionFailed", text));
    }

    pub(super) fn take<T, E: std::fmt::Display>(
        &mut self,
        field: &str,
        result: Result<T, E>,
    ) -> Option<T> {
        result.map_err(|err| self.add(field, err)).ok()
    }

    /// A text that becomes part of a line: a control character would end the line, and what follows be one of its own.
    pub(super) fn word(&mut self, field: &str, text: Option<&String>) -> Option<String> {
        let text = text.filter(|text| !text.is_empty())?;
        if text.chars().any(char::is_control) {
            // The text itself stays unsaid: it may be a password.
            self.add(field, CONTROL);
            return None;
        }
        Some(text.clone())
    }

    pub(super) fn prefixes(&mut self, field: &str, list: Option<&Vec<String>>) -> Vec<Prefix> {
        list.into_iter()
            .flatten()
            .filter_map(|text| self.take(field, text.parse()))
            .collect()
    }

    pub(super) fn asn(&mut self, field: &str, number: i64) -> Option<Asn> {
        self.take(field, Asn::try_from(number))
    }

    pub(super) fn seconds(&mut self, field: &str, text: Option<&String>) -> Option<u64> {
        text.and_then(|text| self.take(field, duration::seconds(text)))
    }

    pub(super) fn number(&mut self, field: &str, value: Option<i32>) -> Option<u32> {
        value.and_then(|n| {
            self.take(
                field,
                u32::try_from(n).map_err(|_| format!("{n} is negative")),
            )
        })
    }
}
