//! The import of one network, step by step: routes, rows and everything between them as a value that is changed only where
//! something changed.
//! In: dumps and events of routes, links, rows as they come and go, the world, who owns which subnet, looks at FRR.
//! Out: the next few rows to add and to remove. Invariant: after any sequence of inputs the rows that are wanted equal those
//! of a fresh value with the same inputs, held destinations aside; a destination is never without a row because its next hop
//! changes; pod subnets come first. Not here: reading and writing; what a single route becomes (`imports`).
//!
//! ```text
//!   routes, links --> rib --decide--> Place.hops ---.
//!   rows ------------------------> Place.rows --- differ? --> due --step(n)--> add, remove
//!   FRR, breaker --judge--> held ---- budget -----'
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use model::address::Prefix;
use model::hash;
use model::names::NodeName;
use model::nb::{ImportedRoute, RouteRow};
use model::route::{KernelRoute, Leg, RouteEvent, RouteKind, TableId};
use rib::Rib;

use crate::breaker::Breaker;
use crate::budget::{Budget, OVER_LIMIT, Rank};
use crate::holding::Holding;
use crate::imports::{self, Decision, ImportWorld, Skipped};
use crate::subnets::Subnets;

/// Why a destination stays although the kernel has lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    /// FRR is gone or starts anew.
    Restart,
    /// Too many went at once while their sessions are up.
    MassWithdrawal,
}

/// What bgpd says of its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sessions<'a> {
    /// Nobody asked, or nobody may ask: no mass withdrawal is held.
    Unknown,
    /// bgpd runs and does not answer, as one does that is busy with a mass withdrawal: any session may be up.
    NoAnswer,
    /// Its peers, and whether their sessions are up.
    Peers(&'a BTreeMap<IpAddr, bool>),
}

impl Sessions<'_> {
    /// Whether a withdrawal over these next hops could be a mistake: a session that may have brought it is up. A next hop
    /// that is no peer was brought by any of them.
    fn believes(self, hops: &[IpAddr]) -> bool {
        match self {
            Self::Unknown => false,
            Self::NoAnswer => true,
            Self::Peers(peers) => hops.iter().any(|hop| match peers.get(hop) {
                Some(up) => *up,
                None => peers.values().any(|up| *up),
            }),
        }
    }
}

/// Rows to write in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<R> {
    /// Routes to add.
    pub add: Vec<ImportedRoute>,
    /// Rows to remove.
    pub remove: Vec<R>,
}

impl<R> Step<R> {
    /// True where there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }
}

/// All that is known of a destination.
#[derive(Debug, Clone)]
struct Place<R> {
    /// The kernel has a route that is imported, over these next hops; or had one last.
    hops: Vec<IpAddr>,
    /// Whether it has it now.
    wanted: bool,
    /// Why its route or some of its paths are left out.
    reasons: Vec<&'static str>,
    /// Whether the kernel has a route that forwards, imported or not.
    forwards: bool,
    /// The node that had the subnet when the kernel last asked for it.
    owner: Option<NodeName>,
    rows: Vec<(IpAddr, R)>,
    /// Why it is held, and over which next hops.
    held: Option<(Held, Vec<IpAddr>)>,
}

impl<R> Default for Place<R> {
    fn default() -> Self {
        Self {
            hops: Vec::new(),
            wanted: false,
            reasons: Vec::new(),
            forwards: false,
            owner: None,
            rows: Vec::new(),
            held: None,
        }
    }
}

impl<R> Place<R> {
    /// Next hops that rows should exist for, the limit aside.
    fn eligible(&self) -> &[IpAddr] {
        match &self.held {
            _ if self.wanted => &self.hops,
            Some((_, hops)) => hops,
            None => &[],
        }
    }

    fn is_withdrawn(&self) -> bool {
        !self.wanted && !self.rows.is_empty()
    }

