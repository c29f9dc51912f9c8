//! Our daemons beside an imitation of OVN-Kubernetes.
//!
//! In: both gateway modes, both families. Out: pods past the tunnels with every line of the proof that holds there, no more lost by
//! what comes and goes than the demonstration tolerates, and nothing of ours when the network goes back. Not here: real
//! OVN-Kubernetes.

use std::time::Duration;

use crate::harness::{Standing, able, call, command, name, wait};

#[test]
fn pods_are_led_past_the_tunnels_and_keep_their_ways_whatever_comes_and_goes() {
    if !able() {
        return;
    }
    let lab = Standing::up(&["--adopt"]);
    let said = lab.prove(&["--quiet", "10"]);
    said.assert_all_hold();
    // Lines 1 to 5 and 7.
    assert_eq!(said.text.matches("  ok ").count(), 6, "{}", said.text);
    // What is compared at the end is not the same now.
    let said = call(&["transport", "no-overlay"]);
    for part in ["OVN_Northbound", "rules", "routes", "table inet noverlay"] {
        let nodes = said.text.matches(&format!("{part} ")).count();
        assert_eq!(nodes, 3, "{part}: {}", said.text);
    }
    // On a machine with other labs a ping may be late for other reasons; translated is never late.
    let mut turns = 0;
    loop {
        let said = call(&["failover", "--only", "beside"]);
        turns += 1;
        let fails = said.text.lines().filter(|line| line.contains("FAIL"));
        let mut fails = fails.peekable();
        let is_late = fails.peek().is_some() && fails.all(|line| line.contains("pings were lost"));
        assert!(said.good || (is_late && turns < 3), "{}", said.text);
        if said.good {
            break;
        }
    }
    lab.prove(&["--only", "1,2,3,5"]).assert_all_hold();
    // Half done: the drained node has BGP's routes to the others' pods, and what its host sends takes the tunnels all the same.
    let node = lab.node(1);
    call(&["kubectl", "cordon", &node]);
    call(&[
        "kubectl",
        "annotate",
        "node",
        &node,
        "noverlay.io/drain=maintenance",
    ]);
    let rules = || lab.exec(&node, &["ip", "rule", "show"]);
    let is_back = || !rules().contains("2898:") && rules().contains("2901:");
    assert!(wait(Duration::from_secs(40), is_back), "{}", rules());
    assert!(
        lab.exec(&node, &["ip", "route"]).contains("proto bgp"),
        "there is no route to be kept from"
    );
    lab.prove(&["--only", "1,3"]).assert_all_hold();
    call(&["kubectl", "uncordon", &node]);
    call(&["kubectl", "annotate", "node", &node, "noverlay.io/drain-"]);
    leave_nothing_and_say_so(&lab);
}

#[test]
fn local_gateway_mode_and_both_families_are_the_same() {
    if !able() {
        return;
    }
    let words = ["--adopt", "--gateway-mode", "local", "--families", "dual"];
    let lab = Standing::up(&words);
    lab.prove(&["--only", "1,2,3,5"]).assert_all_hold();
    a_host_that_drops_or_does_not_forward_goes_back(&lab, &lab.node(0));
    what_ovn_kubernetes_routes_itself_is_left_to_it(&lab, &lab.node(0));
    what_is_written_counts_when_flows_have_followed(&lab);
}

/// Whether a node leads its pods past the tunnels.
fn is_steered(lab: &Standing, node: &str) -> bool {
    let words = [
        "ovn-nbctl",
        "--bare",
        "--columns=_uuid",
        "find",
        "logical_router_policy",
        "priority=1010",
    ];
    !lab.exec(node, &words).trim().is_empty()
}

/// What would drop what is forwarded takes the node back to the tunnels, in words, and is a way again when it is gone.
fn a_host_that_drops_or_does_not_forward_goes_back(lab: &Standing, node: &str) {
    let steered = || is_steered(lab, node);
    assert!(steered());
    let drop = "add table ip docker; add chain ip docker FORWARD { type filter hook forward priority 0; policy drop; }";
    // Every packet that the host forwards is lost from here on.
    lab.exec(node, &["nft", drop]);
    assert!(
        wait(Duration::from_secs(20), || !steered()),
        "it is steered still"
    );
    let told = || {
        let routes = call(&["kubectl", "get", "noderoutes", node, "-o", "json"]).text;
        routes.contains("ip docker FORWARD") && routes.contains("NotSteered")
    };
    assert!(wait(Duration::from_secs(20), told), "nobody is told");
    let says_ready = || {
        let object = call(&["kubectl", "get", "node", node, "-o", "json"]).text;
        object.contains("underlay-ready")
    };
    assert!(
        wait(Duration::from_secs(20), || !says_ready()),
        "peers are told that it takes packets from the wire"
    );
    lab.prove(&["--only", "1"]).assert_all_hold();
    lab.exec(node, &["nft", "delete table ip docker"]);
    assert!(
        wait(Duration::from_secs(30), steered),
        "it is not steered again"
    );
    // A host that does not forward is noticed without any event.
    lab.exec(node, &["sysctl", "-qw", "net.ipv4.conf.br-ex.forwarding=0"]);
    assert!(
        wait(Duration::from_secs(30), || !steered()),
        "it is steered still"
    );
    lab.exec(node, &["sysctl", "-qw", "net.ipv4.conf.br-ex.forwarding=1"]);
    assert!(
        wait(Duration::from_secs(30), steered),
        "it is not steered again"
    );
}

