//! The template and its RouteAdvertisements.

use std::sync::Arc;

use super::*;
use crate::samples::{mk_node, mk_world};

#[test]
fn the_template_lists_every_fit_node_and_is_loaded_by_none() {
    let world = mk_world();
    let base = plan(&world).base.unwrap();
    assert!(is_template(&base));
    for node in world.nodes.values() {
        assert!(!base.node_selector.matches(&node.labels));
    }
    let peers: Vec<&str> = base.routers[0]
        .neighbors
        .iter()
        .map(|n| n.peer.as_str())
        .collect();
    assert_eq!(peers, ["172.30.0.1", "172.30.0.2", "172.30.0.3"]);
    let n = &base.routers[0].neighbors[0];
    assert_eq!(
        (
            n.session.hold_time,
            n.session.keepalive_time,
            n.session.connect_time
        ),
        (Some(9), Some(3), Some(2))
    );
    assert_eq!(n.receive.prefixes[0].prefix.to_string(), "10.128.0.0/16");
    assert_eq!(
        (n.receive.prefixes[0].ge, n.receive.prefixes[0].le),
        (Some(24), Some(24))
    );
}

#[test]
fn compat_means_bare_sessions() {
    let mut world = mk_world();
    world.fabric.as_mut().unwrap().resilient = false;
    let base = plan(&world).base.unwrap();
    assert_eq!(base.bfd_profiles, []);
    for n in &base.routers[0].neighbors {
        assert_eq!(n.session, Session::new(n.session.remote_as));
    }
}

#[test]
fn resilient_sessions_have_bfd_and_graceful_restart_and_every_object_defines_the_profile() {
    let whole = complete(mk_world());
    let made = crate::advertise::plan(&whole, &base_name()).desired;
    let base = plan(&whole).base.unwrap();
    let peers = made.values().filter(|o| !members::addresses(o).is_empty());
    let peers: Vec<&Arc<FrrConfiguration>> = peers.collect();
    assert_eq!(peers.len(), 3);
    for object in peers.into_iter().chain([&base]) {
        let [profile] = object.bfd_profiles.as_slice() else {
            panic!("{}: {:?}", object.key, object.bfd_profiles);
        };
        assert_eq!(profile.name, BFD_PROFILE);
        assert_eq!(
            (
                profile.receive_interval,
                profile.transmit_interval,
                profile.detect_multiplier
            ),
            (Some(250), Some(250), None)
        );
        assert!(!object.routers[0].neighbors.is_empty());
        for n in &object.routers[0].neighbors {
            assert_eq!(n.session.bfd_profile.as_deref(), Some(BFD_PROFILE));
            assert!(n.session.graceful_restart);
            let timers = [
                n.session.hold_time,
                n.session.keepalive_time,
                n.session.connect_time,
            ];
            assert_eq!(timers, [Some(9), Some(3), Some(2)]);
        }
    }
}

#[test]
fn a_node_without_address_or_with_anothers_is_left_out_by_name() {
    let mut world = mk_world();
    let mut none = mk_node("n4", "172.30.0.4", Some(9), None);
    none.internal_ips.clear();
    world.nodes.insert(none.name.clone(), none);
    let twin = mk_node("a0", "172.30.0.2", Some(8), None);
    world.nodes.insert(twin.name.clone(), twin);
    let plan = plan(&world);
    assert_eq!(plan.base.unwrap().routers[0].neighbors.len(), 3);
    let texts: Vec<&str> = plan.problems.iter().map(|p| p.message.as_str()).collect();
    assert_eq!(texts.len(), 2);
    assert!(
        texts
            .iter()
            .any(|t| t.contains("node n4") && t.contains("no InternalIP")),
        "{texts:?}"
    );
    assert!(
        texts
            .iter()
            .any(|t| t.contains("node a0") && t.contains("172.30.0.2") && t.contains("n2")),
        "{texts:?}"
    );
}

#[test]
fn without_managed_routing_there_is_no_fabric() {
    let mut world = mk_world();
    world.fabric = None;
    assert_eq!(plan(&world), Plan::default());
}

#[test]
fn the_completed_world_holds_the_fabrics_objects_even_when_they_were_deleted_or_changed() {
    let whole = complete(mk_world());
    let name = advertisement_name(&NetworkName::default_network());
    assert!(whole.ras.contains_key(&name) && whole.frr.len() == 1);
    let mut changed = whole.clone();
    if let Some(Ok(base)) = changed.frr.values_mut().next() {
        Arc::make_mut(base).routers.clear();
    }
    changed.ras.clear();
    assert_eq!(complete(changed), whole);
    let objects = crate::advertise::plan(&whole, &base_name()).desired;
    assert_eq!(objects.len(), 6);
}
