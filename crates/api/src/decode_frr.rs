//! FRRConfiguration into `model::frr`.
//! In: one object. Out: the plain value, or every problem of the object at once.
//! Invariant: every field is either carried over or named in a problem.
//! Not here: rules between objects (`frr::merge`).

mod collector;
mod filters;
mod neighbor;

use std::sync::Arc;

use kube::core::DynamicObject;
use model::frr as m;
use model::selector::LabelSelector;
use model::{ObjectKey, Problem};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::frr_configuration as k;
use crate::frr_configuration::FRRConfiguration;
use crate::selector;

use self::collector::Collector;
use self::neighbor::neighbor;

impl TryFrom<&FRRConfiguration> for m::FrrConfiguration {
    type Error = Vec<Problem>;

    fn try_from(object: &FRRConfiguration) -> Result<Self, Self::Error> {
        let meta = &object.metadata;
        let key = ObjectKey::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        );
        let mut c = Collector {
            subject: format!("FRRConfiguration/{key}"),
            problems: Vec::new(),
        };
        let node_selector = match &object.spec.node_selector {
            None => LabelSelector::default(),
            Some(s) => c
                .take("spec.nodeSelector", selector::decode(s))
                .unwrap_or_default(),
        };
        let bgp = object.spec.bgp.clone().unwrap_or_default();
        let routers = (bgp.routers.iter().flatten().enumerate())
            .filter_map(|(at, r)| router(&mut c, &format!("spec.bgp.routers[{at}]"), r))
            .collect();
        let bfd_profiles = (bgp.bfd_profiles.iter().flatten().enumerate())
            .map(|(at, p)| bfd_profile(&mut c, &format!("spec.bgp.bfdProfiles[{at}]"), p))
            .collect();
        let raw = object.spec.raw.as_ref().and_then(|raw| {
            let config = raw.raw_config.clone().filter(|text| !text.is_empty())?;
            Some(m::Raw {
                priority: raw.priority.unwrap_or(0),
                config,
            })
        });
        if !c.problems.is_empty() {
            return Err(c.problems);
        }
        Ok(Self {
            key,
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
            node_selector,
            routers,
            bfd_profiles,
            raw,
        })
    }
}

/// An FRRConfiguration of any writer, a `DynamicObject` or JSON. One without `spec` asks for nothing: frr-k8s' CRD allows it.
///
/// # Errors
/// A sentence that names the field whose shape is not the type's.
pub fn read_source(object: &impl Serialize) -> Result<FRRConfiguration, String> {
    let object = serde_json::to_value(object).and_then(|mut object| {
        if let Value::Object(fields) = &mut object
            && fields.get("spec").is_none_or(Value::is_null)
        {
            fields.insert("spec".to_owned(), Value::Object(Map::new()));
        }
        serde_json::from_value(object)
    });
    object.map_err(|error| error.to_string())
}

/// An object as it was read, or why it is not even of the type's shape. `remains` is empty; see [`remains`].
#[must_use]
pub fn decode_source(key: ObjectKey, read: Result<FRRConfiguration, String>) -> m::Source {
    match read {
        Ok(object) => m::Source {
            key,
            node_selector: node_selector(&object),
            object: m::FrrConfiguration::try_from(&object).map(Arc::new),
            remains: m::Remains::default(),
        },
        Err(why) => {
            let subject = format!("FRRConfiguration/{key}");
            let text = format!("{subject} cannot be read: {why}");
            m::Source {
                key,
                node_selector: None,
                object: Err(vec![Problem::new(subject, "ConversionFailed", text)]),
                remains: m::Remains::default(),
            }
        }
    }
}

fn node_selector(object: &FRRConfiguration) -> Option<LabelSelector> {
    match &object.spec.node_selector {
        None => Some(LabelSelector::default()),
        Some(s) => selector::decode(s).ok(),
    }
}

/// What can be read of an object whose fields may be of any shape.
#[must_use]
pub fn remains(object: &DynamicObject) -> m::Remains {
    let selector = object.data.pointer("/spec/nodeSelector");
    let routers = object.data.pointer("/spec/bgp/routers");
    let routers = routers.and_then(Value::as_array).into_iter().flatten();
    let default = |router: &&Value| {
        let vrf = router.get("vrf").and_then(Value::as_str);
        matches!(vrf, None | Some("" | "default"))
    };
    let prefixes = routers
        .filter(default)
        .filter_map(|router| router.get("prefixes")?.as_array())
        .flatten()
        .filter_map(|text| text.as_str()?.parse().ok());
    m::Remains {
        labels: object.metadata.labels.clone().unwrap_or_default(),
        annotations: object.metadata.annotations.clone().unwrap_or_default(),
        node_selector: match selector {
            None | Some(Value::Null) => Some(LabelSelector::default()),
            Some(value) => serde_json::from_value(value.clone())
                .ok()
                .and_then(|s| selector::decode(&s).ok()),
        },
        prefixes: prefixes.collect(),
    }
}

fn router(c: &mut Collector, path: &str, r: &k::Router) -> Option<m::Router> {
    let neighbors = (r.neighbors.iter().flatten().enumerate())
        .filter_map(|(at, n)| neighbor(c, &format!("{path}.neighbors[{at}]"), n))
        .collect();
    let prefixes = c.prefixes(&format!("{path}.prefixes"), r.prefixes.as_ref());
    Some(m::Router {
        asn: c.asn(&format!("{path}.asn"), r.asn)?,
        id: c.word(&format!("{path}.id"), r.id.as_ref()),
        vrf: c
            .word(&format!("{path}.vrf"), r.vrf.as_ref())
            .unwrap_or_default(),
        neighbors,
        prefixes,
        imports: r
            .imports
            .iter()
            .flatten()
            .map(|i| {
                c.word(&format!("{path}.imports.vrf"), i.vrf.as_ref())
                    .unwrap_or_default()
            })
            .collect(),
        evpn: r.evpn.clone().map(|map| Value::Object(map).to_string()),
    })
}

fn bfd_profile(c: &mut Collector, path: &str, p: &k::BfdProfile) -> m::BfdProfile {
    m::BfdProfile {
        name: c
            .word(&format!("{path}.name"), Some(&p.name))
            .unwrap_or_default(),
        receive_interval: c.number(&format!("{path}.receiveInterval"), p.receive_interval),
        transmit_interval: c.number(&format!("{path}.transmitInterval"), p.transmit_interval),
        detect_multiplier: c.number(&format!("{path}.detectMultiplier"), p.detect_multiplier),
        echo_interval: c.number(&format!("{path}.echoInterval"), p.echo_interval),
        echo_mode: p.echo_mode.unwrap_or(false),
        passive_mode: p.passive_mode.unwrap_or(false),
        minimum_ttl: c.number(&format!("{path}.minimumTtl"), p.minimum_ttl),
    }
}

#[cfg(test)]
mod tests;
