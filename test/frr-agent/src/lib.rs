//! The frr-agent with everything that it needs for real: an API server, a FRR of its own, two FRRs as its peers.
//! In: the binaries of `hack/tools`. Out: a running agent, and what FRR and the API server say of its work.
//! Invariant: all of it ends with the value; files of the agent lie in a mount namespace that dies with the test.
//! Not here: what is tested.
//!
//! ```text
//!  kube-apiserver <--- frr-agent (a runtime of its own) ---> sockets of fn1 (172.31.10.1, 172.31.11.1)
//!                                                               |  BGP       \
//!                                                     172.31.10.2 (near)   172.31.11.2 (far: the one that must not notice)
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a fixture of tests: it stops at the first surprise and says why"
)]

mod agent;
mod hand;

use std::path::PathBuf;
use std::time::Duration;

use frr_tests::Frr;
use kube_tests::{ApiServer, until};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;

pub use agent::Agent;

/// The peer whose session tests play with.
pub const NEAR: &str = "172.31.10.2";
/// The peer whose session must keep its uptime.
pub const FAR: &str = "172.31.11.2";
/// Where the agent's frr.conf lies: a file system of its own, of 8 MiB.
const FOLDER_SIZE: &str = "size=8m,mode=0755";

/// All of it.
pub struct Fixture {
    agent: Option<Agent>,
    /// The API server.
    pub api: ApiServer,
    /// The node's FRR.
    pub frr: Frr,
    near: Frr,
    _far: Frr,
    /// More lines of the agent's configuration file.
    more: String,
}

/// Which session of a neighbor stands.
#[derive(Debug, Clone, Copy)]
pub struct Since {
    /// When it was established, in seconds since 1970.
    epoch: u64,
    /// How many were lost before.
    drops: u64,
}

impl Since {
    fn of(neighbor: &Value) -> Self {
        let number = |key: &str| neighbor[key].as_u64().unwrap_or(0);
        Self {
            epoch: number("bgpTimerUpEstablishedEpoch"),
            drops: number("connectionsDropped"),
        }
    }
}

/// Whether this machine lacks something: said, or a failure where `REQUIRE_TOOLS=1`.
#[must_use]
pub fn lacks_tools() -> bool {
    let missing = frr_tests::missing();
    let Some(_) = kube_tests::tools() else {
        return true;
    };
    if missing.is_empty() {
        return false;
    }
    assert!(
        std::env::var("REQUIRE_TOOLS").as_deref() != Ok("1"),
        "not on this machine: {missing:?}"
    );
    println!("skipped: not on this machine: {missing:?}");
    true
}

/// The configuration of a peer in network `172.31.<net>.0/24` that announces a prefix.
#[must_use]
pub fn peer(net: u8, prefix: &str) -> String {
    format!(
        "hostname peer{net}\nrouter bgp 64512\n bgp router-id 172.31.{net}.2\n no bgp ebgp-requires-policy\n no bgp network import-check\n neighbor 172.31.{net}.1 remote-as 64512\n neighbor 172.31.{net}.1 timers connect 1\n address-family ipv4 unicast\n  network {prefix}\n exit-address-family\n"
    )
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.agent = None;
        // The folder below goes away with the FRR, which a mount would hinder.
        let _ = umount2(&self.folder(), MntFlags::MNT_DETACH);
    }
}

impl Fixture {
    /// Starts everything but the agent. The calling thread gets a mount namespace of its own.
    #[must_use]
    pub fn start(more: &str) -> Self {
        let (frr, near, far) = (
            Frr::start().unwrap(),
            Frr::start().unwrap(),
            Frr::start().unwrap(),
        );
        for (other, net, prefix) in [(&near, 10, "10.128.10.0/24"), (&far, 11, "10.128.11.0/24")] {
            frr.connect(other, net).unwrap();
            let loaded = other.load(&peer(net, prefix)).unwrap();
            assert!(loaded.clean, "{}", loaded.output);
        }
        let api = ApiServer::start(kube_tests::tools().unwrap());
        api.node("fn1", "172.31.10.1");
        let fixture = Self {
            agent: None,
            api,
            frr,
            near,
            _far: far,
            more: more.to_owned(),
        };
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        std::fs::create_dir(fixture.folder()).unwrap();
        fixture.mount_folder(MsFlags::empty());
        fixture
    }

