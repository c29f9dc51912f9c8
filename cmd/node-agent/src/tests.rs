//! What the node-agent refuses before it has touched anything.

use super::*;
use settings::Daemon;

const BUILD: &str = "[default]\ntransport = no-overlay\n[no-overlay]\noutbound-snat = enabled\nrouting = managed\n[bgp-managed]\ntopology = full-mesh\n";

fn mk_settings(rest: &str) -> Settings {
    settings::parse_for("f.conf", &format!("{BUILD}{rest}"), Daemon::NodeAgent).unwrap()
}

#[test]
fn adopt_is_refused_with_what_is_allowed() {
    let error = refuse_what_is_not_built(&mk_settings("")).unwrap_err();
    let error = error.to_string();
    let wanted = ["[ovn] topology = adopt", "allowed: build"];
    assert!(wanted.iter().all(|part| error.contains(part)), "{error}");
    refuse_what_is_not_built(&mk_settings("[ovn]\ntopology = build\n")).unwrap();
}

#[tokio::test]
async fn a_refusal_comes_before_the_first_connection() {
    // Neither a cluster nor a database is there: nobody was asked.
    let mut settings = mk_settings("");
    settings.kubeconfig = Some("/nonexistent/kubeconfig".into());
    let error = serve("n1", settings, std::future::pending()).await;
    let error = format!("{:#}", error.unwrap_err());
    assert!(error.contains("topology = adopt"), "{error}");
}
