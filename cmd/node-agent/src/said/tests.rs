//! A daemon is ready once every subject has settled, and a complaint lasts until it is mended.

use super::*;

fn mk_ledger(subjects: &[&'static str]) -> (Ledger, Readiness) {
    let metrics = Metrics::new(&prometheus::Registry::new()).unwrap();
    let readiness = Readiness::default();
    (Ledger::new(metrics, readiness.clone(), subjects), readiness)
}

#[test]
fn the_first_pass_is_done_when_every_subject_has_settled_once() {
    let (ledger, readiness) = mk_ledger(&["a", "b"]);
    let (mut a, mut b) = (Complaint::of("a"), Complaint::of("b"));
    assert_eq!(readiness.missing(), ["first pass"]);
    assert_eq!(ledger.pass(&mut a, Ok(())), Verdict::Settled);
    assert_eq!(
        ledger.pass(&mut b, Err(Unsettled::retry("not yet"))),
        Verdict::Retry
    );
    assert_eq!(readiness.missing(), ["first pass"]);
    ledger.pass(&mut b, Ok(()));
    assert!(readiness.missing().is_empty());
    // Later failures are told by metrics; the daemon stays ready.
    ledger.pass(&mut a, Err(Unsettled::blocked("name taken")));
    assert!(readiness.missing().is_empty());
    let problems = ledger.metrics.problems.with_label_values(&["a"]);
    assert_eq!(problems.get(), 1);
}

#[test]
fn without_subjects_there_is_nothing_to_wait_for() {
    assert!(mk_ledger(&[]).1.missing().is_empty());
}

#[test]
fn a_complaint_lasts_through_quiet_failures_and_ends_when_all_is_well() {
    let (ledger, _) = mk_ledger(&["a"]);
    let mut a = Complaint::of("a");
    ledger.pass(&mut a, Err(Unsettled::retry("broken")));
    assert_eq!(a.last, "broken");
    ledger.pass(&mut a, Err(Unsettled::quietly(Verdict::Blocked)));
    assert_eq!(a.last, "broken");
    ledger.pass(&mut a, Err(Unsettled::retry("otherwise broken")));
    assert_eq!(a.last, "otherwise broken");
    ledger.pass(&mut a, Ok(()));
    assert_eq!(a.last, "");
}

#[test]
fn what_is_early_waits_in_silence_and_what_cannot_be_read_is_tried_again() {
    let early = Unsettled::from(ReadError::NotYet("OVN_Northbound"));
    assert_eq!((early.verdict, early.why), (Verdict::Blocked, None));
    let broken = Unsettled::from(NoView::Read(ReadError::Thread));
    assert_eq!(broken.verdict, Verdict::Retry);
    assert!(broken.why.is_some());
    let told = Unsettled::from(NoView::Problems(vec![Problem::new("Node/n1", "X", "y")]));
    assert_eq!(told.verdict, Verdict::Blocked);
    assert_eq!(told.why.as_deref(), Some("Node/n1: y; what stands is kept"));
}
