//! What is said of an import whose inputs cannot be read, and which imports there are.

use super::*;
use ovsdb::{ClientConfig, Endpoint};
use plan_node::NotYet;
use testkit::{mk_snapshot, mk_user_network, mk_view};

/// A loop whose database is not there, and what it reads its plan from.
struct Fixture {
    reconciler: ImportReconciler,
    plan: watch::Sender<Option<Arc<Planned>>>,
    readiness: Readiness,
    reports: watch::Receiver<Reports>,
    _folder: tempfile::TempDir,
}

fn mk() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let text = "[default]\ntransport = no-overlay\n[no-overlay]\noutbound-snat = enabled\nrouting = managed\n\
                [bgp-managed]\ntopology = full-mesh\n[ovn]\ntopology = build\n";
    let settings =
        settings::parse_for("node-agent.conf", text, settings::Daemon::NodeAgent).unwrap();
    let nowhere = Endpoint::Unix(folder.path().join("none"));
    let registry = Registry::new();
    let frr = frr_edge::Frr::new(folder.path().join("frr"), folder.path().join("frr.conf"));
    let (plan, planned) = watch::channel(None);
    let shared = Shared {
        planned,
        node: NodeName::from("n1"),
        configuration: Configuration::from(settings),
        north: Client::connect(ClientConfig::new(nowhere, ovn::north::DATABASE)),
        events: Arc::default(),
        probe: FrrProbe::start(frr, || ()),
        queues: Queues::default(),
        metrics: Metrics::new(&registry).unwrap(),
        registry,
        sight: None,
    };
    let readiness = Readiness::default();
    readiness.set("import", true);
    let (tell, reports) = watch::channel(Reports::new());
    Fixture {
        reconciler: ImportReconciler::new(shared, readiness.clone(), tell),
        plan,
        readiness,
        reports,
        _folder: folder,
    }
}

/// The plan of the default network and, if asked for, of another one.
fn mk_planned(missing: Option<NotYet>, both: bool) -> Arc<Planned> {
    let view = mk_view(1);
    let mut shares = vec![view.share.clone()];
    if both {
        shares.push(plan_node::NetworkShare {
            network: mk_user_network(
                "cluster_udn_blue",
                5,
                &["10.200.0.0/16/24"],
                &["100.65.0.0/16"],
            ),
            host_subnets: vec!["10.200.1.0/24".parse().unwrap()],
            remote_subnets: Vec::new(),
            mtu: 1500,
            vrf: None,
        });
    }
    let snapshot = mk_snapshot(&view.node, &shares);
    let default = NetworkName::default_network();
    Arc::new(Planned {
        plan: plan_node::plan(&snapshot),
        stale: missing.map(|why| (default, why)).into_iter().collect(),
        unbuilt: BTreeMap::new(),
        schema: true,
        nodes: None,
        chassis: None,
    })
}

/// The series of a metric, by network, as text.
fn series(fixture: &Fixture, name: &str) -> Vec<String> {
    let families = fixture.reconciler.shared.registry.gather();
    let of_name = families.iter().filter(|family| family.name() == name);
    let labels = |metric: &prometheus::proto::Metric| {
        let mut labels = metric.get_label().iter();
        labels
            .find(|l| l.name() == "network")
            .unwrap()
            .value()
            .to_owned()
    };
    of_name
        .flat_map(|family| family.get_metric().iter().map(labels))
        .collect()
}

