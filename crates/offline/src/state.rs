//! Everything that is there in the end, in one value: for people and for comparison.
//! In: plans and objects. Out: JSON with `frrconfigurations` (generated ones, by node, source and RouteAdvertisements),
//! `nads`, `conditions`, `nodes` (their subnets), `managed` (the fabric's template and RouteAdvertisements). Invariant: one order, whatever order objects came in.
//! Not here: events, names of generated objects.

use model::intent::Condition;
use plan_cluster::{FABRIC_LABEL, GENERATED_PREFIX, RA_KEY, advertise};
use serde_json::{Map, Value, json};

use crate::kind::{CUDN, FRR, NAD, NODE, RA};
use crate::{Objects, Plans};

/// The state.
#[must_use]
pub fn state(plans: &Plans, objects: &Objects) -> Value {
    let is_generated = |o: &&Value| {
        let name = text(o, "/metadata/name");
        name.starts_with(GENERATED_PREFIX) && !identity(o).is_empty()
    };
    let mut generated: Vec<&Value> = objects.all(FRR).filter(is_generated).collect();
    generated.sort_by_key(|object| {
        let identity = identity(object);
        let parts: Vec<&str> = identity.rsplit('/').collect();
        parts.join("/")
    });
    let of_ras = plans.advertisements.iter();
    let of_ras = of_ras.map(|(name, plan)| (RA, name, &plan.conditions));
    let of_cudns = plans
        .conditions
        .iter()
        .map(|(name, list)| (CUDN, name, list));
    let there = of_ras
        .chain(of_cudns)
        .filter(|(kind, name, _)| objects.get(kind, name).is_some());
    let conditions = there.map(|(kind, name, list)| {
        let line = advertise::status_line(list);
        let list: Vec<Value> = list.iter().map(condition).collect();
        if kind == RA {
            json!({"kind": kind, "name": name, "status": line, "conditions": list})
        } else {
            json!({"kind": kind, "name": name, "conditions": list})
        }
    });
    let subnets = objects.all(NODE).map(|node| {
        let text = node.pointer("/metadata/annotations/k8s.ovn.org~1node-subnets");
        let text = text.and_then(Value::as_str).unwrap_or_default();
        let subnets = serde_json::from_str(text).unwrap_or(Value::Null);
        (self::text(node, "/metadata/name"), subnets)
    });
    let of_fabric = [FRR, RA].into_iter().flat_map(|kind| objects.all(kind));
    let of_fabric = of_fabric.filter(|object| {
        let (key, value) = FABRIC_LABEL;
        let labels = object.pointer("/metadata/labels");
        let label = labels.and_then(|all| all.get(key)?.as_str());
        label == Some(value) && !is_generated(object)
    });
    json!({
        "frrconfigurations": generated.into_iter().map(configuration).collect::<Vec<_>>(),
        "nads": objects.all(NAD).map(attachment).collect::<Vec<_>>(),
        "conditions": conditions.collect::<Vec<_>>(),
        "nodes": subnets.collect::<Map<String, Value>>(),
        "managed": of_fabric.map(managed).collect::<Vec<_>>(),
    })
}

fn text(object: &Value, path: &str) -> String {
    let text = object.pointer(path).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// RouteAdvertisements, source and node of a generated object.
fn identity(object: &Value) -> String {
    let annotations = object.pointer("/metadata/annotations");
    let identity = annotations
        .and_then(|a| a.get(RA_KEY))
        .and_then(Value::as_str);
    identity.unwrap_or_default().to_owned()
}

/// An object of the managed fabric that no node loads itself.
fn managed(object: &Value) -> Value {
    let metadata = |key: &str| object.pointer(&format!("/metadata/{key}"));
    json!({
        "kind": object.get("kind"), "name": metadata("name"), "namespace": metadata("namespace"),
        "labels": metadata("labels"), "spec": object.get("spec"),
    })
}

fn condition(condition: &Condition) -> Value {
    json!({
        "type": condition.kind, "status": condition.word(),
        "reason": condition.reason, "message": condition.message,
    })
}

fn configuration(object: &Value) -> Value {
    let mut spec = object.get("spec").cloned().unwrap_or_default();
    let selector = spec
        .as_object_mut()
        .and_then(|spec| spec.remove("nodeSelector"));
    let metadata = |key: &str| object.pointer(&format!("/metadata/{key}"));
    json!({
        "namespace": metadata("namespace"), "labels": metadata("labels"),
        "annotations": metadata("annotations"), "nodeSelector": selector, "spec": spec,
    })
}

fn attachment(object: &Value) -> Value {
    let config = text(object, "/spec/config");
    let config: Value = serde_json::from_str(&config).unwrap_or(Value::String(config));
    let owners = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let owners = owners.into_iter().flatten();
    let owners = owners.map(|owner| format!("{}/{}", text(owner, "/kind"), text(owner, "/name")));
    let metadata = |key: &str| object.pointer(&format!("/metadata/{key}"));
    json!({
        "namespace": metadata("namespace"), "name": metadata("name"), "labels": metadata("labels"),
        "annotations": metadata("annotations"), "config": config,
        "finalizers": metadata("finalizers"), "owners": owners.collect::<Vec<_>>(),
    })
}
