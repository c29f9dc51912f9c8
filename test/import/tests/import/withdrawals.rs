//! Withdrawals in numbers, with an FRR that says what the test wants it to say.
//!
//! In: routes that go all at once, sessions. Out: retained rows, and what lets them go.
//! Invariant: the import's questions are the real ones, over vty sockets; the lab's tests ask a real FRR.
//! Not here: what a mass is (`import::suppression`).

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use frr_edge::Frr;
use import_tests::{Agent, AgentConfig, Testbed, absent, until};
use netns_tests::{in_namespace, ip_batch};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

const PEER: &str = "172.30.9.1";
/// No test waits that long: what is retained with it goes only because it is let.
const LONG: Duration = Duration::from_secs(600);
const QUIET: Duration = Duration::from_millis(1500);

/// zebra and bgpd, as far as the import asks them.
struct Daemons {
    folder: TempDir,
    /// What bgpd says of its neighbors.
    neighbors: Arc<Mutex<String>>,
}

impl Daemons {
    fn start(neighbors: &str) -> Self {
        let daemons = Self {
            folder: TempDir::new().unwrap(),
            neighbors: Arc::new(Mutex::new(neighbors.to_owned())),
        };
        for daemon in ["zebra", "bgpd"] {
            let socket = daemons.folder.path().join(format!("{daemon}.vty"));
            let listener = UnixListener::bind(&socket).unwrap();
            // Daemons that have run for a while: young ones may have to find their routes first.
            let aged = Command::new("touch")
                .args(["-d", "1 hour ago"])
                .arg(&socket)
                .status();
            assert!(aged.unwrap().success());
            let neighbors = Arc::clone(&daemons.neighbors);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(answer(stream, Arc::clone(&neighbors)));
                }
            });
        }
        daemons
    }

    fn frr(&self) -> Frr {
        let folder: &Path = self.folder.path();
        Frr::new(folder.to_owned(), folder.join("frr.conf"))
    }

    fn say(&self, neighbors: &str) {
        neighbors.clone_into(&mut self.neighbors.lock().unwrap());
    }
}

/// Each question ends with a zero byte, each answer with four.
async fn answer(mut stream: UnixStream, neighbors: Arc<Mutex<String>>) {
    let mut question = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut question).await {
        let Some(end) = question.iter().position(|byte| *byte == 0) else {
            continue;
        };
        let text: Vec<u8> = question.drain(..=end).collect();
        let mut said = if text.starts_with(b"show bgp summary json") {
            neighbors.lock().unwrap().clone()
        } else if text.starts_with(b"show zebra client summary") {
            "Name      Connect Time    Last Read\nbgp           01:00:00     00:00:00\n".to_owned()
        } else {
            String::new()
        };
        said.push_str("\0\0\0\0");
        if stream.write_all(said.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn sessions(state: &str) -> String {
    format!(
        r#"{{"ipv4Unicast":{{"peers":{{"{PEER}":{{"state":"{state}","peerUptimeMsec":3600000,"connectionsDropped":{}}}}}}}}}"#,
        u8::from(state != "Established")
    )
}

fn lines(verb: &str) -> String {
    (0..20)
        .map(|number| format!("route {verb} 20.2.{number}.0/24 via {PEER} proto bgp metric 20\n"))
        .collect()
}

struct Scene {
    testbed: Testbed,
    daemons: Daemons,
    agent: Agent,
}

impl Scene {
    /// Twenty routes that stand, and nothing else.
    async fn set(neighbors: &str, hold: Duration) -> Self {
        let testbed = Testbed::build().await;
        netns_tests::ip("route flush proto bgp");
        netns_tests::ip("-6 route flush proto bgp");
        let daemons = Daemons::start(neighbors);
        let agent = Agent::start(AgentConfig {
            frr: Some(daemons.frr()),
            hold,
            ..testbed.config()
        });
        ip_batch(&lines("add"));
        let scene = Self {
            testbed,
            daemons,
            agent,
        };
        scene.stand().await;
        scene
    }

    async fn stand(&self) {
        // Long enough for the dump that checks what events reported: it must not see half of what follows.
        let existing = self.testbed.until_settled(QUIET).await;
        assert_eq!(existing.imported().len(), 20);
    }

    fn rows(&self) -> usize {
        self.testbed.observer.observe().imported().len()
    }

    /// The thread is the agent's too: it hears of all of them at once.
    fn withdraw(&self) -> Instant {
        ip_batch(&lines("del"));
        now()
    }

    async fn assert_held(&self) {
        until("the withdrawals are retained", || {
            let retained = self.agent.metric("noverlay_retained_destinations");
            retained.to_bits() == 20.0_f64.to_bits()
        })
        .await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(self.rows(), 20, "retained rows");
        let metric = |name| self.agent.metric(name);
        assert_eq!(
            metric("noverlay_mass_withdrawal_suppressed").to_bits(),
            1.0_f64.to_bits()
        );
        assert_eq!(
            metric("noverlay_retained_destinations").to_bits(),
            20.0_f64.to_bits()
        );
        assert_eq!(
            metric("noverlay_mass_withdrawal_suppressions_total").to_bits(),
            1.0_f64.to_bits()
        );
    }

    async fn assert_gone(&self) {
        until("they are gone", || self.rows() == 0).await;
        self.testbed.until_settled(Duration::from_millis(300)).await;
        until("nothing is retained", || {
            self.agent.metric("noverlay_mass_withdrawal_suppressed") < 0.5
                && self.agent.metric("noverlay_retained_destinations") < 0.5
        })
        .await;
        assert!(self.agent.errors().is_empty(), "{:?}", self.agent.errors());
    }
}

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn withdrawals_en_masse_are_retained_while_the_session_is_up_and_go_after_the_hold_time() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let hold = Duration::from_secs(5);
        let scene = Scene::set(&sessions("Established"), hold).await;
        let start = scene.withdraw();
        scene.assert_held().await;
        scene.assert_gone().await;
        assert!(start.elapsed() >= hold, "{:?}", start.elapsed());
        // What passed once is not retained again when it is whole again: another mass is another case.
        ip_batch(&lines("add"));
        scene.stand().await;
        scene.withdraw();
        until("retained a second time", || {
            scene
                .agent
                .metric("noverlay_mass_withdrawal_suppressions_total")
                > 1.5
        })
        .await;
        assert_eq!(scene.rows(), 20);
    });
}

