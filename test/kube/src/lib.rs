//! A real kube-apiserver with etcd on loopback, for tests.
//! In: the binaries of `hack/tools`. Out: a running API server, kubeconfigs for the daemons' own users, kubectl.
//! Invariant: both processes die with the value, and with the test's thread at the latest.
//! Not here: what is tested.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a fixture of tests: it stops at the first surprise and says why"
)]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
pub use testkit::port::free as free_port;

/// The checkout's top folder.
#[must_use]
pub fn top() -> PathBuf {
    // Tests run in their package's folder, benchmarks anywhere in the checkout.
    let here = std::env::current_dir().unwrap();
    let mut folders = here.ancestors();
    let top = folders.find(|folder| folder.join("hack/tools").exists());
    top.unwrap().to_owned()
}

/// The folder with kube-apiserver, etcd and kubectl, or `None` (said, or a failure where REQUIRE_TOOLS=1).
#[must_use]
pub fn tools() -> Option<PathBuf> {
    let folder = std::env::var("NOVERLAY_TOOLS_DIR")
        .map(PathBuf::from)
        .unwrap_or_else(|_| {
            let out = Command::new(top().join("hack/tools"))
                .arg("--print-dir")
                .output()
                .unwrap();
            PathBuf::from(String::from_utf8(out.stdout).unwrap().trim())
        });
    if folder.join("kube-apiserver").exists() && folder.join("etcd").exists() {
        return Some(folder);
    }
    assert!(
        std::env::var("REQUIRE_TOOLS").as_deref() != Ok("1"),
        "kube-apiserver and etcd are not in {}: run hack/tools",
        folder.display()
    );
    println!(
        "skipped: kube-apiserver and etcd are not in {}: run hack/tools",
        folder.display()
    );
    None
}

/// A running API server.
pub struct ApiServer {
    tools: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
    children: Vec<Child>,
    server_arguments: Vec<String>,
    /// Writes of which resources are audited with what was sent.
    bodies: &'static str,
}

/// Bodies of patches of Nodes, which tests look at, and every request of the cluster-manager.
const OF_NODES: &str = "- level: Request\n  verbs: [patch]\n  resources: [{group: '', resources: [nodes]}]\n- level: Metadata\n  users: ['system:serviceaccount:noverlay-system:cluster-manager']\n";
/// Bodies of all writes.
const OF_ALL: &str = "- level: Request\n  verbs: [create, update, patch, delete]\n";

const USERS: &[(&str, &str)] = &[
    ("admin", "system:masters"),
    ("cluster-manager", "system:serviceaccounts"),
    // The same account as its other replica: the audit log tells them apart by uid.
    ("cluster-manager-b", "system:serviceaccounts"),
    ("node-agent", "system:serviceaccounts"),
    ("frr-agent", "system:serviceaccounts"),
    ("noverlay-view", "system:serviceaccounts"),
];

impl ApiServer {
    /// Starts both processes, waits until the server is ready, and installs `manifests/overlays/standalone`.
    #[must_use]
    pub fn start(tools: PathBuf) -> Self {
        Self::start_auditing(tools, OF_NODES)
    }

    /// The same with what was sent of every write in the audit log.
    #[must_use]
    pub fn start_recording(tools: PathBuf) -> Self {
        Self::start_auditing(tools, OF_ALL)
    }

    fn start_auditing(tools: PathBuf, bodies: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut server = Self {
            tools,
            folder,
            port,
            children: Vec::new(),
            server_arguments: Vec::new(),
            bodies,
        };
        server.write_files();
        server.spawn_all();
        server.wait_ready();
        let overlay = top().join("manifests/overlays/standalone");
        // The CRDs have to be known before the rest is applied, so twice is what a person would do too.
        let overlay = overlay.to_str().unwrap().to_owned();
        server.kubectl(&["apply", "--server-side", "-k", &overlay]);
        server
    }

