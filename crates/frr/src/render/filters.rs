//! Prefix-lists and route-maps of one neighbor.
//! In: a neighbor and its id. Out: lines of frr.conf.
//! Invariant: the two route-maps of a neighbor share one counter, out before in; an empty list says `deny any`.
//! Not here: which prefixes may pass (`merge`).

use model::address::Family;

use super::{Text, sorted};
use crate::config::NeighborConfig;

const FAMILIES: [(Family, &str, &str); 2] =
    [(Family::V4, "ip", "ipv4"), (Family::V6, "ipv6", "ipv6")];

/// Numbers the entries of a neighbor's route-maps.
struct Maps<'a> {
    id: &'a str,
    last: u32,
}

impl Maps<'_> {
    fn entry(&mut self, text: &mut Text, way: &str, family: &str, list: &str) {
        self.last = self.last.saturating_add(1);
        text.line(&format!("route-map {}-{way} permit {}", self.id, self.last));
        text.line(&format!("  match {family} address prefix-list {list}"));
    }
}

pub(super) fn render(text: &mut Text, neighbor: &NeighborConfig, id: &str) {
    let mut maps = Maps { id, last: 0 };
    render_modifiers(text, neighbor, id, &mut maps);
    render_out(text, neighbor, id, &mut maps);
    render_in(text, neighbor, id, &mut maps);
}

/// One list and one entry for each local preference and community, in the order of their lists' names as text, which is
/// frr-k8s's; `on-match next` leaves permit or deny to the last entries.
fn render_modifiers(text: &mut Text, neighbor: &NeighborConfig, id: &str, maps: &mut Maps<'_>) {
    let out = &neighbor.advertise;
    let mut lists = Vec::new();
    for (family, ip, _) in FAMILIES {
        for (value, prefixes) in &out.local_prefs {
            lists.push(Modifier {
                name: format!("{id}-{value}-{ip}-localpref-prefixes"),
                ip,
                prefixes: sorted(prefixes.iter(), family),
                set: format!("local-preference {value}"),
            });
        }
        for (community, prefixes) in &out.communities {
            let (number, kind) = match community.strip_prefix("large:") {
                Some(number) => (number, "large-community"),
                None => (community.as_str(), "community"),
            };
            lists.push(Modifier {
                name: format!("{id}-{community}-{ip}-community-prefixes"),
                ip,
                prefixes: sorted(prefixes.iter(), family),
                set: format!("{kind} {number} additive"),
            });
        }
    }
    lists.retain(|list| !list.prefixes.is_empty());
    lists.sort_by(|a, b| a.name.cmp(&b.name));
    for list in &lists {
        for (seq, prefix) in (1_u32..).zip(&list.prefixes) {
            text.line(&format!(
                "{} prefix-list {} seq {seq} permit {prefix}",
                list.ip, list.name
            ));
        }
        maps.entry(text, "out", list.ip, &list.name);
        text.line(&format!("  set {}", list.set));
        text.line("  on-match next");
    }
}

/// A list whose prefixes get an attribute.
struct Modifier {
    name: String,
    ip: &'static str,
    prefixes: Vec<String>,
    set: String,
}

fn render_out(text: &mut Text, neighbor: &NeighborConfig, id: &str, maps: &mut Maps<'_>) {
    let out = &neighbor.advertise;
    for (family, ip, word) in FAMILIES {
        let list = format!("{ip} prefix-list {id}-allowed-{word}");
        let prefixes = sorted(out.prefixes.iter(), family);
        if prefixes.is_empty() {
            text.line(&format!("{list} seq 1 deny any"));
        }
        for (seq, prefix) in (1_u32..).zip(&prefixes) {
            text.line(&format!("{list} seq {seq} permit {prefix}"));
        }
    }
    for (family, ip, word) in FAMILIES {
        maps.entry(text, "out", ip, &format!("{id}-allowed-{word}"));
        let hop = match family {
            Family::V4 => out
                .next_hop_v4
                .map(|hop| format!("  set ip next-hop {hop}")),
            Family::V6 => out
                .next_hop_v6
                .map(|hop| format!("  set ipv6 next-hop global {hop}")),
        };
        if let Some(hop) = hop {
            text.line(&hop);
        }
    }
}

/// One name and one counter serve the lists of both families.
fn render_in(text: &mut Text, neighbor: &NeighborConfig, id: &str, maps: &mut Maps<'_>) {
    let name = format!("{id}-inpl-{}", neighbor.families().as_str());
    let mut permits = Vec::new();
    let mut denies = Vec::new();
    for (family, ip, _) in FAMILIES {
        let ranges = matching(neighbor, family);
        if neighbor.receive.all {
            permits.push((ip, "permit any".to_owned()));
        } else if ranges.is_empty() {
            denies.push((ip, "deny any".to_owned()));
        }
        permits.extend(ranges.into_iter().map(|range| (ip, range)));
    }
    permits.extend(denies);
    for (seq, (ip, rule)) in (1_u32..).zip(&permits) {
        text.line(&format!("{ip} prefix-list {name} seq {seq} {rule}"));
    }
    for (_, ip, _) in FAMILIES {
        maps.entry(text, "in", ip, &name);
    }
}

/// The permitted ranges of a family, by text of the prefix, then le, then ge.
fn matching(neighbor: &NeighborConfig, family: Family) -> Vec<String> {
    let mut ranges: Vec<(String, Option<u8>, Option<u8>)> = neighbor
        .receive
        .prefixes
        .iter()
        .filter(|range| range.prefix.family() == family)
        .map(|range| (range.prefix.to_string(), range.le, range.ge))
        .collect();
    ranges.sort();
    ranges
        .into_iter()
        .map(|(prefix, le, ge)| {
            let bound = |word: &str, value: Option<u8>| {
                value.map_or_else(String::new, |value| format!(" {word} {value}"))
            };
            format!("permit {prefix}{}{}", bound("le", le), bound("ge", ge))
        })
        .collect()
}
