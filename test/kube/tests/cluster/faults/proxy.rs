//! An API server behind another one's address: passes calls on, delays the watches of Nodes and of NetworkAttachmentDefinitions, or takes calls and never answers.
//! In: an API server and an account. Out: a kubeconfig. Invariant: what it took while silent is never passed on later.
//! Not here: what is tested.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures::StreamExt;
use kube_tests::ApiServer;
use tokio::time::Instant;

pub(crate) struct Proxy {
    pub(crate) kubeconfig: PathBuf,
    silent: Arc<AtomicBool>,
    runtime: Option<tokio::runtime::Runtime>,
}

#[derive(Clone)]
struct Way {
    client: kube::Client,
    silent: Arc<AtomicBool>,
    late: Duration,
}

impl Proxy {
    /// Calls are made as `user`; what the watches of Nodes and of NetworkAttachmentDefinitions
    /// tell comes `late`.
    pub(crate) fn start(api: &ApiServer, user: &str, late: Duration) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let silent = Arc::new(AtomicBool::new(false));
        let upstream = api.kubeconfig(user);
        let way = Arc::clone(&silent);
        let port = runtime.block_on(async move {
            let file = kube::config::Kubeconfig::read_from(upstream).unwrap();
            let options = kube::config::KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(file, &options)
                .await
                .unwrap();
            let way = Way {
                client: kube::Client::try_from(config).unwrap(),
                silent: way,
                late,
            };
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let app = axum::Router::new().fallback(pass).with_state(way);
            tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
            port
        });
        let kubeconfig = api.path(&format!("proxy-{port}.kubeconfig"));
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
        );
        std::fs::write(&kubeconfig, config).unwrap();
        Self {
            kubeconfig,
            silent,
            runtime: Some(runtime),
        }
    }

    pub(crate) fn silence(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn quiet(way: &Way) {
    if way.silent.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
}

async fn pass(State(way): State<Way>, request: Request) -> Response {
    quiet(&way).await;
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, 16 << 20).await.unwrap();
    let watched = ["/nodes", "/network-attachment-definitions"];
    let watches = watched.iter().any(|kind| parts.uri.path().ends_with(kind))
        && parts.uri.query().is_some_and(|q| q.contains("watch=true"));
    let path = parts.uri.path_and_query().unwrap().as_str();
    let mut call = http::Request::builder().method(parts.method).uri(path);
    for (name, value) in &parts.headers {
        if !["host", "content-length", "authorization", "connection"].contains(&name.as_str()) {
            call = call.header(name, value);
        }
    }
    let call = call.body(kube::client::Body::from(bytes)).unwrap();
    let Ok(answer) = way.client.send(call).await else {
        return Response::builder().status(502).body(Body::empty()).unwrap();
    };
    quiet(&way).await;
    let (mut parts, body) = answer.into_parts();
    parts.headers.remove("content-length");
    parts.headers.remove("transfer-encoding");
    let late = if watches { way.late } else { Duration::ZERO };
    let (tell, reported) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut chunks = Body::new(body).into_data_stream();
        while let Some(chunk) = chunks.next().await {
            if tell.send((Instant::now() + late, chunk)).is_err() {
                return;
            }
        }
    });
    let chunks = futures::stream::unfold((reported, way), async |(mut reported, way)| {
        let (at, chunk) = reported.recv().await?;
        tokio::time::sleep_until(at).await;
        quiet(&way).await;
        Some((chunk, (reported, way)))
    });
    Response::from_parts(parts, Body::from_stream(chunks))
}
