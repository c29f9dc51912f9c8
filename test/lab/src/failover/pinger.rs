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
use crate::run::{slower, tool};
use crate::state::{Lab, PodAddress};

/// Seconds between two pings of a pair.
const PACE: f64 = 0.01;
/// Up to so many pods ping one another; more would measure the machine.
const ALL_PAIRS: usize = 6;
/// How long an answer may take: on a busy machine the last ones of a pair are late together.
const LATE: Duration = Duration::from_secs(2);

/// Pings under way.
pub(super) struct Pinger {
    pairs: Vec<(String, Child, [JoinHandle<String>; 2])>,
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

    fn add(&mut self, name: String, namespace: &str, to: IpAddr) -> Result<()> {
        let pace = PACE * f64::from(slower());
        let mut child = tool("ping")
            .words(&format!("-n -D -i {pace} {to}"))
            .with(|c| {
                c.stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped());
            })
            .inside(namespace)
            .spawn()?;
        let answers = read(child.stdout.take().context("ping's output")?);
        let sums = read(child.stderr.take().context("ping's messages")?);
        self.pairs.push((name, child, [answers, sums]));
        Ok(())
    }

    /// Ends all of them and counts what was sent until now: answers that come later count, too.
    pub(super) fn stop(mut self) -> Result<Losses> {
        // SIGQUIT is what makes ping print how many it has sent.
        self.tell(Signal::SIGQUIT)?;
        std::thread::sleep(LATE);
        self.tell(Signal::SIGINT)?;
        let mut all = Losses::default();
        for (pair, mut child, [answers, sums]) in std::mem::take(&mut self.pairs) {
            child.wait()?;
            let answers = answers.join().unwrap_or_default();
            let sums = sums.join().unwrap_or_default();
            all.add(&pair, &answers, &sums)
                .with_context(|| format!("what ping {pair} printed"))?;
        }
        Ok(all)
    }

    fn tell(&self, signal: Signal) -> Result<()> {
        for (_, child, _) in &self.pairs {
            let pid = i32::try_from(child.id()).context("process number")?;
            kill(Pid::from_raw(pid), signal).context("ending a ping")?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// All that a process says, until it ends.
fn read(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        drop(from.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    })
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
    /// What a ping printed of each answer, and of how many it had sent when it was asked.
    fn add(&mut self, pair: &str, answers: &str, sums: &str) -> Result<()> {
        let sum = sums.lines().find(|line| line.contains(" packets, "));
        let sent = sum.and_then(|line| line.trim().split_once('/'));
        let sent = sent.and_then(|(_, rest)| rest.split(' ').next());
        let sent: u64 = sent.context("how many it has sent")?.parse()?;
        let mut answered = std::collections::BTreeSet::new();
        let (mut last, mut longest) = (None, 0.0_f64);
        for line in answers.lines().filter(|line| line.contains(" bytes from ")) {
            let after = |mark: &str| line.split_once(mark).map(|(_, rest)| rest);
            let sequence = after("icmp_seq=").and_then(|rest| rest.split(' ').next());
            let sequence: u64 = sequence.context("icmp_seq")?.parse()?;
            if sequence > sent {
                continue;
            }
            let previous = answered.last().copied().unwrap_or(0);
            answered.insert(sequence);
            let time = after("[").and_then(|rest| rest.split(']').next());
            let time: f64 = time.context("time")?.parse()?;
            longest = last.map_or(0.0, |last| longest.max(time - last));
            self.note(sequence.saturating_sub(previous + 1), last, time);
            last = Some(time);
        }
        let end = answered.last().copied().unwrap_or(0);
        self.note(sent.saturating_sub(end), last, last.unwrap_or(0.0));
        let lost = sent.saturating_sub(u64::try_from(answered.len())?);
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

    /// So many in a row were not answered between these two answers.
    fn note(&mut self, missing: u64, last: Option<f64>, time: f64) {
        if missing > self.worst.0 {
            self.worst = (missing, last.unwrap_or(time), time);
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
    fn losses(&self) -> String {
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
        let text = format!("{HEAD}{}", answers(list));
        let sums = format!("\r1/{sent} packets, 0% loss, min/avg/ewma/max = 0.1/0.1/0.1/0.1 ms\n");
        let mut losses = Losses::default();
        losses.add("a -> b", &text, &sums).unwrap();
        losses
    }

    #[test]
    fn what_is_sent_after_the_end_is_not_counted_and_a_gap_is_counted_and_timed() {
        assert_eq!(count(&[(1, 10.0), (2, 10.01), (4, 10.03)], 2).lost, 0);
        // An answer that comes late is one.
        assert_eq!(count(&[(1, 10.0), (2, 11.5), (3, 11.5)], 2).lost, 0);
        assert_eq!(count(&[(1, 10.0), (2, 10.01), (4, 10.03)], 3).lost, 1);
        assert_eq!(count(&[(1, 10.0)], 5).worst, (4, 10.0, 10.0));
        let gap = count(&[(1, 10.0), (2, 10.01), (5, 10.5), (6, 10.51)], 6);
        assert_eq!(gap.lost, 2);
        assert!((gap.longest.0 - 0.49).abs() < 0.001);
        assert_eq!(gap.by_pair, [("a -> b".to_owned(), 2)]);
        let told = "a -> b 2; most in a row 2, from 00:00:10.010 to 00:00:10.500 UTC";
        assert_eq!(gap.losses(), told);
        assert_eq!(count(&[(1, 10.0)], 40).lost, 39);
        assert_eq!(count(&[], 40).lost, 40);
    }
}
