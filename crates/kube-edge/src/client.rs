//! The connection to the API server.
//! In: an optional kubeconfig. Out: a client. Invariant: connecting and ordinary calls have deadlines; a kubeconfig is read
//! again when it or a file that it names changes, so that a client certificate may be rotated.
//! Not here: TLS details (kube, rustls).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::time::Instant;

use crate::gate;
use crate::leadership::Leadership;

/// Deadline of an ordinary call; a watch protects itself.
pub const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be used.
    #[error("cannot use kubeconfig {file}")]
    Kubeconfig {
        /// Its path.
        file: String,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// Neither in a cluster nor reported where one is.
    #[error("no cluster: not in a pod and no kubeconfig ([kubernetes] kubeconfig)")]
    Infer(#[source] kube::config::InferConfigError),
    /// The client cannot be built.
    #[error("cannot build the API client")]
    Build(#[source] kube::Error),
}

/// How often a kubeconfig is looked at for changes, when calls are made.
const PROBE: Duration = Duration::from_secs(10);

/// Makes a client from a kubeconfig, or from the pod's own environment (whose token is read again by itself).
///
/// # Errors
/// When the configuration cannot be read; the server need not be there.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<kube::Client, ClientError> {
    connected(kubeconfig, None).await
}

/// The same for what only a leader sends: once this replica leads no longer, no byte leaves, not even of a call that was handed
/// over before.
///
/// # Errors
/// When the configuration cannot be read; the server need not be there.
pub async fn connect_gated(
    kubeconfig: Option<&Path>,
    leadership: Leadership,
) -> Result<kube::Client, ClientError> {
    connected(kubeconfig, Some(leadership)).await
}

async fn connected(
    kubeconfig: Option<&Path>,
    gate: Option<Leadership>,
) -> Result<kube::Client, ClientError> {
    match kubeconfig {
        Some(path) => following(path, PROBE, gate).await,
        None => {
            let config = kube::Config::infer().await.map_err(ClientError::Infer)?;
            built(config, gate.as_ref())
        }
    }
}

/// How long a connection may take to be made.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(3);

fn built(mut config: kube::Config, gate: Option<&Leadership>) -> Result<kube::Client, ClientError> {
    config.connect_timeout = Some(CONNECT_DEADLINE);
    // Longer than a watch's own timeout, so that only a dead connection meets it.
    config.read_timeout = Some(Duration::from_secs(75));
    // Whoever calls tries again by a clock of its own, and asks first whether it still may.
    config.default_retry = false;
    let client = match gate {
        None => kube::Client::try_from(config),
        Some(leadership) => gate::client(&config, leadership.clone()),
    };
    client.map_err(ClientError::Build)
}

async fn from_file(path: &Path, gate: Option<&Leadership>) -> Result<kube::Client, ClientError> {
    let wrong = |source| ClientError::Kubeconfig {
        file: path.display().to_string(),
        source,
    };
    let file = Kubeconfig::read_from(path).map_err(wrong)?;
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(file, &options).await;
    built(config.map_err(wrong)?, gate)
}

/// The files that a client was made from, as they were then.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A kubeconfig and the files it names; what cannot be read is absent.
fn read(path: &Path) -> Files {
    let mut paths = vec![path.to_owned()];
    if let Ok(config) = Kubeconfig::read_from(path) {
        let users = config.auth_infos.into_iter().filter_map(|u| u.auth_info);
        paths.extend(
            users
                .flat_map(|u| [u.client_certificate, u.client_key])
                .flatten()
                .map(PathBuf::from),
        );
        let clusters = config.clusters.into_iter().filter_map(|c| c.cluster);
        paths.extend(
            clusters
                .filter_map(|c| c.certificate_authority)
                .map(PathBuf::from),
        );
    }
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).ok()?;
        Some((path, bytes))
    };
    paths.into_iter().filter_map(read).collect()
}

struct Followed {
    client: kube::Client,
    files: Files,
    looked: Instant,
    gate: Option<Leadership>,
}

/// A client that is made again when its kubeconfig changes; watches under way end by themselves within a minute.
async fn following(
    path: &Path,
    every: Duration,
    gate: Option<Leadership>,
) -> Result<kube::Client, ClientError> {
    // Before the client: what changes in between is read again, and not taken for what the client has.
    let files = read(path);
    let client = from_file(path, gate.as_ref()).await?;
    let namespace = client.default_namespace().to_owned();
    let followed = Arc::new(Mutex::new(Followed {
        files,
        client,
        looked: Instant::now(),
        gate,
    }));
    let path: Arc<Path> = path.into();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (path, followed) = (Arc::clone(&path), Arc::clone(&followed));
        async move {
            let client = current(&path, &followed, every).await;
            client.send(request).await as Result<Response<Body>, kube::Error>
        }
    });
    Ok(kube::Client::new(service, namespace))
}

async fn current(path: &Arc<Path>, followed: &Mutex<Followed>, every: Duration) -> kube::Client {
    let lock = || followed.lock().unwrap_or_else(PoisonError::into_inner);
    {
        let mut followed = lock();
        if followed.looked.elapsed() < every {
            return followed.client.clone();
        }
        followed.looked = Instant::now();
    }
    let looked_at = Arc::clone(path);
    let files = tokio::task::spawn_blocking(move || read(&looked_at)).await;
    let changed = files.ok().filter(|files| lock().files != *files);
    if let Some(files) = changed {
        let gate = lock().gate.clone();
        match from_file(path, gate.as_ref()).await {
            Ok(client) => {
                tracing::info!(file = %path.display(), "kubeconfig changed: connecting again");
                let mut followed = lock();
                followed.client = client;
                followed.files = files;
            }
            // Perhaps half written; the old one may still be good.
            Err(error) => {
                let error = crate::cache::telling(&error);
                tracing::warn!(error, "kubeconfig changed and cannot be used yet");
            }
        }
    }
    lock().client.clone()
}

/// One object; `None` also where its kind is not installed, of which the server says `page not found`.
///
/// # Errors
/// What the server or the connection says.
pub async fn found<K>(api: &kube::Api<K>, name: &str) -> Result<Option<K>, kube::Error>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    match api.get(name).await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Objects of kind `K` without their Rust type: one that does not fit the type is then a problem of its own, not of the watch.
#[must_use]
pub fn untyped<K>(
    client: kube::Client,
    namespace: Option<&str>,
) -> kube::Api<kube::core::DynamicObject>
where
    K: kube::Resource<DynamicType = ()>,
{
    let resource = kube::core::ApiResource::erase::<K>(&());
    match namespace {
        None => kube::Api::all_with(client, &resource),
        Some(namespace) => kube::Api::namespaced_with(client, namespace, &resource),
    }
}

#[cfg(test)]
mod tests;
