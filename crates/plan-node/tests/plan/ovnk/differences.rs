//! The list of what differs on purpose between our plans and nodes of OVN-Kubernetes.
//! In: `differences.txt`. Out: whether a difference is listed, which lines are not true any more.
//! Invariant: each line is below a phrase of decision 0012, each pattern of its cases has a case with such a difference, and no
//! `missing` line covers what both have.
//! Not here: finding differences.
//!
//! ```text
//!  # a comment
//!  > phrase of the decision
//!  missing  CASES  ATOM      the recorded node has it, our plan has not
//!  extra    CASES  ATOM      our plan has it, the recorded node has not
//!  filtered *      ATOM      left out of the data files, whoever held it
//! ```
//! `CASES` are names of cases with commas between them; `*` in a case or an atom stands for any text.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use super::atoms::Atoms;

/// Who has what the other has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The recorded node.
    Missing,
    /// Our plan.
    Extra,
    /// Whoever had it: the data files are without.
    Filtered,
}

/// An atom that one side alone has.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) side: Side,
    pub(crate) case: String,
    pub(crate) atom: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Missing => "missing",
            Side::Extra => "extra",
            Side::Filtered => "filtered",
        };
        write!(f, "{side} {} {}", self.case, self.atom)
    }
}

struct Line {
    side: Side,
    /// Patterns, each with the cases in which the line was needed.
    cases: Vec<(String, BTreeSet<String>)>,
    atom: String,
    text: String,
}

/// The list.
pub(crate) struct Differences {
    lines: Vec<Line>,
    reasons: Vec<String>,
}

impl Differences {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Self {
        Self::parse(&std::fs::read_to_string(path).unwrap())
    }

    fn parse(text: &str) -> Self {
        let (mut lines, mut reasons) = (Vec::new(), Vec::new());
        let mut awaits = false;
        let content = text.lines().filter(|line| !line.starts_with('#'));
        for line in content.filter(|line| !line.is_empty()) {
            if let Some(reason) = line.strip_prefix("> ") {
                assert!(!awaits, "{line}: the reason before it has no line");
                awaits = true;
                reasons.push(reason.to_owned());
                continue;
            }
            assert!(!reasons.is_empty(), "{line}: it has no reason");
            awaits = false;
            let mut words = line.splitn(3, ' ');
            let (side, cases, atom) = (words.next(), words.next(), words.next());
            let side = match side {
                Some("missing") => Side::Missing,
                Some("extra") => Side::Extra,
                Some("filtered") => Side::Filtered,
                _ => panic!("{line}"),
            };
            let cases = cases.unwrap().split(',');
            lines.push(Line {
                side,
                cases: cases.map(|c| (c.to_owned(), BTreeSet::new())).collect(),
                atom: atom.unwrap().to_owned(),
                text: line.to_owned(),
            });
        }
        Self { lines, reasons }
    }

    /// Whether a line lists it; all that do are needed then.
    pub(crate) fn explain(&mut self, difference: &Difference) -> bool {
        let mut found = false;
        for line in &mut self.lines {
            if line.side != difference.side || !matches(&line.atom, &difference.atom) {
                continue;
            }
            for (pattern, cases) in &mut line.cases {
                if matches(pattern, &difference.case) {
                    cases.insert(difference.case.clone());
                    found = true;
                }
            }
        }
        found
    }

    /// What stands in a data file although a line says that it is left out.
    pub(crate) fn filtered_atoms(&self, case: &str, rows: &Atoms) -> Vec<String> {
        let mut found = Vec::new();
        let filters = self.lines.iter().filter(|line| line.side == Side::Filtered);
        for line in filters {
            for (row, atoms) in rows {
                let atoms = atoms.iter().map(|atom| format!("{row} -> {atom}"));
                let left = atoms.filter(|atom| matches(&line.atom, atom));
                found.extend(left.map(|atom| format!("not filtered {case} {atom}")));
            }
        }
        found
    }

    /// Lines that would list as missing what is on both sides: the plan could lose it unseen.
    pub(crate) fn too_broad(&self, case: &str, equal: &BTreeSet<String>) -> Vec<String> {
        let of_case = |line: &&Line| {
            let mut cases = line.cases.iter();
            line.side == Side::Missing && cases.any(|(pattern, _)| matches(pattern, case))
        };
        let mut found = Vec::new();
        for line in self.lines.iter().filter(of_case) {
            let covered = equal.iter().filter(|atom| matches(&line.atom, atom));
            found.extend(covered.map(|atom| format!("too broad {case} {atom}: {}", line.text)));
        }
        found
    }

    /// Lines that list nothing in one of the cases that they name.
    pub(crate) fn stale(&self) -> Vec<String> {
        let lines = self.lines.iter().filter(|line| line.side != Side::Filtered);
        lines
            .flat_map(|line| {
                let unused = line.cases.iter().filter(|(_, cases)| cases.is_empty());
                unused.map(|(pattern, _)| format!("stale for {pattern}: {}", line.text))
            })
            .collect()
    }

    /// Phrases that a text does not hold.
    pub(crate) fn reasons_that_are_not_in(&self, text: &str) -> Vec<&str> {
        let reasons = self.reasons.iter().map(String::as_str);
        reasons.filter(|reason| !text.contains(reason)).collect()
    }
}

/// Whether a text is what a pattern says, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[test]
fn lines_that_are_not_true_and_lines_that_hide_something_are_told() {
    let mut listed = Differences::parse("> why\nmissing a*,b Row -> *\nfiltered * Other -> *\n");
    let difference = |side, case: &str| Difference {
        side,
        case: case.to_owned(),
        atom: "Row -> x = 1".to_owned(),
    };
    assert!(listed.explain(&difference(Side::Missing, "a1")));
    assert!(!listed.explain(&difference(Side::Extra, "a1")));
    assert!(!listed.explain(&difference(Side::Missing, "c")));
    let stale = ["stale for b: missing a*,b Row -> *"];
    assert_eq!(listed.stale(), stale);
    let equal = ["Row -> x = 1".to_owned()].into();
    let broad = ["too broad b Row -> x = 1: missing a*,b Row -> *"];
    assert_eq!(listed.too_broad("b", &equal), broad);
    assert!(listed.too_broad("c", &equal).is_empty());
    let rows = Atoms::from([("Other".to_owned(), ["y = 2".to_owned()].into())]);
    let left = ["not filtered a1 Other -> y = 2"];
    assert_eq!(listed.filtered_atoms("a1", &rows), left);
    assert_eq!(listed.reasons_that_are_not_in("who"), ["why"]);
}

#[test]
fn a_star_is_any_text() {
    assert!(matches("a*c*", "abcd"));
    assert!(matches("*b", "ab") && matches("a", "a") && matches("*", ""));
    assert!(!matches("a*c", "abcd") && !matches("ab", "abc") && !matches("*ab*ba*", "aba"));
}
