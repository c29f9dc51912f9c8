//! What was written to Nodes, and whether it stays.
//! In: writes that the API server took. Out: whether the caches are waited for, and whether the same may be written again.
//! Invariant: a Node on which nothing stays, because a webhook drops it or somebody takes it away again, holds others up once
//! and is written to ever later.
//! Not here: what is written.

use std::collections::BTreeMap;
use std::time::Duration;

use model::NodeName;
use model::node::{Fact, NodeSubnets};
use plan_cluster::fabric::roles::Role;
use plan_cluster::{World, networks};
use reconcile::Backoff;
use tokio::time::Instant;

/// So long others wait for the caches to have what was written to Nodes; a watch may be behind for longer.
const ECHO: Duration = Duration::from_secs(1);
/// From a write to the next of the same: doubling from the first to the second.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// What was written so long before the same is to be written again has stayed.
const STAYED: Duration = Duration::from_secs(60);

/// What a Node is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    uid: String,
    node_id: Option<u32>,
    subnets: Option<NodeSubnets>,
    role: Option<Role>,
}

impl Wish {
    /// Of the Node with this uid.
    pub(super) fn new(
        uid: &str,
        allocation: Option<&networks::Allocation>,
        role: Option<Role>,
    ) -> Self {
        Self {
            uid: uid.to_owned(),
            node_id: allocation.and_then(|allocation| allocation.node_id),
            subnets: allocation.and_then(|allocation| allocation.subnets.clone()),
            role,
        }
    }
}

/// The last write to a Node.
#[derive(Debug)]
struct Last {
    wish: Wish,
    /// Not before then the same again.
    again: Instant,
    backoff: Backoff,
}

/// Last writes by Node, and those whose first subnets the caches are waited for.
#[derive(Debug, Default)]
pub(crate) struct Written {
    last: BTreeMap<NodeName, Last>,
    /// uid, and until when; it stays here for as long as there is such a Node, since nobody waits for it a second time.
    awaited: BTreeMap<NodeName, (String, Instant)>,
}

impl Written {
    /// Whether a Node in the world still has no subnets although they were written a moment ago.
    pub(in super::super) fn awaited(&mut self, world: &World, now: Instant) -> bool {
        self.awaited
            .retain(|name, _| world.nodes.contains_key(name));
        self.awaited.iter().any(|(name, (_, until))| {
            let node = world.nodes.get(name);
            now < *until && node.is_some_and(|node| node.subnets == Fact::Absent)
        })
    }

    /// Forgets Nodes that are gone.
    pub(super) fn retain(&mut self, world: &World) {
        self.last.retain(|name, _| world.nodes.contains_key(name));
    }

    /// Whether the same was written, and its time to be written again has not come.
    pub(super) fn waits(&self, name: &NodeName, wish: &Wish, now: Instant) -> bool {
        let last = self.last.get(name);
        last.is_some_and(|last| last.wish == *wish && now < last.again)
    }

    /// The API server took it; `world` is what the caches had before.
    pub(super) fn took(&mut self, name: NodeName, wish: Wish, world: &World, now: Instant) {
        let node = world.nodes.get(&name);
        let is_first = node.is_some_and(|node| node.subnets == Fact::Absent);
        if is_first && wish.subnets.is_some() {
            let known = self.awaited.get(&name);
            if known.is_none_or(|(uid, _)| *uid != wish.uid) {
                let awaited = (wish.uid.clone(), now + ECHO);
                self.awaited.insert(name.clone(), awaited);
            }
        }
        let known = self.last.remove(&name);
        let known = known.filter(|last| last.wish == wish && now < last.again + STAYED);
        if known.is_some() {
            tracing::warn!(node = %name, "what was written to it is not there: it is written again");
        }
        let mut backoff = known.map_or_else(|| Backoff::new(AGAIN.0, AGAIN.1), |last| last.backoff);
        let again = now + backoff.pause();
        let last = Last {
            wish,
            again,
            backoff,
        };
        self.last.insert(name, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node as KubeNode;

    const MOMENT: Duration = Duration::from_millis(1);

    /// A Node without subnets.
    fn world() -> (World, NodeName) {
        let name = NodeName::from("n1");
        let mut world = World::default();
        let mut object = KubeNode::default();
        object.metadata.name = Some(name.to_string());
        let node = api::decode_node(&object);
        world.nodes.insert(name.clone(), node);
        (world, name)
    }

    fn wish(uid: &str, subnets: bool) -> Wish {
        let allocation = networks::Allocation {
            node_id: Some(2),
            subnets: subnets.then(NodeSubnets::default),
            resource_version: None,
        };
        Wish::new(uid, Some(&allocation), Some(Role::Member))
    }

    #[test]
    fn caches_are_waited_for_until_they_have_what_was_written_and_no_longer_than_a_second() {
        let now = Instant::now();
        let (mut world, name) = world();
        let written = |world: &World| {
            let mut written = Written::default();
            written.took(name.clone(), wish("u", true), world, now);
            written
        };
        assert!(!Written::default().awaited(&world, now));
        assert!(written(&world).awaited(&world, now + ECHO / 2));
        let late = now + ECHO;
        assert!(!written(&world).awaited(&world, late), "a watch is behind");
        let none = World::default();
        assert!(!written(&world).awaited(&none, now), "it is gone");
        let mut before = written(&world);
        let node = world.nodes.get_mut(&name).unwrap();
        node.subnets = Fact::Known(NodeSubnets::default());
        assert!(!before.awaited(&world, now), "it is there");
        assert!(!written(&world).awaited(&world, now), "it had some");
    }

    #[test]
    fn a_node_on_which_nothing_stays_is_waited_for_once_and_another_of_its_name_again() {
        let now = Instant::now();
        let (world, name) = world();
        let mut written = Written::default();
        written.took(name.clone(), wish("u", true), &world, now);
        assert!(written.awaited(&world, now));
        for second in 1..5 {
            let now = now + ECHO * second;
            written.took(name.clone(), wish("u", true), &world, now);
            assert!(!written.awaited(&world, now), "{second}");
        }
        let now = now + ECHO * 5;
        written.took(name.clone(), wish("v", true), &world, now);
        assert!(written.awaited(&world, now));
        // No subnet is left for it: there is nothing to wait for.
        let mut written = Written::default();
        written.took(name, wish("u", false), &world, now);
        assert!(!written.awaited(&world, now));
    }

    #[test]
    fn the_same_is_written_ever_later_and_anything_else_at_once() {
        let mut now = Instant::now();
        let (world, name) = world();
        let mut written = Written::default();
        let same = wish("u", true);
        assert!(!written.waits(&name, &same, now));
        let mut pauses = Vec::new();
        for _ in 0..10 {
            written.took(name.clone(), same.clone(), &world, now);
            assert!(!written.waits(&name, &wish("u", false), now));
            assert!(!written.waits(&name, &wish("v", true), now));
            let begun = now;
            while written.waits(&name, &same, now) {
                now += MOMENT * 100;
            }
            pauses.push(now.duration_since(begun));
        }
        assert_eq!(pauses[0], AGAIN.0);
        assert_eq!(pauses[1], AGAIN.0 * 2);
        assert_eq!(pauses[9], AGAIN.1);
        // It stayed for a while: this is somebody's mistake, and mended soon.
        now += STAYED;
        written.took(name.clone(), same.clone(), &world, now);
        assert!(!written.waits(&name, &same, now + AGAIN.0));
        written.retain(&World::default());
        assert!(!written.waits(&name, &same, now));
    }
}
