//! FRRConfigurations: whatever their text, what they become is what FRR is configured with, or a problem that names them.
//!
//! In: a JSON array of FRRConfigurations. Out: nothing.
//! Invariant: the order of the objects changes nothing; what is not refused says nothing to FRR but what the typed
//! fields mean: no text in them becomes a line of its own, and each prefix, VRF, profile, router id and neighbor of a line
//! is the whole text of a field. With NOVERLAY_FUZZ_VTYSH=FILE one accepted text in 16 is read
//! by FRR's own shell, which must know every line; FILE gets a line for each.
//! Not here: raw text (taken out first); only FRR knows what it means.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};
use std::sync::Arc;

use frr::{NodeInput, merge, render};
use model::Prefix;
use model::frr::{BfdProfile, FrrConfiguration};
use model::names::{NodeName, ObjectKey};

/// First words of the lines that typed fields are rendered to; each belongs to one line of a known form.
const WORDS: &[&str] = &[
    "!",
    "address-family",
    "bfd",
    "bgp",
    "detect-multiplier",
    "echo",
    "echo-mode",
    "exit",
    "exit-address-family",
    "exit-vrf",
    "frr",
    "hostname",
    "import",
    "ip",
    "ipv6",
    "log",
    "match",
    "minimum-ttl",
    "neighbor",
    "network",
    "no",
    "on-match",
    "passive-mode",
    "profile",
    "receive-interval",
    "route-map",
    "router",
    "service",
    "set",
    "transmit-interval",
    "vrf",
];

/// Reads objects, unites them in both orders, renders and lints them.
///
/// # Panics
/// Where the order matters, or a text becomes a line.
pub fn check(bytes: &[u8]) {
    let Ok(objects) = serde_json::from_slice::<Vec<serde_json::Value>>(bytes) else {
        return;
    };
    let mut read = Vec::new();
    for (at, value) in objects.iter().take(8).enumerate() {
        let key = ObjectKey::new("frr-k8s-system", format!("c{at}"));
        let source = api::decode_source(key, api::read_source(value));
        match source.object {
            Ok(object) => {
                let mut object = Arc::unwrap_or_clone(object);
                object.raw = None;
                // No two objects of a cluster have one name.
                object.key = ObjectKey::new("frr-k8s-system", format!("c{at}"));
                read.push(Arc::new(object));
            }
            Err(problems) => {
                assert!(!problems.is_empty(), "refused without a reason");
                for problem in problems {
                    let named = problem.subject.starts_with("FRRConfiguration/");
                    assert!(named && !problem.message.is_empty(), "{problem:?}");
                }
            }
        }
    }
    let there = merged(&read);
    read.reverse();
    assert_eq!(there, merged(&read), "the order of objects matters");
    let Ok((text, peers, sound)) = there else {
        return;
    };
    if !sound {
        return;
    }
    let mut fields = Fields::default();
    objects.iter().for_each(|value| fields.read(value));
    for line in text.lines() {
        assert!(
            fields.have(line),
            "{line:?} is of no field of an object:\n{text}"
        );
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        assert!(
            WORDS.contains(&first),
            "a line that no field has: {line:?} in\n{text}"
        );
        if first == "neighbor" {
            let peer = words.next().unwrap_or_default();
            assert!(
                peers.contains(peer),
                "neighbor {peer:?} is in no object:\n{text}"
            );
        }
    }
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n'),
        "a control character: {text:?}"
    );
    assert!(frr::compare::compare(&text, &text).is_empty());
    shell(&text);
}

/// Texts of the objects as they stand in the JSON.
#[derive(Default)]
struct Fields {
    texts: BTreeSet<String>,
    /// Those that are prefixes, without host bits.
    prefixes: BTreeSet<String>,
}

