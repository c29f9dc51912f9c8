//! Our sets and chains of an nftables table through `nft`: read, compare, write.
//! In: a [`Ruleset`]. Out: the table holding it, beside whatever others put there.
//! Invariant: what comes is one transaction, in which sets are filled before rules that use them, and what goes another one after
//! it: a packet that is on its way through the former rules looks into the sets as they are now; every call has a deadline.
//! Not here: which rules (planners).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use model::Prefix;
use model::address::Family;
use model::nft::{self, AddressSet, CHAINS, Chain, Ruleset, Table};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// How long one call may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// What nft says of a table that is not there.
const NO_TABLE: &str = "No such file or directory";

/// Why the table could not be read or written. All of them are tried again.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// nft cannot be run.
    #[error("cannot run nft")]
    Run(#[source] std::io::Error),
    /// It did not end in time.
    #[error("nft did not end within {DEADLINE:?}")]
    Deadline,
    /// It ended with an error.
    #[error("nft failed: {0}")]
    Failed(String),
}

/// What stands of ours in the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    table: Table,
    /// The table is there.
    stands: bool,
    /// Stretches of addresses of each set; `None` where an element cannot be read.
    sets: BTreeMap<String, Option<Vec<(u128, u128)>>>,
    /// The sets whose elements are those stretches: in others (OVN-Kubernetes makes such) neighbors stand by themselves.
    merging: BTreeSet<String>,
    /// Head of the base chain as nft shows it (empty for another), and rules.
    chains: BTreeMap<String, (String, Vec<String>)>,
}

impl Held {
    /// Whether it has a set of this name.
    #[must_use]
    pub fn has_set(&self, name: &str) -> bool {
        self.sets.contains_key(name)
    }

    /// Whether it holds as many rules in each wanted chain, and the addresses of each wanted set, in whatever spelling.
    #[must_use]
    pub fn has_the_form_of(&self, wanted: &Ruleset) -> bool {
        let chains = wanted.chains.iter().all(|(name, chain)| {
            let held = self.chains.get(name);
            held.is_some_and(|(_, rules)| rules.len() == chain.rules.len())
        });
        let sets = wanted.sets.iter().all(|(name, set)| {
            let held = self.sets.get(name).and_then(Option::as_ref);
            held == Some(&set.ranges())
        });
        chains && sets
    }
}

/// Reads a table; one that is not there is empty.
///
/// # Errors
/// When nft cannot be run or fails.
pub async fn read(table: Table) -> Result<Held, NftError> {
    let (family, name) = table.name().split_once(' ').unwrap_or_default();
    let arguments = ["--numeric-priority", "list", "table", family, name];
    match run(&arguments, None).await {
        Ok(said) => Ok(parse(table, &said)),
        Err(NftError::Failed(said)) if said.contains(NO_TABLE) => Ok(Held {
            table,
            ..Held::default()
        }),
        Err(error) => Err(error),
    }
}

/// Chains of others that drop what is forwarded by their policy, as `family table chain`, each with those of `subnets` that it has no
/// rules for which accept what goes there and what comes from there.
///
/// # Errors
/// When nft cannot be run or fails.
pub async fn dropping_forwarded(
    subnets: &[Prefix],
) -> Result<Vec<(String, Vec<Prefix>)>, NftError> {
    let said = run(&["--numeric-priority", "list", "chains"], None).await?;
    let mut found = Vec::new();
    for chain in forward_drops(&said) {
        let mut arguments = vec!["list", "chain"];
        arguments.extend(chain.split(' '));
        let rules = match run(&arguments, None).await {
            Ok(rules) => rules,
            // One that went since is nobody's trouble.
            Err(NftError::Failed(said)) if said.contains(NO_TABLE) => continue,
            Err(error) => return Err(error),
        };
        let lacking = subnets.iter().filter(|subnet| {
            let of_family = match (chain.split(' ').next(), subnet.family()) {
                (Some("ip"), family) => family == Family::V4,
                (Some("ip6"), family) => family == Family::V6,
                _ => true,
            };
            of_family && !accepts(&rules, subnet)
        });
        let lacking: Vec<Prefix> = lacking.copied().collect();
        if !lacking.is_empty() {
            found.push((chain, lacking));
        }
    }
    Ok(found)
}

