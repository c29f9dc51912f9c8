//! What was heard of the kernel, for each import that follows a routing table.
//! In: changes, as the subscription tells them. Out: a buffer for each import, and which of them have something to look at.
//! Invariant: an import hears of its own table, of links and of losses; what is heard of one import's table costs no other a
//! look. Not here: following the kernel (`sources`), reading it (`importing`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use model::NetworkName;
use model::route::{Hints, TableId};
use netlink::Change;

use crate::importing::EventBuffer;

/// An import's buffer, and the table that it follows: all of them before it said which, none where there is none.
#[derive(Debug, Default)]
struct Subscription {
    table: Option<Option<TableId>>,
    buffer: Arc<EventBuffer>,
}

/// The buffers of all imports.
#[derive(Debug, Default)]
pub struct KernelEvents(Mutex<BTreeMap<NetworkName, Subscription>>);

impl KernelEvents {
    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<NetworkName, Subscription>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The buffer of a network's import; a fresh one says that everything has to be read.
    #[must_use]
    pub fn subscribe(&self, network: &NetworkName) -> Arc<EventBuffer> {
        self.with(|all| {
            let subscription = Subscription::default();
            let buffer = Arc::clone(&subscription.buffer);
            all.insert(network.clone(), subscription);
            buffer
        })
    }

    /// The network's import has ended.
    pub fn unsubscribe(&self, network: &NetworkName) {
        self.with(|all| all.remove(network));
    }

    /// Which table a network's import follows from now on; it reads a new one whole.
    pub fn set_table(&self, network: &NetworkName, table: Option<TableId>) {
        self.with(|all| {
            if let Some(subscription) = all.get_mut(network) {
                subscription.table = Some(table);
            }
        });
    }

    /// Takes notice of a change. Returns the networks whose import has to look at it.
    pub fn note(&self, change: &Change) -> Vec<NetworkName> {
        self.with(|all| {
            let reported = all.iter().filter(|(_, subscription)| {
                let hints = match subscription.table {
                    None => change.hints.clone(),
                    Some(table) => of_table(&change.hints, table),
                };
                subscription.buffer.note(change, hints)
            });
            reported.map(|(name, _)| name.clone()).collect()
        })
    }

    /// Everything has to be read again, links included: a subscription is new, or was lost.
    pub fn note_everything(&self) {
        self.with(|all| {
            for subscription in all.values() {
                subscription.buffer.note_everything();
            }
        });
    }
}

/// The hints that speak of a table. What asks for a dump may speak of any.
fn of_table(hints: &Hints, table: Option<TableId>) -> Hints {
    match hints {
        Hints::Dump => Hints::Dump,
        Hints::Events(events) => {
            let of_table = events
                .iter()
                .filter(|event| Some(event.route.table) == table);
            Hints::Events(of_table.cloned().collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::route::{KernelRoute, PROTOCOL_BGP, RouteChange, RouteEvent, RouteKind};

    fn change(table: TableId) -> Change {
        let route = KernelRoute {
            table,
            prefix: "10.0.0.0/24".parse().unwrap(),
            metric: 20,
            kind: RouteKind::Other,
            paths: Vec::new(),
        };
        Change {
            hints: Hints::Events(vec![RouteEvent {
                change: RouteChange::Added,
                protocol: PROTOCOL_BGP,
                route,
            }]),
            ..Change::default()
        }
    }

    #[test]
    fn a_change_of_one_table_is_heard_by_who_follows_it() {
        let events = KernelEvents::default();
        let [red, blue] = ["red", "blue"].map(NetworkName::from);
        drop(events.subscribe(&red));
        drop(events.subscribe(&blue));
        // Before they said which table they follow, both hear of all.
        assert_eq!(events.note(&change(254)), [blue.clone(), red.clone()]);
        events.set_table(&red, Some(1001));
        events.set_table(&blue, None);
        assert_eq!(events.note(&change(1001)), std::slice::from_ref(&red));
        assert_eq!(events.note(&change(254)), []);
        let links = Change {
            links: true,
            ..Change::default()
        };
        assert_eq!(events.note(&links), [blue.clone(), red.clone()]);
        let dump = Change {
            hints: Hints::Dump,
            ..Change::default()
        };
        assert_eq!(events.note(&dump), [blue, red.clone()]);
        events.unsubscribe(&NetworkName::from("blue"));
        assert_eq!(events.note(&dump), [red]);
    }
}