    fn is_empty(&self) -> bool {
        !self.wanted && self.reasons.is_empty() && self.rows.is_empty() && !self.forwards
    }
}

/// The import of one network.
#[derive(Debug, Clone)]
pub struct Importer<R> {
    /// `None`: the network has no table, and so no routes.
    table: Option<TableId>,
    rib: Rib,
    world: Option<ImportWorld>,
    owners: Subnets<NodeName>,
    places: BTreeMap<Prefix, Place<R>>,
    odd: BTreeSet<R>,
    /// How many rows of others have a destination.
    others: BTreeMap<Prefix, usize>,
    budget: Budget,
    /// Destinations with rows to add, or to exchange.
    adds: BTreeSet<Rank>,
    /// Destinations with rows to remove and none to add.
    removals: BTreeSet<Rank>,
    /// Destinations and odd rows that a step has taken and whose rows have not changed since.
    sent: BTreeSet<Rank>,
    sent_odd: BTreeSet<R>,
    withdrawn: BTreeSet<Prefix>,
    skipped: BTreeMap<&'static str, BTreeSet<Prefix>>,
    /// How many destinations have rows.
    standing: usize,
    /// How many lost their rows since the last judgement, because the kernel had lost them.
    went: usize,
    rows: usize,
    digest: u64,
}

