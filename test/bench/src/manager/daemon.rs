//! The cluster-manager as a process of its own.
//! In: a cluster. Out: a process that ends with its value. Invariant: the binary that lies beside this one, with its own account.
//! Not here: what it does.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kube_tests::free_port;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::cluster::Cluster;
use super::record::now;
use super::{Topology, objects};
use crate::process::Watched;

/// The running manager.
pub(crate) struct Daemon {
    child: Child,
    started: f64,
    metrics: u16,
    /// Nothing was measured of it yet.
    fresh: Cell<bool>,
}

impl Daemon {
    pub(crate) fn start(cluster: &Cluster, topology: Topology) -> Self {
        let metrics = free_port();
        let text = format!(
            "[default]\ntransport = no-overlay\ncluster-subnets = {}\n[no-overlay]\noutbound-snat = enabled\nrouting = managed\n\
             [bgp-managed]\ntopology = {}\n[ovn]\ntopology = build\n[metrics]\nbind-address = 127.0.0.1:{metrics}\n[kubernetes]\nkubeconfig = {}\n",
            objects::CLUSTER_SUBNETS,
            topology.word(),
            cluster.api.kubeconfig("cluster-manager").display(),
        );
        let config = cluster.api.path("noverlay.conf");
        std::fs::write(&config, text).expect("a file");
        let log = std::fs::File::create(cluster.api.path("manager.log")).expect("a file");
        let own = std::env::current_exe().expect("this program");
        let started = now();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(own.with_file_name("cluster-manager"))
            .arg("--config")
            .arg(&config)
            .args(["--identity", "bench"])
            .envs(environment())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the cluster-manager");
        Self {
            child,
            started,
            metrics,
            fresh: Cell::new(true),
        }
    }

    pub(crate) fn process(&self) -> Watched {
        Watched::new(self.child.id())
    }

    /// When it was started, seconds since 1970.
    pub(crate) fn started(&self) -> f64 {
        self.started
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh.get()
    }

    pub(crate) fn used(&self) {
        self.fresh.set(false);
    }

    /// Waits until its first pass is done, which one that was ready before has behind it; when that was seen, or 0.
    pub(crate) async fn until_ready(&self) -> f64 {
        if !self.is_fresh() {
            return 0.0;
        }
        while !self.is_ready() {
            assert!(now() - self.started < 600.0, "it is never ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        now()
    }

    fn is_ready(&self) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.metrics))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        ask().is_ok_and(|text| {
            text.lines()
                .next()
                .is_some_and(|line| line.contains(" 200 "))
        })
    }

    /// Asks it to stop, and waits.
    pub(crate) fn stop(mut self) {
        let id = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(id), Signal::SIGTERM).expect("it runs");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

/// What the installed pod template sets for it.
fn environment() -> BTreeMap<String, String> {
    let template = kube_tests::top().join("manifests/base/cluster-manager.yaml");
    let text = std::fs::read_to_string(template).expect("the pod template");
    let template: Value = serde_saphyr::from_str(&text).expect("YAML");
    let container = template.pointer("/spec/template/spec/containers/0/env");
    let all = container.and_then(Value::as_array).into_iter().flatten();
    let plain = all.filter_map(|variable| {
        let text = |key: &str| variable.get(key)?.as_str().map(str::to_owned);
        Some((text("name")?, text("value")?))
    });
    plain.collect()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may be gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
