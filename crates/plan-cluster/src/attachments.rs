//! The NetworkAttachmentDefinitions of ClusterUserDefinedNetworks, and the condition `NetworkCreated`.
//! In: the world, and which RouteAdvertisements serve which network. Out: objects to have and to let go, finalizers, labels,
//! conditions.
//! Invariant: an object that is not ours is left alone, whatever it is called; one that goes is let go only when no pod uses
//! it (asked by whoever writes), and is made again only after it is gone; what a broken ClusterUserDefinedNetwork has it keeps.
//! Not here: the default network's object ([`of_default_network`]), ids (`user_networks`), whether a pod uses an object.

mod of_default;
mod tunnel_keys;

use std::collections::{BTreeMap, BTreeSet};

use model::intent::Condition;
pub use model::user_network::attachment::{FINALIZER, LABEL};
use model::user_network::attachment::{ROUTING, TUNNEL_KEYS, names_in, routing_word};
use model::user_network::{
    Attachment, ClusterUserDefinedNetwork, Namespace, UserNetwork, UserTransport,
};
use model::{NetworkName, ObjectKey};

use crate::RA_KEY;
use crate::advertise;
use crate::suitable;
use crate::user_networks::{self, Ids, NETWORK_ID, NETWORK_NAME, Owners};
use crate::world::World;
pub use of_default::{Configured, DefaultWanted, REFUSED, of_default_network};
use tunnel_keys::TunnelKeys;

/// Label that a namespace needs for a primary network (OVN-Kubernetes' own).
pub const PRIMARY_LABEL: &str = "k8s.ovn.org/primary-user-defined-network";
/// Label of a managed network, by which its RouteAdvertisements selects it; its value is the object's name.
pub const NAME_LABEL: &str = "k8s.ovn.org/metadata.name";
/// Annotations that begin so belong to OVN-Kubernetes and to us, and are not copied from the network.
const RESERVED: &str = "k8s.ovn.org";
/// An object to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// `metadata.labels` of ours.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations` of ours.
    pub annotations: BTreeMap<String, String>,
    /// The network that `spec.config` describes, and its name.
    pub network: (NetworkName, UserNetwork),
    /// Name and uid of the ClusterUserDefinedNetwork that is its controller.
    pub owner: (String, String),
}

impl Wanted {
    /// Whether the object that stands there is as it should be, but for its configuration; other people's labels and
    /// annotations do not count.
    #[must_use]
    pub fn describes(&self, existing: &Attachment) -> bool {
        let covers = |have: &BTreeMap<String, String>, want: &BTreeMap<String, String>| {
            want.iter().all(|(key, value)| have.get(key) == Some(value))
        };
        covers(&existing.labels, &self.labels)
            && covers(&existing.annotations, &self.annotations)
            && existing.finalizers.contains(FINALIZER)
            && existing.owner.as_ref() == Some(&self.owner.1)
    }

    /// Whether it gives something away that the object does not have yet: a name, an id, tunnel keys.
    #[must_use]
    pub fn allocates(&self, existing: Option<&Attachment>) -> bool {
        existing.is_none_or(|existing| {
            let differs = |key: &&str| existing.annotations.get(*key) != self.annotations.get(*key);
            [NETWORK_NAME, NETWORK_ID, TUNNEL_KEYS].iter().any(differs)
        })
    }
}

/// What is planned of all ClusterUserDefinedNetworks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Objects to have.
    pub desired: BTreeMap<ObjectKey, Wanted>,
    /// Objects of ours to let go, each with the ClusterUserDefinedNetwork that it was made for, where that is still there.
    pub surplus: BTreeMap<ObjectKey, Option<String>>,
    /// ClusterUserDefinedNetworks that are to bear the finalizer (true), or to be let go (false).
    pub finalizers: BTreeMap<String, bool>,
    /// By ClusterUserDefinedNetwork: `NetworkCreated`.
    pub created: BTreeMap<String, Condition>,
}

