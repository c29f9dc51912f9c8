//! What is reported of sockets on which somebody listens, or nobody.

use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::sync::Arc;

use import::retention::Peer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixSocket};
use tokio::sync::Notify;

use super::*;

const CLIENTS: &str = "Name  Connect Time\n-----\nbgp  00:00:04\n";
const PEERS: &str = r#"{"ipv4Unicast":{"peers":{
    "10.0.0.2":{"state":"Established","peerUptimeMsec":2000},
    "10.0.0.3":{"state":"Active","connectionsDropped":1},
    "br-ex":{"state":"Idle"}}}}"#;

fn frr(folder: &Path) -> Frr {
    Frr::new(folder.to_owned(), folder.join("frr.conf"))
}

fn bind(folder: &Path, daemon: &str) -> UnixListener {
    UnixListener::bind(folder.join(format!("{daemon}.vty"))).unwrap()
}

/// Answers every question of everybody.
fn answer(listener: UnixListener, text: &'static str) {
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                for answer in ["", text] {
                    let mut buffer = [0; 64];
                    if stream.read(&mut buffer).await.unwrap_or(0) == 0 {
                        return;
                    }
                    let whole = [answer.as_bytes(), &[0; 4]].concat();
                    stream.write_all(&whole).await.unwrap();
                }
            });
        }
    });
}

#[tokio::test]
async fn daemons_that_died_leave_sockets_and_are_gone_and_a_folder_without_sockets_says_that_they_have_not_started()
 {
    let folder = tempfile::tempdir().unwrap();
    let frr = frr(folder.path());
    assert_eq!(probe::probe(&frr, true).await, FrrStatus::Gone);
    drop(bind(folder.path(), "zebra"));
    assert_eq!(
        probe::probe(&frr, true).await,
        FrrStatus::Gone,
        "there is no bgpd"
    );
    drop(bind(folder.path(), "bgpd"));
    assert_eq!(probe::probe(&frr, true).await, FrrStatus::Gone);
    let nowhere = Frr::new("/nowhere".into(), "/nowhere/frr.conf".into());
    assert_eq!(probe::probe(&nowhere, true).await, FrrStatus::Absent);
}

#[tokio::test]
async fn peers_are_reported_with_their_state_by_address_or_interface() {
    let folder = tempfile::tempdir().unwrap();
    answer(bind(folder.path(), "zebra"), CLIENTS);
    answer(bind(folder.path(), "bgpd"), PEERS);
    let FrrStatus::Up(seen) = probe::probe(&frr(folder.path()), true).await else {
        panic!("FRR runs");
    };
    assert!(seen.instance.contains("zebra=") && seen.instance.contains("bgpd="));
    assert_eq!(seen.linked, Some(true));
    let Sessions::Peers(peers) = seen.sessions else {
        panic!("bgpd answered");
    };
    let reported: Vec<_> = peers
        .iter()
        .map(|(p, s)| (p.clone(), s.up, s.falls))
        .collect();
    let ip = |text: &str| Peer::Address(text.parse().unwrap());
    assert_eq!(
        reported,
        [
            (ip("10.0.0.2"), true, 0),
            (ip("10.0.0.3"), false, 1),
            (Peer::Interface("br-ex".to_owned()), false, 0)
        ]
    );
}

#[tokio::test]
async fn a_busy_bgpd_whose_queue_is_full_is_not_gone() {
    let folder = tempfile::tempdir().unwrap();
    answer(bind(folder.path(), "zebra"), CLIENTS);
    let socket = UnixSocket::new_stream().unwrap();
    let path = folder.path().join("bgpd.vty");
    socket.bind(&path).unwrap();
    // It never accepts.
    let _bgpd = socket.listen(1).unwrap();
    let mut waiting = Vec::new();
    let full = loop {
        let stream = UnixSocket::new_stream().unwrap();
        match stream.connect(&path).await {
            Ok(stream) => waiting.push(stream),
            Err(error) => break error,
        }
        assert!(waiting.len() < 10, "the queue is never full");
    };
    assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock);
    let FrrStatus::Up(seen) = probe::probe(&frr(folder.path()), true).await else {
        panic!("bgpd is there");
    };
    assert_eq!((seen.linked, seen.sessions), (Some(true), Sessions::Silent));
}

#[tokio::test]
async fn a_bgpd_that_breaks_off_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    answer(bind(folder.path(), "zebra"), CLIENTS);
    let bgpd = bind(folder.path(), "bgpd");
    tokio::spawn(async move { drop(bgpd.accept().await) });
    assert_eq!(
        probe::probe(&frr(folder.path()), false).await,
        FrrStatus::Gone
    );
}

#[tokio::test]
async fn an_answer_in_other_words_is_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    answer(bind(folder.path(), "zebra"), "? unknown");
    answer(bind(folder.path(), "bgpd"), "no json");
    let FrrStatus::Up(seen) = probe::probe(&frr(folder.path()), true).await else {
        panic!("FRR runs");
    };
    assert_eq!(
        (seen.linked, seen.sessions),
        (Some(true), Sessions::NotAsked)
    );
}

#[tokio::test]
async fn a_wanted_probe_begins_when_it_is_wanted_and_a_daemon_that_goes_is_noticed_unasked() {
    let folder = tempfile::tempdir().unwrap();
    answer(bind(folder.path(), "zebra"), CLIENTS);
    answer(bind(folder.path(), "bgpd"), PEERS);
    let called = Arc::new(Notify::new());
    let call = Arc::clone(&called);
    let mut probe = FrrProbe::start(frr(folder.path()), move || call.notify_one());
    called.notified().await;
    let first = probe.take().unwrap();
    assert!(matches!(first.status, FrrStatus::Up(_)));
    assert_eq!(probe.take(), None, "taken once");
    let at = Instant::now() + Duration::from_millis(30);
    probe.want(Want {
        at: Some(at),
        ..Want::default()
    });
    called.notified().await;
    let second = probe.take().unwrap();
    assert!(second.began >= at);
    let FrrStatus::Up(seen) = &second.status else {
        panic!("FRR runs");
    };
    assert_eq!(seen.sessions, Sessions::NotAsked, "nobody wants them");
    let at = Instant::now();
    probe.want(Want {
        at: Some(at),
        sessions: true,
        steady: false,
    });
    called.notified().await;
    let Some(FrrStatus::Up(seen)) = probe.take().map(|seen| seen.status) else {
        panic!("FRR runs");
    };
    assert!(matches!(seen.sessions, Sessions::Peers(_)));
    // A daemon that is another one is noticed although nobody asks.
    std::fs::remove_file(folder.path().join("bgpd.vty")).unwrap();
    called.notified().await;
    assert_eq!(probe.take().map(|seen| seen.status), Some(FrrStatus::Gone));
    assert!(StdStream::connect(folder.path().join("zebra.vty")).is_ok());
}
