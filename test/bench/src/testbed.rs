//! Where the import is measured: a gateway link with many routers behind it, a Northbound database, the process under test.
//! In: what the thread's namespace is. Out: processes that end with it.
//! Invariant: the namespace is empty before. Not here: what is done with it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use frr_tests::Frr;
use import::retention::SETTLE;
use netns_tests::ip;
use ovsdb::{Client, Transaction};
use ovsdb_tests::{NB, Server, mk_client, mk_router, until_synced};

use crate::kernel::Kernel;
use crate::observe::Observer;
use crate::process::Watched;
use crate::sets::LONE;

pub(crate) const LINK: &str = "br-ex";
const ROUTER: &str = "GR_n1";

/// Configuration of an FRR whose end of the link is `.<own>`, with more words on its neighbor.
fn session(own: u8, peer: u8, more: &str) -> String {
    let neighbor = format!(" neighbor 172.31.20.{peer}");
    format!(
        "router bgp 64512\n bgp router-id 172.31.20.{own}\n{neighbor} remote-as 64512\n{neighbor} timers connect 1\n{more}"
    )
}

/// Two FRR on a link of their own; the second one waits for the first.
fn peers() -> (Frr, Frr) {
    let start = || Frr::start().expect("FRR starts");
    let (near, far) = (start(), start());
    near.connect(&far, 20).expect("a link between them");
    far.load(&session(2, 1, "")).expect("the reload tool");
    (near, far)
}

/// Everything but the process under test.
pub(crate) struct Testbed {
    pub(crate) observer: Observer,
    pub(crate) kernel: Kernel,
    pub(crate) database: Watched,
    socket: PathBuf,
    /// A real FRR that the process under test asks, and its peer; nothing where the whole agent runs.
    frr: Option<(Frr, Frr)>,
    /// Nothing where the database is somebody else's.
    _server: Option<Server>,
}

impl Testbed {
    pub(crate) async fn build() -> Self {
        ip("link set lo up");
        ip(&format!("link add {LINK} type veth peer name {LINK}-peer"));
        ip(&format!("addr add 172.30.0.1/16 dev {LINK}"));
        ip(&format!("link set {LINK}-peer up"));
        ip(&format!("link set {LINK} up"));
        let server = Server::start();
        let socket = server.socket();
        let testbed = Self {
            observer: Observer::start(&socket).await,
            kernel: Kernel::open(LINK).expect("a socket to the kernel"),
            database: Watched::new(server.id()),
            socket,
            frr: Some(peers()),
            _server: Some(server),
        };
        testbed.empty().await;
        testbed
    }

    /// A site that is there already, with routes and rows of its own.
    pub(crate) async fn attach(socket: PathBuf, database: u32) -> Self {
        Self {
            observer: Observer::start(&socket).await,
            kernel: Kernel::open(LINK).expect("a socket to the kernel"),
            database: Watched::new(database),
            socket,
            frr: None,
            _server: None,
        }
    }

    /// Where the database listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// Somebody who writes to the database.
    pub(crate) fn client(&self) -> Client {
        mk_client(&self.socket)
    }

    /// A database with a router and nothing else.
    pub(crate) async fn empty(&self) {
        let client = self.client();
        until_synced(&client).await;
        let all = Transaction::new(NB).delete("Logical_Router", Vec::new());
        client.transact(&all).await.expect("routers go");
        let made = client.transact(&mk_router(ROUTER)).await;
        made.expect("the router is made");
        self.observer.until_rows(0).await;
    }

    /// Waits until a process that has just been started believes the kernel that routes are gone: FRR's session was up for a
    /// while. Then the session ends, so that no withdrawal, however large, is taken for a peer's mistake.
    pub(crate) async fn until_settled(&self) {
        let (frr, _) = self.frr.as_ref().expect("a site of its own has an FRR");
        let load = |more: &str| {
            let loaded = frr.load(&session(1, 2, more)).expect("the reload tool");
            assert!(loaded.clean, "FRR refuses: {}", loaded.output);
        };
        load("");
        let up = || {
            let shown = frr.ask("bgpd", "show bgp neighbors 172.31.20.2 json");
            shown.is_ok_and(|text| text.contains("\"Established\""))
        };
        let start = now();
        while !up() {
            let waited = start.elapsed();
            assert!(
                waited < Duration::from_secs(60),
                "no session after {waited:?}"
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        tokio::time::sleep(SETTLE + Duration::from_secs(2)).await;
        load(" neighbor 172.31.20.2 shutdown\n");
    }

    /// Takes the benchmark's routes out of the kernel.
    pub(crate) fn flush(&self) {
        ip("route flush proto bgp root 16.0.0.0/4");
    }
}

/// The process under test; it ends with this value.
pub(crate) struct Agent {
    child: Child,
    pub(crate) watched: Watched,
    pub(crate) started: Instant,
    said: tokio::sync::mpsc::UnboundedReceiver<Instant>,
}

impl Agent {
    /// `limit`: `[limits] max-imported-routes`.
    pub(crate) fn start(testbed: &Testbed, limit: u32) -> Self {
        Self::start_with(testbed, limit, 0)
    }

    /// With so many networks of users beside the default one.
    pub(crate) fn start_with(testbed: &Testbed, limit: u32, networks: u16) -> Self {
        let networks = networks.to_string();
        Self::start_as(testbed, limit, ["--networks", &networks])
    }

    /// It fills a set of so many subnets, and of those that come and go.
    pub(crate) fn start_for_sets(testbed: &Testbed, subnets: u32) -> Self {
        let subnets = (subnets + LONE).to_string();
        Self::start_as(testbed, 200_000, ["--sets", &subnets])
    }

    fn start_as(testbed: &Testbed, limit: u32, words: [&str; 2]) -> Self {
        let (frr, _) = testbed.frr.as_ref().expect("a site of its own has an FRR");
        let itself = std::env::current_exe().expect("its own path");
        let started = now();
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(itself)
            .arg("agent")
            .arg("--north")
            .arg(&testbed.socket)
            .args(["--link", LINK, "--limit", &limit.to_string()])
            .args(words)
            .arg("--vty-socket")
            .arg(frr.dir())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the process under test starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let (say, said) = tokio::sync::mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for _ in lines.lines().map_while(Result::ok) {
                if say.send(now()).is_err() {
                    return;
                }
            }
        });
        Self {
            watched: Watched::new(child.id()),
            child,
            started,
            said,
        }
    }

    /// Waits until its first pass found rows and routes in agreement; how long that took since its start.
    pub(crate) async fn until_agreed(&mut self) -> Duration {
        let said = tokio::time::timeout(Duration::from_secs(120), self.said.recv()).await;
        let at = said.expect("it agrees").expect("it runs");
        at.saturating_duration_since(self.started)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
