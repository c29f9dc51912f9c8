//! What a node holds, read with foreign tools: Northbound rows, kernel, flows, logs.
//!
//! In: a lab and a node's number. Out: texts and sets that can be compared with later
//! ones. Nothing here asks one of our daemons, but for their logs and `/readyz`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Standing, name, wait};

/// Columns by table: all that the product writes, and none that OVN's daemons write.
const TABLES: [(&str, &str); 8] = [
    ("Address_Set", "name,addresses,external_ids"),
    ("Logical_Router", "name,options,external_ids"),
    (
        "Logical_Router_Port",
        "name,mac,networks,options,external_ids",
    ),
    (
        "Logical_Router_Policy",
        "priority,match,action,nexthops,external_ids",
    ),
    (
        "Logical_Router_Static_Route",
        "ip_prefix,nexthop,output_port,policy,options,external_ids",
    ),
    ("Logical_Switch", "name,other_config,external_ids"),
    (
        "Logical_Switch_Port",
        "name,type,addresses,port_security,options,external_ids",
    ),
    (
        "NAT",
        "type,external_ip,logical_ip,external_port_range,exempted_ext_ips,allowed_ext_ips,options,external_ids",
    ),
];

/// Pairs of prefix and next hop; a list, because a row that is there twice is one too many.
pub(crate) type Routes = Vec<(String, String)>;

/// A node of the lab.
pub(crate) struct TestNode<'a> {
    pub(crate) lab: &'a Standing,
    pub(crate) number: usize,
    pub(crate) node: String,
}

impl<'a> TestNode<'a> {
    pub(crate) fn of(lab: &'a Standing, number: usize) -> Self {
        Self {
            lab,
            number,
            node: lab.node(number),
        }
    }

    /// All three.
    pub(crate) fn all(lab: &'a Standing) -> [Self; 3] {
        [0, 1, 2].map(|number| Self::of(lab, number))
    }

    /// Name of the node's gateway router.
    pub(crate) fn router(&self) -> String {
        format!("GR_{}", self.node)
    }

    /// Folder of the node's databases and sockets.
    pub(crate) fn sockets(&self) -> PathBuf {
        self.lab.dir(&self.node).join("ovs")
    }

    /// Address of the Northbound database.
    pub(crate) fn northbound(&self) -> String {
        format!("unix:{}", self.sockets().join("ovnnb_db.sock").display())
    }

    /// A command in the node's namespace.
    pub(crate) fn tool(&self, words: &[&str]) -> Command {
        tool_in(&self.node, words)
    }

    /// What a command in the node's namespace prints; it has to succeed.
    pub(crate) fn run(&self, words: &[&str]) -> String {
        let said = said(&mut self.tool(words));
        assert!(said.is_ok(), "{words:?} on {}: {said:?}", self.node);
        said.unwrap_or_default()
    }

    /// The same, where it may fail.
    pub(crate) fn try_run(&self, words: &[&str]) -> Option<String> {
        said(&mut self.tool(words)).ok()
    }

    /// `ovn-nbctl`.
    pub(crate) fn nbctl(&self, words: &[&str]) -> String {
        let database = format!("--db={}", self.northbound());
        self.run(&[&["ovn-nbctl", "--timeout=5", &database], words].concat())
    }

    /// `vtysh`, with commands.
    pub(crate) fn vtysh(&self, commands: &[&str]) -> String {
        let sockets = self
            .lab
            .dir(&self.node)
            .join("frr")
            .to_string_lossy()
            .into_owned();
        let mut words = vec!["vtysh", "--vty_socket", &sockets];
        words.extend(commands.iter().flat_map(|&line| ["-c", line]));
        self.run(&words)
    }

    /// Commands in the node's `router bgp`.
    pub(crate) fn bgp(&self, commands: &[&str]) {
        let router = format!("router bgp {}", self.lab.record("/values/as_number"));
        self.vtysh(&[&["configure terminal", router.as_str()], commands].concat());
    }

