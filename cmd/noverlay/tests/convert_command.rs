//! `noverlay convert` as a person runs it, on the examples of the design documents.
//! In: the examples (the kube tests ask an API server about each), and what older ones become (`tests/golden/convert`).
//! Invariant: what is printed where, and the exit status, are compared whole; `UPDATE_GOLDEN=1` writes them again.
//! Not here: whether an API server takes what comes out (`cluster.rs`).
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod ran;

use std::collections::BTreeSet;

use ran::{Ran, noverlay};
use serde_json::{Value, json};

/// Examples of the design documents, older ones with `refused`.
fn examples() -> Vec<Value> {
    let text = std::fs::read_to_string("../../test/kube/tests/data/documents.yaml").unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

fn object(example: &Value) -> &str {
    example["object"].as_str().unwrap()
}

fn parsed(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// All that a person sees.
fn seen(ran: &Ran) -> String {
    let said: String = ran.err.lines().map(|l| format!("# {l}\n")).collect();
    format!("# exit status {}\n{said}{}", ran.status.unwrap(), ran.out)
}

#[test]
fn examples_in_the_current_form_come_out_as_they_are() {
    let mut count = 0;
    for example in examples().iter().filter(|e| e.get("refused").is_none()) {
        let object = object(example);
        let ran = noverlay(&["convert", "-f", "-"], object);
        assert_eq!(
            (ran.status, parsed(&ran.out), ran.err.as_str()),
            (Some(0), parsed(object), ""),
            "{object}"
        );
        count += 1;
    }
    assert_eq!(count, 32);
}

#[test]
fn each_older_example_becomes_what_is_stored() {
    let mut names = BTreeSet::new();
    for (at, example) in (1..).zip(&examples()) {
        if example.get("refused").is_none() {
            continue;
        }
        let text = object(example);
        let ran = noverlay(&["convert", "-f", "-"], text);
        let name = format!("{at:02}-{}.yaml", parsed(text)["kind"].as_str().unwrap());
        testkit::golden::compare("convert", &name, &seen(&ran));
        names.insert(name);
        // What is current once stays so.
        if !ran.out.is_empty() {
            let again = noverlay(&["convert", "-f", "-"], &ran.out);
            assert_eq!((again.out, again.err.as_str()), (ran.out, ""));
        }
    }
    assert_eq!(names.len(), 9);
    names.insert("list.yaml".to_owned());
    let stored = std::fs::read_dir("tests/golden/convert").unwrap();
    let stored: BTreeSet<String> = stored
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(stored, names, "no stored text is left over");
}

#[test]
fn items_of_a_list_as_kubectl_prints_it_are_converted() {
    let items: Vec<Value> = examples().iter().map(|e| parsed(object(e))).collect();
    let list = json!({
        "apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": ""},
    });
    let ran = noverlay(&["convert", "-f", "-"], &list.to_string());
    testkit::golden::compare("convert", "list.yaml", &seen(&ran));
    // Each item is what it is alone.
    let out = parsed(&ran.out);
    let alone = items.iter().map(|item| {
        let ran = noverlay(&["convert", "-f", "-"], &item.to_string());
        Some(ran.out).filter(|out| !out.is_empty())
    });
    let alone: Vec<Value> = alone.flatten().map(|text| parsed(&text)).collect();
    assert_eq!(out["items"], Value::from(alone));
    assert_eq!(
        (&out["kind"], &out["metadata"]),
        (&list["kind"], &list["metadata"])
    );
}

#[test]
fn items_of_a_typed_list_bear_the_kind_of_the_list() {
    let item = json!({"metadata": {"name": "a"}, "spec": {"advertisements": {"podNetwork": true}}});
    let list = |kind: &str| json!({"apiVersion": "k8s.ovn.org/v1", "kind": kind, "items": [item]});
    let ran = noverlay(
        &["convert", "-f", "-"],
        &list("RouteAdvertisementsList").to_string(),
    );
    let out = parsed(&ran.out);
    let first = &out["items"][0];
    assert_eq!(first["kind"], "RouteAdvertisements");
    assert_eq!(first["apiVersion"], "k8s.ovn.org/v1");
    assert_eq!(first["spec"]["advertisements"], json!(["PodNetwork"]));
    assert!(ran.err.contains("document 1, item 0: "), "{}", ran.err);
    // Of others nothing is known.
    let other = list("EgressIPList");
    let ran = noverlay(&["convert", "-f", "-"], &other.to_string());
    assert_eq!((parsed(&ran.out), ran.err.as_str()), (other, ""));
}

#[test]
fn what_is_no_object_is_named() {
    for (text, needle) in [
        ("a: b", "document 1 is no object: it has no kind"),
        (
            "kind: List\nitems: [{a: b}]",
            "document 1, item 0 is no object: it has no kind",
        ),
    ] {
        let ran = noverlay(&["convert", "-f", "-"], text);
        assert_eq!((ran.status, ran.out.as_str()), (Some(2), ""), "{text}");
        assert!(ran.err.contains(needle), "{}", ran.err);
    }
}
