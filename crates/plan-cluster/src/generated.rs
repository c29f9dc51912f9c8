//! Objects that are generated for an RA, and how they are told from others.
//! In: objects, names. Out: their names, whether they are such. Invariant: the name is derived from RA, source and node.
//! Not here: their content (`advertise`).

use model::ObjectKey;
use model::frr::FrrConfiguration;
use model::hash;

use crate::world::World;
use crate::{GENERATED_PREFIX, RA_KEY};

/// Name of the generated object: derived from the RA, the source and the node.
#[must_use]
pub fn name(ra: &str, source: &ObjectKey, node: &str) -> String {
    format!(
        "{GENERATED_PREFIX}{}",
        hash::short(&format!("{ra}/{source}/{node}"))
    )
}

/// True where the object was generated for an RA, by us or by OVN-Kubernetes.
#[must_use]
pub fn is_generated(object: &FrrConfiguration) -> bool {
    object.key.name.starts_with(GENERATED_PREFIX)
}

/// Objects of ours that were generated for this RA.
#[must_use]
pub fn owned<'a>(world: &'a World, ra: &str) -> Vec<&'a FrrConfiguration> {
    world
        .frr
        .values()
        .filter_map(|o| o.as_ref().ok())
        .filter(|o| is_generated_for(o, ra))
        .collect()
}

/// The same for one RA.
#[must_use]
pub fn is_generated_for(object: &FrrConfiguration, ra: &str) -> bool {
    is_generated(object) && object.labels.get(RA_KEY).map(String::as_str) == Some(ra)
}
