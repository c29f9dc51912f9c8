//! The node's rows in OVN_Northbound, imported routes aside: those of each network, and those that networks share.
//! In: the plan's part, the replica. Out: one guarded transaction for an owner where something differs.
//! Invariant: no transaction where nothing differs; nothing is taken away because something is not known; one owner's trouble
//! keeps no other's rows from being written. Not here: which rows (`plan_node::north`), how they are written (`ovn`), imported
//! routes (`import`).

mod in_force;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use model::diff::Diff;
use model::nb::{self, Columns, CtInvMatch, ImportTarget, Owner, Rows, Table, Value};
use model::{NetworkName, NodeName, Prefix, Problem};
use ovn::north::{Named, North, Owned, Quiet};
use ovsdb::{Client, Replica};
use plan_node::{Plan, learn};
use prometheus::IntCounterVec;
use reconcile::{Action, Reconciler};
use telemetry::{Chain, Readiness, WarnOnce};
use tokio::sync::watch;

use crate::beside::Sight;
use crate::keys::{ApiKey, BridgeKey, Queues};
use crate::loops::failing::{Failing, Outcome};
use crate::metrics::{Metrics, ProblemGauge};
use crate::transact::{TransactionFailed, transact};
use crate::world::{FactsChanged, Planned};

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
    /// `None` when nobody had a use for it any more: of fifty networks it is some megabytes.
    found: Option<Arc<Found>>,
    /// Who owns rows.
    owners: BTreeSet<Owner>,
    /// Of the owners those that were looked at and found as planned.
    settled: BTreeSet<Owner>,
    planned: Arc<Planned>,
}

/// What a replica holds.
struct Found {
    north: North,
    named: Named,
}

impl Found {
    fn of(replica: &Replica) -> Result<Self, ovsdb::AccessError> {
        Ok(Self {
            north: ovn::north::decode(replica)?,
            named: Named::of(replica),
        })
    }
}

impl Decoded {
    /// Takes another plan: what an owner's pass looks at in it decides whether there is a need for another one.
    fn take(&mut self, planned: &Arc<Planned>) {
        let before = std::mem::replace(&mut self.planned, Arc::clone(planned));
        if before.nodes != planned.nodes || before.chassis != planned.chassis {
            self.settled.clear();
        }
        let (old, new) = (&before.plan, &planned.plan);
        self.settled.retain(|owner| match owner {
            // What it may write hangs on all networks.
            Owner::Node => false,
            Owner::Network(name) => {
                let same_rows = old.north.get(owner) == new.north.get(owner);
                same_rows && fallbacks(old, name) == fallbacks(new, name)
            }
        });
    }

    /// An owner's rows stand as planned.
    fn settle(&mut self, owner: &Owner) {
        self.settled.insert(owner.clone());
        let wanted = self.planned.plan.north.keys();
        let mut all = wanted.chain(&self.owners);
        if all.all(|owner| self.settled.contains(owner) || !is_known(owner, &self.planned)) {
            self.found = None;
        }
    }
}

/// Rows of a network's topology that give way to imported routes.
fn fallbacks<'a>(plan: &'a Plan, name: &NetworkName) -> Option<&'a BTreeMap<Prefix, Vec<Columns>>> {
    plan.learn.get(name).map(|inputs| &inputs.scope.fallbacks)
}

/// Whether it is known what an owner is to have.
fn is_known(owner: &Owner, planned: &Planned) -> bool {
    match owner {
        Owner::Node => planned.plan.is_complete() || planned.plan.north.contains_key(owner),
        Owner::Network(name) => !planned.plan.unknown.contains(name),
    }
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
    /// What tells an owner's rows as they last stood from others, whether written or found.
    stood: BTreeMap<Owner, u64>,
    /// The value of an option that somebody else holds against ours, as it was told.
    in_the_way: Option<String>,
    warned: WarnOnce<Owner>,
    failing: Failing<Owner>,
    /// Told of networks whose rows somebody else's keep from being written.
    blocked: watch::Sender<Blocked>,
    facts: FactsChanged,
    /// Beside OVN-Kubernetes: who wants to know how much is in force.
    sight: Option<Sight>,
    /// How far flows have to have followed the database until rows are in force: access lists and what is not translated, and the policy.
    targets: BTreeMap<Owner, (i64, i64)>,
}

/// Networks whose rows are not written, and why.
pub(crate) type Blocked = BTreeMap<NetworkName, String>;

