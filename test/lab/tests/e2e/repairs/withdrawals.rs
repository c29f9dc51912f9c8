//! Many routes that go at once: what is left of them when they are known to be many is held while their session is up (at
//! least about half), and let go by the admin's word; all are obeyed when the session is gone.
//!
//! In: a lab in which all is well. Out: one more bgpd on the outside host, with a real session to the first node, and what
//! OVN, NodeRoutes, events and metrics say of its routes. Invariant: pods reach each other throughout.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::REPAIR;
use crate::cluster::kubectl;
use crate::harness::{Standing, able, call, wait};
use crate::test_node::{TestNode, http, tool_in};

/// Routes that come from outside.
const COUNT: usize = 40;
const SOON: Duration = Duration::from_secs(30);
const AS: &str = "64999";
/// Of `AS`, and no other route's: 198.18.0.0/24 and the following.
const BLOCK: &str = "198.18.";

/// A bgpd on the outside host, without zebra; it ends with this value.
struct Outside {
    child: Child,
    sockets: PathBuf,
    peer: String,
}

impl Outside {
    fn start(lab: &Standing) -> Self {
        let sockets = lab.dir("outside-frr");
        std::fs::create_dir_all(&sockets).unwrap();
        let text = sockets.to_string_lossy().into_owned();
        let pidfile = format!("{text}/bgpd.pid");
        let words = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "/usr/lib/frr/bgpd",
            "--skip_runas",
            "--no_zebra",
            "-P",
            "0",
            "--vty_socket",
            &text,
            "-i",
            &pidfile,
        ];
        let child = tool_in("outside", &words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let outside = Self {
            child,
            sockets,
            peer: lab.address(0),
        };
        let socket = outside.sockets.join("bgpd.vty");
        assert!(wait(SOON, || socket.exists()), "bgpd opens no socket");
        outside
    }