/// Base chains at hook forward whose policy is drop, out of `nft list chains`.
fn forward_drops(listing: &str) -> Vec<String> {
    let (mut table, mut chain, mut found) = ("", "", Vec::new());
    for line in listing.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("table ") {
            table = name.trim_end_matches(" {");
        } else if let Some(name) = line.strip_prefix("chain ") {
            chain = name.trim_end_matches(" {");
        } else if line.contains("hook forward ") && line.contains("policy drop") {
            found.push(format!("{table} {chain}"));
        }
    }
    found
}

/// Whether rules accept all that goes to a subnet and all that comes from it, each named as it is and nothing beside it.
fn accepts(rules: &str, subnet: &Prefix) -> bool {
    let family = match subnet.family() {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    };
    ["saddr", "daddr"].iter().all(|side| {
        let wanted = format!("{family} {side} {subnet} accept");
        rules.lines().any(|line| without_counters(line) == wanted)
    })
}

/// A rule without what it counts.
fn without_counters(line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if word == "counter" {
            // `packets N bytes M`
            words.by_ref().take(4).for_each(drop);
        } else {
            kept.push(word);
        }
    }
    kept.join(" ")
}

/// Brings the table from what it holds to what is wanted, what comes before what goes; returns whether there was anything to do.
/// Where the wish is not `complete`, sets only grow and no chain goes.
///
/// # Errors
/// When nft cannot be run or refuses; then no more than what comes was changed.
pub async fn apply(held: &Held, wanted: &Ruleset, complete: bool) -> Result<bool, NftError> {
    let mut changed = false;
    let comes = script(held, wanted, Part::Comes { complete });
    if let Some(script) = comes {
        run(&["-f", "-"], Some(script)).await?;
        changed = true;
    }
    if !complete {
        return Ok(changed);
    }
    let read = if changed {
        Some(read(wanted.table).await?)
    } else {
        None
    };
    let held = read.as_ref().unwrap_or(held);
    if let Some(script) = script(held, wanted, Part::Goes) {
        run(&["-f", "-"], Some(script)).await?;
        changed = true;
    }
    Ok(changed)
}

async fn run(arguments: &[&str], input: Option<String>) -> Result<String, NftError> {
    let mut child = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(NftError::Run)?;
    let stdin = child.stdin.take();
    let whole = async {
        if let Some(mut stdin) = stdin {
            // A broken pipe means that it ended early; its own words tell why.
            let text = input.unwrap_or_default();
            drop(stdin.write_all(text.as_bytes()).await);
        }
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(DEADLINE, whole)
        .await
        .map_err(|_| NftError::Deadline)?
        .map_err(NftError::Run)?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(NftError::Failed(said.trim().replace('\n', "; ")))
    }
}

/// Part of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Elements that are missing, and chains; those that hold more than is wanted only where everything is known.
    Comes { complete: bool },
    /// Elements, chains and sets that are not wanted.
    Goes,
}

/// The words of nft that make a part of the change; `None` where nothing differs.
fn script(held: &Held, wanted: &Ruleset, part: Part) -> Option<String> {
    let table = wanted.table.name();
    if part == Part::Goes && wanted.table == Table::Own && wanted.is_empty() {
        return held.stands.then(|| format!("delete table {table}\n"));
    }
    let mut lines = vec![format!("add table {table}")];
    for (name, set) in &wanted.sets {
        set_elements(held, (name, set), part, &mut lines);
    }
    match part {
        Part::Comes { complete } => chains(held, wanted, complete, &mut lines),
        Part::Goes => surplus(held, wanted, &mut lines),
    }
    (lines.len() > 1).then(|| lines.join("\n") + "\n")
}