#[test]
fn the_admins_other_word_lets_retained_withdrawals_go_and_the_same_word_does_not() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let scene = Scene::set(&sessions("Established"), LONG).await;
        scene
            .agent
            .change(|inputs| inputs.release = Some("1".to_owned()));
        scene.testbed.until_settled(QUIET).await;
        scene.withdraw();
        scene.assert_held().await;
        scene
            .agent
            .change(|inputs| inputs.release = Some("1".to_owned()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(scene.rows(), 20, "the word is the one of before");
        scene
            .agent
            .change(|inputs| inputs.release = Some("2".to_owned()));
        scene.assert_gone().await;
    });
}

#[test]
fn held_withdrawals_go_when_their_session_does_and_stay_no_longer_when_the_routes_come_back() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let scene = Scene::set(&sessions("Established"), LONG).await;
        scene.withdraw();
        scene.assert_held().await;
        let before = scene.testbed.observer.observe().updates;
        ip_batch(&lines("add"));
        until("they are back", || {
            scene.agent.metric("noverlay_mass_withdrawal_suppressed") < 0.5
        })
        .await;
        scene.stand().await;
        let after = scene.testbed.observer.observe().updates;
        assert_eq!(before, after, "nothing was written for it");
        scene.withdraw();
        until("retained a second time", || {
            scene
                .agent
                .metric("noverlay_mass_withdrawal_suppressions_total")
                > 1.5
        })
        .await;
        scene.daemons.say(&sessions("Active"));
        scene.assert_gone().await;
    });
}

#[test]
fn withdrawals_en_masse_are_obeyed_at_once_without_peers_or_with_peers_that_are_down() {
    if absent() {
        return;
    }
    in_namespace(|| async {
        let scene = Scene::set("{}", LONG).await;
        for neighbors in ["{}", r#"{"ipv4Unicast":{"peers":{}}}"#, &sessions("Idle")] {
            scene.daemons.say(neighbors);
            let start = scene.withdraw();
            scene.assert_gone().await;
            println!("gone after {:?} with {neighbors}", start.elapsed());
            let count = scene
                .agent
                .metric("noverlay_mass_withdrawal_suppressions_total");
            assert!(count < 0.5, "retained with {neighbors}");
            ip_batch(&lines("add"));
            scene.stand().await;
        }
    });
}
