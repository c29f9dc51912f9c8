//! Objects in files: FRRConfigurations, Nodes and Secrets, as people keep them and as kubectl prints them.
//! In: YAML or JSON, several documents, lists. Out: decoded objects.
//! Invariant: a document that claims a kind that is read here and is not of it is an error that names file and document.
//! Not here: which of them count for a node (`render`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use anyhow::{Context, bail};
use api::frr_configuration::FRRConfiguration;
use k8s_openapi::api::core::v1::{Node as KubeNode, Secret};
use model::frr::Source;
use model::names::{NodeName, ObjectKey};
use model::node::Node;
use model::problem::Problem;
use serde::de::DeserializeOwned;
use serde_json::Value;

const FRR_GROUP: &str = "frrk8s.metallb.io";
const FRR_VERSION: &str = "frrk8s.metallb.io/v1beta1";

/// Text with the name that messages call it by.
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Reads a file; `-` is standard input.
pub(crate) fn load(name: &str) -> anyhow::Result<File> {
    let mut text = String::new();
    let name = if name == "-" {
        let read = std::io::stdin().read_to_string(&mut text);
        read.context("cannot read standard input")?;
        "standard input"
    } else {
        text = std::fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
        name
    };
    Ok(File {
        name: name.to_owned(),
        text,
    })
}

/// Everything that was read.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// FRRConfigurations of all namespaces.
    pub(crate) sources: BTreeMap<ObjectKey, Source>,
    /// Nodes.
    pub(crate) nodes: BTreeMap<NodeName, Node>,
    /// Secrets, each with its password or why it has none.
    pub(crate) secrets: BTreeMap<ObjectKey, Result<String, String>>,
    /// Spellings that decoding normalizes away, by object.
    pub(crate) warnings: BTreeMap<ObjectKey, Vec<Problem>>,
    /// Objects that name no namespace.
    pub(crate) homeless: BTreeSet<String>,
}

impl Documents {
    /// Takes all documents of a file; objects without namespace count as of `namespace`.
    pub(crate) fn read(&mut self, file: &File, namespace: &str) -> anyhow::Result<()> {
        for (at, document) in (1_usize..).zip(documents(file)?) {
            let place = format!("{}, document {at}", file.name);
            self.take(&place, &document, namespace)?;
        }
        Ok(())
    }

    fn take(&mut self, place: &str, document: &Value, namespace: &str) -> anyhow::Result<()> {
        if document.is_null() {
            return Ok(());
        }
        let text = |key: &str| document.get(key).and_then(Value::as_str);
        let Some(kind) = text("kind") else {
            bail!("{place} is no object: it has no kind");
        };
        let version = text("apiVersion").unwrap_or_default();
        match kind {
            "List" | "FRRConfigurationList" | "NodeList" | "SecretList" => {
                // Items of a typed list bear no kind of their own.
                let of = kind.strip_suffix("List").filter(|of| !of.is_empty());
                let items = document.get("items").and_then(Value::as_array);
                for (at, item) in items.into_iter().flatten().enumerate() {
                    let mut item = item.clone();
                    if let (Some(of), Some(map)) = (of, item.as_object_mut()) {
                        map.entry("kind").or_insert_with(|| of.into());
                        map.entry("apiVersion").or_insert_with(|| version.into());
                    }
                    self.take(&format!("{place}, item {at}"), &item, namespace)?;
                }
                Ok(())
            }
            "FRRConfiguration" if version.split('/').next() == Some(FRR_GROUP) => {
                if version != FRR_VERSION {
                    bail!("{place}: apiVersion {version:?} is not known; allowed is {FRR_VERSION}");
                }
                self.configuration(place, document, namespace)
            }
            "FRRConfiguration" if version.is_empty() => {
                bail!("{place}: FRRConfiguration without apiVersion; allowed is {FRR_VERSION}")
            }
            "Node" if version == "v1" => {
                let node = api::decode_node(&typed::<KubeNode>(place, kind, document)?);
                if node.name.as_str().is_empty() {
                    bail!("{place}: Node without metadata.name");
                }
                match self.nodes.insert(node.name.clone(), node) {
                    Some(twice) => bail!("{place}: Node {} is there twice", twice.name),
                    None => Ok(()),
                }
            }
            "Secret" if version == "v1" => {
                let key = self.key(place, kind, document, namespace)?;
                let secret: Secret = typed(place, kind, document)?;
                let password = api::decode_secret(&secret);
                match self.secrets.insert(key.clone(), password) {
                    Some(_) => bail!("{place}: Secret {key} is there twice"),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn configuration(
        &mut self,
        place: &str,
        document: &Value,
        namespace: &str,
    ) -> anyhow::Result<()> {
        let key = self.key(place, "FRRConfiguration", document, namespace)?;
        let object = api::read_source(document).map_err(anyhow::Error::msg);
        let mut object = object.with_context(|| format!("{place} is no FRRConfiguration"))?;
        object.metadata.namespace = Some(key.namespace.clone());
        let subject = format!("FRRConfiguration/{key}");
        let warnings = api::warnings(&subject, document, &object);
        self.warnings.insert(key.clone(), warnings);
        match self.add(key.clone(), Ok(object)) {
            true => Ok(()),
            false => bail!("{place}: FRRConfiguration {key} is there twice"),
        }
    }

    /// Takes an object; false where there is one of that name already.
    pub(crate) fn add(&mut self, key: ObjectKey, object: Result<FRRConfiguration, String>) -> bool {
        let source = api::decode_source(key.clone(), object);
        self.sources.insert(key, source).is_none()
    }

    /// Namespaces of the FRRConfigurations.
    pub(crate) fn namespaces(&self) -> BTreeSet<String> {
        self.sources
            .keys()
            .map(|key| key.namespace.clone())
            .collect()
    }

    fn key(
        &mut self,
        place: &str,
        kind: &str,
        document: &Value,
        namespace: &str,
    ) -> anyhow::Result<ObjectKey> {
        let text = |key: &str| {
            let value = document.pointer(&format!("/metadata/{key}"));
            value
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
        };
        let name =
            text("name").with_context(|| format!("{place}: {kind} without metadata.name"))?;
        let own = text("namespace");
        if own.is_none() {
            self.homeless.insert(format!("{kind}/{name}"));
        }
        Ok(ObjectKey::new(own.unwrap_or(namespace), name))
    }
}

fn typed<T: DeserializeOwned>(place: &str, kind: &str, document: &Value) -> anyhow::Result<T> {
    T::deserialize(document).with_context(|| format!("{place} is no {kind}"))
}

/// The documents of a text. JSON is read by its own reader, which has no limit on size.
pub(crate) fn documents(file: &File) -> anyhow::Result<Vec<Value>> {
    if file.text.trim_start().starts_with('{') {
        return serde_json::Deserializer::from_str(&file.text)
            .into_iter()
            .collect::<Result<_, _>>()
            .with_context(|| format!("{} is not JSON", file.name));
    }
    serde_saphyr::from_multiple(&file.text).with_context(|| format!("{} is not YAML", file.name))
}
