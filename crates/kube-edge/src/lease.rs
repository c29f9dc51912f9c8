//! Who leads: a Lease, by the rules of client-go.
//! In: the API server and a monotonic clock. Out: [`Leadership`], which says whether we lead.
//! Invariant: a lease is taken over, or made anew where it was deleted, only after it has been *seen* unchanged for its whole duration; every write carries the resource version that was read; we lead only until the renew deadline after our last renewal was *sent*: the server may have written it at any moment since.
//! Not here: what only a leader does (binaries gate their writes).
//!
//! ```text
//!  follower --lease free, or seen unchanged for 15 s--> replace (409: lost) --> leader
//!  leader --renewed every 2 s--> leader;  not renewed for 10 s, or another holder seen--> follower
//!  leader --replace (409): read again, it may be our own that came late
//! ```

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::leadership::Leadership;

/// How long a lease lives without renewal.
pub const DURATION: Duration = Duration::from_secs(15);
/// A leader whose last renewal was sent so long ago leads no longer, whether or not it knows.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// From one attempt to the next.
pub const RETRY: Duration = Duration::from_secs(2);

/// What came of an attempt.
enum Attempt {
    /// We hold the lease, by a write that was sent at this time.
    Ours(Instant),
    /// Somebody else holds it.
    Others,
    /// It is not the one that was read before: somebody wrote in between, or an earlier write of ours came late. Whoever
    /// holds it is seen when it is read again; until then our last renewal counts, which nobody may have taken over yet.
    Changed,
}

/// The elector of one candidate.
pub struct Elector {
    api: Api<Lease>,
    name: String,
    identity: String,
    seen: Option<(LeaseSpec, Instant)>,
}

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector")
            .field("name", &self.name)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Elector {
    /// A candidate for the Lease `name` in `namespace`.
    #[must_use]
    pub fn new(client: kube::Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            seen: None,
        }
    }

    /// Runs until `stop`; `leadership` learns of each renewal. At the end a lease of ours is given back, so that the next
    /// leader need not wait: `stop` comes after the last write.
    pub async fn run(mut self, leadership: Leadership, mut stop: watch::Receiver<bool>) {
        let mut stopped = async move || while stop.changed().await.is_ok() && !*stop.borrow() {};
        let mut stopped = std::pin::pin!(stopped());
        let mut again = false;
        loop {
            let attempt = tokio::time::timeout(RENEW_DEADLINE / 2, self.attempt());
            let attempted = tokio::select! {
                () = &mut stopped => break,
                attempted = attempt => attempted,
            };
            let changed = matches!(attempted, Ok(Ok(Attempt::Changed)));
            match attempted {
                Ok(Ok(Attempt::Ours(sent))) => leadership.renewed(sent),
                Ok(Ok(Attempt::Others)) => leadership.lost(),
                Ok(Ok(Attempt::Changed)) => {
                    tracing::info!(
                        lease = self.name,
                        "the lease was written meanwhile: reading it again"
                    );
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, lease = self.name, "cannot renew the lease")
                }
                Err(_) => tracing::warn!(lease = self.name, "cannot renew the lease: no answer"),
            }
            // Once without a pause, so that a new holder is seen early.
            again = changed && !again;
            if again {
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = &mut stopped => break,
            }
        }
        if leadership.leads() {
            leadership.lost();
            self.release().await;
        }
    }

    /// One attempt to get or renew the lease.
    async fn attempt(&mut self) -> Result<Attempt, kube::Error> {
        let params = PostParams::default();
        let Some(mut lease) = self.api.get_opt(&self.name).await? else {
            // Its holder leads on until it does not come back with a renewal.
            if let Some((seen, since)) = &self.seen
                && self.is_held(seen, *since)
            {
                return Ok(Attempt::Others);
            }
            let mut lease = Lease {
                spec: Some(self.renewed(&LeaseSpec::default())),
                ..Lease::default()
            };
            lease.metadata.name = Some(self.name.clone());
            let sent = Instant::now();
            return self.written(self.api.create(&params, &lease).await, sent);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let since = match &self.seen {
            Some((seen, at)) if *seen == spec => *at,
            _ => {
                let now = Instant::now();
                self.seen = Some((spec.clone(), now));
                now
            }
        };
        if self.is_held(&spec, since) {
            return Ok(Attempt::Others);
        }
        lease.spec = Some(self.renewed(&spec));
        let sent = Instant::now();
        self.written(self.api.replace(&self.name, &params, &lease).await, sent)
    }

    /// Whether somebody else holds a lease that has been seen unchanged since `since`, and may not have lost it.
    fn is_held(&self, spec: &LeaseSpec, since: Instant) -> bool {
        let holder = spec.holder_identity.as_deref().unwrap_or("");
        let lives = spec
            .lease_duration_seconds
            .and_then(|s| u64::try_from(s).ok())
            .map_or(DURATION, Duration::from_secs);
        holder != self.identity && !holder.is_empty() && since.elapsed() <= lives
    }

    fn renewed(&self, old: &LeaseSpec) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let mine = old.holder_identity.as_deref() == Some(self.identity.as_str());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: if mine {
                old.acquire_time.clone()
            } else {
                Some(now.clone())
            },
            renew_time: Some(now),
            lease_transitions: Some(
                old.lease_transitions.unwrap_or(0)
                    + i32::from(!mine && old.holder_identity.is_some()),
            ),
            ..LeaseSpec::default()
        }
    }

    /// What came of a write of the lease that was sent at `sent`. What the server has now is in its answer: where that is
    /// another's lease (a webhook changed it, a proxy answers from somewhere else) the write is worth nothing.
    fn written(
        &self,
        result: Result<Lease, kube::Error>,
        sent: Instant,
    ) -> Result<Attempt, kube::Error> {
        match result {
            Ok(lease) => {
                let holder = lease.spec.and_then(|spec| spec.holder_identity);
                Ok(if holder.as_deref() == Some(self.identity.as_str()) {
                    Attempt::Ours(sent)
                } else {
                    Attempt::Others
                })
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Attempt::Changed),
            Err(error) => Err(error),
        }
    }

    async fn release(&mut self) {
        let free = async {
            let Some(mut lease) = self.api.get_opt(&self.name).await? else {
                return Ok(());
            };
            if let Some(spec) = &mut lease.spec
                && spec.holder_identity.as_deref() == Some(self.identity.as_str())
            {
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
                let params = PostParams::default();
                match self.api.replace(&self.name, &params, &lease).await {
                    // Somebody else has it already.
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    replaced => drop(replaced?),
                }
            }
            Ok::<(), kube::Error>(())
        };
        match tokio::time::timeout(Duration::from_secs(1), free).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot give the lease back"),
            Err(_) => tracing::warn!("cannot give the lease back: no answer"),
        }
    }
}

#[cfg(test)]
mod tests;
