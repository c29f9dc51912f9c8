//! One probe of FRR: its sockets, and a short question to zebra and to bgpd.
//! In: sockets. Out: a probe. Invariant: only what says "gone" counts as gone: a full queue or a lack of our own does not.
//! Not here: when to probe.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::{Duration, SystemTime};

use frr_edge::Frr;
use frr_edge::pulse::PeerSummary;
use frr_edge::show::ShowError;
use frr_edge::vty::{VtyError, says_gone};
use import::retention::{FrrStatus, Peer, Running, Session, Sessions};

/// For so long an answer is waited for: then the daemon is busy.
const PATIENCE: Duration = Duration::from_secs(1);

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said<T> {
    Something(T),
    /// No answer in time, or no place in the daemon's queue, or we lack something ourselves.
    Nothing,
    /// Nobody listens, or somebody broke off.
    Gone,
    /// We may not ask.
    Denied,
}

/// Probes the daemons, and asks bgpd for its peers if wanted.
pub(super) async fn probe(frr: &Frr, sessions: bool) -> FrrStatus {
    let instance = frr.instance();
    if instance.is_empty() && !frr.vty_socket.is_dir() {
        return FrrStatus::Absent;
    }
    // In a folder of their own they are about to start: a machine that boots starts us first.
    if !(instance.contains("zebra=") && instance.contains("bgpd=")) {
        return FrrStatus::Gone;
    }
    let zebra = said(async { frr.bgpd_is_linked().await.map_err(ShowError::Vty) });
    let bgpd = said(async {
        if sessions {
            frr.peers()
                .await
                .map(|peers| Sessions::Peers(decode(peers)))
        } else {
            frr.greet_bgpd().await?;
            Ok(Sessions::NotAsked)
        }
    });
    let (linked, sessions) = match tokio::join!(zebra, bgpd) {
        (Said::Denied, _) | (_, Said::Denied) => return FrrStatus::Unseen,
        (Said::Gone, _) | (_, Said::Gone) => return FrrStatus::Gone,
        (zebra, bgpd) => (
            match zebra {
                // An answer in other words than ours: it works.
                Said::Something(linked) => Some(linked.unwrap_or(true)),
                Said::Nothing | Said::Gone | Said::Denied => None,
            },
            match bgpd {
                Said::Something(sessions) => sessions,
                Said::Nothing | Said::Gone | Said::Denied => Sessions::Silent,
            },
        ),
    };
    let age = frr.age(SystemTime::now()).unwrap_or_default();
    let after = frr.instance();
    if after == instance {
        return FrrStatus::Up(Running {
            instance,
            age,
            linked,
            sessions,
        });
    }
    // What the old ones said is not true of the new ones.
    FrrStatus::Up(Running {
        instance: after,
        age,
        linked: None,
        sessions: Sessions::Silent,
    })
}

fn decode(peers: Vec<PeerSummary>) -> BTreeMap<Peer, Session> {
    let of = |peer: PeerSummary| {
        let session = Session {
            up: peer.up.is_some(),
            since: peer.up.unwrap_or_default(),
            falls: peer.dropped,
        };
        (Peer::from(peer.peer.as_str()), session)
    };
    peers.into_iter().map(of).collect()
}

trait Mute {
    /// What stands for an answer that is not understood.
    fn mute() -> Self;
}

impl Mute for Option<bool> {
    fn mute() -> Self {
        None
    }
}

impl Mute for Sessions {
    fn mute() -> Self {
        Self::NotAsked
    }
}

async fn said<T: Mute>(question: impl Future<Output = Result<T, ShowError>>) -> Said<T> {
    match tokio::time::timeout(PATIENCE, question).await {
        Ok(Ok(answer)) => Said::Something(answer),
        Ok(Err(ShowError::Vty(VtyError::Io { source, .. }))) => refused(&source),
        Err(_) | Ok(Err(ShowError::Vty(VtyError::Deadline { .. }))) => Said::Nothing,
        Ok(Err(_)) => Said::Something(T::mute()),
    }
}

/// A process that died refuses, or breaks off; one that may not be asked says nothing about itself; all else is no word of
/// FRR's: its queue is full, or we have no descriptor left.
fn refused<T>(error: &std::io::Error) -> Said<T> {
    if error.kind() == ErrorKind::PermissionDenied {
        Said::Denied
    } else if says_gone(error) {
        Said::Gone
    } else {
        Said::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_ask_knows_nothing_and_who_cannot_knows_nothing_either() {
        let kind = |kind: ErrorKind| refused::<()>(&std::io::Error::from(kind));
        let system = |number| refused::<()>(&std::io::Error::from_raw_os_error(number));
        assert_eq!(kind(ErrorKind::PermissionDenied), Said::Denied);
        assert_eq!(kind(ErrorKind::UnexpectedEof), Said::Gone);
        assert_eq!(kind(ErrorKind::ConnectionRefused), Said::Gone);
        // EAGAIN of a full queue, EMFILE, ENFILE, ENOBUFS.
        for number in [11, 24, 23, 105] {
            assert_eq!(system(number), Said::Nothing, "errno {number}");
        }
    }
}
