//! Raw text that names neighbors nobody configures, reflects nothing, or writes over what others wrote.
//! In: a merged configuration. Out: a problem per object and thing.
//! Invariant: a neighbor that raw text itself declares (remote-as, interface, peer-group) counts as configured.
//! Not here: whether raw text is valid otherwise; only FRR knows.

use std::collections::{BTreeMap, BTreeSet};

use model::problem::Problem;

use crate::config::{NodeConfig, RawText, subject, vrf_name};

/// A neighbor that a line speaks of.
struct Mention<'a> {
    source: &'a RawText,
    vrf: &'a str,
    peer: &'a str,
    rest: Vec<&'a str>,
}

impl Mention<'_> {
    fn declares(&self) -> bool {
        matches!(
            self.rest.as_slice(),
            ["remote-as" | "interface" | "peer-group", ..]
        )
    }
}

pub(super) fn lint(config: &NodeConfig, problems: &mut Vec<Problem>) {
    let mentions: Vec<Mention<'_>> = config.raw.iter().flat_map(mentions).collect();
    let mut known: BTreeSet<(&str, &str)> = BTreeSet::new();
    for router in &config.routers {
        let vrf = router.vrf.as_str();
        known.extend(router.neighbors.iter().map(|n| (vrf, n.peer.as_str())));
    }
    let declared = mentions.iter().filter(|mention| mention.declares());
    known.extend(declared.map(|mention| (mention.vrf, mention.peer)));
    for mention in &mentions {
        if !known.contains(&(mention.vrf, mention.peer)) {
            problems.push(Problem::new(
                subject(&mention.source.source),
                "RawUnknownNeighbor",
                format!(
                    "raw.rawConfig of {} names neighbor {} in VRF {}, which no object configures on node {}; the reload will fail",
                    mention.source.source,
                    mention.peer,
                    vrf_name(mention.vrf),
                    config.node
                ),
            ));
        }
    }
    lint_reflection(config, &mentions, problems);
    lint_clashes(config, problems);
}

/// A client of a reflector gets only what its own filter lets out, and that one holds the reflector's own prefixes.
fn lint_reflection(config: &NodeConfig, mentions: &[Mention<'_>], problems: &mut Vec<Problem>) {
    let clients = mentions.iter().filter(|mention| {
        let first = mention.rest.first();
        first == Some(&"route-reflector-client")
    });
    let mut clients = clients.peekable();
    if clients.peek().is_none() {
        return;
    }
    let mut ids = BTreeMap::new();
    for router in &config.routers {
        let vrf = router.vrf.as_str();
        let neighbors = router.neighbors.iter();
        ids.extend(neighbors.map(|n| ((vrf, n.peer.as_str()), n.id(vrf))));
    }
    let other_map = mentions.iter().filter(|mention| {
        let rest = mention.rest.as_slice();
        matches!(rest, ["route-map", _, "out"])
    });
    let other_map: BTreeSet<(&str, &str)> = other_map.map(|m| (m.vrf, m.peer)).collect();
    let written = Written::of(config);
    for mention in clients {
        let Some(id) = ids.get(&(mention.vrf, mention.peer)) else {
            continue;
        };
        let map = format!("{id}-out");
        let widened = written.maps.contains(map.as_str())
            || written.has_list(&format!("{id}-allowed-"))
            || other_map.contains(&(mention.vrf, mention.peer));
        if !widened {
            problems.push(Problem::new(
                subject(&mention.source.source),
                "ReflectsNothing",
                format!(
                    "raw.rawConfig of {} makes neighbor {} a route-reflector-client, but its generated filter {map} lets out this node's own prefixes only; add an entry to route-map {map}",
                    mention.source.source, mention.peer
                ),
            ));
        }
    }
}

/// Names of route-maps and prefix-lists that raw text writes.
struct Written<'a> {
    maps: BTreeSet<&'a str>,
    lists: BTreeSet<&'a str>,
}