impl Fields {
    fn read(&mut self, value: &serde_json::Value) {
        match value {
            serde_json::Value::String(text) => {
                let prefix = text.parse::<Prefix>().map(|prefix| prefix.to_string());
                self.prefixes.extend(prefix);
                self.texts.insert(text.clone());
            }
            serde_json::Value::Array(list) => list.iter().for_each(|one| self.read(one)),
            serde_json::Value::Object(map) => {
                // Raw text was taken out before.
                let typed = map.iter().filter(|(key, _)| *key != "rawConfig");
                typed.for_each(|(_, one)| self.read(one));
            }
            serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {
            }
        }
    }

    /// Whether a line has the form of its first word, and what it names is the whole text of a field.
    fn have(&self, line: &str) -> bool {
        let number = |word: &str| word.parse::<u32>().is_ok();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["network", prefix] => self.prefixes.contains(*prefix),
            ["ip" | "ipv6", "prefix-list", _, "seq", at, state, rest @ ..] => {
                let of = match (*state, rest) {
                    ("permit" | "deny", ["any"]) => true,
                    ("permit", [prefix, bounds @ ..]) => {
                        let mut pairs = bounds.chunks(2);
                        self.prefixes.contains(*prefix)
                            && pairs.all(|p| matches!(p, ["le" | "ge", bits] if number(bits)))
                    }
                    _ => false,
                };
                of && number(at)
            }
            ["router", "bgp", asn] => number(asn),
            ["router", "bgp", asn, "vrf", name] => number(asn) && self.texts.contains(*name),
            // What an object calls the default VRF.
            ["import", "vrf", name] => *name == "default" || self.texts.contains(*name),
            ["profile", name] | ["bgp", "router-id", name] => self.texts.contains(*name),
            ["hostname", name] => *name == "n1",
            ["network" | "router" | "import" | "profile" | "hostname", ..]
            | ["ip" | "ipv6", "prefix-list", ..] => false,
            _ => true,
        }
    }
}

type Merged = Result<(String, BTreeSet<String>, bool), Vec<model::problem::Problem>>;

/// Whether an API server takes a profile with these numbers; none but FRR looks at them again.
fn in_schema(profile: &BfdProfile) -> bool {
    let within = |value: Option<u32>, range: RangeInclusive<u32>| {
        value.is_none_or(|value| range.contains(&value))
    };
    within(profile.receive_interval, 10..=60_000)
        && within(profile.transmit_interval, 10..=60_000)
        && within(profile.detect_multiplier, 2..=255)
        && within(profile.echo_interval, 10..=60_000)
        && within(profile.minimum_ttl, 1..=254)
}

/// Text, peers, and whether FRR will take it.
fn merged(objects: &[Arc<FrrConfiguration>]) -> Merged {
    let labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), "n1".to_owned())]);
    let passwords = BTreeMap::from([("peering".to_owned(), Ok("s3cret".to_owned()))]);
    let config = merge(&NodeInput {
        name: NodeName::from("n1"),
        labels: &labels,
        hostname: "n1".to_owned(),
        objects,
        passwords: &passwords,
    })?;
    let sound = frr::lint::refused(&config).is_empty() && config.bfd_profiles.iter().all(in_schema);
    let _ = frr::lint::lint(&config, &BTreeSet::new());
    let peers = (config.routers.iter())
        .flat_map(|router| &router.neighbors)
        .map(|neighbor| neighbor.peer.as_str().to_owned())
        .collect();
    Ok((render(&config), peers, sound))
}

/// Has FRR's shell read the text, where asked for and for one text in 16.
fn shell(text: &str) {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let Some(read) = std::env::var_os("NOVERLAY_FUZZ_VTYSH") else {
        return;
    };
    if !hasher.finish().is_multiple_of(16) {
        return;
    }
    let mut read = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(read)
        .unwrap();
    writeln!(read, "{}", text.len()).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let done = Command::new("vtysh")
        .arg("-C")
        .arg("-f")
        .arg(file.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "FRR's shell refuses what nothing refused: {}{}\n{text}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}
