//! What it costs to change the fabric's topology while it is used: between a mesh and route reflectors, forth by another
//! configuration file and back by managers that start again, and another reflector in the place of one that is drained.
//!
//! In: a running lab of at least five nodes, with either topology. Out: after each step its time, and how many pings between all pods were lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use super::pinger::{Losses, Pinger};
use super::watch::{Gaps, Side, Watch};
use crate::apiserver::kubectl;
use crate::daemons::{MANAGERS, configure_managers, start_managers};
use crate::look::{bfd_downs, sessions};
use crate::objects::reflectors;
use crate::process;
use crate::reach::{Attached, attached};
use crate::run::{now, tell, until};
use crate::state::{Lab, Node};

/// BFD sessions that went down, by the node that counts and the one at the other end.
type Downs = BTreeMap<(String, String), u64>;

/// How long a step may take: another leader, a reload on each node, sessions.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// How long pings go on after a step.
const AFTER: Duration = Duration::from_secs(3);
/// A pair of pods that loses more pings than this, of a hundred a second, has lost its way, and not to a busy machine alone:
/// such a machine costs a pair a tenth of a second, a session that ends or a route that is missing costs more.
const TOLERATED: u64 = 10;
/// All pairs together, in one step: three that lost as much as one may. Where each loses a little, it is not one busy moment.
const TOLERATED_IN_ALL: u64 = 30;
/// Pairs, each in one direction, that lose any ping at all: both directions between a node and two others. A node that has
/// lost its way to all others shows in twice as many with five nodes, in six with four.
const TOLERATED_PAIRS: usize = 4;
/// Said of a step that failed where sessions of those pods' nodes are named that BFD ended in it.
const LOST_BY_BFD: &str = "pods lost their way by sessions that BFD ended";
/// So many reflectors are chosen.
pub(super) const REFLECTORS: usize = 3;

/// All steps under pings; `false` where one of them cost a pair of pods its way.
pub(super) fn demonstrate(lab: &Lab) -> Result<bool> {
    if lab.nodes.len() < REFLECTORS + 2 {
        bail!("a change of topology shows with at least five nodes");
    }
    let pods = attached(lab);
    // First by another file, then by managers that start with what they had.
    let steps = match lab.topology.as_str() {
        "full-mesh" => [
            reflected(lab, &pods, configure_managers)?,
            drained(lab, &pods)?,
            meshed(lab, &pods, restart)?,
        ],
        "route-reflector" => [
            meshed(lab, &pods, configure_managers)?,
            reflected(lab, &pods, restart)?,
            drained(lab, &pods)?,
        ],
        other => bail!("--topology {other}: full-mesh and route-reflector are changed by hand"),
    };
    Ok(steps.iter().all(|good| *good))
}

fn reflected(lab: &Lab, pods: &[Attached], configure: fn(&Lab) -> Result<()>) -> Result<bool> {
    step((lab, pods), "from a mesh to route reflectors", || {
        configure(&with(lab, "route-reflector"))?;
        stands(lab, Some(REFLECTORS), None)
    })
}

fn drained(lab: &Lab, pods: &[Attached]) -> Result<bool> {
    let drained = reflectors(lab)?.into_iter().next().context("a reflector")?;
    let name = format!("another reflector for {drained}, which is drained");
    let good = step((lab, pods), &name, || {
        kubectl(lab).args(["cordon", &drained]).run()?;
        stands(lab, Some(REFLECTORS), Some(&drained))
    })?;
    kubectl(lab).args(["uncordon", &drained]).run()?;
    Ok(good)
}

fn meshed(lab: &Lab, pods: &[Attached], configure: fn(&Lab) -> Result<()>) -> Result<bool> {
    step((lab, pods), "from route reflectors to a mesh", || {
        configure(&with(lab, "full-mesh"))?;
        stands(lab, None, None)
    })
}