/// Elements of a set: those that are missing are added to it, and where it holds more it is written anew.
fn set_elements(
    held: &Held,
    (name, set): (&str, &AddressSet),
    part: Part,
    lines: &mut Vec<String>,
) {
    let table = held.table.name();
    let stands = held.sets.get(name);
    let stretches = stands.and_then(Option::as_ref);
    let of_both = stretches.into_iter().flatten().copied();
    let grown = nft::merged(of_both.chain(set.ranges()).collect());
    let is_there = match part {
        Part::Comes { .. } => stretches == Some(&grown),
        Part::Goes => stretches == Some(&set.ranges()),
    };
    if is_there {
        return;
    }
    let kind = match set.family {
        Family::V4 => "ipv4_addr",
        Family::V6 => "ipv6_addr",
    };
    lines.push(format!(
        "add set {table} {name} {{ type {kind}; flags interval; auto-merge; }}"
    ));
    let wanted = set.ranges();
    let surplus: Option<Vec<(u128, u128)>> = stretches.map(|all| {
        let surplus = all.iter().filter(|stretch| !wanted.contains(stretch));
        surplus.copied().collect()
    });
    let stays = |stretch: &(u128, u128)| stretches.is_some_and(|all| all.contains(stretch));
    match (part, surplus) {
        // What stays is not touched, so that it is never missed.
        (Part::Goes, Some(surplus)) if held.merging.contains(name) && wanted.iter().all(stays) => {
            let gone = surplus.iter().map(|stretch| shown(*stretch, set.family));
            let gone: Vec<String> = gone.collect();
            lines.push(format!(
                "delete element {table} {name} {{ {} }}",
                gone.join(", ")
            ));
            return;
        }
        (Part::Goes, _) => lines.push(format!("flush set {table} {name}")),
        (Part::Comes { .. }, _) => {}
    }
    let covered = |element: &&Prefix| {
        let (first, last) = nft::range(element);
        let mut all = stretches.into_iter().flatten();
        all.any(|(from, to)| *from <= first && last <= *to)
    };
    let missing = set.elements.iter();
    let missing = missing.filter(|element| part == Part::Goes || !covered(element));
    let missing: Vec<String> = missing.map(ToString::to_string).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        lines.push(format!("add element {table} {name} {{ {missing} }}"));
    }
}

/// A stretch in the words of nft.
fn shown((first, last): (u128, u128), family: Family) -> String {
    let ip = |number: u128| match family {
        // Stretches of IPv4 end within 32 bits.
        Family::V4 => IpAddr::from(u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes()),
        Family::V6 => IpAddr::from(number.to_be_bytes()),
    };
    if first == last {
        ip(first).to_string()
    } else {
        format!("{}-{}", ip(first), ip(last))
    }
}

/// Chains that differ: all are declared before any rule, since rules name chains. Where not everything is known, a chain
/// that holds all that is wanted, in its order, may hold more.
fn chains(held: &Held, wanted: &Ruleset, complete: bool, lines: &mut Vec<String>) {
    let table = wanted.table.name();
    let differs = |(name, chain): &(&String, &Chain)| {
        let Some((top, rules)) = held.chains.get(*name) else {
            return true;
        };
        let holds = if complete {
            *rules == chain.rules
        } else {
            holds_in_order(rules, &chain.rules)
        };
        *top != head(chain) || !holds
    };
    let differing: Vec<(&String, &Chain)> = wanted.chains.iter().filter(differs).collect();
    for (name, chain) in &differing {
        let stands = held.chains.get(*name);
        if stands.is_some_and(|(top, _)| *top != head(chain)) {
            lines.push(format!("flush chain {table} {name}"));
            lines.push(format!("delete chain {table} {name}"));
        }
        let head = head(chain);
        if head.is_empty() {
            lines.push(format!("add chain {table} {name}"));
        } else {
            lines.push(format!("add chain {table} {name} {{ {head} }}"));
        }
        lines.push(format!("flush chain {table} {name}"));
    }
    for (name, chain) in &differing {
        let stay = held.chains.get(*name).filter(|_| !complete);
        for rule in &chain.rules {
            lines.push(format!("add rule {table} {name} {rule}"));
        }
        // In a table of our own no rule hangs on another one: those of a network that is not known now stay.
        let surplus = stay.into_iter().flat_map(|(_, rules)| rules);
        let surplus =
            surplus.filter(|rule| wanted.table == Table::Own && !chain.rules.contains(rule));
        lines.extend(surplus.map(|rule| format!("add rule {table} {name} {rule}")));
    }
}

