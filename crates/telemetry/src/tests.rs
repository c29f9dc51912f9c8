//! What the endpoints answer.

use super::*;

#[test]
fn readiness_names_what_is_missing_and_an_empty_one_is_not_ready() {
    let r = Readiness::default();
    assert_eq!(r.missing(), ["start"]);
    r.set("caches", false);
    r.set("first pass", true);
    assert_eq!(r.missing(), ["caches"]);
    r.set("caches", true);
    assert!(r.missing().is_empty());
}

#[test]
fn a_chain_shows_every_cause_once() {
    #[derive(Debug, thiserror::Error)]
    #[error("inner")]
    struct Inner;
    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Inner);
    assert_eq!(Chain(&Outer(Inner)).to_string(), "outer: inner");
}

async fn ask(address: SocketAddr, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for _ in 0..200 {
        if let Ok(mut stream) = tokio::net::TcpStream::connect(address).await {
            stream
                .write_all(
                    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                        .as_bytes(),
                )
                .await
                .unwrap();
            let mut out = String::new();
            stream.read_to_string(&mut out).await.unwrap();
            return out;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("no answer from {address}");
}

#[tokio::test]
async fn the_endpoints_tell_the_truth() {
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let registry = Registry::new();
    let counter = prometheus::IntCounter::new("noverlay_test_total", "test").unwrap();
    registry.register(Box::new(counter.clone())).unwrap();
    counter.inc();
    let readiness = Readiness::default();
    readiness.set("caches", false);
    let server = tokio::spawn(serve(address, registry, readiness.clone()));
    assert!(
        ask(address, "/metrics")
            .await
            .contains("noverlay_test_total 1")
    );
    assert!(ask(address, "/healthz").await.contains("200 OK"));
    let not_ready = ask(address, "/readyz").await;
    assert!(
        not_ready.contains("503") && not_ready.contains("caches"),
        "{not_ready}"
    );
    readiness.set("caches", true);
    assert!(ask(address, "/readyz").await.contains("200 OK"));
    assert!(matches!(
        serve(address, Registry::new(), Readiness::default()).await,
        Err(ServeError::Bind { .. })
    ));
    server.abort();
}

#[tokio::test]
async fn all_addresses_are_those_of_both_families() {
    let probe = std::net::TcpListener::bind("[::]:0").unwrap();
    let port = probe.local_addr().unwrap().port();
    drop(probe);
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let server = tokio::spawn(serve(everywhere, Registry::new(), Readiness::default()));
    for host in ["127.0.0.1", "::1"] {
        let address = SocketAddr::new(host.parse().unwrap(), port);
        assert!(ask(address, "/healthz").await.contains("200 OK"), "{host}");
    }
    server.abort();
}

#[tokio::test]
async fn an_address_that_is_taken_names_the_keys() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = serve(address, Registry::new(), Readiness::default()).await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains(&address.to_string()) && error.contains("NAME-bind-address"),
        "{error}"
    );
}
