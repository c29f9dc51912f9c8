//! What an admin and a kubelet put into the API: manifests, accounts' tokens, Nodes.
//!
//! In: a running API server. Out: CRDs and roles installed, kubeconfig files for our
//! daemons, Node objects. No object that is the product's to write is written here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use nix::unistd::Group;
use serde_json::{Value, json};

use crate::apiserver::{ACCOUNTS, Login, get, kubeconfig, kubectl};
use crate::family::Family;
use crate::run::{each, until};
use crate::state::{Lab, Node, text};

/// Service accounts that the manifests bring.
const USERS: [&str; 4] = [
    "cluster-manager",
    "node-agent",
    "frr-agent",
    "noverlay-view",
];
/// Debian's group of FRR's sockets.
const FRR_GROUP: &str = "frrvty";
/// Where a node's part of the cluster subnet stands.
const SUBNETS: &str = "k8s.ovn.org/node-subnets";

/// Installs the manifests and writes a kubeconfig file for each account.
pub(crate) fn install(lab: &Lab) -> Result<()> {
    let folder = &lab.places.manifests;
    if !folder.join("kustomization.yaml").exists() {
        bail!(
            "{} has no kustomization.yaml: the lab needs the manifests with CRDs, namespaces and roles",
            folder.display()
        );
    }
    let apply = || {
        kubectl(lab)
            .args(["apply", "--server-side", "-k", &text(folder)])
            .run()
    };
    // Objects of a kind that is installed in the same breath are refused at first.
    let mut last = String::new();
    let done = until(
        Duration::from_secs(20),
        Duration::from_millis(300),
        || match apply() {
            Ok(_) => Some(()),
            Err(error) => {
                last = format!("{error:#}");
                None
            }
        },
    );
    done.with_context(|| format!("installing {}: {last}", folder.display()))?;
    for result in each(&USERS, |user| {
        let token = kubectl(lab)
            .args(["create", "token", user, "--duration=24h", "-n", ACCOUNTS])
            .run()
            .with_context(|| format!("service account {user} of the manifests"))?;
        let token = token.trim();
        mounted_account(lab, user, token)?;
        kubeconfig(lab, user, &Login::Token(token.to_owned()))
    }) {
        result?;
    }
    groups(lab)
}

/// The one thing that an installer has to say of his nodes: the group that may ask FRR.
fn groups(lab: &Lab) -> Result<()> {
    let group = Group::from_name(FRR_GROUP)?.with_context(|| format!("no group {FRR_GROUP}"))?;
    let patch = json!({"spec": {"template": {"spec": {
        "securityContext": {"supplementalGroups": [group.gid.as_raw()]},
    }}}});
    kubectl(lab)
        .args(["patch", "daemonset", "node-agent", "-n", ACCOUNTS])
        .args(["--type=merge", "-p", &patch.to_string()])
        .run()
        .map(drop)
}

/// The folder that a kubelet mounts into the pods of an account.
pub(crate) fn account(lab: &Lab, user: &str) -> PathBuf {
    lab.node_dir("underlay").join(format!("{user}.account"))
}

fn mounted_account(lab: &Lab, user: &str, token: &str) -> Result<()> {
    let folder = account(lab, user);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("token"), token)?;
    std::fs::write(folder.join("namespace"), ACCOUNTS)?;
    std::fs::copy(
        lab.node_dir("underlay").join("ca.crt"),
        folder.join("ca.crt"),
    )?;
    Ok(())
}

/// The kubeconfig file of an account.
pub(crate) fn kubeconfig_of(lab: &Lab, user: &str) -> PathBuf {
    lab.node_dir("underlay").join(format!("{user}.kubeconfig"))
}

/// Registers nodes as their kubelets would.
pub(crate) fn create_nodes(lab: &Lab, nodes: &[Node]) -> Result<()> {
    let items: Vec<Value> = nodes.iter().map(|node| object(lab, node)).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    kubectl(lab)
        .args(["create", "-f", "-"])
        .input(list.to_string())
        .run()?;
    Ok(())
}

