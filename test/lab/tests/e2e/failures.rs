//! What the product must survive.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Standing, able, call, command, wait};

/// How fast the host stage of the outer bridge must be back (the look takes time too).
const HOST_STAGE: Duration = Duration::from_millis(600);
/// How long a new leader may take.
const TAKEOVER: Duration = Duration::from_secs(20);

#[test]
fn a_lab_comes_up_after_an_earlier_up_was_killed_at_any_moment() {
    if !able() {
        return;
    }
    for moment in [700, 2500, 5000] {
        let mut up = command(&["up", "--no-prove"]).spawn().expect("hack/lab");
        std::thread::sleep(Duration::from_millis(moment));
        // hack/lab has become the lab program: nothing is left to tidy up behind it.
        up.kill().unwrap();
        up.wait().unwrap();
    }
    let lab = Standing::up(&[]);
    lab.prove(&["--only", "1"]).assert_all_hold();
}

#[test]
fn bgp_is_up_again_after_ovs_vswitchd_died_while_the_api_server_was_down() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let node = lab.node(0);
    lab.daemon("freeze", "underlay", "kube-apiserver");
    lab.daemon("stop", &node, "ovs-vswitchd");
    lab.daemon("start", &node, "ovs-vswitchd");
    host_stage_returns(&lab, &node);
    lab.exec(
        &node,
        &["ovs-ofctl", "-O", "OpenFlow15", "del-flows", "br-ex"],
    );
    host_stage_returns(&lab, &node);
    let up = wait(Duration::from_secs(20), || sessions(&lab, &node) == 2);
    assert!(
        up,
        "{} of 2 sessions are established",
        sessions(&lab, &node)
    );
    // A ping over the bridge both ways, still without the API server.
    lab.exec(
        &node,
        &["ping", "-q", "-c", "1", "-W", "1", &lab.address(1)],
    );
    lab.daemon("thaw", "underlay", "kube-apiserver");
    lab.recovers("1,3");
}

fn host_stage_returns(lab: &Standing, node: &str) {
    let flows = || {
        let said = lab.try_exec(
            node,
            &["ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "br-ex"],
        );
        said.good.then(|| said.text.matches("priority=").count())
    };
    assert!(
        wait(Duration::from_secs(5), || flows().is_some()),
        "br-ex of {node} does not answer"
    );
    let start = Instant::now();
    let written = wait(HOST_STAGE, || flows().is_some_and(|count| count >= 3));
    assert!(
        written,
        "no host stage on br-ex of {node} after {HOST_STAGE:?}: {:?}",
        flows()
    );
    println!(
        "host stage of br-ex on {node} was back after {:?}",
        start.elapsed()
    );
}

fn sessions(lab: &Standing, node: &str) -> usize {
    let sockets = lab.dir(node).join("frr").to_string_lossy().into_owned();
    let shown = lab.exec(
        node,
        &[
            "vtysh",
            "--vty_socket",
            &sockets,
            "-c",
            "show bgp ipv4 unicast summary json",
        ],
    );
    shown.matches("\"state\":\"Established\"").count()
}

#[test]
fn a_killed_leader_is_followed_within_20_s_and_nothing_but_the_lease_is_written() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let before = holder().expect("somebody leads");
    let killed = if before.contains("cm-b") {
        "cm-b"
    } else {
        "cm-a"
    };
    let namespace = format!("{}-pod", lab.node(0));
    let target = lab.pod(1).to_string();
    let ping = lab.start(
        &namespace,
        &[
            "ping", "-n", "-q", "-i", "0.1", "-c", "230", "-W", "1", &target,
        ],
    );
    let audit = std::fs::metadata(lab.dir("underlay").join("audit.log"))
        .unwrap()
        .len();
    lab.daemon("stop", "underlay", killed);
    let start = Instant::now();
    let followed = wait(TAKEOVER, || {
        std::thread::sleep(Duration::from_millis(300));
        holder().is_some_and(|now| now != before)
    });
    assert!(
        followed,
        "{before} was killed, and nobody has followed after {TAKEOVER:?}"
    );
    println!("followed after {:.1} s", start.elapsed().as_secs_f64());
    let pinged = ping.wait_with_output().unwrap();
    let summary = String::from_utf8_lossy(&pinged.stdout).into_owned();
    assert!(summary.contains(" 0% packet loss"), "{summary}");
    let written = written_by_managers(&lab, audit);
    assert_eq!(
        written,
        BTreeSet::from(["leases".to_owned()]),
        "what the managers wrote"
    );
    lab.daemon("start", "underlay", killed);
}

/// Who holds the lease.
fn holder() -> Option<String> {
    let said = command(&[
        "kubectl",
        "get",
        "leases",
        "-n",
        "noverlay-system",
        "-o",
        "json",
    ])
    .output()
    .ok()?;
    let list: Value = serde_json::from_slice(&said.stdout).ok()?;
    let holder = list.pointer("/items/0/spec/holderIdentity")?.as_str()?;
    (!holder.is_empty()).then(|| holder.to_owned())
}

/// Resources that the managers wrote after this place of the audit log.
fn written_by_managers(lab: &Standing, from: u64) -> BTreeSet<String> {
    let log = std::fs::read(lab.dir("underlay").join("audit.log")).unwrap();
    let new = String::from_utf8_lossy(
        log.get(usize::try_from(from).unwrap()..)
            .unwrap_or_default(),
    )
    .into_owned();
    let mut found = BTreeSet::new();
    for event in new
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        let word = |path: &str| {
            event
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned()
        };
        if word("/user/username") == "system:serviceaccount:noverlay-system:cluster-manager" {
            found.insert(word("/objectRef/resource"));
        }
    }
    found
}

#[test]
fn ovn_controller_is_started_again_once_and_the_death_is_told() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let node = lab.node(0);
    let pidfile = lab.dir(&node).join("ovs/ovn-controller.pid");
    let pid = || {
        std::fs::read_to_string(&pidfile)
            .ok()
            .map(|text| text.trim().to_owned())
    };
    let first = pid().unwrap();
    lab.exec(&node, &["kill", "-9", &first]);
    let again = wait(Duration::from_secs(5), || {
        pid().is_some_and(|now| now != first)
    });
    assert!(again, "ovn-controller was not started again");
    let told = call(&["status"]);
    assert!(
        !told.good && told.text.contains(&format!("ovn-controller of {node}")),
        "{}",
        told.text
    );
    let second = pid().unwrap();
    lab.exec(&node, &["kill", "-9", &second]);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(
        pid().filter(|now| *now != second),
        None,
        "started again a second time"
    );
    assert!(
        !lab.prove(&["--only", "5"]).good,
        "prove passes although a daemon died"
    );
}
