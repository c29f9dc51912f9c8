//! Which of the objects that were read count for a node.
//! In: objects as they were read, the node's labels. Out: the objects to merge, and what is wrong with the others.
//! Invariant: an object that cannot be read stops the node's new configuration, as with frr-k8s; one that uses EVPN
//! costs itself only.
//! Not here: what the objects say together (`merge`).

use std::sync::Arc;

use model::frr::{FrrConfiguration, Source};
use model::problem::Problem;
use model::selector::Labels;

/// What counts for a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selected {
    /// Objects to merge.
    pub objects: Vec<Arc<FrrConfiguration>>,
    /// Objects that use what we cannot do; the others stand.
    pub left_out: Vec<Problem>,
    /// What stops the node's configuration; empty is good.
    pub broken: Vec<Problem>,
}

/// Selects the objects of a node by its labels. The caller has chosen the namespace.
#[must_use]
pub fn select<'a>(sources: impl IntoIterator<Item = &'a Source>, labels: &Labels) -> Selected {
    let mut out = Selected::default();
    for source in sources {
        let selector = source.node_selector.as_ref();
        if !selector.is_none_or(|s| s.matches(labels)) {
            continue;
        }
        match &source.object {
            Ok(object) => match object.evpn() {
                None => out.objects.push(Arc::clone(object)),
                Some(problem) => out.left_out.push(problem),
            },
            Err(list) => out.broken.extend(list.iter().cloned()),
        }
    }
    out.left_out.sort();
    out.broken.sort();
    out
}

#[cfg(test)]
mod tests {
    use model::names::ObjectKey;
    use model::selector::LabelSelector;

    use super::*;

    fn source(name: &str, selector: Option<LabelSelector>, reason: Option<&'static str>) -> Source {
        let key = ObjectKey::new("frr", name);
        let object = match reason {
            None => Ok(Arc::new(crate::builders::mk_object(name, Vec::new()))),
            Some(reason) => Err(vec![Problem::new(name, reason, "wrong")]),
        };
        Source {
            key,
            node_selector: selector,
            object,
            remains: model::frr::Remains::default(),
        }
    }

    #[test]
    fn an_object_of_evpn_costs_itself_and_a_broken_one_the_node_whose_labels_it_selects() {
        let labels = Labels::from([("a".to_owned(), "b".to_owned())]);
        let all = Some(LabelSelector::default());
        let other = Some(LabelSelector::label("a", "c"));
        let mut evpn = source("evpn", all.clone(), None);
        let mut router = crate::builders::mk_router("", &[], Vec::new());
        router.evpn = Some("{}".to_owned());
        evpn.object = Ok(Arc::new(crate::builders::mk_object("evpn", vec![router])));
        let sources = [
            source("good", all.clone(), None),
            evpn,
            source("broken", all, Some("ConversionFailed")),
            source("elsewhere", other.clone(), None),
            source("broken-elsewhere", other, Some("ConversionFailed")),
            source("who-knows", None, Some("ConversionFailed")),
        ];
        let seen = select(&sources, &labels);
        let names: Vec<&str> = seen.objects.iter().map(|o| o.key.name.as_str()).collect();
        assert_eq!(names, ["good"]);
        let of =
            |list: &[Problem]| -> Vec<String> { list.iter().map(|p| p.subject.clone()).collect() };
        assert_eq!(seen.left_out.len(), 1);
        assert!(
            of(&seen.left_out)[0].ends_with("/evpn"),
            "{:?}",
            seen.left_out
        );
        assert_eq!(of(&seen.broken), ["broken", "who-knows"]);
    }
}
