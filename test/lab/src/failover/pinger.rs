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
use crate::state::{Lab, PodAddress};

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
            answered.insert(sequence.context("icmp_seq")?.parse::<u64>()?);
            let time = after("[").and_then(|rest| rest.split(']').next());
            let time: f64 = time.context("time")?.parse()?;
            longest = last.map_or(0.0, |last| longest.max(time - last));
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
            let list: Vec<String> = self
                .by_pair
                .iter()
                .map(|(pair, lost)| format!("{pair} {lost}"))
                .collect();
            text.push_str(&format!("; lost: {}", list.join(", ")));
        }
        text
    }
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
        assert_eq!(count(&[(1, 10.0)], 40).lost, 39);
        assert_eq!(count(&[], 40).lost, 40);
    }
}
