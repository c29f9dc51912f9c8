//! Line 7: nobody is its own neighbor, FRR runs what its file says, and then silence.
//!
//! In: a lab at rest. Out: whether, over the quiet time, anybody at all wrote to the API
//! (but for the leases of leader and API server), to a database, to the outer bridge, to
//! the kernel or to FRR, whether FRR read a configuration, and whether a session came or
//! went; and whether any daemon has panicked.

mod watch;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Failure, Layer, Verdict, World, listed};
use crate::look::{Session, sessions};
use crate::netns;
use crate::node::frr::{RELOAD_TOOL, vtysh};
use crate::process::records;
use crate::run::{each, tell, tool, until};
use crate::state::{Lab, Node, text};
use watch::{Snapshot, Watch};

/// FRR's applier may be at work still.
const APPLY_LIMIT: Duration = Duration::from_secs(35);
/// How long what earlier lines set in motion gets to come to rest.
const SETTLE_LIMIT: Duration = Duration::from_secs(90);

/// What was seen, and the layer it belongs to.
type Complaint = (Layer, String);

/// Line 7.
pub(super) fn time(world: &mut World<'_>) -> Result<Verdict> {
    let lab = &*world.lab;
    let quiet = world.wanted.quiet;
    if let Some(failure) = own_neighbor(lab)? {
        return Ok(Err(failure));
    }
    if let Some(failure) = not_applied(lab) {
        return Ok(Err(failure));
    }
    settle(lab)?;
    let watch = Watch::start(lab)?;
    tell(&format!("line 7        a quiet time of {quiet} s begins"));
    std::thread::sleep(Duration::from_secs(quiet));
    let mut complaints = watch.stop(lab)?;
    complaints.extend(young_sessions(lab, quiet)?);
    complaints.extend(panics(lab));
    complaints.sort_by_key(|(layer, _)| *layer);
    let Some((layer, _)) = complaints.first() else {
        return Ok(Ok(format!("{quiet} quiet seconds")));
    };
    let expected = format!(
        "in {quiet} s no write to API (but leases), databases, kernel, bridge or FRR by anybody, no reload, no new session, no panic"
    );
    let texts: Vec<String> = complaints
        .iter()
        .map(|(layer, text)| format!("{layer}: {text}"))
        .collect();
    Ok(Err(Failure::new(*layer, expected, listed(&texts))))
}

fn own_neighbor(lab: &Lab) -> Result<Option<Failure>> {
    for node in &lab.nodes {
        let namespace = lab.namespace(&node.name);
        let shown = tool("ip")
            .args(["-n", &namespace, "-j", "address", "show"])
            .run()?;
        let links: Value = serde_json::from_str(&shown).context("addresses")?;
        let own: Vec<&str> = links
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|link| {
                link.get("addr_info")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
            })
            .filter_map(|address| address.get("local")?.as_str())
            .collect();
        let running = vtysh(lab, &node.name, &["show running-config"]).run()?;
        let neighbor = |line: &str| {
            Some(
                line.trim()
                    .strip_prefix("neighbor ")?
                    .split(' ')
                    .next()?
                    .to_owned(),
            )
        };
        if let Some(itself) = running
            .lines()
            .filter_map(neighbor)
            .find(|n| own.contains(&n.as_str()))
        {
            let seen = format!(
                "bgpd of {} has the neighbor {itself}, its own address",
                node.name
            );
            return Ok(Some(Failure::new(
                Layer::Frr,
                "no node has itself as a neighbor",
                seen,
            )));
        }
    }
    Ok(None)
}

/// Waits until FRR runs what frr.conf says on every node, as FRR's own tool compares the two.
fn not_applied(lab: &Lab) -> Option<Failure> {
    let mut bad = Vec::new();
    let good = until(APPLY_LIMIT, Duration::from_millis(500), || {
        bad = each(&lab.nodes, |node| differs(lab, node))
            .into_iter()
            .flatten()
            .collect();
        bad.is_empty().then_some(())
    });
    let expected = "every FRR runs what its frr.conf says";
    good.is_none()
        .then(|| Failure::new(Layer::Frr, expected, listed(&bad)))
}

