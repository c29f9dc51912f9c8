//! The Northbound database over TLS, with the settings and the client of the node-agent.
//!
//! In: a configuration file, a real ovsdb-server on `pssl:`, certificates made by openssl. Out: sessions, and why there is none.
//! Invariant: certificates that were renewed are used without a restart of the client.
//! Not here: TLS itself (`ovsdb-tests`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::path::Path;

use model::NodeName;
use ovsdb::Client;
use ovsdb_tests::pki::{mk_authority, mk_certificate};
use ovsdb_tests::{Server, absent, free_port, until_error, until_status, until_synced};

fn mk_settings(folder: &Path, port: u16) -> settings::Settings {
    let text = format!(
        "[ovnnorth]\naddress = ssl:127.0.0.1:{port}\nclient-privkey = {0}/client.key\nclient-cert = {0}/client.pem\nclient-cacert = {0}/ca.pem\n",
        folder.display()
    );
    let daemon = settings::Daemon::NodeAgent;
    settings::parse_for("noverlay.conf", &text, daemon).unwrap()
}

fn mk_pki(folder: &Path) {
    mk_authority(folder, "ca");
    for name in ["server", "client"] {
        mk_certificate(folder, "ca", name);
    }
}

#[tokio::test]
async fn the_northbound_database_over_tls_is_followed_and_renewed_certificates_are_used() {
    if absent(&["ovsdb-server", "ovsdb-tool", "setpriv", "openssl"]) {
        return;
    }
    let mut server = Server::prepared(&[]);
    let folder = server.path("");
    let port = free_port();
    let file = |name: &str| folder.join(name).display().to_string();
    server.add_arguments(&[
        format!("--remote=pssl:{port}:127.0.0.1"),
        format!("--private-key={}", file("server.key")),
        format!("--certificate={}", file("server.pem")),
        format!("--ca-cert={}", file("ca.pem")),
    ]);
    let config =
        node_agent::databases::north(&mk_settings(&folder, port), &NodeName::from("n1")).unwrap();
    let client = Client::connect(config);
    let error = until_error(&client).await;
    assert!(
        error.contains("ca.pem"),
        "files that are not there: {error}"
    );

    mk_pki(&folder);
    server.up();
    until_synced(&client).await;

    // Another authority: what the client had read before fits nothing any more.
    server.crash();
    mk_pki(&folder);
    server.up();
    until_status(&client, |status| {
        status.connection.is_synced() && status.sessions == 2
    })
    .await;
}

#[test]
fn an_address_that_is_none_is_refused_with_its_key() {
    let text = "[ovnnorth]\naddress = udp:10.0.0.1:6641\n";
    let daemon = settings::Daemon::NodeAgent;
    let settings = settings::parse_for("noverlay.conf", text, daemon).unwrap();
    let error = node_agent::databases::north(&settings, &NodeName::from("n1")).unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("[ovnnorth] address") && error.contains("udp:"),
        "{error}"
    );
}
