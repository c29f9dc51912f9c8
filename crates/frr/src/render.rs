//! The text of frr.conf.
//! In: a merged `NodeConfig`. Out: the whole file; it holds passwords in clear text.
//! Invariant: equal configurations give equal bytes; route-maps and prefix-lists bear frr-k8s's names, since raw text of users refers to them.
//! Not here: what FRR thinks of it (`lint`), where it is written to.
//!
//! Order of the file: head, filters of every neighbor, routers, BFD profiles, raw text.

mod filters;

use model::address::{Family, Prefix};
use model::frr::{BfdProfile, RemoteAs};

use crate::config::{Families, NeighborConfig, NodeConfig, RouterConfig};

/// What stands in place of a password where none may be shown; frr-k8s and frr-agent write the same.
pub const RETRACTED: &str = "<retracted>";

/// Lines of the file as they grow.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }
}

/// Renders frr.conf for a node; the text ends with a newline.
#[must_use]
pub fn render(config: &NodeConfig) -> String {
    let mut text = Text::default();
    text.line("log stdout informational");
    text.line("log timestamp precision 3");
    text.line(&format!("hostname {}", config.hostname));
    text.line("ip nht resolve-via-default");
    text.line("ipv6 nht resolve-via-default");
    for router in &config.routers {
        for neighbor in &router.neighbors {
            filters::render(&mut text, neighbor, &neighbor.id(&router.vrf));
        }
    }
    for router in &config.routers {
        render_router(&mut text, router);
    }
    if !config.bfd_profiles.is_empty() {
        text.line("bfd");
        for profile in &config.bfd_profiles {
            render_profile(&mut text, profile);
        }
    }
    for raw in &config.raw {
        text.line(raw.config.trim_end_matches('\n'));
    }
    text.0
}

/// The text with `<retracted>` in place of every password, of raw text too.
#[must_use]
pub fn without_passwords(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match line.split_once(" password ") {
            Some((before, _)) => {
                out.push_str(before);
                out.push_str(" password ");
                out.push_str(RETRACTED);
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

fn render_router(text: &mut Text, router: &RouterConfig) {
    if router.vrf.is_empty() {
        text.line(&format!("router bgp {}", router.asn));
    } else {
        text.line(&format!("router bgp {} vrf {}", router.asn, router.vrf));
    }
    text.line("  no bgp ebgp-requires-policy");
    text.line("  no bgp network import-check");
    text.line("  no bgp default ipv4-unicast");
    text.line("  bgp graceful-restart preserve-fw-state");
    if let Some(id) = &router.id {
        text.line(&format!("  bgp router-id {id}"));
    }
    if !router.imports.is_empty() {
        // A VRF's routes of both families come or none: there is no field that tells them apart.
        for family in ["ipv4", "ipv6"] {
            let imports = router.imports.iter().map(|vrf| format!("import vrf {vrf}"));
            render_family(text, family, imports);
        }
    }
    for neighbor in &router.neighbors {
        render_session(text, router, neighbor);
    }
    for neighbor in &router.neighbors {
        render_activation(text, router, neighbor);
    }
    for (family, word) in [(Family::V4, "ipv4"), (Family::V6, "ipv6")] {
        let networks = sorted(router.prefixes.iter(), family);
        if !networks.is_empty() {
            render_family(text, word, networks.iter().map(|p| format!("network {p}")));
        }
    }
}

fn render_family(text: &mut Text, family: &str, lines: impl Iterator<Item = String>) {
    text.line(&format!("  address-family {family} unicast"));
    for line in lines {
        text.line(&format!("    {line}"));
    }
    text.line("  exit-address-family");
}

fn render_session(text: &mut Text, router: &RouterConfig, neighbor: &NeighborConfig) {
    let session = &neighbor.session;
    let peer = neighbor.peer.as_str();
    let mut say = |rest: &str| text.line(&format!("  neighbor {peer} {rest}"));
    // Only a peer over an interface has no address.
    let over = if neighbor.peer.ip().is_none() {
        "interface "
    } else {
        ""
    };
    say(&format!("{over}remote-as {}", session.remote_as));
    if let Some(asn) = session.local_as {
        say(&format!("local-as {asn} no-prepend replace-as"));
    }
    if session.ebgp_multi_hop {
        say("ebgp-multihop");
    }
    if let Some(port) = session.port {
        say(&format!("port {port}"));
    }
    // FRR has one line for both; with one of them at its default frr-k8s writes none.
    if let (Some(keepalive), Some(hold)) = (session.keepalive_time, session.hold_time) {
        say(&format!("timers {keepalive} {hold}"));
    }
    if let Some(connect) = session.connect_time {
        say(&format!("timers connect {connect}"));
    }
    if let Some(password) = &session.password {
        say(&format!("password {password}"));
    }
    if let Some(source) = &session.source {
        say(&format!("update-source {source}"));
    }
    if session.graceful_restart {
        say("graceful-restart");
    }
    if let Some(profile) = &session.bfd_profile {
        say("bfd");
        say(&format!("bfd profile {profile}"));
    }
    if skips_connected_check(router, neighbor) {
        say("disable-connected-check");
    }
}

/// eBGP over a plain IPv6 session to a peer one hop away.
fn skips_connected_check(router: &RouterConfig, neighbor: &NeighborConfig) -> bool {
    let external = match neighbor.session.remote_as {
        RemoteAs::Number(asn) => asn != router.asn,
        RemoteAs::Internal => false,
        RemoteAs::External => true,
    };
    external && neighbor.families() == Families::V6 && !neighbor.session.ebgp_multi_hop
}

fn render_activation(text: &mut Text, router: &RouterConfig, neighbor: &NeighborConfig) {
    let peer = neighbor.peer.as_str();
    let id = neighbor.id(&router.vrf);
    let families = neighbor.families();
    for (family, word) in [(Family::V4, "ipv4"), (Family::V6, "ipv6")] {
        if families.has(family) {
            let lines = [
                format!("neighbor {peer} activate"),
                format!("neighbor {peer} route-map {id}-in in"),
                format!("neighbor {peer} route-map {id}-out out"),
            ];
            render_family(text, word, lines.into_iter());
        }
    }
}

fn render_profile(text: &mut Text, profile: &BfdProfile) {
    text.line(&format!("  profile {}", profile.name));
    let mut number = |word: &str, value: Option<u32>| {
        if let Some(value) = value {
            text.line(&format!("    {word} {value}"));
        }
    };
    number("receive-interval", profile.receive_interval);
    number("transmit-interval", profile.transmit_interval);
    number("detect-multiplier", profile.detect_multiplier);
    number("echo transmit-interval", profile.echo_interval);
    number("echo receive-interval", profile.echo_interval);
    number("minimum-ttl", profile.minimum_ttl);
    if profile.echo_mode {
        text.line("    echo-mode");
    }
    if profile.passive_mode {
        text.line("    passive-mode");
    }
}

/// The prefixes of one family as text, in the order of the text, as frr-k8s numbers them.
fn sorted<'a>(prefixes: impl Iterator<Item = &'a Prefix>, family: Family) -> Vec<String> {
    let mut texts: Vec<String> = prefixes
        .filter(|prefix| prefix.family() == family)
        .map(Prefix::to_string)
        .collect();
    texts.sort();
    texts
}

#[cfg(test)]
mod tests;
