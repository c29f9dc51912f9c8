//! The real cluster-manager in this process, for tests on a real API server.
//! In: an API server. Out: a manager that can be ended and killed. Invariant: it has the rights that it is shipped with.
//! Not here: what is tested.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use daemon::Configuration;
use kube_tests::ApiServer;
use offline::Objects;
use serde_json::Value;
use testkit::labels::selects;
use tokio::sync::oneshot;

const CONFIG: &str = "[default]\ntransport = \"no-overlay\"\ncluster-subnets = \"10.128.0.0/16/24\"\n[no-overlay]\noutbound-snat = \"enabled\"\nrouting = \"managed\"\n[bgp-managed]\ntopology = \"full-mesh\"\nas-number = 64777\n[ovn]\ntopology = \"build\"\n[metrics]\nbind-address = \"127.0.0.1:0\"\n[kubernetes]\nkubeconfig = \"KUBECONFIG\"\n";

/// The text of the configuration, for this API server.
pub(crate) fn configuration(api: &ApiServer) -> String {
    let kubeconfig = api.kubeconfig("cluster-manager");
    CONFIG.replace("KUBECONFIG", kubeconfig.to_str().unwrap())
}

fn read(text: &str) -> settings::Settings {
    settings::parse("noverlay.toml", text, "127.0.0.1:0".parse().unwrap()).unwrap()
}

/// A manager on a runtime of its own; dropping it is a kill -9: it gives nothing back.
pub(crate) struct Manager {
    runtime: Option<tokio::runtime::Runtime>,
    end: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl Manager {
    /// With [`CONFIG`], which stays.
    pub(crate) fn start(api: &ApiServer, identity: &'static str) -> Self {
        let settings = read(&configuration(api));
        Self::serve(identity, || settings.into())
    }

    /// With the file, as it is now and as it changes.
    pub(crate) fn follow(identity: &'static str, path: &Path) -> Self {
        let daemon = settings::Daemon::ClusterManager;
        let path = path.to_owned();
        let settings = settings::load(&path, daemon).unwrap();
        Self::serve(identity, move || {
            Configuration::follow(&path, daemon, settings)
        })
    }

    fn serve(
        identity: &'static str,
        configuration: impl FnOnce() -> Configuration + Send + 'static,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (end, ended) = oneshot::channel();
        let task = runtime.spawn(async move {
            let ended = async {
                drop(ended.await);
                Ok(())
            };
            cluster_manager::serve(identity, configuration(), ended)
                .await
                .unwrap();
        });
        Self {
            runtime: Some(runtime),
            end: Some(end),
            task,
        }
    }

    pub(crate) fn stop(mut self) {
        let begun = Instant::now();
        self.end.take().unwrap().send(()).unwrap();
        let task = &mut self.task;
        self.runtime.as_ref().unwrap().block_on(task).unwrap();
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "ending took {:?}",
            begun.elapsed()
        );
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What the planners would still write over the objects that the API server has, by kind and name.
pub(crate) fn planned_writes(api: &ApiServer) -> Vec<String> {
    let settings = read(&CONFIG.replace("KUBECONFIG", "none"));
    let mut before = Objects::default();
    for kind in [
        "nodes",
        "namespaces",
        "routeadvertisements",
        "frrconfigurations",
        "clusteruserdefinednetworks",
        "network-attachment-definitions",
        "egressips",
    ] {
        for object in api.items(kind) {
            before.put(object).unwrap();
        }
    }
    let mut after = before.clone();
    offline::settle(&settings, &mut after).unwrap();
    let mut changed: Vec<String> = before
        .iter()
        .filter(|((kind, name), object)| after.get(kind, name) != Some(*object))
        .map(|((kind, name), _)| format!("{kind} {name}"))
        .collect();
    let new = after
        .iter()
        .filter(|((kind, name), _)| before.get(kind, name).is_none());
    changed.extend(new.map(|((kind, name), _)| format!("new {kind} {name}")));
    changed
}

/// Status, reason and message of a condition of the first RouteAdvertisements.
pub(crate) fn condition(api: &ApiServer, kind: &str) -> Option<(String, String, String)> {
    let ra = api.items("routeadvertisements").into_iter().next()?;
    let list = ra.pointer("/status/conditions")?.as_array()?.clone();
    let c = list.iter().find(|c| c["type"] == kind)?;
    let text = |key: &str| c[key].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

/// The nodes that have a generated object of their own, each with the neighbors that it loads from all generated ones.
pub(crate) fn served(api: &ApiServer) -> BTreeMap<String, BTreeSet<String>> {
    let ours = |o: &Value| {
        let name = o["metadata"]["name"].as_str().unwrap();
        o["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "noverlay"
            && name.starts_with("ovnk-generated-")
    };
    let mut objects = api.items("frrconfigurations");
    objects.retain(ours);
    let own = |o: &Value| {
        let selector = &o["spec"]["nodeSelector"]["matchLabels"];
        selector["kubernetes.io/hostname"]
            .as_str()
            .map(str::to_owned)
    };
    let owners: BTreeSet<String> = objects.iter().filter_map(own).collect();
    let neighbors = |labels: &Value| {
        let loaded = objects
            .iter()
            .filter(|o| selects(&o["spec"]["nodeSelector"], labels));
        let lists = loaded.filter_map(|o| o["spec"]["bgp"]["routers"][0]["neighbors"].as_array());
        let addresses = lists
            .flatten()
            .map(|n| n["address"].as_str().unwrap().to_owned());
        addresses.collect()
    };
    let nodes = api.items("nodes");
    let named = nodes.iter().map(|node| {
        let metadata = &node["metadata"];
        let name = metadata["name"].as_str().unwrap().to_owned();
        (name, neighbors(&metadata["labels"]))
    });
    named.filter(|(name, _)| owners.contains(name)).collect()
}
