//! A text of frr.conf as contexts and lines, in the one form that FRR would show.
//! In: any text that FRR loads. Out: contexts with their lines.
//! Invariant: contexts follow from words, not from margins, as in FRR's shell; a second showing of a context adds to the first.
//! Not here: comparing.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::address::Prefix;

use super::Config;
use model::frr::RETRACTED;

/// Lines that say nothing about routing, or that FRR takes from elsewhere.
const IGNORED: [&[&str]; 14] = [
    &["frr"],
    &["hostname"],
    &["domainname"],
    &["log"],
    &["service"],
    &["no", "service"],
    &["no", "log"],
    &["Building", "configuration..."],
    &["Current", "configuration:"],
    &["ip", "forwarding"],
    &["no", "ip", "forwarding"],
    &["ipv6", "forwarding"],
    &["no", "ipv6", "forwarding"],
    &["line", "vty"],
];

/// What FRR does not show inside a BFD profile, because it is its default.
const PROFILE_DEFAULTS: [&str; 6] = [
    "detect-multiplier 3",
    "receive-interval 300",
    "transmit-interval 300",
    "echo transmit-interval 50",
    "echo receive-interval 50",
    "minimum-ttl 254",
];

/// Reads a text.
#[must_use]
pub fn parse(text: &str) -> Config {
    let mut config = Config::new();
    let mut context: Vec<String> = Vec::new();
    let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(first) = words.first() else {
            continue;
        };
        if first.starts_with(['!', '#']) || IGNORED.iter().any(|i| words.starts_with(i)) {
            continue;
        }
        match words.as_slice() {
            ["end"] => context.clear(),
            ["exit" | "exit-address-family" | "exit-vrf" | "exit-vni"] => {
                context.pop();
            }
            _ => {
                let depth = depth_of(&words, &context);
                context.truncate(depth);
                if opens(&words, &context) {
                    context.push(words.join(" "));
                    config.entry(context.clone()).or_default();
                } else if let Some(line) = normal(&words, &context, &mut numbers) {
                    config.entry(context.clone()).or_default().insert(line);
                }
            }
        }
    }
    // FRR shows neither an empty family nor the frame around profiles, and every VRF and link of the kernel.
    config.retain(|context, lines| {
        let last = context.last().map_or("", String::as_str);
        let frame = ["address-family ", "vrf ", "interface "];
        !(lines.is_empty() && (last == "bfd" || frame.iter().any(|word| last.starts_with(word))))
    });
    config
}

/// How many of the open contexts a line leaves open.
fn depth_of(words: &[&str], context: &[String]) -> usize {
    let inside = |word: &str| context.first().is_some_and(|c| c.starts_with(word));
    match *words {
        ["address-family", ..] if inside("router ") => 1,
        ["profile" | "peer", ..] if inside("bfd") => 1,
        _ if opens(words, &[]) => 0,
        [ip, "prefix-list" | "nht" | "route" | "access-list", ..] if ip == "ip" || ip == "ipv6" => {
            0
        }
        [
            "bgp",
            "community-list" | "large-community-list" | "extcommunity-list" | "as-path",
            ..,
        ] => 0,
        ["match" | "set" | "on-match" | "call" | "continue", ..] if inside("route-map ") => 1,
        ["description", ..] => context.len(),
        _ if inside("route-map ") => 0,
        // The lines of a router itself, seen after a family that nobody closed, belong to the family, as in FRR.
        _ => context.len(),
    }
}

fn opens(words: &[&str], context: &[String]) -> bool {
    match *words {
        ["router", _, ..] | ["bfd"] | ["vrf", _] | ["interface", _] => context.is_empty(),
        ["route-map", _, "permit" | "deny", _] => context.is_empty(),
        ["address-family", ..] => context.first().is_some_and(|c| c.starts_with("router ")),
        ["profile" | "peer", ..] => context.first().is_some_and(|c| c == "bfd"),
        _ => false,
    }
}

/// A line as FRR would show it; `None` where it would not.
fn normal(
    words: &[&str],
    context: &[String],
    numbers: &mut BTreeMap<String, u32>,
) -> Option<String> {
    match *words {
        [ip @ ("ip" | "ipv6"), "prefix-list", name, ref rest @ ..] => {
            Some(listed(ip, name, rest, numbers))
        }
        ["neighbor", peer, "password", ..] => {
            Some(format!("neighbor {} password {RETRACTED}", address(peer)))
        }
        ["neighbor", peer, "ebgp-multihop"] => {
            Some(format!("neighbor {} ebgp-multihop 255", address(peer)))
        }
        ["neighbor", _, "port", "179"] => None,
        ["neighbor", peer, ref rest @ ..] => {
            Some(format!("neighbor {} {}", address(peer), rest.join(" ")))
        }
        ["network", net, ref rest @ ..] => {
            let words: Vec<String> = std::iter::once(prefix(net))
                .chain(rest.iter().map(|w| (*w).to_owned()))
                .collect();
            Some(format!("network {}", words.join(" ")))
        }
        _ => {
            let line = words.join(" ");
            let profile = context.last().is_some_and(|c| c.starts_with("profile "));
            (!(profile && PROFILE_DEFAULTS.contains(&line.as_str()))).then_some(line)
        }
    }
}

/// A line of a prefix-list: with its number, `ge` before `le`, the prefix without host bits.
fn listed(ip: &str, name: &str, rest: &[&str], numbers: &mut BTreeMap<String, u32>) -> String {
    let key = format!("{ip} prefix-list {name}");
    let last = numbers.entry(key.clone()).or_default();
    let (number, rest) = match *rest {
        ["seq", number, ref rest @ ..] => (number.to_owned(), rest),
        // FRR counts on in fives.
        [state @ ("permit" | "deny"), ..] if !state.is_empty() => (
            (*last / 5).saturating_add(1).saturating_mul(5).to_string(),
            rest,
        ),
        _ => return format!("{key} {}", rest.join(" ")),
    };
    *last = (*last).max(number.parse().unwrap_or(0));
    let bound = |word: &str| {
        let mut pairs = rest.windows(2);
        pairs.find_map(|pair| match *pair {
            [found, value] if found == word => Some(value),
            _ => None,
        })
    };
    let state = rest.first().copied().unwrap_or_default();
    let net = prefix(rest.get(1).copied().unwrap_or_default());
    let (ge, le) = (bound("ge"), bound("le"));
    let net = match (net.as_str(), ge, le) {
        ("0.0.0.0/0", None, Some("32")) | ("::/0", None, Some("128")) => {
            return format!("{key} seq {number} {state} any");
        }
        _ => net,
    };
    let mut out = format!("{key} seq {number} {state} {net}");
    for (word, value) in [("ge", ge), ("le", le)] {
        if let Some(value) = value {
            out.push_str(&format!(" {word} {value}"));
        }
    }
    out
}

fn address(text: &str) -> String {
    text.parse::<IpAddr>()
        .map_or_else(|_| text.to_owned(), |ip| ip.to_string())
}

fn prefix(text: &str) -> String {
    text.parse::<Prefix>()
        .map_or_else(|_| text.to_owned(), |prefix| prefix.to_string())
}
