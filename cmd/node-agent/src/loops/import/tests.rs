//! What the import goes on with where something cannot be read.

use super::*;
use crate::metrics::Metrics;
use model::NodeName;
use ovsdb::{Client, ClientConfig, Endpoint};

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

/// A loop whose databases are not there and whose Nodes have not been listed.
fn subjects(folder: &std::path::Path) -> ImportReconciler {
    let file = folder.join("node-agent.conf");
    let text = "[default]\ntransport = no-overlay\n[no-overlay]\noutbound-snat = enabled\nrouting = managed\n\
                [bgp-managed]\ntopology = full-mesh\n";
    std::fs::write(&file, text).unwrap();
    let settings = settings::load(&file, settings::Daemon::NodeAgent).unwrap();
    let nowhere =
        |name| Client::connect(ClientConfig::new(Endpoint::Unix(folder.join("none")), name));
    let known = Known::new(
        NodeName::from("n1"),
        settings,
        nowhere(ovn::north::DATABASE),
        nowhere(ovn::switch::DATABASE),
        Metrics::new(
            &prometheus::Registry::new(),
            &NetworkName::default_network(),
        )
        .unwrap(),
    );
    let readiness = Readiness::default();
    readiness.set("import", true);
    ImportReconciler::new(Arc::new(known), Queues::default(), readiness)
}

fn last() -> Inputs {
    Inputs {
        table: Some(254),
        scope: Scope {
            gateway_link: Some(3),
            cluster_subnets: vec![prefix("10.128.0.0/16")],
            host_subnets: vec![prefix("10.128.1.0/24")],
            join_subnets: vec![prefix("100.64.0.0/16")],
            other_networks: model::subnets::Subnets::default(),
            own_addresses: BTreeSet::new(),
            no_overlay: true,
            taken: BTreeSet::new(),
            fallbacks: BTreeMap::new(),
            fallbacks_known: true,
            bgp_default: BgpDefault::Ignore,
        },
        owners: vec![(prefix("10.128.2.0/24"), NodeName::from("n2"))],
        release: Some("1".to_owned()),
    }
}

#[tokio::test]
async fn without_a_view_the_import_goes_on_with_the_last_inputs_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut subjects = subjects(folder.path());
    let readiness = subjects.readiness.clone();
    assert!(subjects.inputs().await.is_err(), "there never were any");
    let inputs = Arc::new(last());
    subjects.inputs = Some((Some(subjects.known.epoch()), Arc::clone(&inputs)));
    let (same, missing) = subjects.inputs().await.unwrap();
    assert!(
        Arc::ptr_eq(&same, &inputs) && missing.is_none(),
        "nothing is read"
    );
    subjects.known.note_facts();
    let (same, missing) = subjects.inputs().await.unwrap();
    assert!(
        Arc::ptr_eq(&same, &inputs),
        "the import need not look at them"
    );
    assert!(matches!(missing, Some(NoView::Caches)), "{missing:?}");
    // A pass is made with them, and the process says in time that it is not as it should be.
    let verdict = subjects.import().await;
    assert_eq!(verdict, Action::AwaitChange, "the database is not there");
    assert_eq!(subjects.known.metrics.inputs_stale.get(), 1);
    assert!(readiness.missing().is_empty(), "not at once");
    // As if it had begun long ago.
    subjects.failing = Instant::now().checked_sub(UNREADY);
    subjects.import().await;
    assert_eq!(readiness.missing(), ["import"]);
    let retries = &subjects.known.metrics.import.retries;
    assert_eq!(retries.with_label_values(&["inputs"]).get(), 2);
    subjects.note(true);
    assert!(readiness.missing().is_empty());
}

#[test]
fn what_the_nodes_say_counts_though_the_own_one_cannot_be_read() {
    let claims = Claims {
        owners: vec![(prefix("10.128.3.0/24"), NodeName::from("n3"))],
        other_networks: [(prefix("10.200.7.0/24"), ())].into_iter().collect(),
        problems: Vec::new(),
    };
    let now = carried_on(&last(), Some(claims.clone()), None);
    assert_eq!(now.owners, claims.owners);
    assert_eq!(now.scope.other_networks, claims.other_networks);
    assert_eq!(now.release.as_deref(), Some("1"));
    assert_eq!(now.scope.host_subnets, last().scope.host_subnets);
    let released = carried_on(&last(), Some(claims), Some("2".to_owned()));
    assert_eq!(released.release.as_deref(), Some("2"));
    assert_eq!(carried_on(&last(), None, None), last());
}

/// A view that cannot be made for want of a node id.
fn no_id() -> Result<NetworkView, NoView> {
    Err(NoView::Waiting(NodeName::from("n1"), "node id"))
}

fn view() -> NetworkView {
    let address = "172.30.0.1";
    NetworkView {
        network: NetworkName::default_network(),
        network_id: 0,
        node: NodeName::from("n1"),
        node_id: 2,
        host_subnets: vec![prefix("10.128.1.0/24")],
        cluster_subnets: vec!["10.128.0.0/16/24".parse().unwrap()],
        join_subnets: vec![prefix("100.64.0.0/16")],
        gateway: plan_node::GatewayView {
            bridge: "br-ex".to_owned(),
            physical_network: "physnet".to_owned(),
            mac: "0a:58:ac:1e:00:01".parse().unwrap(),
            addresses: vec![format!("{address}/24").parse().unwrap()],
            next_hops: vec!["172.30.0.100".parse().unwrap()],
            chassis: "n1".to_owned(),
        },
        outbound_snat: true,
        missing_route: model::network::MissingRoute::Discard,
        mtu: 1500,
        ephemeral_port_range: "32768-60999".to_owned(),
        host_addresses: [address.parse().unwrap()].into(),
        node_addresses: [address.parse().unwrap()].into(),
        nat_has_match: false,
    }
}

#[test]
fn what_comes_in_the_place_of_routes_is_known_from_the_first_view_on_and_reported_until_then() {
    let replace = BgpDefault::Replace;
    let (rows, missing) = fallbacks(no_id(), || None, replace);
    assert!(rows.is_empty(), "{rows:?}");
    assert!(
        matches!(missing, Some(NoView::Waiting(_, "node id"))),
        "{missing:?}"
    );
    let both: Vec<Prefix> = vec![prefix("0.0.0.0/0"), prefix("10.128.0.0/16")];
    for (now, last) in [(Ok(view()), None), (no_id(), Some(view()))] {
        let (rows, missing) = fallbacks(now, || last, replace);
        assert_eq!(rows.into_keys().collect::<Vec<_>>(), both);
        assert!(missing.is_none(), "{missing:?}");
    }
}
