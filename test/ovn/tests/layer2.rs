//! What the installed ovn-northd makes of a layer-2 network's rows.
//!
//! In: the plan of a node, ports of its own pod and of another node's as a CNI writes them. Out: bindings, flows, ways of packets.
//! Invariant: northd complains about nothing. Not here: ovn-controller, packets (the lab).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use model::gateway::GatewayMode;
use model::names::NodeName;
use model::network::Advertised;
use ovn::{encode, north as rows};
use ovn_tests::{NORTHD_TOOLS, Northd, View, mk_view};
use ovsdb::{Client, ClientConfig, Endpoint};
use ovsdb_tests::{absent, until_synced};
use plan_node::{RemoteNode, north};
use testkit::{mk_layer2_network, mk_layer2_share};

const SWITCH: &str = "cluster_udn_gray_ovn_layer2_switch";
const ROUTER: &str = "cluster_udn_gray_transit_router";
const GATEWAY: &str = "GR_cluster_udn_gray_n1";
const TO_SWITCH: &str = "trtos-cluster_udn_gray_ovn_layer2_switch";
const MANAGEMENT: &str = "k8s-cluster_udn_gray_n1";
const LOCALNET: &str = "br-ex_cluster_udn_gray_n1";

/// n1 and its share of gray, of both families, advertised; n2 is there.
fn gray(mode: GatewayMode) -> View {
    let mut network = mk_layer2_network("cluster_udn_gray", 4, &["10.153.0.0/16", "fd53::/64"]);
    network.advertised = Advertised {
        default_vrf: true,
        own_vrf: false,
    };
    let mut view = View {
        node: mk_view().node,
        share: mk_layer2_share(network),
    };
    view.node.mode = mode;
    let remote = RemoteNode {
        id: 3,
        chassis: "n2".to_owned(),
        encap_ips: ["172.30.0.2".parse().unwrap()].into(),
    };
    view.node.remotes.insert(NodeName::from("n2"), remote);
    view
}

/// Northd over the rows of a view, two chassis, and a pod on each.
async fn built(view: &View) -> Northd {
    let northd = Northd::start();
    northd.sbctl(&["chassis-add", "n1", "geneve", "172.30.0.1"]);
    northd.sbctl(&["chassis-add", "n2", "geneve", "172.30.0.2"]);
    let socket = northd.nb.clone();
    let tables = rows::monitor().into_iter();
    let config = ClientConfig::new(Endpoint::Unix(socket), rows::DATABASE);
    let client = Client::connect(tables.fold(config, ClientConfig::table));
    until_synced(&client).await;
    // The default network, which is advertised too, is there by its subnets in the node's sets.
    let default = mk_view();
    let both = [default.get(), view.get()].into_iter();
    let of_node = north::shared::plan(&view.node, both);
    for wanted in [of_node, north::plan(view.get())] {
        let owner = ovn_tests::owner_of(&wanted);
        let north = client.with_replica(rows::decode).unwrap().unwrap();
        let diff = model::diff::Diff::between(north.of(&owner), &wanted, model::nb::satisfies);
        let transaction = encode::topology(&diff, &north, &owner, "noverlay test").unwrap();
        let mut status = client.watch();
        let before = status.borrow_and_update().generation;
        let reply = client.transact(&transaction).await.unwrap();
        reply.check_counts().unwrap();
        status
            .wait_for(|now| now.generation > before)
            .await
            .unwrap();
        // What northd has of it is what was meant: nothing is left to write.
        let north = client.with_replica(rows::decode).unwrap().unwrap();
        let left = model::diff::Diff::between(north.of(&owner), &wanted, model::nb::satisfies);
        assert!(left.is_empty(), "{left:?}");
    }
    pods(&northd);
    northd
}

/// A pod on each node: 10.153.0.11 here, 10.153.0.12 on n2.
fn pods(northd: &Northd) {
    for (port, number, kind, chassis) in [("pod-n1", 11, "", "n1"), ("pod-n2", 12, "remote", "n2")]
    {
        let addresses = format!("0a:58:0a:99:00:{number:02x} 10.153.0.{number} fd53::{number}");
        let key = format!("requested-tnl-key={}", 100 + number);
        let chassis = format!("requested-chassis={chassis}");
        northd.nbctl(&[
            "lsp-add",
            SWITCH,
            port,
            "--",
            "lsp-set-addresses",
            port,
            &addresses,
        ]);
        northd.nbctl(&[
            "lsp-set-type",
            port,
            kind,
            "--",
            "lsp-set-options",
            port,
            &key,
            &chassis,
        ]);
    }
    // As ovn-controller, or the agent, would bind them.
    for (port, chassis) in [("pod-n1", "n1"), ("pod-n2", "n2")] {
        let id = northd.found("Chassis", "_uuid", &format!("name={chassis}"));
        let bound = format!("chassis={id}");
        let binding = northd.found("Port_Binding", "_uuid", &format!("logical_port={port}"));
        northd.sbctl(&["set", "Port_Binding", &binding, &bound, "up=true"]);
    }
    northd.nbctl(&["sync"]);
}