    fn vtysh(&self, commands: &[&str]) -> String {
        let mut command: Command = tool_in("outside", &["vtysh", "-d", "bgpd", "--vty_socket"]);
        command.arg(&self.sockets);
        for line in commands {
            command.args(["-c", line]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{commands:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Announces all its prefixes to the first node, with a policy that lets them out.
    fn configure(&self, own: &str, asn: &str) {
        let peer = &self.peer;
        let mut lines = vec![
            "configure terminal".to_owned(),
            "route-map OUT permit 10".to_owned(),
            "exit".to_owned(),
            format!("router bgp {AS}"),
            // Without zebra it knows none.
            format!("bgp router-id {own}"),
            "no bgp ebgp-requires-policy".to_owned(),
            "no bgp network import-check".to_owned(),
            format!("neighbor {peer} remote-as {asn}"),
            format!("neighbor {peer} timers 3 30"),
            format!("neighbor {peer} timers connect 2"),
            "address-family ipv4 unicast".to_owned(),
            format!("neighbor {peer} route-map OUT out"),
        ];
        lines.extend((0..COUNT).map(|number| format!("network {BLOCK}{number}.0/24")));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        self.vtysh(&lines);
    }

    /// A bad policy takes every prefix back while the session stays; a good one brings them all again.
    fn policy(&self, bad: bool) {
        let rule = "route-map OUT deny 5";
        let rule = if bad {
            rule.to_owned()
        } else {
            format!("no {rule}")
        };
        self.vtysh(&["configure terminal", &rule]);
        self.vtysh(&["clear bgp ipv4 unicast * soft out"]);
    }

    fn shutdown(&self) {
        let (router, down) = (
            format!("router bgp {AS}"),
            format!("neighbor {} shutdown", self.peer),
        );
        self.vtysh(&["configure terminal", &router, &down]);
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn of_routes_that_are_withdrawn_all_at_once_about_half_or_more_is_held_while_their_session_is_up_and_only_then()
 {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let test_node = TestNode::of(&lab, 0);
    let outside = Outside::start(&lab);
    let asn = lab.record("/values/as_number");
    outside.configure(&outside_address(&lab, &test_node), &asn);
    invite(&lab, &test_node, &asn);
    let whole = wait(SOON, || ours(&test_node.imported()) == COUNT);
    assert!(whole, "imported: {:?}", test_node.imported());
    let ping = ping(&lab, &test_node);

    let start = Instant::now();
    outside.policy(true);
    let gone = wait(SOON, || ours(&test_node.learned()) == 0);
    assert!(gone, "the kernel still has {:?}", test_node.learned());
    println!("the kernel had lost all after {:?}", start.elapsed());
    held(&lab, &test_node);
    release(&test_node);

    outside.policy(false);
    let back = wait(SOON, || ours(&test_node.imported()) == COUNT);
    assert!(back, "imported: {:?}", test_node.imported());
    // Long enough for what just came to be no part of a change any more.
    std::thread::sleep(Duration::from_secs(3));
    let mark = test_node.mark();
    outside.shutdown();
    let gone = wait(SOON, || ours(&test_node.learned()) == 0);
    assert!(gone, "the kernel still has {:?}", test_node.learned());
    let start = Instant::now();
    let obeyed = wait(REPAIR, || ours(&test_node.imported()) == 0);
    assert!(
        obeyed,
        "imported {REPAIR:?} later: {:?}",
        test_node.imported()
    );
    println!("gone with their session after {:?}", start.elapsed());
    assert!(
        !test_node.logged(mark, &["too many routes would go at once"]),
        "they were held"
    );
    lossless(ping);
    lab.recovers("1");
    assert_eq!(test_node.imported().len(), 2, "one for each other node");
}

/// The first node's pod calls the second's, until it is asked to stop.
fn ping(lab: &Standing, test_node: &TestNode<'_>) -> Child {
    let target = lab.pod(1).to_string();
    let words = ["ping", "-n", "-q", "-i", "0.1", "-W", "1", &target];
    let mut ping = tool_in(&format!("{}-pod", test_node.node), &words);
    ping.stdout(Stdio::piped()).spawn().unwrap()
}

fn lossless(ping: Child) {
    let id = Pid::from_raw(i32::try_from(ping.id()).unwrap());
    kill(id, Signal::SIGINT).unwrap();
    let output = ping.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{said}");
    assert!(said.contains(" 0% packet loss"), "{said}");
}

fn ours(routes: &[(String, String)]) -> usize {
    routes
        .iter()
        .filter(|(to, _)| to.starts_with(BLOCK))
        .count()
}

/// Gives the first node a session with the outside host, as an admin would.
fn invite(lab: &Standing, test_node: &TestNode<'_>, asn: &str) {
    let object = json!({
        "apiVersion": "frrk8s.metallb.io/v1beta1",
        "kind": "FRRConfiguration",
        "metadata": {"name": "outside", "namespace": "frr-k8s-system"},
        "spec": {
            "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": test_node.node}},
            "bgp": {"routers": [{
                "asn": asn.parse::<u32>().unwrap(),
                "neighbors": [{
                    "address": outside_address(lab, test_node),
                    "asn": AS.parse::<u32>().unwrap(),
                    "connectTime": "2s",
                    "toReceive": {"allowed": {"mode": "all"}}
                }]
            }]}
        }
    });
    let file = lab.dir("outside-frr").join("object.json");
    std::fs::write(&file, object.to_string()).unwrap();
    let said = call(&["kubectl", "apply", "-f", &file.to_string_lossy()]);
    assert!(said.good, "{}", said.text);
}

/// The outside host is every node's default router.
fn outside_address(lab: &Standing, test_node: &TestNode<'_>) -> String {
    let file = lab.config(&test_node.node, "node-agent");
    let config = std::fs::read_to_string(file).unwrap();
    let line = config.lines().find(|line| line.starts_with("next-hop"));
    let word = line.and_then(|line| line.split(' ').nth(2));
    word.expect("a default router").to_owned()
}

/// Most rows stand, and the reason is shown to whoever looks.
fn held(lab: &Standing, test_node: &TestNode<'_>) {
    let reported = wait(SOON, || condition(test_node).0 == "False");
    assert!(reported, "NodeRoutes: {:?}", condition(test_node));
    // Two windows and more: nothing goes by and by.
    std::thread::sleep(Duration::from_secs(5));
    let (status, message) = condition(test_node);
    let rows = ours(&test_node.imported());
    println!("{rows} of {COUNT} are held: {message}");
    // What went before it was more than half of all, those to the other nodes among them, was obeyed as any withdrawal is.
    assert!(
        rows + (COUNT + 2) / 2 >= COUNT,
        "{rows} of {COUNT} rows stand"
    );
    assert_eq!(status, "False", "{message}");
    for word in [
        &format!("{rows} routes"),
        BLOCK,
        "noverlay.io/release-withdrawals",
    ] {
        assert!(message.contains(word), "no {word:?} in {message:?}");
    }
    let sessions = test_node.vtysh(&["show bgp ipv4 unicast summary json"]);
    let up = sessions.matches("\"state\":\"Established\"").count();
    assert_eq!(up, 3, "sessions that are up: {sessions}");
    let events = kubectl(&["get", "events", "-A", "-o", "json"]);
    let all = events.pointer("/items").and_then(Value::as_array).unwrap();
    let of = |event: &&Value| {
        let word = |path: &str| event.pointer(path).and_then(Value::as_str);
        word("/reason") == Some("MassWithdrawalSuppressed")
            && word("/involvedObject/kind") == Some("Node")
            && word("/involvedObject/name") == Some(&test_node.node)
    };
    assert!(all.iter().any(|event| of(&event)), "no event on the Node");
    assert_eq!(
        metric(test_node, "noverlay_mass_withdrawal_suppressed"),
        "1"
    );
    assert_eq!(
        metric(test_node, "noverlay_retained_destinations"),
        rows.to_string()
    );
    lab.prove(&["--only", "1"]).assert_all_hold();
}

fn release(test_node: &TestNode<'_>) {
    let annotation = "noverlay.io/release-withdrawals=1";
    let said = call(&["kubectl", "annotate", "node", &test_node.node, annotation]);
    let start = Instant::now();
    assert!(said.good, "{}", said.text);
    let gone = wait(REPAIR, || ours(&test_node.imported()) == 0);
    assert!(
        gone,
        "imported {REPAIR:?} later: {:?}",
        test_node.imported()
    );
    println!("released after {:?}", start.elapsed());
    let obeyed = wait(SOON, || condition(test_node).0 == "True");
    assert!(obeyed, "NodeRoutes: {:?}", condition(test_node));
    assert_eq!(
        metric(test_node, "noverlay_mass_withdrawal_suppressed"),
        "0"
    );
    assert_eq!(
        metric(test_node, "noverlay_mass_withdrawal_suppressions_total"),
        "1"
    );
}

/// Status and message of the condition WithdrawalsProcessed of the node's NodeRoutes.
fn condition(test_node: &TestNode<'_>) -> (String, String) {
    let object = kubectl(&["get", "noderoutes", &test_node.node, "-o", "json"]);
    let conditions = object
        .pointer("/status/networks/0/conditions")
        .and_then(Value::as_array);
    let word = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let is = |c: &&Value| word(c, "type").as_deref() == Some("WithdrawalsProcessed");
    let found = conditions.and_then(|all| all.iter().find(is));
    let of = |key| found.and_then(|c| word(c, key)).unwrap_or_default();
    (of("status"), of("message"))
}

/// A metric of the node-agent, without labels.
fn metric(test_node: &TestNode<'_>, name: &str) -> String {
    let (_, text) = http(&test_node.node, 9101, "/metrics");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}{{network=\"default\"}} ")));
    assert!(line.is_some(), "no {name} in {text}");
    line.unwrap_or_default().to_owned()
}
