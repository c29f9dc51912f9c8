//! The planner's world from objects and settings.
//! In: objects. Out: a world. Invariant: an object that cannot be decoded is in the world as a problem, never absent.
//! Not here: what is planned.

use api::route_advertisements::RouteAdvertisements;
use model::gateway::GatewayMode;
use model::{ObjectKey, Prefix, intent};
use plan_cluster::world::{AutoSizes, FabricSettings, FabricTopology, Features};
use plan_cluster::{World, user_networks};
use serde_json::Value;
use settings::{OvnTopology, Profile, Settings, Topology};

use crate::kind::{CUDN, EGRESS_IP, FRR, NAD, NAMESPACE, RA};
use crate::objects::{Objects, key_of};

/// What the settings alone say of the world.
#[must_use]
pub fn empty_world(settings: &Settings) -> World {
    let network = settings.default_network();
    let managed = &settings.managed;
    World {
        networks: [(network.name.clone(), network)].into(),
        fabric: managed.topology.map(|topology| FabricSettings {
            asn: managed.asn,
            namespace: managed.frr_namespace.clone(),
            topology: match topology {
                Topology::FullMesh => FabricTopology::FullMesh,
                Topology::RouteReflector => FabricTopology::RouteReflector,
                Topology::Auto => FabricTopology::Auto(AutoSizes {
                    reflectors_above: managed.auto.reflectors_above,
                    full_mesh_below: managed.auto.full_mesh_below,
                }),
            },
            resilient: managed.profile == Profile::Resilient,
            password_secret: managed.password_secret.clone(),
        }),
        beside: settings.ovn.topology == OvnTopology::Adopt,
        frr_namespace: managed.frr_namespace.clone(),
        reserved: reserved(settings),
        features: Features {
            route_advertisements: settings.features.route_advertisements,
            egress_ip: settings.features.egress_ip,
            shared_gateway: settings.gateway.mode == GatewayMode::Shared,
            loose_isolation: settings.features.loose_isolation,
        },
        ..World::default()
    }
}

/// Ranges of the settings that no network of users may overlap.
fn reserved(settings: &Settings) -> Vec<(String, Prefix)> {
    let gateway = &settings.gateway;
    let of = |what: &str, list: &[Prefix]| -> Vec<(String, Prefix)> {
        list.iter()
            .map(|prefix| (what.to_owned(), *prefix))
            .collect()
    };
    [
        of(
            "the join subnet of the default network ([gateway])",
            &gateway.join_subnets,
        ),
        of(
            "the masquerade subnet ([gateway])",
            &gateway.masquerade_subnets,
        ),
        of(
            "a range of Services ([kubernetes] service-cidrs)",
            &settings.service_cidrs,
        ),
    ]
    .concat()
}

/// The world of these objects, as the manager's caches make it.
#[must_use]
pub fn world(settings: &Settings, objects: &Objects) -> World {
    let mut world = empty_world(settings);
    for node in objects.nodes() {
        world.nodes.insert(node.name.clone(), node);
    }
    for object in objects.all(RA) {
        let ra = typed::<RouteAdvertisements>(object)
            .and_then(|typed| intent::RouteAdvertisements::try_from(&typed));
        world.ras.insert(name_of(object), ra);
    }
    for object in objects.all(FRR) {
        frr(&mut world, object);
    }
    for object in objects.all(CUDN) {
        let mut cudn = api::read_cudn(object);
        // Only a server gives one, and owners are told apart by it.
        if cudn.uid.is_empty() {
            cudn.uid = format!("uid-of-{}", cudn.name);
        }
        if world.beside {
            cudn = cudn.beside();
        }
        world.cudns.insert(name_of(object), cudn);
    }
    for object in objects.all(NAMESPACE) {
        if let Ok(namespace) = typed(object).map(|typed| api::decode_namespace(&typed)) {
            world.namespaces.insert(name_of(object), namespace);
        }
    }
    for object in objects.all(EGRESS_IP) {
        let egress_ip = api::read_egress_ip(object);
        world.egress_ips.insert(name_of(object), egress_ip);
    }
    for object in objects.all(NAD) {
        let attachment = api::read_attachment(object);
        world.attachments.insert(object_key(object), attachment);
    }
    user_networks::keep_led(&mut world);
    let networks = user_networks::networks(&world);
    world.networks.extend(networks);
    world
}

fn frr(world: &mut World, object: &Value) {
    let key = object_key(object);
    let source = api::decode_source(key.clone(), api::read_source(object));
    if source.object.is_err()
        && let Ok(object) = serde_json::from_value(object.clone())
    {
        world.unreadable.insert(key.clone(), api::remains(&object));
    }
    world.frr.insert(key, source.object);
}

fn typed<K: serde::de::DeserializeOwned>(object: &Value) -> Result<K, String> {
    let typed = serde_json::from_value(object.clone());
    typed.map_err(|error| format!("the object cannot be read: {error}"))
}

fn name_of(object: &Value) -> String {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

fn object_key(object: &Value) -> ObjectKey {
    let key = key_of(object).unwrap_or_default();
    match key.split_once('/') {
        Some((namespace, name)) => ObjectKey::new(namespace, name),
        None => ObjectKey::new("", key),
    }
}