    /// Every row of the Northbound database, without the rows' own ids, sorted.
    pub(crate) fn rows(&self) -> Option<String> {
        let database = format!("--db={}", self.northbound());
        let columns = TABLES.map(|(_, columns)| format!("--columns={columns}"));
        let mut words = vec![
            "ovn-nbctl",
            "--timeout=5",
            &database,
            "--format=csv",
            "--no-headings",
        ];
        for ((table, _), columns) in TABLES.iter().zip(&columns) {
            words.extend(["--", columns, "list", table]);
        }
        let shown = self.try_run(&words)?;
        let mut lines: Vec<&str> = shown.lines().collect();
        lines.sort_unstable();
        Some(lines.join("\n"))
    }

    /// Imported routes of the gateway router.
    pub(crate) fn imported(&self) -> Routes {
        let shown = self.nbctl(&[
            "--format=csv",
            "--no-headings",
            "--columns=ip_prefix,nexthop",
            "find",
            "Logical_Router_Static_Route",
            "external_ids:\"k8s.ovn.org/owner-controller\"=RouteImport",
            &format!("output_port=rtoe-{}", self.router()),
        ]);
        let pair = |line: &str| line.replace('"', "").split_once(',').map(owned);
        let mut found: Routes = shown.lines().filter_map(pair).collect();
        found.sort();
        found
    }

    /// Routes of BGP in the kernel's main table.
    pub(crate) fn learned(&self) -> Routes {
        let shown = self.run(&["ip", "-j", "route", "show", "proto", "bgp"]);
        let parsed: Value = serde_json::from_str(&shown).unwrap();
        let route = |route: &Value| {
            let word = |key: &str| route.get(key).and_then(Value::as_str);
            Some(owned((word("dst")?, word("gateway")?)))
        };
        let mut found: Routes = parsed
            .as_array()
            .unwrap()
            .iter()
            .filter_map(route)
            .collect();
        found.sort();
        found
    }

    /// Flows of the outer bridge.
    pub(crate) fn flows(&self) -> String {
        let bridge = format!("unix:{}", self.sockets().join("br-ex.mgmt").display());
        self.run(&[
            "ovs-ofctl",
            "-O",
            "OpenFlow15",
            "--no-stats",
            "dump-flows",
            &bridge,
        ])
    }

    /// A place in the node-agent's log; [`Self::logged`] reads from there.
    pub(crate) fn mark(&self) -> usize {
        self.log().len()
    }

    pub(crate) fn log(&self) -> String {
        let file = self.lab.dir(&self.node).join("node-agent.log");
        std::fs::read_to_string(file).unwrap_or_default()
    }

    /// Does the node-agent say that somebody else wrote to its rows?
    pub(crate) fn accuses(&self) -> bool {
        self.log().contains("somebody else")
    }

    /// Does the log say this since the mark (looked at for half a second)?
    pub(crate) fn logged(&self, mark: usize, words: &[&str]) -> bool {
        wait(Duration::from_millis(500), || {
            let log = self.log();
            let mut new = log.get(mark..).unwrap_or_default().lines();
            new.any(|line| words.iter().all(|word| line.contains(word)))
        })
    }
}

fn owned((a, b): (&str, &str)) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

/// A command in a namespace of the lab: a node's, `underlay`, or NODE-pod.
pub(crate) fn tool_in(namespace: &str, words: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", &format!("nvl-{}-{namespace}", name())])
        .args(words)
        .stdin(Stdio::null());
    command
}

fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().expect("ip");
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Status and body of a daemon's `/readyz`; status 0 where nobody answers.
pub(crate) fn readyz(namespace: &str, port: u16) -> (u16, String) {
    http(namespace, port, "/readyz")
}

/// What a daemon's endpoint answers; status 0 where nobody does.
pub(crate) fn http(namespace: &str, port: u16, path: &str) -> (u16, String) {
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port} && printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"
    );
    let answer = said(&mut tool_in(namespace, &["bash", "-c", &script])).unwrap_or_default();
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    (status.unwrap_or(0), answer)
}

/// Every pod answers every other pod, within this time.
pub(crate) fn pods_ping(lab: &Standing, limit: Duration) {
    for from in TestNode::all(lab) {
        for to in 0..3 {
            let address = lab.pod(to).to_string();
            let words = ["ping", "-n", "-q", "-c", "1", "-W", "1", &address];
            let namespace = format!("{}-pod", from.node);
            let answered = wait(limit, || said(&mut tool_in(&namespace, &words)).is_ok());
            assert!(
                answered,
                "the pod of {} does not reach {address} after {limit:?}",
                from.node
            );
        }
    }
}
