//! Raw text that names neighbors nobody configures.
//! In: a merged configuration. Out: a problem per object and neighbor.
//! Invariant: a neighbor that raw text itself declares (remote-as, interface, peer-group) counts as configured.
//! Not here: whether raw text is valid otherwise; only FRR knows.

use std::collections::BTreeSet;

use model::problem::Problem;

use crate::config::{NodeConfig, RawText, subject, vrf_name};

/// A neighbor that a line speaks of.
struct Mention<'a> {
    source: &'a RawText,
    vrf: &'a str,
    peer: &'a str,
    declares: bool,
}

pub(super) fn lint(config: &NodeConfig, problems: &mut Vec<Problem>) {
    let mentions: Vec<Mention<'_>> = config.raw.iter().flat_map(mentions).collect();
    let mut known: BTreeSet<(&str, &str)> = BTreeSet::new();
    for router in &config.routers {
        let vrf = router.vrf.as_str();
        known.extend(router.neighbors.iter().map(|n| (vrf, n.peer.as_str())));
    }
    let declared = mentions.iter().filter(|mention| mention.declares);
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
                    declares: matches!(rest, ["remote-as" | "interface" | "peer-group", ..]),
                });
            }
            _ => {}
        }
    }
    found
}