/// It gives way to OVN-Kubernetes where that leads the network past its tunnels itself; after a moment of it the node goes on, after
/// a while, here one that a process before this one reported, it waits for the admin.
fn what_ovn_kubernetes_routes_itself_is_left_to_it(lab: &Standing, node: &str) {
    let steered = || is_steered(lab, node);
    let router = format!("GR_{node}");
    // As OVN-Kubernetes has it.
    let sign = format!(
        "ovn-nbctl lr-nat-add {router} snat 192.0.2.1 198.51.100.0/24
        row=$(ovn-nbctl --bare --columns=_uuid find nat external_ip=192.0.2.1)
        ovn-nbctl set nat $row external_ids:k8s.ovn.org/owner-type=NoOverlayClusterSubnetSNAT external_ids:network=default"
    );
    let unsign = [
        "ovn-nbctl",
        "lr-nat-del",
        &router,
        "snat",
        "198.51.100.0/24",
    ];
    let reported = |reason: &str| {
        let routes = call(&["kubectl", "get", "noderoutes", node, "-o", "json"]).text;
        routes.contains(&format!("\"{reason}\""))
    };
    lab.exec(node, &["sh", "-c", &sign]);
    let gives_way = || !steered() && reported("OvnKubernetesRoutes");
    assert!(
        wait(Duration::from_secs(40), gives_way),
        "it does not give way"
    );
    lab.exec(node, &unsign);
    assert!(
        wait(Duration::from_secs(40), steered),
        "that was OVN-Kubernetes' start, and no more"
    );

    lab.exec(node, &["sh", "-c", &sign]);
    assert!(
        wait(Duration::from_secs(40), gives_way),
        "it does not give way"
    );
    // Longer ago than a minute, as the next process is told.
    call(&["daemon", "stop", node, "node-agent"]);
    let name = &["kubectl", "get", "noderoutes", node, "-o"];
    let path = "jsonpath={.status.networks[0].conditions[?(@.type==\"Built\")].lastTransitionTime}";
    let since = call(&[name.as_slice(), &[path]].concat()).text;
    let object = call(&[name.as_slice(), &["json"]].concat()).text;
    let file = lab.dir(node).join("noderoutes.json");
    std::fs::write(&file, object.replace(since.trim(), "2026-01-01T00:00:00Z")).unwrap();
    let file = file.display().to_string();
    let said = call(&["kubectl", "replace", "--subresource=status", "-f", &file]);
    assert!(said.good, "{}", said.text);
    lab.exec(node, &unsign);
    call(&["daemon", "start", node, "node-agent"]);
    let left = || reported("LeftToOvnKubernetes");
    assert!(wait(Duration::from_secs(40), left), "nobody is told");
    std::thread::sleep(Duration::from_secs(12));
    assert!(!steered(), "it was taken back before the admin allowed it");
    let allow = "noverlay.io/takeover=allow";
    call(&["kubectl", "annotate", "node", node, allow]);
    assert!(
        wait(Duration::from_secs(40), steered),
        "the admin has allowed it"
    );
    call(&["kubectl", "annotate", "node", node, "noverlay.io/takeover-"]);
}

