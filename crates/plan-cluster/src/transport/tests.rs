//! Which event follows which change.

use super::*;
use crate::samples::{default_of, mk_managed, mk_world};
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
        default_network(&world, &crate::advertise::plan_all(&world)),
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
