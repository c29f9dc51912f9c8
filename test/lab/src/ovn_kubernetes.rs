//! Real OVN-Kubernetes, where somebody has its binaries: it makes the network of tunnels, and our daemons run beside it.
//!
//! In: a folder with `ovnkube`, `ovn-k8s-cni-overlay`, `crds/` (its definitions) and `ovn/` (where OVN 26.03 and its Open vSwitch are
//! installed: `bin`, `sbin`, `share`). Out: its cluster manager in the underlay, and controller and node in each node, in mounts of
//! their own, since it has its sockets and files at fixed places. Nothing of it is in this repository.
//! Not here: pods (`cni`), what our daemons do beside it (`beside`).

pub(crate) mod cni;
pub(crate) mod systemd;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::json;

use crate::apiserver::{PORT, foreground, kubectl};
use crate::process::{self, Start};
use crate::run::tool;
use crate::services;
use crate::state::{Lab, Node, text, write_whole};
use crate::up::own_program;

/// Names among the daemons.
pub(crate) const NODE: &str = "ovnkube";
const MANAGER: &str = "ovnkube-cluster-manager";
const SYSTEMD: &str = "systemd-stand-in";
/// Where its own objects are.
const NAMESPACE: &str = "ovn-kubernetes";
/// What the folder has to hold.
const PARTS: [&str; 10] = [
    "ovnkube",
    "ovn-k8s-cni-overlay",
    "crds",
    "ovn/bin/ovn-northd",
    "ovn/bin/ovn-controller",
    "ovn/sbin/ovs-vswitchd",
    "ovn/sbin/ovsdb-server",
    "ovn/share/openvswitch/vswitch.ovsschema",
    "ovn/share/ovn/ovn-nb.ovsschema",
    "ovn/share/ovn/ovn-sb.ovsschema",
];
/// What it calls, and the Debian package of each.
const CALLED: [(&str, &str); 2] = [("iptables", "iptables"), ("conntrack", "conntrack")];
/// nft of Debian 12 (1.0.6) refuses, in tables of both families, a translation by a map whose family is not said.
const NFT: &str = r#"#!/bin/sh
case " $* " in
*" -f - "*) sed -E 's/snat to (ip6?) /snat \1 to \1 /' | /usr/sbin/nft "$@" ;;
*) exec /usr/sbin/nft "$@" ;;
esac
"#;

/// Has the folder what is needed, and the machine?
pub(crate) fn check(folder: &Path, by_kernel: bool, has_networks: bool) -> Result<()> {
    ensure!(
        by_kernel || !has_networks,
        "--ovn-kubernetes with --network: its networks of users have VRFs, and their packets the kernel's datapath; allowed: --datapath kernel, where the kernel has both (hack/vm)"
    );
    for part in PARTS {
        let path = folder.join(part);
        ensure!(
            path.exists(),
            "--ovn-kubernetes {}: there is no {part}; wanted are {}",
            folder.display(),
            PARTS.join(", ")
        );
    }
    for (program, package) in CALLED {
        let is_there = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
            .iter()
            .any(|folder| Path::new(folder).join(program).exists());
        ensure!(
            is_there,
            "--ovn-kubernetes: {program} is missing, which OVN-Kubernetes calls; Debian package: {package}"
        );
    }
    Ok(())
}

/// Where a program of Open vSwitch or OVN is: in the folder, or, without OVN-Kubernetes, wherever the machine has it.
pub(crate) fn program(lab: &Lab, name: &str) -> String {
    let folder = lab.ovn_kubernetes.iter();
    let mut places = folder
        .flat_map(|folder| ["sbin", "bin"].map(|part| folder.join("ovn").join(part).join(name)));
    let found = places.find(|path| path.exists());
    found.map_or_else(|| name.to_owned(), |path| text(&path))
}

/// The schema of a database: of the folder, or of the machine.
pub(crate) fn schema(lab: &Lab, path: &str) -> String {
    match &lab.ovn_kubernetes {
        Some(folder) => text(&folder.join("ovn/share").join(path)),
        None => format!("/usr/share/{path}"),
    }
}

/// Its definitions, namespaces and account.
pub(crate) fn install(lab: &Lab, folder: &Path) -> Result<()> {
    kubectl(lab)
        .args(["apply", "--server-side", "--force-conflicts", "-f"])
        .args([text(&folder.join("crds"))])
        .run()?;
    let namespace =
        |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let account = |namespace: &str, name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name}});
    let items = [
        namespace(NAMESPACE),
        namespace("ovn-host-network"),
        account(NAMESPACE, NODE),
        // Nobody else makes those that pods have.
        account("default", "default"),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": NODE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": NODE}]}),
    ];
    kubectl(lab)
        .args(["apply", "--server-side", "-f", "-"])
        .input(json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())
        .run()?;
    kubectl(lab)
        .args([
            "wait",
            "--for=condition=Established",
            "crd",
            "--all",
            "--timeout=60s",
        ])
        .run()?;
    renew_token(lab).map(drop)
}

