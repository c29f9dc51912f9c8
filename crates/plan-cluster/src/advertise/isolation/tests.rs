//! What is kept out of whose VRF, and of whose it is not.

use model::intent::NetworkSelector;
use model::network::Routing;
use model::user_network::UserTransport;
use model::{LabelSelector, NetworkName};

use super::*;
use crate::advertise::plan_all;
use crate::generated;
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

fn of(world: &World) -> Isolation {
    let owned: Vec<Generated<'_>> = generated::all(world).filter(Generated::is_ours).collect();
    Isolation::of(world, owned.into_iter())
}

/// A router of a VRF that takes over from others.
fn mk_router(world: &World, vrf: &str, imports: &[&str]) -> Router {
    Router {
        vrf: vrf.to_owned(),
        imports: imports.iter().map(|vrf| (*vrf).to_owned()).collect(),
        ..Router::new(world.fabric.as_ref().unwrap().asn)
    }
}

/// A RouteAdvertisements of these networks into that VRF; what selected them before does no more.
fn advertise(world: &mut World, name: &str, target: TargetVrf, networks: &[&str]) {
    let mut ra = world.ras.values().next().unwrap().clone().unwrap();
    name.clone_into(&mut ra.name);
    ra.target_vrf = target;
    ra.networks = vec![NetworkSelector::ClusterUserDefinedNetworks(
        LabelSelector::label(name, "yes"),
    )];
    for network in networks {
        let cudn = world.cudns.get_mut(*network).unwrap();
        cudn.labels.insert(name.to_owned(), "yes".to_owned());
    }
    world.ras.insert(name.to_owned(), Ok(ra));
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
    let own = |vrf: &str, subnet: &str| {
        format!("ip prefix-list noverlay-loose-{vrf}-own seq 5 permit {subnet} le 32\n")
    };
    let lists = own("blue", "10.61.0.0/16")
        + "\
ip prefix-list noverlay-loose-default-pods seq 5 permit 10.61.0.0/16 le 32
ip prefix-list noverlay-loose-default-pods seq 10 permit 10.62.0.0/16 le 32
ip prefix-list noverlay-loose-default-pods seq 15 permit 10.128.0.0/16 le 32
" + &own("red", "10.62.0.0/16");
    let blue = "\
route-map noverlay-loose-blue permit 10
 match ip address prefix-list noverlay-loose-blue-own
exit
route-map noverlay-loose-blue deny 20
 match ip address prefix-list noverlay-loose-default-pods
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
    let red = blue.replace("blue", "red");
    assert_eq!(filters(&world), lists + blue + &red);
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
    let isolation = of(&world);
    let router = |vrf: &str| mk_router(&world, vrf, &[DEFAULT_VRF]);
    let red = isolation.text(DEFAULT_VRF, &[router("red")]);
    assert!(red.contains(
        "ipv6 prefix-list noverlay-loose-default-pods seq 5 permit fd00:61::/48 le 128\n"
    ));
    assert!(red.contains("deny 30\n match ipv6 address prefix-list noverlay-loose-default-pods\n"));
    assert!(!red.contains("10.63."), "{red}");
    // An overlay takes no routes of networks without one either.
    let green = isolation.text(DEFAULT_VRF, &[router("green")]);
    assert!(green.contains("noverlay-loose-default-pods seq 5 permit 10.62.0.0/16 le 32\n"));
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
        let of = of(world);
        of.by_target[DEFAULT_VRF]
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(blue(&world), ["blue", "default", "red"]);

    let mut lite = world.ras.values().next().unwrap().clone().unwrap();
    lite.name = "lite".to_owned();
    lite.target_vrf = TargetVrf::Auto;
    lite.networks = vec![NetworkSelector::ClusterUserDefinedNetworks(
        LabelSelector::label("use", "lite"),
    )];
    world.ras.insert("lite".to_owned(), Ok(lite));
    // As long as objects announce it there it stays kept out.
    assert_eq!(blue(&world), ["blue", "default", "red"]);
    settle(&mut world);
    assert_eq!(blue(&world), ["blue", "default"]);
    assert!(of(&world).by_target["red"].contains_key("red"));
}

#[test]
fn one_filter_keeps_out_what_comes_from_any_of_the_vrfs_that_are_taken_over() {
    let mut world = mk(
        true,
        &[
            ("blue", "10.61.0.0/16/24"),
            ("red", "10.62.0.0/16/24"),
            ("green", "10.63.0.0/16/24"),
        ],
    );
    advertise(
        &mut world,
        "into-red",
        TargetVrf::Named("red".to_owned()),
        &["blue", "red"],
    );
    let isolation = of(&world);
    let blue = mk_router(&world, "blue", &[DEFAULT_VRF, "red"]);
    let text = isolation.text("red", std::slice::from_ref(&blue));
    assert_eq!(
        text,
        isolation.text(DEFAULT_VRF, &[blue]),
        "the same in every object"
    );
    for line in [
        "route-map noverlay-loose-blue deny 20\n match ip address prefix-list noverlay-loose-default-pods\n",
        "route-map noverlay-loose-blue deny 30\n match ip address prefix-list noverlay-loose-red-pods\n",
        "prefix-list noverlay-loose-red-pods seq 10 permit 10.62.0.0/16 le 32\n",
        "route-map noverlay-loose-blue permit 40\nexit\n",
    ] {
        assert!(text.contains(line), "{line}not in\n{text}");
    }
    // FRR shows no name for the default VRF: text with one would be loaded again for ever.
    let default = mk_router(&world, "", &["blue"]);
    advertise(
        &mut world,
        "into-blue",
        TargetVrf::Named("blue".to_owned()),
        &["blue"],
    );
    if let Some(Ok(ra)) = world.ras.get_mut("into-blue") {
        ra.networks.push(NetworkSelector::DefaultNetwork);
    }
    let text = of(&world).text("blue", &[default]);
    assert!(
        text.contains("\nrouter bgp 64512\n address-family"),
        "{text}"
    );
    assert!(!text.contains("vrf default"), "{text}");
}

#[test]
fn what_is_announced_stays_kept_out_though_its_routeadvertisements_says_something_else_now() {
    let mut world = mk(
        true,
        &[("blue", "10.61.0.0/16/24"), ("red", "10.62.0.0/16/24")],
    );
    let before = filters(&world);
    let ra = crate::fabric::advertisement_name(&NetworkName::from("cluster_udn_red"));
    world.ras.get_mut(&ra).unwrap().as_mut().unwrap().target_vrf =
        TargetVrf::Named("defualt".to_owned());
    let blue = mk_router(&world, "blue", &[DEFAULT_VRF]);
    assert!(of(&world).by_target[DEFAULT_VRF].contains_key("red"));
    let text = of(&world).text(DEFAULT_VRF, &[blue]);
    assert!(
        before.contains(&text[text.find("route-map").unwrap()..]),
        "{text}"
    );
    assert!(text.contains("10.62.0.0/16"), "{text}");
}

#[test]
fn each_network_more_is_one_line_and_one_filter_more() {
    let lines = |count: u8| {
        let ranges: Vec<String> = (0..count).map(|n| format!("10.{n}.0.0/16/24")).collect();
        let names: Vec<String> = (0..count).map(|n| format!("net{n}")).collect();
        let networks: Vec<(&str, &str)> = names
            .iter()
            .map(String::as_str)
            .zip(ranges.iter().map(String::as_str))
            .collect();
        filters(&mk(true, &networks)).lines().count()
    };
    let (two, three, twelve) = (lines(2), lines(3), lines(12));
    assert_eq!(twelve - two, 10 * (three - two));
}
