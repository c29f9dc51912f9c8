//! Whether OVN-Kubernetes advertises networks itself beside us.
//! In: the world. Out: by which object it is known, and what follows. Invariant: what we write ourselves is no sign.
//! Not here: what is left undone (the cluster-manager).

use std::collections::{BTreeMap, BTreeSet};

use model::ObjectKey;
use model::problem::Problem;
use model::user_network::attachment::ROUTE_ADVERTISEMENTS;
use model::user_network::{Attachment, ClusterUserDefinedNetwork};

use crate::world::World;

/// Reason of the problem: two programs would answer the same RouteAdvertisements.
pub const ADVERTISED: &str = "AdvertisedByOvnKubernetes";

/// The NetworkAttachmentDefinition by which it is known that OVN-Kubernetes serves RouteAdvertisements itself: it names there those that
/// select the network, and beside it nobody else does ([`World::beside`]). Whoever may write such objects in some namespace may annotate
/// them as it likes: only the default network's (`default`, `[default] cluster-default-nad`) and those that a
/// ClusterUserDefinedNetwork owns in a namespace that it selects are believed, and of RouteAdvertisements those that exist.
/// One object is enough: OVN-Kubernetes writes to one after the other. So a tenant who may edit one can name one.
#[must_use]
pub fn advertises(world: &World, default: &ObjectKey) -> Option<(ObjectKey, Problem)> {
    let cudns: BTreeMap<&str, &ClusterUserDefinedNetwork> =
        (world.cudns.values().map(|cudn| (cudn.uid.as_str(), cudn))).collect();
    let selects = |cudn: &ClusterUserDefinedNetwork, namespace: &str| {
        let labels = world.namespaces.get(namespace).map(|of| &of.labels);
        let selector = cudn.namespaces.as_ref();
        // One that cannot be read takes no network's word away.
        selector.map_or(true, |selector| {
            labels.is_some_and(|of| selector.matches(of))
        })
    };
    let is_of_network = |key: &ObjectKey, attachment: &Attachment| {
        let owner = attachment.owner.as_deref();
        let cudn = owner.and_then(|uid| cudns.get(uid));
        key == default || cudn.is_some_and(|cudn| selects(cudn, &key.namespace))
    };
    let attachments = world.attachments.iter().filter(|_| world.beside);
    let attachments = attachments.filter(|(key, of)| is_of_network(key, of));
    let mut networks: BTreeMap<Option<&str>, (&ObjectKey, BTreeSet<String>)> = BTreeMap::new();
    for (key, attachment) in attachments {
        let mut named = attachment.advertisements();
        named.retain(|name| world.ras.contains_key(name));
        if named.is_empty() {
            continue;
        }
        let network = (key != default)
            .then_some(attachment.owner.as_deref())
            .flatten();
        let said = networks.entry(network);
        said.and_modify(|(_, all)| all.extend(named.iter().cloned()))
            .or_insert((key, named));
    }
    let (key, names) = networks
        .into_values()
        .find(|(_, names)| !names.is_empty())?;
    let names = Vec::from_iter(names).join(", ");
    let text = format!(
        "annotation {ROUTE_ADVERTISEMENTS} names RouteAdvertisements {names}: OVN-Kubernetes advertises networks itself, and noverlay leaves FRRConfigurations and RouteAdvertisements as they are; allowed: enable-route-advertisements=false of OVN-Kubernetes, and no such annotation, which stays when that is switched off"
    );
    let subject = format!("NetworkAttachmentDefinition/{key}");
    Some((key.clone(), Problem::new(subject, ADVERTISED, text)))
}

#[cfg(test)]
mod tests {
    use model::user_network::Namespace;

    use super::*;
    use crate::samples::{mk_cudn, mk_world};

