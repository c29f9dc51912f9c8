//! VRF devices of networks of users: made, kept, repaired and removed.
//!
//! In: wishes, on a kernel with VRFs. Out: the kernel as `ip` shows it. Invariant: what an administrator put into a VRF stays,
//! and a VRF device that he made is used and never removed. Not here: who wants it (`plan_node::kernel`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::collections::BTreeSet;

use model::gateway::GatewayMode;
use model::kernel::Entries;
use model::network::Advertised;
use netlink::{dump, write};
use netns_tests::{in_namespace, ip};
use plan_node::{Vrf, kernel, vrf};
use testkit::{View, mk_user_network, mk_view};
use vm_tests::with_vrf;

const PORT: &str = "ovn-k8s-mp5";

/// The node's share of network blue, id 5, in the VRF that the links as they are give it.
fn blue(mode: GatewayMode) -> View {
    let mut view = mk_view(1);
    view.node.mode = mode;
    view.node.gateway.bridge = "br-ex".to_owned();
    let join = ["100.65.0.0/16", "fd99::/64"];
    let subnets = ["10.200.0.0/16/24", "fd00:200::/48/64"];
    view.share.network = mk_user_network("cluster_udn_blue", 5, &subnets, &join);
    view.share.network.advertised = Advertised {
        default_vrf: true,
        own_vrf: false,
    };
    view.share.host_subnets = ["10.200.1.0/24", "fd00:200:0:1::/64"]
        .map(|text| text.parse().unwrap())
        .into();
    let network = &view.share.network;
    let links = dump::links().unwrap();
    view.share.vrf = vrf::plan(&network.name, network.id, &links, &BTreeSet::new()).unwrap();
    view
}

fn mk_links() {
    ip("link set lo up");
    ip("link add br-ex type veth peer name outside");
    ip("addr add 172.30.0.1/24 dev br-ex");
    ip("link set outside up");
    ip("link set br-ex up");
    ip(&format!("link add {PORT} type veth peer name inside"));
    ip("link set inside up");
}

async fn apply(wanted: &Entries) -> Vec<String> {
    let written = write::apply(wanted, true).await.unwrap();
    assert!(written.failed.is_empty(), "{:?}", written.failed);
    written.done
}

