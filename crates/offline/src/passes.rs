//! One pass after the other, until nothing changes.
//! In: objects, settings. Out: plans, and the objects that they lead to.
//! Invariant: what is written here has the fields that the manager writes.
//! Not here: decisions (`plan-cluster`), refusals of an API server.

use std::collections::BTreeMap;

use api::frr_configuration::FRRConfiguration;
use api::route_advertisements::RouteAdvertisements;
use model::intent::Condition;
use model::node::annotation::{NODE_ID, NODE_SUBNETS};
use model::user_network::Attachment;
use model::{NetworkName, NodeName, ObjectKey, intent};
use plan_cluster::attachments::{self, FINALIZER, NAME_LABEL, Wanted};
use plan_cluster::attachments::{Configured, DefaultWanted};
use plan_cluster::fabric::roles::ROLE_LABEL;
use plan_cluster::transport::DefaultNetwork;
use plan_cluster::{
    FABRIC_LABEL, MANAGED_BY, World, advertise, fabric, generated, networks, transport,
};
use serde_json::{Value, json};
use settings::{InForce, Settings};

use crate::Objects;
use crate::kind::{CUDN, FRR, NAD, NODE, RA};
use crate::worlds::world;

/// Most passes: each writes what the one before led to, and few things lead to more than three.
const PASSES: usize = 20;

/// Everything that is planned of one world.
#[derive(Debug)]
pub struct Plans {
    /// Node ids and node subnets.
    pub networks: networks::Plan,
    /// The managed fabric.
    pub fabric: fabric::Plan,
    /// Per-node FRRConfigurations, by RouteAdvertisements.
    pub advertisements: BTreeMap<String, advertise::Plan>,
    /// NetworkAttachmentDefinitions.
    pub attachments: attachments::Plan,
    /// `annotation` of RouteAdvertisements on the default network's object; `None` where there need be none.
    pub default_attachment: Option<DefaultWanted>,
    /// `NetworkCreated` and `TransportAccepted`, by ClusterUserDefinedNetwork.
    pub conditions: BTreeMap<String, Vec<Condition>>,
    /// The default network's transport.
    pub state: DefaultNetwork,
}

impl Plans {
    /// The plans of a world as the API server has it.
    #[must_use]
    pub fn of(world: &World, settings: &Settings) -> Self {
        Self::refusing(world, settings, Configured::default())
    }

    /// The same, where something else is asked for than what is in force.
    fn refusing(world: &World, settings: &Settings, mut configured: Configured) -> Self {
        configured.in_force = settings.network_in_force();
        let complete = fabric::complete(world.clone());
        let advertisements = advertise::plan_all(&complete);
        let advertised = attachments::advertised(&complete, &advertisements);
        let attachments = attachments::plan(&complete, &advertised);
        let conditions = complete.cudns.iter().map(|(name, cudn)| {
            let created = attachments.created.get(name).cloned();
            let accepted = transport::condition(&complete, cudn, &advertisements);
            (name.clone(), created.into_iter().chain(accepted).collect())
        });
        Self {
            networks: networks::plan(world),
            fabric: fabric::plan(world),
            state: transport::default_network(&complete, &advertisements),
            default_attachment: attachments::of_default_network(
                &complete,
                &settings.network.nad,
                &advertised,
                &configured,
            ),
            conditions: conditions.collect(),
            attachments,
            advertisements,
        }
    }
}

/// Plans and writes until nothing is left to write.
///
/// # Errors
/// Where there is no end of writing, which is a defect of ours.
pub fn settle(settings: &Settings, objects: &mut Objects) -> Result<Plans, String> {
    settled(settings, &Configured::default(), objects)
}

/// The same, where something else may be asked for than what is in force.
///
/// # Errors
/// As [`settle`].
pub fn settle_refusing(in_force: &InForce, objects: &mut Objects) -> Result<Plans, String> {
    let configured = Configured {
        in_force: String::new(),
        refused: in_force.refused.clone(),
        network_stays: in_force.network_stays,
    };
    settled(&in_force.settings, &configured, objects)
}

fn settled(
    settings: &Settings,
    configured: &Configured,
    objects: &mut Objects,
) -> Result<Plans, String> {
    for _ in 0..PASSES {
        let plans = Plans::refusing(&world(settings, objects), settings, configured.clone());
        let before = objects.clone();
        write(&plans, settings, objects)?;
        if *objects == before {
            return Ok(plans);
        }
    }
    Err(format!(
        "after {PASSES} passes there is still something to write"
    ))
}