    #[test]
    fn what_ovn_kubernetes_serves_is_known_by_its_annotation_and_beside_it_only() {
        let mut world = mk_world();
        world.ras.insert("a".to_owned(), Err("unread".to_owned()));
        let key = ObjectKey::new("ovn-kubernetes", "default");
        let said = |names: &str| Attachment {
            annotations: [(ROUTE_ADVERTISEMENTS.to_owned(), names.to_owned())].into(),
            ..Attachment::default()
        };
        for (beside, names, is_sign) in [
            (true, r#"["a"]"#, true),
            (true, "[]", false),
            (true, r#"["gone"]"#, false),
            (true, "", false),
            // Where the topology is built here, we name them ourselves.
            (false, r#"["a"]"#, false),
        ] {
            world.beside = beside;
            world.attachments = [(key.clone(), said(names))].into();
            let found = advertises(&world, &key);
            assert_eq!(found.is_some(), is_sign, "{beside} {names}");
            let Some((of, problem)) = found else { continue };
            assert_eq!(of, key);
            let text = problem.to_string();
            assert!(text.contains("RouteAdvertisements a:"), "{text}");
        }
    }

    #[test]
    fn what_somebody_annotates_in_some_namespace_is_no_sign() {
        let mut world = mk_world();
        world.ras.insert("a".to_owned(), Err("unread".to_owned()));
        world.beside = true;
        let red = mk_cudn("red", 1);
        let owner = red.uid.clone();
        world.cudns = [("red".to_owned(), red)].into();
        select(&mut world, "tenant");
        let said = |owner: Option<&str>| Attachment {
            annotations: [(ROUTE_ADVERTISEMENTS.to_owned(), r#"["a"]"#.to_owned())].into(),
            owner: owner.map(str::to_owned),
            ..Attachment::default()
        };
        let default = ObjectKey::new("ovn-kubernetes", "default");
        for (owner, is_sign) in [(None, false), (Some("x"), false), (Some(&*owner), true)] {
            let key = ObjectKey::new("tenant", "default");
            world.attachments = [(key, said(owner))].into();
            assert_eq!(advertises(&world, &default).is_some(), is_sign, "{owner:?}");
        }
    }

    /// A namespace of network red.
    fn select(world: &mut World, name: &str) {
        let namespace = Namespace {
            labels: [("tenant".to_owned(), "red".to_owned())].into(),
            ..Namespace::default()
        };
        world.namespaces.insert(name.to_owned(), namespace);
    }

    #[test]
    fn of_a_networks_namespaces_one_that_says_something_is_enough() {
        let mut world = mk_world();
        for name in ["a", "b"] {
            world.ras.insert(name.to_owned(), Err("unread".to_owned()));
        }
        world.beside = true;
        let red = mk_cudn("red", 1);
        let owner = red.uid.clone();
        world.cudns = [("red".to_owned(), red)].into();
        let said = |names: &str| Attachment {
            annotations: [(ROUTE_ADVERTISEMENTS.to_owned(), names.to_owned())].into(),
            owner: Some(owner.clone()),
            ..Attachment::default()
        };
        let default = ObjectKey::new("ovn-kubernetes", "default");
        select(&mut world, "x");
        select(&mut world, "y");
        for (first, second, third, is_sign) in [
            // It is on its way to the second, or to the first.
            (r#"["a"]"#, "", "", true),
            ("", r#"["a"]"#, "", true),
            // It is on its way from one to another.
            (r#"["a"]"#, r#"["b"]"#, "", true),
            (r#"["a"]"#, r#"["a","b"]"#, "", true),
            // Of a namespace that is none of the network's.
            ("", "", r#"["a"]"#, false),
            (r#"["a"]"#, r#"["a"]"#, r#"["b"]"#, true),
        ] {
            let of = |namespace: &str, names| (ObjectKey::new(namespace, "red"), said(names));
            world.attachments = [of("x", first), of("y", second), of("z", third)].into();
            let found = advertises(&world, &default);
            assert_eq!(found.is_some(), is_sign, "{first} {second}");
            let Some((_, problem)) = found else { continue };
            assert!(problem.to_string().contains("RouteAdvertisements a"));
        }
    }
}
