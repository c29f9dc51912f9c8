//! The routes of one kernel as a value.
//! In: full dumps, events since then, the state of links. Out: which destinations changed, and per table the routes that the
//! kernel uses. Invariant: after `replace` the value holds exactly the dump; what a view shows depends on routes and links
//! only, never on their history; an event that could mean two things is not applied.
//! Not here: which routes are imported (`import::decide`), and how a dump is taken (`netlink`).
//!
//! Built for 100,000 routes: one sorted vector of 48-byte entries, and one copy of each set of paths, which most routes share.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::address::Prefix;
use model::route::{KernelRoute, RouteChange, RouteEvent, RouteKind, RoutePath, TableId};

/// What identifies a change: table and destination.
pub type RouteKey = (TableId, Prefix);

/// One route; the order of the fields is the order of the vector.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    table: TableId,
    prefix: Prefix,
    metric: u32,
    kind: RouteKind,
    paths: Arc<[RoutePath]>,
}

impl Entry {
    fn decode(route: KernelRoute, known: &mut BTreeSet<Arc<[RoutePath]>>) -> Self {
        let mut paths = route.paths;
        paths.sort_unstable();
        let paths = match known.get(paths.as_slice()) {
            Some(paths) => Arc::clone(paths),
            None => {
                let paths: Arc<[RoutePath]> = paths.into();
                known.insert(Arc::clone(&paths));
                paths
            }
        };
        Self {
            table: route.table,
            prefix: route.prefix,
            metric: route.metric,
            kind: route.kind,
            paths,
        }
    }

    fn key(&self) -> RouteKey {
        (self.table, self.prefix)
    }
}

/// Up to so many destinations are put into their places one by one; for more of them everything is laid out again.
const FEW: usize = 8;

/// The routes of one kernel, with the links that are up.
#[derive(Debug, Clone, Default)]
pub struct Rib {
    entries: Vec<Entry>,
    known: BTreeSet<Arc<[RoutePath]>>,
    up: BTreeSet<u32>,
}

impl Rib {
    /// Takes a full dump in place of all routes. Returns the destinations whose routes differ from before:
    /// another metric, kind or path counts, the order of the dump and repeated routes do not.
    pub fn replace(&mut self, dump: Vec<KernelRoute>) -> BTreeSet<RouteKey> {
        let mut known = BTreeSet::new();
        let mut entries: Vec<Entry> = dump
            .into_iter()
            .map(|route| Entry::decode(route, &mut known))
            .collect();
        entries.sort_unstable();
        entries.dedup();
        entries.shrink_to_fit();
        let changed = changed_keys(&self.entries, &entries);
        self.entries = entries;
        self.known = known;
        changed
    }

    /// Applies what happened since the last dump to the routes of one protocol and table; events of other tables do not
    /// matter. Returns the destinations whose routes differ from before, or `None` where the events do not tell what the
    /// kernel holds now: nothing is changed then, and only a dump helps. Events from before the dump do no harm.
    pub fn apply(
        &mut self,
        protocol: u8,
        table: TableId,
        events: Vec<RouteEvent>,
    ) -> Option<BTreeSet<RouteKey>> {
        let mut groups: BTreeMap<Prefix, Vec<Entry>> = BTreeMap::new();
        for event in events.into_iter().filter(|e| e.route.table == table) {
            let prefix = event.route.prefix;
            let group = groups
                .entry(prefix)
                .or_insert_with(|| self.at(table, prefix).to_vec());
            let entry = Entry::decode(event.route, &mut self.known);
            let ours = event.protocol == protocol;
            let same = |other: &Entry| other.metric == entry.metric;
            let count = group.iter().filter(|other| same(other)).count();
            match event.change {
                // Which of several would it be, and whose?
                RouteChange::Replaced if count > 1 || (count == 1 && !ours) => return None,
                RouteChange::Replaced if ours => {
                    group.retain(|other| !same(other));
                    group.push(entry);
                }
                RouteChange::Added if ours => {
                    if !group.contains(&entry) {
                        group.push(entry);
                    }
                }
                RouteChange::Gone if ours => match group.iter().position(|other| *other == entry) {
                    Some(at) => drop(group.remove(at)),
                    // One that looks otherwise may be the one that is meant.
                    None if count > 0 => return None,
                    None => {}
                },
                RouteChange::Added | RouteChange::Replaced | RouteChange::Gone => {}
            }
        }
        groups.retain(|prefix, group| {
            group.sort_unstable();
            self.at(table, *prefix) != group.as_slice()
        });
        let changed = groups.keys().map(|prefix| (table, *prefix)).collect();
        if groups.len() <= FEW {
            for (prefix, group) in groups {
                let place = self.place(table, prefix);
                self.entries.splice(place, group);
            }
        } else {
            let gone = |entry: &Entry| entry.table == table && groups.contains_key(&entry.prefix);
            self.entries.retain(|entry| !gone(entry));
            self.entries.extend(groups.into_values().flatten());
            // Two sorted runs: the stable sort merges them.
            self.entries.sort();
        }
        Some(changed)
    }