/// The first line in which the two differ.
fn differs(lab: &Lab, node: &Node) -> Option<String> {
    let (name, frr) = (&node.name, text(&lab.frr_dir(&node.name)));
    let file = lab.frr_dir(name).join("frr.conf");
    if !file.exists() {
        return Some(format!("{name} has no frr.conf"));
    }
    let shown = tool("python3")
        .args([RELOAD_TOOL, "--test", "--stdout"])
        .args(["--vty_socket", &frr, "--confdir", &frr, "--rundir", &frr])
        .args([text(&file)])
        .inside(&lab.namespace(name))
        .run();
    let shown = match shown {
        Ok(shown) => shown,
        Err(error) => return Some(format!("{name}: {error:#}")),
    };
    let mut lines = shown.lines().map(str::trim).filter(|line| {
        let head = line.starts_with("Lines To") || line.starts_with("===");
        // vtysh takes the name from the machine it runs on.
        let host = line.trim_start_matches("no ").starts_with("hostname ");
        !(line.is_empty() || head || host || line.contains("  INFO: "))
    });
    lines
        .next()
        .map(|line| format!("frr.conf of {name} and its FRR differ in `{line}`"))
}

/// Waits until nobody has written anything for three seconds, and no FRR is being
/// reloaded: the tool needs seconds to take a neighbor away, and logs it afterwards.
fn settle(lab: &Lab) -> Result<()> {
    let pause = Duration::from_secs(3);
    let mut before = Snapshot::take(lab)?;
    let mut first = true;
    until(SETTLE_LIMIT, pause, || {
        let after = Snapshot::take(lab).ok()?;
        let quiet = !first && before.changes(&after).is_empty();
        first = false;
        before = after;
        (quiet && !reloading(lab)).then_some(())
    });
    Ok(())
}

/// Is FRR's reload tool at work on a node of the lab?
fn reloading(lab: &Lab) -> bool {
    let inside = lab
        .nodes
        .iter()
        .flat_map(|node| netns::processes(&lab.namespace(&node.name)));
    inside
        .filter_map(|process| std::fs::read(format!("/proc/{process}/cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).contains("frr-reload.py"))
}

fn young_sessions(lab: &Lab, quiet: u64) -> Result<Vec<Complaint>> {
    let mut found = Vec::new();
    // Where the default network has an overlay nobody is a neighbor.
    let has_neighbors = !lab.is_tunneled();
    for node in &lab.nodes {
        let others = lab.nodes.iter();
        let others = others.filter(|other| has_neighbors && *other != node);
        let others = others.flat_map(|other| lab.addresses(other));
        let others: Vec<String> = others.map(|address| address.to_string()).collect();
        found.extend(unsteady(
            &node.name,
            &others,
            &sessions(lab, &node.name)?,
            quiet,
        ));
    }
    Ok(found)
}

/// Of a node that has a session with each of the others: what is missing, down or younger than the quiet time.
fn unsteady(
    node: &str,
    others: &[String],
    sessions: &BTreeMap<String, Session>,
    quiet: u64,
) -> Vec<Complaint> {
    let missing = others.iter().filter(|other| !sessions.contains_key(*other));
    let missing = missing.map(|other| format!("{node} has no session with {other}"));
    let young = sessions
        .iter()
        .filter(|(_, s)| s.state != "Established" || s.uptime < quiet * 1000)
        .map(|(neighbor, s)| {
            let age = s.uptime / 1000;
            format!("{node} with {neighbor}: {} for {age} s", s.state)
        });
    missing
        .chain(young)
        .map(|text| (Layer::Frr, text))
        .collect()
}

fn panics(lab: &Lab) -> Vec<Complaint> {
    let logs = records(&lab.dir())
        .into_iter()
        .map(|record| record.start.log);
    logs.filter(|log| {
        let content = std::fs::read(log).unwrap_or_default();
        String::from_utf8_lossy(&content).contains("panicked at")
    })
    .map(|log| {
        let text = format!("{} tells of a panic", log.display());
        (Layer::Lab, text)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_missing_down_or_young_is_reported_and_no_other() {
        let session = |state: &str, seconds: u64| Session {
            state: state.to_owned(),
            uptime: seconds * 1000,
        };
        let others = ["10.0.0.2", "10.0.0.3"].map(str::to_owned);
        let reported = |all: &[(&str, Session)]| {
            let all = all.iter().map(|(n, s)| ((*n).to_owned(), s.clone()));
            let complaints = unsteady("n1", &others, &all.collect(), 60);
            let texts = complaints.into_iter().map(|(_, text)| text);
            texts.collect::<Vec<_>>()
        };
        let old = session("Established", 61);
        assert_eq!(
            reported(&[("10.0.0.2", old.clone()), ("10.0.0.3", old.clone())]),
            [""; 0]
        );
        assert_eq!(reported(&[]).len(), 2);
        assert_eq!(
            reported(&[("10.0.0.2", old)]),
            ["n1 has no session with 10.0.0.3"]
        );
        assert_eq!(
            reported(&[
                ("10.0.0.2", session("Established", 59)),
                ("10.0.0.3", session("Active", 61))
            ]),
            [
                "n1 with 10.0.0.2: Established for 59 s",
                "n1 with 10.0.0.3: Active for 61 s"
            ]
        );
    }
}