impl<R: Copy + Ord> Importer<R> {
    /// An empty one: no table, no routes, no links, no rows, no world. `limit` in destinations.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            table: None,
            rib: Rib::default(),
            world: None,
            owners: Subnets::default(),
            places: BTreeMap::new(),
            odd: BTreeSet::new(),
            others: BTreeMap::new(),
            budget: Budget::new(limit),
            adds: BTreeSet::new(),
            removals: BTreeSet::new(),
            sent: BTreeSet::new(),
            sent_odd: BTreeSet::new(),
            withdrawn: BTreeSet::new(),
            skipped: BTreeMap::new(),
            standing: 0,
            went: 0,
            rows: 0,
            digest: 0,
        }
    }

    /// Takes the network's routing table. Routes of another one before it are forgotten: a dump has to follow.
    pub fn set_table(&mut self, table: Option<TableId>) {
        if self.table == table {
            return;
        }
        self.dump(Vec::new());
        self.table = table;
    }

    /// Takes the world, but for what other rows take: that is told row by row. Everything is decided anew where it changed.
    pub fn set_world(&mut self, mut world: ImportWorld) {
        world.taken = self.others.keys().copied().collect();
        if self.world.as_ref() == Some(&world) {
            return;
        }
        let pods = self.world.as_ref().map(|w| w.cluster_subnets.as_slice());
        let other_pods = pods != Some(world.cluster_subnets.as_slice());
        self.world = Some(world);
        if other_pods {
            self.rank_anew();
        }
        self.decide_all();
    }

    /// Takes who owns which subnet of the network now.
    pub fn set_owners(&mut self, owners: impl IntoIterator<Item = (Prefix, NodeName)>) {
        let owners: Subnets<NodeName> = owners.into_iter().collect();
        if owners == self.owners {
            return;
        }
        self.owners = owners;
        for (prefix, place) in &mut self.places {
            // What the kernel has lost keeps the owner of its time: another one now is why it is not held.
            if place.wanted {
                place.owner = self.owners.longest_match(prefix).cloned();
            }
        }
    }

    /// Takes the state of all links, by interface index.
    pub fn set_links(&mut self, links: BTreeMap<u32, bool>) {
        for (table, prefix) in self.rib.set_links(links) {
            if Some(table) == self.table {
                self.decide(prefix);
            }
        }
    }

    /// Takes a whole dump of the table's routes. Returns how many destinations differ from what was known.
    pub fn dump(&mut self, routes: Vec<KernelRoute>) -> usize {
        let changed = self.rib.replace(routes);
        let mut count = 0;
        for (table, prefix) in changed {
            if Some(table) == self.table {
                self.decide(prefix);
                count += 1;
            }
        }
        count
    }

    /// Takes events of routes of one protocol. False: they do not tell enough, a dump has to.
    #[must_use]
    pub fn events(&mut self, protocol: u8, events: Vec<RouteEvent>) -> bool {
        let Some(table) = self.table else {
            return true;
        };
        let Some(changed) = self.rib.apply(protocol, table, events) else {
            return false;
        };
        for (_, prefix) in changed {
            self.decide(prefix);
        }
        true
    }

    /// Takes a row of the gateway router that came, went or is another one now.
    pub fn row(&mut self, id: R, before: Option<&RouteRow>, after: Option<&RouteRow>) {
        match before {
            Some(RouteRow::Import(route)) => {
                let place = self.places.entry(route.prefix).or_default();
                place.rows.retain(|(_, row)| *row != id);
                if place.rows.is_empty() {
                    self.standing = self.standing.saturating_sub(1);
                    self.went += usize::from(!place.wanted);
                }
                self.rows = self.rows.saturating_sub(1);
                self.digest = self.digest.wrapping_sub(identity(route));
                self.touch(route.prefix);
            }
            Some(RouteRow::Odd) => {
                self.odd.remove(&id);
                self.sent_odd.remove(&id);
            }
            Some(RouteRow::Other(Some(prefix))) => self.other(*prefix, false),
            Some(RouteRow::Other(None)) | None => {}
        }
        match after {
            Some(RouteRow::Import(route)) => {
                let place = self.places.entry(route.prefix).or_default();
                self.standing += usize::from(place.rows.is_empty());
                place.rows.push((route.nexthop, id));
                self.rows += 1;
                self.digest = self.digest.wrapping_add(identity(route));
                self.touch(route.prefix);
            }
            Some(RouteRow::Odd) => drop(self.odd.insert(id)),
            Some(RouteRow::Other(Some(prefix))) => self.other(*prefix, true),
            Some(RouteRow::Other(None)) | None => {}
        }
    }

    /// A row of somebody else with this destination came or went.
    fn other(&mut self, prefix: Prefix, came: bool) {
        let count = self.others.entry(prefix).or_default();
        *count = if came {
            *count + 1
        } else {
            count.saturating_sub(1)
        };
        let taken = *count > 0;
        if !taken {
            self.others.remove(&prefix);
        }
        let Some(world) = &mut self.world else {
            return;
        };
        let changed = if taken {
            world.taken.insert(prefix)
        } else {
            world.taken.remove(&prefix)
        };
        if changed {
            self.decide(prefix);
        }
    }

    /// Judges every destination that stands and that the kernel has lost: it is held, or it goes. To be called after inputs, before [`Self::step`].
    pub fn judge(
        &mut self,
        now: Duration,
        holding: &Holding,
        breaker: &mut Breaker,
        sessions: Sessions<'_>,
    ) {
        breaker.went(now, std::mem::take(&mut self.went));
        let mut held: BTreeMap<Prefix, (Held, Vec<IpAddr>)> = BTreeMap::new();
        let mut suspects = Vec::new();
        for prefix in &self.withdrawn {
            let Some(place) = self.places.get(prefix) else {
                continue;
            };
            let hops = self.holdable(*prefix, place);
            let waits: Vec<IpAddr> = hops
                .iter()
                .filter(|hop| holding.waits_for(now, **hop))
                .copied()
                .collect();
            if !waits.is_empty() {
                held.insert(*prefix, (Held::Restart, waits));
            } else if !hops.is_empty() && sessions.believes(&hops) {
                suspects.push((*prefix, hops));
            }
        }
        if breaker.judge(now, self.standing, suspects.len()) {
            let of_breaker = |(prefix, hops)| (prefix, (Held::MassWithdrawal, hops));
            held.extend(suspects.into_iter().map(of_breaker));
        }
        let before: Vec<Prefix> = self.withdrawn.iter().copied().collect();
        for prefix in before {
            let held = held.remove(&prefix);
            if let Some(place) = self.places.get_mut(&prefix)
                && place.held != held
            {
                place.held = held;
                self.touch(prefix);
            }
        }
    }

    /// Believes of all rows that stand that the kernel once asked for them: a process that is new has not seen it, and what
    /// was held before it is held on. To be called once, when routes, rows and owners have been told for the first time.
    pub fn adopt(&mut self) {
        for prefix in &self.withdrawn {
            if let Some(place) = self.places.get_mut(prefix) {
                place.hops = place.rows.iter().map(|(hop, _)| *hop).collect();
                place.owner = self.owners.longest_match(prefix).cloned();
            }
        }
    }

    /// How many destinations stand that the kernel has lost, held ones among them.
    #[must_use]
    pub fn withdrawn(&self) -> usize {
        self.withdrawn.len()
    }

    /// How many destinations have rows.
    #[must_use]
    pub fn standing(&self) -> usize {
        self.standing
    }

    /// How many imported rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many routes the kernel has, of the protocol and table that were dumped.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.rib.len()
    }

    /// How many destinations should have rows, held ones among them, those over the limit too.
    #[must_use]
    pub fn eligible(&self) -> usize {
        self.budget.len()
    }

    /// How many destinations have rows to add or to remove.
    #[must_use]
    pub fn due(&self) -> usize {
        self.adds.len() + self.removals.len() + self.odd.len()
    }

    /// Ten characters that change with the set of imported rows.
    #[must_use]
    pub fn digest(&self) -> String {
        hash::short(&self.digest.to_string())
    }

    /// The destinations that are held, and why.
    pub fn held(&self) -> impl Iterator<Item = (Prefix, Held)> + '_ {
        let of = |prefix: &Prefix| Some((*prefix, self.places.get(prefix)?.held.as_ref()?.0));
        self.withdrawn.iter().filter_map(of)
    }

    /// What is left out, by reason.
    #[must_use]
    pub fn skipped(&self) -> BTreeMap<&'static str, Skipped> {
        let of = |prefixes: &BTreeSet<Prefix>| Skipped {
            count: prefixes.len(),
            first: prefixes.iter().take(imports::NAMED).copied().collect(),
        };
        let skipped = self.skipped.iter();
        skipped.map(|(reason, all)| (*reason, of(all))).collect()
    }

    /// Whether the kernel forwards this very destination.
    #[must_use]
    pub fn kernel_has(&self, prefix: &Prefix) -> bool {
        self.places.get(prefix).is_some_and(|place| place.forwards)
    }

    /// Whether the gateway router has an imported row for this very destination.
    #[must_use]
    pub fn is_imported(&self, prefix: &Prefix) -> bool {
        self.places.get(prefix).is_some_and(|p| !p.rows.is_empty())
    }

    /// Whether the gateway router has a row for this very destination that is not an imported one.
    #[must_use]
    pub fn is_taken(&self, prefix: &Prefix) -> bool {
        self.others.contains_key(prefix)
    }

    /// Of a withdrawn destination, the next hops over which it may be held: rows stand over them that the kernel asked for,
    /// its node is the same and there, and it would be imported if the kernel had it.
    fn holdable(&self, prefix: Prefix, place: &Place<R>) -> Vec<IpAddr> {
        let Some(world) = &self.world else {
            return Vec::new();
        };
        let owner = self.owners.longest_match(&prefix);
        let in_cluster = world.cluster_subnets.iter().any(|s| s.contains(&prefix));
        let link = world.gateway_link.filter(|link| self.rib.is_up(*link));
        let (Some(link), Some(table), true) = (
            link,
            self.table,
            owner == place.owner.as_ref() && (owner.is_some() || !in_cluster),
        ) else {
            return Vec::new();
        };
        let stands = |hop: &&IpAddr| place.rows.iter().any(|(row, _)| row == *hop);
        let leg = |hop: &IpAddr| Leg {
            gateway: Some(*hop),
            oif: link,
        };
        let as_it_was = KernelRoute {
            table,
            prefix,
            metric: 0,
            kind: RouteKind::Unicast,
            legs: place.hops.iter().filter(stands).map(leg).collect(),
        };
        imports::decide(&as_it_was, world).hops
    }

    /// The next rows to write, at most `most` unless one destination alone has more, in the order of importance; empty
    /// where rows and routes agree, or all that differs is on its way. With `removals`, and when there is nothing left to
    /// add, rows that nothing takes the place of are among them: not to be asked for while additions are on their way.
    /// What a step holds is not in another one until its rows change, or [`Self::resume`].
    pub fn step(&mut self, most: usize, removals: bool) -> Step<R> {
        let mut step = Step {
            add: Vec::new(),
            remove: Vec::new(),
        };
        let mut taken = Vec::new();
        let empty = BTreeSet::new();
        let removals = if removals { &self.removals } else { &empty };
        for rank in self.adds.iter().chain(removals) {
            let (add, remove) = self.difference(rank);
            let size = step.add.len() + step.remove.len();
            if size > 0 && size + add.len() + remove.len() > most {
                break;
            }
            let prefix = rank.prefix;
            let route = |nexthop| ImportedRoute { prefix, nexthop };
            step.add.extend(add.into_iter().map(route));
            step.remove.extend(remove);
            taken.push(*rank);
        }
        let whole = taken.len() == self.adds.len() + removals.len();
        if whole && (!removals.is_empty() || self.adds.is_empty()) {
            let room = most.saturating_sub(step.add.len() + step.remove.len());
            let odd: Vec<R> = self.odd.iter().take(room).copied().collect();
            step.remove.extend(&odd);
            for id in odd {
                self.odd.remove(&id);
                self.sent_odd.insert(id);
            }
        }
        for rank in taken {
            self.adds.remove(&rank);
            self.removals.remove(&rank);
            self.sent.insert(rank);
        }
        step
    }

    /// How many destinations and odd rows a step has taken and whose rows have not changed since.
    #[must_use]
    pub fn on_their_way(&self) -> usize {
        self.sent.len() + self.sent_odd.len()
    }

    /// Nothing is on its way any more: what did not arrive is due again.
    pub fn resume(&mut self) {
        self.odd.append(&mut self.sent_odd);
        for rank in std::mem::take(&mut self.sent) {
            self.check(&rank);
        }
    }

    /// Next hops without a row, and rows that are surplus: over another next hop, or a second one.
    fn difference(&self, rank: &Rank) -> (Vec<IpAddr>, Vec<R>) {
        let Some(place) = self.places.get(&rank.prefix) else {
            return (Vec::new(), Vec::new());
        };
        let wanted = if self.budget.keeps(rank) {
            place.eligible()
        } else {
            &[]
        };
        let stands = |hop: &&IpAddr| place.rows.iter().any(|(row, _)| row == *hop);
        let add = wanted.iter().filter(|hop| !stands(hop)).copied().collect();
        let mut seen = BTreeSet::new();
        let surplus = |(hop, _): &&(IpAddr, R)| !wanted.contains(hop) || !seen.insert(*hop);
        let remove = place.rows.iter().filter(surplus).map(|(_, id)| *id);
        (add, remove.collect())
    }

    fn rank(&self, prefix: Prefix) -> Rank {
        let pods = self.world.as_ref().map(|w| w.cluster_subnets.as_slice());
        Rank::new(prefix, pods.unwrap_or_default())
    }

    /// The order of importance changed: everything that is kept in it is put in again.
    fn rank_anew(&mut self) {
        let limit = self.budget.limit();
        self.budget = Budget::new(limit);
        self.adds.clear();
        self.removals.clear();
        self.sent.clear();
        let all: Vec<Prefix> = self.places.keys().copied().collect();
        for prefix in all {
            self.touch(prefix);
        }
    }

    fn decide_all(&mut self) {
        let view = self
            .table
            .into_iter()
            .flat_map(|table| self.rib.view(table));
        let routed: Vec<Prefix> = view.map(|route| route.prefix).collect();
        let mut all: BTreeSet<Prefix> = self.places.keys().copied().collect();
        all.extend(routed);
        for prefix in all {
            self.decide(prefix);
        }
    }

    /// Decides over a destination's route as it is now.
    fn decide(&mut self, prefix: Prefix) {
        let Some(world) = &self.world else {
            // Decided as soon as there is one.
            return;
        };
        let route = self.table.and_then(|table| self.rib.best_of(table, prefix));
        let forwards = route.as_ref().is_some_and(|r| !r.legs.is_empty());
        let Decision { hops, reasons } = route
            .map(|route| imports::decide(&route, world))
            .unwrap_or_default();
        let place = self.places.entry(prefix).or_default();
        place.forwards = forwards;
        if place.reasons != reasons {
            for reason in place.reasons.iter().filter(|r| !reasons.contains(r)) {
                unskip(&mut self.skipped, reason, &prefix);
            }
            for reason in &reasons {
                self.skipped.entry(reason).or_default().insert(prefix);
            }
            place.reasons = reasons;
        }
        place.wanted = !hops.is_empty();
        if place.wanted {
            place.hops = hops;
            place.owner = self.owners.longest_match(&prefix).cloned();
            place.held = None;
        }
        self.touch(prefix);
    }

    /// Brings everything that hangs on a destination in step with it.
    fn touch(&mut self, prefix: Prefix) {
        let rank = self.rank(prefix);
        let Some(place) = self.places.get_mut(&prefix) else {
            return;
        };
        if place.is_withdrawn() {
            self.withdrawn.insert(prefix);
        } else {
            self.withdrawn.remove(&prefix);
            place.held = None;
        }
        let moved = if place.eligible().is_empty() {
            let moved = self.budget.remove(&rank);
            unskip(&mut self.skipped, OVER_LIMIT, &prefix);
            moved
        } else {
            self.budget.insert(rank)
        };
        self.check(&rank);
        if let Some(moved) = moved {
            self.check(&moved);
        }
        if self.places.get(&prefix).is_some_and(Place::is_empty) {
            self.places.remove(&prefix);
        }
    }

    /// Notes whether a destination has rows to add or to remove, and whether it is over the limit.
    fn check(&mut self, rank: &Rank) {
        let eligible = self.places.get(&rank.prefix);
        let eligible = eligible.is_some_and(|place| !place.eligible().is_empty());
        if eligible && !self.budget.keeps(rank) {
            self.skipped
                .entry(OVER_LIMIT)
                .or_default()
                .insert(rank.prefix);
        } else {
            unskip(&mut self.skipped, OVER_LIMIT, &rank.prefix);
        }
        self.sent.remove(rank);
        let (add, remove) = self.difference(rank);
        if add.is_empty() {
            self.adds.remove(rank);
        } else {
            self.adds.insert(*rank);
        }
        if add.is_empty() && !remove.is_empty() {
            self.removals.insert(*rank);
        } else {
            self.removals.remove(rank);
        }
    }
}

fn unskip(
    skipped: &mut BTreeMap<&'static str, BTreeSet<Prefix>>,
    reason: &'static str,
    prefix: &Prefix,
) {
    if let Some(of_reason) = skipped.get_mut(reason) {
        of_reason.remove(prefix);
        if of_reason.is_empty() {
            skipped.remove(reason);
        }
    }
}

/// A number that stands for a row; their sum stands for the set.
fn identity(route: &ImportedRoute) -> u64 {
    hash::fnv1a64(&format!("{} {}", route.prefix, route.nexthop))
}

#[cfg(test)]
mod tests;
