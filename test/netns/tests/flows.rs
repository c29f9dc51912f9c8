//! Flows of a real switch: compared whatever their spelling, replaced as a whole, and watched.
//!
//! In: the flows that `plan-node` plans. Out: what the bridge holds.
//! Invariant: `ovs-ofctl` run by hand is right.
//! Not here: what the flows do to packets.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

use std::net::IpAddr;
use std::time::Duration;

use host::{BridgeControl, FlowError, FlowEvent, FlowWatch};
use model::address::{Mac, Prefix};
use model::gateway::GatewayMode;
use model::ovs::Flow;
use netns_tests::{BRIDGE, PATIENCE, SCHEMA, Switch, absent, in_namespace};
use plan_node::bridge::{self, BridgeInput, BridgeNetwork, ServiceInput};

const TOOLS: &[&str] = &[
    "ip",
    "setpriv",
    "ovsdb-tool",
    "ovsdb-server",
    "ovs-vswitchd",
    "ovs-vsctl",
    "ovs-ofctl",
    "/dev/net/tun",
    SCHEMA,
];

fn prefixes(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn services(range: &str, masquerade: &str, node: &str) -> ServiceInput {
    let (range, masquerade): (Prefix, Prefix) =
        (range.parse().unwrap(), masquerade.parse().unwrap());
    ServiceInput {
        ranges: vec![range],
        masquerade,
        ovn: masquerade.nth(1).unwrap(),
        host: masquerade.nth(2).unwrap(),
        node: node.parse().unwrap(),
        allowed: [range.nth(1).unwrap(), range.nth(10).unwrap()].into(),
    }
}

fn mk_flows(mode: GatewayMode) -> Vec<Flow> {
    bridge::full(&BridgeInput {
        unknown: Vec::new(),
        is_complete: true,
        uplink: 1,
        networks: vec![
            BridgeNetwork {
                network_id: 0,
                patch: 3,
                pod_subnets: prefixes(&["10.128.1.0/24", "fd00:10:128:1::/64"]),
                masquerade: Vec::new(),
                management: Vec::new(),
                advertised: Vec::new(),
                no_overlay: true,
            },
            BridgeNetwork {
                network_id: 1,
                patch: 4,
                pod_subnets: prefixes(&["10.150.1.0/24", "fd50:0:0:1::/64"]),
                masquerade: addresses(&["169.254.0.11", "fd69::b"]),
                management: addresses(&["169.254.0.12", "fd69::c"]),
                advertised: prefixes(&["10.150.0.0/16", "fd50::/48"]),
                no_overlay: true,
            },
        ],
        mac: Mac([0x02, 0x42, 0xac, 0x12, 0x00, 0x02]),
        addresses: vec![
            "172.18.0.2".parse().unwrap(),
            "fd00:172:18::2".parse().unwrap(),
        ],
        tunnels: true,
        services: vec![
            services("172.31.0.0/16", "169.254.0.0/17", "172.18.0.2"),
            services("fd02::/112", "fd69::/112", "fd00:172:18::2"),
        ],
        mode,
    })
}

fn control(switch: &Switch) -> BridgeControl {
    BridgeControl::new(switch.rundir().to_owned())
}

/// Waits for this event; others may come before.
async fn until(watch: &mut FlowWatch, wanted: FlowEvent) {
    let waiting = async { while watch.changed().await != wanted {} };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "{wanted:?} does not come");
}

/// Waits until nothing has happened for a while.
async fn quiet(watch: &mut FlowWatch) {
    let pause = Duration::from_millis(300);
    while tokio::time::timeout(pause, watch.changed()).await.is_ok() {}
}

#[test]
fn what_was_written_is_held_and_nothing_else() {
    if absent(TOOLS) {
        return;
    }
    in_namespace(|| async {
        let switch = Switch::start();
        let control = control(&switch);
        let shared = mk_flows(GatewayMode::Shared);
        assert!(!control.serves(BRIDGE, 1).await.unwrap());
        assert!(!control.holds(BRIDGE, &shared).await.unwrap());
        for wanted in [
            bridge::host_stage(1),
            mk_flows(GatewayMode::Local),
            shared.clone(),
        ] {
            control.replace(BRIDGE, &wanted).await.unwrap();
            assert!(control.holds(BRIDGE, &wanted).await.unwrap());
            let shown = switch.ofctl(&format!("--no-stats dump-flows {BRIDGE}"));
            assert_eq!(shown.matches("actions=").count(), wanted.len(), "{shown}");
        }
        assert!(control.serves(BRIDGE, 3).await.unwrap());
        assert!(!control.serves(BRIDGE, 31).await.unwrap());

        switch.ofctl(&format!("add-flow {BRIDGE} priority=1,actions=NORMAL"));
        assert!(
            !control.holds(BRIDGE, &shared).await.unwrap(),
            "a foreign flow"
        );
        control.replace(BRIDGE, &shared).await.unwrap();
        switch.ofctl(&format!("mod-flows {BRIDGE} in_port=3,actions=NORMAL"));
        assert!(
            !control.holds(BRIDGE, &shared).await.unwrap(),
            "other actions"
        );
        control.replace(BRIDGE, &shared).await.unwrap();
        assert!(control.holds(BRIDGE, &shared).await.unwrap());
    });
}

