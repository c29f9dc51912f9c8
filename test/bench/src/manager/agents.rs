//! What frr-agent costs on a route reflector, and on a node that reflects nothing, with a FRR of its own that has no peers.
//! In: a cluster whose objects stand. Out: seconds until FRR has the configuration, processor time, memory.
//! Invariant: the agent is the real binary, a process of its own with the rights it is shipped with.
//! Not here: sessions that come up; the manager, which would answer to what the agent reports.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use frr_tests::Frr;
use plan_cluster::fabric::roles::Role;
use serde_json::Value;

use super::cluster::Cluster;
use super::record::now;
use crate::process::Watched;
use crate::report::Report;

const STATES: &str = "/apis/frrk8s.metallb.io/v1beta1/frrnodestates";
const SESSIONS: &str = "/apis/frrk8s.metallb.io/v1beta1/bgpsessionstates";
/// Nothing more is reported for so long: all is.
const QUIET: f64 = 15.0;
/// Whoever is not done after so long never will be.
const PATIENCE: f64 = 600.0;

/// A running agent.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        // It may be gone already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub(crate) async fn cost(report: &mut Report, case: &str, cluster: &Cluster) {
    let missing = frr_tests::missing();
    assert!(missing.is_empty(), "not on this machine: {missing:?}");
    let nodes = cluster.nodes().await.into_iter().map(|object| {
        let object = serde_json::from_value(object).expect("a Node");
        api::decode_node(&object)
    });
    let nodes: Vec<_> = nodes.collect();
    let roles = [
        (Role::Reflector, "of a reflector"),
        (Role::Member, "of a node that reflects nothing"),
    ];
    for (role, words) in roles {
        if let Some(node) = nodes.iter().find(|node| Role::of(node) == Some(role)) {
            one(report, (case, words), cluster, node.name.as_str()).await;
        }
    }
}

async fn one(report: &mut Report, (case, words): (&str, &str), cluster: &Cluster, node: &str) {
    let frr = tokio::task::block_in_place(Frr::start).expect("a FRR");
    let begun = now();
    let agent = start(cluster, &frr, node);
    let process = Watched::new(agent.0.id());
    let path = format!("{STATES}/{node}");
    until(begun, "FRR has the configuration", async || {
        let state = cluster.get(&path).await;
        let result = state.as_ref()?.pointer("/status/lastReloadResult")?;
        (result.as_str()?.starts_with("success")).then_some(())
    })
    .await;
    let loaded = now() - begun;
    let mut last = (0, now());
    until(begun, "the sessions are reported", async || {
        let count = cluster.list(SESSIONS).await.len();
        if count != last.0 {
            last = (count, now());
        }
        (now() - last.1 > QUIET).then_some(())
    })
    .await;
    let of = |what: &str| format!("frr-agent {words}: {what}");
    report.put(case, &of("until FRR has it"), "s", loaded);
    let cpu = process.cpu().as_secs_f64();
    report.put(case, &of("processor time"), "s", cpu);
    report.put(case, &of("peak memory"), "MiB", process.peak());
    report.put(case, &of("memory"), "MiB", process.resident());
    drop(agent);
    cluster.delete_all(SESSIONS).await;
}

async fn until(begun: f64, what: &str, mut done: impl AsyncFnMut() -> Option<()>) {
    while done().await.is_none() {
        assert!(now() - begun < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn start(cluster: &Cluster, frr: &Frr, node: &str) -> Agent {
    let folder = frr.dir().join("conf");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("vtysh.conf"), "").expect("a file");
    let text = format!(
        "[kubernetes]\nkubeconfig = \"{}\"\n[metrics]\nbind-address = \"127.0.0.1:{}\"\n[frr]\nvty-socket = \"{}\"\nconfig-file = \"{}/frr.conf\"\n",
        cluster.api.kubeconfig("frr-agent").display(),
        kube_tests::free_port(),
        frr.dir().display(),
        folder.display(),
    );
    let config = folder.join("noverlay.toml");
    std::fs::write(&config, text).expect("a file");
    let log = std::fs::File::create(cluster.api.path(&format!("frr-agent-{node}.log")));
    let own = std::env::current_exe().expect("this program");
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(own.with_file_name("frr-agent"))
        .arg("--config")
        .arg(&config)
        .args(["--node", node])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.expect("a file"))
        .spawn();
    Agent(child.expect("the frr-agent"))
}

impl Cluster {
    /// One object, where it is there.
    async fn get(&self, path: &str) -> Option<Value> {
        let said = self.call("GET", path, "application/json", &Value::Null);
        serde_json::from_str(&said.await.ok()?).ok()
    }

    /// Deletes all objects of a kind.
    async fn delete_all(&self, path: &str) {
        let text = self.list(path).await;
        for object in &text {
            let name = |key: &str| object.pointer(&format!("/metadata/{key}"));
            let (Some(namespace), Some(name)) = (name("namespace"), name("name")) else {
                continue;
            };
            let (namespace, name) = (namespace.as_str(), name.as_str());
            let (prefix, kind) = path.rsplit_once('/').expect("a path");
            let of = format!(
                "{prefix}/namespaces/{}/{kind}/{}",
                namespace.unwrap_or_default(),
                name.unwrap_or_default()
            );
            let said = self.call("DELETE", &of, "application/json", &Value::Null);
            drop(said.await);
        }
    }
}
