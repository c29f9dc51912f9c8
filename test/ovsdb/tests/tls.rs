//! TLS as OVS does it, with certificates like those of `ovs-pki`.
//!
//! In: authorities and certificates made by openssl. Out: connections that work, and refusals that say why.
//! Invariant: only a certificate of the right authority is accepted, either way.
//! Not here: the client over other transports.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

use std::path::{Path, PathBuf};

use ovsdb::{Client, ClientConfig, TlsFiles};
use ovsdb_tests::pki::{mk_authority, mk_certificate};
use ovsdb_tests::{Server, absent, free_port, mk_config, mk_router, until_error, until_synced};

const TOOLS: &[&str] = &["ovsdb-server", "ovsdb-tool", "setpriv", "openssl"];

struct Fixture {
    _server: Server,
    folder: PathBuf,
    config: ClientConfig,
}

fn mk_fixture() -> Fixture {
    let mut server = Server::prepared(&[]);
    let folder = server.path("");
    for authority in ["ca", "strange"] {
        mk_authority(&folder, authority);
    }
    mk_certificate(&folder, "ca", "server");
    mk_certificate(&folder, "ca", "client");
    mk_certificate(&folder, "strange", "stranger");
    let port = free_port();
    let file = |name: &str| folder.join(name).display().to_string();
    server.add_arguments(&[
        format!("--remote=pssl:{port}:127.0.0.1"),
        format!("--private-key={}", file("server.key")),
        format!("--certificate={}", file("server.pem")),
        format!("--ca-cert={}", file("ca.pem")),
    ]);
    server.up();
    let mut config = mk_config(&server.socket());
    config.endpoint = format!("ssl:127.0.0.1:{port}").parse().unwrap();
    config.tls = Some(files(&folder, "client", "ca"));
    Fixture {
        _server: server,
        folder,
        config,
    }
}

fn files(folder: &Path, client: &str, authority: &str) -> TlsFiles {
    TlsFiles {
        private_key: folder.join(format!("{client}.key")),
        certificate: folder.join(format!("{client}.pem")),
        ca_certificate: folder.join(format!("{authority}.pem")),
    }
}

#[tokio::test]
async fn a_certificate_of_the_authority_is_accepted_whatever_its_name() {
    if absent(TOOLS) {
        return;
    }
    let fixture = mk_fixture();
    let client = Client::connect(fixture.config.clone());
    until_synced(&client).await;
    client.transact(&mk_router("gr")).await.unwrap();
    let mut named = fixture.config.clone();
    let port = fixture
        .config
        .endpoint
        .to_string()
        .rsplit_once(':')
        .unwrap()
        .1
        .to_owned();
    named.endpoint = format!("ssl:localhost:{port}").parse().unwrap();
    until_synced(&Client::connect(named)).await;
}

#[tokio::test]
async fn untrusted_peers_are_refused_in_both_directions() {
    if absent(TOOLS) {
        return;
    }
    let fixture = mk_fixture();
    for (client, authority, expected) in [
        ("client", "strange", "UnknownIssuer"),
        ("stranger", "ca", "cannot read from the server"),
    ] {
        let mut config = fixture.config.clone();
        config.tls = Some(files(&fixture.folder, client, authority));
        let error = until_error(&Client::connect(config)).await;
        assert!(error.contains(expected), "{client} {authority}: {error}");
        println!("{client} {authority}: {error}");
    }
}

#[tokio::test]
async fn unusable_files_are_named() {
    if absent(TOOLS) {
        return;
    }
    let fixture = mk_fixture();
    let with = |tls: Option<TlsFiles>| ClientConfig {
        tls,
        ..fixture.config.clone()
    };
    let mut not_a_key = files(&fixture.folder, "client", "ca");
    not_a_key.private_key = fixture.folder.join("client.pem");
    for (config, expected) in [
        (with(None), "ssl endpoint without private key"),
        (
            with(Some(files(&fixture.folder, "nobody", "ca"))),
            "nobody.pem",
        ),
        (
            with(Some(files(&fixture.folder, "client", "nowhere"))),
            "nowhere.pem",
        ),
        (with(Some(not_a_key)), "cannot use private key"),
    ] {
        let error = until_error(&Client::connect(config)).await;
        assert!(error.contains(expected), "{error}");
    }
}
