//! The Open_vSwitch database: facts as ovs-vsctl writes them, and our port among other people's.
//!
//! In: edits by hand. Out: facts, ports. Invariant: other people's ports stay.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use model::ovs::InternalPort;
use ovn::{PortError, Switch};
use ovn_tests::Bench;

fn mk_port(name: &str) -> InternalPort {
    InternalPort {
        bridge: "br-int".to_owned(),
        name: name.to_owned(),
        mac: "0a:58:0a:80:01:02".parse().unwrap(),
        iface_id: "k8s-n1".to_owned(),
        mtu: 1400,
        owner: "default".to_owned(),
    }
}

async fn mk_bench() -> Option<Bench> {
    let bench = Bench::start().await?;
    let add =
        "--no-wait add-br br-ex -- add-port br-ex eth0 -- add-br br-int -- add-port br-int veth1";
    let words: Vec<&str> = add.split(' ').collect();
    bench.vsctl(&words).await;
    Some(bench)
}

fn lifted(bench: &Bench) -> Switch {
    bench
        .switch
        .with_replica(|replica| Switch::lift(replica).unwrap())
        .unwrap()
}

#[tokio::test]
async fn chassis_mappings_uplink_and_positive_numbers_are_read() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    let switch = lifted(&bench);
    assert_eq!(switch.system_id, None);
    assert_eq!(switch.ofport("br-ex", "eth0"), None, "no number yet");
    let ids = "--no-wait set open . external-ids:system-id=n1 external-ids:ovn-bridge-mappings=a:br-a,physnet:br-ex";
    bench.vsctl(&ids.split(' ').collect::<Vec<_>>()).await;
    for (number, seen) in [("-1", None), ("0", None), ("7", Some(7))] {
        let ofport = format!("ofport={number}");
        let words = ["--no-wait", "set", "interface", "eth0", &ofport];
        bench.vsctl(&words).await;
        assert_eq!(lifted(&bench).ofport("br-ex", "eth0"), seen, "{number}");
    }
    let switch = lifted(&bench);
    assert_eq!(switch.system_id.as_deref(), Some("n1"));
    assert_eq!(switch.physical_networks["br-ex"], "physnet");
    let uplinks = switch.uplinks("br-ex");
    assert_eq!(uplinks.len(), 1, "{uplinks:?}");
    assert_eq!(uplinks[0].name, "eth0");
    assert!(switch.uplinks("br-none").is_empty());
}

#[tokio::test]
async fn a_port_is_made_once_repaired_and_taken_away() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    let wanted = [mk_port("ovn-k8s-mp0")];
    assert!(bench.ports(&wanted).await);
    assert!(!bench.ports(&wanted).await);
    let edits = [
        "mac=\"00:00:00:00:00:09\"",
        "mtu_request=9000",
        "external_ids:iface-id=other",
        "type=tap",
    ];
    for edit in edits {
        let words = ["--no-wait", "set", "interface", "ovn-k8s-mp0", edit];
        bench.vsctl(&words).await;
        assert!(bench.ports(&wanted).await, "{edit}");
        assert!(!bench.ports(&wanted).await, "{edit}");
    }
    let upper = [
        "--no-wait",
        "set",
        "interface",
        "ovn-k8s-mp0",
        "mac=\"0A:58:0A:80:01:02\"",
    ];
    bench.vsctl(&upper).await;
    assert!(!bench.ports(&wanted).await, "the same address in capitals");
    bench.vsctl(&["--no-wait", "del-port", "ovn-k8s-mp0"]).await;
    assert!(bench.ports(&wanted).await);
    // One that moved to another bridge comes back; one that is not wanted any more goes.
    let moved = "--no-wait del-port ovn-k8s-mp0 -- add-port br-ex ovn-k8s-mp0 -- set port ovn-k8s-mp0 external_ids:noverlay.io/owner=default";
    bench.vsctl(&moved.split(' ').collect::<Vec<_>>()).await;
    assert!(bench.ports(&wanted).await);
    assert!(!bench.ports(&wanted).await);
    assert_eq!(
        bench.ask("ovs-vsctl", &["port-to-br", "ovn-k8s-mp0"]),
        "br-int"
    );
    assert!(bench.ports(&[]).await);
    assert!(!bench.ports(&[]).await);
    let left = bench.ask("ovs-vsctl", &["list-ports", "br-int"]);
    assert_eq!(left, "veth1", "other people's port stays");
}

#[tokio::test]
async fn somebody_elses_port_and_a_missing_bridge_are_told() {
    let Some(bench) = mk_bench().await else {
        return;
    };
    let refused = |port: InternalPort| {
        bench
            .switch
            .with_replica(|replica| ovn::switch::ports(replica, &[port]))
            .unwrap()
    };
    assert_eq!(
        refused(mk_port("veth1")),
        Err(PortError::NameTaken {
            port: "veth1".to_owned()
        })
    );
    let mut port = mk_port("ovn-k8s-mp0");
    port.bridge = "br-none".to_owned();
    assert_eq!(
        refused(port),
        Err(PortError::NoBridge {
            bridge: "br-none".to_owned()
        })
    );
}