    /// Where a destination's routes are, or would be.
    fn place(&self, table: TableId, prefix: Prefix) -> std::ops::Range<usize> {
        let at = |entry: &Entry| (entry.table, entry.prefix);
        let from = self
            .entries
            .partition_point(|entry| at(entry) < (table, prefix));
        let to = self
            .entries
            .partition_point(|entry| at(entry) <= (table, prefix));
        from..to
    }

    fn at(&self, table: TableId, prefix: Prefix) -> &[Entry] {
        self.entries
            .get(self.place(table, prefix))
            .unwrap_or_default()
    }

    /// The route that the kernel uses for a destination, as [`Rib::view`] shows it.
    #[must_use]
    pub fn best_of(&self, table: TableId, prefix: Prefix) -> Option<KernelRoute> {
        self.best(self.at(table, prefix))
    }

    /// Takes the state of all links (interface index to "up") in place of what was known.
    /// A link that is not named is gone; before the first call every link is. Returns the destinations with a path over
    /// a link whose state changed.
    pub fn set_links(&mut self, links: BTreeMap<u32, bool>) -> BTreeSet<RouteKey> {
        let up: BTreeSet<u32> = links
            .into_iter()
            .filter_map(|(index, up)| up.then_some(index))
            .collect();
        let moved: BTreeSet<u32> = self.up.symmetric_difference(&up).copied().collect();
        self.up = up;
        if moved.is_empty() {
            return BTreeSet::new();
        }
        self.entries
            .iter()
            .filter(|entry| entry.paths.iter().any(|path| moved.contains(&path.oif)))
            .map(Entry::key)
            .collect()
    }

    /// The routes that the kernel uses in a table, one per destination, in the order of destinations.
    /// The lowest metric counts. Legs over links that are down, gone or unknown do not count, and a unicast route without
    /// any other path gives way to the next metric. Several routes of one metric are shown as one with all their paths.
    pub fn view(&self, table: TableId) -> impl Iterator<Item = KernelRoute> {
        self.table(table)
            .chunk_by(|a, b| a.prefix == b.prefix)
            .filter_map(move |routes| self.best(routes))
    }

    /// Whether a link is up, by interface index.
    #[must_use]
    pub fn is_up(&self, link: u32) -> bool {
        self.up.contains(&link)
    }

    /// How many routes there are, in all tables.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True where no table has a route.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn table(&self, table: TableId) -> &[Entry] {
        let from = self.entries.partition_point(|entry| entry.table < table);
        let to = self.entries.partition_point(|entry| entry.table <= table);
        self.entries.get(from..to).unwrap_or_default()
    }

    fn best(&self, routes: &[Entry]) -> Option<KernelRoute> {
        routes
            .chunk_by(|a, b| a.metric == b.metric)
            .find_map(|equal| self.usable(equal))
    }

    /// Routes of one destination and metric as one, or `None` where the kernel would pass them over.
    fn usable(&self, equal: &[Entry]) -> Option<KernelRoute> {
        let first = equal.first()?;
        let forwards = |entry: &&Entry| entry.kind != RouteKind::Other;
        let paths: BTreeSet<RoutePath> = equal
            .iter()
            .filter(forwards)
            .flat_map(|entry| entry.paths.iter())
            .filter(|path| self.up.contains(&path.oif))
            .copied()
            .collect();
        let kind = if !paths.is_empty() {
            let encapsulated = |entry: &Entry| entry.kind == RouteKind::Encapsulated;
            if equal.iter().any(encapsulated) {
                RouteKind::Encapsulated
            } else {
                RouteKind::Unicast
            }
        } else if equal.iter().any(|entry| entry.kind == RouteKind::Other) {
            RouteKind::Other
        } else {
            return None;
        };
        Some(KernelRoute {
            table: first.table,
            prefix: first.prefix,
            metric: first.metric,
            kind,
            paths: paths.into_iter().collect(),
        })
    }
}

/// Destinations of the entries that only one of two sorted lists has.
fn changed_keys(old: &[Entry], new: &[Entry]) -> BTreeSet<RouteKey> {
    let mut changed = BTreeSet::new();
    let mut old = old.iter().peekable();
    let mut new = new.iter().peekable();
    loop {
        let first = match (old.peek(), new.peek()) {
            (None, None) => return changed,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(before), Some(after)) => before.cmp(after),
        };
        match first {
            Ordering::Less => changed.extend(old.next().map(Entry::key)),
            Ordering::Greater => changed.extend(new.next().map(Entry::key)),
            Ordering::Equal => {
                old.next();
                new.next();
            }
        }
    }
}

#[cfg(test)]
mod tests;