#[test]
fn what_is_added_leaves_the_rest_and_is_seen_among_it() {
    if absent(TOOLS) {
        return;
    }
    in_namespace(|| async {
        let switch = Switch::start();
        let control = control(&switch);
        let shared = mk_flows(GatewayMode::Shared);
        let (of_one, rest) = shared.split_at(shared.len() / 2);
        control.add(BRIDGE, of_one).await.unwrap();
        assert!(control.includes(BRIDGE, of_one).await.unwrap());
        assert!(!control.includes(BRIDGE, &shared).await.unwrap());
        control.add(BRIDGE, rest).await.unwrap();
        assert!(control.holds(BRIDGE, &shared).await.unwrap());
        assert!(control.includes(BRIDGE, rest).await.unwrap());
        assert!(!control.holds(BRIDGE, rest).await.unwrap());
        // A flow of the same place with other actions is not the flow.
        switch.ofctl(&format!("mod-flows {BRIDGE} in_port=LOCAL,actions=drop"));
        assert!(!control.includes(BRIDGE, &shared).await.unwrap());
        control.add(BRIDGE, &shared).await.unwrap();
        assert!(control.holds(BRIDGE, &shared).await.unwrap());
    });
}

#[test]
fn a_flow_that_is_refused_changes_nothing() {
    if absent(TOOLS) {
        return;
    }
    in_namespace(|| async {
        let switch = Switch::start();
        let control = control(&switch);
        let stage = bridge::host_stage(1);
        control.replace(BRIDGE, &stage).await.unwrap();
        let mut wrong = mk_flows(GatewayMode::Shared);
        wrong.push(Flow::new(0, 1, "in_port=1", "no_such_action"));
        let error = control.replace(BRIDGE, &wrong).await.unwrap_err();
        assert!(matches!(error, FlowError::Failed { .. }), "{error:?}");
        assert!(control.holds(BRIDGE, &stage).await.unwrap());
        let error = control.holds("no-such-bridge", &stage).await.unwrap_err();
        assert!(matches!(error, FlowError::Failed { .. }), "{error:?}");
    });
}

#[test]
fn lost_flows_are_noticed_at_once() {
    if absent(TOOLS) {
        return;
    }
    in_namespace(|| async {
        let switch = Switch::start();
        let control = control(&switch);
        let flows = mk_flows(GatewayMode::Shared);
        let mut watch = control.watch(BRIDGE);
        until(&mut watch, FlowEvent::Changed).await;
        quiet(&mut watch).await;
        control.replace(BRIDGE, &flows).await.unwrap();
        until(&mut watch, FlowEvent::Changed).await;
        quiet(&mut watch).await;
        control.replace(BRIDGE, &flows).await.unwrap();
        let pause = tokio::time::timeout(Duration::from_millis(300), watch.changed()).await;
        assert!(pause.is_err(), "equal flows are no change: {pause:?}");
        switch.ofctl(&format!("del-flows {BRIDGE}"));
        until(&mut watch, FlowEvent::Changed).await;
        assert!(!control.serves(BRIDGE, 3).await.unwrap());
    });
}

#[test]
fn a_switch_that_crashes_and_comes_back_is_noticed() {
    if absent(TOOLS) {
        return;
    }
    in_namespace(|| async {
        let mut switch = Switch::start();
        let control = control(&switch);
        let flows = mk_flows(GatewayMode::Shared);
        control.replace(BRIDGE, &flows).await.unwrap();
        let mut watch = control.watch(BRIDGE);
        until(&mut watch, FlowEvent::Changed).await;
        quiet(&mut watch).await;
        switch.crash();
        until(&mut watch, FlowEvent::Gone).await;
        let error = control.holds(BRIDGE, &flows).await.unwrap_err();
        assert!(matches!(error, FlowError::Failed { .. }), "{error:?}");
        switch.up();
        until(&mut watch, FlowEvent::Changed).await;
        assert!(
            !control.holds(BRIDGE, &flows).await.unwrap(),
            "it begins empty"
        );
        control.replace(BRIDGE, &flows).await.unwrap();
        assert!(control.holds(BRIDGE, &flows).await.unwrap());
    });
}

#[test]
fn a_switch_that_hangs_is_an_error_in_time() {
    if absent(TOOLS) {
        return;
    }
    in_namespace(|| async {
        let switch = Switch::start();
        let control = control(&switch);
        switch.signal("STOP");
        let flows = bridge::host_stage(1);
        let asked = control.holds(BRIDGE, &flows);
        let error = tokio::time::timeout(host::DEADLINE * 2, asked)
            .await
            .unwrap()
            .unwrap_err();
        switch.signal("CONT");
        assert!(matches!(error, FlowError::Deadline { .. }), "{error:?}");
        control
            .replace(BRIDGE, &bridge::host_stage(1))
            .await
            .unwrap();
    });
}

#[tokio::test]
async fn a_switch_that_is_away_costs_no_process_and_one_that_says_nothing_few() {
    if absent(&["ovs-ofctl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let control = BridgeControl::new(folder.path().to_owned());
    let mut watch = control.watch("br0");
    for _ in 0..3 {
        assert_eq!(watch.changed().await, FlowEvent::Gone);
    }
    // It takes connections and hangs up: each that says something first is a process.
    let listener = tokio::net::UnixListener::bind(folder.path().join("br0.mgmt")).unwrap();
    let talked = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = std::sync::Arc::clone(&talked);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut hello = [0; 8];
            if tokio::io::AsyncReadExt::read(&mut stream, &mut hello)
                .await
                .unwrap_or(0)
                > 0
            {
                counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
    });
    let began = tokio::time::Instant::now();
    for _ in 0..6 {
        assert_eq!(watch.changed().await, FlowEvent::Gone);
    }
    // 50 ms, then between half and the whole of 100, 200, 400, 800 and 1000 ms, one process each.
    assert!(
        began.elapsed() > Duration::from_millis(1300),
        "{:?}",
        began.elapsed()
    );
    let talked = talked.load(std::sync::atomic::Ordering::Relaxed);
    assert!((1..=6).contains(&talked), "{talked} processes");
}