/// Whether all the wanted rules are there, one behind the other.
fn holds_in_order(held: &[String], wanted: &[String]) -> bool {
    let mut held = held.iter();
    wanted.iter().all(|rule| held.any(|other| other == rule))
}

/// What may be ours and is not wanted.
fn surplus(held: &Held, wanted: &Ruleset, lines: &mut Vec<String>) {
    let table = wanted.table.name();
    // Those that jump before those that are jumped to; in a table of our own none does.
    let rank = |name: &&String| CHAINS.iter().position(|chain| chain == name);
    let is_surplus = |name: &&String| !wanted.chains.contains_key(*name);
    let mut chains: Vec<&String> = held.chains.keys().filter(is_surplus).collect();
    chains.sort_by_key(rank);
    for name in &chains {
        lines.push(format!("flush chain {table} {name}"));
    }
    for name in chains {
        lines.push(format!("delete chain {table} {name}"));
    }
    let sets = held.sets.keys();
    for name in sets.filter(|name| !wanted.sets.contains_key(*name)) {
        lines.push(format!("delete set {table} {name}"));
    }
}

/// The first line of a base chain as nft shows it; nothing for another.
fn head(chain: &Chain) -> String {
    chain.hook.map_or_else(String::new, |hook| {
        let model::nft::Hook {
            kind,
            hook,
            priority,
        } = hook;
        format!("type {kind} hook {hook} priority {priority}; policy accept;")
    })
}

/// Our sets and chains out of `nft list ruleset`.
fn parse(table: Table, listing: &str) -> Held {
    let top = format!("table {} {{", table.name());
    let mut held = Held {
        table,
        stands: listing.lines().any(|line| line == top),
        ..Held::default()
    };
    let mut lines = listing.lines().skip_while(|line| *line != top).skip(1);
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["}"] => break,
            [kind, name, "{"] => {
                let body = lines.by_ref().take_while(|line| line.trim() != "}");
                let body: Vec<&str> = body.map(str::trim).collect();
                match *kind {
                    "set" if table.has_set(name) => {
                        if body.contains(&"auto-merge") {
                            held.merging.insert((*name).to_owned());
                        }
                        held.sets.insert((*name).to_owned(), elements(&body));
                    }
                    "chain" if table.has_chain(name) => {
                        held.chains.insert((*name).to_owned(), rules(&body));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    held
}

fn rules(body: &[&str]) -> (String, Vec<String>) {
    let (mut head, mut rules) = (String::new(), Vec::new());
    for line in body {
        if line.starts_with("type ") {
            (*line).clone_into(&mut head);
        } else if !line.starts_with("comment ") && !line.is_empty() {
            rules.push((*line).to_owned());
        }
    }
    (head, rules)
}

fn elements(body: &[&str]) -> Option<Vec<(u128, u128)>> {
    let text = body.join(" ");
    let Some((_, rest)) = text.split_once("elements = {") else {
        return Some(Vec::new());
    };
    let (list, _) = rest.split_once('}')?;
    let found: Option<Vec<(u128, u128)>> =
        list.split(',').map(|item| element(item.trim())).collect();
    Some(nft::merged(found?))
}

/// An address, a prefix, or first and last address.
fn element(text: &str) -> Option<(u128, u128)> {
    let range = |text: &str| {
        let prefix = text
            .parse::<Prefix>()
            .or_else(|_| text.parse::<IpAddr>().map(Prefix::host));
        Some(nft::range(&prefix.ok()?))
    };
    match text.split_once('-') {
        Some((first, last)) => Some((range(first)?.0, range(last)?.1)),
        None => range(text),
    }
}

#[cfg(test)]
mod tests;
