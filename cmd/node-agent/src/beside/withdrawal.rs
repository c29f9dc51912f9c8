//! Whether the node's FRR still announces pods that nobody is told of any more: for so long the host's part stays.
//! In: what bgpd says of each subnet of a network. Out: whether to wait. Invariant: what bgpd said last counts: one that falls silent
//! afterwards is waited for anew. Not here: asking it (`frr_edge`).

use std::collections::BTreeMap;
use std::time::Duration;

use frr_edge::show::ShowError;
use frr_edge::vty::VtyError;
use model::NetworkName;
use tokio::time::Instant;
use tokio::time::error::Elapsed;

/// For so long one that is silent is waited for, and one that announces pods of a network that is OVN-Kubernetes' own: its FRR may
/// announce them for good.
const WAITED: Duration = Duration::from_secs(60);

/// What bgpd says of a subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    Announced,
    NotAnnounced,
    /// It is there and does not answer, or in words that nobody knows.
    Silent,
    /// It is not there, or must not be asked.
    CannotAsk,
}

/// What an answer tells.
pub(super) fn heard(answer: Result<Result<bool, ShowError>, Elapsed>) -> Heard {
    match answer {
        Ok(Ok(true)) => Heard::Announced,
        Ok(Ok(false)) => Heard::NotAnnounced,
        Ok(Err(ShowError::Vty(VtyError::Deadline { .. }) | ShowError::Json(_))) | Err(_) => {
            Heard::Silent
        }
        Ok(Err(_)) => Heard::CannotAsk,
    }
}

/// Networks that are waited for.
#[derive(Debug, Default)]
pub(super) struct Withdrawal {
    networks: BTreeMap<NetworkName, Waiting>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    since: Instant,
    /// Since when bgpd has said nothing.
    silent: Option<Instant>,
}

impl Withdrawal {
    /// Nobody waits for a network.
    pub(super) fn forget(&mut self, network: &NetworkName) {
        self.networks.remove(network);
    }

    /// Networks that are not here are not waited for.
    pub(super) fn retain(&mut self, is_here: impl Fn(&NetworkName) -> bool) {
        self.networks.retain(|name, _| is_here(name));
    }

    /// Whether to wait, by what bgpd says of each subnet now. `is_its`: OVN-Kubernetes routes the network itself.
    pub(super) fn waits(&mut self, network: &NetworkName, all: &[Heard], is_its: bool) -> bool {
        let now = Instant::now();
        let waiting = self.networks.entry(network.clone()).or_insert(Waiting {
            since: now,
            silent: None,
        });
        let is_silent = all.contains(&Heard::Silent);
        let says = all.contains(&Heard::Announced);
        waiting.silent = is_silent.then(|| waiting.silent.filter(|_| !says).unwrap_or(now));
        let is_awaited = says || waiting.silent.is_some_and(|since| since.elapsed() < WAITED);
        is_awaited && (!is_its || waiting.since.elapsed() < WAITED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn one_that_falls_silent_after_it_announced_is_waited_for_a_minute_from_then_on() {
        let (mut withdrawal, red) = (Withdrawal::default(), NetworkName::from("red"));
        let mut said = Vec::new();
        for second in 0..140 {
            let heard = if second <= 70 {
                Heard::Announced
            } else {
                Heard::Silent
            };
            said.push(withdrawal.waits(&red, &[heard], false));
            tokio::time::advance(SECOND).await;
        }
        // Silent from 71 on.
        assert!(said[..131].iter().all(|waits| *waits), "{said:?}");
        assert!(said[131..].iter().all(|waits| !waits), "{said:?}");
        // It says something in between.
        assert!(withdrawal.waits(&red, &[Heard::Announced], false));
        assert!(withdrawal.waits(&red, &[Heard::Silent], false));
        assert!(!withdrawal.waits(&red, &[Heard::NotAnnounced], false));
        assert!(withdrawal.waits(&red, &[Heard::Silent], false), "anew");
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_subnets_one_is_enough_and_who_cannot_be_asked_is_not_waited_for() {
        let (mut withdrawal, red) = (Withdrawal::default(), NetworkName::from("red"));
        for (all, waits) in [
            (&[Heard::NotAnnounced, Heard::Announced][..], true),
            (&[Heard::NotAnnounced, Heard::Silent], true),
            (&[Heard::NotAnnounced, Heard::CannotAsk], false),
            (&[Heard::CannotAsk], false),
            (&[], false),
        ] {
            assert_eq!(withdrawal.waits(&red, all, false), waits, "{all:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_ovn_kubernetes_own_is_waited_for_a_minute_whoever_announces_it() {
        let (mut withdrawal, red) = (Withdrawal::default(), NetworkName::from("red"));
        assert!(withdrawal.waits(&red, &[Heard::Announced], true));
        tokio::time::advance(WAITED - SECOND).await;
        assert!(withdrawal.waits(&red, &[Heard::Announced], true));
        tokio::time::advance(SECOND).await;
        assert!(!withdrawal.waits(&red, &[Heard::Announced], true));
        // Not of another one, and not of one that comes back to us.
        assert!(withdrawal.waits(&red, &[Heard::Announced], false));
        withdrawal.forget(&red);
        assert!(withdrawal.waits(&red, &[Heard::Announced], true));
    }

    #[test]
    fn what_is_there_and_says_nothing_is_silent() {
        let deadline = || VtyError::Deadline {
            daemon: "bgpd".to_owned(),
        };
        let gone = || VtyError::Io {
            daemon: "bgpd".to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        };
        let json = serde_json::from_str::<()>("x").unwrap_err();
        for (answer, expected) in [
            (Ok(true), Heard::Announced),
            (Ok(false), Heard::NotAnnounced),
            (Err(ShowError::Vty(deadline())), Heard::Silent),
            (Err(ShowError::Json(json)), Heard::Silent),
            (Err(ShowError::Vty(gone())), Heard::CannotAsk),
        ] {
            assert_eq!(heard(Ok(answer)), expected);
        }
    }
}
