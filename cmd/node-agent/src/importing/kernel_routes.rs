//! The kernel's side of one import: its routes and links, and what they mean to the network.
//! In: what was heard, dumps, the inputs. Out: an importer that has all of it. Invariant: what is known of routes is checked against a
//! dump soon after events changed it; after a failure nothing is believed until all was read. Not here: what is written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use import::Importer;
use model::Prefix;
use model::route::{Hints, PROTOCOL_BGP, RouteEvent, TableId};
use netlink::dump;
use ovsdb::Uuid;
use plan_node::Inputs;
use prometheus::IntCounterVec;
use settings::Limits;

use super::event_buffer::{EventBuffer, PendingEvents};
use super::{ImportError, now, whole};

/// Routes that events reported are dumped after this time at the earliest, and so seldom that dumps take a hundredth of one core.
const VERIFY: Duration = Duration::from_secs(5);
const VERIFY_SHARE: u32 = 100;
/// A pass after this time dumps though nothing was heard; the loop's sweep brings one.
const UNREAD: Duration = Duration::from_secs(270);

/// So many destinations are remembered one by one.
const REMEMBERED: usize = 1000;

/// What may be forwarded in another way than at the last look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// What has to do with these destinations.
    These(BTreeSet<Prefix>),
    /// Anything.
    Everything,
}

impl Default for Touched {
    /// Nothing.
    fn default() -> Self {
        Self::These(BTreeSet::new())
    }
}

impl Touched {
    fn note(&mut self, events: &[RouteEvent]) {
        if let Self::These(prefixes) = self {
            prefixes.extend(events.iter().map(|event| event.route.prefix));
            if prefixes.len() > REMEMBERED {
                *self = Self::Everything;
            }
        }
    }
}

/// What the kernel has for one network, and what comes of it.
pub(super) struct KernelRoutes {
    pub(super) importer: Importer<Uuid>,
    event_buffer: Arc<EventBuffer>,
    /// Dumps by cause.
    resyncs: IntCounterVec,
    /// The inputs of the last pass: a pass with the same ones need not look at them.
    inputs: Option<Arc<Inputs>>,
    table: Option<Option<TableId>>,
    /// The last read failed: events since then are not enough.
    unread: bool,
    verify: Option<Instant>,
    /// When the kernel was last read whole.
    dumped: Option<Instant>,
    dump_cost: Duration,
    /// When the first event was heard that no pass has come to the end of.
    since: Option<Instant>,
    touched: Touched,
}

impl KernelRoutes {
    pub(super) fn new(
        limits: &Limits,
        event_buffer: Arc<EventBuffer>,
        resyncs: IntCounterVec,
    ) -> Self {
        Self {
            importer: Importer::new(most(limits)),
            event_buffer,
            resyncs,
            inputs: None,
            table: None,
            unread: true,
            verify: None,
            dumped: None,
            dump_cost: Duration::ZERO,
            since: None,
            touched: Touched::Everything,
        }
    }

    pub(super) fn set_limit(&mut self, limits: &Limits) {
        self.importer.set_limit(most(limits));
        self.touched = Touched::Everything;
    }

    /// What may be forwarded in another way than when this was asked last.
    pub(super) fn touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    /// After which time what events reported is to be checked.
    pub(super) fn again(&self) -> Option<Duration> {
        let verify = self.verify.as_ref();
        verify.map(|at| at.saturating_duration_since(now()))
    }

    /// How long ago the first event was heard that no pass has come to the end of; this one has.
    pub(super) fn took(&mut self) -> Option<Duration> {
        self.since.take().map(|since| since.elapsed())
    }