/// On the way in one node's ovn-controller stands still, on the way out its northd: it is as far as its flows are, not as its rows.
fn what_is_written_counts_when_flows_have_followed(lab: &Standing) {
    let (still, other) = (lab.node(2), lab.node(0));
    let says_ready = |node: &str| {
        let object = call(&["kubectl", "get", "node", node, "-o", "json"]);
        assert!(object.good, "{}", object.text);
        object.text.contains("underlay-ready")
    };
    let rows = |node: &str, words: &str| {
        lab.exec(node, &["sh", "-c", &format!("ovn-nbctl --bare {words}")])
    };
    let group = "--columns=name find port_group name=noverlay_mp_default";
    let policy = "--columns=priority find logical_router_policy priority=1010";
    assert!(call(&["transport", "geneve"]).good);

    lab.daemon("freeze", &still, "ovn-controller");
    let mut follows = command(&["transport", "no-overlay"]).spawn().unwrap();
    let written = || !rows(&still, group).trim().is_empty() && says_ready(&other);
    assert!(wait(Duration::from_secs(40), written), "nothing is written");
    for _ in 0..6 {
        std::thread::sleep(Duration::from_secs(1));
        assert!(!says_ready(&still), "its flows are not there yet");
    }
    let routes = call(&["kubectl", "get", "noderoutes", &still, "-o", "json"]).text;
    assert!(routes.contains("hv_cfg"), "{routes}");
    let sets = rows(&other, "--columns=addresses list address_set");
    let (ready, waits) = (lab.subnet(1), lab.subnet(2));
    assert!(sets.contains(&ready) && !sets.contains(&waits), "{sets}");
    lab.daemon("thaw", &still, "ovn-controller");
    assert!(follows.wait().unwrap().success(), "it has not followed");

    lab.daemon("freeze", &still, "ovn-northd");
    let mut follows = command(&["transport", "geneve"]).spawn().unwrap();
    let written = || rows(&still, policy).trim().is_empty() && !says_ready(&other);
    assert!(wait(Duration::from_secs(40), written), "nothing is written");
    for _ in 0..6 {
        std::thread::sleep(Duration::from_secs(1));
        let rules = lab.exec(&still, &["ip", "rule", "show"]);
        assert!(
            says_ready(&still) && rules.contains("2898:"),
            "pods' packets go by the host still: {rules}"
        );
    }
    lab.daemon("thaw", &still, "ovn-northd");
    assert!(follows.wait().unwrap().success(), "it has not followed");
}

/// Agents that are told to leave take away what their nodes have, are ready then, and pods have the tunnels.
fn leave_nothing_and_say_so(lab: &Standing) {
    let nodes = [0, 1, 2].map(|index| lab.node(index));
    std::thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(move || leaves(lab, node));
        }
    });
    // Agents are gone; nothing is left to follow, and what nodes hold is compared with what they held before.
    let said = call(&["transport", "geneve"]);
    assert!(
        said.good && said.text.contains("all 3 nodes are as they were found"),
        "{}",
        said.text
    );
    lab.prove(&["--only", "1,3"]).assert_all_hold();
}

fn leaves(lab: &Standing, node: &str) {
    let folder = format!("/run/noverlay-lab/{}", name());
    let text = format!("{folder}/{node}/node-agent/config/noverlay.conf");
    let text = std::fs::read_to_string(text).unwrap();
    // What the container has there.
    let text = text.replace(
        "/etc/noverlay/",
        &format!("{folder}/{node}/node-agent/config/"),
    );
    let ovs = format!("{folder}/{node}/ovs");
    // The third node's has an address already.
    let north = if text.contains("[ovnnorth]") {
        String::new()
    } else {
        format!("[ovnnorth]\naddress = unix:{ovs}/ovnnb_db.sock\n")
    };
    let own = format!(
        "{text}\n{north}[ovs]\nrundir = {ovs}\n[kubernetes]\nkubeconfig = {folder}/underlay/admin.kubeconfig\n"
    );
    let conf = format!("{folder}/{node}/leave.conf");
    std::fs::write(&conf, own).unwrap();
    let program = std::env::current_exe().unwrap();
    let program = program.parent().and_then(|deps| deps.parent()).unwrap();
    // Beside the one that runs there is no place for another.
    let agent = format!(
        "{}/node-agent --config {conf} --node {node}",
        program.display()
    );
    let said = lab.try_exec(node, &["sh", "-c", &format!("{agent} --leave 2>&1")]);
    let refused = "another node-agent runs on this host already (process ";
    assert!(!said.good && said.text.contains(refused), "{}", said.text);
    call(&["daemon", "end", node, "node-agent"]);
    let script = format!(
        r#"{agent} --leave & agent=$!
        for try in $(seq 60); do
            sleep 1
            answer=$({{ exec 3<>/dev/tcp/127.0.0.1/9101 && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 && head -n 1 <&3; }} 2>/dev/null)
            case $answer in *' 200 '*) echo nothing is left after $try s; break ;; esac
        done
        kill $agent; wait $agent; true"#,
    );
    let said = lab.exec(node, &["bash", "-c", &script]);
    assert!(said.contains("nothing is left"), "{said}");
}
