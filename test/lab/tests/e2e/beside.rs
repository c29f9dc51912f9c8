//! Our daemons beside an imitation of OVN-Kubernetes.
//!
//! In: both gateway modes, both families. Out: pods past the tunnels with every line of the proof that holds there, no more lost by
//! what comes and goes than the demonstration tolerates, and nothing of ours when the network goes back. Not here: real
//! OVN-Kubernetes.

use std::process::Child;
use std::time::Duration;

use crate::failover::lost_pings_alone;
use crate::harness::{Standing, able, call, command, name, wait};

/// Events of `hack/lab failover --only beside`.
const EVENTS: usize = 18;
/// What `hack/lab check-imitation` looks at.
const RECORDED: usize = 65;

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
    what_others_change_meanwhile_is_told_from_ours(&lab, &lab.node(2));
    // On a machine with other labs a ping may be late for other reasons; translated is never late.
    let mut said = call(&["failover", "--only", "beside"]);
    if !said.good && lost_pings_alone(&said, EVENTS) {
        println!("SECOND TURN of failover --only beside: no flow was translated, pings were lost");
        said = call(&["failover", "--only", "beside"]);
    }
    assert!(
        said.good && lost_pings_alone(&said, EVENTS),
        "{}",
        said.text
    );
    lab.prove(&["--only", "1,2,3,5"]).assert_all_hold();
    the_imitation_does_what_was_recorded();
    lab.prove(&["--only", "1,2,3,5"]).assert_all_hold();
    a_drained_node_keeps_outsiders_from_its_pods(&lab, &lab.node(1));
    leave_nothing_and_say_so(&lab);
}

#[test]
fn local_gateway_mode_both_families_and_pods_with_their_own_addresses_outside() {
    if !able() {
        return;
    }
    let mode = ["--adopt", "--gateway-mode", "local", "--families", "dual"];
    let lab = Standing::up(&[&mode[..], &["--outbound-snat", "disabled"]].concat());
    // Pods have their own addresses outside when others have had the time to learn the routes.
    std::thread::sleep(Duration::from_secs(16));
    lab.prove(&["--only", "1,2,3,5"]).assert_all_hold();
    a_host_that_drops_or_does_not_forward_goes_back(&lab, &lab.node(0));
    what_ovn_kubernetes_routes_itself_is_left_to_it(&lab, &lab.node(0));
    what_is_written_counts_when_flows_have_followed(&lab);
}

#[test]
fn a_folder_that_is_not_ovn_kubernetes_is_refused_in_one_line() {
    if !able() {
        return;
    }
    let said = call(&["up", "--no-prove", "--ovn-kubernetes", "/nowhere"]);
    let last = said.text.lines().last().unwrap_or_default();
    for word in [
        "--ovn-kubernetes /nowhere",
        "no ovnkube",
        "ovn/share/ovn/ovn-nb.ovsschema",
    ] {
        assert!(!said.good && last.contains(word), "{word}: {last}");
    }
    let both = call(&["up", "--adopt", "--ovn-kubernetes", "/nowhere"]);
    assert!(!both.good && both.text.contains("cannot be used with"));
}

/// While it is half done, and while nobody withdraws what is announced; and says when it is back.
fn a_drained_node_keeps_outsiders_from_its_pods(lab: &Standing, node: &str) {
    // Half done: the drained node has BGP's routes to the others' pods, and what its host sends takes the tunnels all the same.
    // While nobody withdraws what is announced, nobody from outside may come in by it.
    for manager in ["cm-a", "cm-b"] {
        lab.daemon("end", "underlay", manager);
    }
    call(&["kubectl", "cordon", node]);
    let drain = "noverlay.io/drain=maintenance";
    call(&["kubectl", "annotate", "node", node, drain]);
    let is_told = || {
        let object = call(&["kubectl", "get", "node", node, "-o", "json"]).text;
        object.contains("drain") && !object.contains("underlay-ready")
    };
    assert!(wait(Duration::from_secs(20), is_told), "peers are not told");
    // By these words the administrator knows when FRR may end.
    let built = |words: &[&str]| {
        let said = call(&["kubectl", "get", "noderoutes", node, "-o", "json"]).text;
        words
            .iter()
            .map(|word| said.contains(word))
            .collect::<Vec<_>>()
    };
    let drained = [
        "\"Drained\"",
        "pods' packets take the tunnels",
        "on its way back",
    ];
    let is_said = || built(&drained) == [true; 3];
    let waited = wait(Duration::from_secs(10), is_said);
    assert!(waited, "{:?}", built(&drained));
    std::thread::sleep(Duration::from_secs(15));
    let table = lab.exec(node, &["nft", "list", "table", "inet", "noverlay"]);
    assert!(table.contains("chain guard"), "{table}");
    // One that stands still has a full queue before long, and may announce all the same.
    lab.daemon("freeze", node, "bgpd");
    std::thread::sleep(Duration::from_secs(25));
    let table = lab.exec(node, &["nft", "list", "table", "inet", "noverlay"]);
    assert!(table.contains("chain guard"), "{table}");
    lab.daemon("thaw", node, "bgpd");
    for manager in ["cm-a", "cm-b"] {
        lab.daemon("start", "underlay", manager);
    }
    let rules = || lab.exec(node, &["ip", "rule", "show"]);
    let is_back = || !rules().contains("2898:") && rules().contains("2901:");
    assert!(wait(Duration::from_secs(40), is_back), "{}", rules());
    let is_said = || built(&drained) == [true, true, false];
    let waited = wait(Duration::from_secs(10), is_said);
    assert!(waited, "{:?}", built(&drained));
    // Sessions that ended while bgpd stood still are up again.
    let has_routes = || lab.exec(node, &["ip", "route"]).contains("proto bgp");
    let waited = wait(Duration::from_secs(60), has_routes);
    assert!(waited, "there is no route to be kept from");
    lab.prove(&["--only", "1,3"]).assert_all_hold();
    call(&["kubectl", "uncordon", node]);
    call(&["kubectl", "annotate", "node", node, "noverlay.io/drain-"]);
}

