//! Where networks are advertised, by RouteAdvertisements that come, are judged and go.

use model::intent::TargetVrf;
use model::network::Advertised;
use model::user_network::attachment::ROUTE_ADVERTISEMENTS;

use super::*;

fn ra(target_vrf: TargetVrf, accepted: Option<bool>) -> PodAdvertisement {
    PodAdvertisement {
        target_vrf,
        pod_network: true,
        accepted,
    }
}

fn named(name: &str) -> TargetVrf {
    TargetVrf::Named(name.to_owned())
}

const NOWHERE: Advertised = Advertised {
    default_vrf: false,
    own_vrf: false,
};
const DEFAULT: Advertised = Advertised {
    default_vrf: true,
    own_vrf: false,
};
const OWN: Advertised = Advertised {
    default_vrf: false,
    own_vrf: true,
};

#[test]
fn where_a_network_is_advertised_is_what_its_advertisements_say() {
    let mut all = three();
    annotate(&mut all, "a/red", ROUTE_ADVERTISEMENTS, r#"["one"]"#);
    all.insert(default_key(), Attachment::default());
    annotate(&mut all, "ovn/default", ROUTE_ADVERTISEMENTS, r#"["one"]"#);
    let of = |one: PodAdvertisement| {
        let ras = [
            ("one".to_owned(), one),
            ("two".to_owned(), ra(TargetVrf::Default, Some(true))),
        ];
        let declared = declared_by(&Declared::default(), &all, Some(&ras.into()));
        assert_eq!(declared.networks[&blue()].advertised, NOWHERE);
        (
            declared.networks[&red()].advertised,
            declared.default_network.unwrap(),
        )
    };
    assert_eq!(of(ra(TargetVrf::Default, Some(true))), (DEFAULT, DEFAULT));
    assert_eq!(of(ra(TargetVrf::Auto, Some(true))), (OWN, DEFAULT));
    assert_eq!(of(ra(named("red"), Some(true))), (OWN, NOWHERE));
    assert_eq!(of(ra(named("blue"), Some(true))), (NOWHERE, NOWHERE));
    // Nothing is known of what it did before: an object names it, so it was accepted, and what it says is the likeliest.
    assert_eq!(of(ra(TargetVrf::Auto, Some(false))), (OWN, DEFAULT));
    assert_eq!(of(ra(TargetVrf::Default, None)), (DEFAULT, DEFAULT));
    let egress = PodAdvertisement {
        pod_network: false,
        ..ra(TargetVrf::Auto, Some(true))
    };
    assert_eq!(of(egress), (NOWHERE, NOWHERE));
    // Several: all that they say.
    annotate(&mut all, "b/red", ROUTE_ADVERTISEMENTS, r#"["two"]"#);
    let ras = [
        ("one".to_owned(), ra(TargetVrf::Auto, Some(true))),
        ("two".to_owned(), ra(TargetVrf::Default, Some(true))),
    ];
    let both = declared_by(&Declared::default(), &all, Some(&ras.into()));
    let wanted = Advertised {
        default_vrf: true,
        own_vrf: true,
    };
    assert_eq!(both.networks[&red()].advertised, wanted);
}

#[test]
fn an_advertisement_that_is_not_there_not_judged_or_rejected_changes_nothing_in_force() {
    let mut all = three();
    for at in ["a/red", "b/red"] {
        annotate(&mut all, at, ROUTE_ADVERTISEMENTS, r#"["one"]"#);
    }
    all.insert(default_key(), Attachment::default());
    annotate(&mut all, "ovn/default", ROUTE_ADVERTISEMENTS, r#"["one"]"#);
    let ras =
        |one: Option<bool>| Advertisements::from([("one".to_owned(), ra(TargetVrf::Auto, one))]);
    // Not listed: the networks that name one wait, others do not.
    let waits = declared_by(&Declared::default(), &all, None);
    assert_eq!(names(&waits), ["cluster_udn_blue"]);
    let (name, problem) = waits.waiting().next().unwrap();
    assert_eq!(
        (name, problem.reason),
        (&red(), "RouteAdvertisementsNotListed")
    );
    assert_eq!(waits.default_network, None);
    // Listed behind the objects that name it, and rejected; or first made then.
    let rejected = ra(TargetVrf::Auto, Some(false));
    let late = declared_by(&waits, &all, Some(&[("one".to_owned(), rejected)].into()));
    assert_eq!(late.networks[&red()].advertised, OWN);
    let absent = declared_by(&waits, &all, Some(&Advertisements::new()));
    assert_eq!(absent.networks[&red()].advertised, NOWHERE);
    let late = declared_by(&absent, &all, Some(&ras(None)));
    assert_eq!(late.networks[&red()].advertised, OWN);
    let good = declared_by(&waits, &all, Some(&ras(Some(true))));
    assert_eq!(good.networks[&red()].advertised, OWN);
    assert!(good.troubles.is_empty());
    let rejected = |target: TargetVrf| [("one".to_owned(), ra(target, Some(false)))].into();
    for later in [
        None,
        Some(Advertisements::new()),
        Some(ras(None)),
        Some(rejected(TargetVrf::Auto)),
        // Edited, and rejected: what was accepted before is in force.
        Some(rejected(TargetVrf::Default)),
    ] {
        let now = declared_by(&good, &all, later.as_ref());
        assert_eq!(now.networks, good.networks, "{later:?}");
        assert_eq!(now.default_network, good.default_network, "{later:?}");
        assert_eq!(declared_by(&now, &all, later.as_ref()), now);
    }
    // Accepted as it is edited.
    let edited = [("one".to_owned(), ra(TargetVrf::Default, Some(true)))].into();
    let edited = declared_by(&good, &all, Some(&edited));
    assert_eq!(edited.networks[&red()].advertised, DEFAULT);
    // It is gone, and no object names it any more.
    for at in ["a/red", "b/red", "ovn/default"] {
        annotate(&mut all, at, ROUTE_ADVERTISEMENTS, "[]");
    }
    let without = after(&good, &all);
    assert_eq!(without.networks[&red()].advertised, NOWHERE);
    assert_eq!(without.default_network, Some(NOWHERE));
}
