//! Line 4: much data arrives whole.
//!
//! In: pods, hosts and the outside host. Out: whether 10 MB each way over TCP have the
//! digest they were sent with. Small packets would pass where unfinished checksums or
//! cut segments lose large ones.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::{Failure, Layer, Verdict, World, diagnose};
use crate::family::Family;
use crate::netns::inside;
use crate::reach::{Attached, attached};
use crate::run::now;
use crate::state::Lab;

const PORT: u16 = 7008;
const BYTES: usize = 10_000_000;
const PATIENCE: Duration = Duration::from_secs(10);
/// With more nodes than this, only neighbours in the list exchange data, and hosts and
/// the outside only on the first few.
const ALL_PAIRS: usize = 4;

/// Line 4.
pub(super) fn whole(world: &mut World<'_>) -> Result<Verdict> {
    let lab = &*world.lab;
    let pods = attached(lab);
    // One that listens at :: takes IPv4 as well.
    let at: IpAddr = if lab.values.has(Family::V6) {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    serve(&lab.namespace("outside"), at)?;
    pods.iter()
        .try_for_each(|(node, _)| serve(&lab.pod_namespace(&node.name), at))?;
    let payload = payload();
    let (mut done, mut broken) = (0, None);
    let start = now();
    let all = (0..pods.len()).flat_map(|i| {
        let targets = targets(lab, &pods, i).into_iter();
        targets.map(move |target| (i, target))
    });
    for (i, (name, namespace, to)) in all {
        done += 1;
        if let Err(error) = exchange(&namespace, to, &payload) {
            // Each of the others would take its time to fail, too.
            broken = Some((i, format!("{name} at {to}: {error:#}")));
            break;
        }
    }
    if broken.is_none() && done > 0 {
        // Two ways, eight bits, a million: 16/10^6.
        let megabits = f64::from(done) * 20.0 * 8.0 / start.elapsed().as_secs_f64();
        return Ok(Ok(format!("{done} exchanges, {megabits:.0} Mbit/s")));
    }
    let expected = format!("{BYTES} bytes each way with equal digests");
    let Some((i, complaint)) = broken else {
        return Ok(Err(Failure::new(Layer::Lab, expected, "no exchange")));
    };
    let (layer, why) = match (pods.get(i), pods.get((i + 1) % pods.len())) {
        (Some((from, _)), Some((to, _))) => diagnose::pods(lab, from, to),
        _ => (Layer::Packets, String::new()),
    };
    let seen = format!("{complaint}; the rest was not tried; {why}");
    Ok(Err(Failure::new(layer, expected, seen)))
}

/// With whom the pod and the host of the node with this number exchange data: name of
/// the exchange, namespace of the client, address of the server.
fn targets(lab: &Lab, pods: &[Attached], number: usize) -> Vec<(String, String, IpAddr)> {
    let Some((from, _)) = pods.get(number) else {
        return Vec::new();
    };
    let (host, inner) = (lab.namespace(&from.name), lab.pod_namespace(&from.name));
    let few = pods.len() <= ALL_PAIRS;
    let mut found = Vec::new();
    if number < ALL_PAIRS {
        let name = format!("pod on {} and outside", from.name);
        for outside in lab.values.outside_addresses() {
            found.push((name.clone(), inner.clone(), outside));
        }
    }
    for (j, (to, pod)) in pods.iter().enumerate().filter(|(j, _)| *j != number) {
        let next = j == (number + 1) % pods.len();
        if next || (number < j && few) {
            let name = format!("pods on {} and {}", from.name, to.name);
            let all = pod.addresses.iter();
            found.extend(all.map(|a| (name.clone(), inner.clone(), a.address)));
        }
        if next && number < ALL_PAIRS {
            let name = format!("{} and pod on {}", from.name, to.name);
            let all = pod.addresses.iter();
            found.extend(all.map(|a| (name.clone(), host.clone(), a.address)));
        }
    }
    found
}

/// Bytes without a pattern that could hide an exchange of two packets.
fn payload() -> Vec<u8> {
    let mut state: u32 = 0x2545_f491;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(BYTES).collect()
}

/// A server that answers with the digest of what it got, and then sends it back.
fn serve(namespace: &str, at: IpAddr) -> Result<()> {
    let listener = inside(namespace, || Ok(TcpListener::bind((at, PORT))?));
    let listener = listener.with_context(|| format!("listening in {namespace}"))?;
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            // The client notices what goes wrong here.
            std::thread::spawn(move || drop(answer(stream)));
        }
    });
    Ok(())
}

fn answer(mut stream: TcpStream) -> Result<()> {
    limits(&stream)?;
    let mut got = Vec::new();
    stream.read_to_end(&mut got)?;
    stream.write_all(&Sha256::digest(&got))?;
    stream.write_all(&got)?;
    Ok(())
}

fn exchange(namespace: &str, to: IpAddr, payload: &[u8]) -> Result<()> {
    let mut stream = inside(namespace, || {
        Ok(TcpStream::connect_timeout(
            &SocketAddr::from((to, PORT)),
            Duration::from_secs(2),
        )?)
    })?;
    limits(&stream)?;
    stream.write_all(payload)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let (digest, back) = answer.split_at_checked(32).context("the answer is short")?;
    let sent = Sha256::digest(payload);
    if digest != sent.as_slice() {
        bail!("other bytes arrived than were sent");
    }
    if Sha256::digest(back) != sent {
        bail!(
            "other bytes came back than were sent ({} of {BYTES})",
            back.len()
        );
    }
    Ok(())
}

fn limits(stream: &TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(())
}
