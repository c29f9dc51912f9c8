//! A password that is longer than bgpd takes costs no session.

use frr_agent_tests::{Fixture, NEAR, lacks_tools};

/// Bytes of the longest password that bgpd takes.
const LONGEST: usize = 80;

fn secret(fixture: &Fixture, password: &str) {
    fixture.api.apply(&format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: peering, namespace: frr-k8s-system}}\ntype: kubernetes.io/basic-auth\nstringData: {{password: \"{password}\"}}\n"
    ));
}

#[test]
fn a_password_over_frrs_limit_leaves_the_old_one_and_is_reported_by_its_secrets_name() {
    if lacks_tools() {
        return;
    }
    let mut fixture = Fixture::start("");
    fixture.start_agent();
    secret(&fixture, "s3cret");
    fixture.peer_with(", passwordSecret: {name: peering}", "");
    let old = format!("neighbor {NEAR} password s3cret");
    fixture.runs(&old, 15);
    fixture.state_says("lastReloadResult", "success", 10);

    let long = "x".repeat(LONGEST + 1);
    secret(&fixture, &long);
    for text in ["failed", "Secret frr-k8s-system/peering", "81 bytes", "80"] {
        fixture.state_says("lastConversionResult", text, 10);
    }
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(fixture.bgpd_has(&old));
    assert!(!fixture.state().to_string().contains(&long));

    // Bytes count, not characters.
    secret(&fixture, &"\u{e9}".repeat(LONGEST / 2));
    fixture.runs(
        &format!("neighbor {NEAR} password {}", "\u{e9}".repeat(LONGEST / 2)),
        15,
    );
    secret(&fixture, &"\u{e9}".repeat(LONGEST / 2 + 1));
    fixture.state_says("lastConversionResult", "82 bytes", 10);
    let most = "y".repeat(LONGEST);
    secret(&fixture, &most);
    fixture.runs(&format!("neighbor {NEAR} password {most}"), 15);
    fixture.state_says("lastConversionResult", "success", 10);
    fixture.state_says("lastReloadResult", "success", 10);

    // The limit is bgpd's own.
    let set = format!("configure\nrouter bgp 64512\nneighbor {NEAR} password {long}");
    let said = fixture.frr.ask("bgpd", &set);
    assert!(
        !fixture.bgpd_has(&format!("neighbor {NEAR} password {long}")),
        "{said:?}"
    );
    assert!(
        fixture.bgpd_has(&format!("neighbor {NEAR} password {most}")),
        "{said:?}"
    );
}
