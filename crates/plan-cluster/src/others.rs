//! Whether OVN-Kubernetes advertises networks itself beside us.
//! In: the world. Out: by which object it is known, and what follows. Invariant: what we write ourselves is no sign.
//! Not here: what is left undone (the cluster-manager).

use std::collections::BTreeSet;

use model::ObjectKey;
use model::problem::Problem;
use model::user_network::Attachment;
use model::user_network::attachment::ROUTE_ADVERTISEMENTS;

use crate::world::World;

/// Reason of the problem: two programs would answer the same RouteAdvertisements.
pub const ADVERTISED: &str = "AdvertisedByOvnKubernetes";

/// The NetworkAttachmentDefinition by which it is known that OVN-Kubernetes serves RouteAdvertisements itself: it names there those that
/// select the network, and beside it nobody else does ([`World::beside`]). Whoever may write such objects in some namespace may annotate
/// them as it likes: only the default network's (`default`, `[default] cluster-default-nad`) and those that a
/// ClusterUserDefinedNetwork owns are believed, and of RouteAdvertisements those that exist. A tenant who may edit the object of its own
/// network can still name one of these.
#[must_use]
pub fn advertises(world: &World, default: &ObjectKey) -> Option<(ObjectKey, Problem)> {
    let cudns: BTreeSet<&str> = world.cudns.values().map(|cudn| cudn.uid.as_str()).collect();
    let is_of_network = |key: &ObjectKey, attachment: &Attachment| {
        let owner = attachment.owner.as_deref();
        key == default || owner.is_some_and(|uid| cudns.contains(uid))
    };
    let attachments = world.attachments.iter().filter(|_| world.beside);
    let mut attachments = attachments.filter(|(key, of)| is_of_network(key, of));
    let existing = |attachment: &Attachment| -> Vec<String> {
        let named = attachment.advertisements().into_iter();
        named.filter(|name| world.ras.contains_key(name)).collect()
    };
    let (key, attachment) = attachments.find(|(_, a)| !existing(a).is_empty())?;
    let names = existing(attachment);
    let names = names.join(", ");
    let text = format!(
        "annotation {ROUTE_ADVERTISEMENTS} names RouteAdvertisements {names}: OVN-Kubernetes advertises networks itself, and noverlay leaves FRRConfigurations and RouteAdvertisements as they are; allowed: enable-route-advertisements=false of OVN-Kubernetes, and no such annotation, which stays when that is switched off"
    );
    let subject = format!("NetworkAttachmentDefinition/{key}");
    Some((key.clone(), Problem::new(subject, ADVERTISED, text)))
}

#[cfg(test)]
mod tests {
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
}
