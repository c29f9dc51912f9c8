//! A hundred pings a second between all pods, and what was lost of them.
//!
//! In: pods. Out: how many were sent and lost, and the longest time in which a pair got
//! no answer. One `ping` a pair; its lines are read when it has ended.

use std::io::Read;
use std::net::IpAddr;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::stream::Way;
use crate::reach::Attached;
use crate::run::tool;
use crate::state::{Lab, Node, PodAddress};

/// Seconds between two pings of a pair.
const PACE: f64 = 0.01;
/// Up to so many pods ping one another; more would measure the machine.
const ALL_PAIRS: usize = 6;
/// Pings that may be under way when a pair is asked to stop.
const UNDER_WAY: u64 = 2;

/// Pings under way.
pub(super) struct Pinger {
    pairs: Vec<(String, Child, JoinHandle<String>)>,
}

/// What came of all pings.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Losses {
    /// Pairs, each in one direction.
    pub(super) pairs: usize,
    /// Echo requests.
    pub(super) sent: u64,
    /// Those that were never answered.
    pub(super) lost: u64,
    /// The longest time between two answers, in seconds, and whose.
    pub(super) longest: (f64, String),
    /// Losses of each pair that has any.
    pub(super) by_pair: Vec<(String, u64)>,
    /// Between which two answers, in seconds since 1970, a pair lost most pings in a row, and how many.
    pub(super) worst: (u64, f64, f64),
}

impl Pinger {
    /// Starts one ping for each pair, or, where that are too many, for each pod and the next.
    pub(super) fn start(lab: &Lab, pods: &[Attached]) -> Result<Self> {
        let mut pinger = Self { pairs: Vec::new() };
        let several = lab.values.families().len() > 1;
        let next = |at: usize| (at + 1) % pods.len().max(1);
        for (at, (from, _)) in pods.iter().enumerate() {
            let all = pods.len() <= ALL_PAIRS;
            let others = pods.iter().enumerate();
            let others = others.filter(|(to, _)| *to != at && (all || *to == next(at)));
            let others =
                others.flat_map(|(_, (to, pod))| pod.addresses.iter().map(move |a| (to, a)));
            for (to, PodAddress { address, .. }) in others {
                let mut name = format!("{} -> {}", from.name, to.name);
                if several {
                    name.push_str(&format!(" at {address}"));
                }
                pinger.add(name, &lab.pod_namespace(&from.name), *address)?;
            }
        }
        Ok(pinger)
    }

    /// Starts one for each way.
    pub(super) fn of(ways: &[Way]) -> Result<Self> {
        let mut pinger = Self { pairs: Vec::new() };
        for way in ways {
            pinger.add(way.name.clone(), &way.namespaces.0, way.to)?;
        }
        Ok(pinger)
    }

    /// Starts one in each of these nodes' own namespaces, to the underlay address of the next of them: no route of BGP, no row
    /// of OVN and no pod is on its way, only the nodes' switches and the machine.
    pub(super) fn of_nodes(lab: &Lab, nodes: &[&Node]) -> Result<Self> {
        let mut pinger = Self { pairs: Vec::new() };
        let next = nodes.iter().cycle().skip(1);
        for (from, to) in nodes.iter().zip(next) {
            let name = format!("{} -> {}", from.name, to.name);
            pinger.add(name, &lab.namespace(&from.name), lab.address(to))?;
        }
        Ok(pinger)
    }

    fn add(&mut self, name: String, namespace: &str, to: IpAddr) -> Result<()> {
        let mut child = tool("ping")
            .words(&format!("-n -D -i {PACE} {to}"))
            .with(|c| {
                c.stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null());
            })
            .inside(namespace)
            .spawn()?;
        let mut stdout = child.stdout.take().context("ping's output")?;
        let lines = std::thread::spawn(move || {
            let mut text = Vec::new();
            drop(stdout.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        });
        self.pairs.push((name, child, lines));
        Ok(())
    }

