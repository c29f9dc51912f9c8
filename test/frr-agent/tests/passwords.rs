//! A password that is longer than bgpd takes costs no session.

use frr_agent_tests::{Bench, NEAR, lacks_tools};

/// Bytes of the longest password that bgpd takes.
const LONGEST: usize = 80;

fn secret(bench: &Bench, password: &str) {
    bench.api.apply(&format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: peering, namespace: frr-k8s-system}}\ntype: kubernetes.io/basic-auth\nstringData: {{password: \"{password}\"}}\n"
    ));
}

#[test]
fn a_password_over_frrs_limit_leaves_the_old_one_and_is_told_by_its_secrets_name() {
    if lacks_tools() {
        return;
    }
    let mut bench = Bench::start("");
    bench.start_agent();
    secret(&bench, "s3cret");
    bench.peer_with(", passwordSecret: {name: peering}", "");
    let old = format!("neighbor {NEAR} password s3cret");
    bench.runs(&old, 15);
    bench.state_says("lastReloadResult", "success", 10);

    let long = "x".repeat(LONGEST + 1);
    secret(&bench, &long);
    for text in ["failed", "Secret frr-k8s-system/peering", "81 bytes", "80"] {
        bench.state_says("lastConversionResult", text, 10);
    }
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(bench.bgpd_has(&old));
    assert!(!bench.state().to_string().contains(&long));

    // Bytes count, not characters.
    secret(&bench, &"\u{e9}".repeat(LONGEST / 2));
    bench.runs(
        &format!("neighbor {NEAR} password {}", "\u{e9}".repeat(LONGEST / 2)),
        15,
    );
    secret(&bench, &"\u{e9}".repeat(LONGEST / 2 + 1));
    bench.state_says("lastConversionResult", "82 bytes", 10);
    let most = "y".repeat(LONGEST);
    secret(&bench, &most);
    bench.runs(&format!("neighbor {NEAR} password {most}"), 15);
    bench.state_says("lastConversionResult", "success", 10);
    bench.state_says("lastReloadResult", "success", 10);

    // The limit is bgpd's own.
    let set = format!("configure\nrouter bgp 64512\nneighbor {NEAR} password {long}");
    let said = bench.frr.ask("bgpd", &set);
    assert!(
        !bench.bgpd_has(&format!("neighbor {NEAR} password {long}")),
        "{said:?}"
    );
    assert!(
        bench.bgpd_has(&format!("neighbor {NEAR} password {most}")),
        "{said:?}"
    );
}
