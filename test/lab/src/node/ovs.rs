//! Open vSwitch and OVN of one node, with the userspace datapath.
//!
//! In: a namespace with its uplink. Out: three databases, ovs-vswitchd, both bridges
//! (no flows: `fail_mode=secure`), ovn-northd, ovn-controller. The node is one OVN zone.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::link::UPLINK;
use super::pki;
use crate::ovn_kubernetes::{self, program, schema};
use crate::process::{self, Start};
use crate::run::{Tool, tool, until};
use crate::state::{Lab, Node, text};
use crate::supervisor;
use crate::values::mac;

/// Below the folder where schemas are installed.
const OVS_SCHEMA: &str = "openvswitch/vswitch.ovsschema";
const NB_SCHEMA: &str = "ovn/ovn-nb.ovsschema";
const SB_SCHEMA: &str = "ovn/ovn-sb.ovsschema";

/// Starts the configuration database and ovs-vswitchd and makes both bridges.
pub(super) fn up_switch(lab: &Lab, node: &Node) -> Result<()> {
    database(
        lab,
        node,
        &Database {
            name: "conf",
            schema: OVS_SCHEMA,
            socket: "db.sock",
        },
    )?;
    vsctl(lab, &node.name).words("--no-wait init").run()?;
    let socket = format!("unix:{}", text(&lab.ovs_dir(&node.name).join("db.sock")));
    process::start(lab, daemon(lab, node, "ovs-vswitchd", vec![socket]), 0)?;
    let (address, dir) = (lab.address(node), lab.ovs_dir(&node.name));
    let (kind, mtu) = (lab.outward.datapath_type(), lab.outward.underlay_mtu);
    let ids = format!(
        "set open . external-ids:system-id={} external-ids:hostname={} \
         external-ids:ovn-remote=unix:{} external-ids:ovn-encap-type=geneve \
         external-ids:ovn-encap-ip={address} external-ids:ovn-bridge=br-int \
         external-ids:ovn-bridge-mappings=physnet:br-ex \
         external-ids:ovn-bridge-datapath-type={kind} external-ids:ovn-monitor-all=true \
         external-ids:ovn-is-interconn=true",
        chassis(node),
        node.name,
        text(&dir.join("ovnsb_db.sock")),
    );
    // OVN-Kubernetes finds a bridge that forwards by itself, and knows it by these.
    let (mode, known) = match lab.ovn_kubernetes {
        Some(_) => (
            "standalone",
            "-- br-set-external-id br-ex bridge-id br-ex -- br-set-external-id br-ex bridge-uplink eth0",
        ),
        None => ("secure", ""),
    };
    // Left to itself the bridge's own interface takes the lowest MTU of its ports, and now and then before they have theirs.
    let bridges = format!(
        "-- add-br br-ex -- set bridge br-ex datapath_type={kind} fail_mode={mode} other-config:hwaddr={} \
         -- set interface br-ex mtu_request={mtu} \
         -- add-port br-ex {UPLINK} \
         -- add-br br-int -- set bridge br-int datapath_type={kind} fail_mode=secure",
        mac(address)
    );
    vsctl(lab, &node.name)
        .words(&ids)
        .words(&bridges)
        .words(known)
        .run()
        .map(drop)
}

/// Starts the OVN daemons.
pub(super) fn up_ovn(lab: &Lab, node: &Node) -> Result<()> {
    let dir = lab.ovs_dir(&node.name);
    let (nb, sb) = (dir.join("ovnnb_db.sock"), dir.join("ovnsb_db.sock"));
    database(
        lab,
        node,
        &Database {
            name: "ovnnb",
            schema: NB_SCHEMA,
            socket: "ovnnb_db.sock",
        },
    )?;
    database(
        lab,
        node,
        &Database {
            name: "ovnsb",
            schema: SB_SCHEMA,
            socket: "ovnsb_db.sock",
        },
    )?;
    let dbs = vec![
        format!("--ovnnb-db=unix:{}", text(&nb)),
        format!("--ovnsb-db=unix:{}", text(&sb)),
    ];
    process::start(lab, daemon(lab, node, "ovn-northd", dbs), 0)?;
    let conf = format!("unix:{}", text(&dir.join("db.sock")));
    let mut controller = daemon(lab, node, "ovn-controller", vec![conf]);
    if lab.ovn_kubernetes.is_some() {
        // OVN-Kubernetes tells it a database by the usual place.
        let words = ovn_kubernetes::words(lab, &node.name)?;
        controller.argv = [words, controller.argv].concat();
    }
    // It may be gone before it has been noticed at all; the supervisor repeats the starts that fail a little later.
    for _ in 1..supervisor::REPEATS {
        if process::start(lab, controller.clone(), 0).is_ok() {
            return Ok(());
        }
        supervisor::tell_early(lab, &controller)?;
    }
    process::start(lab, controller, 0).map(drop)
}

