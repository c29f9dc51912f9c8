//! What our renderer writes makes a real FRR run what frr-k8s made it run, and what frr-k8s refuses is refused.
//! In: the recorded cases under `cases/`. Out: differences, all of them at once.
//! Invariant: an error case is about the same object, field and values; its wording is ours.
//! Not here: single rules of the merge (tests of `frr`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test program: whatever is unexpected ends it"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use api::frr_configuration::FRRConfiguration;
use frr::{NodeInput, merge, render};
use frr_tests::{Frr, cases, missing};
use model::frr::FrrConfiguration;
use model::names::NodeName;
use model::problem::Problem;
use model::selector::Labels;

/// The refused cases and what the refusal has to name.
const REFUSED: [(&str, &[&str]); 9] = [
    (
        "error-bfd-profile-missing",
        &["frr-k8s-system/c1", "172.31.9.2", "bfdProfile", "nope"],
    ),
    (
        "error-hold-time-one-side",
        &[
            "frr-k8s-system/c1",
            "frr-k8s-system/c2",
            "172.31.9.2",
            "holdTime",
            "9s",
        ],
    ),
    (
        "error-import-undefined",
        &["frr-k8s-system/c1", "imports", "red"],
    ),
    (
        "error-local-pref-twice",
        &[
            "frr-k8s-system/c1",
            "frr-k8s-system/c2",
            "172.31.9.2",
            "withLocalPref",
            "10.128.1.0/24",
            "100",
            "200",
        ],
    ),
    (
        "error-neighbor-asn",
        &[
            "frr-k8s-system/c1",
            "frr-k8s-system/c2",
            "172.31.9.2",
            "asn",
            "64512",
            "65001",
        ],
    ),
    (
        "error-prefix-of-other-object",
        &[
            "frr-k8s-system/c2",
            "172.31.9.2",
            "toAdvertise",
            "10.128.1.0/24",
        ],
    ),
    (
        "error-router-id-twice",
        &[
            "frr-k8s-system/c1",
            "frr-k8s-system/c2",
            "id",
            "1.1.1.1",
            "2.2.2.2",
        ],
    ),
    (
        "error-two-asn-one-vrf",
        &[
            "frr-k8s-system/c1",
            "frr-k8s-system/c2",
            "asn",
            "64512",
            "64513",
        ],
    ),
    (
        "error-v6-prefix-to-v4-neighbor",
        &[
            "frr-k8s-system/c1",
            "172.31.9.2",
            "toAdvertise",
            "fd00:10:128:1::/64",
            "ipv4",
        ],
    ),
];

/// The frr.conf of node fn1 for a case, or every problem as text.
fn rendered(case: &Path) -> Result<String, Vec<String>> {
    let yaml = fs::read_to_string(case.join("input.yaml")).unwrap();
    let objects: Vec<FRRConfiguration> =
        serde_saphyr::from_multiple(&yaml).expect("input.yaml holds FRRConfigurations");
    let decoded: Vec<Arc<FrrConfiguration>> = objects
        .iter()
        .map(|object| FrrConfiguration::try_from(object).map(Arc::new))
        .collect::<Result<_, _>>()
        .map_err(|problems: Vec<Problem>| texts(&problems))?;
    let labels = Labels::from([("kubernetes.io/hostname".to_owned(), "fn1".to_owned())]);
    let config = merge(&NodeInput {
        name: NodeName::from("fn1"),
        labels: &labels,
        hostname: "fn1".to_owned(),
        objects: &decoded,
        passwords: &BTreeMap::new(),
    })
    .map_err(|problems| texts(&problems))?;
    Ok(render(&config))
}

fn texts(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn name_of(case: &Path) -> String {
    case.file_name().unwrap().to_string_lossy().into_owned()
}

/// The running configuration that is wanted, or `None` for a case that is refused.
fn wanted(case: &Path) -> Option<Vec<String>> {
    let text = fs::read_to_string(case.join("running.conf")).ok()?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    Some(lines.map(str::to_owned).collect())
}

#[test]
fn what_frr_k8s_refuses_is_refused_and_the_same_things_are_named() {
    let refused: Vec<String> = cases()
        .unwrap()
        .iter()
        .filter(|case| case.join("error.txt").exists())
        .map(|case| name_of(case))
        .collect();
    assert_eq!(refused, REFUSED.map(|(name, _)| name));
    for case in cases().unwrap() {
        let name = name_of(&case);
        let Some((_, words)) = REFUSED.iter().find(|(refused, _)| *refused == name) else {
            assert!(rendered(&case).is_ok(), "{name}: {:?}", rendered(&case));
            continue;
        };
        let problems = rendered(&case).expect_err(&name);
        let named = |problem: &String| words.iter().all(|word| problem.contains(word));
        assert!(
            problems.iter().any(named),
            "{name}: none of {problems:?} names all of {words:?}"
        );
    }
}

#[test]
fn a_real_frr_runs_what_frr_k8s_makes_it_run() {
    let missing = missing();
    if !missing.is_empty() {
        assert!(
            std::env::var_os("REQUIRE_TOOLS").is_none_or(|value| value != "1"),
            "not on this machine: {missing:?}"
        );
        eprintln!("skipped: not on this machine: {missing:?}");
        return;
    }
    let mut failures = Vec::new();
    let mut compared = 0_u32;
    let mut frr = Frr::start().unwrap();
    for case in cases().unwrap() {
        let Some(wanted) = wanted(&case) else {
            continue;
        };
        let text = rendered(&case).unwrap();
        // What one case leaves behind must not help or harm the next.
        if !frr.empty().unwrap() {
            frr = Frr::start().unwrap();
        }
        let reload = frr.load(&text).unwrap();
        let running = frr.running().unwrap();
        compared += 1;
        let name = name_of(&case);
        if running != wanted {
            failures.push(format!(
                "{name}: FRR runs\n{}\nbut should run\n{}\nfrr.conf\n{text}reload tool\n{}",
                running.join("\n"),
                wanted.join("\n"),
                reload.output
            ));
        } else if !reload.clean && name != "graceful-restart" {
            // FRR 8.4 refuses that one line when the tool sends it a second time, and keeps it nevertheless.
            failures.push(format!("{name}: the reload failed\n{}", reload.output));
        }
    }
    assert_eq!(compared, 27, "cases with a running configuration");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