impl NorthReconciler {
    pub(crate) fn new(
        planned: watch::Receiver<Option<Arc<Planned>>>,
        node: NodeName,
        north: Client,
        queues: Queues,
        metrics: &Metrics,
        (readiness, blocked, facts): (Readiness, watch::Sender<Blocked>, FactsChanged),
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
            blocked,
            facts,
            sight: None,
            targets: BTreeMap::new(),
        }
    }

    /// The same beside OVN-Kubernetes: it tells how much is in force.
    pub(crate) fn telling(self, sight: Option<Sight>) -> Self {
        Self { sight, ..self }
    }

    /// Remembers why a network's rows are not written; `None`: they are, or nobody's rows are in the way.
    fn note_blocked(&self, owner: &Owner, why: Option<&str>) {
        let Owner::Network(name) = owner else {
            return;
        };
        let changed = self.blocked.send_if_modified(|blocked| {
            if blocked.get(name).map(String::as_str) == why {
                return false;
            }
            match why {
                Some(why) => drop(blocked.insert(name.clone(), why.to_owned())),
                None => drop(blocked.remove(name)),
            }
            true
        });
        if changed {
            self.queues.api.enqueue(ApiKey::Report);
            self.facts.note();
        }
    }

    /// What the replica holds, as far as the owner's rows are not known to stand as planned: `None` where they are. It is decoded
    /// unless it is what was decoded last, or differs in imported routes only, of which each one of thousands moves it.
    fn look(
        &mut self,
        owner: &Owner,
        planned: &Arc<Planned>,
    ) -> Result<Option<Arc<Found>>, PassError> {
        if let Some(decoded) = &mut self.decoded
            && !Arc::ptr_eq(&decoded.planned, planned)
        {
            decoded.take(planned);
        }
        let decoded = &mut self.decoded;
        // Under one lock: what is settled and what is decoded are of one state of the replica.
        let looked = self.north.with_replica(|replica| {
            if let Some(decoded) = decoded
                && decoded.quiet.holds(replica)?
            {
                if decoded.settled.contains(owner) {
                    return Ok(None);
                }
                let found = match decoded.found.take() {
                    Some(found) => found,
                    None => Arc::new(Found::of(replica)?),
                };
                decoded.found = Some(Arc::clone(&found));
                return Ok(Some((found, None)));
            }
            let found = Found::of(replica)?;
            let quiet = Quiet::of(replica, &found.north)?;
            Ok::<_, ovsdb::AccessError>(Some((Arc::new(found), Some(quiet))))
        });
        let Some((found, fresh)) = looked.ok_or(PassError::NoReplica)?? else {
            return Ok(None);
        };
        if let Some(quiet) = fresh {
            let owners: BTreeSet<Owner> = found.north.owned.keys().cloned().collect();
            for owner in &owners {
                if !planned.plan.north.contains_key(owner) {
                    self.queues.north.enqueue(owner.clone());
                }
            }
            self.decoded = Some(Decoded {
                quiet,
                found: Some(Arc::clone(&found)),
                owners,
                settled: BTreeSet::new(),
                planned: Arc::clone(planned),
            });
        }
        Ok(Some(found))
    }

    async fn rows(&mut self, owner: &Owner, planned: &Arc<Planned>) -> Result<Action, PassError> {
        let Some(found) = self.look(owner, planned)? else {
            return Ok(Action::NoChange);
        };
        let north = &found.north;
        let plan = &planned.plan;
        let wanted = match plan.north.get(owner) {
            Some(rows) => self.wanted(owner, planned, rows, &found.named)?,
            None => Cow::Owned(self.not_wanted(owner, planned, north)?),
        };
        let wanted = if *owner == Owner::Node && !plan.is_complete() {
            Cow::Owned(grown(wanted.into_owned(), north.of(owner)))
        } else {
            wanted
        };
        let mut diff = Diff::between(north.of(owner), &wanted, nb::satisfies);
        // A row whose marker somebody changed is another owner's by its name, and stands in that one's way: it is said there.
        let surplus = diff.delete.len();
        diff.delete.retain(|(_, key)| !plan.is_anothers(owner, key));
        let is_whole = diff.delete.len() == surplus;
        if *owner == Owner::Node && !plan.is_complete() {
            // A network that is not known yet may refer to them.
            diff.delete.clear();
        }
        let comment = format!("noverlay node-agent topology of {owner}");
        let mut transaction = ovn::encode::topology(&diff, north, owner, &comment)?;
        let stands = transaction.operations().is_empty();
        if !stands {
            self.tell(owner, &wanted, &diff);
            if self.sight.is_some() {
                let counted = |replica: &Replica| ovn::in_force::counted(replica, transaction);
                transaction = self
                    .north
                    .with_replica(counted)
                    .ok_or(PassError::NoReplica)??;
            }
            transact("north", &self.north, &transaction, &self.transactions).await?;
            if self.sight.is_some() {
                self.note_target(owner, &diff);
            }
        }
        self.stood.insert(owner.clone(), digest(&wanted));
        self.queues.bridge.enqueue(BridgeKey::Flows);
        if *owner == Owner::Node {
            // After the rows, which do not wait for it where it fails.
            self.ct_inv_match(plan.ct_inv_match).await?;
        }
        if let Some(decoded) = &mut self.decoded
            && stands
            && is_whole
        {
            decoded.settle(owner);
        }
        Ok(Action::Done)
    }

    /// Says what is about to be written, and whether it repairs what stood.
    fn tell(&self, owner: &Owner, wanted: &Rows, diff: &Diff<nb::RowKey, Columns, ovsdb::Uuid>) {
        let counts = (diff.create.len(), diff.update.len(), diff.delete.len());
        let (create, update, delete) = counts;
        let stood = self.stood.get(owner) == Some(&digest(wanted));
        let owner = owner.to_string();
        if stood {
            tracing::warn!(
                owner,
                create,
                update,
                delete,
                "somebody else changed the topology's rows, repairing them"
            );
        } else {
            tracing::info!(owner, create, update, delete, "writing the topology");
        }
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
    fn wanted<'a>(
        &self,
        owner: &Owner,
        planned: &Planned,
        rows: &'a Rows,
        named: &Named,
    ) -> Result<Cow<'a, Rows>, PassError> {
        let foreign = match owner {
            Owner::Node => {
                let mut found = named.foreign(rows, |_| true);
                found.extend(of_other_nodes(planned, named));
                found
            }
            Owner::Network(name) => named.foreign(rows, |router| {
                name.is_gateway_router(router, planned.nodes.as_ref())
            }),
        };
        if let Some(problem) = foreign.first() {
            return Err(PassError::Blocked(problem.to_string()));
        }
        let Owner::Network(name) = owner else {
            return Ok(Cow::Borrowed(rows));
        };
        let fallbacks = fallbacks(&planned.plan, name);
        let Some(fallbacks) = fallbacks.filter(|fallbacks| !fallbacks.is_empty()) else {
            return Ok(Cow::Borrowed(rows));
        };
        let target = ImportTarget::of(name, &self.node);
        let prefixes = fallbacks.keys().copied().collect();
        let imported = self
            .north
            .with_replica(|replica| ovn::north::imported_among(replica, &target, &prefixes));
        let imported = imported.ok_or(PassError::NoReplica)??;
        let rows = learn::without_fallbacks(rows.clone(), &target.router, fallbacks, &imported);
        Ok(Cow::Owned(rows))
    }

    /// Nothing is wanted of a network that is not declared any more. Its rows go, unless they may be another node's.
    fn not_wanted(
        &self,
        owner: &Owner,
        planned: &Planned,
        north: &North,
    ) -> Result<Rows, PassError> {
        let is_built = |key: &nb::RowKey| matches!(key.table, Table::Router | Table::Switch);
        if self.sight.is_some() && north.of(owner).keys().any(is_built) {
            return Err(PassError::Blocked(format!(
                "{owner} has routers or switches that noverlay built ([ovn] topology = build): beside OVN-Kubernetes nothing of it is touched"
            )));
        }
        let elsewhere = ovn::north::bound_elsewhere(north.of(owner), planned.chassis.as_deref());
        match elsewhere {
            Some(router) => Err(PassError::Blocked(format!(
                "{owner} is not declared any more, and its Logical_Router {router} is bound to another chassis: another node's agent writes to this Northbound database, and each node needs one of its own ([ovnnorth] address); if that node is no more, remove the router"
            ))),
            None => Ok(Rows::new()),
        }
    }
}

