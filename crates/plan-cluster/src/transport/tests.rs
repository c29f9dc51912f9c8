//! Which event follows which change.

use super::*;
use crate::advertise::plan_all;
use crate::samples::{
    add, add_advertisement, add_network, default_of, mk_managed, mk_source, mk_world,
};
use crate::user_networks;
use model::intent::{NetworkSelector, RouteAdvertisements, TargetVrf};
use model::network::Transport;

#[test]
fn the_state_follows_the_advertisements() {
    let none = BTreeMap::new();
    assert_eq!(
        default_network(&mk_world(), &none),
        DefaultNetwork::NoRouteAdvertisements
    );
    let world = mk_managed();
    let name = world.ras.keys().next().unwrap().clone();
    assert_eq!(
        default_network(&world, &none),
        DefaultNetwork::NotAccepted(vec![name])
    );
    assert_eq!(
        default_network(&world, &plan_all(&world)),
        DefaultNetwork::Ready
    );
    let mut broken = mk_world();
    let why = "spec.nodeSelector: operator Like is none".to_owned();
    broken.ras.insert("pods".to_owned(), Err(why.clone()));
    let state = default_network(&broken, &none);
    assert_eq!(
        state,
        DefaultNetwork::Unreadable(vec![("pods".to_owned(), why.clone())])
    );
    let event = event(Some(&DefaultNetwork::Ready), &state).unwrap();
    assert_eq!(
        (event.warning, event.reason),
        (true, "NoOverlayConfigurationError")
    );
    assert_eq!(
        event.message,
        format!("No-overlay transport configuration error: RouteAdvertisements pods: {why}")
    );
    let mut overlay = mk_world();
    default_of(&mut overlay).transport = Transport::Geneve;
    assert_eq!(default_network(&overlay, &none), DefaultNetwork::Overlay);
}

#[test]
fn an_event_is_given_on_change_only_and_not_for_the_first_success() {
    let (no, ready) = (DefaultNetwork::NoRouteAdvertisements, DefaultNetwork::Ready);
    assert_eq!(event(None, &ready), None);
    assert_eq!(event(Some(&ready), &ready), None);
    assert_eq!(event(None, &no).unwrap().reason, "NoRouteAdvertisements");
    assert_eq!(event(Some(&no), &no), None);
    assert_eq!(
        event(Some(&no), &ready).unwrap().reason,
        "NoOverlayConfigurationReady"
    );
    let not = DefaultNetwork::NotAccepted(vec!["a".to_owned(), "b".to_owned()]);
    assert!(
        event(Some(&ready), &not)
            .unwrap()
            .message
            .starts_with("RouteAdvertisements CR(s) a, b exist")
    );
}

/// The source of everybody, a network `blue` of this transport, and no RA yet.
fn with_blue(transport: UserTransport) -> World {
    let mut world = mk_world();
    world.fabric = None;
    add(&mut world, mk_source("src", &["172.31.0.1"]));
    add_network(&mut world, "blue", 1, "10.61.0.0/16/24", "blue");
    let blue = world.cudns.get_mut("blue").unwrap();
    blue.network.as_mut().unwrap().transport = transport;
    let networks = user_networks::networks(&world);
    world.networks.extend(networks);
    world
}

const UNMANAGED: UserTransport = UserTransport::NoOverlay {
    outbound_snat: false,
    routing: Routing::Unmanaged,
};

/// Adds an RA over `blue`, which is changed.
fn advertised(world: &mut World, name: &str, change: fn(&mut RouteAdvertisements)) {
    add_advertisement(world, name, 5, "blue");
    change(world.ras.get_mut(name).unwrap().as_mut().unwrap());
}

fn elsewhere(ra: &mut RouteAdvertisements) {
    ra.target_vrf = TargetVrf::Named("elsewhere".to_owned());
}

/// Reason and status of `TransportAccepted` of `blue`.
fn accepted(world: &World) -> (String, bool) {
    let blue = &world.cudns["blue"];
    let condition = condition(world, blue, &plan_all(world)).unwrap();
    (condition.reason, condition.status)
}

type Change = fn(&mut World);

