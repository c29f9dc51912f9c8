//! Whether a packet filter's table translates a packet, and how many states it has been in.
//!
//! In: the table as `nft -j` lists it; what `nft monitor` says. Out: a verdict for a packet, and a count of commits.
//! Invariant: nothing here comes from the product. Not here: which tables there are.
#![allow(
    clippy::indexing_slicing,
    reason = "what is not as it must be stops the test"
)]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::run;
use serde_json::Value;

/// Counts commits of all tables of a namespace.
#[derive(Debug)]
pub struct Commits {
    monitor: Child,
    said: tempfile::NamedTempFile,
}

impl Commits {
    /// From now on: a table of its own is written to see that it counts. Panics where it does not within ten seconds.
    #[must_use]
    pub fn begin() -> Self {
        let said = tempfile::NamedTempFile::new().unwrap();
        let mut monitor = Command::new("nft");
        monitor
            .arg("monitor")
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let monitor = monitor.stdout(said.reopen().unwrap()).spawn().unwrap();
        let commits = Self { monitor, said };
        for _ in 0..200 {
            run(Command::new("nft").args(["add", "table", "ip", "probe"]));
            run(Command::new("nft").args(["delete", "table", "ip", "probe"]));
            std::thread::sleep(Duration::from_millis(50));
            if commits.count() > 0 {
                return commits;
            }
        }
        panic!("nft monitor tells of nothing");
    }

    /// How many there have been, once it tells of no more.
    #[must_use]
    pub fn settled(&self) -> usize {
        loop {
            let before = self.count();
            std::thread::sleep(Duration::from_millis(200));
            if self.count() == before {
                return before;
            }
        }
    }

    fn count(&self) -> usize {
        let said = std::fs::read_to_string(self.said.path()).unwrap();
        said.matches("# new generation").count()
    }
}

impl Drop for Commits {
    fn drop(&mut self) {
        drop(self.monitor.kill());
        drop(self.monitor.wait());
    }
}

/// The tables as they stand.
#[derive(Debug)]
pub struct Table {
    sets: BTreeMap<String, Vec<Value>>,
    chains: BTreeMap<String, Vec<Value>>,
    /// Chains that packets which leave come to for translation.
    base: Vec<String>,
}

impl Table {
    /// All tables of the namespace in one. Panics where they cannot be listed.
    #[must_use]
    pub fn read() -> Self {
        let listed = run(Command::new("nft").args(["-j", "list", "ruleset"]));
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let mut table = Self {
            sets: BTreeMap::new(),
            chains: BTreeMap::new(),
            base: Vec::new(),
        };
        for item in listed["nftables"].as_array().unwrap() {
            let name = |of: &Value| of["name"].as_str().unwrap().to_owned();
            if let Some(set) = item.get("set") {
                let elements = set["elem"].as_array().cloned().unwrap_or_default();
                table.sets.insert(name(set), elements);
            } else if let Some(chain) = item.get("chain") {
                table.chains.entry(name(chain)).or_default();
                if chain["type"] == "nat" && chain["hook"] == "postrouting" {
                    table.base.push(name(chain));
                }
            } else if let Some(rule) = item.get("rule") {
                let chain = rule["chain"].as_str().unwrap().to_owned();
                table
                    .chains
                    .entry(chain)
                    .or_default()
                    .push(rule["expr"].clone());
            }
        }
        table
    }

    /// Whether a packet that leaves gets another source address. Panics at what it does not know.
    #[must_use]
    pub fn translates(&self, from: IpAddr, to: IpAddr) -> bool {
        let mut base = self.base.iter();
        base.any(|chain| self.walk(chain, from, to) == Some(true))
    }

    /// `Some`: the packet's way through the chains ended, and whether it was translated.
    fn walk(&self, chain: &str, from: IpAddr, to: IpAddr) -> Option<bool> {
        'rules: for rule in &self.chains[chain] {
            for step in rule.as_array().unwrap() {
                if let Some(condition) = step.get("match") {
                    if !self.holds(condition, from, to) {
                        continue 'rules;
                    }
                } else if step.get("return").is_some() {
                    return None;
                } else if step.get("masquerade").is_some() || step.get("snat").is_some() {
                    return Some(true);
                } else if step.get("accept").is_some() {
                    return Some(false);
                } else if let Some(jump) = step.get("jump") {
                    let verdict = self.walk(jump["target"].as_str().unwrap(), from, to);
                    if verdict.is_some() {
                        return verdict;
                    }
                } else {
                    assert!(step.get("counter").is_some(), "unknown: {step}");
                }
            }
        }
        None
    }

    fn holds(&self, condition: &Value, from: IpAddr, to: IpAddr) -> bool {
        let payload = &condition["left"]["payload"];
        let ip = match payload["field"].as_str().unwrap_or_default() {
            "saddr" => from,
            "daddr" => to,
            _ => panic!("unknown: {condition}"),
        };
        let is_of_family = (payload["protocol"] == "ip") == ip.is_ipv4();
        let right = &condition["right"];
        let is_in = match right.as_str().and_then(|text| text.strip_prefix('@')) {
            Some(set) => self.sets[set].iter().any(|element| covers(element, ip)),
            None => covers(right, ip),
        };
        is_of_family && is_in == (condition["op"] != "!=")
    }
}

/// Whether an element (an address, a prefix, a range) holds an address.
fn covers(element: &Value, ip: IpAddr) -> bool {
    let address = |value: &Value| value.as_str().unwrap().parse::<IpAddr>().unwrap();
    if let Some(prefix) = element.get("prefix") {
        let text = format!("{}/{}", address(&prefix["addr"]), prefix["len"]);
        return text.parse::<ipnet::IpNet>().unwrap().contains(&ip);
    }
    if let Some(range) = element.get("range") {
        let ends = (address(&range[0]), address(&range[1]));
        return ends.0.is_ipv4() == ip.is_ipv4() && ends.0 <= ip && ip <= ends.1;
    }
    address(element) == ip
}