/// Writes what is planned.
///
/// # Errors
/// Where an object has no kind or name, which is a defect of ours.
pub fn write(plans: &Plans, settings: &Settings, objects: &mut Objects) -> Result<(), String> {
    nodes(plans, objects);
    of_fabric(plans, objects)?;
    for plan in plans.advertisements.values() {
        for object in plan.desired.values() {
            put_frr(object, objects)?;
        }
        for key in &plan.surplus {
            objects.remove(FRR, &key.to_string());
        }
    }
    attached(plans, settings, objects)
}

fn nodes(plans: &Plans, objects: &mut Objects) {
    let fabric = plans.advertisements.get(&fabric::base_name());
    let names: Vec<String> = objects
        .nodes()
        .into_iter()
        .map(|n| n.name.to_string())
        .collect();
    for name in names {
        let role = fabric.and_then(|plan| plan.roles.get(&NodeName::from(name.as_str())));
        let Some(node) = objects.get_mut(NODE, &name) else {
            continue;
        };
        match role {
            Some(role) => set(
                node,
                &["metadata", "labels", ROLE_LABEL],
                role.word().into(),
            ),
            None => {
                let labels = node.pointer_mut("/metadata/labels");
                if let Some(labels) = labels.and_then(Value::as_object_mut) {
                    labels.remove(ROLE_LABEL);
                }
            }
        }
    }
    for (name, allocation) in &plans.networks.allocations {
        let Some(node) = objects.get_mut(NODE, name.as_str()) else {
            continue;
        };
        if let Some(id) = allocation.node_id {
            set(
                node,
                &["metadata", "annotations", NODE_ID],
                id.to_string().into(),
            );
        }
        if let Some(subnets) = &allocation.subnets {
            let texts = |list: &Vec<model::Prefix>| -> Vec<String> {
                list.iter().map(ToString::to_string).collect()
            };
            let map: BTreeMap<&str, Vec<String>> = subnets
                .iter()
                .map(|(network, list)| (network.as_str(), texts(list)))
                .collect();
            set(
                node,
                &["metadata", "annotations", NODE_SUBNETS],
                json!(map).to_string().into(),
            );
        }
    }
}

/// What stands there as it is wanted is not written.
fn put_frr(object: &model::frr::FrrConfiguration, objects: &mut Objects) -> Result<(), String> {
    let existing = objects.get(FRR, &object.key.to_string());
    let existing = existing.and_then(|existing| {
        let typed = serde_json::from_value::<FRRConfiguration>(existing.clone()).ok()?;
        let source = api::decode_source(object.key.clone(), Ok(typed));
        source.object.ok()
    });
    if existing.is_some_and(|existing| generated::is_as_wanted(&existing, object)) {
        return Ok(());
    }
    let object = serde_json::to_value(FRRConfiguration::from(object));
    objects.add(object.map_err(|error| error.to_string())?)
}

fn of_fabric(plans: &Plans, objects: &mut Objects) -> Result<(), String> {
    match &plans.fabric.base {
        Some(base) => put_frr(base, objects)?,
        None => remove_ours(objects, FRR, |name| name == fabric::base_name()),
    }
    let wanted = &plans.fabric.advertisements;
    for ra in wanted.values() {
        if !objects
            .get(RA, &ra.name)
            .is_some_and(|o| is_advertisement(o, ra))
        {
            objects.add(advertisement(ra))?;
        }
    }
    remove_ours(objects, RA, |name| {
        name.starts_with("ovnk-managed-") && !wanted.contains_key(name)
    });
    for name in &plans.fabric.labelled {
        if let Some(cudn) = objects.get_mut(CUDN, name) {
            set(
                cudn,
                &["metadata", "labels", NAME_LABEL],
                name.as_str().into(),
            );
        }
    }
    Ok(())
}

/// Whether an object is that RouteAdvertisements of the fabric already.
fn is_advertisement(existing: &Value, wanted: &intent::RouteAdvertisements) -> bool {
    let typed = serde_json::from_value::<RouteAdvertisements>(existing.clone()).ok();
    let Some(typed) = typed else {
        return false;
    };
    let labels = typed.metadata.labels.clone().unwrap_or_default();
    let spec = intent::RouteAdvertisements::try_from(&typed);
    fabric::labels()
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
        && spec.is_ok_and(|mut spec| {
            (spec.generation, spec.created) = (wanted.generation, wanted.created);
            spec == *wanted
        })
}

