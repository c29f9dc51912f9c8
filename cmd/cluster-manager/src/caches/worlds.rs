//! The snapshots that plans are made from.
//! In: the caches. Out: the [`World`], once for each change of them, as it is and with the fabric's own objects as they should be.
//! Invariant: what no plan looks at makes no other world; equal worlds are one.
//! Not here: watches (`caches`), plans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube_edge::{Cache, Entry};
use model::ObjectKey;
use model::user_network::{Namespace, Reach};
use plan_cluster::world::Evidence;
use plan_cluster::{World, fabric, user_networks};
use settings::Settings;

use super::Caches;

/// Which object a plan was made from, and which generation of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) uid: String,
    pub(crate) generation: i64,
}

/// Those of all objects that conditions are written to, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Generations {
    pub(crate) advertisements: BTreeMap<String, Planned>,
    pub(crate) networks: BTreeMap<String, Planned>,
}

impl Caches {
    /// Numbers that are others after any change of what worlds are made from.
    fn revisions(&self) -> Revisions {
        let features = self.features.values().map(Cache::revision);
        [
            // Each of them only grows.
            features.sum(),
            self.nodes.revision(),
            self.advertisements.revision(),
            self.frr.revision(),
            self.attachments.revision(),
            self.cudns.revision(),
            self.namespaces.revision(),
            self.egress_ips.as_ref().map_or(0, Cache::revision),
            // Whether they are listed at all is part of the world.
            self.egress_ips_refused().map_or(0, u64::from),
        ]
    }

    /// The status of EgressIPs that have never been listed.
    fn egress_ips_refused(&self) -> Option<u16> {
        let cache = self.egress_ips.as_ref()?;
        cache.refused().filter(|_| !cache.ready())
    }

    /// The snapshot that plans are made from, and which objects are in it.
    fn world(
        &self,
        settings: &Settings,
        known_ids: &BTreeMap<String, u16>,
    ) -> (World, Generations) {
        let mut generations = Generations::default();
        let mut world = offline::empty_world(settings);
        world.known_ids.clone_from(known_ids);
        world.nodes = self.nodes.with(|map| {
            map.values()
                .map(|e| (e.value.name.clone(), e.value.clone()))
                .collect()
        });
        world.ras = self.advertisements.with(|map| {
            generations.advertisements = planned(map, |ra| ra.generation);
            map.iter()
                .map(|(k, e)| (k.name.clone(), e.value.spec.clone()))
                .collect()
        });
        self.frr.with(|map| {
            for (key, entry) in map {
                let source = &entry.value;
                if source.object.is_err() {
                    world.unreadable.insert(key.clone(), source.remains.clone());
                }
                world.frr.insert(key.clone(), source.object.clone());
            }
        });
        world.cudns = self.cudns.with(|map| {
            generations.networks = planned(map, |cudn| cudn.generation);
            map.iter()
                .map(|(k, e)| (k.name.clone(), e.value.spec.clone()))
                .collect()
        });
        if let Some(egress_ips) = &self.egress_ips {
            world.egress_ips_refused = self.egress_ips_refused();
            world.egress_ips = egress_ips.with(|map| {
                map.iter()
                    .map(|(k, e)| (k.name.clone(), e.value.clone()))
                    .collect()
            });
        }
        for (feature, cache) in &self.features {
            cache.with(|map| {
                let used = map.iter();
                let used = used.map(|(k, e)| ((*feature, k.clone()), e.value.clone()));
                world.features_used.extend(used);
            });
        }
        world.attachments = self.attachments.with(|map| {
            map.iter()
                .map(|(k, e)| (k.clone(), e.value.clone()))
                .collect()
        });
        user_networks::keep_led(&mut world);
        world.namespaces = self.namespaces_of(&world);
        let networks = user_networks::networks(&world);
        world.networks.extend(networks);
        (world, generations)
    }