/// The plan. `advertised` are the names of the RouteAdvertisements that serve each network.
#[must_use]
pub fn plan(world: &World, advertised: &BTreeMap<NetworkName, BTreeSet<String>>) -> Plan {
    let mut maker = Maker {
        world,
        advertised,
        ids: user_networks::ids(world),
        owners: Owners::of(world),
        keys: TunnelKeys::of(world),
        claimed: BTreeMap::new(),
        plan: Plan::default(),
    };
    let mut cudns: Vec<&ClusterUserDefinedNetwork> = world.cudns.values().collect();
    cudns.sort_by_key(|cudn| (cudn.created, &cudn.name));
    for cudn in cudns {
        maker.one(cudn);
    }
    let mut plan = maker.plan;
    orphans(world, &mut plan);
    plan
}

/// Makes the plan, one ClusterUserDefinedNetwork after the other.
struct Maker<'a> {
    world: &'a World,
    advertised: &'a BTreeMap<NetworkName, BTreeSet<String>>,
    ids: Ids,
    owners: Owners<'a>,
    keys: TunnelKeys,
    /// Namespaces that got a primary network in this plan, and whose.
    claimed: BTreeMap<&'a str, &'a str>,
    plan: Plan,
}

impl<'a> Maker<'a> {
    fn one(&mut self, cudn: &'a ClusterUserDefinedNetwork) {
        let own: BTreeMap<_, _> = owned(self.world, &self.owners, cudn).collect();
        if cudn.deleting {
            return self.plan.deleting(cudn, own.into_keys());
        }
        for (key, _) in own.iter().filter(|(_, attachment)| attachment.deleting) {
            let network = Some(cudn.name.clone());
            self.plan.surplus.insert((*key).clone(), network);
        }
        let network = match &cudn.network {
            Ok(network) => network,
            Err(why) => {
                let why = why.clone();
                return self.plan.failed(&cudn.name, "NetworkNotSupported", why);
            }
        };
        let unsuitable = suitable::subnets(self.world, network);
        // Nothing is made of what is wrong from the first; what runs goes on with what was right.
        if !network.refused.is_empty() && own.is_empty() {
            let why = network.refused.join("; ");
            return self.plan.failed(&cudn.name, "NetworkNotSupported", why);
        }
        // What stands stays: its pods have their addresses.
        if let Some(why) = unsuitable.clone().filter(|_| own.is_empty()) {
            return self.plan.failed(&cudn.name, "SubnetsInUse", why);
        }
        let too_large = suitable::mtu(self.world, network);
        if let Some(why) = too_large.clone().filter(|_| own.is_empty()) {
            return self.plan.failed(&cudn.name, "MTUTooLarge", why);
        }
        if let Some((id, elder)) = self.ids.taken.get(&cudn.name) {
            let text = format!(
                "network id {id} of its NetworkAttachmentDefinitions is that of ClusterUserDefinedNetwork {elder}, which is older"
            );
            return self.plan.failed(&cudn.name, SYNC_ERROR, text);
        }
        let Some(id) = self.ids.given.get(&cudn.name).copied() else {
            let text = "no network id is left: 4095 networks have one".to_owned();
            return self.plan.failed(&cudn.name, SYNC_ERROR, text);
        };
        self.plan.finalizers.insert(cudn.name.clone(), true);
        let (good, mut wrong) = self.namespaces(cudn, network, id, &own);
        wrong.extend(unsuitable);
        wrong.extend(network.refused.iter().cloned());
        wrong.extend(cudn.namespaces.as_ref().err().cloned());
        for key in own.into_keys() {
            if !self.plan.desired.contains_key(key) {
                let network = Some(cudn.name.clone());
                self.plan.surplus.insert(key.clone(), network);
            }
        }
        if !wrong.is_empty() {
            return self.plan.failed(&cudn.name, SYNC_ERROR, wrong.join("; "));
        }
        let mut text = format!(
            "NetworkAttachmentDefinition has been created in following namespaces: [{}]",
            good.join(", ")
        );
        // A node that came later takes nothing from a network that runs.
        if let Some(why) = too_large {
            text.push_str(&format!("; {why}"));
        }
        let condition = created(true, "NetworkAttachmentDefinitionCreated", text);
        self.plan.created.insert(cudn.name.clone(), condition);
    }

