//! What an import says of its network.
//! In: the importer, whose the network's subnets are. Out: a report, and what tells whether another one would say the same.
//! Invariant: the object speaks of pods' subnets: what else comes and goes would be a write of every node each time.
//! Not here: conditions and writes (`loops::api`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::node_routes::{NetworkRoutes, SkippedRoutes};
use import::coverage::{self, Coverage};
use import::decide::Skipped;
use import::{Importer, Retained, budget};
use model::subnets::{Owners, Subnets};
use model::{NetworkName, NodeName, Prefix};
use ovsdb::Uuid;
use plan_node::Inputs;

/// What a report is made from, short of looking at each subnet.
#[derive(Debug)]
pub(crate) struct Shown {
    digest: String,
    /// By reason: what FRR's restart retained may be retained as a mass withdrawal a moment later.
    retained: BTreeMap<Retained, usize>,
    eligible: usize,
    skipped: BTreeMap<&'static str, Skipped>,
    steered: Option<Arc<BTreeSet<Prefix>>>,
    inputs: Arc<Inputs>,
}

impl PartialEq for Shown {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
            && self.retained == other.retained
            && self.eligible == other.eligible
            && self.skipped == other.skipped
            && self.steered == other.steered
            && Arc::ptr_eq(&self.inputs, &other.inputs)
    }
}

impl Shown {
    /// `steered`: of an import that fills sets, what they hold.
    pub(crate) fn of(
        importer: &Importer<Uuid>,
        steered: Option<&Arc<BTreeSet<Prefix>>>,
        inputs: &Arc<Inputs>,
    ) -> Self {
        let mut retained: BTreeMap<Retained, usize> = BTreeMap::new();
        for (_, why) in importer.retained() {
            *retained.entry(why).or_default() += 1;
        }
        Self {
            digest: importer.digest(),
            retained,
            eligible: importer.eligible(),
            skipped: importer.skipped(),
            steered: steered.cloned(),
            inputs: Arc::clone(inputs),
        }
    }
}

/// What an import found.
#[derive(Debug)]
pub(crate) struct ImportReport {
    /// Without conditions.
    pub(crate) routes: NetworkRoutes,
    /// Subnets of other nodes that kernel or gateway router do not cover.
    pub(crate) missing: usize,
    /// Destinations over the limit, wherever they are.
    pub(crate) over: usize,
    /// Of those the ones inside the network.
    pub(crate) over_pods: Option<Skipped>,
    /// How many are retained as a mass withdrawal, and the first of them.
    pub(crate) mass: (usize, Vec<Prefix>),
}

/// So many names are in a message.
pub(crate) const NAMED: usize = 5;

impl ImportReport {
    /// `steered`: of an import that fills sets, what they hold.
    pub(crate) fn of(
        name: &NetworkName,
        own: &NodeName,
        (importer, steered): (&Importer<Uuid>, Option<&BTreeSet<Prefix>>),
        inputs: &Inputs,
    ) -> Self {
        let coverage = evaluate(&expected(own, &inputs.owners), importer, steered);
        let skipped = importer.skipped_pods();
        let mass = || {
            let all = importer.retained();
            all.filter(|(_, why)| *why == Retained::MassWithdrawal)
        };
        let first = mass().take(NAMED).map(|(prefix, _)| prefix);
        let covered = coverage.in_kernel.min(coverage.in_ovn);
        Self {
            missing: coverage.expected.saturating_sub(covered),
            over: importer.skipped_for(budget::OVER_LIMIT),
            over_pods: skipped.get(budget::OVER_LIMIT).cloned(),
            mass: (mass().count(), first.collect()),
            routes: routes(name, coverage, (importer, steered), &skipped),
        }
    }
}

fn routes(
    name: &NetworkName,
    coverage: Coverage,
    (importer, steered): (&Importer<Uuid>, Option<&BTreeSet<Prefix>>),
    skipped: &BTreeMap<&'static str, Skipped>,
) -> NetworkRoutes {
    let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let pods = importer.pods();
    let skipped = skipped.iter().map(|(reason, skipped)| SkippedRoutes {
        reason: (*reason).to_owned(),
        count: number(skipped.count),
        examples: skipped
            .first
            .iter()
            .take(3)
            .map(Prefix::to_string)
            .collect(),
    });
    NetworkRoutes {
        name: name.to_string(),
        expected: number(coverage.expected),
        in_kernel: number(coverage.in_kernel),
        in_ovn: number(coverage.in_ovn),
        imported: number(steered.map_or(pods.rows, BTreeSet::len)),
        retained: number(pods.retained),
        digest: coverage.digest,
        missing: coverage.missing,
        skipped: skipped.collect(),
        conditions: Vec::new(),
    }
}

/// The subnets of other nodes, of those that are believed: what one Node's annotation claims beyond them must not make every
/// node's report incomplete. Nor must a claim on this node's own subnet, to which there is never a route.
fn expected(own: &NodeName, owners: &Subnets<Owners>) -> BTreeMap<NodeName, Vec<Prefix>> {
    let ours = owners.pairs().filter(|(_, node)| *node == own);
    let ours: Vec<Prefix> = ours.map(|(subnet, _)| *subnet).collect();
    let mut expected: BTreeMap<NodeName, Vec<Prefix>> = BTreeMap::new();
    for (subnet, node) in owners.pairs() {
        if node != own && !ours.iter().any(|own| own.overlaps(subnet)) {
            expected.entry(node.clone()).or_default().push(*subnet);
        }
    }
    expected
}

/// Evaluates other nodes' subnets by what the kernel does with them, and gateway router or sets.
fn evaluate(
    expected: &BTreeMap<NodeName, Vec<Prefix>>,
    importer: &Importer<Uuid>,
    steered: Option<&BTreeSet<Prefix>>,
) -> Coverage {
    let in_ovn = |prefix: &Prefix| match steered {
        None => importer.in_gateway(prefix),
        Some(steered) => steered.contains(prefix).then_some(true),
    };
    coverage::evaluate(expected, |prefix| importer.in_kernel(prefix), in_ovn)
}

#[cfg(test)]
mod tests;
