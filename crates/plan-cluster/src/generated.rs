//! Objects that are generated for an RA, and how they are distinguished from others.
//! In: objects, readable or not. Out: their names, whose they are. Invariant: the name is derived from RA, source and node;
//! ours are those that bear our managed-by label, and nothing else is ours to delete.
//! Not here: their content (`advertise`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::frr::{FrrConfiguration, Remains, Router};
use model::selector::Labels;
use model::{Network, NetworkName, ObjectKey, Prefix, hash};

use crate::world::World;
use crate::{GENERATED_PREFIX, MANAGED_BY, RA_KEY};

/// Most characters of a label's value (Kubernetes).
const LABEL_VALUE: usize = 63;

/// Name of the generated object: derived from the RA, the source and the node.
#[must_use]
pub fn name(ra: &str, source: &ObjectKey, node: &str) -> String {
    format!(
        "{GENERATED_PREFIX}{}",
        hash::short(&format!("{ra}/{source}/{node}"))
    )
}

/// The label's value for an RA: its name, or where that is longer than a value may be, its beginning and a hash of it.
#[must_use]
pub fn label_value(ra: &str) -> String {
    if ra.len() <= LABEL_VALUE {
        return ra.to_owned();
    }
    let hash = hash::short(ra);
    let most = LABEL_VALUE.saturating_sub(hash.len() + 1);
    let head: String = ra.chars().take(most).collect();
    format!("{head}-{hash}")
}

/// True where the object was generated for an RA, by us or by OVN-Kubernetes.
#[must_use]
pub fn is_generated(object: &FrrConfiguration) -> bool {
    object.key.name.starts_with(GENERATED_PREFIX)
}

/// True where we generated the object, and so may change and delete it. Name and RA's label alone say nothing: OVN-Kubernetes
/// gives its own objects the same.
#[must_use]
pub fn is_ours(object: &FrrConfiguration) -> bool {
    is_generated(object) && bears_our_label(&object.labels)
}

fn bears_our_label(labels: &Labels) -> bool {
    labels.get(MANAGED_BY.0).map(String::as_str) == Some(MANAGED_BY.1)
}

/// A generated object, readable or not, ours or not.
#[derive(Debug, Clone, Copy)]
pub struct Generated<'a> {
    /// Namespace and name.
    pub key: &'a ObjectKey,
    labels: &'a Labels,
    annotations: &'a BTreeMap<String, String>,
    what: What<'a>,
}

#[derive(Debug, Clone, Copy)]
enum What<'a> {
    Whole(&'a Arc<FrrConfiguration>),
    Remains(&'a Remains),
}

impl<'a> Generated<'a> {
    /// It bears our managed-by label.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        bears_our_label(self.labels)
    }

    /// [`label_value`] of the RA it was generated for.
    #[must_use]
    pub fn label(&self) -> Option<&'a str> {
        self.labels.get(RA_KEY).map(String::as_str)
    }

    /// RA, source and node of its annotation.
    fn identity(&self) -> Option<(&'a str, &'a str, &'a str)> {
        let (rest, node) = self.annotations.get(RA_KEY)?.rsplit_once('/')?;
        let (ra, source) = rest.rsplit_once('/')?;
        Some((ra, source, node))
    }

    /// Name of the source, without namespace.
    #[must_use]
    pub fn source(&self) -> Option<&'a str> {
        self.identity().map(|(_, source, _)| source)
    }

    /// Name of the node it was generated for.
    #[must_use]
    pub fn node(&self) -> Option<&'a str> {
        self.identity().map(|(.., node)| node)
    }

    /// The object, where it can be read.
    #[must_use]
    pub fn object(&self) -> Option<&'a Arc<FrrConfiguration>> {
        match self.what {
            What::Whole(object) => Some(object),
            What::Remains(_) => None,
        }
    }

    /// What it originates, by network: what lies in the network's subnets, by the routers that serve it: that of its VRF, and
    /// that which takes in the routes of its VRF. Two networks with one subnet have two VRFs.
    #[must_use]
    pub fn originated(&self, vrfs: &Vrfs<'a>) -> Vec<(&'a NetworkName, Prefix)> {
        let mut out = Vec::new();
        match self.what {
            What::Remains(remains) => {
                let all: Vec<&'a Network> = vrfs.0.values().flatten().copied().collect();
                for prefix in &remains.prefixes {
                    put(&mut out, &all, *prefix);
                }
            }
            What::Whole(object) => {
                for router in &object.routers {
                    let own = vrfs.networks(vrf_of(router));
                    let imports = router.imports.iter();
                    let leaked = imports.flat_map(|vrf| vrfs.networks(vrf)).copied();
                    let leaked: Vec<&'a Network> = leaked.collect();
                    for prefix in &router.prefixes {
                        if !put(&mut out, own, *prefix) {
                            put(&mut out, &leaked, *prefix);
                        }
                    }
                }
            }
        }
        out
    }
}