    /// Plans the object of each selected namespace; those that have it, and why others cannot.
    fn namespaces(
        &mut self,
        cudn: &'a ClusterUserDefinedNetwork,
        network: &UserNetwork,
        id: u16,
        own: &BTreeMap<&ObjectKey, &Attachment>,
    ) -> (Vec<&'a str>, Vec<String>) {
        let keys = self.keys.of_network(cudn, network, id);
        let advertised = self.advertised.get(&cudn.network_name());
        let (mut good, mut wrong) = (Vec::new(), Vec::new());
        for (name, namespace) in &self.world.namespaces {
            let key = ObjectKey::new(name, &cudn.name);
            let existing = own.get(&key).copied();
            let is_kept = cudn.namespaces.is_err() && existing.is_some();
            if namespace.deleting || !(cudn.selects(namespace) || is_kept) {
                continue;
            }
            if existing.is_none()
                && let Some(why) = self.unavailable(network, &key, namespace)
            {
                wrong.push(why);
                continue;
            }
            if network.primary {
                self.claimed.insert(name, &cudn.name);
            }
            if existing.is_some_and(|e| e.deleting) {
                wrong.push(format!(
                    "NetworkAttachmentDefinition [{key}] is being deleted; it is made again once it is gone"
                ));
                continue;
            }
            good.push(name.as_str());
            let wanted = wanted(cudn, network, id, &keys, advertised, existing);
            self.plan.desired.insert(key, wanted);
        }
        (good, wrong)
    }

    /// Why a namespace that is selected cannot have its object.
    fn unavailable(
        &self,
        network: &UserNetwork,
        key: &ObjectKey,
        namespace: &Namespace,
    ) -> Option<String> {
        let name = &key.namespace;
        if network.primary && !namespace.labels.contains_key(PRIMARY_LABEL) {
            return Some(format!(
                "namespace {name} lacks label {PRIMARY_LABEL}, which it must have had from the start to have a primary network of its own"
            ));
        }
        if self.world.attachments.contains_key(key) {
            return Some(format!(
                "foreign NetworkAttachmentDefinition with the desired name already exist [{key}]"
            ));
        }
        let other = primary_of(self.world, name, &self.claimed).filter(|_| network.primary)?;
        Some(format!(
            "primary network already exist in namespace {name:?}: {other:?}"
        ))
    }
}

/// Reason of `NetworkCreated` where an object cannot be had.
pub const SYNC_ERROR: &str = "NetworkAttachmentDefinitionSyncError";

fn created(status: bool, reason: &str, message: String) -> Condition {
    Condition {
        kind: "NetworkCreated",
        status,
        reason: reason.to_owned(),
        message,
    }
    .fitted()
}

impl Plan {
    /// The network goes: its objects first.
    fn deleting<'a>(
        &mut self,
        cudn: &ClusterUserDefinedNetwork,
        own: impl Iterator<Item = &'a ObjectKey>,
    ) {
        let keys: Vec<&ObjectKey> = own.collect();
        let names: Vec<&str> = keys.iter().map(|key| key.namespace.as_str()).collect();
        let text = format!(
            "NetworkAttachmentDefinition are being deleted: [{}]",
            names.join(" ")
        );
        let condition = created(false, "NetworkAttachmentDefinitionDeleted", text);
        self.created.insert(cudn.name.clone(), condition);
        self.finalizers.insert(cudn.name.clone(), !keys.is_empty());
        for key in keys {
            self.surplus.insert(key.clone(), Some(cudn.name.clone()));
        }
    }

    fn failed(&mut self, cudn: &str, reason: &str, why: String) {
        self.created
            .insert(cudn.to_owned(), created(false, reason, why));
    }
}

/// Whether a ClusterUserDefinedNetwork that stays selects a namespace that stays.
pub(crate) fn selects_any(world: &World, cudn: &ClusterUserDefinedNetwork) -> bool {
    let mut staying = world.namespaces.values().filter(|ns| !ns.deleting);
    !cudn.deleting && staying.any(|ns| cudn.selects(ns))
}

