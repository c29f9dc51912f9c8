//! The API server's objects as anybody writes them: sound ones by name, and in a script of changes.
//! In: names, commands. Out: objects as JSON. Invariant: what is deleted must be there.
//! Not here: schemas; nobody refuses an object here.
//!
//! ```text
//!  node NAME IP...                      a Node, as the kubelet makes it
//!  annotate KIND NAME KEY [VALUE...]    no value: the annotation is taken away
//!  apply                                whole objects, YAML in the body
//!  delete KIND [NAMESPACE/]NAME
//! ```

use model::node::HOSTNAME_LABEL;
use offline::kind::{CUDN, NAMESPACE, NODE};
use serde_json::{Value, json};

pub use offline::Objects;

/// A Node with these InternalIPs, as the kubelet makes it.
#[must_use]
pub fn node(name: &str, addresses: &[&str]) -> Value {
    let of = |address: &&str| json!({"type": "InternalIP", "address": address});
    let addresses: Vec<Value> = addresses.iter().map(of).collect();
    json!({
        "apiVersion": "v1", "kind": NODE,
        "metadata": {"name": name, "labels": {HOSTNAME_LABEL: name}},
        "status": {"addresses": addresses},
    })
}

/// A ClusterUserDefinedNetwork with this `spec.network`, for the namespaces of the tenant that bears its name.
#[must_use]
pub fn network(name: &str, created: &str, network: &Value) -> Value {
    let selector = json!({"matchLabels": {"tenant": name}});
    json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": CUDN,
        "metadata": {
            "name": name, "uid": format!("uid-of-{name}"), "creationTimestamp": created, "labels": {},
        },
        "spec": {"namespaceSelector": selector, "network": network},
    })
}

/// A Namespace of a tenant, whose pods may have a primary network of users.
#[must_use]
pub fn namespace(name: &str, tenant: &str) -> Value {
    let labels = json!({"tenant": tenant, "k8s.ovn.org/primary-user-defined-network": ""});
    json!({"apiVersion": "v1", "kind": NAMESPACE, "metadata": {"name": name, "labels": labels}})
}

/// Carries out a command of those above; false where it is none of them.
///
/// # Errors
/// One sentence where the object is not there, or the body is not YAML of objects.
pub fn apply(objects: &mut Objects, words: &[&str], body: &str) -> Result<bool, String> {
    match words {
        ["node", name, addresses @ ..] => {
            objects.put(node(name, addresses))?;
        }
        ["annotate", kind, name, key, value @ ..] => {
            let object = of(objects, kind, name)?;
            let annotations = &mut object["metadata"]["annotations"];
            if value.is_empty() {
                let gone = annotations.as_object_mut().and_then(|map| map.remove(*key));
                gone.ok_or_else(|| format!("{kind} {name} has no annotation {key}"))?;
            } else {
                annotations[*key] = value.join(" ").into();
            }
        }
        ["apply"] => objects.read(body)?,
        ["delete", kind, name] => {
            of(objects, kind, name)?;
            objects.remove(kind, name);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn of<'a>(objects: &'a mut Objects, kind: &str, name: &str) -> Result<&'a mut Value, String> {
    let found = objects.get_mut(kind, name);
    found.ok_or_else(|| format!("there is no {kind} {name}"))
}
