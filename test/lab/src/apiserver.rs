//! etcd and kube-apiserver, with certificates of their own, on the underlay.
//!
//! In: a lab whose underlay namespace exists. Out: a server that answers `/readyz`
//! over TLS with role based access control and an audit log, and kubeconfig files.
//! There is no controller-manager: what would need one is not here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{self, Start, tail};
use crate::run::{tool, until};
use crate::services;
use crate::state::{Lab, text};

/// Some seconds; in an emulated machine a minute.
const PATIENCE: Duration = Duration::from_secs(300);

/// The namespace of the daemons' service accounts.
pub(crate) const ACCOUNTS: &str = "noverlay-system";
/// All users of ours begin with this in the audit log.
pub(crate) const USERS: &str = "system:serviceaccount:noverlay-system:";

/// The API server's port.
pub(crate) const PORT: u16 = 6443;

/// Writes are logged with the user's name, those to our own kinds with what was sent; reads are not, there are too many.
const AUDIT_POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
 "rules": [{"level": "Request", "verbs": ["create", "update", "patch"], "resources": [{"group": "noverlay.io"}]},
  {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]}, {"level": "None"}]}
"#;

/// Where the audit log is.
pub(crate) fn audit_log(lab: &Lab) -> PathBuf {
    lab.node_dir("underlay").join("audit.log")
}

/// Makes keys and certificates, starts both servers, waits until they are ready.
pub(crate) fn up(lab: &Lab) -> Result<()> {
    let dir = lab.node_dir("underlay");
    std::fs::create_dir_all(dir.join("etcd"))?;
    certificates(lab).context("making certificates")?;
    std::fs::write(dir.join("audit-policy.json"), AUDIT_POLICY)?;
    process::start(lab, etcd(lab), 0)?;
    process::start(lab, server(lab)?, 0)?;
    kubeconfig(lab, "admin", &Login::Certificate)?;
    let ready = until(PATIENCE, Duration::from_millis(100), || {
        kubectl(lab)
            .args(["get", "--raw", "/readyz"])
            .run()
            .ok()
            .filter(|s| s == "ok")
    });
    if ready.is_none() {
        bail!(
            "kube-apiserver is not ready after {PATIENCE:?}:\n{}",
            tail(&dir.join("kube-apiserver.log"), 10)
        );
    }
    Ok(())
}

fn etcd(lab: &Lab) -> Start {
    let dir = lab.node_dir("underlay");
    let argv = [
        text(&lab.places.tools.join("etcd")),
        format!("--data-dir={}", text(&dir.join("etcd"))),
        "--listen-client-urls=http://127.0.0.1:2379".to_owned(),
        "--advertise-client-urls=http://127.0.0.1:2379".to_owned(),
        "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
        // A lab's objects need not survive a power cut.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    foreground(lab, "etcd", argv.to_vec())
}

fn server(lab: &Lab) -> Result<Start> {
    let dir = lab.node_dir("underlay");
    let file = |name: &str| text(&dir.join(name));
    let services = services::ranges(lab)?;
    let argv = [
        text(&lab.places.tools.join("kube-apiserver")),
        "--etcd-servers=http://127.0.0.1:2379".to_owned(),
        format!("--bind-address={}", lab.values.api_address()),
        format!("--advertise-address={}", lab.values.api_address()),
        format!("--secure-port={PORT}"),
        format!("--cert-dir={}", file("")),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--service-account-key-file={}", file("accounts.key")),
        format!(
            "--service-account-signing-key-file={}",
            file("accounts.key")
        ),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-cluster-ip-range={services}"),
        "--authorization-mode=RBAC".to_owned(),
        format!("--audit-policy-file={}", file("audit-policy.json")),
        format!("--audit-log-path={}", text(&audit_log(lab))),
        "--audit-log-mode=blocking".to_owned(),
    ];
    Ok(foreground(lab, "kube-apiserver", argv.to_vec()))
}

/// A daemon that stays in the foreground and talks to standard error.
pub(crate) fn foreground(lab: &Lab, name: &str, argv: Vec<String>) -> Start {
    Start {
        node: "underlay".to_owned(),
        name: name.to_owned(),
        argv,
        env: Vec::new(),
        log: lab.node_dir("underlay").join(format!("{name}.log")),
        pidfile: None,
    }
}

fn certificates(lab: &Lab) -> Result<()> {
    let dir = lab.node_dir("underlay");
    let openssl = |line: &str| -> Result<()> {
        let mut command = tool("openssl").with(|c| {
            c.current_dir(&dir);
        });
        command = command.args(line.split('|'));
        command.run().map(drop)
    };
    let key = "-newkey|ec|-pkeyopt|ec_paramgen_curve:prime256v1|-nodes";
    openssl("ecparam|-genkey|-name|prime256v1|-noout|-out|accounts.key")?;
    openssl(&format!(
        "req|-x509|{key}|-keyout|ca.key|-out|ca.crt|-days|30|-subj|/CN=lab"
    ))?;
    let san = format!(
        "subjectAltName=IP:{},IP:127.0.0.1",
        lab.values.api_address()
    );
    let signed = [
        ("server", "/CN=kube-apiserver", format!("-addext|{san}")),
        (
            "admin",
            "/O=system:masters/CN=lab-admin",
            "-addext|extendedKeyUsage=clientAuth".to_owned(),
        ),
    ];
    for (name, subject, extension) in signed {
        openssl(&format!(
            "req|-new|{key}|-keyout|{name}.key|-out|{name}.csr|-subj|{subject}|{extension}"
        ))?;
        openssl(&format!(
            "x509|-req|-in|{name}.csr|-CA|ca.crt|-CAkey|ca.key|-CAcreateserial|-days|30|-copy_extensions|copy|-out|{name}.crt"
        ))?;
    }
    Ok(())
}

/// How a user of a kubeconfig file proves who it is.
pub(crate) enum Login {
    /// By the admin's certificate.
    Certificate,
    /// By a service account's token.
    Token(String),
}

/// Writes a kubeconfig file (JSON is YAML) and gives its path.
pub(crate) fn kubeconfig(lab: &Lab, name: &str, login: &Login) -> Result<PathBuf> {
    let dir = lab.node_dir("underlay");
    let user = match login {
        Login::Certificate => serde_json::json!({
            "client-certificate": dir.join("admin.crt"), "client-key": dir.join("admin.key"),
        }),
        Login::Token(token) => serde_json::json!({ "token": token }),
    };
    let content = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {
            "server": format!("https://{}", SocketAddr::new(lab.values.api_address(), PORT)),
            "certificate-authority": dir.join("ca.crt"),
        }}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name}}],
    });
    let path = dir.join(format!("{name}.kubeconfig"));
    std::fs::write(&path, serde_json::to_string_pretty(&content)?)?;
    Ok(path)
}

/// kubectl as the admin, inside the underlay.
pub(crate) fn kubectl(lab: &Lab) -> crate::run::Tool {
    let dir = lab.node_dir("underlay");
    tool(&text(&lab.places.tools.join("kubectl")))
        .env("KUBECONFIG", &text(&dir.join("admin.kubeconfig")))
        .env("KUBECACHEDIR", &text(&dir.join("kubectl-cache")))
        .env("KUBERC", "off")
        .inside(&lab.namespace("underlay"))
}

/// Reads objects by their API path, without kubectl's discovery.
pub(crate) fn get(lab: &Lab, path: &str) -> Result<serde_json::Value> {
    let answer = kubectl(lab).args(["get", "--raw", path]).run()?;
    serde_json::from_str(&answer).with_context(|| format!("answer to {path}"))
}