    /// A file of the fixture.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The kubeconfig of a user: `admin` or one of the service accounts.
    #[must_use]
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.path(&format!("{user}.kubeconfig"))
    }

    fn write_files(&self) {
        let mut tokens = String::new();
        for (user, group) in USERS {
            let name = match *user {
                "admin" => "admin".to_owned(),
                "cluster-manager-b" => {
                    "system:serviceaccount:noverlay-system:cluster-manager".to_owned()
                }
                user => format!("system:serviceaccount:noverlay-system:{user}"),
            };
            tokens.push_str(&format!("token-{user},{name},{user},{group}\n"));
            let config = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
                 clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{}', insecure-skip-tls-verify: true}}}}]\n\
                 users: [{{name: u, user: {{token: token-{user}}}}}]\n",
                self.port
            );
            std::fs::write(self.kubeconfig(user), config).unwrap();
        }
        std::fs::write(self.path("tokens"), tokens).unwrap();
        let audit = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\nBODIES- level: Metadata\n  verbs: [create, update, patch, delete]\n- level: None\n";
        let audit = audit.replace("BODIES", self.bodies);
        std::fs::write(self.path("audit.yaml"), audit).unwrap();
        let key = self.path("sa.key");
        let made = Command::new("openssl")
            .args(["genrsa", "-out"])
            .arg(&key)
            .arg("2048")
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(made.success(), "openssl genrsa");
    }

    fn spawn(&mut self, program: &str, arguments: &[String]) {
        let log = std::fs::File::create(self.path(&format!("{program}.log"))).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(self.tools.join(program))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.children.push(child);
    }

    fn spawn_all(&mut self) {
        let (client, peer) = (free_port(), free_port());
        let etcd = format!("http://127.0.0.1:{client}");
        let flags = |list: &[(&str, String)]| {
            list.iter()
                .map(|(k, v)| format!("--{k}={v}"))
                .collect::<Vec<_>>()
        };
        let data = self.path("etcd").display().to_string();
        let arguments = flags(&[
            ("data-dir", data),
            ("listen-client-urls", etcd.clone()),
            ("advertise-client-urls", etcd.clone()),
            ("listen-peer-urls", format!("http://127.0.0.1:{peer}")),
            ("unsafe-no-fsync", "true".to_owned()),
            ("log-level", "error".to_owned()),
        ]);
        self.spawn("etcd", &arguments);
        let path = |name: &str| self.path(name).display().to_string();
        let arguments = flags(&[
            ("etcd-servers", etcd),
            ("secure-port", self.port.to_string()),
            ("bind-address", "127.0.0.1".to_owned()),
            ("cert-dir", path("certs")),
            ("token-auth-file", path("tokens")),
            ("authorization-mode", "RBAC".to_owned()),
            (
                "service-account-issuer",
                "https://kubernetes.default.svc".to_owned(),
            ),
            ("service-account-key-file", path("sa.key")),
            ("service-account-signing-key-file", path("sa.key")),
            ("service-cluster-ip-range", "10.96.0.0/16".to_owned()),
            ("endpoint-reconciler-type", "none".to_owned()),
            ("audit-policy-file", path("audit.yaml")),
            ("audit-log-path", path("audit.log")),
        ]);
        self.spawn("kube-apiserver", &arguments);
        self.server_arguments = arguments;
    }

    /// Kills the API server; what it stored stays.
    pub fn stop(&mut self) {
        let mut server = self.children.pop().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Sends the API server a signal, such as `-STOP`.
    pub fn signal(&self, name: &str) {
        let server = self.children.last().unwrap();
        let pid = server.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Starts it again after `stop`.
    pub fn start_again(&mut self) {
        self.spawn("kube-apiserver", &self.server_arguments.clone());
        self.wait_ready();
    }

    fn wait_ready(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            if self.try_kubectl(&["get", "--raw", "/readyz"]).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let log = std::fs::read_to_string(self.path("kube-apiserver.log")).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(20).collect();
        panic!("kube-apiserver is not ready after 60 s: {tail:#?}");
    }

    /// Runs kubectl as admin; the error is its standard error.
    ///
    /// # Errors
    /// When kubectl ends with an error.
    pub fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        self.try_kubectl_with(arguments, "")
    }

    /// The same with standard input.
    ///
    /// # Errors
    /// When kubectl ends with an error.
    pub fn try_kubectl_with(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        use std::io::Write;
        // It waits for ever where a finalizer keeps what it deletes.
        let mut child = Command::new("timeout")
            .arg("120")
            .arg(self.tools.join("kubectl"))
            .env("KUBECONFIG", self.kubeconfig("admin"))
            .env("HOME", self.folder.path())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let out = child.wait_with_output().unwrap();
        if out.status.success() {
            Ok(String::from_utf8(out.stdout).unwrap())
        } else {
            let said = String::from_utf8_lossy(&out.stderr);
            Err(format!("{said} ({})", out.status))
        }
    }

    /// Runs kubectl as admin; a failure ends the test.
    #[must_use]
    pub fn output(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments)
            .unwrap_or_else(|e| panic!("kubectl {arguments:?}: {e}"))
    }

    /// The same without output.
    pub fn kubectl(&self, arguments: &[&str]) {
        let _output = self.output(arguments);
    }

    /// Applies objects as admin.
    pub fn apply(&self, yaml: &str) {
        if let Err(error) = self.try_kubectl_with(&["apply", "-f", "-"], yaml) {
            panic!("kubectl apply: {error}\n{yaml}");
        }
    }

    /// Installs one of `manifests/crds` that is not part of every installation.
    pub fn install(&self, crd: &str) {
        let file = top().join("manifests/crds").join(crd);
        self.kubectl(&["apply", "--server-side", "-f", file.to_str().unwrap()]);
    }

    /// Items of a list as JSON.
    #[must_use]
    pub fn items(&self, kind: &str) -> Vec<Value> {
        self.listed(&["get", kind, "-A", "-o", "json"])
    }

    /// The same with who wrote which field (`metadata.managedFields`).
    pub fn items_with_managers(&self, kind: &str) -> Vec<Value> {
        self.listed(&["get", kind, "-A", "-o", "json", "--show-managed-fields"])
    }

    fn listed(&self, arguments: &[&str]) -> Vec<Value> {
        let list: Value = serde_json::from_str(&self.output(arguments)).unwrap();
        list.get("items")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    }

    /// Makes a Node with an InternalIP (none where `ip` is empty) and Ready.
    pub fn node(&self, name: &str, ip: &str) {
        self.apply(&format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}}\n"
        ));
        let address = if ip.is_empty() {
            String::new()
        } else {
            format!(r#"{{"type":"InternalIP","address":"{ip}"}},"#)
        };
        let patch = format!(
            r#"{{"status":{{"addresses":[{address}{{"type":"Hostname","address":"{name}"}}],"conditions":[{{"type":"Ready","status":"True","reason":"KubeletReady","message":"the test plays the kubelet"}}]}}}}"#
        );
        self.kubectl(&[
            "patch",
            "node",
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            &patch,
        ]);
    }

    /// All writes in the audit log, the oldest first; those to Nodes with what was sent.
    #[must_use]
    pub fn audited(&self) -> Vec<Value> {
        let mut all = self.audit_log();
        all.retain(|event| !is_read(event));
        all
    }

    /// What the cluster-manager read: `verb` and the request's path with its parameters, the oldest first; a watch when it ends.
    #[must_use]
    pub fn reads(&self) -> Vec<String> {
        let mut all = self.audit_log();
        all.retain(is_read);
        let text = |event: &Value, path: &str| {
            let text = event.pointer(path).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let reads = all
            .iter()
            .map(|event| format!("{} {}", text(event, "/verb"), text(event, "/requestURI")));
        reads.collect()
    }

    /// All that is in the audit log: a request once for each stage, a watch when it begins to answer or ends.
    #[must_use]
    pub fn audit_log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("audit.log")).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .collect()
    }

    /// Writes of users whose name contains `user`, as `verb resource/name`, from the audit log.
    #[must_use]
    pub fn writes(&self, user: &str) -> Vec<String> {
        self.audited()
            .iter()
            .filter(|e| {
                e.pointer("/user/username")
                    .and_then(Value::as_str)
                    .is_some_and(|u| u.contains(user))
            })
            .map(|e| {
                let text = |path: &str| {
                    e.pointer(path)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_owned()
                };
                format!(
                    "{} {}/{}",
                    text("/verb"),
                    text("/objectRef/resource"),
                    text("/objectRef/name")
                )
            })
            .collect()
    }
}

fn is_read(event: &Value) -> bool {
    let verb = event.pointer("/verb").and_then(Value::as_str);
    matches!(verb, Some("get" | "list" | "watch"))
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            // It may be gone already.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// How much longer than on an idle machine anything may take: whole test programs run beside each other.
const PATIENCE: u64 = 4;

/// Asks again until it holds, for a multiple of the seconds that it needs on an idle machine; a failure tells what was wanted
/// and what was seen last. How long something takes is measured elsewhere.
pub fn until<T>(what: &str, seconds: u64, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let seconds = seconds * PATIENCE;
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        match ask() {
            Ok(value) => return value,
            Err(seen) => assert!(
                Instant::now() < end,
                "after {seconds} s not yet: {what}; seen: {seen}"
            ),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