/// One step, under pings between these pods; `false` where one of them lost its way, or OVN on a node of theirs a route to
/// another one's pods.
pub(super) fn step(
    (lab, pods): (&Lab, &[Attached]),
    name: &str,
    change: impl FnOnce() -> Result<()>,
) -> Result<bool> {
    let names: Vec<&str> = pods.iter().map(|(node, _)| node.name.as_str()).collect();
    let before = downs(lab, &names)?;
    let pinger = Pinger::start(lab, pods)?;
    std::thread::sleep(Duration::from_secs(2));
    let watch = Watch::between(lab, &names)?;
    let start = now();
    change().with_context(|| name.to_owned())?;
    let seconds = start.elapsed().as_secs_f64();
    tell(&format!("{name}: done after {seconds:.1} s"));
    std::thread::sleep(AFTER);
    let lost = pinger.stop()?;
    tell(&format!("    {}", lost.shown()));
    let gaps = watch.stop()?;
    let short: Vec<&Gaps> = gaps.iter().filter(|gaps| gaps.first().is_some()).collect();
    for gaps in &short {
        tell(&format!("    {}", gaps.shown()));
    }
    let ended = ended(&before, &downs(lab, &names)?);
    for (one, other) in &ended {
        tell(&format!("    BFD down between {one} and {other}"));
    }
    let rows_stayed = short.iter().all(|gaps| gaps.side != Side::Ovn);
    let good = is_tolerable(&lost) && rows_stayed;
    let short_of_rows = short.iter().filter(|gaps| gaps.side == Side::Ovn);
    let short_of_rows: Vec<&str> = short_of_rows.map(|gaps| gaps.node.as_str()).collect();
    if !good && is_by_bfd(&lost, &short_of_rows, &ended) {
        tell(&format!("    {LOST_BY_BFD}"));
    } else if !good {
        tell("    pods lost their way");
    }
    Ok(good)
}

/// Whether sessions that BFD has ended in a step are at one end of all pairs that lost more than a busy machine costs, and their
/// nodes are those that OVN was short of rows on.
fn is_by_bfd(lost: &Losses, short_of_rows: &[&str], ended: &[(String, String)]) -> bool {
    let nodes: BTreeSet<&str> = ended
        .iter()
        .flat_map(|(one, other)| [one.as_str(), other.as_str()])
        .collect();
    let mut heavy = lost.by_pair.iter().filter(|(_, lost)| *lost > TOLERATED);
    let mut short = short_of_rows.iter();
    !nodes.is_empty()
        && heavy.all(|(pair, _)| pair.split(' ').any(|word| nodes.contains(word)))
        && short.all(|node| nodes.contains(node))
}

/// How often each BFD session between these nodes has gone down, by the node that counts and the one at the other end.
fn downs(lab: &Lab, names: &[&str]) -> Result<Downs> {
    let nodes: Vec<&Node> = (lab.nodes.iter())
        .filter(|node| names.contains(&node.name.as_str()))
        .collect();
    let mut downs = Downs::new();
    for node in &nodes {
        let counted = bfd_downs(lab, &node.name)?;
        for other in &nodes {
            if let Some(count) = counted.get(&lab.address(other)) {
                downs.insert((node.name.clone(), other.name.clone()), *count);
            }
        }
    }
    Ok(downs)
}

/// Sessions that BFD has ended between these two times: both ends have had the session all the time, and count it down once more.
/// Where a daemon takes a session away or makes it anew, that end does not.
fn ended(before: &Downs, after: &Downs) -> Vec<(String, String)> {
    let is_down = |pair: &(String, String)| {
        let (before, after) = (before.get(pair), after.get(pair));
        matches!((before, after), (Some(before), Some(after)) if after > before)
    };
    let pairs = after.keys().filter(|(one, other)| {
        one < other
            && is_down(&(one.clone(), other.clone()))
            && is_down(&(other.clone(), one.clone()))
    });
    pairs.cloned().collect()
}

/// Whether so much may be lost without anybody's way having been lost.
pub(super) fn is_tolerable(losses: &Losses) -> bool {
    losses.lost <= TOLERATED_IN_ALL
        && losses.by_pair.len() <= TOLERATED_PAIRS
        && losses.by_pair.iter().all(|(_, lost)| *lost <= TOLERATED)
}

/// The lab with another topology in its configuration.
fn with(lab: &Lab, topology: &str) -> Lab {
    Lab {
        topology: topology.to_owned(),
        ..lab.clone()
    }
}

/// Both managers start again with the configuration of this lab.
fn restart(lab: &Lab) -> Result<()> {
    for identity in MANAGERS {
        process::stop(lab, "underlay", identity, Signal::SIGTERM)?;
    }
    start_managers(lab)
}

