//! Objects of an API server, in memory.
//! In: JSON. Out: JSON, by kind and name. Invariant: one object of a kind and name.
//! Not here: what they mean.

use std::collections::BTreeMap;

use model::node::Node;
use serde_json::Value;

/// Objects by kind, and by name, or namespace and name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Objects(BTreeMap<(String, String), Value>);

impl Objects {
    /// Reads YAML or JSON documents; lists are taken apart.
    ///
    /// # Errors
    /// One sentence where the text is no YAML, or a document is no object.
    pub fn read(&mut self, text: &str) -> Result<(), String> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            match document.get("items").and_then(Value::as_array) {
                Some(items) => items.iter().try_for_each(|item| self.put(item.clone()))?,
                None => self.put(document)?,
            }
        }
        Ok(())
    }

    /// Applies objects as `kubectl apply` does: spec and status are replaced where they are given, labels and annotations are
    /// added, what only a server sets stays.
    ///
    /// # Errors
    /// One sentence where the text is no YAML, or a document is no object.
    pub fn apply(&mut self, text: &str) -> Result<(), String> {
        let mut given = Self::default();
        given.read(text)?;
        given
            .0
            .into_values()
            .try_for_each(|object| self.add(object))
    }

    /// Applies one object; see [`Self::apply`].
    ///
    /// # Errors
    /// Where it has no kind or no name.
    pub fn add(&mut self, mut object: Value) -> Result<(), String> {
        let kind = object.get("kind").and_then(Value::as_str);
        let existing = kind
            .zip(key_of(&object))
            .and_then(|(kind, name)| self.get(kind, &name));
        if let Some(existing) = existing {
            merge(&mut object, existing);
        }
        self.put(object)
    }

    /// Writes a whole object.
    ///
    /// # Errors
    /// Where it has no kind or no name.
    pub fn put(&mut self, object: Value) -> Result<(), String> {
        let kind = object.get("kind").and_then(Value::as_str);
        let kind = kind.ok_or("an object without kind")?.to_owned();
        let name = key_of(&object).ok_or_else(|| format!("a {kind} without metadata.name"))?;
        self.0.insert((kind, name), object);
        Ok(())
    }

    /// The object of a kind, by name or by namespace and name.
    #[must_use]
    pub fn get(&self, kind: &str, name: &str) -> Option<&Value> {
        self.0.get(&(kind.to_owned(), name.to_owned()))
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, kind: &str, name: &str) -> Option<&mut Value> {
        self.0.get_mut(&(kind.to_owned(), name.to_owned()))
    }

    /// Takes an object away, where it is there; true where it was.
    pub fn remove(&mut self, kind: &str, name: &str) -> bool {
        self.0.remove(&(kind.to_owned(), name.to_owned())).is_some()
    }

    /// All objects of a kind, in the order of their names.
    pub fn all<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        let of_kind = move |((of, _), object): (&'a (String, String), &'a Value)| {
            (of == kind).then_some(object)
        };
        self.0.iter().filter_map(of_kind)
    }

    /// All objects, by kind and name.
    pub fn iter(&self) -> impl Iterator<Item = (&(String, String), &Value)> {
        self.0.iter()
    }

    /// The Nodes as the daemons read them; one that is no Node is left out.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        let objects = self.all(crate::kind::NODE).cloned();
        let objects = objects.filter_map(|object| serde_json::from_value(object).ok());
        objects.map(|object| api::decode_node(&object)).collect()
    }
}

/// What of an existing object stays beside what is given.
fn merge(given: &mut Value, existing: &Value) {
    let Some(object) = given.as_object_mut() else {
        return;
    };
    if let Some(status) = existing.get("status") {
        object.entry("status").or_insert_with(|| status.clone());
    }
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    for (key, value) in existing.get("metadata").map(fields).unwrap_or_default() {
        let slot = metadata
            .entry(key.as_str())
            .or_insert_with(|| value.clone());
        if ["labels", "annotations"].contains(&key.as_str()) {
            let mut both = fields(&value);
            both.extend(fields(slot));
            *slot = both.into();
        }
    }
}

/// Namespace and name of an object.
pub(crate) fn key_of(object: &Value) -> Option<String> {
    let metadata = object.get("metadata")?;
    let name = metadata.get("name")?.as_str()?;
    Some(match metadata.get("namespace").and_then(Value::as_str) {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    })
}