impl<'a> Written<'a> {
    fn of(config: &'a NodeConfig) -> Self {
        let (mut maps, mut lists) = (BTreeSet::new(), BTreeSet::new());
        for line in config.raw.iter().flat_map(|raw| raw.config.lines()) {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("route-map"), Some(name)) => drop(maps.insert(name)),
                (Some("ip" | "ipv6"), Some("prefix-list")) => lists.extend(words.next()),
                _ => {}
            }
        }
        Self { maps, lists }
    }

    fn has_list(&self, beginning: &str) -> bool {
        let mut from = self.lists.range(beginning..);
        from.next().is_some_and(|name| name.starts_with(beginning))
    }
}

/// Entries of route-maps and prefix-lists that raw text writes although they are there already.
fn lint_clashes(config: &NodeConfig, problems: &mut Vec<Problem>) {
    if !config
        .raw
        .iter()
        .any(|raw| raw.config.lines().any(|line| entry(line).is_some()))
    {
        return;
    }
    let generated = crate::render::render(&NodeConfig {
        raw: Vec::new(),
        ..config.clone()
    });
    let mut known: BTreeMap<String, (String, String)> = BTreeMap::new();
    for (name, text) in entries(&generated) {
        known.insert(name, ("the generated text".to_owned(), text));
    }
    for raw in &config.raw {
        let place = format!("raw.rawConfig of {}", raw.source);
        for (name, entry) in entries(&raw.config) {
            let (first, text) = known
                .entry(name.clone())
                .or_insert_with(|| (place.clone(), entry.clone()));
            // The same twice is harmless; else an entry of a route-map is one entry with the lines of both.
            let harmless = *first == place || *text == entry;
            if !harmless {
                problems.push(Problem::new(
                    subject(&raw.source),
                    "RawClash",
                    format!(
                        "{place} writes {name}, which {first} has already; FRR makes one of the two without a word. Take another number"
                    ),
                ));
            }
        }
    }
}

/// How lines of an entry of a route-map begin.
const CLAUSES: [&str; 6] = [
    "match",
    "set",
    "call",
    "on-match",
    "continue",
    "description",
];

/// Numbered entries of a text: name, and all that each says.
fn entries(text: &str) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        if let Some(name) = entry(line) {
            open = name.starts_with("route-map");
            out.push((name, tidy(line)));
            continue;
        }
        let line = tidy(line);
        let first = line.split(' ').next().unwrap_or_default();
        if ["", "!", "no"].contains(&first) {
            continue;
        }
        // FRR takes what belongs to an entry of a route-map with blanks before it and without.
        open &= CLAUSES.contains(&first);
        if open && let Some((_, whole)) = out.last_mut() {
            whole.push('\n');
            whole.push_str(&line);
        }
    }
    out
}

/// The name of the numbered entry that a line begins or is.
fn entry(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match *words.as_slice() {
        ["route-map", name, "permit" | "deny", seq] => Some(format!("route-map {name} {seq}")),
        [ip @ ("ip" | "ipv6"), "prefix-list", name, "seq", seq, ..] => {
            Some(format!("{ip} prefix-list {name} seq {seq}"))
        }
        _ => None,
    }
}

fn tidy(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The `neighbor` lines of a text, each with the VRF of the router they stand under.
fn mentions(raw: &RawText) -> Vec<Mention<'_>> {
    let mut vrf = None;
    let mut found = Vec::new();
    for line in raw.config.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            ["router", "bgp", .., "vrf", name] => vrf = Some(name),
            ["router", "bgp", ..] => vrf = Some(""),
            ["router", ..] => vrf = None,
            ["neighbor", peer, ref rest @ ..] => {
                let Some(vrf) = vrf else { continue };
                found.push(Mention {
                    source: raw,
                    vrf,
                    peer,
                    rest: rest.to_vec(),
                });
            }
            _ => {}
        }
    }
    found
}