    /// The folder of the agent's frr.conf, as this thread sees it.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.frr.dir().join("conf")
    }

    fn mount_folder(&self, flags: MsFlags) {
        let data = if flags.is_empty() {
            Some(FOLDER_SIZE)
        } else {
            None
        };
        mount(Some("tmpfs"), &self.folder(), Some("tmpfs"), flags, data).unwrap();
        if flags.is_empty() {
            std::fs::write(self.folder().join("vtysh.conf"), "").unwrap();
        }
    }

    /// Makes the folder of frr.conf read-only, or writable again.
    pub fn read_only(&self, yes: bool) {
        let read_only = if yes {
            MsFlags::MS_RDONLY
        } else {
            MsFlags::empty()
        };
        self.remount(MsFlags::MS_REMOUNT | read_only);
    }

    fn remount(&self, flags: MsFlags) {
        let none: Option<&str> = None;
        mount(none, &self.folder(), none, flags, none).unwrap();
    }

    /// Starts the agent in this thread's mount namespace.
    pub fn start_agent(&mut self) {
        let frr = self.frr.dir().display().to_string();
        let text = format!(
            "[kubernetes]\nkubeconfig = \"{}\"\n[metrics]\nbind-address = \"127.0.0.1:{}\"\n[frr]\nvty-socket = \"{frr}\"\nconfig-file = \"{frr}/conf/frr.conf\"\n{}\n",
            self.api.kubeconfig("frr-agent").display(),
            kube_tests::free_port(),
            self.more
        );
        self.agent = Some(Agent::start("fn1", &text));
    }

    /// Kills the agent: it gives nothing back.
    pub fn kill_agent(&mut self) {
        self.agent = None;
    }

    /// Waits until the agent has ended by itself, and gives its last words.
    #[must_use]
    pub fn agent_ended(&mut self, seconds: u64) -> String {
        let agent = self.agent.as_mut().unwrap();
        until("the agent ends", seconds, || {
            agent.last_words().ok_or("it runs".to_owned())
        })
    }

    /// Tells the agent to end, as SIGTERM does.
    pub fn end_agent(&mut self) {
        self.agent.as_mut().unwrap().tell_to_end();
    }

    /// What the agent answers to `path` (`/healthz`, `/readyz`) within the deadline, headers included, or why not.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub fn asked(&self, path: &str, deadline: Duration) -> Result<String, String> {
        self.agent.as_ref().unwrap().get(path, deadline)
    }

    /// Sends a signal (`STOP`, `CONT`) to the API server, which then accepts connections and does not answer.
    pub fn signal_api(&self, signal: &str) {
        // The folder of its certificates is its own.
        let certs = format!("--cert-dir={}", self.api.path("certs").display());
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let command = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            if command.split('\0').any(|word| word == certs) {
                let pid = entry.file_name().to_str().unwrap().parse().unwrap();
                let signal = format!("SIG{signal}")
                    .parse::<nix::sys::signal::Signal>()
                    .unwrap();
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Some(signal)).unwrap();
                return;
            }
        }
        panic!("the API server does not run");
    }

    /// A metric of the agent, the sum over its series whose line contains `labels`.
    #[must_use]
    pub fn metric(&self, name: &str, labels: &str) -> f64 {
        self.agent.as_ref().unwrap().metric(name, labels)
    }

    /// The object that makes both sessions. `near` and `far` are more fields of the neighbors.
    pub fn peer_with(&self, near: &str, far: &str) {
        self.peer_at(NEAR, near, far);
    }

    /// The same with the near neighbor at this address.
    pub fn peer_at(&self, address: &str, near: &str, far: &str) {
        let neighbor = |address: &str, more: &str| {
            format!(
                "    - {{address: {address}, asn: 64512, connectTime: 1s, toReceive: {{allowed: {{mode: all}}}}, toAdvertise: {{allowed: {{prefixes: [10.128.1.0/24]}}}}{more}}}\n"
            )
        };
        self.object(
            "base",
            &format!(
                "  bgp:\n    routers:\n    - asn: 64512\n      id: 172.31.10.1\n      prefixes: [10.128.1.0/24]\n      neighbors:\n{}{}",
                neighbor(address, near).replacen("    -", "      -", 1),
                neighbor(FAR, far).replacen("    -", "      -", 1)
            ),
        );
    }

    /// Applies an FRRConfiguration in the agent's namespace.
    pub fn object(&self, name: &str, spec: &str) {
        self.api.apply(&format!(
            "apiVersion: frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration\nmetadata: {{name: {name}, namespace: frr-k8s-system}}\nspec:\n{spec}\n"
        ));
    }

    /// Deletes one.
    pub fn delete(&self, name: &str) {
        self.api
            .kubectl(&["-n", "frr-k8s-system", "delete", "frrconfiguration", name]);
    }

    /// Waits until both sessions stand, and gives what FRR says of the far one.
    #[must_use]
    pub fn both_up(&self) -> Since {
        until("both sessions are established", 60, || {
            let (near, far) = (self.neighbor(NEAR), self.neighbor(FAR));
            let up = |n: &Value| n["bgpState"] == "Established";
            if up(&near) && up(&far) {
                Ok(Since::of(&far))
            } else {
                Err(format!("{} {}", near["bgpState"], far["bgpState"]))
            }
        })
    }

    /// What FRR says of a neighbor; null where there is none.
    #[must_use]
    pub fn neighbor(&self, address: &str) -> Value {
        let text = self
            .frr
            .ask("bgpd", "show bgp neighbors json")
            .unwrap_or_default();
        let all: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        all[address].clone()
    }

    /// Whether a session stands now.
    #[must_use]
    pub fn established(&self, address: &str) -> bool {
        self.neighbor(address)["bgpState"] == "Established"
    }

    /// Fails where the far session is not the one of then any more.
    pub fn far_is_undisturbed(&self, since: Since) {
        self.is_undisturbed(FAR, since);
    }

    fn is_undisturbed(&self, address: &str, since: Since) {
        let neighbor = self.neighbor(address);
        let now = Since::of(&neighbor);
        // FRR takes the time from an uptime in whole seconds, so that it moves by one.
        let same = now.epoch.abs_diff(since.epoch) <= 1 && now.drops == since.drops;
        assert!(
            same && neighbor["bgpState"] == "Established",
            "the session with {address} was disturbed: {since:?}, now {now:?}"
        );
    }

    /// The near peer's side.
    #[must_use]
    pub fn near(&self) -> &Frr {
        &self.near
    }

    /// FRRNodeState's status.
    #[must_use]
    pub fn state(&self) -> Value {
        let states = self.api.items("frrnodestates");
        states.first().map_or(Value::Null, |s| s["status"].clone())
    }

    /// Waits until a field of FRRNodeState's status contains the text.
    pub fn state_says(&self, field: &str, text: &str, seconds: u64) {
        until(&format!("{field} says {text:?}"), seconds, || {
            let state = self.state();
            let said = state[field].as_str().unwrap_or_default();
            if said.contains(text) {
                Ok(())
            } else {
                Err(said.chars().take(600).collect())
            }
        });
    }

    /// Waits until FRR runs a line.
    pub fn runs(&self, line: &str, seconds: u64) {
        until(&format!("FRR runs {line:?}"), seconds, || {
            let lines = self.frr.running().map_err(|e| e.to_string())?;
            if lines.iter().any(|l| l.trim() == line) {
                Ok(())
            } else {
                Err(lines.join("\n"))
            }
        });
    }

    /// Whether FRR runs a line now.
    #[must_use]
    pub fn has_line(&self, line: &str) -> bool {
        let lines = self.frr.running().unwrap_or_default();
        lines.iter().any(|l| l.trim() == line)
    }
}
