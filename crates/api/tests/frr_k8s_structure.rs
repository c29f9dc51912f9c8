//! Our CRDs of frr-k8s's kinds have the same structure as its own: an object means the same to both.
//! In: the structure of its CRDs (names, types, bounds, defaults; no texts). Out: every difference by path.
//! Not here: EVPN, which we keep as an opaque object, and the wording of descriptions.

use serde_json::Value;

/// Keys of a schema that decide what the API server accepts and stores.
const DECISIVE: [&str; 17] = [
    "type",
    "enum",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "default",
    "format",
    "required",
    "minLength",
    "maxLength",
    "pattern",
    // How server-side apply merges what two managers say.
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
];

/// The only field of frr-k8s's CRDs with rules beyond the structure (whole seconds, 1 to 65535); the recording leaves rules
/// out, and what ours say is held on a real API server (test/kube).
const WITH_RULES: [(&str, usize); 1] =
    [("frrconfigurations.bgp.routers[].neighbors[].connectTime", 2)];

fn compare(path: &str, theirs: &Value, ours: &Value, out: &mut Vec<String>) {
    for key in DECISIVE {
        let (t, o) = (&theirs[key], &ours[key]);
        // Both spell a set of names; the order is nobody's.
        let sorted = |v: &Value| {
            let mut list: Vec<String> = v
                .as_array()
                .into_iter()
                .flatten()
                .map(ToString::to_string)
                .collect();
            list.sort();
            list
        };
        let number = |v: &Value| v.as_f64();
        let same = t == o
            || (t.is_array() && sorted(t) == sorted(o))
            || (t.is_number() && number(t) == number(o));
        // An integer's format is a hint that the server does not use where bounds stand.
        let hint = key == "format" && theirs["type"] == "integer";
        if !same && !hint {
            out.push(format!("{path}: {key} is {o}, theirs {t}"));
        }
    }
    let rules = ours["x-kubernetes-validations"]
        .as_array()
        .map_or(0, Vec::len);
    let wanted = WITH_RULES.iter().find(|(field, _)| *field == path);
    if rules != wanted.map_or(0, |(_, count)| *count) {
        out.push(format!("{path}: {rules} rules of ours"));
    }
    let properties = |v: &'static str, s: &Value| s[v].as_object().cloned().unwrap_or_default();
    let (t, o) = (
        properties("properties", theirs),
        properties("properties", ours),
    );
    for (name, schema) in &t {
        if name == "apiVersion" || name == "kind" || name == "metadata" {
            continue;
        }
        match o.get(name) {
            Some(ours) => compare(&format!("{path}.{name}"), schema, ours, out),
            None => out.push(format!("{path}.{name} is missing")),
        }
    }
    for name in o.keys().filter(|n| !t.contains_key(*n) && *n != "evpn") {
        out.push(format!("{path}.{name} is ours alone"));
    }
    if theirs["items"].is_object() {
        compare(&format!("{path}[]"), &theirs["items"], &ours["items"], out);
    }
}

#[test]
fn the_structure_is_the_same() {
    let mut differences = Vec::new();
    for (plural, text) in [
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
    ] {
        let theirs: Value = serde_json::from_str(text).unwrap();
        let (_, yaml) = api::crds::files()
            .unwrap()
            .into_iter()
            .find(|(n, _)| n.contains(plural))
            .unwrap();
        let ours: Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(ours["spec"]["scope"], theirs["scope"]);
        assert_eq!(ours["spec"]["group"], theirs["group"]);
        for key in ["kind", "plural", "singular"] {
            assert_eq!(ours["spec"]["names"][key], theirs["names"][key], "{plural}");
        }
        let version = &ours["spec"]["versions"][0];
        assert_eq!(version["name"], theirs["version"]);
        assert_eq!(version["subresources"], theirs["subresources"]);
        compare(
            plural,
            &theirs["schema"]["properties"]["spec"],
            &version["schema"]["openAPIV3Schema"]["properties"]["spec"],
            &mut differences,
        );
        compare(
            plural,
            &theirs["schema"]["properties"]["status"],
            &version["schema"]["openAPIV3Schema"]["properties"]["status"],
            &mut differences,
        );
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
