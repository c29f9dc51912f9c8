//! Which way is visited when, and what is known of all of them.
//! In: the ways, the time, ends of visits. Out: visits to make. Invariant: visits begin evenly over the interval, and never two of
//! one way at a time; a way that is gone or leads from elsewhere is forgotten, whatever a visit under way may say of it.
//! Not here: requests ([`super::visit`]), clocks, how many visits are under way.

use std::collections::BTreeMap;
use std::time::Duration;

use model::names::{NetworkName, NodeName};

use super::visit::{Known, Verdict, Visit};
use super::{Path, PathKey, Paths};

/// The least and the most time between the beginnings of two visits.
const LEAST_REST: Duration = Duration::from_millis(5);
const MOST_REST: Duration = Duration::from_millis(250);

/// All ways of a node. Times count from any moment of the past that stays the same.
#[derive(Debug)]
pub struct Prober {
    own: NodeName,
    interval: Duration,
    entries: BTreeMap<PathKey, Entry>,
    /// Before it no visit begins.
    rests: Duration,
}

#[derive(Debug)]
struct Entry {
    path: Path,
    known: Known,
    due: Duration,
    /// A visit is under way.
    visited: bool,
    /// One has ended, whatever it found.
    tried: bool,
}

/// What is known of all ways of a network together: the first of these that is so of any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Passage {
    /// Not each of them has been tried since the process started.
    Untried,
    /// Large packets were not answered on one of them.
    Unproven,
    /// Large packets pass on each.
    Proven,
}

/// A visit to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Where to.
    pub key: PathKey,
    /// The way, as it is now.
    pub path: Path,
    /// What to ask.
    pub visit: Visit,
}

impl Prober {
    /// One without ways, which visits each of them once in each interval.
    #[must_use]
    pub fn new(own: NodeName, interval: Duration) -> Self {
        Self {
            own,
            interval,
            entries: BTreeMap::new(),
            rests: Duration::ZERO,
        }
    }

    /// These are the ways now. A new one, and one whose packets are larger or smaller than they were, is visited soon.
    pub fn set(&mut self, paths: &Paths, now: Duration) {
        self.entries.retain(|key, entry| {
            let same = |path: &&Path| path.source == entry.path.source;
            paths.get(key).filter(same).is_some()
        });
        for (key, path) in paths {
            match self.entries.get_mut(key) {
                Some(entry) => {
                    if entry.path.size() != path.size() {
                        entry.known.resize(path.size());
                        entry.due = now;
                    }
                    entry.path.clone_from(path);
                }
                None => {
                    let entry = Entry {
                        path: path.clone(),
                        known: Known::default(),
                        due: now,
                        visited: false,
                        tried: false,
                    };
                    self.entries.insert(key.clone(), entry);
                }
            }
        }
    }

    /// A visit that is to begin now.
    pub fn begin(&mut self, now: Duration) -> Option<Due> {
        let (key, at) = self.next()?;
        if at > now {
            return None;
        }
        self.rests = now.saturating_add(self.rest());
        let interval = self.interval;
        let entry = self.entries.get_mut(&key)?;
        entry.visited = true;
        entry.due = now.saturating_add(interval);
        Some(Due {
            visit: Visit::new(entry.path.size(), &entry.known),
            path: entry.path.clone(),
            key,
        })
    }

    /// When the next visit is to begin; `None` where there is none to begin before another one ends or ways change.
    #[must_use]
    pub fn wakes(&self) -> Option<Duration> {
        self.next().map(|(_, at)| at)
    }

    /// Takes the end of a visit.
    pub fn ended(&mut self, due: &Due, verdict: Option<Verdict>) {
        let entry = self.entries.get_mut(&due.key);
        let Some(entry) = entry.filter(|entry| entry.path.source == due.path.source) else {
            return;
        };
        entry.visited = false;
        entry.tried = true;
        if entry.path.size() == due.path.size() {
            entry.known.note(verdict);
        }
    }

    /// The ways that are too narrow, and how large the IP packets are that pass, bytes.
    #[must_use]
    pub fn narrow(&self) -> BTreeMap<PathKey, u32> {
        let narrow = |(key, entry): (&PathKey, &Entry)| match entry.known.verdict() {
            Verdict::Narrow { passes } => Some((key.clone(), passes)),
            Verdict::Unknown | Verdict::Wide | Verdict::Unanswered | Verdict::Filtered => None,
        };
        self.entries.iter().filter_map(narrow).collect()
    }

    /// What is known of all ways of each network together.
    #[must_use]
    pub fn by_network(&self) -> BTreeMap<NetworkName, Passage> {
        let mut all: BTreeMap<NetworkName, Passage> = BTreeMap::new();
        for entry in self.entries.values() {
            let passage = match entry.known.verdict() {
                _ if !entry.tried => Passage::Untried,
                Verdict::Wide => Passage::Proven,
                Verdict::Unknown
                | Verdict::Narrow { .. }
                | Verdict::Unanswered
                | Verdict::Filtered => Passage::Unproven,
            };
            for name in entry.path.loads.keys() {
                let worst = all.entry(name.clone()).or_insert(passage);
                *worst = passage.min(*worst);
            }
        }
        all
    }

    /// Whether each way has been tried once.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.entries.values().all(|entry| entry.tried)
    }

    /// What is known of each way.
    pub fn verdicts(&self) -> impl Iterator<Item = (&PathKey, Verdict)> {
        let entries = self.entries.iter();
        entries.map(|(key, entry)| (key, entry.known.verdict()))
    }

    /// Which way is visited next, and when. Nodes that begin together begin with different nodes: each with those after it.
    fn next(&self) -> Option<(PathKey, Duration)> {
        let waiting = self.entries.iter().filter(|(_, entry)| !entry.visited);
        let order = |(key, entry): &(&PathKey, &Entry)| (entry.due, key.node < self.own);
        let (key, entry) = waiting.min_by_key(order)?;
        Some((key.clone(), entry.due.max(self.rests)))
    }

    fn rest(&self) -> Duration {
        let ways = u32::try_from(self.entries.len()).unwrap_or(u32::MAX).max(1);
        (self.interval / ways).clamp(LEAST_REST, MOST_REST)
    }
}
