//! A client whose kubeconfig changes, on a real socket.

use super::*;
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// An HTTP server that tells which Authorization each request carried.
async fn server() -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, reported) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut bytes = vec![0; 8192];
                while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                    let head = String::from_utf8_lossy(&bytes[..count]).to_lowercase();
                    let line = head.lines().find(|l| l.starts_with("authorization: "));
                    tell.send(line.unwrap_or_default().to_owned()).unwrap();
                    let body =
                        r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[]}"#;
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    (port, reported)
}

fn kubeconfig(port: u16, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\nusers: [{{name: u, user: {{token: {token}}}}}]\n"
    )
}

#[tokio::test]
async fn a_kubeconfig_that_changes_is_read_again_and_a_broken_one_leaves_the_old() {
    let (port, mut reported) = server().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig(port, "one")).unwrap();
    let client = following(&file, Duration::ZERO, None).await.unwrap();
    let api: kube::Api<ConfigMap> = kube::Api::all(client);
    let mut ask = async || {
        api.list(&kube::api::ListParams::default()).await.unwrap();
        reported.recv().await.unwrap()
    };
    assert_eq!(ask().await, "authorization: bearer one");
    std::fs::write(&file, kubeconfig(port, "two")).unwrap();
    assert_eq!(ask().await, "authorization: bearer two");
    std::fs::write(&file, "clusters: [{{{").unwrap();
    assert_eq!(ask().await, "authorization: bearer two");
    std::fs::write(&file, kubeconfig(port, "three")).unwrap();
    assert_eq!(ask().await, "authorization: bearer three");
}

#[tokio::test]
async fn a_gated_client_sends_while_this_replica_leads_and_only_then() {
    let (port, mut reported) = server().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig(port, "one")).unwrap();
    let leadership = Leadership::new();
    let gate = leadership.clone();
    let client = connect_gated(Some(&file), gate).await.unwrap();
    let api: kube::Api<ConfigMap> = kube::Api::all(client);
    let params = kube::api::ListParams::default();
    for _ in 0..2 {
        leadership.renewed(Instant::now());
        api.list(&params).await.unwrap();
        assert_eq!(reported.recv().await.unwrap(), "authorization: bearer one");
        // Over the connection that is there already, too.
        leadership.lost();
        api.list(&params).await.unwrap_err();
    }
    assert!(reported.try_recv().is_err(), "nothing was sent");
}

#[test]
fn files_that_a_kubeconfig_names_are_looked_at_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    for name in ["crt", "key", "ca"] {
        std::fs::write(folder.path().join(name), "old").unwrap();
    }
    let text = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://h', certificate-authority: ca}}]\n\
                users: [{name: u, user: {client-certificate: crt, client-key: key}}]\n";
    std::fs::write(&file, text).unwrap();
    let before = read(&file);
    assert_eq!(before.len(), 4, "{:?}", before.keys());
    for name in ["crt", "key", "ca"] {
        let path = folder.path().join(name);
        std::fs::write(&path, "new").unwrap();
        assert_ne!(read(&file), before, "{name}");
        std::fs::write(&path, "old").unwrap();
    }
    assert_eq!(read(&file), before);
}
