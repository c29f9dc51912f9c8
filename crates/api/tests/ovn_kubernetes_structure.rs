//! Our CRDs of OVN-Kubernetes' kinds take what its own take: where they are installed in the place of its own, no field of
//! anybody is dropped and no value refused that it knows.
//! In: its CRDs (helm/ovn-kubernetes/crds at 8871cd9) as tables of fields and of rules' messages, without descriptions and rule expressions.
//! Out: every difference by path that is not listed here with its reason; rules are the same where path and message are.
//! Not here: what rules take and refuse (test/kube, tables of objects).
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Where ours differ, and why.
const DIFFERENCES: [(&str, &str); 34] = [
    (
        "routeadvertisements: required is [\"spec\"], theirs null",
        "every field of the spec that matters is required: without a spec there is nothing to take",
    ),
    (
        "routeadvertisements spec.networkSelectors[].networkSelectionType: also takes \"ClusterUserDefinedNetwork\"",
        "the spelling of the design documents",
    ),
    (
        "clusteruserdefinednetworks spec.encapsulation: ours alone",
        "of older design documents: declared only to be refused in words that help",
    ),
    (
        "clusteruserdefinednetworks spec.network.noOverlayOptions: ours alone",
        "the design documents' name of noOverlay",
    ),
    (
        "clusteruserdefinednetworks spec.network.noOverlayOptions.outboundSNAT: ours alone",
        "as above",
    ),
    (
        "clusteruserdefinednetworks spec.network.noOverlayOptions.routing: ours alone",
        "as above",
    ),
    (
        "clusteruserdefinednetworks spec.network.transport: also takes \"Geneve\"",
        "of the design documents: the same as none",
    ),
    (
        "clusteruserdefinednetworks spec.network.layer2.defaultGatewayIPs[]: maxLength is 45, theirs null",
        "no address is longer, and the API server counts the cost of rules by it",
    ),
    (
        "userdefinednetworks spec.layer2.defaultGatewayIPs[]: maxLength is 45, theirs null",
        "as above",
    ),
    (
        "userdefinednetworks spec.encapsulation: ours alone",
        "of older design documents: declared only to be refused in words that help",
    ),
    (
        "userdefinednetworks spec.transport: ours alone",
        "only ClusterUserDefinedNetworks have it: declared only to be refused in words that help",
    ),
    (
        "routeadvertisements spec.advertisements: nothing is refused with \"\"",
        "theirs has no message",
    ),
    (
        "routeadvertisements spec.advertisements: ours alone refuses with \"advertisements must not be repeated\"",
        "theirs has no message",
    ),
    (
        "routeadvertisements spec: ours alone refuses with \"ClusterUserDefinedNetworks and ClusterUserDefinedNetwork are two spellings of one type, only one of them can be used\"",
        "the spelling of the design documents",
    ),
    (
        "clusteruserdefinednetworks spec.network.layer3.joinSubnets: nothing is refused with \"joinSubnets is immutable\"",
        "ours is at the parent",
    ),
    (
        "clusteruserdefinednetworks spec.network.layer3: ours alone refuses with \"joinSubnets is immutable\"",
        "as a rule of the field itself it would not see that the field comes or goes",
    ),
    (
        "clusteruserdefinednetworks spec.network.layer3.mtu: nothing is refused with \"mtu is immutable\"",
        "ours is at the parent",
    ),
    (
        "clusteruserdefinednetworks spec.network.layer3: ours alone refuses with \"mtu is immutable\"",
        "as a rule of the field itself it would not see that the field comes or goes",
    ),
    (
        "clusteruserdefinednetworks spec.network.noOverlay: nothing is refused with \"NoOverlay is immutable\"",
        "ours is at the parent",
    ),
    (
        "clusteruserdefinednetworks spec.network: ours alone refuses with \"NoOverlay is immutable\"",
        "as a rule of the field itself it would not see that the field comes or goes",
    ),
    (
        "clusteruserdefinednetworks spec.network.transport: nothing is refused with \"Transport is immutable\"",
        "ours is at the parent",
    ),
    (
        "clusteruserdefinednetworks spec.network: ours alone refuses with \"Transport is immutable\"",
        "as a rule of the field itself it would not see that the field comes or goes",
    ),
    (
        "clusteruserdefinednetworks spec.uplinks: nothing is refused with \"uplinks is immutable\"",
        "ours is at the parent",
    ),
    (
        "clusteruserdefinednetworks spec: ours alone refuses with \"uplinks is immutable\"",
        "as a rule of the field itself it would not see that the field comes or goes",
    ),
    (
        "clusteruserdefinednetworks spec.network: ours alone refuses with \"NoOverlayOptions is immutable\"",
        "the design documents' name of noOverlay",
    ),
    (
        "clusteruserdefinednetworks spec.network: ours alone refuses with \"noOverlay and noOverlayOptions are two spellings of one field, only one of them can be used\"",
        "the design documents' name of noOverlay",
    ),
    (
        "clusteruserdefinednetworks spec.network: ours alone refuses with \"noOverlayOptions is required if and only if transport is 'NoOverlay'\"",
        "the design documents' name of noOverlay",
    ),
    (
        "clusteruserdefinednetworks spec: ours alone refuses with \"encapsulation is not supported; for mode None use spec.network.transport NoOverlay with spec.network.noOverlay (outboundSNAT and routing), for mode Geneve leave it out\"",
        "of older design documents",
    ),
    (
        "userdefinednetworks spec.layer3.joinSubnets: nothing is refused with \"joinSubnets is immutable\"",
        "ours is at the parent",
    ),
    (
        "userdefinednetworks spec.layer3: ours alone refuses with \"joinSubnets is immutable\"",
        "as a rule of the field itself it would not see that the field comes or goes",
    ),
    (
        "userdefinednetworks spec.layer3.mtu: nothing is refused with \"mtu is immutable\"",
        "ours is at the parent",
    ),
    (
        "userdefinednetworks spec.layer3: ours alone refuses with \"mtu is immutable\"",
        "as a rule of the field itself it would not see that the field comes or goes",
    ),
    (
        "userdefinednetworks spec: ours alone refuses with \"encapsulation is not supported; a network without overlay is a ClusterUserDefinedNetwork with spec.network.transport NoOverlay, and the default network has its transport in the configuration file\"",
        "of older design documents",
    ),
    (
        "userdefinednetworks spec: ours alone refuses with \"transport is not supported by UserDefinedNetwork, only by ClusterUserDefinedNetwork (spec.network.transport)\"",
        "only ClusterUserDefinedNetworks have it",
    ),
];

