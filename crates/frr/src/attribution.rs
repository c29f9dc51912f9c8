//! Which objects a line of frr.conf comes from.
//! In: a merged configuration and a line that FRR refused. Out: the objects that brought it, as far as the line tells.
//! Invariant: a line of raw text is attributed on the objects whose raw text holds it, a neighbor's on those that name the neighbor.
//! Not here: finding out that FRR refused it (`frr-edge`).

use std::collections::BTreeSet;

use model::names::ObjectKey;

use crate::config::NodeConfig;

/// The objects that brought a line; empty where it is one of the lines that every node has.
#[must_use]
pub fn attribute(config: &NodeConfig, line: &str) -> BTreeSet<ObjectKey> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut out: BTreeSet<ObjectKey> = config
        .raw
        .iter()
        .filter(|raw| {
            let mut lines = raw.config.lines().map(str::split_whitespace);
            lines.any(|own| own.eq(words.iter().copied()))
        })
        .map(|raw| raw.source.clone())
        .collect();
    if !out.is_empty() {
        return out;
    }
    for router in &config.routers {
        for neighbor in &router.neighbors {
            let peer = neighbor.peer.as_str();
            let id = neighbor.id(&router.vrf);
            // Route-maps and prefix-lists of a neighbor begin with its id and a dash.
            let of_peer = |word: &&str| {
                *word == peer || word.strip_prefix(&id).is_some_and(|r| r.starts_with('-'))
            };
            if words.iter().any(of_peer) {
                out.extend(neighbor.sources.iter().cloned());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::{PEER, merged, mk_neighbor, mk_object, mk_peering, mk_raw, mk_router};

    #[test]
    fn a_line_is_attributed_to_the_raw_text_that_holds_it_or_on_those_who_name_the_neighbor() {
        let objects = [
            mk_peering("a", &[], mk_neighbor(PEER)),
            mk_object(
                "b",
                vec![mk_router(
                    "",
                    &[],
                    vec![mk_neighbor(PEER), mk_neighbor("10.0.0.9")],
                )],
            ),
            mk_raw("c", 1, "router bgp 1\n  neighbor 172.31.9.2   foo\n"),
        ];
        let config = merged(&objects).unwrap();
        let names = |line: &str| -> Vec<String> {
            let keys = attribute(&config, line);
            keys.into_iter().map(|k| k.name).collect()
        };
        assert_eq!(names("neighbor 172.31.9.2 foo"), ["c"]);
        assert_eq!(names("neighbor 172.31.9.2 remote-as 1"), ["a", "b"]);
        assert_eq!(names("neighbor 10.0.0.9 activate"), ["b"]);
        assert_eq!(names("route-map 10.0.0.9-in permit 3"), ["b"]);
        assert!(names("ip nht resolve-via-default").is_empty());
    }
}