fn object(lab: &Lab, node: &Node) -> Value {
    let addresses = lab.addresses(node).into_iter();
    let mut addresses: Vec<Value> = addresses
        .map(|address| json!({"type": "InternalIP", "address": address}))
        .collect();
    addresses.push(json!({"type": "Hostname", "address": node.name}));
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node.name, "labels": {
            "kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux",
        }},
        "status": {
            "addresses": addresses,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "the lab plays the kubelet"}],
        },
    })
}

/// Takes a node out of the API.
pub(crate) fn delete_node(lab: &Lab, name: &str) -> Result<()> {
    kubectl(lab)
        .args(["delete", "node", name, "--wait=false"])
        .run()
        .map(drop)
}

/// The subnets that each node got, by node name; nodes that lack one of a family of the lab are not in it.
pub(crate) fn subnets(lab: &Lab) -> Result<BTreeMap<String, Vec<IpNet>>> {
    let families = lab.values.families();
    let nodes = get(lab, "/api/v1/nodes")?;
    let mut found = BTreeMap::new();
    for node in items(&nodes) {
        let name = node.pointer("/metadata/name").and_then(Value::as_str);
        let annotations = node.pointer("/metadata/annotations");
        let annotation = annotations
            .and_then(|a| a.get(SUBNETS))
            .and_then(Value::as_str);
        let subnets = annotation.and_then(|text| subnets_of(text, &families));
        if let (Some(name), Some(subnets)) = (name, subnets) {
            found.insert(name.to_owned(), subnets);
        }
    }
    Ok(found)
}

/// `{"default": ["10.128.0.0/24"]}` or `{"default": "10.128.0.0/24"}`: the first subnet of each of these families.
fn subnets_of(annotation: &str, families: &[Family]) -> Option<Vec<IpNet>> {
    let networks: Value = serde_json::from_str(annotation).ok()?;
    let default = networks.get("default")?;
    let list = match default.as_array() {
        Some(list) => list.iter().collect(),
        None => vec![default],
    };
    let all = list.iter().filter_map(|entry| entry.as_str()?.parse().ok());
    let all: Vec<IpNet> = all.collect();
    let first = |family: &Family| all.iter().find(|net| Family::of(net.addr()) == *family);
    families
        .iter()
        .map(|family| first(family).copied())
        .collect()
}

