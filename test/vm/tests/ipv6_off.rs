//! A host whose kernel was started without IPv6: its IPv4 side is written as on any other.
//!
//! In: a kernel with `ipv6.disable=1`. Out: what dumps say, what a second write does, and who answers probes.
//! Invariant: what the kernel answers for a family that it does not have is never taken for a table of that family.
//! Not here: hosts with IPv6 (`netns-tests`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use model::kernel::{
    Entries, KernelEntry, KernelKey, POD_RULE_PREFERENCE, POD_RULE_TABLE, RouteTarget, RuleSelector,
};
use model::route::{MAIN_TABLE, PROTOCOL_BGP};
use netlink::{Watcher, dump, write};
use netns_tests::{in_namespace, ip};
use settings::Daemon;
use telemetry::Readiness;

const DEVICE: &str = "ovn-k8s-mp0";

fn network() -> Entries {
    let (device, to, table) = (
        || DEVICE.to_owned(),
        "10.128.0.0/16".parse().unwrap(),
        POD_RULE_TABLE,
    );
    let address = KernelKey::Address {
        device: device(),
        address: "10.128.1.2/24".parse().unwrap(),
    };
    let rule = KernelKey::Rule {
        preference: POD_RULE_PREFERENCE,
        selector: RuleSelector::To(to),
        table,
    };
    let route = KernelEntry::Route(RouteTarget::Device {
        device: Some(device()),
        via: Some("10.128.1.1".parse().unwrap()),
        source: None,
        mtu: Some(1400),
    });
    let (metric, vrf) = (0, None);
    Entries::from([
        (
            KernelKey::Link { device: device() },
            KernelEntry::Link { up: true, vrf },
        ),
        (address, KernelEntry::Address { prefix_route: true }),
        (rule, KernelEntry::Rule { local: true }),
        (KernelKey::Route { table, to, metric }, route),
    ])
}

async fn written_once_and_read_once() {
    ip("link set lo up");
    ip(&format!("link add {DEVICE} type veth peer name other"));
    ip("link set other up");
    let written = write::apply(&network(), true).await.unwrap();
    assert_eq!(written.done.len(), 4, "up, and one of each: {written:?}");
    assert!(written.failed.is_empty(), "{written:?}");
    let again = write::apply(&network(), true).await.unwrap();
    assert!(
        again.done.is_empty() && again.failed.is_empty(),
        "{again:?}"
    );
    let rules = ip("rule show pref 31 table 7");
    assert!(rules.contains("10.128.0.0/16 iif lo"), "{rules}");
    let routes = ip("route show table 7 proto 85");
    assert!(
        routes.starts_with("10.128.0.0/16 via 10.128.1.1 "),
        "{routes}"
    );

    ip("route add 192.0.2.0/24 via 10.128.1.1 proto bgp metric 20");
    for table in [Some(MAIN_TABLE), None] {
        let found = dump::routes(table, PROTOCOL_BGP).unwrap();
        assert_eq!(found.len(), 1, "each once: {found:?}");
    }
    Watcher::open().unwrap();

    let everywhere = Daemon::NodeAgent.metrics_default();
    let registry = prometheus::Registry::new();
    let server = tokio::spawn(telemetry::serve(everywhere, registry, Readiness::default()));
    let address = ("127.0.0.1", everywhere.port());
    while tokio::net::TcpStream::connect(address).await.is_err() {
        assert!(!server.is_finished(), "{:?}", server.await);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[test]
fn a_host_without_ipv6_has_its_management_port_and_each_route_once() {
    vm_tests::without_ipv6(
        "a_host_without_ipv6_has_its_management_port_and_each_route_once",
        || in_namespace(written_once_and_read_once),
    );
}
