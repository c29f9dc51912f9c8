//! Calling `hack/lab` and reading what it prints.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Name of the lab of these tests; short, like the demonstration's. NOVERLAY_E2E_NAME
/// keeps two runs on one machine apart.
pub(crate) fn name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| std::env::var("NOVERLAY_E2E_NAME").unwrap_or_else(|_| "e2e".to_owned()))
}

/// Can these tests run here? Where they must (REQUIRE_TOOLS=1), not being able to is a
/// failure.
pub(crate) fn able() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if std::env::var("REQUIRE_TOOLS").is_ok_and(|v| v == "1") {
        assert!(root, "REQUIRE_TOOLS=1, but not root");
        return true;
    }
    println!("skipped: the lab takes minutes; REQUIRE_TOOLS=1 (as root) runs these tests");
    false
}

/// The seed of this run: NOVERLAY_SEED, or drawn and printed.
pub(crate) fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let given = std::env::var("NOVERLAY_SEED")
            .ok()
            .and_then(|text| text.parse().ok());
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seed = given.unwrap_or_else(|| u64::from(clock.unwrap_or_default().subsec_micros()));
        println!("seed of this run: NOVERLAY_SEED={seed}");
        seed
    })
}

fn hack_lab() -> PathBuf {
    std::path::absolute("../../hack/lab").expect("tests run in a folder")
}

/// A call of `hack/lab` for this lab; the first one builds, the others need not.
pub(crate) fn command(words: &[&str]) -> Command {
    static BUILT: OnceLock<()> = OnceLock::new();
    let mut command = Command::new(hack_lab());
    command
        .args(["--name", name()])
        .args(words)
        .stdin(Stdio::null());
    if BUILT.get().is_some() {
        command.env("NOVERLAY_SKIP_BUILD", "1");
    }
    if words.first() == Some(&"up") {
        BUILT.get_or_init(|| ());
    }
    command
}

/// What a call printed, and whether its status was 0.
pub(crate) struct Said {
    pub(crate) good: bool,
    pub(crate) text: String,
}

/// Calls `hack/lab` and shows what it prints.
pub(crate) fn call(words: &[&str]) -> Said {
    let output = command(words).output().expect("hack/lab can be started");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    println!("$ hack/lab {}\n{text}", words.join(" "));
    Said {
        good: output.status.success(),
        text,
    }
}

impl Said {
    /// Every line of the proof says ok.
    pub(crate) fn assert_all_hold(&self) {
        assert!(
            self.good && !self.text.contains("FAIL"),
            "a line failed:\n{}",
            self.text
        );
    }

    /// This line failed, at this layer.
    pub(crate) fn assert_fails(&self, line: u8, layer: &str) {
        let seen = self.layer_of(line);
        assert_eq!(
            seen.as_deref(),
            Some(layer),
            "line {line} of\n{}",
            self.text
        );
        assert!(!self.good, "a failed line, but status 0");
    }

    fn layer_of(&self, line: u8) -> Option<String> {
        let head = format!("line {line}  FAIL");
        let mut rest = self.text.lines().skip_while(|l| !l.starts_with(&head));
        rest.next()?;
        let layer = rest.find_map(|l| l.trim().strip_prefix("layer:"))?;
        Some(layer.trim().to_owned())
    }
}

/// A lab that is up, and goes down with the test.
pub(crate) struct Standing;

impl Standing {
    /// Brings a lab up that must be healthy.
    pub(crate) fn up(more: &[&str]) -> Self {
        let (lab, said) = Self::try_up(more);
        // FRRNodeStates may come later than the first ping: the table is asked again.
        let healthy = said.good || wait(Duration::from_secs(40), || call(&["status"]).good);
        assert!(healthy, "the lab did not come up");
        lab
    }

    /// Brings a lab up that cannot be healthy.
    pub(crate) fn up_red(more: &[&str]) -> Self {
        let (lab, said) = Self::try_up(more);
        assert!(!said.good, "status says that all is well");
        lab
    }

    fn try_up(more: &[&str]) -> (Self, Said) {
        let words = [&["up", "--no-prove"], more].concat();
        let lab = Self;
        let said = call(&words);
        (lab, said)
    }

    /// Proves some lines.
    pub(crate) fn prove(&self, more: &[&str]) -> Said {
        call(&[&["prove"], more].concat())
    }

    /// Proves line 7 and does something in its quiet time.
    pub(crate) fn disturb(&self, seconds: u64, job: impl FnOnce()) -> Said {
        let quiet = seconds.to_string();
        self.meanwhile(
            &["--only", "7", "--quiet", &quiet],
            "a quiet time of",
            || {
                let start = Instant::now();
                job();
                let took = start.elapsed();
                assert!(
                    took < Duration::from_secs(seconds),
                    "a quiet time of {seconds} s was over before this was done, after {took:?}"
                );
            },
        )
    }