    /// Takes in what was heard since the last pass, and the inputs. Returns whether the kernel was looked at.
    pub(super) async fn hear(&mut self, inputs: &Arc<Inputs>) -> Result<bool, ImportError> {
        let mut pending = self.event_buffer.take();
        self.since = self.since.or(pending.since);
        if self.table != Some(inputs.table) {
            self.importer.set_table(inputs.table);
            (self.table, self.unread) = (Some(inputs.table), true);
        }
        // Routes before owners: what the kernel has lost must keep the owner that it had. Nothing is lost the first time, and
        // routes are decided once.
        if self.inputs.is_none() {
            self.take_inputs(inputs);
        }
        let kernel = self.read(&mut pending).await?;
        let last = self.inputs.as_ref();
        if !last.is_some_and(|last| Arc::ptr_eq(last, inputs)) {
            self.take_inputs(inputs);
        }
        Ok(kernel)
    }

    /// Takes in what was heard while it was written.
    pub(super) async fn hear_again(&mut self) -> Result<(), ImportError> {
        let mut pending = self.event_buffer.take();
        self.since = self.since.or(pending.since);
        self.read(&mut pending).await.map(drop)
    }

    fn take_inputs(&mut self, inputs: &Arc<Inputs>) {
        self.touched = Touched::Everything;
        self.importer.set_scope(inputs.scope.clone());
        self.importer.set_owners(inputs.owners.clone());
        self.inputs = Some(Arc::clone(inputs));
    }

    /// Reads what changed in the kernel: from events where they tell enough, else by a dump. Returns whether it looked.
    async fn read(&mut self, pending: &mut PendingEvents) -> Result<bool, ImportError> {
        let due = self.verify.is_some_and(|at| at <= now());
        let sweep = self.dumped.is_some_and(|at| at.elapsed() >= UNREAD);
        // No event tells of a setting that changes what routes and links mean.
        let everything = self.unread || pending.lost || sweep;
        let links = everything || pending.links;
        let cause = match &pending.hints {
            _ if self.unread => Some("start"),
            _ if pending.lost => Some("lost"),
            Hints::Dump if pending.links => Some("links"),
            Hints::Dump => Some("events"),
            Hints::Events(_) if due => Some("check"),
            Hints::Events(_) if sweep => Some("sweep"),
            Hints::Events(_) => None,
        };
        let hints = std::mem::take(&mut pending.hints);
        let cause = match (cause, hints) {
            (None, Hints::Events(events)) if events.is_empty() => return Ok(false),
            (None, Hints::Events(events)) => {
                self.touched.note(&events);
                if self.importer.events(PROTOCOL_BGP, events) {
                    let wait = VERIFY.max(self.dump_cost * VERIFY_SHARE);
                    self.verify.get_or_insert_with(|| now() + wait);
                    return Ok(true);
                }
                "events"
            }
            (cause, _) => cause.unwrap_or("events"),
        };
        self.resyncs.with_label_values(&[cause]).inc();
        self.touched = Touched::Everything;
        // Until it is read whole, no event helps; when that is tried again after a failure is the loop's to say.
        self.unread = true;
        self.verify = None;
        let (table, began) = (self.table.flatten(), now());
        let read = tokio::task::spawn_blocking(move || -> Result<_, dump::DumpError> {
            let up = if links { Some(dump::links()?) } else { None };
            let routes = match table {
                Some(table) => dump::routes(Some(table), PROTOCOL_BGP)?,
                None => Vec::new(),
            };
            Ok((up, routes))
        });
        let (links, routes) = read.await.map_err(|_| ImportError::Thread)??;
        if let Some(links) = links {
            self.importer
                .set_links(links.iter().map(|l| (l.index, l.up)).collect());
        }
        let changed = self.importer.dump(routes);
        if cause == "check" && changed > 0 {
            // Mostly a change that was not heard of yet.
            tracing::debug!(changed, "the dump shows more than the events did");
        }
        self.unread = false;
        self.verify = None;
        self.dumped = Some(now());
        self.dump_cost = began.elapsed();
        Ok(true)
    }
}

/// `[limits] max-imported-routes`, in destinations.
fn most(limits: &Limits) -> usize {
    whole(limits.max_imported_routes)
}