/// Takes down for each network in whose subnets a prefix lies that it is originated; false where there is none.
fn put<'a>(
    out: &mut Vec<(&'a NetworkName, Prefix)>,
    networks: &[&'a Network],
    prefix: Prefix,
) -> bool {
    let before = out.len();
    for network in networks {
        let mut subnets = network.prefixes();
        if subnets.any(|subnet| subnet.overlaps(&prefix)) {
            out.push((&network.name, prefix));
        }
    }
    out.len() > before
}

/// The networks by the name of their VRF.
#[derive(Debug, Default)]
pub struct Vrfs<'a>(BTreeMap<String, Vec<&'a Network>>);

impl<'a> Vrfs<'a> {
    /// Those of the world.
    #[must_use]
    pub fn of(world: &'a World) -> Self {
        let mut out: BTreeMap<String, Vec<&Network>> = BTreeMap::new();
        for network in world.networks.values() {
            out.entry(own_vrf(network)).or_default().push(network);
        }
        Self(out)
    }

    /// Those of a VRF.
    pub(crate) fn networks(&self, vrf: &str) -> &[&'a Network] {
        self.0.get(vrf).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Whether the object that stands there already is what is wanted; other people's labels and annotations do not count.
#[must_use]
pub fn is_as_wanted(existing: &FrrConfiguration, wanted: &FrrConfiguration) -> bool {
    let covers = |have: &BTreeMap<String, String>, want: &BTreeMap<String, String>| {
        want.iter().all(|(k, v)| have.get(k) == Some(v))
    };
    covers(&existing.labels, &wanted.labels)
        && covers(&existing.annotations, &wanted.annotations)
        && existing.node_selector == wanted.node_selector
        && existing.routers == wanted.routers
        && existing.bfd_profiles == wanted.bfd_profiles
        && existing.raw == wanted.raw
}

/// What our objects originate, by network and node; objects that name no node count as one node's.
pub type Originated<'a> = BTreeMap<&'a NetworkName, BTreeMap<&'a str, Vec<Prefix>>>;

/// [`Originated`] by these objects.
#[must_use]
pub fn originated<'a>(
    world: &'a World,
    objects: impl Iterator<Item = Generated<'a>>,
) -> Originated<'a> {
    let vrfs = Vrfs::of(world);
    let mut out = Originated::new();
    for object in objects {
        let node = object.node().unwrap_or_default();
        for (network, prefix) in object.originated(&vrfs) {
            let of_network = out.entry(network).or_default();
            of_network.entry(node).or_default().push(prefix);
        }
    }
    out
}

/// Name of the default VRF.
pub const DEFAULT_VRF: &str = "default";

/// Name of a router's VRF.
#[must_use]
pub fn vrf_of(router: &Router) -> &str {
    if router.vrf.is_empty() {
        DEFAULT_VRF
    } else {
        &router.vrf
    }
}

/// The VRF of a network on its nodes; [`DEFAULT_VRF`] for the default network.
#[must_use]
pub fn own_vrf(network: &Network) -> String {
    let device = network.name.vrf_device(network.id);
    device.unwrap_or_else(|| DEFAULT_VRF.to_owned())
}

/// Every generated object of the world, ours or not.
pub fn all(world: &World) -> impl Iterator<Item = Generated<'_>> {
    let generated = world
        .frr
        .iter()
        .filter(|(key, _)| key.name.starts_with(GENERATED_PREFIX));
    generated.filter_map(|(key, object)| match object {
        Ok(object) => Some(Generated {
            key,
            labels: &object.labels,
            annotations: &object.annotations,
            what: What::Whole(object),
        }),
        Err(_) => world.unreadable.get(key).map(|remains| Generated {
            key,
            labels: &remains.labels,
            annotations: &remains.annotations,
            what: What::Remains(remains),
        }),
    })
}

/// Objects of ours that were generated for this RA, readable or not.
#[must_use]
pub fn owned<'a>(world: &'a World, ra: &str) -> Vec<Generated<'a>> {
    let value = label_value(ra);
    all(world)
        .filter(|o| o.is_ours() && o.label() == Some(value.as_str()))
        .collect()
}

/// Names of RAs that are gone, and of which objects of ours are left.
#[must_use]
pub fn left_behind(world: &World) -> Vec<String> {
    let known: BTreeSet<String> = world.ras.keys().map(|ra| label_value(ra)).collect();
    let out: BTreeSet<String> = all(world)
        .filter(Generated::is_ours)
        .filter_map(|o| {
            let label = o.label().filter(|l| !known.contains(*l))?;
            let named = o.identity().map(|(ra, ..)| ra);
            let named = named.filter(|ra| label_value(ra) == label);
            Some(named.unwrap_or(label).to_owned())
        })
        .collect();
    out.into_iter().collect()
}