/// The objects of a list.
pub(crate) fn items(list: &Value) -> &[Value] {
    list.get("items")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The FRRNodeState of each node: success, or what it says instead.
pub(crate) fn frr_node_states(lab: &Lab) -> Result<BTreeMap<String, String>> {
    let list = get(lab, "/apis/frrk8s.metallb.io/v1beta1/frrnodestates")?;
    let mut found = BTreeMap::new();
    for state in items(&list) {
        let word = |key: &str| {
            let value = state
                .pointer(&format!("/status/{key}"))
                .and_then(Value::as_str);
            value.unwrap_or("(nothing)").to_owned()
        };
        let Some(name) = state.pointer("/metadata/name").and_then(Value::as_str) else {
            continue;
        };
        let (conversion, reload) = (word("lastConversionResult"), word("lastReloadResult"));
        let all = if conversion == "success" && reload == "success" {
            conversion
        } else {
            format!("conversion: {conversion}, reload: {reload}")
        };
        found.insert(name.to_owned(), all);
    }
    Ok(found)
}

/// What a node's NodeRoutes says of the default network: how many subnets of other nodes it expects, and how many routes are
/// imported.
///
/// # Errors
/// An API server that does not answer, or an object without these numbers.
pub(crate) fn reported(lab: &Lab, node: &str) -> Result<(u64, u64)> {
    let object = get(
        lab,
        &format!("/apis/noverlay.io/v1alpha1/noderoutes/{node}"),
    )?;
    let networks = object.pointer("/status/networks").and_then(Value::as_array);
    let default = networks
        .into_iter()
        .flatten()
        .find(|network| network.get("name").and_then(Value::as_str) == Some("default"));
    let number = |key: &str| default?.get(key)?.as_u64();
    number("expected")
        .zip(number("imported"))
        .with_context(|| format!("NodeRoutes of {node}: {object}"))
}

/// Whether an FRRConfiguration that a node loads names a neighbor.
///
/// # Errors
/// An API server that does not answer.
pub(crate) fn frr_configured(lab: &Lab, node: &str, neighbor: &str) -> Result<bool> {
    let list = get(lab, "/apis/frrk8s.metallb.io/v1beta1/frrconfigurations")?;
    let object = get(lab, &format!("/api/v1/nodes/{node}"))?;
    let labels = object.pointer("/metadata/labels").unwrap_or(&Value::Null);
    let neighbor = Value::String(neighbor.to_owned());
    Ok(items(&list).iter().any(|object| {
        let part = |path: &str| object.pointer(path).unwrap_or(&Value::Null);
        selects(part("/spec/nodeSelector"), labels) && holds(part("/spec/bgp"), &neighbor)
    }))
}

/// The nodes that reflect routes.
///
/// # Errors
/// An API server that does not answer.
pub(crate) fn reflectors(lab: &Lab) -> Result<Vec<String>> {
    let list = get(lab, "/api/v1/nodes")?;
    let reflects = |object: &&Value| {
        let label = object.pointer("/metadata/labels/noverlay.io~1bgp-fabric");
        label.and_then(Value::as_str) == Some("route-reflector")
    };
    let names = items(&list).iter().filter(reflects).filter_map(|object| {
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        name.map(str::to_owned)
    });
    Ok(names.collect())
}

/// A label selector as the API server would match it.
fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let equal = selector.get("matchLabels").and_then(Value::as_object);
    let mut equal = equal.into_iter().flatten();
    let rest = selector.get("matchExpressions").and_then(Value::as_array);
    let mut rest = rest.into_iter().flatten();
    let matches = |requirement: &Value| {
        let text = |key: &str| requirement.get(key).and_then(Value::as_str);
        let value = text("key").and_then(label);
        let values = requirement.get("values").and_then(Value::as_array);
        let among = || {
            let mut values = values.into_iter().flatten();
            value.is_some_and(|value| values.any(|other| other.as_str() == Some(value)))
        };
        match text("operator") {
            Some("In") => among(),
            Some("NotIn") => !among(),
            Some("Exists") => value.is_some(),
            Some("DoesNotExist") => value.is_none(),
            _ => false,
        }
    };
    equal.all(|(key, value)| label(key) == value.as_str()) && rest.all(matches)
}

fn holds(value: &Value, wanted: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().any(|entry| holds(entry, wanted)),
        Value::Object(map) => map.values().any(|entry| holds(entry, wanted)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_subnet_of_each_family_is_read_from_both_forms_of_the_annotation() {
        let nets = |texts: &[&str]| Some(texts.iter().map(|t| t.parse().unwrap()).collect());
        let (v4, both) = ([Family::V4], [Family::V4, Family::V6]);
        let dual = r#"{"default":["10.128.2.0/24","10.128.9.0/24","fd00::/64"]}"#;
        assert_eq!(subnets_of(dual, &v4), nets(&["10.128.2.0/24"]));
        assert_eq!(
            subnets_of(dual, &both),
            nets(&["10.128.2.0/24", "fd00::/64"])
        );
        let one = r#"{"default":"10.128.2.0/24"}"#;
        assert_eq!(subnets_of(one, &v4), nets(&["10.128.2.0/24"]));
        assert_eq!(subnets_of(one, &both), None);
        assert_eq!(subnets_of(r#"{"blue":["10.128.2.0/24"]}"#, &v4), None);
    }
}
