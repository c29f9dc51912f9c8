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

use crate::PokerOf;
use crate::ovn_subjects::Key as OvnKey;

/// Between two looks at the sockets: new daemons must be noticed before their sessions are up.
const PACE: Duration = Duration::from_millis(500);

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

/// Asks the daemons themselves.
pub(crate) async fn ask(frr: &Frr) -> Look {
    let Look::Up { instance, .. } = glance(frr) else {
        return Look::Gone;
    };
    if let Err(error) = UnixStream::connect(frr.vty_socket.join("zebra.vty")).await {
        return refused(&error);
    }
    let peers = match frr.sessions().await {
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
pub(crate) async fn follow(frr: Frr, poker: PokerOf<OvnKey>) {
    let mut before = frr.instance();
    let mut tick = tokio::time::interval(PACE);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let now = frr.instance();
        if now != before {
            before = now;
            poker.poke(OvnKey::Import);
        }
    }
}

/// Pokes the import a little later: while FRR restarts nobody else tells when it is itself again.
pub(crate) fn look_again(poker: &PokerOf<OvnKey>) {
    let poker = poker.clone();
    tokio::spawn(async move {
        tokio::time::sleep(PACE).await;
        poker.poke(OvnKey::Import);
    });
}