/// Its account's token, which lasts two days.
fn renew_token(lab: &Lab) -> Result<String> {
    let token = kubectl(lab)
        .args(["create", "token", "-n", NAMESPACE, NODE, "--duration=48h"])
        .run()?;
    write_whole(&token_file(lab), token.trim())?;
    Ok(token.trim().to_owned())
}

fn token_file(lab: &Lab) -> PathBuf {
    lab.node_dir("underlay").join("ovnkube.token")
}

fn config_file(lab: &Lab) -> PathBuf {
    lab.node_dir("underlay").join("ovnkube.conf")
}

/// Its configuration: tunnels, and no route advertisements of its own.
fn config(lab: &Lab) -> Result<String> {
    let network = lab.values.default_network()?;
    let next_hops = lab.values.outside_addresses();
    let next_hops: Vec<String> = next_hops.iter().map(ToString::to_string).collect();
    Ok(format!(
        "[default]
mtu={}
cluster-subnets={}
encap-port=6081
[kubernetes]
service-cidrs={}
ovn-config-namespace={NAMESPACE}
host-network-namespace=ovn-host-network
[ovnkubernetesfeature]
enable-egress-ip=true
egressip-reachability-total-timeout=0
enable-egress-firewall=true
enable-egress-service=true
enable-egress-qos=true
enable-multi-network=true
enable-network-segmentation=true
enable-route-advertisements=false
[gateway]
mode={}
interface=br-ex
next-hop={}
nodeport=true
{}v4-masquerade-subnet=169.254.0.0/17
v6-masquerade-subnet=fd69::/112
[logging]
loglevel=4
",
        lab.outward.mtu(),
        network.cluster_subnets(),
        services::ranges(lab)?,
        lab.outward.gateway_mode,
        next_hops.join(","),
        network.join_keys().replace(" = ", "="),
    ))
}

/// Starts its cluster manager, and controller and node of each node.
pub(crate) fn start(lab: &Lab, folder: &Path) -> Result<()> {
    write_whole(&config_file(lab), &config(lab)?)?;
    let own = text(&own_program()?);
    let argv = [&own, "--name", &lab.name, "systemd-stand-in"].map(str::to_owned);
    process::start(lab, foreground(lab, SYSTEMD, argv.to_vec()), 0)?;
    let argv = [
        text(&folder.join("ovnkube")),
        "--init-cluster-manager".to_owned(),
        "lab".to_owned(),
        format!("--config-file={}", text(&config_file(lab))),
        format!(
            "--k8s-kubeconfig={}",
            text(&lab.node_dir("underlay").join("admin.kubeconfig"))
        ),
    ];
    let mut manager = foreground(lab, MANAGER, argv.to_vec());
    manager.env = vec![path(lab)?];
    process::start(lab, manager, 0)?;
    lab.nodes.iter().try_for_each(|node| start_node(lab, node))
}

/// Starts controller and node of a node.
pub(crate) fn start_node(lab: &Lab, node: &Node) -> Result<()> {
    let folder = lab.ovn_kubernetes.as_deref();
    let folder = folder.context("the lab runs no OVN-Kubernetes")?;
    let token = renew_token(lab)?;
    let ca = lab.node_dir("underlay").join("ca.crt");
    let server = SocketAddr::new(lab.values.api_address(), PORT);
    let arguments = [
        text(&folder.join("ovnkube")),
        format!("--init-ovnkube-controller={}", node.name),
        format!("--init-node={}", node.name),
        format!("--config-file={}", text(&config_file(lab))),
        format!("--k8s-apiserver=https://{server}"),
        format!("--k8s-cacert={}", text(&ca)),
        format!("--k8s-token-file={}", text(&token_file(lab))),
        format!("--k8s-token={token}"),
    ];
    let start = Start {
        node: node.name.clone(),
        name: NODE.to_owned(),
        argv: [words(lab, &node.name)?, arguments.to_vec()].concat(),
        env: Vec::new(),
        log: lab.node_dir(&node.name).join(format!("{NODE}.log")),
        pidfile: None,
    };
    process::start(lab, start, 0).map(drop)
}

fn nft_folder(lab: &Lab) -> PathBuf {
    lab.node_dir("underlay").join("nft-words")
}

