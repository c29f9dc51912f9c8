//! The import of one network's learned routes: kernel, FRR and gateway router in; rows out.
//! In: what was heard of the kernel, its routes and links, the replica's changes, probes of FRR, the scope.
//! Out: guarded transactions of a few hundred rows, the most important first; the importer that reports are made from.
//! Invariant: nothing is removed because something could not be read; a pass that finds all as wanted writes nothing; what is
//! known of routes is checked against a dump soon after events changed it.
//! Not here: which rows (`import`), when a pass is due (`reconcile`), where the inputs come from (`plan_node::learn`).

mod event_buffer;
mod kernel_routes;
mod losses;
mod sets;
mod sink;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use import::Importer;
use import::retention::{PAUSE, Peer, Retention};
use import::suppression::{Suppression, Threshold};
use model::nb::ImportTarget;
use netlink::dump;
use ovn::north::RouteFollower;
use ovsdb::{Client, Uuid};
use plan_node::check;
use reconcile::{Pace, Timing};
use settings::Limits;

pub use plan_node::Inputs;

pub use self::event_buffer::EventBuffer;
use self::kernel_routes::KernelRoutes;
pub use self::sets::SetImport;
pub use self::sink::Sink;
use crate::frr;
pub use crate::frr::FrrProbe;
use crate::metrics::ImportMetrics;
use crate::transact::TransactionFailed;

/// In a pass with much to write, the kernel is heard again after this time, so that what is written last is not long past.
const SLICE: Duration = Duration::from_millis(100);
/// A pass ends after this time though there is more to write, so that other inputs, reports and the pace get their turn: while
/// the database is slower than the kernel's changes come, there always is.
const LONGEST: Duration = Duration::from_secs(5);
/// The loop's times: changes that come one by one go at once; a storm becomes some twenty passes a second, because the database,
/// northd and every ovn-controller pay for each one.
pub const TIMING: Timing = Timing {
    pace: Pace::ByCost {
        share: 30,
        least: Duration::from_millis(2),
        gather: Duration::from_millis(40),
    },
    gather: Duration::ZERO,
    gather_most: Duration::ZERO,
    sweep: Duration::from_secs(300),
    retry_first: Duration::from_millis(100),
    retry_most: Duration::from_secs(10),
};