/// Waits until every node has the sessions of this topology and no other: with so many reflectors, none of which is this
/// one, or with every other node.
pub(super) fn stands(lab: &Lab, reflecting: Option<usize>, without: Option<&str>) -> Result<()> {
    let all = lab.nodes.len();
    let mut seen = String::new();
    let done = until(PATIENCE, Duration::from_millis(500), || {
        let chosen = reflectors(lab).ok()?;
        seen = format!("reflectors {chosen:?}");
        let is_right = chosen.len() == reflecting.unwrap_or(0)
            && without.is_none_or(|name| !chosen.iter().any(|other| other == name));
        let has_its_own = lab.nodes.iter().all(|node| {
            let wanted = match reflecting {
                Some(count) if !chosen.contains(&node.name) => count,
                _ => all.saturating_sub(1),
            };
            let sessions = sessions(lab, &node.name).unwrap_or_default();
            let up = sessions.values().filter(|s| s.state == "Established");
            let up = up.count();
            seen.push_str(&format!(", {} has {up} of {wanted}", node.name));
            up == wanted && sessions.len() == wanted
        });
        (is_right && has_its_own).then_some(())
    });
    done.with_context(|| format!("after {} s: {seen}", PATIENCE.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(lost: &[u64]) -> Losses {
        let by_pair = lost.iter().enumerate();
        Losses {
            lost: lost.iter().sum(),
            by_pair: by_pair.map(|(at, lost)| (at.to_string(), *lost)).collect(),
            ..Losses::default()
        }
    }

    #[test]
    fn bfd_ended_a_session_where_both_ends_kept_it_and_count_once_more() {
        let counts = |of: &[(&str, &str, u64)]| -> Downs {
            let of = of.iter();
            of.map(|(one, other, count)| (((*one).to_owned(), (*other).to_owned()), *count))
                .collect()
        };
        let before = counts(&[("n1", "n2", 0), ("n2", "n1", 1)]);
        let down = counts(&[("n1", "n2", 1), ("n2", "n1", 2)]);
        let pair = ("n1".to_owned(), "n2".to_owned());
        assert_eq!(ended(&before, &down), [pair]);
        for other in [
            before.clone(),
            // Made anew at one end, gone at one end.
            counts(&[("n1", "n2", 1), ("n2", "n1", 0)]),
            counts(&[("n1", "n2", 1)]),
            Downs::new(),
        ] {
            assert_eq!(ended(&before, &other), [], "{other:?}");
        }
        // Young sessions have no earlier count.
        assert_eq!(ended(&Downs::new(), &down), []);
    }

    #[test]
    fn what_is_lost_elsewhere_is_not_lost_by_sessions_that_bfd_ended() {
        let lost = |pairs: &[(&str, u64)]| {
            let pairs = pairs.iter();
            Losses {
                by_pair: pairs
                    .map(|(pair, lost)| ((*pair).to_owned(), *lost))
                    .collect(),
                ..Losses::default()
            }
        };
        let ended = [("n1".to_owned(), "n2".to_owned())];
        for (pairs, short, is) in [
            (
                &[("n1 -> n2", 40), ("n3 -> n2", 11), ("n4 -> n5", 10)][..],
                &["n1"][..],
                true,
            ),
            (&[("n1 -> n3 fd00:1::5", 40)], &[], true),
            (&[("n1 -> n2", 40), ("n3 -> n4", 11)], &[], false),
            (&[("n11 -> n3", 11)], &[], false),
            // OVN's rows alone were short.
            (&[], &["n1", "n2"], true),
            (&[], &["n1", "n3"], false),
        ] {
            assert_eq!(is_by_bfd(&lost(pairs), short, &ended), is, "{pairs:?}");
            assert!(!is_by_bfd(&lost(pairs), short, &[]), "{pairs:?}");
        }
    }

    #[test]
    fn few_pings_of_few_pairs_are_tolerated_and_neither_many_of_one_nor_one_of_many() {
        for good in [&[][..], &[10, 10, 10], &[9, 9, 9, 3]] {
            assert!(is_tolerable(&losses(good)), "{good:?}");
        }
        for bad in [&[11][..], &[10, 10, 10, 1], &[1, 1, 1, 1, 1]] {
            assert!(!is_tolerable(&losses(bad)), "{bad:?}");
        }
    }
}