    /// Proves some lines and does something as soon as it has said this; at once, where that is nothing.
    pub(crate) fn meanwhile(&self, more: &[&str], mark: &str, job: impl FnOnce()) -> Said {
        let words = [&["prove"], more].concat();
        println!("$ hack/lab {} ...", words.join(" "));
        let mut command = command(&words);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("hack/lab");
        let mut job = Some(job);
        let mut text = String::new();
        if mark.is_empty()
            && let Some(job) = job.take()
        {
            job();
        }
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            println!("{line}");
            if line.contains(mark)
                && let Some(job) = job.take()
            {
                job();
            }
            text.push_str(&line);
            text.push('\n');
        }
        let good = child.wait().unwrap().success();
        assert!(job.is_none(), "never said {mark:?}:\n{text}");
        Said { good, text }
    }

    /// Proves some lines until they hold.
    pub(crate) fn recovers(&self, lines: &str) {
        let healed = wait(Duration::from_secs(20), || {
            self.prove(&["--only", lines]).good
        });
        assert!(healed, "lines {lines} do not hold again");
    }

    /// Runs a command in a node's namespace and gives what it prints.
    pub(crate) fn exec(&self, node: &str, words: &[&str]) -> String {
        let said = self.try_exec(node, words);
        assert!(said.good, "{words:?} on {node}: {}", said.text);
        said.text
    }

    /// The same, where it may fail; not shown, because it may be called often.
    pub(crate) fn try_exec(&self, node: &str, words: &[&str]) -> Said {
        let output = command(&["exec", node])
            .args(words)
            .output()
            .expect("hack/lab");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Said {
            good: output.status.success(),
            text,
        }
    }

    /// Starts a command in a node's namespace.
    pub(crate) fn start(&self, node: &str, words: &[&str]) -> Child {
        let mut command = command(&["exec", node]);
        command.args(words).stdout(Stdio::piped());
        command.spawn().expect("hack/lab")
    }

    /// stop, end, start, freeze or thaw a daemon.
    pub(crate) fn daemon(&self, action: &str, node: &str, daemon: &str) {
        let said = call(&["daemon", action, node, daemon]);
        assert!(said.good, "{}", said.text);
    }

    /// Freezes a daemon, with no process start in between.
    pub(crate) fn freeze_at_once(&self, node: &str, daemon: &str) {
        let pid = self
            .daemon_record(node, daemon)
            .get("pid")
            .and_then(Value::as_i64);
        let pid = i32::try_from(pid.expect("a process number")).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGSTOP).expect("a daemon that runs");
    }

    /// Folder of a node, or of `underlay`.
    pub(crate) fn dir(&self, node: &str) -> PathBuf {
        Path::new("/run/noverlay-lab").join(name()).join(node)
    }

    /// The configuration file of one of our daemons.
    pub(crate) fn config(&self, node: &str, daemon: &str) -> PathBuf {
        self.dir(node).join(daemon).join("config/noverlay.conf")
    }

    /// What the lab runs a daemon of ours in.
    pub(crate) fn container(&self, node: &str, daemon: &str) -> PathBuf {
        self.dir(node).join(daemon).join("container.json")
    }

    /// Where the lab keeps how a daemon was started.
    pub(crate) fn daemon_file(&self, node: &str, daemon: &str) -> PathBuf {
        self.dir("pids").join(format!("{node}.{daemon}.json"))
    }

    /// How a daemon was started, and its process number.
    pub(crate) fn daemon_record(&self, node: &str, daemon: &str) -> Value {
        let file = self.daemon_file(node, daemon);
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
    }

    /// Name of the node with this number, from 0.
    pub(crate) fn node(&self, number: usize) -> String {
        self.record(&format!("/nodes/{number}/name"))
    }

    /// Address of the pod of the node with this number.
    pub(crate) fn pod(&self, number: usize) -> Ipv4Addr {
        self.pod_word(number, "address")
            .parse()
            .expect("an address")
    }

    /// The router's address in the subnet of the node with this number.
    pub(crate) fn gateway(&self, number: usize) -> String {
        let subnet = self.subnet(number);
        let (network, _) = subnet.split_once('/').expect("a prefix");
        let last = network.parse::<Ipv4Addr>().expect("an address");
        Ipv4Addr::from(u32::from(last) + 1).to_string()
    }

    /// Subnet of the node with this number.
    pub(crate) fn subnet(&self, number: usize) -> String {
        self.pod_word(number, "subnet")
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        let text = std::fs::read_to_string(self.dir("lab.json")).unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        record
            .pointer("/nodes")
            .and_then(Value::as_array)
            .unwrap()
            .len()
    }

    /// All addresses of the pod of the node with this number.
    pub(crate) fn pod_addresses(&self, number: usize) -> Vec<IpAddr> {
        let pod = self.pod_record(number);
        let all = pod.pointer("/addresses").and_then(Value::as_array).unwrap();
        let words = all
            .iter()
            .map(|of| of.pointer("/address").and_then(Value::as_str).unwrap());
        words
            .map(|word| word.parse().expect("an address"))
            .collect()
    }

    fn pod_record(&self, number: usize) -> Value {
        let file = self.dir(&self.node(number)).join("pod.json");
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
    }

    /// A word of the first address of a node's pod.
    fn pod_word(&self, number: usize, key: &str) -> String {
        let pod = self.pod_record(number);
        let word = pod.pointer(&format!("/addresses/0/{key}"));
        word.and_then(Value::as_str).unwrap().to_owned()
    }

    /// A text or number of the lab's record.
    pub(crate) fn record(&self, path: &str) -> String {
        let text = std::fs::read_to_string(self.dir("lab.json")).unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        let value = record.pointer(path).unwrap();
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    }

    /// Underlay address of the node with this number.
    pub(crate) fn address(&self, number: usize) -> String {
        let index = self.record(&format!("/nodes/{number}/index"));
        self.host(index.parse().expect("an index"))
    }

    /// Underlay address of the node with this index; 100 is the outside host.
    pub(crate) fn host(&self, index: u32) -> String {
        let underlay = self.record("/values/underlays/0");
        let (network, _) = underlay.rsplit_once('.').unwrap();
        format!("{network}.{index}")
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let said = call(&["down"]);
        // A test that has failed already says more than this.
        if !std::thread::panicking() {
            assert!(said.good, "hack/lab down failed:\n{}", said.text);
        }
    }
}

/// Asks until the answer is yes, for at most this long.
pub(crate) fn wait(limit: Duration, mut ask: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if ask() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
