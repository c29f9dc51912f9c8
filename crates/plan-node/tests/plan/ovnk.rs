//! Plans beside real nodes of OVN-Kubernetes, for the same networks, Nodes and Services: what differs on purpose is listed, and argued.
//! In: `tests/ovnk/<case>.rows`, what a node was given and what it then held; `tests/ovnk/differences.txt`; decision 0012.
//! Out: a failed test that names each difference that is not listed, and each line of the list that is not true.
//! Invariant: what is expected comes from the data files alone. Not here: how a plan is said in their notation (`ovnk::atoms`).
//!
//! ```text
//!  given FACT           what the node was given (`ovnk::given`)
//!  KIND NAME            a row of a database (KIND is its table), an entry of the kernel, a set or chain of nftables, a flow, the Node
//!    COLUMN = VALUE     one for each element of a set, for each entry of a map (COLUMN:KEY = VALUE), for the annotations of the Node;
//!                       none for what the schema gives a column of itself (empty, 0, false); a reference is KIND NAME
//!
//!  NAME of what hangs on a router or switch: PARENT/...     port: its name         NAT: TYPE LOGICAL_IP[ to SET], the second of one name (2)
//!  static route: [src ]PREFIX via NEXTHOP                   policy: PRIORITY MATCH          ACL: DIRECTION PRIORITY MATCH
//!  Route: TABLE PREFIX[ unreachable]     Rule: FAMILY PREFERENCE SELECTOR     Flow: table T priority P MATCH, ports by number
//! ```

mod atoms;
mod differences;
mod given;

use std::collections::BTreeSet;
use std::path::Path;

use plan_node::check;

use atoms::Atoms;
use differences::{Difference, Differences, Side};
use given::Given;

const FOLDER: &str = "tests/ovnk";

/// A recorded node.
struct Case {
    name: String,
    given: Given,
    rows: Atoms,
}

impl Case {
    /// A data file: lines of what was given, then a line for each row, with its atoms indented below it.
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let (mut given, mut rows) = (Given::default(), Atoms::new());
        let mut row: Option<&mut BTreeSet<String>> = None;
        for line in text.lines() {
            if let Some(fact) = line.strip_prefix("given ") {
                given.take(fact);
            } else if let Some(atom) = line.strip_prefix("  ") {
                let atoms = row.as_mut().expect("an atom stands below its row");
                assert!(atoms.insert(atom.to_owned()), "{line} stands twice");
            } else {
                let fresh = !rows.contains_key(line);
                assert!(fresh, "{}: {line} stands twice", path.display());
                row = Some(rows.entry(line.to_owned()).or_default());
            }
        }
        Self {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            given,
            rows,
        }
    }

    /// What is on one side alone, and what is on both.
    fn compare(&self) -> (Vec<Difference>, BTreeSet<String>) {
        let snapshot = self.given.snapshot();
        let plan = plan_node::plan(&snapshot);
        assert_eq!(check::plan(&snapshot, &plan), [], "{}", self.name);
        let planned = atoms::of(&snapshot, &plan, &self.given.bgp);
        let all = |rows: &Atoms| -> BTreeSet<String> {
            let of = |(row, atoms): (&String, &BTreeSet<String>)| -> Vec<String> {
                let atoms = atoms.iter();
                atoms.map(|atom| format!("{row} -> {atom}")).collect()
            };
            rows.iter().flat_map(of).collect()
        };
        let (recorded, planned) = (all(&self.rows), all(&planned));
        let of = |side, atom: &String| Difference {
            side,
            case: self.name.clone(),
            atom: atom.clone(),
        };
        let missing = recorded.difference(&planned);
        let missing = missing.map(|atom| of(Side::Missing, atom));
        let extra = planned.difference(&recorded);
        let extra = extra.map(|atom| of(Side::Extra, atom));
        let equal = recorded.intersection(&planned).cloned().collect();
        (missing.chain(extra).collect(), equal)
    }
}

fn cases() -> Vec<Case> {
    let files = std::fs::read_dir(FOLDER).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|end| end == "rows"))
        .collect();
    files.sort();
    files.iter().map(|path| Case::read(path)).collect()
}

fn listed() -> Differences {
    Differences::read(&Path::new(FOLDER).join("differences.txt"))
}

#[test]
fn plans_hold_what_nodes_of_ovn_kubernetes_hold_but_for_what_is_listed() {
    let cases = cases();
    assert_eq!(cases.len(), 14);
    let mut listed = listed();
    let mut wrong = Vec::new();
    for case in &cases {
        wrong.extend(listed.filtered_atoms(&case.name, &case.rows));
        let (differences, equal) = case.compare();
        println!(
            "{}: {} atoms recorded, {} of them planned, {} differences",
            case.name,
            case.rows.values().map(BTreeSet::len).sum::<usize>(),
            equal.len(),
            differences.len()
        );
        for difference in differences {
            if !listed.explain(&difference) {
                wrong.push(difference.to_string());
            }
        }
        wrong.extend(listed.too_broad(&case.name, &equal));
    }
    wrong.extend(listed.stale());
    assert!(
        wrong.is_empty(),
        "{}\n{} in all",
        wrong.join("\n"),
        wrong.len()
    );
}

#[test]
fn each_reason_is_a_phrase_of_the_decision() {
    let listed = listed();
    let decision = std::fs::read_to_string("../../docs/decisions/0012-networks-on-a-node.md");
    let absent = listed.reasons_that_are_not_in(&decision.unwrap());
    assert!(absent.is_empty(), "not in 0012: {absent:#?}");
}

/// The comparison fails where it should.
#[test]
fn a_value_that_changed_is_two_differences_that_no_line_lists() {
    let mut case = cases().swap_remove(0);
    let known: BTreeSet<String> = case.compare().0.iter().map(ToString::to_string).collect();
    let row = case
        .rows
        .get_mut("Logical_Router_Port GR_n1/rtoj-GR_n1")
        .unwrap();
    let mac = row
        .iter()
        .find(|atom| atom.starts_with("mac = "))
        .unwrap()
        .clone();
    row.remove(&mac);
    row.insert("mac = 02:00:00:00:00:01".to_owned());
    let now = case.compare().0.into_iter().map(|d| d.to_string());
    let fresh: Vec<String> = now.filter(|text| !known.contains(text)).collect();
    assert_eq!(fresh.len(), 2, "{fresh:#?}");
    let mut listed = listed();
    let unlisted = case.compare().0.into_iter().filter(|d| !listed.explain(d));
    assert_eq!(unlisted.count(), 2);
}