const RECORDED: [(&str, &str); 4] = [
    (
        "routeadvertisements",
        include_str!("data/ovn-kubernetes/routeadvertisements.json"),
    ),
    (
        "clusteruserdefinednetworks",
        include_str!("data/ovn-kubernetes/clusteruserdefinednetworks.json"),
    ),
    (
        "userdefinednetworks",
        include_str!("data/ovn-kubernetes/userdefinednetworks.json"),
    ),
    (
        "egressips",
        include_str!("data/ovn-kubernetes/egressips.json"),
    ),
];

/// Keys of a schema that are for people, or whose values are fields of their own.
const ELSEWHERE: [&str; 6] = [
    "description",
    "title",
    "properties",
    "items",
    "additionalProperties",
    "x-kubernetes-validations",
];

/// A kind of ours.
#[derive(Default)]
struct Ours {
    fields: BTreeMap<String, BTreeMap<String, Value>>,
    /// Path and message of each rule; one without a message has an empty one.
    rules: BTreeSet<(String, String)>,
}

impl Ours {
    fn read(&mut self, path: &str, schema: &Value) {
        let keys = schema.as_object().unwrap();
        let keys = keys
            .iter()
            .filter(|(k, _)| !ELSEWHERE.contains(&k.as_str()));
        let keys = keys.map(|(key, value)| (key.clone(), value.clone()));
        self.fields.insert(path.to_owned(), keys.collect());
        let rules = schema["x-kubernetes-validations"].as_array();
        let texts = rules
            .into_iter()
            .flatten()
            .map(|rule| message(&rule["message"]));
        self.rules.extend(texts.map(|text| (path.to_owned(), text)));
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            // The API server adds these to every kind.
            if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                continue;
            }
            let dot = if path.is_empty() { "" } else { "." };
            self.read(&format!("{path}{dot}{name}"), field);
        }
        for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
            if schema[key].is_object() {
                self.read(&format!("{path}{mark}"), &schema[key]);
            }
        }
    }
}

fn message(text: &Value) -> String {
    text.as_str().unwrap_or_default().to_owned()
}

/// Both spell a set; the order is nobody's.
fn texts(value: &Value) -> BTreeSet<String> {
    let list = value.as_array().into_iter().flatten();
    list.map(ToString::to_string).collect()
}