/// A RouteAdvertisements of the fabric as the manager writes it.
#[must_use]
pub(crate) fn advertisement(ra: &intent::RouteAdvertisements) -> Value {
    json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": RA,
        "metadata": {"name": ra.name, "labels": fabric::labels()},
        "spec": api::route_advertisements::spec_of(ra),
    })
}

/// Deletes objects that bear our label and that of the fabric.
fn remove_ours(objects: &mut Objects, kind: &str, is_surplus: impl Fn(&str) -> bool) {
    let labelled = |object: &Value, (key, value): (&str, &str)| {
        let labels = object
            .pointer("/metadata/labels")
            .and_then(Value::as_object);
        labels.and_then(|l| l.get(key)).and_then(Value::as_str) == Some(value)
    };
    let found = objects
        .all(kind)
        .filter(|o| labelled(o, MANAGED_BY) && labelled(o, FABRIC_LABEL));
    let keys = found.filter_map(crate::objects::key_of);
    let name = |key: &String| key.rsplit('/').next().is_some_and(&is_surplus);
    let keys: Vec<String> = keys.filter(name).collect();
    for key in keys {
        objects.remove(kind, &key);
    }
}

fn attached(plans: &Plans, settings: &Settings, objects: &mut Objects) -> Result<(), String> {
    for (key, wanted) in &plans.attachments.desired {
        put_attachment(key, wanted, objects)?;
    }
    for key in plans.attachments.surplus.keys() {
        objects.remove(NAD, &key.to_string());
    }
    for (name, wanted) in &plans.attachments.finalizers {
        let Some(cudn) = objects.get_mut(CUDN, name) else {
            continue;
        };
        let gone = !wanted && cudn.pointer("/metadata/deletionTimestamp").is_some();
        if gone {
            objects.remove(CUDN, name);
        } else if *wanted {
            let list = cudn
                .pointer("/metadata/finalizers")
                .and_then(Value::as_array);
            let mut list = list.cloned().unwrap_or_default();
            if !list.iter().any(|entry| entry == FINALIZER) {
                list.push(FINALIZER.into());
            }
            set(cudn, &["metadata", "finalizers"], list.into());
        }
    }
    default_attached(plans, settings, objects)
}

fn default_attached(
    plans: &Plans,
    settings: &Settings,
    objects: &mut Objects,
) -> Result<(), String> {
    let Some(wanted) = &plans.default_attachment else {
        return Ok(());
    };
    let key = &settings.network.nad;
    let existing = objects.get(NAD, &key.to_string());
    let existing = existing.map(api::read_attachment);
    let config = api::nad::default_config();
    if existing.is_some_and(|e| wanted.describes(&e) && same_json(&e.config, &config)) {
        return Ok(());
    }
    let metadata = json!({
        "namespace": key.namespace, "name": key.name,
        "labels": {MANAGED_BY.0: MANAGED_BY.1}, "annotations": wanted.0,
    });
    objects.add(json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": NAD, "metadata": metadata,
        "spec": {"config": config},
    }))
}

/// Whether two texts say the same in JSON.
fn same_json(a: &str, b: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    a == b || value(a).is_some_and(|a| value(b) == Some(a))
}

fn put_attachment(key: &ObjectKey, wanted: &Wanted, objects: &mut Objects) -> Result<(), String> {
    let (network, spec): (&NetworkName, _) = (&wanted.network.0, &wanted.network.1);
    let config = api::nad::config(network, spec, key);
    let existing = objects.get(NAD, &key.to_string());
    let attachment = existing.map(api::read_attachment);
    let is_right = |e: &Attachment| wanted.describes(e) && same_json(&e.config, &config);
    if attachment.as_ref().is_some_and(is_right) {
        return Ok(());
    }
    let uid = existing.and_then(|o| o.pointer("/metadata/uid")).cloned();
    objects.add(json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": NAD,
        "metadata": {
            "namespace": key.namespace, "name": key.name,
            "uid": uid.unwrap_or_else(|| format!("nad-{key}").into()),
            "labels": wanted.labels, "annotations": wanted.annotations, "finalizers": [FINALIZER],
            "ownerReferences": [api::nad::owner(&wanted.owner.0, &wanted.owner.1)],
        },
        "spec": {"config": config},
    }))
}

/// Sets a value deep in an object; what is in its way is replaced.
fn set(object: &mut Value, path: &[&str], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        *object = value;
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    if let Some(map) = object.as_object_mut() {
        set(map.entry(*first).or_insert(Value::Null), rest, value);
    }
}
