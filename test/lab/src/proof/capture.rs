//! Packets as tcpdump sees them.
//!
//! In: a namespace, an interface, a filter. Out: tcpdump's lines from the moment it
//! listens until it is asked to stop.

use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::run::tool;

/// A tcpdump that listens.
pub(crate) struct Capture {
    child: Child,
    lines: JoinHandle<String>,
}

impl Capture {
    /// Starts and waits until tcpdump listens.
    pub(crate) fn start(
        namespace: &str,
        interface: &str,
        more: &[&str],
        filter: &str,
    ) -> Result<Self> {
        let mut child = tool("tcpdump")
            .args([
                "-n",
                "-l",
                "--immediate-mode",
                "-B",
                "4096",
                "-i",
                interface,
            ])
            .args(more)
            .args([filter])
            .with(|c| {
                c.stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped());
            })
            .inside(namespace)
            .spawn()?;
        let mut stdout = child.stdout.take().context("tcpdump's output")?;
        let lines = std::thread::spawn(move || {
            let mut text = Vec::new();
            drop(stdout.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut stderr = BufReader::new(child.stderr.take().context("tcpdump's messages")?);
        let mut said = String::new();
        while !said.contains("listening on") {
            if stderr.read_line(&mut said)? == 0 {
                bail!("tcpdump in {namespace}: {said}");
            }
        }
        // Somebody has to read what else it says, or it could block.
        std::thread::spawn(move || drop(std::io::copy(&mut stderr, &mut std::io::sink())));
        Ok(Self { child, lines })
    }

    /// Stops and gives all lines.
    pub(crate) fn stop(mut self) -> Result<String> {
        // The last packets are on their way through tcpdump's buffers.
        std::thread::sleep(Duration::from_millis(150));
        kill(
            Pid::from_raw(i32::try_from(self.child.id())?),
            Signal::SIGINT,
        )?;
        self.child.wait()?;
        self.lines.join().ok().context("reading tcpdump's lines")
    }
}

/// UDP port of Geneve (RFC 8926).
pub(super) const GENEVE: u16 = 6081;

/// An end of a packet: address, and port where it has one.
type End = (IpAddr, Option<u16>);

/// Ends of a packet, and what tcpdump says of it; `None` for any other line.
fn packet(line: &str) -> Option<(End, End, &str)> {
    // Time, family, source, `>`, destination with a colon, and the rest.
    let (_time, rest) = line.split_once(' ')?;
    let rest = rest
        .strip_prefix("IP ")
        .or_else(|| rest.strip_prefix("IP6 "))?;
    let (source, rest) = rest.split_once(" > ")?;
    let (destination, what) = rest.split_once(": ")?;
    Some((end(source)?, end(destination)?, what))
}

/// `10.0.0.1`, `10.0.0.1.6081` or `fe80::1.6081`.
fn end(text: &str) -> Option<End> {
    if let Ok(address) = text.parse() {
        return Some((address, None));
    }
    let (address, port) = text.rsplit_once('.')?;
    Some((address.parse().ok()?, Some(port.parse().ok()?)))
}

/// Source and destination of an echo request; `None` for any other line.
pub(super) fn echo_request(line: &str) -> Option<(IpAddr, IpAddr)> {
    let (source, destination, what) = packet(line)?;
    let texts = ["ICMP echo request", "ICMP6, echo request"];
    texts
        .iter()
        .any(|text| what.starts_with(text))
        .then_some(())?;
    match (source, destination) {
        ((source, None), (destination, None)) => Some((source, destination)),
        _ => None,
    }
}

/// Is this a packet of Geneve, by the ports of its ends?
pub(super) fn is_geneve(line: &str) -> bool {
    packet(line).is_some_and(|(source, destination, _)| {
        source.1 == Some(GENEVE) || destination.1 == Some(GENEVE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_request_is_read_from_tcpdumps_line() {
        for (line, source, destination) in [
            (
                "10:06:12.1 IP 10.128.2.5 > 10.128.3.5: ICMP echo request, id 1, seq 1, length 64",
                "10.128.2.5",
                "10.128.3.5",
            ),
            (
                "10:06:12.1 IP6 fd01:128:0:1::5 > fd01:128::5: ICMP6, echo request, id 1, seq 1, length 64",
                "fd01:128:0:1::5",
                "fd01:128::5",
            ),
        ] {
            let ends = (source.parse().unwrap(), destination.parse().unwrap());
            assert_eq!(echo_request(line), Some(ends));
            assert!(!is_geneve(line));
        }
    }

    #[test]
    fn a_reply_and_another_protocol_are_no_echo_requests() {
        for line in [
            "1 IP 10.0.0.1 > 10.0.0.2: ICMP echo reply, id 1, seq 1",
            "1 IP6 fd00::1 > fd00::2: ICMP6, echo reply, id 1, seq 1",
            "1 IP6 fe80::1 > ff02::1:ff00:2: ICMP6, neighbor solicitation, who has fd00::2, length 32",
            "1 IP 10.0.0.1.99 > 10.0.0.2.6081: Geneve, Flags [none], vni 0x1: IP 10.128.0.5 > 10.128.1.5: ICMP echo request, id 1, seq 1, length 64",
            "10:00:00.1 ARP, Request who-has 10.0.0.1 tell 10.0.0.2, length 28",
            "",
        ] {
            assert_eq!(echo_request(line), None, "{line}");
        }
    }

    #[test]
    fn geneve_is_recognized_by_its_ports_and_not_by_digits_anywhere_in_the_line() {
        for line in [
            "10:06:12.1 IP 10.0.0.1.99 > 10.0.0.2.6081: Geneve, Flags [none], vni 0x1: IP 10.128.0.5 > 10.128.1.5: ICMP echo request",
            "10:06:12.1 IP 10.0.0.1.6081 > 10.0.0.2.40000: UDP, length 40",
            "10:06:12.1 IP6 fe80::1.40000 > fe80::2.6081: Geneve, Flags [none]",
        ] {
            assert!(is_geneve(line), "{line}");
        }
        for line in [
            // The fraction of a second.
            "10:06:12.608123 IP 10.128.2.5 > 10.128.3.5: ICMP echo request, id 1, seq 1, length 64",
            "10:06:12.6081 IP 10.128.2.5 > 10.128.3.5: ICMP echo request, id 6081, seq 1, length 6081",
            "10:06:12.1 IP 10.0.0.1.60810 > 10.0.0.2.16081: UDP, length 40",
        ] {
            assert!(!is_geneve(line), "{line}");
        }
    }
}