/// How a field of ours differs from theirs in one key of its schema.
fn difference(key: &str, theirs: &Value, ours: &Value) -> Vec<String> {
    let differs = || vec![format!("{key} is {ours}, theirs {theirs}")];
    match key {
        "enum" if theirs.is_array() && ours.is_array() => {
            let (t, o) = (texts(theirs), texts(ours));
            let refused = t.difference(&o).map(|v| format!("does not take {v}"));
            let more = o.difference(&t).map(|v| format!("also takes {v}"));
            refused.chain(more).collect()
        }
        "required" | "x-kubernetes-list-map-keys"
            if theirs.is_array() && ours.is_array() && texts(theirs) == texts(ours) =>
        {
            Vec::new()
        }
        _ if theirs.is_number() && theirs.as_f64() == ours.as_f64() => Vec::new(),
        _ if theirs == ours => Vec::new(),
        _ => differs(),
    }
}

/// All differences of a kind's fields and rules.
fn differences(plural: &str, theirs: &Value, ours: &Ours) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let fields = theirs["fields"].as_object().unwrap();
    let name = |path: &str| format!("{plural} {path}").trim_end().to_owned();
    for (path, schema) in fields {
        let Some(own) = ours.fields.get(path) else {
            found.insert(format!("{}: missing", name(path)));
            continue;
        };
        let schema = schema.as_object().unwrap();
        let keys: BTreeSet<&String> = schema.keys().chain(own.keys()).collect();
        for key in keys {
            let of = |value: Option<&Value>| value.cloned().unwrap_or_default();
            let said = difference(key, &of(schema.get(key)), &of(own.get(key)));
            found.extend(said.iter().map(|text| format!("{}: {text}", name(path))));
        }
    }
    let alone = ours.fields.keys().filter(|p| !fields.contains_key(*p));
    found.extend(alone.map(|path| format!("{}: ours alone", name(path))));
    let rules = theirs["rules"].as_array().unwrap().iter();
    let rules: BTreeSet<(String, String)> = rules
        .map(|rule| (message(&rule[0]), message(&rule[1])))
        .collect();
    for (path, message) in rules.difference(&ours.rules) {
        let name = name(path);
        found.insert(format!("{name}: nothing is refused with {message:?}"));
    }
    for (path, message) in ours.rules.difference(&rules) {
        let name = name(path);
        found.insert(format!("{name}: ours alone refuses with {message:?}"));
    }
    found
}

#[test]
fn every_field_and_rule_of_ovn_kubernetes_own_schemas_is_in_ours_and_no_other_but_for_what_is_listed()
 {
    let files = api::crds::files().unwrap();
    let mut found = BTreeSet::new();
    for (plural, text) in RECORDED {
        let theirs: Value = serde_json::from_str(text).unwrap();
        let mut own = files
            .iter()
            .filter(|(name, _)| name.contains(&format!("_{plural}.")));
        let crd: Value = serde_saphyr::from_str(&own.next().unwrap().1).unwrap();
        let spec = &crd["spec"];
        assert_eq!(spec["scope"], theirs["scope"], "{plural}");
        assert_eq!(spec["group"], theirs["group"], "{plural}");
        for key in ["kind", "plural", "singular", "shortNames"] {
            assert_eq!(spec["names"][key], theirs[key], "{plural}");
        }
        assert_eq!(spec["versions"].as_array().unwrap().len(), 1, "{plural}");
        let version = &spec["versions"][0];
        assert_eq!(version["name"], theirs["version"], "{plural}");
        assert_eq!(
            (&version["served"], &version["storage"]),
            (&true.into(), &true.into())
        );
        let or = |value: &Value, empty: Value| {
            if value.is_null() {
                empty
            } else {
                value.clone()
            }
        };
        let subresources = or(&version["subresources"], serde_json::json!({}));
        assert_eq!(subresources, theirs["subresources"], "{plural}");
        let columns = or(&version["additionalPrinterColumns"], serde_json::json!([]));
        assert_eq!(columns, theirs["columns"], "{plural}");
        let mut ours = Ours::default();
        ours.read("", &version["schema"]["openAPIV3Schema"]);
        found.extend(differences(plural, &theirs, &ours));
    }
    let listed: BTreeSet<String> = DIFFERENCES.map(|(text, _why)| text.to_owned()).into();
    let unlisted: Vec<&String> = found.difference(&listed).collect();
    let out_of_date: Vec<&String> = listed.difference(&found).collect();
    assert!(unlisted.is_empty(), "{unlisted:#?}");
    assert!(out_of_date.is_empty(), "{out_of_date:#?}");
}