/// Before anything of a node runs.
pub(crate) fn prepare(lab: &Lab) -> Result<()> {
    systemd_folder(lab)?;
    std::fs::create_dir_all(nft_folder(lab))?;
    let nft = nft_folder(lab).join("nft");
    write_whole(&nft, NFT)?;
    std::fs::set_permissions(&nft, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// In front of a command on a node: it finds the node's sockets and files at the usual places.
pub(crate) fn words(lab: &Lab, node: &str) -> Result<Vec<String>> {
    let own = text(&own_program()?);
    let words = [&own, "--name", &lab.name, "as-ovn-kubernetes", node];
    Ok(words.map(str::to_owned).to_vec())
}

/// Its programs find OVN's of the folder, and `nft` in words that this machine's knows.
fn path(lab: &Lab) -> Result<(String, String)> {
    let folder = lab.ovn_kubernetes.as_deref();
    let ovn = folder
        .context("the lab runs no OVN-Kubernetes")?
        .join("ovn");
    let words = nft_folder(lab);
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!(
        "{}:{1}/bin:{1}/sbin:{1}/share/ovn/scripts:{path}",
        words.display(),
        ovn.display()
    );
    Ok(("PATH".to_owned(), path))
}

fn systemd_folder(lab: &Lab) -> Result<PathBuf> {
    let folder = lab.node_dir("underlay").join("systemd");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The socket of systemd's stand-in.
pub(crate) fn systemd_socket(lab: &Lab) -> Result<PathBuf> {
    Ok(systemd_folder(lab)?.join("private"))
}

/// Becomes a program of OVN-Kubernetes on a node: with the node's sockets and files at the places where it looks for them.
pub(crate) fn become_program(lab: &Lab, node: &str, command: &[String]) -> Result<()> {
    let (key, path) = path(lab)?;
    let (program, arguments) = command.split_first().context("a program")?;
    // The plugin asks the node by a socket, and needs no more.
    mounts(lab, node, program.ends_with(NODE))?;
    let error = Command::new(program).args(arguments).env(key, path).exec();
    Err(error).with_context(|| format!("starting {program}"))
}

fn mounts(lab: &Lab, node: &str, with_etc: bool) -> Result<()> {
    let own = lab.node_dir(node).join(NODE);
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace")?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let (ovs, labs) = (lab.ovs_dir(node), Lab::folder(""));
    let run = own.join("run");
    let made = |path: PathBuf| -> Result<PathBuf> {
        std::fs::create_dir_all(&path).with_context(|| text(&path))?;
        Ok(path)
    };
    let lab_name = labs.file_name().context("the folder of labs")?;
    for (from, name) in [
        (ovs.clone(), "ovn"),
        (ovs, "openvswitch"),
        (systemd_folder(lab)?, "systemd"),
        (labs.clone(), &*lab_name.to_string_lossy()),
    ] {
        bind(&from, &made(run.join(name))?)?;
    }
    made(run.join("ovn-kubernetes/cni"))?;
    let (upper, work) = (made(own.join("etc"))?, made(own.join("etc-work"))?);
    for part in ["cni/net.d", "openvswitch", "ovn"] {
        made(upper.join(part))?;
    }
    if with_etc {
        let layers = format!(
            "lowerdir=/etc,upperdir={},workdir={}",
            upper.display(),
            work.display()
        );
        let overlay = Some("overlay");
        let layers = Some(layers.as_str());
        mount(overlay, "/etc", overlay, MsFlags::empty(), layers).context("an overlay on /etc")?;
    }
    let log = made(own.join("log"))?;
    for part in ["ovn", "openvswitch", "ovn-kubernetes"] {
        made(log.join(part))?;
    }
    bind(&log, Path::new("/var/log"))?;
    bind(&run, Path::new("/run"))
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    let none: Option<&str> = None;
    mount(
        Some(from),
        to,
        none,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        none,
    )
    .with_context(|| format!("binding {} to {}", from.display(), to.display()))
}

/// What it writes for whoever calls its plugin; it is there when the node is ready.
pub(crate) fn plugin_config(lab: &Lab, node: &str) -> Option<String> {
    let folder = lab.node_dir(node).join(NODE).join("etc/cni/net.d");
    std::fs::read_to_string(folder.join("10-ovn-kubernetes.conf")).ok()
}

/// Calls its plugin on a node.
pub(crate) fn plugin(lab: &Lab, node: &str) -> Result<crate::run::Tool> {
    let folder = lab.ovn_kubernetes.as_deref();
    let folder = folder.context("the lab runs no OVN-Kubernetes")?;
    let words = words(lab, node)?;
    let (own, words) = words.split_first().context("own program")?;
    Ok(tool(own)
        .args(words)
        .args([text(&folder.join("ovn-k8s-cni-overlay"))])
        .env("CNI_PATH", &text(folder))
        .inside(&lab.namespace(node)))
}
