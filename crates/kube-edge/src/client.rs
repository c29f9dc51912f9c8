//! The connection to the API server.
//! In: an optional kubeconfig. Out: a client. Invariant: connecting and ordinary calls have deadlines.
//! Not here: TLS details (kube, rustls).

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};

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
    /// Neither in a cluster nor told where one is.
    #[error("no cluster: not in a pod and no kubeconfig ([kubernetes] kubeconfig)")]
    Infer(#[source] kube::config::InferConfigError),
    /// The client cannot be built.
    #[error("cannot build the API client")]
    Build(#[source] kube::Error),
}

/// Makes a client from a kubeconfig, or from the pod's own environment.
///
/// # Errors
/// When the configuration cannot be read; the server need not be there.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<kube::Client, ClientError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let wrong = |source| ClientError::Kubeconfig {
                file: path.display().to_string(),
                source,
            };
            let file = Kubeconfig::read_from(path).map_err(wrong)?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(wrong)?
        }
        None => kube::Config::infer().await.map_err(ClientError::Infer)?,
    };
    config.connect_timeout = Some(Duration::from_secs(3));
    // Longer than a watch's own timeout, so that only a dead connection meets it.
    config.read_timeout = Some(Duration::from_secs(75));
    kube::Client::try_from(config).map_err(ClientError::Build)
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
