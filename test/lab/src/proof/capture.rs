//! Packets as tcpdump sees them.
//!
//! In: a namespace, an interface, a filter. Out: tcpdump's lines from the moment it
//! listens until it is told to stop.

use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::run::tool;

/// A tcpdump that listens.
pub(super) struct Capture {
    child: Child,
    lines: JoinHandle<String>,
}

impl Capture {
    /// Starts and waits until tcpdump listens.
    pub(super) fn start(
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
    pub(super) fn stop(mut self) -> Result<String> {
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

/// Source and destination of an echo request; `None` for any other line.
pub(super) fn echo_request(line: &str) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let (_, rest) = line.split_once("IP ")?;
    let (ends, what) = rest.split_once(": ")?;
    let (source, destination) = ends.split_once(" > ")?;
    what.starts_with("ICMP echo request").then_some(())?;
    Some((
        source.trim().parse().ok()?,
        destination.trim().parse().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_request_is_read_from_tcpdumps_line() {
        let line =
            "10:06:12.1 IP 10.128.2.5 > 10.128.3.5: ICMP echo request, id 1, seq 1, length 64";
        let ends = (Ipv4Addr::new(10, 128, 2, 5), Ipv4Addr::new(10, 128, 3, 5));
        assert_eq!(echo_request(line), Some(ends));
    }

    #[test]
    fn a_reply_and_another_protocol_are_no_echo_requests() {
        assert_eq!(
            echo_request("1 IP 10.0.0.1 > 10.0.0.2: ICMP echo reply, id 1, seq 1"),
            None
        );
        assert_eq!(
            echo_request("1 IP 10.0.0.1.99 > 10.0.0.2.6081: Geneve, Flags [none]"),
            None
        );
    }
}