/// What OVN calls this node: a UUID that tells the index.
pub(crate) fn chassis(node: &Node) -> String {
    format!("5f0c1ab0-0000-4000-8000-{:012x}", node.index)
}

/// One of the three databases of a node.
struct Database<'a> {
    name: &'a str,
    schema: &'a str,
    socket: &'a str,
}

fn database(lab: &Lab, node: &Node, db: &Database<'_>) -> Result<()> {
    let dir = lab.ovs_dir(&node.name);
    let file = text(&dir.join(format!("{}.db", db.name)));
    tool(&program(lab, "ovsdb-tool"))
        .args(["create", &file, &schema(lab, db.schema)])
        .run()?;
    let remote = format!("--remote=punix:{}", text(&dir.join(db.socket)));
    let mut start = daemon(lab, node, "ovsdb-server", vec![file, remote]);
    start.name = format!("ovsdb-{}", db.name);
    start.log = lab
        .node_dir(&node.name)
        .join(format!("ovsdb-{}.log", db.name));
    let pidfile = dir.join(format!("ovsdb-{}.pid", db.name));
    // OVN's own name for that of its databases.
    let control = dir.join(format!("{}_db.ctl", db.name));
    start
        .argv
        .retain(|a| !a.starts_with("--pidfile") && !a.starts_with("--log-file"));
    start.argv.push(format!("--pidfile={}", text(&pidfile)));
    start.argv.push(format!("--log-file={}", text(&start.log)));
    start.argv.push(format!("--unixctl={}", text(&control)));
    if db.name == "ovnnb" {
        start.argv.extend(pki::server_arguments(lab, node)?);
    }
    start.pidfile = Some(pidfile);
    process::start(lab, start, 0).map(drop)
}

fn daemon(lab: &Lab, node: &Node, name: &str, arguments: Vec<String>) -> Start {
    let dir = lab.ovs_dir(&node.name);
    let log = lab.node_dir(&node.name).join(format!("{name}.log"));
    let pidfile = dir.join(format!("{name}.pid"));
    let mut argv = vec![program(lab, name)];
    argv.extend(arguments);
    argv.push(format!("--pidfile={}", text(&pidfile)));
    argv.push(format!("--log-file={}", text(&log)));
    argv.extend(["--detach", "--no-chdir", "-vconsole:off"].map(str::to_owned));
    Start {
        node: node.name.clone(),
        name: name.to_owned(),
        argv,
        env: environment(&dir),
        log,
        pidfile: Some(pidfile),
    }
}

fn environment(dir: &Path) -> Vec<(String, String)> {
    [
        "OVS_RUNDIR",
        "OVS_DBDIR",
        "OVS_LOGDIR",
        "OVN_RUNDIR",
        "OVN_DBDIR",
        "OVN_LOGDIR",
    ]
    .map(|key| (key.to_owned(), text(dir)))
    .to_vec()
}

/// `ovs-vsctl` of a node.
pub(crate) fn vsctl(lab: &Lab, node: &str) -> Tool {
    let socket = text(&lab.ovs_dir(node).join("db.sock"));
    tool(&program(lab, "ovs-vsctl"))
        .args([format!("--db=unix:{socket}"), "--timeout=60".to_owned()])
}

/// `ovn-nbctl` of a node.
pub(crate) fn nbctl(lab: &Lab, node: &str) -> Tool {
    let socket = text(&lab.ovs_dir(node).join("ovnnb_db.sock"));
    tool(&program(lab, "ovn-nbctl"))
        .args([format!("--db=unix:{socket}"), "--timeout=60".to_owned()])
}

/// `ovs-ofctl` of a node's outer bridge: a command and what follows the bridge's name.
pub(crate) fn br_ex(lab: &Lab, node: &str, command: &str) -> Tool {
    let bridge = text(&lab.ovs_dir(node).join("br-ex.mgmt"));
    tool(&program(lab, "ovs-ofctl")).args([
        "-O",
        "OpenFlow15",
        "--timeout=5",
        command,
        &format!("unix:{bridge}"),
    ])
}

/// Waits until OVS gave an interface its number.
pub(crate) fn wait_port(lab: &Lab, node: &str, interface: &str) -> bool {
    let wait = Duration::from_millis(20);
    let found = until(Duration::from_secs(5), wait, || {
        let number = vsctl(lab, node)
            .args(["get", "interface", interface, "ofport"])
            .run()
            .ok()?;
        number.trim().parse::<i64>().ok().filter(|n| *n > 0)
    });
    found.is_some()
}
