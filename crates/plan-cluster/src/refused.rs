//! What the API server did not take, in the conditions of a RouteAdvertisements.
//! In: its planned conditions and problems, what was refused. Out: the same with the server's words.
//! Invariant: `Complete` is True only where the API server holds all that was planned.
//! Not here: writing, and when to try again.

use std::collections::BTreeSet;

use model::intent::Condition;
use model::{NodeName, Problem};

/// A write that the API server refused or did not answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// Kind, namespace and name.
    pub object: String,
    /// Whose it is, where it is one node's.
    pub node: Option<NodeName>,
    /// What was tried: apply, delete.
    pub verb: &'static str,
    /// What the server said.
    pub words: String,
}

/// Reason of the condition and of events.
const REASON: &str = "WriteRefused";
/// Characters of the server's words for one object.
const WORDS: usize = 300;
/// Characters of all of them together: a condition holds 32,768.
const MOST: usize = 8000;

/// Puts refusals into `Complete`, and those of objects that are not among `before` into the problems.
#[must_use]
pub fn reported(
    mut conditions: Vec<Condition>,
    mut problems: Vec<Problem>,
    subject: &str,
    refusals: &BTreeSet<Refusal>,
    before: &BTreeSet<String>,
) -> (Vec<Condition>, Vec<Problem>) {
    let list: Vec<String> = refusals.iter().map(sentence).collect();
    let complete = conditions.iter_mut().find(|c| c.kind == "Complete");
    if let Some(complete) = complete.filter(|_| !list.is_empty()) {
        let text = joined(&list);
        if complete.status {
            complete.status = false;
            complete.reason = REASON.to_owned();
            complete.message = text;
        } else {
            complete.message = format!("{text}; {}", complete.message);
        }
        let new = refusals
            .iter()
            .zip(list)
            .filter(|(r, _)| !before.contains(&r.object));
        problems.extend(new.map(|(_, text)| Problem::new(subject, REASON, text)));
    }
    (conditions, problems)
}

fn sentence(refusal: &Refusal) -> String {
    let words: String = refusal.words.chars().take(WORDS).collect();
    let whose = refusal.node.as_ref().map(|n| format!("node {n}: "));
    format!(
        "{}cannot {} {}: {words}",
        whose.unwrap_or_default(),
        refusal.verb,
        refusal.object
    )
}

fn joined(list: &[String]) -> String {
    let mut text = String::new();
    for (at, entry) in list.iter().enumerate() {
        if at > 0 && text.len() + entry.len() > MOST {
            text.push_str(&format!("; and {} more", list.len() - at));
            break;
        }
        if at > 0 {
            text.push_str("; ");
        }
        text.push_str(entry);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(complete: bool) -> Vec<Condition> {
        ["Accepted", "Complete"]
            .map(|kind| Condition {
                kind,
                status: kind == "Accepted" || complete,
                reason: if complete { kind } else { "LeftOut" }.to_owned(),
                message: "as planned".to_owned(),
            })
            .into()
    }

    fn refusal(name: &str, node: Option<&str>) -> Refusal {
        Refusal {
            object: format!("FRRConfiguration ns/{name}"),
            node: node.map(NodeName::from),
            verb: "apply",
            words: "admission webhook denied it".to_owned(),
        }
    }

    #[test]
    fn what_is_refused_is_named_with_node_object_and_the_servers_words() {
        let refusals = [refusal("a", Some("n2")), refusal("b", None)].into();
        for complete in [true, false] {
            let (seen, problems) = reported(
                conditions(complete),
                Vec::new(),
                "RouteAdvertisements/x",
                &refusals,
                &BTreeSet::new(),
            );
            assert!(seen[0].status, "it is as valid as before");
            assert!(!seen[1].status);
            assert_eq!(
                seen[1].reason,
                if complete { "WriteRefused" } else { "LeftOut" }
            );
            for words in [
                "node n2: cannot apply FRRConfiguration ns/a: admission webhook denied it",
                "cannot apply FRRConfiguration ns/b: admission webhook denied it",
            ] {
                assert!(seen[1].message.contains(words), "{}", seen[1].message);
            }
            assert_eq!(seen[1].message.contains("as planned"), !complete);
            assert_eq!(problems.len(), 2);
            let before = ["FRRConfiguration ns/a".to_owned()].into();
            let (again, problems) = reported(
                conditions(complete),
                Vec::new(),
                "RouteAdvertisements/x",
                &refusals,
                &before,
            );
            assert_eq!(again, seen, "the condition names all of them");
            let [problem] = problems.as_slice() else {
                panic!("{problems:?}");
            };
            assert!(problem.message.contains("ns/b"));
        }
    }

    #[test]
    fn nothing_refused_changes_nothing() {
        let seen = reported(
            conditions(true),
            Vec::new(),
            "x",
            &BTreeSet::new(),
            &BTreeSet::new(),
        );
        assert_eq!(seen, (conditions(true), Vec::new()));
    }

    #[test]
    fn a_thousand_refusals_fit_into_a_condition() {
        let long = |n: u32| Refusal {
            words: "x".repeat(9000),
            ..refusal(&n.to_string(), None)
        };
        let refusals = (0..1000).map(long).collect();
        let (seen, _) = reported(
            conditions(false),
            Vec::new(),
            "x",
            &refusals,
            &BTreeSet::new(),
        );
        assert!(seen[1].message.len() < 10_000);
        assert!(seen[1].message.contains(" more; as planned"));
    }
}
