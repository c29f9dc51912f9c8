//! What is kept out of whose VRF, and of whose it is not.

use model::network::Routing;
use model::user_network::UserTransport;
use model::{LabelSelector, NetworkName};

use super::*;
use crate::advertise::plan_all;
use crate::samples::{mk_cudn, mk_managed, put_network, settle};

/// Managed networks of these names and ranges beside the default network, whose ids are 1, 2 and so on.
fn mk(loose: bool, networks: &[(&str, &str)]) -> World {
    let mut world = mk_managed();
    world.features.loose_isolation = loose;
    for (n, (name, range)) in (1..).zip(networks) {
        let mut cudn = mk_cudn(name, n);
        cudn.network.as_mut().unwrap().subnets = vec![range.parse().unwrap()];
        put_network(&mut world, cudn, n);
    }
    settle(&mut world);
    world
}

/// The text of node n1's own object, from the first filter on.
fn filters(world: &World) -> String {
    let plans = plan_all(world);
    let objects = plans.values().flat_map(|plan| plan.desired.values());
    let own = objects.filter(|o| {
        let n1 = LabelSelector::label("kubernetes.io/hostname", "n1");
        o.node_selector == n1
    });
    let texts: Vec<String> = own
        .filter_map(|o| Some(o.raw.as_ref()?.config.clone()))
        .collect();
    let [text] = texts.as_slice() else {
        panic!("{texts:?}")
    };
    text.find("ip prefix-list noverlay-loose")
        .map(|at| text[at..].to_owned())
        .unwrap_or_default()
}

#[test]
fn in_loose_mode_each_vrf_keeps_the_others_pod_subnets_out_and_lets_its_own_in() {
    let world = mk(
        true,
        &[("blue", "10.61.0.0/16/24"), ("red", "10.62.0.0/16/24")],
    );
    let blue = "\
ip prefix-list noverlay-loose-blue-own seq 5 permit 10.61.0.0/16 le 32
ip prefix-list noverlay-loose-blue-others seq 5 permit 10.62.0.0/16 le 32
ip prefix-list noverlay-loose-blue-others seq 10 permit 10.128.0.0/16 le 32
route-map noverlay-loose-blue permit 10
 match ip address prefix-list noverlay-loose-blue-own
exit
route-map noverlay-loose-blue deny 20
 match ip address prefix-list noverlay-loose-blue-others
exit
route-map noverlay-loose-blue permit 30
exit
router bgp 64512 vrf blue
 address-family ipv4 unicast
  import vrf route-map noverlay-loose-blue
 exit-address-family
 address-family ipv6 unicast
  import vrf route-map noverlay-loose-blue
 exit-address-family
exit
";
    let red = blue
        .replace("blue", "red")
        .replace("10.62.", "10.x.")
        .replace("10.61.", "10.62.")
        .replace("10.x.", "10.61.");
    assert_eq!(filters(&world), format!("{blue}{red}"));
}

#[test]
fn in_strict_mode_there_is_no_filter() {
    let world = mk(
        false,
        &[("blue", "10.61.0.0/16/24"), ("red", "10.62.0.0/16/24")],
    );
    assert_eq!(filters(&world), "");
}

#[test]
fn an_overlay_beside_networks_without_one_is_nobodys_threat_and_both_families_are_kept_out() {
    let mut world = mk(
        true,
        &[
            ("blue", "fd00:61::/48/64"),
            ("red", "10.62.0.0/16/24"),
            ("green", "10.63.0.0/16/24"),
        ],
    );
    let green = world.cudns.get_mut("green").unwrap();
    green.network.as_mut().unwrap().transport = UserTransport::Geneve;
    let green = world
        .networks
        .get_mut(&NetworkName::from("cluster_udn_green"));
    green.unwrap().transport = model::network::Transport::Geneve;
    let isolation = Isolation::of(&world);
    let router = |vrf: &str| Router {
        asn: world.fabric.as_ref().unwrap().asn,
        id: None,
        vrf: vrf.to_owned(),
        neighbors: Vec::new(),
        prefixes: Vec::new(),
        imports: vec![DEFAULT_VRF.to_owned()],
        evpn: None,
    };
    let red = isolation.text(DEFAULT_VRF, &[router("red")]);
    assert!(
        red.contains(
            "ipv6 prefix-list noverlay-loose-red-others seq 5 permit fd00:61::/48 le 128\n"
        )
    );
    assert!(red.contains("deny 30\n match ipv6 address prefix-list noverlay-loose-red-others\n"));
    assert!(!red.contains("10.63."), "{red}");
    // An overlay takes no routes of networks without one either.
    let green = isolation.text(DEFAULT_VRF, &[router("green")]);
    assert!(green.contains("noverlay-loose-green-others seq 5 permit 10.62.0.0/16 le 32\n"));
    // What announces is no router that takes over.
    let mut target = router("");
    target.imports = vec!["red".to_owned()];
    assert_eq!(isolation.text(DEFAULT_VRF, &[target]), "");
    assert_eq!(isolation.text("red", &[router("blue")]), "");
}

#[test]
fn what_is_advertised_elsewhere_only_is_not_kept_out_and_what_nobody_advertises_yet_is() {
    let mut world = mk(
        true,
        &[("blue", "10.61.0.0/16/24"), ("red", "10.62.0.0/16/24")],
    );
    let red = world.cudns.get_mut("red").unwrap();
    red.labels = LabelSelector::label("use", "lite").match_labels;
    let UserTransport::NoOverlay { routing, .. } = &mut red.network.as_mut().unwrap().transport
    else {
        panic!("a network without overlay");
    };
    *routing = Routing::Unmanaged;
    // Nobody selects it any more.
    let names: Vec<String> = world.ras.keys().cloned().collect();
    let of_red = |world: &World, name: &str| {
        let ra = world.ras[name].as_ref().unwrap();
        let red = &world.cudns["red"];
        ra.selects(Some(&red.labels))
    };
    assert!(!names.iter().any(|name| of_red(&world, name)));
    let blue = |world: &World| {
        let of = Isolation::of(world);
        of.by_target[DEFAULT_VRF]
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(blue(&world), ["blue", "default", "red"]);

    let mut lite = world.ras.values().next().unwrap().clone().unwrap();
    lite.name = "lite".to_owned();
    lite.target_vrf = TargetVrf::Auto;
    lite.networks = vec![model::intent::NetworkSelector::ClusterUserDefinedNetworks(
        LabelSelector::label("use", "lite"),
    )];
    world.ras.insert("lite".to_owned(), Ok(lite));
    assert_eq!(blue(&world), ["blue", "default"]);
    assert!(Isolation::of(&world).by_target["red"].contains_key("red"));
}
