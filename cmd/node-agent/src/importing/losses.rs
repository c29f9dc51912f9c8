//! What the kernel has lost: whether FRR explains it, and which probes of FRR are needed for that.
//! In: the last probe, the inputs' word on withdrawals. Out: destinations that are retained or go, wants for the next probes.
//! Invariant: waits for no probe. Not here: the rules (`import::retention`, `import::suppression`).

use std::time::Duration;

use import::Sessions;
use import::retention::{self, FrrStatus, Peer};
use plan_node::Inputs;

use super::{Import, PAUSE, SessionAnswer};
use crate::frr::{Seen, Want};

impl Import {
    /// Evaluates what the kernel has lost by the last probe of FRR, and says which probes are needed. Waits for none.
    pub(super) fn evaluate_losses(&mut self, inputs: &Inputs) {
        let at = self.start.elapsed();
        let existing = self.kernel.importer.existing();
        let restarting = self.retention.is_restarting();
        let seen = match &mut self.probe {
            None => {
                self.retention.observe(at, &FrrStatus::Unseen);
                None
            }
            Some(probe) => probe.take(),
        };
        if let Some(seen) = seen {
            self.notice(&seen);
        }
        if restarting != self.retention.is_restarting() {
            tracing::info!(restarting = !restarting, "FRR");
        }
        let was_open = self.suppression.is_open();
        if was_open && self.release != inputs.release {
            tracing::info!("the admin released the withdrawals that were retained");
            self.suppression.release();
        }
        let sessions = match &self.sessions {
            SessionAnswer::Peers(peers) => Sessions::Peers {
                peers,
                interface: &self.config.interface,
            },
            SessionAnswer::Nothing => Sessions::NoAnswer,
            SessionAnswer::Unasked => Sessions::Unknown,
        };
        self.kernel
            .importer
            .evaluate_losses(at, &self.retention, &mut self.suppression, sessions);
        let retained = self.kernel.importer.retained().count();
        let unexplained = self.kernel.importer.unexplained();
        let mass = self.kernel.importer.is_mass(at, &mut self.suppression);
        self.want(at, unexplained, mass);
        if self.suppression.is_open() && !was_open {
            self.metrics.mass_withdrawals.inc();
            tracing::warn!(
                retained,
                existing,
                "too many routes would go at once while their sessions are up, retaining them"
            );
        } else if was_open && !self.suppression.is_open() {
            tracing::warn!("withdrawals are processed again");
        }
        if !self.suppression.is_open() {
            self.release.clone_from(&inputs.release);
        }
    }

    /// Takes notice of a probe.
    fn notice(&mut self, seen: &Seen) {
        let began = seen.began.saturating_duration_since(self.start);
        self.retention.observe(began, &seen.status);
        self.probed = Some(seen.began);
        let sessions = match &seen.status {
            FrrStatus::Up(running) => &running.sessions,
            FrrStatus::Unseen | FrrStatus::Absent | FrrStatus::Gone => {
                self.sessions = SessionAnswer::Unasked;
                return;
            }
        };
        match sessions {
            retention::Sessions::NotAsked => {}
            retention::Sessions::Silent => self.sessions = SessionAnswer::Nothing,
            retention::Sessions::Peers(peers) => {
                let of = |(peer, session): (&Peer, &retention::Session)| (peer.clone(), session.up);
                self.sessions = SessionAnswer::Peers(peers.iter().map(of).collect());
            }
        }
    }

    /// Says which probes are needed: one that explains what was lost, and many while something is retained.
    fn want(&self, at: Duration, unexplained: Option<(Duration, Duration)>, mass: bool) {
        let Some(probe) = &self.probe else {
            return;
        };
        // One probe for what is lost together; but who was first does not wait for ever for others.
        let explains = unexplained.map(|(first, last)| {
            let due = self.start + (last + PAUSE).min(first + 2 * PAUSE);
            // The last one did not explain it.
            self.probed.map_or(due, |last| due.max(last + PAUSE))
        });
        probe.want(Want {
            at: explains,
            sessions: mass,
            steady: self.retention.is_waiting(at) || self.suppression.is_open(),
        });
    }
}