/// Why a pass failed; the world's fault, tried again.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The replica holds what a column cannot.
    #[error("cannot read rows")]
    Access(#[from] ovsdb::AccessError),
    /// A transaction failed.
    #[error(transparent)]
    Transact(#[from] TransactionFailed),
    /// The kernel did not give a whole list.
    #[error("cannot read the kernel's routes")]
    Dump(#[from] dump::DumpError),
    /// A thread that reads the kernel ended badly.
    #[error("a reading thread ended badly")]
    Thread,
    /// A plan with a broken invariant is a bug of ours; nothing is written.
    #[error("the plan breaks an invariant, nothing is written: {0}")]
    Unsound(Box<check::Violation>),
    /// What was written does not show in the replica.
    #[error("the database acknowledged rows and does not show them")]
    NoProgress,
}

/// What a pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// The replica or the router is not there yet.
    NotReady,
    /// The pass took too long, the next one goes on; so many rows were added and removed.
    Unfinished(usize, usize),
    /// Rows and routes agree.
    Agreed {
        /// Rows added and removed.
        wrote: (usize, usize),
        /// Whether anything was looked at: false for a pass that found nothing new.
        looked: bool,
        /// Whether it undid what somebody else did to the rows.
        repaired: bool,
    },
}

/// What an import is made of.
#[derive(Debug, Clone)]
pub struct ImportConfig {
    /// Router, network and output port.
    pub target: ImportTarget,
    /// `[limits]`.
    pub limits: Limits,
    /// The interface that imported routes lead to. Source: `[gateway] interface`.
    pub interface: String,
}

/// What bgpd said when it was asked for sessions last.
#[derive(Debug)]
enum SessionAnswer {
    Unasked,
    Nothing,
    Peers(BTreeMap<Peer, bool>),
}

/// The import of one network on this node.
pub struct Import {
    config: ImportConfig,
    north: Client,
    /// `None`: there is no FRR to ask, nothing is retained.
    probe: Option<FrrProbe>,
    /// When the last probe began.
    probed: Option<tokio::time::Instant>,
    sessions: SessionAnswer,
    metrics: ImportMetrics,
    kernel: KernelRoutes,
    follower: RouteFollower,
    retention: Retention,
    suppression: Suppression,
    release: Option<String>,
    /// Rows from before this process have been taken over.
    adopted: bool,
    start: tokio::time::Instant,
    /// The last pass was [`Passed::Unfinished`].
    unfinished: bool,
}

impl Import {
    /// An import that knows nothing yet.
    #[must_use]
    pub fn new(
        config: ImportConfig,
        north: Client,
        probe: Option<FrrProbe>,
        event_buffer: Arc<EventBuffer>,
        metrics: ImportMetrics,
    ) -> Self {
        Self {
            follower: RouteFollower::new(config.target.clone()),
            retention: Retention::new(config.limits.stale_time, Some(config.interface.clone())),
            suppression: Suppression::new(threshold(&config.limits)),
            kernel: KernelRoutes::new(&config.limits, event_buffer, metrics.resyncs.clone()),
            config,
            north,
            probe,
            probed: None,
            sessions: SessionAnswer::Unasked,
            metrics,
            release: None,
            adopted: false,
            start: tokio::time::Instant::now(),
            unfinished: false,
        }
    }

    /// What reports are made from.
    #[must_use]
    pub fn importer(&self) -> &Importer<Uuid> {
        &self.kernel.importer
    }

    /// Takes other limits; the next pass acts on them.
    pub fn set_limits(&mut self, limits: &Limits) {
        if self.config.limits == *limits {
            return;
        }
        self.config.limits = *limits;
        self.kernel.set_limit(limits);
        self.retention.set_stale(limits.stale_time);
        self.suppression.set_threshold(threshold(limits));
    }

    /// How soon a pass has to follow although nothing enqueues it: while something is retained, to check what events reported, and where the
    /// last one was not finished.
    #[must_use]
    pub fn again(&self) -> Option<Duration> {
        if self.unfinished {
            return Some(Duration::ZERO);
        }
        let retained = self.retention.is_waiting(self.start.elapsed())
            || self.suppression.is_open()
            || self.kernel.importer.unexplained().is_some();
        self.kernel
            .again()
            .into_iter()
            .chain(retained.then_some(frr::PACE))
            .min()
    }

    /// Brings the router's imported rows to where routes, scope and limits want them.
    ///
    /// # Errors
    /// When something could not be read or written. Nothing was removed for it; the next pass goes on from there.
    pub async fn pass(&mut self, inputs: &Arc<Inputs>) -> Result<Passed, ImportError> {
        self.unfinished = false;
        let kernel = self.kernel.hear(inputs).await?;
        let Some(rows) = self.read_rows()? else {
            return Ok(Passed::NotReady);
        };
        let Some(router) = self.follower.router() else {
            return Ok(Passed::NotReady);
        };
        if !std::mem::replace(&mut self.adopted, true) {
            self.kernel.importer.adopt();
        }
        self.evaluate_losses(inputs);
        let Some(wrote) = self.write(router, inputs).await? else {
            return Ok(Passed::NotReady);
        };
        if self.unfinished {
            self.measure();
            return Ok(Passed::Unfinished(wrote.0, wrote.1));
        }
        // Passes that failed in between, and what was heard while it was written, are part of the time that it took.
        if let Some(since) = self.kernel.took().filter(|_| wrote != (0, 0)) {
            self.metrics.seconds.observe(since.as_secs_f64());
        }
        self.measure();
        Ok(Passed::Agreed {
            wrote,
            looked: kernel || rows > 0 || wrote != (0, 0),
            repaired: rows > 0 && !kernel && wrote != (0, 0),
        })
    }

    /// Reads what changed on the router; `None` while there is no replica. Returns how many rows are others now.
    fn read_rows(&mut self) -> Result<Option<usize>, ImportError> {
        let follower = &mut self.follower;
        let Some(changes) = self.north.with_replica(|replica| follower.follow(replica)) else {
            return Ok(None);
        };
        let changes = changes?;
        let foreign = i64::try_from(follower.foreign()).unwrap_or(i64::MAX);
        if self.metrics.foreign.get() != foreign {
            self.metrics.foreign.set(foreign);
            tracing::warn!(
                rows = foreign,
                "imported routes of another writer on the gateway router; they stay, and nothing is imported for their destinations"
            );
        }
        for change in &changes {
            let importer = &mut self.kernel.importer;
            importer.row(change.id, change.before.as_ref(), change.after.as_ref());
        }
        Ok(Some(changes.len()))
    }

    fn measure(&self) {
        self.metrics.measure(&self.kernel.importer);
        self.metrics
            .suppressed
            .set(i64::from(self.suppression.is_open()));
    }
}

/// `[limits] mass-withdraw-*`.
fn threshold(limits: &Limits) -> Threshold {
    Threshold {
        share: limits.mass_withdraw_share,
        least: whole(limits.mass_withdraw_routes),
        window: limits.mass_withdraw_window,
        hold: limits.mass_withdraw_hold,
    }
}

fn whole(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a binary measures its own latency"
)]
fn now() -> Instant {
    Instant::now()
}
