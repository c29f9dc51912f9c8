//! The node's rows in OVN_Northbound, imported routes aside: those of each network, and those that networks share.
//! In: the plan's part, the replica. Out: one guarded transaction for an owner where something differs.
//! Invariant: no transaction where nothing differs; nothing is taken away because something is not known; one owner's trouble
//! keeps no other's rows from being written. Not here: which rows (`plan_node::north`), how they are written (`ovn`), imported
//! routes (`import`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::diff::Diff;
use model::nb::{self, CtInvMatch, ImportTarget, Owner, Rows, Value};
use model::{NetworkName, NodeName, Problem, RouterName};
use ovn::north::{North, Owned, Quiet};
use ovsdb::Client;
use plan_node::learn;
use prometheus::IntCounterVec;
use reconcile::{Action, Reconciler};
use telemetry::{Chain, Readiness, WarnOnce};
use tokio::sync::watch;

use crate::keys::{BridgeKey, Queues};
use crate::loops::failing::{Failing, Outcome};
use crate::metrics::{Metrics, ProblemGauge};
use crate::transact::{TransactionFailed, transact};
use crate::world::Planned;

/// Why a pass failed; the world's fault, tried again.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error("cannot read rows")]
    Access(#[from] ovsdb::AccessError),
    #[error("cannot make a transaction")]
    Encode(#[from] ovn::EncodeError),
    #[error(transparent)]
    Transact(#[from] TransactionFailed),
    #[error("the database is not in step")]
    NoReplica,
    /// Somebody else's fault.
    #[error("{0}")]
    Blocked(String),
}

/// The replica as it was decoded, while nothing but imported routes changed since.
struct Decoded {
    quiet: Quiet,
    north: Arc<North>,
    /// Of the owners those that were looked at and found as planned.
    settled: BTreeSet<Owner>,
    planned: Arc<Planned>,
}

/// Reconciles them.
pub(crate) struct NorthReconciler {
    planned: watch::Receiver<Option<Arc<Planned>>>,
    node: NodeName,
    north: Client,
    queues: Queues,
    transactions: IntCounterVec,
    problems: ProblemGauge,
    decoded: Option<Decoded>,
    /// An owner's rows as they last stood, whether written or found.
    stood: BTreeMap<Owner, Rows>,
    /// The value of an option that somebody else holds against ours, as it was told.
    in_the_way: Option<String>,
    warned: WarnOnce<Owner>,
    failing: Failing<Owner>,
}

impl NorthReconciler {
    pub(crate) fn new(
        planned: watch::Receiver<Option<Arc<Planned>>>,
        node: NodeName,
        north: Client,
        queues: Queues,
        metrics: &Metrics,
        readiness: Readiness,
    ) -> Self {
        Self {
            planned,
            node,
            north,
            queues,
            transactions: metrics.transactions.clone(),
            problems: metrics.problems.clone(),
            decoded: None,
            stood: BTreeMap::new(),
            in_the_way: None,
            warned: WarnOnce::default(),
            failing: Failing::new("topology", readiness),
        }
    }

    /// Decodes the replica, unless nothing but imported routes changed since it was decoded last: of thousands of them each
    /// one moves it.
    fn decode(&mut self, planned: &Arc<Planned>) -> Result<Arc<North>, PassError> {
        let fresh = self.north.with_replica(|replica| {
            if let Some(decoded) = &mut self.decoded
                && decoded.quiet.holds(replica)?
            {
                return Ok(None);
            }
            let north = ovn::north::decode(replica)?;
            let quiet = Quiet::of(replica, &north)?;
            Ok::<_, ovsdb::AccessError>(Some((north, quiet)))
        });
        if let Some((north, quiet)) = fresh.ok_or(PassError::NoReplica)?? {
            for owner in north.owned.keys() {
                if !planned.plan.north.contains_key(owner) {
                    self.queues.north.enqueue(owner.clone());
                }
            }
            self.decoded = Some(Decoded {
                quiet,
                north: Arc::new(north),
                settled: BTreeSet::new(),
                planned: Arc::clone(planned),
            });
        }
        let decoded = self.decoded.as_mut().ok_or(PassError::NoReplica)?;
        if !Arc::ptr_eq(&decoded.planned, planned) {
            decoded.planned = Arc::clone(planned);
            decoded.settled.clear();
        }
        Ok(Arc::clone(&decoded.north))
    }

    async fn rows(&mut self, owner: &Owner, planned: &Arc<Planned>) -> Result<Action, PassError> {
        let north = self.decode(planned)?;
        let settled = self.decoded.as_ref().map(|decoded| &decoded.settled);
        if settled.is_some_and(|settled| settled.contains(owner)) {
            return Ok(Action::NoChange);
        }
        let plan = &planned.plan;
        let wanted = match plan.north.get(owner) {
            Some(rows) => self.wanted(owner, planned, rows)?,
            None => self.not_wanted(owner, planned, &north)?,
        };
        let wanted = if *owner == Owner::Node && !plan.is_complete() {
            grown(wanted, north.of(owner))
        } else {
            wanted
        };
        let mut diff = Diff::between(north.of(owner), &wanted, nb::satisfies);
        // A row whose marker somebody changed is another owner's by its name, and stands in that one's way: it is said there.
        diff.delete.retain(|(_, key)| !plan.is_anothers(owner, key));
        if *owner == Owner::Node && !plan.is_complete() {
            // A network that is not known yet may refer to them.
            diff.delete.clear();
        }
        let comment = format!("noverlay node-agent topology of {owner}");
        let transaction = ovn::encode::topology(&diff, &north, owner, &comment)?;
        let stands = transaction.operations().is_empty();
        if !stands {
            let counts = (diff.create.len(), diff.update.len(), diff.delete.len());
            let (create, update, delete) = counts;
            let owner_name = owner.to_string();
            if self.stood.get(owner) == Some(&wanted) {
                tracing::warn!(
                    owner = owner_name,
                    create,
                    update,
                    delete,
                    "somebody else changed the topology's rows, repairing them"
                );
            } else {
                tracing::info!(
                    owner = owner_name,
                    create,
                    update,
                    delete,
                    "writing the topology"
                );
            }
            transact("north", &self.north, &transaction, &self.transactions).await?;
        }
        self.stood.insert(owner.clone(), wanted);
        self.queues.bridge.enqueue(BridgeKey::Flows);
        if *owner == Owner::Node {
            // After the rows, which do not wait for it where it fails.
            self.ct_inv_match(plan.ct_inv_match).await?;
        }
        if let Some(decoded) = &mut self.decoded
            && stands
        {
            decoded.settled.insert(owner.clone());
        }
        Ok(Action::Done)
    }

    /// The option of the whole database; a value of somebody else's is told once.
    async fn ct_inv_match(&mut self, wanted: CtInvMatch) -> Result<(), PassError> {
        let made = self
            .north
            .with_replica(|replica| ovn::global::transaction(replica, wanted));
        let (transaction, in_the_way) = made.ok_or(PassError::NoReplica)??;
        if let Some(value) = in_the_way
            .as_ref()
            .filter(|_| in_the_way != self.in_the_way)
        {
            let key = nb::CT_INV_MATCH;
            tracing::warn!(
                value,
                "NB_Global options:{key} is somebody else's and stays; with local gateway mode and advertised networks false is wanted, or packets that come back by another way may be dropped"
            );
        }
        self.in_the_way = in_the_way;
        if !transaction.operations().is_empty() {
            tracing::info!(?wanted, "writing NB_Global options:{}", nb::CT_INV_MATCH);
            transact("north", &self.north, &transaction, &self.transactions).await?;
        }
        Ok(())
    }

    /// The plan's rows as they should stand now: where an imported route stands, the import looks after what gave way to it.
    fn wanted(&self, owner: &Owner, planned: &Planned, rows: &Rows) -> Result<Rows, PassError> {
        let nodes = planned.nodes.as_ref();
        let of_nodes = |network: &NetworkName| -> Option<BTreeSet<RouterName>> {
            let names = nodes?.iter();
            Some(names.map(|node| network.gateway_router(node)).collect())
        };
        let replica = |routers: Option<&BTreeSet<RouterName>>| {
            let north = &self.north;
            north.with_replica(|replica| ovn::north::foreign(replica, rows, routers))
        };
        let (rows, foreign) = match owner {
            Owner::Node => (rows.clone(), self.of_other_nodes(planned, replica(None))),
            Owner::Network(name) => {
                let routers = of_nodes(name);
                let giving_way = planned.plan.learn.get(name);
                let fallbacks = giving_way.map(|inputs| &inputs.scope.fallbacks);
                let rows = match fallbacks.filter(|fallbacks| !fallbacks.is_empty()) {
                    None => rows.clone(),
                    Some(fallbacks) => {
                        let target = ImportTarget::of(name, &self.node);
                        let prefixes = fallbacks.keys().copied().collect();
                        let imported = self.north.with_replica(|replica| {
                            ovn::north::imported_among(replica, &target, &prefixes)
                        });
                        let imported = imported.ok_or(PassError::NoReplica)??;
                        learn::without_fallbacks(rows.clone(), &target.router, fallbacks, &imported)
                    }
                };
                (rows, replica(routers.as_ref()))
            }
        };
        let foreign = foreign.ok_or(PassError::NoReplica)?;
        match foreign.first() {
            Some(problem) => Err(PassError::Blocked(problem.to_string())),
            None => Ok(rows),
        }
    }

    /// What stands in the way of the node's rows: also gateway routers of another node, as for each network's rows.
    fn of_other_nodes(
        &self,
        planned: &Planned,
        found: Option<Vec<Problem>>,
    ) -> Option<Vec<Problem>> {
        let mut found = found?;
        for (owner, rows) in &planned.plan.north {
            let Owner::Network(network) = owner else {
                continue;
            };
            let routers = planned.nodes.as_ref().map(|nodes| {
                let of_nodes = nodes.iter().map(|node| network.gateway_router(node));
                of_nodes.collect::<BTreeSet<RouterName>>()
            });
            let problems = self
                .north
                .with_replica(|r| ovn::north::foreign(r, rows, routers.as_ref()))?;
            found.extend(
                problems
                    .into_iter()
                    .filter(|p| p.reason == ovn::north::OTHER_NODE),
            );
        }
        Some(found)
    }

    /// Nothing is wanted of a network that is not declared any more. Its rows go, unless they may be another node's.
    fn not_wanted(
        &self,
        owner: &Owner,
        planned: &Planned,
        north: &North,
    ) -> Result<Rows, PassError> {
        let elsewhere = ovn::north::bound_elsewhere(north.of(owner), planned.chassis.as_deref());
        match elsewhere {
            Some(router) => Err(PassError::Blocked(format!(
                "{owner} is not declared any more, and its Logical_Router {router} is bound to another chassis: another node's agent writes to this Northbound database, and each node needs one of its own ([ovnnorth] address); if that node is no more, remove the router"
            ))),
            None => Ok(Rows::new()),
        }
    }
}

/// The rows with all that sets of these names hold: a network that is not known yet may have put it there.
fn grown(mut wanted: Rows, owned: &Owned) -> Rows {
    for (key, columns) in &mut wanted {
        let held = owned.get(key).and_then(|rows| rows.first());
        for (column, value) in columns {
            let before = held.and_then(|(_, columns)| columns.get(column));
            if let (Value::Set(items), Some(Value::Set(before))) = (value, before) {
                items.extend(before.iter().cloned());
            }
        }
    }
    wanted
}

impl Reconciler for NorthReconciler {
    type Key = Owner;

    async fn keys(&mut self) -> Option<Vec<Owner>> {
        let planned = self.planned.borrow().clone()?;
        let wanted = planned.plan.north.keys().cloned();
        // Whoever else owns rows is known by the last decode, which a pass makes, and pace rules passes.
        let owned = self.decoded.as_ref().map(|decoded| &decoded.north.owned);
        let owned = owned.into_iter().flat_map(|owned| owned.keys().cloned());
        let all: BTreeSet<Owner> = wanted.chain(owned).collect();
        self.failing.retain(&all);
        Some(all.into_iter().collect())
    }

    /// Never cancelled by the loop; a transaction is applied whole or not at all.
    async fn reconcile(&mut self, owner: &Owner) -> Action {
        let Some(planned) = self.planned.borrow().clone() else {
            return Action::AwaitChange;
        };
        if !planned.schema {
            // Columns that only newer schemas have would be taken away and come back.
            return Action::Requeue;
        }
        if planned.chassis.is_none() && !planned.plan.north.contains_key(owner) {
            // Whether its routers are this node's cannot be known yet.
            return Action::Requeue;
        }
        let is_known = match owner {
            Owner::Node => planned.plan.is_complete() || planned.plan.north.contains_key(owner),
            Owner::Network(name) => !planned.plan.unknown.contains(name),
        };
        if !is_known {
            // The plan says why.
            return Action::AwaitChange;
        }
        let outcome = self.rows(owner, &planned).await;
        let wanted: BTreeSet<Owner> = planned.plan.north.keys().cloned().collect();
        let (outcome, action) = match outcome {
            Ok(action) => {
                self.warned.clear(owner);
                let stale = match owner {
                    Owner::Node => false,
                    Owner::Network(name) => planned.awaits(name),
                };
                if stale {
                    // It stands as it was last known; the plan says what is missing.
                    (Outcome::Failed, Action::Requeue)
                } else {
                    (Outcome::Well, action)
                }
            }
            Err(PassError::Blocked(why)) => {
                self.warned.warn(owner.clone(), why);
                (Outcome::Blocked, Action::AwaitChange)
            }
            Err(error) => {
                let text = format!(
                    "topology of {owner}: pass failed, trying again: {}",
                    Chain(&error)
                );
                self.warned.warn(owner.clone(), text);
                (Outcome::Failed, Action::Requeue)
            }
        };
        self.failing.note(owner, outcome, &wanted);
        self.problems.set_blocked(self.failing.blocked());
        action
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::nb::{RowKey, Table};

    #[test]
    fn a_set_of_the_nodes_only_grows_while_a_network_is_not_known() {
        let key = RowKey::root(Table::AddressSet, "a1");
        let columns = |items: &[&str]| {
            let items = items.iter().copied();
            model::nb::Columns::from([("addresses", Value::set(items))])
        };
        let wanted = Rows::from([(key.clone(), columns(&["10.0.0.0/16"]))]);
        let held = columns(&["10.0.0.0/16", "10.1.0.0/16"]);
        let owned = Owned::from([(key.clone(), vec![(ovsdb::random_uuid(), held.clone())])]);
        assert_eq!(grown(wanted.clone(), &owned)[&key], held);
        assert_eq!(grown(wanted.clone(), &Owned::new()), wanted);
    }
}
