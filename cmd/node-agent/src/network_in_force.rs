//! The default network as it is declared, and as it may be built: with the transport and routing that the cluster-manager keeps.
//! In: its NetworkAttachmentDefinition, read once at the start; the configuration now. Out: the network.
//! Invariant: transport and routing stay what they were: a file that changed while this agent was down would change the nodes
//! one by one, and pods of those that have could not reach pods of those that have not.
//! Not here: what else of the file may change (`settings`), the keeping (the cluster-manager).

use std::time::Duration;

use api::nad::NetworkAttachmentDefinition;
use daemon::Configuration;
use kube_edge::client::{CALL_DEADLINE, found};
use model::network::IN_FORCE;
use model::{Network, ObjectKey};
use settings::Settings;
use telemetry::Chain;
use tokio::sync::oneshot;

/// Between two questions, while the API server does not answer.
const RETRY: Duration = Duration::from_secs(1);

/// What the network runs with; what the file says instead is told when it changes.
pub(crate) struct NetworkInForce {
    configuration: Configuration,
    stored: oneshot::Receiver<Option<Settings>>,
    running: Option<Settings>,
    refused: Vec<String>,
}

impl NetworkInForce {
    /// Asks the API server until it answers: without the answer nobody knows what the other nodes run with. `answered` is
    /// called then.
    pub(crate) fn ask(
        client: kube::Client,
        configuration: Configuration,
        answered: impl FnOnce() + Send + 'static,
    ) -> Self {
        let key = configuration.now().settings.network.nad.clone();
        let (tell, stored) = oneshot::channel();
        tokio::spawn(async move {
            // Nobody listens where the daemon ends.
            let _ = tell.send(self::stored(&client, &key).await);
            answered();
        });
        Self {
            configuration,
            stored,
            running: None,
            refused: Vec::new(),
        }
    }

    /// The network to build now; `None` while the API server has not answered.
    pub(crate) fn network(&mut self) -> Option<Network> {
        let asked = self.configuration.now().settings.clone();
        let running = match self.running.take() {
            Some(running) => running,
            None => self
                .stored
                .try_recv()
                .ok()?
                .unwrap_or_else(|| asked.clone()),
        };
        let kept = asked.keeping_network(&running);
        let network = kept.settings.default_network();
        self.running = Some(kept.settings);
        if self.refused != kept.refused {
            for refused in &kept.refused {
                tracing::warn!("{refused}");
            }
            self.configuration.tell_kept(kept.refused.len());
            self.refused = kept.refused;
        }
        Some(network)
    }
}

/// What is kept on the object; `None` where there is none, or where it cannot be read.
async fn stored(client: &kube::Client, key: &ObjectKey) -> Option<Settings> {
    let api: kube::Api<NetworkAttachmentDefinition> =
        kube::Api::namespaced(client.clone(), &key.namespace);
    let mut last = String::new();
    let object = loop {
        let asked = tokio::time::timeout(CALL_DEADLINE, found(&api, &key.name)).await;
        let error = match asked {
            Ok(Ok(object)) => break object,
            Ok(Err(error)) => Chain(&error).to_string(),
            Err(_) => format!("no answer within {CALL_DEADLINE:?}"),
        };
        if last != error {
            tracing::warn!(
                error,
                "cannot read NetworkAttachmentDefinition {key}, where transport and routing of the default network are kept; until then networks stay as they are"
            );
            last = error;
        }
        tokio::time::sleep(RETRY).await;
    };
    let text = object?.metadata.annotations?.remove(IN_FORCE)?;
    let what = format!("annotation {IN_FORCE} of NetworkAttachmentDefinition {key}");
    Settings::of_network_in_force(&what, &text)
        .inspect_err(|error| {
            let error = Chain(error).to_string();
            tracing::warn!(error, "cannot be read: what the file says is in force");
        })
        .ok()
}
