//! What is known of the report that stands at the API server.
//! In: what was known, an answer or none. Out: what is known now, and whether it bears the marks of this Node.
//! Invariant: an answer that did not come is never taken for a report that is not there: what it had reported would be reported
//! again, as new. Not here: asking, writing.

use api::node_routes::{NodeRoutes, NodeRoutesStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// The cluster-manager deletes what bears this label and nothing else.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "noverlay");

/// A report.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Report {
    /// The uid of the Node whose it is.
    pub(super) uid: String,
    /// Whether it bears our label and that Node as its owner.
    pub(super) marked: bool,
    pub(super) status: NodeRoutesStatus,
}

/// Nothing is known of the report, so nothing can be reported of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unread;

/// What is known of the report of Node `uid` after it was asked for; `asked` is `None` where no answer came.
pub(super) fn after(
    known: Option<Report>,
    uid: &str,
    asked: Option<Option<NodeRoutes>>,
) -> Result<Option<Report>, Unread> {
    match asked {
        Some(found) => Ok(found.map(|report| Report {
            uid: uid.to_owned(),
            marked: is_marked(&report.metadata, uid),
            status: report.status.unwrap_or_default(),
        })),
        // A Node that was deleted took its report along, and came back as another one.
        None => known
            .filter(|report| report.uid == uid)
            .map(Some)
            .ok_or(Unread),
    }
}

/// Label and owner of the report of Node `name` with this uid. Where a garbage collector runs, the report goes with the node.
pub(super) fn marks(name: &str, uid: &str) -> Value {
    let (key, value) = MANAGED_BY;
    json!({
        "labels": {key: value},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}],
    })
}

/// An older version wrote no label, and a Node that came back has another uid: an owner that is no more takes the report
/// along.
fn is_marked(metadata: &ObjectMeta, uid: &str) -> bool {
    let (key, value) = MANAGED_BY;
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let mut of_nodes = owners
        .iter()
        .filter(|owner| owner.kind == "Node")
        .peekable();
    let owned = of_nodes.peek().is_some() && of_nodes.all(|owner| owner.uid == uid);
    label.is_some_and(|found| found == value) && owned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_report(uid: &str) -> Report {
        Report {
            uid: uid.to_owned(),
            marked: true,
            status: NodeRoutesStatus::default(),
        }
    }

    /// The object of node n1, with these marks.
    fn mk_object(metadata: Value) -> NodeRoutes {
        let mut object = json!({
            "apiVersion": "noverlay.io/v1alpha1", "kind": "NodeRoutes",
            "metadata": metadata, "spec": {}, "status": {},
        });
        object["metadata"]["name"] = "n1".into();
        serde_json::from_value(object).unwrap()
    }

    fn marked(metadata: Value, uid: &str) -> bool {
        let found = after(None, uid, Some(Some(mk_object(metadata))));
        found.unwrap().unwrap().marked
    }

    #[test]
    fn an_answer_that_did_not_come_is_no_report_that_is_gone() {
        let known = Some(mk_report("a"));
        assert_eq!(after(known.clone(), "a", None), Ok(known.clone()));
        assert_eq!(after(None, "a", None), Err(Unread));
        assert_eq!(after(known, "b", None), Err(Unread), "of another Node");
    }

    #[test]
    fn an_answer_counts_for_what_it_says() {
        let found = after(None, "b", Some(Some(mk_object(marks("n1", "b")))));
        assert_eq!(found, Ok(Some(mk_report("b"))));
        assert_eq!(after(Some(mk_report("b")), "b", Some(None)), Ok(None));
    }

    #[test]
    fn a_report_of_an_older_version_gets_label_and_owner() {
        assert!(marked(marks("n1", "a"), "a"), "nothing to do");
        assert!(!marked(json!({}), "a"));
        for mark in ["labels", "ownerReferences"] {
            let mut metadata = marks("n1", "a");
            metadata.as_object_mut().unwrap().remove(mark);
            assert!(!marked(metadata, "a"), "without {mark}");
        }
        let mut metadata = marks("n1", "a");
        metadata["labels"][MANAGED_BY.0] = "somebody".into();
        assert!(!marked(metadata, "a"));
    }

    #[test]
    fn a_report_of_a_node_that_came_back_gets_its_new_owner() {
        let before = marks("n1", "a");
        assert!(!marked(before.clone(), "b"));
        assert!(marked(marks("n1", "b"), "b"));
        // The one that is no more must go, or it takes the report along.
        let mut both = marks("n1", "b");
        let old = before["ownerReferences"][0].clone();
        both["ownerReferences"].as_array_mut().unwrap().push(old);
        assert!(!marked(both, "b"));
    }
}