    /// The namespaces that something selects, or in which a network has an object: no change of another one is a change of the
    /// world.
    fn namespaces_of(&self, world: &World) -> BTreeMap<String, Namespace> {
        let networks = world.cudns.values();
        let egress = world
            .egress_ips
            .values()
            .filter_map(|egress| egress.namespaces.as_ref().ok());
        let mut used_by_name = BTreeSet::new();
        let mut by_feature = Vec::new();
        for reach in world.features_used.values() {
            match reach {
                Reach::Namespace(name) => drop(used_by_name.insert(name.as_str())),
                Reach::Namespaces(selector) => by_feature.push(selector),
                Reach::Networks(_) | Reach::Unreadable(_) => {}
            }
        }
        let selectors: Vec<_> = networks
            .filter_map(|cudn| cudn.namespaces.as_ref().ok())
            .chain(egress)
            .chain(by_feature)
            .collect();
        let owned = world.attachments.iter().filter(|(_, a)| a.owner.is_some());
        let mut used: BTreeSet<&str> = owned.map(|(key, _)| key.namespace.as_str()).collect();
        used.extend(used_by_name);
        let selected =
            |ns: &Namespace| ns.multicast || selectors.iter().any(|s| s.matches(&ns.labels));
        self.namespaces.with(|map| {
            map.iter()
                .filter(|(key, e)| used.contains(key.name.as_str()) || selected(&e.value))
                .map(|(k, e)| (k.name.clone(), e.value.clone()))
                .collect()
        })
    }
}

fn planned<T>(
    map: &BTreeMap<ObjectKey, Entry<T>>,
    generation: impl Fn(&T) -> i64,
) -> BTreeMap<String, Planned> {
    let planned = |(key, entry): (&ObjectKey, &Entry<T>)| {
        let planned = Planned {
            uid: entry.uid.clone(),
            generation: generation(&entry.value),
        };
        (key.name.clone(), planned)
    };
    map.iter().map(planned).collect()
}

/// Numbers of the caches that worlds are made from.
type Revisions = [u64; 9];

/// The world of the caches, made once for each change of them.
#[derive(Debug, Default)]
pub(crate) struct Worlds {
    last: Option<(Revisions, Snapshots)>,
    evidence: Evidence,
    /// See [`World::known_ids`]; of this term of leadership.
    known_ids: BTreeMap<String, u16>,
}

/// One moment's world.
#[derive(Debug, Clone)]
pub(crate) struct Snapshots {
    /// As the API server has it.
    pub(crate) world: Arc<World>,
    /// With the fabric's own objects as they should be (`fabric::complete`).
    pub(crate) complete: Arc<World>,
    /// Those objects, and what else is planned of the fabric.
    pub(crate) fabric: Arc<fabric::Plan>,
    pub(crate) generations: Arc<Generations>,
}

impl Worlds {
    /// The world as the caches have it now.
    pub(crate) fn now(&mut self, caches: &Caches, settings: &Settings) -> Snapshots {
        // Asked before the caches are read: a change in between is seen by the next call.
        let revisions = caches.revisions();
        let known = self.last.as_ref().filter(|(of, _)| *of == revisions);
        if let Some((_, snapshots)) = known {
            return snapshots.clone();
        }
        let (mut world, generations) = caches.world(settings, &self.known_ids);
        self.known_ids = user_networks::known_ids(&world);
        world.known_ids.clone_from(&self.known_ids);
        let generations = Arc::new(generations);
        world.evidence = self.evidence.clone();
        // A status that was written is in no world: what was planned of it holds.
        let same = self.last.as_mut().filter(|(_, last)| *last.world == world);
        if let Some((of, snapshots)) = same {
            *of = revisions;
            snapshots.generations = generations;
            return snapshots.clone();
        }
        let fabric = fabric::plan(&world);
        let snapshots = Snapshots {
            complete: Arc::new(fabric::completed(world.clone(), &fabric)),
            fabric: Arc::new(fabric),
            world: Arc::new(world),
            generations,
        };
        self.last = Some((revisions, snapshots.clone()));
        snapshots
    }

    /// Somebody else gives ids out from now on.
    pub(crate) fn follows(&mut self) {
        self.known_ids.clear();
        self.evidence = Evidence::default();
        self.last = None;
    }

    /// Made anew at the next call: the settings are others.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }

    /// What is reported of the fabric from now on; whether that is something new.
    pub(crate) fn report(&mut self, evidence: Evidence) -> bool {
        let new = self.evidence != evidence;
        if new {
            self.evidence = evidence;
            self.last = None;
        }
        new
    }
}
