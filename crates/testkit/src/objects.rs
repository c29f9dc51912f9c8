//! The API server's objects in a script of changes, as anybody writes them.
//! In: commands. Out: objects as JSON. Invariant: what is deleted must be there.
//! Not here: schemas; nobody refuses an object here.
//!
//! ```text
//!  node NAME IP...                      a Node, as the kubelet makes it
//!  annotate KIND NAME KEY [VALUE...]    no value: the annotation is taken away
//!  apply                                whole objects, YAML in the body
//!  delete KIND [NAMESPACE/]NAME
//! ```

use model::node::HOSTNAME_LABEL;
use serde_json::{Value, json};

pub use offline::Objects;

/// Carries out a command of those above; false where it is none of them.
///
/// # Errors
/// One sentence where the object is not there, or the body is not YAML of objects.
pub fn apply(objects: &mut Objects, words: &[&str], body: &str) -> Result<bool, String> {
    match words {
        ["node", name, addresses @ ..] => {
            let addresses: Vec<Value> = addresses
                .iter()
                .map(|address| json!({"type": "InternalIP", "address": address}))
                .collect();
            objects.put(json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {HOSTNAME_LABEL: name}},
                "status": {"addresses": addresses},
            }))?;
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