#[tokio::test]
async fn with_inputs_of_before_the_import_goes_on_and_says_so() {
    let mut fixture = mk();
    let default = NetworkName::default_network();
    assert_eq!(
        fixture.reconciler.keys().await,
        None,
        "there is no plan yet"
    );
    assert_eq!(
        fixture.reconciler.reconcile(&default).await,
        Action::AwaitChange
    );
    let missing = NotYet::NoNode(NodeName::from("n1"));
    fixture
        .plan
        .send_replace(Some(mk_planned(Some(missing), false)));
    assert_eq!(fixture.reconciler.keys().await, Some(vec![default.clone()]));
    let action = fixture.reconciler.reconcile(&default).await;
    assert_eq!(action, Action::AwaitChange, "the database is not there");
    let stale = |fixture: &Fixture| {
        fixture.reconciler.imports[&default]
            .metrics
            .inputs_stale
            .get()
    };
    assert_eq!(stale(&fixture), 1);
    assert!(fixture.readiness.missing().is_empty(), "not at once");
    let inputs = |fixture: &Fixture| {
        fixture.reconciler.imports[&default]
            .inputs
            .clone()
            .unwrap()
            .1
    };
    let before = inputs(&fixture);
    // Another plan that says the same: the import need not look at its inputs again.
    fixture.plan.send_replace(Some(mk_planned(None, false)));
    fixture.reconciler.reconcile(&default).await;
    assert!(Arc::ptr_eq(&before, &inputs(&fixture)));
    assert_eq!(stale(&fixture), 0);
    let import = &fixture.reconciler.imports[&default].metrics.import;
    assert_eq!(import.retries.with_label_values(&["inputs"]).get(), 1);
    assert!(
        fixture.reports.borrow().is_empty(),
        "nothing is known to be missing"
    );
}

#[tokio::test]
async fn an_import_that_never_comes_to_its_end_makes_the_process_not_ready() {
    let mut fixture = mk();
    let default = NetworkName::default_network();
    fixture.plan.send_replace(Some(mk_planned(None, false)));
    fixture.reconciler.reconcile(&default).await;
    assert!(fixture.readiness.missing().is_empty());
    tokio::time::pause();
    tokio::time::advance(crate::loops::failing::UNREADY).await;
    fixture.reconciler.reconcile(&default).await;
    assert_eq!(fixture.readiness.missing(), ["import"]);
}

#[tokio::test]
async fn a_network_that_is_gone_takes_its_import_report_and_series_along() {
    let mut fixture = mk();
    let blue = NetworkName::from("cluster_udn_blue");
    fixture.plan.send_replace(Some(mk_planned(None, true)));
    for key in fixture.reconciler.keys().await.unwrap() {
        fixture.reconciler.reconcile(&key).await;
    }
    let name = "noverlay_kernel_routes";
    assert_eq!(series(&fixture, name), ["cluster_udn_blue", "default"]);
    let importer = fixture.reconciler.imports[&blue].import.importer();
    let (_, inputs) = fixture.reconciler.imports[&blue].inputs.clone().unwrap();
    let report = ImportReport::of(&blue, &NodeName::from("n1"), (importer, None), &inputs);
    fixture
        .reconciler
        .reports
        .send_replace(Reports::from([(blue.clone(), Arc::new(report))]));
    fixture.plan.send_replace(Some(mk_planned(None, false)));
    assert_eq!(
        fixture.reconciler.reconcile(&blue).await,
        Action::AwaitChange
    );
    assert_eq!(series(&fixture, name), ["default"]);
    assert!(fixture.reports.borrow().is_empty());
    // It comes back under the same name.
    fixture.plan.send_replace(Some(mk_planned(None, true)));
    fixture.reconciler.reconcile(&blue).await;
    assert_eq!(series(&fixture, name), ["cluster_udn_blue", "default"]);
}

#[tokio::test]
async fn a_pass_that_comes_to_nothing_is_not_repeated_for_the_sake_of_a_report() {
    let mut fixture = mk();
    let default = NetworkName::default_network();
    fixture.plan.send_replace(Some(mk_planned(None, false)));
    fixture.reconciler.reconcile(&default).await;
    // It was reported long ago, and would say something else now.
    let import = fixture.reconciler.imports.get_mut(&default).unwrap();
    let other = Arc::new(import.inputs.clone().unwrap().1.as_ref().clone());
    let long_ago = Instant::now().checked_sub(REPORT * 2).unwrap();
    import.shown = Some((Shown::of(import.import.importer(), None, &other), long_ago));
    fixture.reconciler.reconcile(&default).await;
    assert!(fixture.reconciler.imports[&default].again.is_none());
}
