//! Our CRDs of frr-k8s's kinds are its own but for the wording: an object means the same to both, is refused for the same
//! reasons in the same words, and is merged alike by server-side apply.
//! In: its CRDs as recorded, without descriptions. Out: every difference by path that is not listed here with its reason.
//! Not here: whether the rules hold on an API server (test/kube).
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;

use serde_json::Value;

/// Where ours differs, and why.
const DIFFERENCES: [(&str, &str); 1] = [(
    "frrconfigurations.spec.bgp.routers[].evpn",
    // The recording has no such field either.
    "an opaque object: EVPN is carried over as it is, and never interpreted",
)];

/// Keys of a schema that are for people, or whose values are schemas and are compared one by one.
const ELSEWHERE: [&str; 5] = [
    "description",
    "title",
    "properties",
    "items",
    "additionalProperties",
];

fn compare(path: &str, theirs: &Value, ours: &Value, out: &mut Vec<String>) {
    let keys = |schema: &Value| -> BTreeSet<String> {
        let keys = schema.as_object().into_iter().flat_map(|map| map.keys());
        keys.filter(|key| !ELSEWHERE.contains(&key.as_str()))
            .cloned()
            .collect()
    };
    for key in &keys(theirs) | &keys(ours) {
        let (t, o) = (&theirs[&key], &ours[&key]);
        // An integer's format is a hint that the server does not use where bounds stand.
        let hint = key == "format" && theirs["type"] == "integer";
        if !same(&key, t, o) && !hint {
            out.push(format!("{path}: {key} is {o}, theirs {t}"));
        }
    }
    for key in ["items", "additionalProperties"] {
        match (&theirs[key], &ours[key]) {
            (Value::Object(_), Value::Object(_)) => {
                compare(&format!("{path}[]"), &theirs[key], &ours[key], out);
            }
            (t, o) if t == o => {}
            (t, o) => out.push(format!("{path}: {key} is {o}, theirs {t}")),
        }
    }
    let properties = |schema: &Value| {
        schema["properties"]
            .as_object()
            .cloned()
            .unwrap_or_default()
    };
    let (t, o) = (properties(theirs), properties(ours));
    let names: BTreeSet<&String> = t.keys().chain(o.keys()).collect();
    for name in names {
        let path = format!("{path}.{name}");
        // The API server adds these to every kind.
        let of_server = path.split('.').count() == 2
            && ["apiVersion", "kind", "metadata"].contains(&name.as_str());
        if of_server || DIFFERENCES.iter().any(|(listed, _)| *listed == path) {
            continue;
        }
        match (t.get(name), o.get(name)) {
            (Some(theirs), Some(ours)) => compare(&path, theirs, ours, out),
            (Some(_), None) => out.push(format!("{path} is missing")),
            _ => out.push(format!("{path} is ours alone")),
        }
    }
}

fn same(key: &str, theirs: &Value, ours: &Value) -> bool {
    // Both spell a set of names; the order is nobody's.
    let is_set = ["required", "enum", "x-kubernetes-list-map-keys"].contains(&key);
    match (theirs, ours) {
        (Value::Array(t), Value::Array(o)) if is_set => {
            let sorted = |list: &[Value]| {
                let texts: BTreeSet<String> = list.iter().map(ToString::to_string).collect();
                (texts, list.len())
            };
            sorted(t) == sorted(o)
        }
        (Value::Number(t), Value::Number(o)) => t.as_f64() == o.as_f64(),
        _ => theirs == ours,
    }
}

/// Ours of a kind by its plural.
fn ours(plural: &str) -> Value {
    let files = api::crds::files().unwrap();
    let file = files.into_iter().find(|(name, _)| name.contains(plural));
    serde_saphyr::from_str(&file.unwrap().1).unwrap()
}

const RECORDED: [(&str, &str); 3] = [
    (
        "frrconfigurations",
        include_str!("data/frr-k8s/frrconfigurations.json"),
    ),
    (
        "frrnodestates",
        include_str!("data/frr-k8s/frrnodestates.json"),
    ),
    (
        "bgpsessionstates",
        include_str!("data/frr-k8s/bgpsessionstates.json"),
    ),
];

#[test]
fn every_schema_is_frr_k8s_own() {
    let mut differences = Vec::new();
    for (plural, text) in RECORDED {
        let theirs: Value = serde_json::from_str(text).unwrap();
        let ours = ours(plural);
        assert_eq!(ours["spec"]["scope"], theirs["scope"]);
        assert_eq!(ours["spec"]["group"], theirs["group"]);
        for key in ["kind", "plural", "singular", "shortNames"] {
            assert_eq!(ours["spec"]["names"][key], theirs["names"][key], "{plural}");
        }
        assert_eq!(ours["spec"]["versions"].as_array().unwrap().len(), 1);
        let version = &ours["spec"]["versions"][0];
        assert_eq!(version["name"], theirs["version"]);
        for key in ["subresources", "served", "storage"] {
            assert_eq!(version[key], theirs[key], "{plural} {key}");
        }
        let columns = version["additionalPrinterColumns"].as_array();
        let columns = columns.cloned().unwrap_or_default();
        assert_eq!(Value::from(columns), theirs["additionalPrinterColumns"]);
        let schema = &version["schema"]["openAPIV3Schema"];
        compare(plural, &theirs["schema"], schema, &mut differences);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// What is listed as different is different.
#[test]
fn no_listed_difference_is_out_of_date() {
    let (plural, text) = RECORDED[0];
    let theirs: Value = serde_json::from_str(text).unwrap();
    let path = "/properties/spec/properties/bgp/properties/routers/items/properties/evpn";
    let ours = &ours(plural)["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert!(theirs["schema"].pointer(path).is_none());
    let opaque = ours.pointer(path).unwrap();
    assert_eq!(opaque["x-kubernetes-preserve-unknown-fields"], true);
    assert!(opaque["properties"].is_null(), "{opaque}");
}