#[test]
fn a_transport_is_accepted_where_an_accepted_advertisement_serves_the_network() {
    let cases: [(&str, bool, Change); 9] = [
        ("NoOverlayRouteAdvertisementsIsMissing", false, |_| {}),
        ("NoOverlayTransportAccepted", true, |w| {
            advertised(w, "a", |_| {});
        }),
        ("NoOverlayRouteAdvertisementsIsMissing", false, |w| {
            advertised(w, "a", |ra| (ra.pod_network, ra.egress_ip) = (false, true));
        }),
        ("NoOverlayRouteAdvertisementsIsMissing", false, |w| {
            advertised(w, "a", |ra| {
                ra.networks = vec![NetworkSelector::DefaultNetwork]
            });
        }),
        ("NoOverlayRouteAdvertisementsNotAccepted", false, |w| {
            advertised(w, "a", elsewhere);
        }),
        // Nobody knows what it selects; what is announced stays.
        ("NoOverlayRouteAdvertisementsNotAccepted", false, |w| {
            let why = "field spec.nodeSelector: wrong".to_owned();
            w.ras.insert("a".to_owned(), Err(why));
        }),
        ("NoOverlayTransportAccepted", true, |w| {
            advertised(w, "a", elsewhere);
            advertised(w, "b", |_| {});
        }),
        // An elder RA has a network of the same range in the VRF.
        ("NoOverlayRouteAdvertisementsLeavesOut", false, |w| {
            add_network(w, "red", 2, "10.61.0.0/16/24", "red");
            add_advertisement(w, "elder", 1, "red");
            advertised(w, "a", |ra| {
                ra.networks.push(NetworkSelector::DefaultNetwork)
            });
        }),
        ("RouteAdvertisementsNotEnabled", false, |w| {
            advertised(w, "a", |_| {});
            w.features.route_advertisements = false;
        }),
    ];
    for (reason, status, change) in cases {
        let mut world = with_blue(UNMANAGED);
        change(&mut world);
        assert_eq!(accepted(&world), (reason.to_owned(), status));
    }
}

#[test]
fn a_transport_that_needs_nothing_is_accepted_and_a_managed_one_needs_the_fabric() {
    for transport in [UserTransport::Unset, UserTransport::Geneve] {
        let wanted = ("GeneveTransportAccepted".to_owned(), true);
        assert_eq!(accepted(&with_blue(transport)), wanted);
    }
    let managed = UserTransport::NoOverlay {
        outbound_snat: true,
        routing: Routing::Managed,
    };
    let mut world = with_blue(managed);
    advertised(&mut world, "a", |_| {});
    let wanted = ("ManagedTopologyMissing".to_owned(), false);
    assert_eq!(accepted(&world), wanted);
}

#[test]
fn beside_ovn_kubernetes_it_is_told_of_what_annotations_ask_for_and_what_keeps_it_undone() {
    let mut world = with_blue(UNMANAGED);
    world.beside = true;
    advertised(&mut world, "a", |_| {});
    let said = |world: &World, advertised: Option<&Problem>| {
        let told = beside(world, &world.cudns["blue"], &plan_all(world), advertised)?;
        assert_eq!(told.kind, BESIDE);
        Some((told.reason, told.status))
    };
    let told = |reason: &str, status| Some((reason.to_owned(), status));
    assert_eq!(said(&world, None), None, "its annotation asks for nothing");
    let problem = Problem::new("x", crate::others::ADVERTISED, "y".to_owned());
    let blue = world.cudns.get_mut("blue").unwrap();
    blue.annotated = Some(Ok(UNMANAGED));
    assert_eq!(said(&world, None), told("NoOverlayTransportAccepted", true));
    let by_others = told("AdvertisedByOvnKubernetes", false);
    assert_eq!(said(&world, Some(&problem)), by_others);
    let blue = world.cudns.get_mut("blue").unwrap();
    blue.annotated = Some(Err("it is not JSON".to_owned()));
    for advertised in [None, Some(&problem)] {
        let told = told("NoOverlayAnnotationInvalid", false);
        assert_eq!(said(&world, advertised), told);
    }
}

#[test]
fn the_default_networks_transport_needs_an_accepted_advertisement_of_its_pods() {
    let default =
        |ra: &mut RouteAdvertisements| ra.networks = vec![NetworkSelector::DefaultNetwork];
    let state = |world: &World| default_network(world, &plan_all(world));
    let mut world = with_blue(UserTransport::Geneve);
    advertised(&mut world, "of-blue", |_| {});
    assert_eq!(state(&world), DefaultNetwork::NoRouteAdvertisements);
    advertised(&mut world, "podless", |ra| {
        ra.networks = vec![NetworkSelector::DefaultNetwork];
        (ra.pod_network, ra.egress_ip) = (false, true);
    });
    world
        .ras
        .insert("broken".to_owned(), Err("no spec".to_owned()));
    let unreadable = vec![("broken".to_owned(), "no spec".to_owned())];
    assert_eq!(state(&world), DefaultNetwork::Unreadable(unreadable));
    for name in ["b", "a"] {
        advertised(&mut world, name, elsewhere);
        default(world.ras.get_mut(name).unwrap().as_mut().unwrap());
    }
    let both = ["a", "b"].map(str::to_owned).to_vec();
    assert_eq!(state(&world), DefaultNetwork::NotAccepted(both));
    advertised(&mut world, "good", |_| {});
    default(world.ras.get_mut("good").unwrap().as_mut().unwrap());
    assert_eq!(state(&world), DefaultNetwork::Ready);
}