/// What stands in the way of the node's rows: gateway routers of another node, as for each network's rows.
fn of_other_nodes(planned: &Planned, named: &Named) -> Vec<Problem> {
    let networks = planned.plan.north.iter();
    let of = networks.filter_map(|(owner, rows)| match owner {
        Owner::Node => None,
        Owner::Network(name) => {
            let is_of_a_node =
                |router: &str| name.is_gateway_router(router, planned.nodes.as_ref());
            Some(named.other_nodes(rows, is_of_a_node))
        }
    });
    of.flatten().collect()
}

/// Tells rows from others, as far as a message hangs on it.
fn digest(rows: &Rows) -> u64 {
    let mut hasher = DefaultHasher::new();
    rows.hash(&mut hasher);
    hasher.finish()
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
        let owned = self.decoded.iter();
        let owned = owned.flat_map(|decoded| decoded.owners.iter().cloned());
        // What is gone has to be seen to be so.
        let stepping = planned.plan.steps.keys().cloned().map(Owner::Network);
        let all: BTreeSet<Owner> = wanted.chain(owned).chain(stepping).collect();
        self.failing.retain(&all);
        self.warned.retain(|owner| all.contains(owner));
        self.stood.retain(|owner, _| all.contains(owner));
        self.targets.retain(|owner, _| all.contains(owner));
        self.blocked.send_if_modified(|blocked| {
            let before = blocked.len();
            blocked.retain(|name, _| all.contains(&Owner::Network(name.clone())));
            blocked.len() != before
        });
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
        if !is_known(owner, &planned) {
            // The plan says why.
            return Action::AwaitChange;
        }
        let outcome = self.rows(owner, &planned).await;
        match &outcome {
            Ok(_) => self.note_blocked(owner, None),
            Err(PassError::Blocked(why)) => self.note_blocked(owner, Some(why)),
            // Nothing is known of rows that could not be looked at.
            Err(_) => {}
        }
        self.tell_in_force(owner, &planned, outcome.is_ok());
        let wanted = planned.plan.north.keys().cloned();
        let stepping = planned.plan.steps.keys().cloned().map(Owner::Network);
        let wanted: BTreeSet<Owner> = wanted.chain(stepping).collect();
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
    use model::nb::RowKey;

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