#[tokio::test]
async fn northd_takes_the_rows_as_they_are_meant_in_both_gateway_modes() {
    if absent(NORTHD_TOOLS) {
        return;
    }
    for mode in [GatewayMode::Shared, GatewayMode::Local] {
        let northd = built(&gray(mode)).await;
        assert_eq!(northd.complaints(), Vec::<String>::new(), "{mode:?}");
        for (name, key) in [(SWITCH, "16711687"), (ROUTER, "16715779")] {
            let key_of = northd.found(
                "Datapath_Binding",
                "tunnel_key",
                &format!("external_ids:name={name}"),
            );
            assert_eq!(key_of, key, "{name}");
        }
        let of_port = |columns: &str, port: &str| {
            northd.found("Port_Binding", columns, &format!("logical_port={port}"))
        };
        let (inner, outer) = (format!("trtor-{GATEWAY}"), format!("rtotr-{GATEWAY}"));
        for (port, router) in [(&inner, ROUTER), (&outer, GATEWAY)] {
            let peer = format!("peer=jtor-{router}");
            assert!(of_port("options", port).contains(&peer), "{port}");
            // Either end is as its router: what ovn-controller connects has to be of one kind.
            let end = of_port("type", &format!("jtor-{router}"));
            assert_eq!(end, of_port("type", port), "{port}");
        }
        for (port, key) in [
            (inner.as_str(), "12"),
            ("trtor-GR_cluster_udn_gray_n2", "13"),
            ("pod-n1", "111"),
            ("pod-n2", "112"),
        ] {
            assert_eq!(of_port("tunnel_key", port), key, "{port}");
        }
        assert_eq!(of_port("type", "pod-n2"), "remote");
        assert_eq!(
            of_port("type", &format!("cr-{TO_SWITCH}")),
            "chassisredirect"
        );
        for port in [
            "stotr-cluster_udn_gray_ovn_layer2_switch",
            &format!("etor-{GATEWAY}"),
            "pod-n1",
            "pod-n2",
        ] {
            assert_eq!(northd.nbctl(&["lsp-get-up", port]).trim(), "up", "{port}");
        }
        flows(&northd, mode);
    }
}

/// Pods leave by their source, and are translated where they meet the switch.
fn flows(northd: &Northd, mode: GatewayMode) {
    let flows = northd.flows(ROUTER);
    let by_source = match mode {
        GatewayMode::Shared => ["100.88.0.5", "fd97::5"],
        GatewayMode::Local => ["10.153.0.2", "fd53::2"],
    };
    for (family, subnet, nexthop) in [
        ("ip4", "10.153.0.0/16", by_source[0]),
        ("ip6", "fd53::/64", by_source[1]),
    ] {
        let has = |words: &[&str]| {
            flows
                .lines()
                .any(|line| words.iter().all(|word| line.contains(word)))
        };
        let source = format!("{family}.src == {subnet}");
        assert!(
            has(&["lr_in_ip_routing", &source, nexthop]),
            "{mode:?}\n{flows}"
        );
        assert!(
            has(&["lr_out_snat", &source, TO_SWITCH, "ct_snat"]),
            "{mode:?}\n{flows}"
        );
    }
}

#[tokio::test]
async fn packets_take_the_way_that_the_gateway_mode_says() {
    if absent(NORTHD_TOOLS) {
        return;
    }
    let pod = |to_mac: &str, to: &str| {
        format!(
            "inport==\"pod-n1\" && eth.src==0a:58:0a:99:00:0b && eth.dst=={to_mac} && ip4.src==10.153.0.11 && ip4.dst=={to} && ip.ttl==64 && tcp.dst==80"
        )
    };
    let gateway = "0a:58:0a:99:00:01";
    for mode in [GatewayMode::Shared, GatewayMode::Local] {
        let northd = built(&gray(mode)).await;
        let trace = |datapath: &str, flow: &str| northd.trace(datapath, flow);
        // A pod of another node: over the tunnel, by no router.
        let far = trace(SWITCH, &pod("0a:58:0a:99:00:0c", "10.153.0.12"));
        assert!(far.contains("output(\"pod-n2\")"), "{far}");
        assert!(!far.contains("ttl--") && !far.contains("ct_snat"), "{far}");
        // The outside, with the pod's own address: by the bridge, or by the host.
        let out = trace(SWITCH, &pod(gateway, "198.51.100.7"));
        let way = match mode {
            GatewayMode::Shared => format!("output(\"{LOCALNET}\")"),
            GatewayMode::Local => format!("output(\"{MANAGEMENT}\")"),
        };
        assert!(out.contains(&way) && !out.contains("ct_snat"), "{out}");
        // The node: by the host in both modes, with an address that it has a way back to.
        let node = trace(SWITCH, &pod(gateway, "172.30.0.1"));
        let translated = "ct_snatin_czone(ip4.src=169.254.0.18)";
        let way = format!("output(\"{MANAGEMENT}\")");
        assert!(node.contains(translated) && node.contains(&way), "{node}");
        // From outside to a pod of another node: over this one.
        let inward = format!(
            "inport==\"{LOCALNET}\" && eth.src==0a:58:ac:1e:00:64 && eth.dst==0a:58:ac:1e:00:01 && ip4.src==198.51.100.7 && ip4.dst==10.153.0.12 && ip.ttl==64 && tcp.dst==80"
        );
        let inward = trace("ext_cluster_udn_gray_n1", &inward);
        assert!(
            inward.contains("output(\"pod-n2\")") && !inward.contains("ct_snat"),
            "{inward}"
        );
        // To a pod of another advertised network: nowhere.
        let other = trace(SWITCH, &pod(gateway, "10.128.2.7"));
        assert!(!other.contains("output"), "{other}");
    }
}