/// The same, where what hangs on something else may need another pass.
async fn settled(wanted: &Entries) {
    let mut failed = Vec::new();
    for _ in 0..3 {
        let written = write::apply(wanted, true).await.unwrap();
        assert!(written.kept.is_empty(), "{:?}", written.kept);
        failed = written.failed;
        if failed.is_empty() {
            return;
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

fn table(view: &View) -> u32 {
    view.share.vrf.as_ref().map(|vrf: &Vrf| vrf.table).unwrap()
}

/// Routes of a table, one a line, without those that the kernel makes.
fn routes(family: &str, table: u32) -> Vec<String> {
    let shown = ip(&format!("{family} route show table {table} proto 85"));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    shown.lines().map(words).collect()
}

async fn one_life() {
    mk_links();
    for mode in [GatewayMode::Shared, GatewayMode::Local] {
        let view = blue(mode);
        let wanted = kernel::plan(view.get());
        let done = apply(&wanted).await;
        assert!(!done.is_empty());
        let again = apply(&wanted).await;
        assert!(again.is_empty(), "{mode:?}: {again:?}");
        let vrf = ip("-d link show dev blue");
        let number = table(&view);
        assert!(
            vrf.contains(&format!("vrf table {number}")) && vrf.contains("UP"),
            "{vrf}"
        );
        assert!(vrf.contains("alias noverlay:"), "{vrf}");
        assert!(ip(&format!("link show dev {PORT}")).contains("master blue"));
        let rules = ip("rule show pref 2000");
        for selector in ["to 10.200.0.0/16", "to 169.254.0.20", "fwmark 0x1005"] {
            let rule = format!("{selector} lookup {number}");
            assert!(rules.contains(&rule), "{rule}: {rules}");
        }
        let four = routes("-4", number);
        let has = |start: &str| four.iter().any(|route| route.starts_with(start));
        assert!(has("default via 172.30.0.100 dev br-ex"), "{four:?}");
        assert!(has("unreachable default metric 4278198272"), "{four:?}");
        let by_kernel = mode == GatewayMode::Local;
        assert_eq!(
            has("10.200.1.0/24 via 10.200.1.1 dev"),
            by_kernel,
            "{four:?}"
        );
        assert_eq!(
            has("10.200.0.0/16 via 10.200.1.1 dev"),
            !by_kernel,
            "{four:?}"
        );
        let six = routes("-6", number);
        let to = if by_kernel {
            "fd00:200:0:1::/64 via"
        } else {
            "fd00:200::/48 via"
        };
        assert!(six.iter().any(|route| route.starts_with(to)), "{six:?}");
    }
    repaired().await;
}

/// An administrator's port stays through everything; what he takes away comes back; the network's end takes all of ours.
async fn repaired() {
    ip("link add vlan20 type veth peer name far20");
    ip("link set vlan20 master blue");
    ip("link set vlan20 up");
    let view = blue(GatewayMode::Local);
    let wanted = kernel::plan(view.get());
    assert!(apply(&wanted).await.is_empty());
    ip(&format!("link set {PORT} nomaster"));
    ip("rule del pref 2000 to 10.200.0.0/16");
    assert!(!apply(&wanted).await.is_empty());
    assert!(ip(&format!("link show dev {PORT}")).contains("master blue"));
    assert!(apply(&wanted).await.is_empty());
    assert!(ip("link show dev vlan20").contains("master blue"));
    let gone = apply(&Entries::new()).await;
    assert!(
        gone.iter().any(|text| text == "removed the VRF blue"),
        "{gone:?}"
    );
    assert!(!ip("link show type vrf").contains("blue"));
    assert!(!ip("rule show pref 2000").contains("lookup"));
    assert!(ip("link show dev vlan20").contains("UP"));
    assert_eq!(routes("-4", table(&view)), [] as [&str; 0]);
    // One that somebody removes comes back with its routes, and nothing of ours counts as somebody else's.
    settled(&wanted).await;
    let stand = || [routes("-4", table(&view)), routes("-6", table(&view))];
    let before = stand();
    assert!(!before[0].is_empty(), "{before:?}");
    ip("link del blue");
    settled(&wanted).await;
    assert!(apply(&wanted).await.is_empty(), "nothing is left to do");
    assert!(ip(&format!("link show dev {PORT}")).contains("master blue"));
    assert_eq!(stand(), before);
    // The second time one is there that a process left.
    for _ in 0..2 {
        assert!(write::try_vrf().await.is_ok());
        assert!(!ip("link show type vrf").contains("noverlay-try"));
        ip("link add noverlay-try type vrf table 77");
    }
    ip("link del noverlay-try");
}

/// His VRF is up when it is found, or he sets it down for a while.
async fn an_administrators_vrf(is_up: bool) {
    mk_links();
    ip("link add blue type vrf table 500");
    ip("link set blue up");
    // His way out has the place of ours.
    ip("link add up20 type veth peer name far20");
    ip("link set up20 master blue");
    ip("addr add 192.0.2.1/24 dev up20");
    ip("link set far20 up");
    ip("link set up20 up");
    ip("route add default via 192.0.2.254 table 500");
    let his = || {
        ip("route show table 500")
            .lines()
            .filter(|route| route.contains("192.0.2.254"))
            .count()
    };
    if !is_up {
        ip("link set blue down");
    }
    assert_eq!(his(), 1);
    let view = blue(GatewayMode::Local);
    assert_eq!(table(&view), 500);
    let wanted = kernel::plan(view.get());
    for _ in 0..2 {
        let written = write::apply(&wanted, true).await.unwrap();
        assert!(written.failed.is_empty(), "{:?}", written.failed);
        assert_eq!(written.kept.len(), 1, "{:?}", written.kept);
        assert_eq!(his(), 1);
    }
    assert!(apply(&wanted).await.is_empty());
    assert!(ip(&format!("link show dev {PORT}")).contains("master blue"));
    apply(&Entries::new()).await;
    assert_eq!(his(), 1);
    let shown = ip("-d link show dev blue");
    assert!(
        shown.contains("vrf table 500") && !shown.contains("alias"),
        "{shown}"
    );
}

#[test]
fn a_vrf_is_made_kept_and_removed_and_what_is_others_stays() {
    with_vrf(
        "a_vrf_is_made_kept_and_removed_and_what_is_others_stays",
        || {
            in_namespace(one_life);
            in_namespace(|| an_administrators_vrf(true));
            in_namespace(|| an_administrators_vrf(false));
        },
    );
}