/// The imitation itself is held to what was recorded of OVN-Kubernetes, thing by thing.
fn the_imitation_does_what_was_recorded() {
    let said = call(&["check-imitation"]);
    assert!(said.good, "{}", said.text);
    let as_recorded = said.text.matches("  ok ").count();
    assert_eq!(as_recorded, RECORDED, "{}", said.text);
}

/// Where somebody else changes a node, too, the lab says what of it is not ours.
fn what_others_change_meanwhile_is_told_from_ours(lab: &Standing, node: &str) {
    let others = "pref 100 from 192.0.2.0/24 lookup main";
    let add = format!("ip rule add {others}; ovs-vsctl set bridge br-ex other_config:others=1");
    lab.exec(node, &["sh", "-c", &add]);
    let said = call(&["transport", "no-overlay"]);
    assert!(!said.good, "{}", said.text);
    for word in [
        "changed and not our daemons'",
        "from 192.0.2.0/24",
        "others=",
    ] {
        assert!(said.text.contains(word), "{word}: {}", said.text);
    }
    let delete = format!("ip rule del {others}; ovs-vsctl remove bridge br-ex other_config others");
    lab.exec(node, &["sh", "-c", &delete]);
    let said = call(&["transport", "no-overlay"]);
    assert!(said.good, "{}", said.text);
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
/// a minute it waits for the admin, over a restart of the agent, too.
fn what_ovn_kubernetes_routes_itself_is_left_to_it(lab: &Standing, node: &str) {
    let steered = || is_steered(lab, node);
    let own = lab.subnet(0);
    let hand = |words: &str| lab.exec(node, &["sh", "-c", words]);
    // As OVN-Kubernetes has it in local gateway mode: its gateway router leads to the node's subnet instead of the whole network.
    let routes = hand(&format!("ovn-nbctl lr-route-list GR_{node}"));
    let mut routes = routes.lines().map(|line| line.split_whitespace());
    let whole = routes.find_map(|mut words| {
        let (to, hop) = (words.next()?, words.next()?);
        hop.starts_with("100.64.").then(|| to.to_owned())
    });
    let whole = whole.expect("a route to the whole network");
    let [sign, unsign] = [(&whole, &own), (&own, &whole)].map(|(less, more)| {
        format!(
            "ovn-nbctl lr-route-del GR_{node} {less} -- lr-route-add GR_{node} {more} 100.64.0.1"
        )
    });
    let reported = |reason: &str| {
        let routes = call(&["kubectl", "get", "noderoutes", node, "-o", "json"]).text;
        routes.contains(&format!("\"{reason}\""))
    };
    // Beside the route to the whole network it is anybody's.
    hand(&format!(
        "ovn-nbctl lr-route-add GR_{node} {own} 100.64.0.1"
    ));
    std::thread::sleep(Duration::from_secs(12));
    assert!(steered(), "somebody's route is taken for OVN-Kubernetes'");
    hand(&format!("ovn-nbctl lr-route-del GR_{node} {own}"));
    hand(&sign);
    let gives_way = || !steered() && reported("OvnKubernetesRoutes");
    assert!(
        wait(Duration::from_secs(40), gives_way),
        "it does not give way"
    );
    hand(&unsign);
    assert!(
        wait(Duration::from_secs(40), steered),
        "that was OVN-Kubernetes' start, and no more"
    );

    hand(&sign);
    assert!(
        wait(Duration::from_secs(40), gives_way),
        "it does not give way"
    );
    let left = || reported("LeftToOvnKubernetes");
    assert!(!left(), "it has been so for a moment");
    assert!(wait(Duration::from_secs(90), left), "nobody is told");
    call(&["daemon", "stop", node, "node-agent"]);
    hand(&unsign);
    call(&["daemon", "start", node, "node-agent"]);
    std::thread::sleep(Duration::from_secs(20));
    assert!(
        !steered() && left(),
        "it was taken back before the admin allowed it"
    );
    let allow = "noverlay.io/takeover=allow";
    call(&["kubectl", "annotate", "node", node, allow]);
    assert!(
        wait(Duration::from_secs(40), steered),
        "the admin has allowed it"
    );
    call(&["kubectl", "annotate", "node", node, "noverlay.io/takeover-"]);
}

/// The lab on its way to another transport; it ends with the test, since whoever is at work on a lab keeps others from it.
struct Follows(Child);

impl Follows {
    fn begin(transport: &str) -> Self {
        Self(command(&["transport", transport]).spawn().unwrap())
    }

    fn finish(mut self) {
        assert!(self.0.wait().unwrap().success(), "it has not followed");
    }
}

impl Drop for Follows {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
    let follows = Follows::begin("no-overlay");
    let written = || !rows(&still, group).trim().is_empty() && says_ready(&other);
    assert!(wait(Duration::from_secs(40), written), "nothing is written");
    for _ in 0..6 {
        std::thread::sleep(Duration::from_secs(1));
        assert!(!says_ready(&still), "its flows are not there yet");
    }
    let routes = call(&["kubectl", "get", "noderoutes", &still, "-o", "json"]).text;
    assert!(routes.contains("hv_cfg"), "{routes}");
    let sets = || rows(&other, "--columns=addresses list address_set");
    let (ready, waits) = (lab.subnet(1), lab.subnet(2));
    // Its route comes by cluster-manager, FRR and BGP.
    let follows_it = || sets().contains(&ready);
    assert!(wait(Duration::from_secs(30), follows_it), "{}", sets());
    assert!(!sets().contains(&waits), "{}", sets());
    lab.daemon("thaw", &still, "ovn-controller");
    follows.finish();

    lab.daemon("freeze", &still, "ovn-northd");
    let follows = Follows::begin("geneve");
    let written = || rows(&still, policy).trim().is_empty() && !says_ready(&other);
    assert!(wait(Duration::from_secs(40), written), "nothing is written");
    // Peers are told all the same; the host's part stays, for longer than it does where flows follow.
    let is_told = || !says_ready(&still);
    assert!(wait(Duration::from_secs(20), is_told), "peers are not told");
    for _ in 0..14 {
        std::thread::sleep(Duration::from_secs(1));
        let rules = lab.exec(&still, &["ip", "rule", "show"]);
        assert!(
            rules.contains("2898:"),
            "pods' packets go by the host still: {rules}"
        );
    }
    lab.daemon("thaw", &still, "ovn-northd");
    follows.finish();
    // And nobody reads for ever that it is on its way.
    let is_over = || {
        let routes = call(&["kubectl", "get", "noderoutes", "-o", "json"]);
        routes.good && !routes.text.contains("StillSteered")
    };
    assert!(wait(Duration::from_secs(20), is_over), "the report is old");
}

/// Agents that are told to leave take away what their nodes have, are ready then, and pods have the tunnels.
fn leave_nothing_and_say_so(lab: &Standing) {
    let nodes = [0, 1, 2].map(|index| lab.node(index));
    let [first, others @ ..] = &nodes;
    std::thread::scope(|scope| {
        scope.spawn(|| leaves(lab, first));
        // Others still announce their pods, and it says that it waits for them.
        let waits = || {
            let routes = call(&["kubectl", "get", "noderoutes", first, "-o", "json"]).text;
            routes.contains("two ip rules keep the host's packets in the tunnels")
        };
        let is_said = wait(Duration::from_secs(60), waits);
        for node in others {
            scope.spawn(move || leaves(lab, node));
        }
        assert!(is_said, "it does not say what it waits for");
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
        for try in $(seq 120); do
            sleep 1
            answer=$({{ exec 3<>/dev/tcp/127.0.0.1/9101 && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 && head -n 1 <&3; }} 2>/dev/null)
            case $answer in *' 200 '*) echo nothing is left after $try s; break ;; esac
        done
        kill $agent; wait $agent; true"#,
    );
    let said = lab.exec(node, &["bash", "-c", &script]);
    assert!(said.contains("nothing is left"), "{said}");
}
