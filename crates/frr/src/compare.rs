//! Whether two texts of frr.conf mean the same, and where they differ.
//! In: texts as we write them, as people write them, as FRR shows its running configuration. Out: differences by context.
//! Invariant: what FRR itself changes when it shows a file that it loaded is no difference; passwords are never compared.
//! Not here: what a line means (FRR), reading the running configuration.

mod parse;

use std::collections::{BTreeMap, BTreeSet};

pub use parse::parse;

/// Context, outermost first (`router bgp 64512`, `address-family ipv4 unicast`) -> its lines.
pub type Config = BTreeMap<Vec<String>, BTreeSet<String>>;

/// One context in which the two differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Outermost first; empty is the top of the file.
    pub context: Vec<String>,
    /// The context itself is in the first text only (`Some(true)`), in the second only (`Some(false)`), or in both.
    pub only: Option<bool>,
    /// Lines of the first text only.
    pub minus: Vec<String>,
    /// Lines of the second text only.
    pub plus: Vec<String>,
}

/// Differences between two texts; none where they mean the same.
#[must_use]
pub fn compare(first: &str, second: &str) -> Vec<Difference> {
    let (first, second) = (parse(first), parse(second));
    let contexts: BTreeSet<&Vec<String>> = first.keys().chain(second.keys()).collect();
    let none = BTreeSet::new();
    let mut out = Vec::new();
    for context in contexts {
        let only = match (first.contains_key(context), second.contains_key(context)) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            _ => None,
        };
        let a = first.get(context).unwrap_or(&none);
        let b = second.get(context).unwrap_or(&none);
        if only.is_some() || a != b {
            out.push(Difference {
                context: context.clone(),
                only,
                minus: a.difference(b).cloned().collect(),
                plus: b.difference(a).cloned().collect(),
            });
        }
    }
    out
}

/// The differences for people: `-` and `+` lines under their context.
#[must_use]
pub fn unified(differences: &[Difference]) -> String {
    let mut out = String::new();
    let mut shown: Vec<String> = Vec::new();
    for difference in differences {
        for (depth, word) in difference.context.iter().enumerate() {
            if shown.get(depth) == Some(word) {
                continue;
            }
            shown.truncate(depth);
            shown.push(word.clone());
            let last = depth + 1 == difference.context.len();
            let mark = match difference.only {
                Some(true) if last => '-',
                Some(false) if last => '+',
                _ => ' ',
            };
            out.push_str(&format!("{mark}{}{word}\n", " ".repeat(depth)));
        }
        shown.truncate(difference.context.len());
        let margin = " ".repeat(difference.context.len());
        for (mark, lines) in [('-', &difference.minus), ('+', &difference.plus)] {
            for line in lines {
                out.push_str(&format!("{mark}{margin}{line}\n"));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
