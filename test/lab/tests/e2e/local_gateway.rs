//! Local gateway mode, both families: every line of the proof, and the packet filter under somebody's hand.
//!
//! In: drawn values. Out: every line of the proof, for each family; rules that were taken away come back, and with them the
//! addresses that receivers see. Not here: shared gateway mode, which most other tests are about.

use std::time::Duration;

use crate::harness::{Standing, able, seed, wait};

#[test]
fn a_lab_in_local_gateway_mode_proves_all_its_lines_and_repairs_its_filter() {
    if !able() {
        return;
    }
    let seed = seed().to_string();
    let lab = Standing::up(&[
        "--gateway-mode",
        "local",
        "--families",
        "dual",
        "--seed",
        &seed,
    ]);
    let said = lab.prove(&["--quiet", "30"]);
    said.assert_all_hold();
    assert!(said.text.contains("6 pairs in 2 families"), "{}", said.text);
    let node = lab.node(0);
    // In whatever order nft shows what was made anew.
    let table = || {
        let shown = lab.try_exec(&node, &["nft", "list", "table", "inet", "ovn-kubernetes"]);
        let mut lines: Vec<String> = shown.text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = table();
    let translates = |line: &String| line.trim().ends_with(" masquerade");
    assert!(before.iter().any(translates), "{before:?}");
    for hand in [
        "flush chain inet ovn-kubernetes ovn-kube-pod-subnet-masq",
        "delete table inet ovn-kubernetes",
    ] {
        let words: Vec<&str> = ["nft"].into_iter().chain(hand.split(' ')).collect();
        lab.exec(&node, &words);
        let back = wait(Duration::from_secs(10), || table() == before);
        assert!(back, "after nft {hand}: {:?}", table());
    }
    lab.recovers("1,3,5");
}
