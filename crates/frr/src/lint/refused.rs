//! What makes FRR refuse the whole file, or a line without which there is no session, though neither the schema nor frr-k8s
//! notices.
//! In: a merged configuration. Out: problems with object and field.
//! Invariant: with one of these the node keeps its last good configuration, and frr-k8s tries again every 30 s for ever.
//! Not here: the syntax of raw text; only FRR knows it.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use model::address::Family;
use model::frr::LONGEST_PASSWORD;
use model::problem::Problem;

use super::problem;
use crate::config::{NeighborConfig, NodeConfig, RouterConfig, subject, vrf_name};

/// Everything for which FRR will refuse the whole file, or a line without which there is no session, sorted.
#[must_use]
pub fn refused(config: &NodeConfig) -> Vec<Problem> {
    let mut problems = Vec::new();
    lint(config, &mut problems);
    problems.sort();
    problems.dedup();
    problems
}

pub(super) fn lint(config: &NodeConfig, problems: &mut Vec<Problem>) {
    for router in &config.routers {
        lint_router(router, problems);
        for neighbor in &router.neighbors {
            lint_ranges(router, neighbor, problems);
            lint_password(router, neighbor, problems);
            lint_words(router, neighbor, problems);
        }
    }
    lint_profiles(config, problems);
}

/// Profiles that no neighbor names: they stand in the file all the same.
fn lint_profiles(config: &NodeConfig, problems: &mut Vec<Problem>) {
    let neighbors = config.routers.iter().flat_map(|r| r.neighbors.iter());
    let named: BTreeSet<&str> = neighbors
        .filter_map(|n| n.session.bfd_profile.as_deref())
        .collect();
    for profile in &config.bfd_profiles {
        let name = profile.name.as_str();
        if named.contains(name) || !has_space(name) {
            continue;
        }
        let sources = config.bfd_sources.get(name);
        let first = sources.and_then(BTreeSet::first);
        let all: Vec<String> = sources
            .into_iter()
            .flatten()
            .map(ToString::to_string)
            .collect();
        problems.push(Problem::new(
            first.map(subject).unwrap_or_default(),
            "WhiteSpace",
            format!(
                "bfdProfiles[{name}] of {}: the name contains white space; FRR refuses the whole file",
                all.join(", ")
            ),
        ));
    }
}

fn lint_router(router: &RouterConfig, problems: &mut Vec<Problem>) {
    let mut say = |reason, text: String| {
        let sources: Vec<String> = router.sources.iter().map(ToString::to_string).collect();
        problems.push(Problem::new(
            router.sources.first().map(subject).unwrap_or_default(),
            reason,
            format!(
                "routers[vrf {}] of {}: {text}; FRR refuses the whole file",
                vrf_name(&router.vrf),
                sources.join(", ")
            ),
        ));
    };
    if let Some(id) = &router.id
        && id.parse::<Ipv4Addr>().is_err()
    {
        say("RouterId", format!("id {id:?} is not an IPv4 address"));
    }
    if has_space(&router.vrf) {
        say(
            "WhiteSpace",
            format!("vrf {:?} contains white space", router.vrf),
        );
    }
    for import in router.imports.iter().filter(|import| has_space(import)) {
        let text = format!("imports names VRF {import:?}, which contains white space");
        say("WhiteSpace", text);
    }
    if router.imports.contains("") {
        let text = "imports has an entry without a VRF (the default one is called default)";
        say("ImportEmpty", text.to_owned());
    }
}

fn lint_ranges(router: &RouterConfig, neighbor: &NeighborConfig, problems: &mut Vec<Problem>) {
    for range in &neighbor.receive.prefixes {
        let longest = range.prefix.family().host_len();
        for (field, value) in [("ge", range.ge), ("le", range.le)] {
            let Some(value) = value.filter(|value| *value > longest) else {
                continue;
            };
            let family = match range.prefix.family() {
                Family::V4 => "IPv4",
                Family::V6 => "IPv6",
            };
            let text = format!(
                "toReceive prefix {} has {field} {value}; {family} allows at most {longest}, and FRR refuses the whole file",
                range.prefix
            );
            problems.push(problem(router, neighbor, "PrefixLength", &text));
        }
    }
}

fn lint_password(router: &RouterConfig, neighbor: &NeighborConfig, problems: &mut Vec<Problem>) {
    let password = neighbor.session.password.as_deref().unwrap_or_default();
    if password.contains(char::is_whitespace) {
        let text = "the password contains white space; FRR refuses the whole file";
        problems.push(problem(router, neighbor, "PasswordWhitespace", text));
    }
    if password.len() > LONGEST_PASSWORD {
        let text = format!(
            "the password has {} bytes; FRR takes at most {LONGEST_PASSWORD}, and the session is lost",
            password.len()
        );
        problems.push(problem(router, neighbor, "PasswordLength", &text));
    }
}

/// Fields that are one word of a line.
fn lint_words(router: &RouterConfig, neighbor: &NeighborConfig, problems: &mut Vec<Problem>) {
    let session = &neighbor.session;
    let words = [
        ("sourceaddress", session.source.as_deref()),
        ("bfdProfile", session.bfd_profile.as_deref()),
        ("interface", Some(neighbor.peer.as_str())),
    ];
    for (field, word) in words {
        if let Some(word) = word.filter(|word| has_space(word)) {
            let text = format!("{field} {word:?} contains white space; FRR refuses the whole file");
            problems.push(problem(router, neighbor, "WhiteSpace", &text));
        }
    }
}

fn has_space(text: &str) -> bool {
    text.contains(char::is_whitespace)
}
