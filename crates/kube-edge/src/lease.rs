//! Who leads: a Lease, by the rules of client-go.
//! In: the API server and a monotonic clock. Out: a watch channel that says whether we lead.
//! Invariant: a lease is taken over only after it has been *seen* unchanged for its whole duration; every write carries the resource version that was read; we lead only while our last renewal is younger than the renew deadline.
//! Not here: what only a leader does (doors gate their writes).
//!
//! ```text
//!  follower --lease free, or seen unchanged for 15 s--> replace (409: lost) --> leader
//!  leader --renewed every 2 s--> leader;  not renewed for 10 s, or another holder seen--> follower
//! ```

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a lease lives without renewal.
pub const DURATION: Duration = Duration::from_secs(15);
/// A leader that has not renewed for so long stops leading.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// From one attempt to the next.
pub const RETRY: Duration = Duration::from_secs(2);

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

    /// Runs until `stop`; `leads` says whether we lead. At the end a lease of ours is given back, so that the next leader need not wait.
    pub async fn run(mut self, leads: watch::Sender<bool>, mut stop: watch::Receiver<bool>) {
        let mut renewed: Option<Instant> = None;
        loop {
            match tokio::time::timeout(RENEW_DEADLINE / 2, self.attempt()).await {
                Ok(Ok(true)) => renewed = Some(Instant::now()),
                Ok(Ok(false)) => renewed = None,
                Ok(Err(error)) => {
                    tracing::warn!(%error, lease = self.name, "cannot renew the lease")
                }
                Err(_) => tracing::warn!(lease = self.name, "cannot renew the lease: no answer"),
            }
            let now = renewed.is_some_and(|at| at.elapsed() < RENEW_DEADLINE);
            if *leads.borrow() != now {
                tracing::info!(identity = self.identity, leads = now, "leadership changed");
                leads.send_replace(now);
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                changed = stop.changed() => {
                    if changed.is_err() || *stop.borrow() {
                        leads.send_replace(false);
                        if now {
                            self.release().await;
                        }
                        return;
                    }
                }
            }
        }
    }

    /// One attempt: true when we hold the lease afterwards.
    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        let params = PostParams::default();
        let Some(mut lease) = self.api.get_opt(&self.name).await? else {
            let mut lease = Lease {
                spec: Some(self.renewed(&LeaseSpec::default())),
                ..Lease::default()
            };
            lease.metadata.name = Some(self.name.clone());
            return conflict_is_lost(self.api.create(&params, &lease).await);
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
        let holder = spec.holder_identity.as_deref().unwrap_or("");
        let lives = spec
            .lease_duration_seconds
            .and_then(|s| u64::try_from(s).ok())
            .map_or(DURATION, Duration::from_secs);
        if holder != self.identity && !holder.is_empty() && since.elapsed() <= lives {
            return Ok(false);
        }
        lease.spec = Some(self.renewed(&spec));
        conflict_is_lost(self.api.replace(&self.name, &params, &lease).await)
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
                conflict_is_lost(
                    self.api
                        .replace(&self.name, &PostParams::default(), &lease)
                        .await,
                )?;
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

fn conflict_is_lost(result: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