    /// Ends all of them and counts.
    pub(super) fn stop(mut self) -> Result<Losses> {
        for (_, child, _) in &self.pairs {
            let pid = i32::try_from(child.id()).context("process number")?;
            // SIGINT is what makes ping print its sum.
            kill(Pid::from_raw(pid), Signal::SIGINT).context("ending a ping")?;
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut all = Losses::default();
        for (pair, mut child, lines) in std::mem::take(&mut self.pairs) {
            child.wait()?;
            let text = lines.join().unwrap_or_default();
            all.add(&pair, &text)
                .with_context(|| format!("what ping {pair} printed"))?;
        }
        Ok(all)
    }
}

impl Drop for Pinger {
    fn drop(&mut self) {
        for (_, child, _) in &mut self.pairs {
            // Only where something went wrong before the end.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl Losses {
    fn add(&mut self, pair: &str, text: &str) -> Result<()> {
        let mut answered = std::collections::BTreeSet::new();
        let (mut last, mut longest) = (None, 0.0_f64);
        for line in text.lines().filter(|line| line.contains(" bytes from ")) {
            let after = |mark: &str| line.split_once(mark).map(|(_, rest)| rest);
            let sequence = after("icmp_seq=").and_then(|rest| rest.split(' ').next());
            let sequence: u64 = sequence.context("icmp_seq")?.parse()?;
            let previous = answered.last().copied().unwrap_or(0);
            answered.insert(sequence);
            let time = after("[").and_then(|rest| rest.split(']').next());
            let time: f64 = time.context("time")?.parse()?;
            longest = last.map_or(0.0, |last| longest.max(time - last));
            let missing = sequence.saturating_sub(previous + 1);
            if missing > self.worst.0 {
                self.worst = (missing, last.unwrap_or(time), time);
            }
            last = Some(time);
        }
        let sum = text.lines().find(|line| line.contains("transmitted"));
        let sent = sum.and_then(|line| line.split(' ').next());
        let sent: u64 = sent.context("the sum")?.parse()?;
        let count = u64::try_from(answered.len())?;
        let end = answered.last().copied().unwrap_or(0);
        let mut lost = sent.saturating_sub(count);
        // The last ones may have been on their way when ping was asked to stop.
        let tail = sent.saturating_sub(end);
        if tail <= UNDER_WAY {
            lost = lost.saturating_sub(tail);
        }
        self.pairs += 1;
        self.sent += sent;
        self.lost += lost;
        if longest > self.longest.0 {
            self.longest = (longest, pair.to_owned());
        }
        if lost > 0 {
            self.by_pair.push((pair.to_owned(), lost));
        }
        Ok(())
    }

    /// How many pings a node itself could not send or receive, where these are of [`Pinger::of_nodes`]: those that both of its
    /// ways lost, to it and from it.
    fn of_node(&self, node: &str) -> u64 {
        let lost = |is_end: &dyn Fn(&str, &str) -> bool| {
            let ways = self.by_pair.iter();
            let mut of_it = ways.filter(|(pair, _)| {
                let ends = pair.split_once(" -> ");
                ends.is_some_and(|(from, to)| is_end(from, to))
            });
            of_it.next().map_or(0, |(_, lost)| *lost)
        };
        lost(&|from, _| from == node).min(lost(&|_, to| to == node))
    }

    /// What is left when each pair is forgiven what its two nodes themselves could not send or receive, up to so many pings.
    pub(super) fn beyond(&self, of_nodes: &Self, limit: u64) -> Self {
        let rest = self.by_pair.iter().filter_map(|(pair, lost)| {
            let (from, to) = pair.split_once(" -> ")?;
            let to = to.split(' ').next()?;
            let forgiven = of_nodes.of_node(from) + of_nodes.of_node(to);
            let rest = lost.saturating_sub(forgiven.min(limit));
            (rest > 0).then(|| (pair.clone(), rest))
        });
        let by_pair: Vec<(String, u64)> = rest.collect();
        Self {
            lost: by_pair.iter().map(|(_, lost)| lost).sum(),
            by_pair,
            ..self.clone()
        }
    }

    /// One line.
    pub(super) fn shown(&self) -> String {
        let mut text = format!(
            "{} of {} pings lost between all {} pairs of pods (one each 10 ms at most); longest time without an answer {:.0} ms ({})",
            self.lost,
            self.sent,
            self.pairs,
            self.longest.0 * 1000.0,
            self.longest.1
        );
        if !self.by_pair.is_empty() {
            text.push_str(&format!("; lost: {}", self.losses()));
        }
        text
    }

    /// Each pair that lost any, with how many.
    pub(super) fn losses(&self) -> String {
        let pairs = self.by_pair.iter();
        let list: Vec<String> = pairs.map(|(pair, lost)| format!("{pair} {lost}")).collect();
        let (most, from, to) = self.worst;
        format!(
            "{}; most in a row {most}, from {} to {} UTC",
            list.join(", "),
            of_day(from),
            of_day(to)
        )
    }
}

/// The time of a day, as logs have it.
fn of_day(seconds: f64) -> String {
    let millis = Duration::from_secs_f64(seconds.max(0.0)).as_millis() % 86_400_000;
    let (hours, rest) = (millis / 3_600_000, millis % 3_600_000);
    let (minutes, rest) = (rest / 60_000, rest % 60_000);
    format!(
        "{hours:02}:{minutes:02}:{:02}.{:03}",
        rest / 1000,
        rest % 1000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "PING 10.128.1.5 (10.128.1.5) 56(84) bytes of data.\n";

    fn answers(list: &[(u64, f64)]) -> String {
        list.iter()
            .map(|(sequence, time)| {
                format!(
                    "[{time:.6}] 64 bytes from 10.128.1.5: icmp_seq={sequence} ttl=61 time=0.3 ms\n"
                )
            })
            .collect()
    }

    fn count(list: &[(u64, f64)], sent: u64) -> Losses {
        let text = format!(
            "{HEAD}{}\n--- 10.128.1.5 ping statistics ---\n{sent} packets transmitted, x received\n",
            answers(list)
        );
        let mut losses = Losses::default();
        losses.add("a -> b", &text).unwrap_or_default();
        losses
    }

    #[test]
    fn what_is_on_its_way_at_the_end_is_not_lost_and_a_gap_is_counted_and_timed() {
        assert_eq!(count(&[(1, 10.0), (2, 10.01)], 3).lost, 0);
        let gap = count(&[(1, 10.0), (2, 10.01), (5, 10.5), (6, 10.51)], 6);
        assert_eq!(gap.lost, 2);
        assert!((gap.longest.0 - 0.49).abs() < 0.001);
        assert_eq!(gap.by_pair, [("a -> b".to_owned(), 2)]);
        let told = "a -> b 2; most in a row 2, from 00:00:10.010 to 00:00:10.500 UTC";
        assert_eq!(gap.losses(), told);
        assert_eq!(count(&[(1, 10.0)], 40).lost, 39);
        assert_eq!(count(&[], 40).lost, 40);
    }

    fn lost(by_pair: &[(&str, u64)]) -> Losses {
        let by_pair = by_pair
            .iter()
            .map(|(pair, lost)| ((*pair).to_owned(), *lost));
        let by_pair: Vec<(String, u64)> = by_pair.collect();
        Losses {
            lost: by_pair.iter().map(|(_, lost)| lost).sum(),
            by_pair,
            ..Losses::default()
        }
    }

    #[test]
    fn a_pair_is_forgiven_what_its_nodes_could_not_send_and_receive_and_no_more() {
        let pods = lost(&[
            ("n1 -> n3", 12),
            ("n3 -> n1 at 10.1.0.5", 11),
            ("n2 -> n3", 12),
        ]);
        // The first node stands still: its ways to the next and from the one before lose.
        let stalled = lost(&[("n1 -> n2", 11), ("n3 -> n1", 13)]);
        let rest = pods.beyond(&stalled, 50);
        let wanted = [("n1 -> n3".to_owned(), 1), ("n2 -> n3".to_owned(), 12)];
        assert_eq!(
            (rest.lost, rest.by_pair.as_slice()),
            (13, wanted.as_slice())
        );
        // One way alone says nothing of either of its nodes.
        for one in [&[("n1 -> n2", 11)][..], &[("n3 -> n1", 11)], &[]] {
            assert_eq!(pods.beyond(&lost(one), 50).by_pair, pods.by_pair);
        }
        let long = lost(&[("n1 -> n2", 900), ("n3 -> n1", 900)]);
        let cut_off = lost(&[("n1 -> n3", 900)]);
        assert_eq!(cut_off.beyond(&long, 50).lost, 850);
    }
}