/// The objects that were made for a ClusterUserDefinedNetwork.
fn owned<'a>(
    world: &'a World,
    owners: &Owners<'_>,
    cudn: &ClusterUserDefinedNetwork,
) -> impl Iterator<Item = (&'a ObjectKey, &'a Attachment)> {
    let is_own = move |(_, a): &(&ObjectKey, &Attachment)| {
        let owner = owners.of_object(a);
        owner.is_some_and(|owner| owner.name == cudn.name)
    };
    world.attachments.iter().filter(is_own)
}

/// The primary network that a namespace has already, or that an elder ClusterUserDefinedNetwork is about to give it.
fn primary_of(world: &World, namespace: &str, claimed: &BTreeMap<&str, &str>) -> Option<String> {
    let existing = world.attachments.iter().find_map(|(key, attachment)| {
        let (network, primary) = attachment.network.as_ref()?;
        // One that is being deleted counts: its pods still run.
        let here = key.namespace == namespace && *primary;
        here.then(|| network.to_string())
    });
    existing.or_else(|| claimed.get(namespace).map(|name| (*name).to_owned()))
}

fn wanted(
    cudn: &ClusterUserDefinedNetwork,
    network: &UserNetwork,
    id: u16,
    tunnel_keys: &[u32],
    advertised: Option<&BTreeSet<String>>,
    existing: Option<&Attachment>,
) -> Wanted {
    let mut labels = cudn.labels.clone();
    labels.insert(LABEL.to_owned(), String::new());
    let copied = cudn
        .annotations
        .iter()
        .filter(|(key, _)| !key.starts_with(RESERVED));
    let mut annotations: BTreeMap<String, String> = copied
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    annotations.insert(NETWORK_NAME.to_owned(), cudn.network_name().to_string());
    annotations.insert(NETWORK_ID.to_owned(), id.to_string());
    annotations.insert(
        TUNNEL_KEYS.to_owned(),
        list(tunnel_keys.iter().map(ToString::to_string)),
    );
    if let UserTransport::NoOverlay { routing, .. } = network.transport {
        annotations.insert(ROUTING.to_owned(), routing_word(routing).to_owned());
    }
    // Once there, it stays as an empty list.
    if advertised.is_some() || existing.is_some_and(|e| e.annotations.contains_key(RA_KEY)) {
        let names = advertised
            .into_iter()
            .flatten()
            .map(|name| format!("{name:?}"));
        annotations.insert(RA_KEY.to_owned(), list(names));
    }
    Wanted {
        labels,
        annotations,
        network: (cudn.network_name(), network.clone()),
        owner: (cudn.name.clone(), cudn.uid.clone()),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    format!("[{}]", items.join(","))
}

/// Objects of ClusterUserDefinedNetworks that are gone.
fn orphans(world: &World, plan: &mut Plan) {
    let owners = Owners::of(world);
    for (key, attachment) in &world.attachments {
        if user_networks::is_left_behind(attachment) && owners.of_object(attachment).is_none() {
            plan.surplus.insert(key.clone(), None);
        }
    }
}

/// The names of the RouteAdvertisements that serve each network: those that serve it now, and those that nothing new is
/// applied of but that its objects name already.
#[must_use]
pub fn advertised(
    world: &World,
    plans: &BTreeMap<String, advertise::Plan>,
) -> BTreeMap<NetworkName, BTreeSet<String>> {
    let mut out: BTreeMap<NetworkName, BTreeSet<String>> = BTreeMap::new();
    for (name, plan) in plans {
        for network in plan.serves.iter().flatten() {
            out.entry(network.clone()).or_default().insert(name.clone());
        }
    }
    let owners = Owners::of(world);
    let as_before = |name: &&str| plans.get(*name).is_some_and(|plan| plan.serves.is_none());
    for attachment in world.attachments.values() {
        let Some(listed) = attachment.annotations.get(RA_KEY) else {
            continue;
        };
        let unowned = attachment.owner.is_none();
        let network = match owners.of_object(attachment) {
            Some(cudn) => cudn.network_name(),
            None if unowned && !attachment.annotations.contains_key(NETWORK_NAME) => {
                NetworkName::default_network()
            }
            None => continue,
        };
        for name in names_in(listed).filter(as_before) {
            out.entry(network.clone())
                .or_default()
                .insert(name.to_owned());
        }
    }
    out
}

#[cfg(test)]
mod tests;
