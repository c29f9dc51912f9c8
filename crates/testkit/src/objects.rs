//! The API server's objects in a script of changes, as anybody writes them.
//! In: commands. Out: objects as JSON, and Nodes decoded. Invariant: what is deleted must be there.
//! Not here: schemas; nobody refuses an object here.
//!
//! ```text
//!  node NAME IP...                      a Node, as the kubelet makes it
//!  annotate KIND NAME KEY [VALUE...]    no value: the annotation is taken away
//!  apply                                whole objects, YAML in the body
//!  delete KIND [NAMESPACE/]NAME
//! ```

use std::collections::BTreeMap;

use model::node::{HOSTNAME_LABEL, Node};
use serde_json::{Value, json};

/// Objects by kind, and by namespace and name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Objects(BTreeMap<(String, String), Value>);

impl Objects {
    /// Carries out a command of those above; false where it is none of them.
    ///
    /// # Errors
    /// One sentence where the object is not there, or the body is not YAML of objects.
    pub fn apply(&mut self, words: &[&str], body: &str) -> Result<bool, String> {
        match words {
            ["node", name, addresses @ ..] => {
                let addresses: Vec<Value> = addresses
                    .iter()
                    .map(|address| json!({"type": "InternalIP", "address": address}))
                    .collect();
                self.put(json!({
                    "apiVersion": "v1", "kind": "Node",
                    "metadata": {"name": name, "labels": {HOSTNAME_LABEL: name}},
                    "status": {"addresses": addresses},
                }))?;
            }
            ["annotate", kind, name, key, value @ ..] => {
                let object = self.of(kind, name)?;
                let annotations = &mut object["metadata"]["annotations"];
                if value.is_empty() {
                    let gone = annotations.as_object_mut().and_then(|map| map.remove(*key));
                    gone.ok_or_else(|| format!("{kind} {name} has no annotation {key}"))?;
                } else {
                    annotations[*key] = value.join(" ").into();
                }
            }
            ["apply"] => {
                let documents: Vec<Value> =
                    serde_saphyr::from_multiple(body).map_err(|error| error.to_string())?;
                for object in documents {
                    self.put(object)?;
                }
            }
            ["delete", kind, name] => {
                self.of(kind, name)?;
                self.0.remove(&((*kind).to_owned(), (*name).to_owned()));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Writes a whole object.
    ///
    /// # Errors
    /// Where it has no kind or no name.
    pub fn put(&mut self, object: Value) -> Result<(), String> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let metadata = &object["metadata"];
        let kind = text(&object["kind"]).ok_or("an object without kind")?;
        let name = text(&metadata["name"]).ok_or("an object without name")?;
        let name = match text(&metadata["namespace"]) {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name,
        };
        self.0.insert((kind, name), object);
        Ok(())
    }

    /// The object of a kind, by name or by namespace and name.
    ///
    /// # Errors
    /// Where there is none.
    pub fn of(&mut self, kind: &str, name: &str) -> Result<&mut Value, String> {
        let found = self.0.get_mut(&(kind.to_owned(), name.to_owned()));
        found.ok_or_else(|| format!("there is no {kind} {name}"))
    }

    /// Takes an object away, where it is there.
    pub fn remove(&mut self, kind: &str, name: &str) {
        self.0.remove(&(kind.to_owned(), name.to_owned()));
    }

    /// All objects of a kind, in the order of their names.
    pub fn all<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        let of_kind = move |((of, _), object): (&'a (String, String), &'a Value)| {
            (of == kind).then_some(object)
        };
        self.0.iter().filter_map(of_kind)
    }

    /// The Nodes as the daemons read them.
    ///
    /// # Panics
    /// Where one is no Node.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        let decode = |object: &Value| {
            let object = serde_json::from_value(object.clone()).unwrap();
            api::decode_node(&object)
        };
        self.all("Node").map(decode).collect()
    }
}
