//! The cluster-manager as a process of its own, for signals and for settings of all kinds.
//! In: an API server, settings. Out: a process that is killed with its value. Invariant: it runs the daemon's own `run`.
//! Not here: what is tested.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kube_tests::{ApiServer, free_port, until};
use serde_json::Value;

pub(crate) const MANAGED: &str = "[default]\ntransport = \"no-overlay\"\ncluster-subnets = \"10.128.0.0/16/24\"\n[no-overlay]\noutbound-snat = \"enabled\"\nrouting = \"managed\"\n[bgp-managed]\ntopology = \"full-mesh\"\nas-number = 64777\n[ovn]\ntopology = \"build\"\n";

/// The same without a managed fabric.
pub(crate) fn unmanaged() -> String {
    MANAGED
        .replace("routing = \"managed\"", "routing = \"unmanaged\"")
        .replace(
            "[bgp-managed]\ntopology = \"full-mesh\"\nas-number = 64777\n",
            "",
        )
}

pub(crate) struct Daemon {
    child: Child,
    pub(crate) metrics: u16,
    log: std::path::PathBuf,
}

impl Daemon {
    pub(crate) fn start(
        api: &ApiServer,
        identity: &str,
        kubeconfig: &Path,
        settings: &str,
    ) -> Self {
        let metrics = free_port();
        let text = format!(
            "{settings}[metrics]\nbind-address = \"127.0.0.1:{metrics}\"\n[kubernetes]\nkubeconfig = \"{}\"\n",
            kubeconfig.display()
        );
        let config = api.path(&format!("{identity}.toml"));
        std::fs::write(&config, text).unwrap();
        let log = api.path(&format!("{identity}.log"));
        let file = std::fs::File::create(&log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_kube-tests-manager"))
            .arg(&config)
            .arg(identity)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self {
            child,
            metrics,
            log,
        }
    }

    /// With its own account, straight to the API server.
    pub(crate) fn managed(api: &ApiServer, identity: &str) -> Self {
        Self::start(api, identity, &api.kubeconfig("cluster-manager"), MANAGED)
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for its end; what it wrote to its log.
    pub(crate) fn ended(mut self) -> (bool, String) {
        let ok = self.child.wait().unwrap().success();
        (ok, self.said())
    }

    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Status line and body of an HTTP GET.
    pub(crate) fn get(&self, path: &str) -> Result<(String, String), String> {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.metrics))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            let text = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream.write_all(text.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = ask().map_err(|e| e.to_string())?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let line = head.lines().next().unwrap_or_default();
        Ok((line.to_owned(), body.to_owned()))
    }

    /// The value of a metric without labels.
    pub(crate) fn metric(&self, name: &str) -> Result<f64, String> {
        let (_, body) = self.get("/metrics")?;
        let mut lines = body.lines();
        let line = lines.find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|v| v.parse().ok())
            .ok_or(format!("no {name}"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may be gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn text(object: &Value, path: &str) -> String {
    let value = object.pointer(path).and_then(Value::as_str);
    value.unwrap_or_default().to_owned()
}

/// Who holds the manager's lease.
pub(crate) fn holder(api: &ApiServer) -> String {
    let lease = [
        "get",
        "lease",
        "noverlay-cluster-manager",
        "-n",
        "noverlay-system",
    ];
    let path = ["-o", "jsonpath={.spec.holderIdentity}"];
    api.try_kubectl(&[lease.as_slice(), path.as_slice()].concat())
        .unwrap_or_default()
}

/// Nodes that have an object of their own, and how many neighbors each has.
pub(crate) fn generated(api: &ApiServer) -> BTreeMap<String, usize> {
    let served = crate::harness::served(api).into_iter();
    served.map(|(node, peers)| (node, peers.len())).collect()
}

/// A condition of the RouteAdvertisements `name`, or of the first: status, reason, message.
pub(crate) fn condition(api: &ApiServer, kind: &str) -> (String, String, String) {
    let all = api.items("routeadvertisements");
    let list = all.first().and_then(|ra| ra.pointer("/status/conditions"));
    let mut list = list.and_then(Value::as_array).into_iter().flatten();
    let found = list
        .find(|c| text(c, "/type") == kind)
        .cloned()
        .unwrap_or_default();
    (
        text(&found, "/status"),
        text(&found, "/reason"),
        text(&found, "/message"),
    )
}

/// Waits until each of `nodes` peers with all others and the conditions are True.
pub(crate) fn settled(api: &ApiServer, nodes: usize, seconds: u64) {
    until("every node has its objects", seconds, || {
        let seen = generated(api);
        let complete = condition(api, "Complete");
        let full = seen.len() == nodes && seen.values().all(|peers| *peers == nodes - 1);
        if full && complete.0 == "True" {
            Ok(())
        } else {
            Err(format!("{} objects, {complete:?}", seen.len()))
        }
    });
}

/// Writes of one replica (by the uid of its account) but for leases: verb, resource and name, and the answer's code.
pub(crate) fn writes_of(api: &ApiServer, uid: &str) -> Vec<(String, u64)> {
    let all = api.audited();
    all.iter()
        .filter(|e| text(e, "/user/uid") == uid && text(e, "/objectRef/resource") != "leases")
        .map(|e| {
            let parts = ["/verb", "/objectRef/resource", "/objectRef/name"].map(|p| text(e, p));
            let [verb, resource, name] = parts;
            let code = e.pointer("/responseStatus/code").and_then(Value::as_u64);
            (format!("{verb} {resource}/{name}"), code.unwrap_or(0))
        })
        .collect()
}
