//! FRR as the node-agent sees it: are its daemons there, are they new, which sessions are up.
//! In: FRR's vty sockets. Out: [`Look`]s, and a poke when the daemons are others than before.
//! Invariant: FRR is only asked; a daemon that cannot be reached counts as gone, one that is slow does not.
//! Not here: what follows (`plan_node::holding`).

use std::time::Duration;

use frr_edge::Frr;
use frr_edge::show::ShowError;
use frr_edge::vty::VtyError;
use plan_node::holding::Look;
use tokio::net::UnixStream;

use model::NetworkName;

use crate::PokerOf;

/// Between two looks at the sockets: new daemons must be noticed before their sessions are up.
pub(crate) const PACE: Duration = Duration::from_millis(500);

/// For so long a route that goes may wait for bgpd's answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A look that costs nothing: at the sockets only. A daemon that died leaves its socket behind, so `Up` is no proof.
pub(crate) fn glance(frr: &Frr) -> Look {
    let instance = frr.instance();
    if instance.contains("zebra=") && instance.contains("bgpd=") {
        Look::Up {
            instance,
            peers: None,
        }
    } else {
        Look::Gone
    }
}

/// Knocks at the daemons: one that died does not open.
pub(crate) async fn knock(frr: &Frr) -> Look {
    let look = glance(frr);
    if look != Look::Gone {
        for daemon in ["zebra", "bgpd"] {
            let socket = frr.vty_socket.join(format!("{daemon}.vty"));
            match UnixStream::connect(socket).await {
                // Others wait at its door already: it is slow, and there.
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => {
                    return refused(&error);
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
    look
}

/// Knocks, and asks bgpd for its peers: with many of them a long answer.
pub(crate) async fn ask(frr: &Frr) -> Look {
    let instance = match knock(frr).await {
        Look::Up { instance, .. } => instance,
        other @ (Look::Unseen | Look::Gone) => return other,
    };
    let Ok(sessions) = tokio::time::timeout(PATIENCE, frr.sessions()).await else {
        return Look::Up {
            instance,
            peers: None,
        };
    };
    let peers = match sessions {
        Ok(sessions) => Some(
            sessions
                .into_iter()
                .filter(|session| session.vrf.is_empty())
                .filter_map(|session| {
                    Some((session.peer.parse().ok()?, session.bgp == "Established"))
                })
                .collect(),
        ),
        Err(ShowError::Vty(VtyError::Io { source, .. })) => return refused(&source),
        Err(_) => None,
    };
    Look::Up { instance, peers }
}

/// A process that died refuses, or breaks off; one that may not be asked says nothing about itself.
fn refused(error: &std::io::Error) -> Look {
    if error.kind() == std::io::ErrorKind::PermissionDenied {
        Look::Unseen
    } else {
        Look::Gone
    }
}

/// Pokes the import when FRR's daemons are not the same as before.
pub(crate) async fn follow(frr: Frr, poker: PokerOf<NetworkName>) {
    let mut before = frr.instance();
    let mut tick = tokio::time::interval(PACE);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let now = frr.instance();
        if now != before {
            before = now;
            poker.poke_everything();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    #[tokio::test]
    async fn daemons_that_died_leave_sockets_and_are_gone_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let frr = Frr::new(folder.path().to_owned(), folder.path().join("frr.conf"));
        assert_eq!((glance(&frr), ask(&frr).await), (Look::Gone, Look::Gone));
        for daemon in ["zebra", "bgpd"] {
            drop(UnixListener::bind(folder.path().join(format!("{daemon}.vty"))).unwrap());
        }
        assert!(matches!(glance(&frr), Look::Up { peers: None, .. }));
        assert_eq!(ask(&frr).await, Look::Gone);
    }

    #[tokio::test]
    async fn peers_of_the_default_vrf_are_told_with_their_state() {
        let folder = tempfile::tempdir().unwrap();
        let frr = Frr::new(folder.path().to_owned(), folder.path().join("frr.conf"));
        let zebra = UnixListener::bind(folder.path().join("zebra.vty")).unwrap();
        let bgpd = UnixListener::bind(folder.path().join("bgpd.vty")).unwrap();
        tokio::spawn(async move {
            // The first comes to knock only.
            drop(bgpd.accept().await.unwrap());
            let (mut stream, _) = bgpd.accept().await.unwrap();
            let neighbors = r#"{"default":{"10.0.0.2":{"bgpState":"Established"},"10.0.0.3":{"bgpState":"Active"}},
                "blue":{"10.0.0.4":{"bgpState":"Established"}}}"#;
            for answer in ["", neighbors] {
                let mut buffer = [0; 64];
                let _question = stream.read(&mut buffer).await.unwrap();
                let whole = [answer.as_bytes(), &[0; 4]].concat();
                stream.write_all(&whole).await.unwrap();
            }
        });
        let Look::Up { instance, peers } = ask(&frr).await else {
            panic!("FRR runs");
        };
        assert!(instance.contains("zebra=") && instance.contains("bgpd="));
        let expected = [("10.0.0.2", true), ("10.0.0.3", false)];
        let expected = expected.map(|(ip, up)| (ip.parse().unwrap(), up));
        assert_eq!(peers, Some(expected.into()));
        drop(zebra);
    }

    #[test]
    fn who_may_not_ask_knows_nothing() {
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        assert_eq!(refused(&denied), Look::Unseen);
        let broken = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        assert_eq!(refused(&broken), Look::Gone);
    }
}
