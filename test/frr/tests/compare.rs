//! What we render for a recorded case and what FRR showed after it loaded frr-k8s's file compare as equal.
//! In: the recorded cases under `cases/`. Out: differences. Invariant: every case with a running configuration counts.
//! Not here: a real FRR (`conformance`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test program: whatever is unexpected ends it"
)]

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use api::frr_configuration::FRRConfiguration;
use frr::compare::{compare, unified};
use frr::{NodeInput, merge, render};
use frr_tests::cases;
use model::frr::FrrConfiguration;
use model::names::NodeName;
use model::selector::Labels;

#[test]
fn render_and_recording_of_every_case_compare_as_equal_and_of_different_cases_as_different() {
    let mut texts: BTreeMap<String, (String, String)> = BTreeMap::new();
    for case in cases().unwrap() {
        let Ok(recorded) = fs::read_to_string(case.join("running.conf")) else {
            continue;
        };
        let yaml = fs::read_to_string(case.join("input.yaml")).unwrap();
        let objects: Vec<FRRConfiguration> = serde_saphyr::from_multiple(&yaml).unwrap();
        let objects: Vec<Arc<FrrConfiguration>> = objects
            .iter()
            .map(|object| Arc::new(FrrConfiguration::try_from(object).unwrap()))
            .collect();
        let config = merge(&NodeInput {
            name: NodeName::from("fn1"),
            labels: &Labels::from([("kubernetes.io/hostname".to_owned(), "fn1".to_owned())]),
            hostname: "fn1".to_owned(),
            objects: &objects,
            passwords: &BTreeMap::new(),
        })
        .unwrap();
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        texts.insert(name, (render(&config), recorded));
    }
    assert_eq!(texts.len(), 27, "cases with a running configuration");
    let mut wrong = Vec::new();
    for (name, (rendered, recorded)) in &texts {
        let differences = compare(recorded, rendered);
        if !differences.is_empty() {
            wrong.push(format!("{name}:\n{}", unified(&differences)));
        }
        // The comparison does not accept everything: another case's recording differs, where it is not the same text.
        for (other, (_, theirs)) in &texts {
            if theirs != recorded && compare(theirs, rendered).is_empty() {
                wrong.push(format!("{name} compares as equal to {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
