//! What the product must survive.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::sessions;
use crate::harness::{Standing, able, call, command, name, wait};

/// How soon the host stage of the outer bridge must be back after it was lost. The switch tells the agent of it, and then
/// it takes a tenth of a second, and starts of processes that may have to wait on a busy machine; BGP gives up after 9 s,
/// and an agent that gets no event looks each 300 s.
const HOST_STAGE: Duration = Duration::from_secs(4);
/// How long a new leader may take.
const TAKEOVER: Duration = Duration::from_secs(20);

#[test]
fn a_lab_comes_up_after_an_earlier_up_was_killed_in_the_middle_of_its_work() {
    if !able() {
        return;
    }
    // By what it says of itself, whatever the machine's speed; at the last one the daemons are about to start.
    for state in [
        "underlay and outside host are there",
        "OVS, OVN and FRR run",
        "Node objects are there",
    ] {
        killed_at(state);
    }
    let lab = Standing::up(&[]);
    lab.prove(&["--only", "1"]).assert_all_hold();
}

/// Kills `up` as soon as it says that it has reached a state.
fn killed_at(state: &str) {
    let mut up = command(&["up", "--no-prove"]);
    let mut up = up.stdout(Stdio::piped()).spawn().expect("hack/lab");
    let mut said = Vec::new();
    for line in BufReader::new(up.stdout.take().unwrap()).lines() {
        said.push(line.unwrap());
        if said.last().is_some_and(|line| line.contains(state)) {
            break;
        }
    }
    // hack/lab has become the lab program: nothing is left to tidy up behind it.
    up.kill().unwrap();
    up.wait().unwrap();
    let reached = said.last().is_some_and(|line| line.contains(state));
    assert!(reached, "never said {state:?}: {said:#?}");
    let base = std::path::Path::new("/run/noverlay-lab").join(name());
    let daemons = std::fs::read_dir(base.join("pids")).into_iter().flatten();
    println!(
        "killed at {:?}, {} daemons recorded",
        said.last(),
        daemons.count()
    );
}

#[test]
fn bgp_is_up_again_after_ovs_vswitchd_died_while_the_api_server_was_down() {
    if !able() {
        return;
    }
    let lab = Standing::up(&[]);
    let node = lab.node(0);
    lab.daemon("freeze", "underlay", "kube-apiserver");
    let before = flows(&lab, &node).expect("flows of br-ex");
    let lost = Instant::now();
    lab.daemon("stop", &node, "ovs-vswitchd");
    lab.daemon("start", &node, "ovs-vswitchd");
    let reached = wait(Duration::from_secs(5), || {
        let ping = ["ping", "-n", "-q", "-c", "1", "-W", "0.1", &lab.address(1)];
        lab.try_exec(&node, &ping).good
    });
    assert!(reached, "{node} is cut off after {:?}", lost.elapsed());
    println!(
        "host reached {:?} after ovs-vswitchd was killed",
        lost.elapsed()
    );
    as_before(&lab, &node, &before);
    let took = host_stage_after_loss(&lab, &node);
    println!("host reached {took:?} after all flows of br-ex were deleted");
    assert!(
        took < HOST_STAGE,
        "no host stage on br-ex of {node} for {took:?}"
    );
    as_before(&lab, &node, &before);
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

/// Deletes all flows and gives the time from before that until the host has an answer from another node. Taken by one
/// shell in the namespace, so that nothing of the harness is in it.
fn host_stage_after_loss(lab: &Standing, node: &str) -> Duration {
    let script = format!(
        "a=$(date +%s%N); ovs-ofctl -O OpenFlow15 del-flows br-ex; \
         until ovs-ofctl -O OpenFlow15 dump-flows br-ex | grep -q n_packets; do :; done; \
         until ping -n -q -c 1 -W 0.05 {} >/dev/null; do :; done; \
         b=$(date +%s%N); echo $(((b - a) / 1000000))",
        lab.address(1)
    );
    let took = lab.exec(node, &["timeout", "10", "sh", "-c", &script]);
    Duration::from_millis(took.trim().parse().expect("milliseconds"))
}

/// Flows of the outer bridge, sorted; `None` while it does not answer.
fn flows(lab: &Standing, node: &str) -> Option<Vec<String>> {
    let words = [
        "ovs-ofctl",
        "-O",
        "OpenFlow15",
        "--no-stats",
        "dump-flows",
        "br-ex",
    ];
    let said = lab.try_exec(node, &words);
    let mut lines: Vec<String> = said.text.lines().map(str::to_owned).collect();
    lines.sort();
    said.good.then_some(lines)
}

/// The outer bridge has all flows that it had, and no others.
fn as_before(lab: &Standing, node: &str, before: &[String]) {
    let same = || flows(lab, node).is_some_and(|now| now == before);
    assert!(
        wait(Duration::from_secs(10), same),
        "flows of br-ex on {node}: {:#?}\nbefore: {before:#?}",
        flows(lab, node)
    );
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
fn ovn_controller_is_started_again_once_and_the_death_is_reported() {
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
    let reported = call(&["status"]);
    assert!(
        !reported.good && reported.text.contains(&format!("ovn-controller of {node}")),
        "{}",
        reported.text
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
