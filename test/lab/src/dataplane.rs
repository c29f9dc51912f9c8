//! How fast pods' packets are: bytes and packets a second, what they cost of the processors, round trips, and headers on the wire.
//!
//! In: running labs, which are measured in turn, round after round, so that what else the machine does meets all of them. Out: a
//! table with a row a lab: medians over the rounds. Packets go from the pod of the first node to that of the second; iperf3 and
//! tcpdump count. Not here: how the labs are brought up (`hack/bench dataplane`).

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::echo;
use crate::netns::inside;
use crate::node::link::underlay_port;
use crate::proof::Capture;
use crate::reach::attached;
use crate::run::{now, tell, tool};
use crate::state::{Lab, Node};
use crate::status::aligned;

/// Where iperf3 listens.
const PORT: u16 = 7201;
/// Payload of the packets whose frames are looked at, bytes.
const PAYLOAD: u16 = 1000;
/// Payload of small packets, bytes.
const SMALL: u32 = 64;
/// How many frames are looked at.
const FRAMES: usize = 5;

/// How long and how often.
#[derive(Debug, Clone, Args)]
pub(crate) struct Measure {
    /// Labs to measure in turn (default: the one of --name).
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    labs: Vec<String>,
    /// Rounds; the table has their medians.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Length of each of a round's three streams (TCP, UDP, small packets), seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Round trips of a round.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    trips: u32,
}

/// Two pods of a lab, on two nodes.
struct Way {
    lab: Lab,
    to_node: Node,
    from: String,
    to: String,
    address: IpAddr,
}

/// What one round saw.
#[derive(Debug, Clone, Default)]
struct Sample {
    /// Mbit/s of payload.
    tcp: f64,
    /// Processor seconds of the whole machine for each Gbit of it.
    tcp_cost: f64,
    /// Mbit/s of payload that arrived.
    udp: f64,
    /// Thousands of small packets a second that arrived.
    small: f64,
    /// Processor microseconds of the whole machine for each of them.
    small_cost: f64,
    /// Microseconds: median, 99th and 99.9th percentile.
    trips: [f64; 3],
}

/// What iperf3 said, and what the machine spent meanwhile.
struct Stream {
    /// Payload that arrived, bytes.
    bytes: f64,
    /// Datagrams that arrived; none with TCP.
    packets: f64,
    /// How long it took, seconds.
    seconds: f64,
    /// Processor seconds.
    cost: f64,
}

/// Measures and prints.
pub(crate) fn print(name: &str, wanted: &Measure) -> Result<bool> {
    let names = match wanted.labs.as_slice() {
        [] => vec![name.to_owned()],
        several => several.to_vec(),
    };
    let ways: Vec<Way> = (names.iter().map(|name| way(name))).collect::<Result<_>>()?;
    for way in &ways {
        echo::serve(&way.to, way.address)?;
        // What is resolved and learned once is not part of it.
        echo::round_trips(&way.from, way.address, 50)?;
    }
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); ways.len()];
    for round in 1..=wanted.rounds {
        for (way, samples) in ways.iter().zip(&mut samples) {
            let sample = measure(way, wanted)
                .with_context(|| format!("lab {}, round {round}", way.lab.name))?;
            let Sample { tcp, udp, .. } = sample;
            tell(&format!(
                "round {round}, {}: TCP {tcp:.0} Mbit/s, UDP {udp:.0} Mbit/s",
                label(&way.lab)
            ));
            samples.push(sample);
        }
    }
    let mut table = vec![HEAD.map(str::to_owned).to_vec()];
    for (way, samples) in ways.iter().zip(&samples) {
        table.push(row(way, samples)?);
    }
    tell(&format!(
        "\nload {}; {} rounds of {} s a stream, {} round trips, {} each; medians",
        std::fs::read_to_string("/proc/loadavg")?
            .split_whitespace()
            .next()
            .unwrap_or("unknown"),
        wanted.rounds,
        wanted.seconds,
        wanted.trips,
        "one flow",
    ));
    tell(aligned(&table).trim_end());
    Ok(true)
}

const HEAD: [&str; 9] = [
    "NETWORK",
    "POD MTU",
    "TCP MBIT/S",
    "CPU S/GBIT",
    "UDP MBIT/S",
    "64-BYTE PACKETS/S",
    "CPU US/PACKET",
    "ROUND TRIP US P50 P99 P99.9",
    "HEADERS, BYTES",
];

fn label(lab: &Lab) -> String {
    let outward = &lab.outward;
    let transport = lab.adopted.as_ref().unwrap_or(&outward.transport);
    format!(
        "{transport}{}, {} gateway, {} datapath",
        lab.beside_note(),
        outward.gateway_mode,
        outward.datapath
    )
}

fn row(way: &Way, samples: &[Sample]) -> Result<Vec<String>> {
    let of = |value: fn(&Sample) -> f64| median(samples.iter().map(value).collect());
    let trips = [0, 1, 2].map(|at| {
        let all = samples.iter().filter_map(|s| s.trips.get(at).copied());
        format!("{:.0}", median(all.collect()))
    });
    Ok(vec![
        label(&way.lab),
        way.lab.outward.mtu().to_string(),
        format!("{:.0}", of(|s| s.tcp)),
        format!("{:.2}", of(|s| s.tcp_cost)),
        format!("{:.0}", of(|s| s.udp)),
        format!("{:.0}", of(|s| s.small) * 1000.0),
        format!("{:.1}", of(|s| s.small_cost)),
        trips.join(" "),
        headers(way)?.to_string(),
    ])
}

fn way(name: &str) -> Result<Way> {
    let lab = Lab::running(name)?;
    let pods = attached(&lab);
    let [(from, _), (to, pod), ..] = pods.as_slice() else {
        bail!(
            "lab {name} has {} pods: two on two nodes are wanted",
            pods.len()
        );
    };
    let address = pod.addresses.first().context("a pod without address")?;
    Ok(Way {
        from: lab.pod_namespace(&from.name),
        to: lab.pod_namespace(&to.name),
        address: address.address,
        to_node: to.clone(),
        lab: lab.clone(),
    })
}

fn measure(way: &Way, wanted: &Measure) -> Result<Sample> {
    let mut trips = echo::round_trips(&way.from, way.address, wanted.trips)?;
    trips.sort_unstable();
    let tcp = stream(way, wanted.seconds, None)?;
    let udp = stream(way, wanted.seconds, Some(largest(way)))?;
    let small = stream(way, wanted.seconds, Some(SMALL))?;
    let megabits = |stream: &Stream| stream.bytes * 8.0 / 1e6 / stream.seconds;
    Ok(Sample {
        tcp: megabits(&tcp),
        tcp_cost: tcp.cost / (tcp.bytes * 8.0 / 1e9),
        udp: megabits(&udp),
        small: small.packets / small.seconds / 1e3,
        small_cost: small.cost * 1e6 / small.packets,
        trips: [(50, 100), (99, 100), (999, 1000)].map(|part| percentile(&trips, part)),
    })
}

/// Payload of a UDP packet that fills the pod's MTU, bytes.
fn largest(way: &Way) -> u32 {
    let headers = if way.address.is_ipv4() { 28 } else { 48 };
    way.lab.outward.mtu() - headers
}

/// One stream: TCP, or UDP with datagrams of this payload as fast as they can be sent.
fn stream(way: &Way, seconds: u32, datagrams: Option<u32>) -> Result<Stream> {
    let mut server = tool("iperf3")
        .words(&format!("--server --one-off --port {PORT}"))
        .with(|c| {
            c.stdout(std::process::Stdio::null());
        })
        .inside(&way.to)
        .spawn()?;
    let listens = listening(&way.to);
    let words = format!(
        "--json --client {} --port {PORT} --time {seconds} --connect-timeout 5000",
        way.address
    );
    let mut client = tool("iperf3").words(&words);
    if let Some(length) = datagrams {
        client = client.words(&format!("--udp --bitrate 0 --length {length}"));
    }
    let before = busy()?;
    let said = listens.and_then(|()| client.inside(&way.from).run());
    let cost = busy()? - before;
    // Without a client it would wait for ever.
    if said.is_err() {
        drop(server.kill());
    }
    server.wait()?;
    let said: Value = serde_json::from_str(&said?).context("what iperf3 printed")?;
    let number = |path: &str| {
        let value = said.pointer(path).and_then(Value::as_f64);
        value.with_context(|| format!("iperf3 printed no {path}"))
    };
    let Some(length) = datagrams else {
        return Ok(Stream {
            bytes: number("/end/sum_received/bytes")?,
            packets: 0.0,
            seconds: number("/end/sum_received/seconds")?,
            cost,
        });
    };
    let packets = number("/end/sum/packets")? - number("/end/sum/lost_packets")?;
    if packets <= 0.0 {
        bail!("no datagram of {length} bytes arrived");
    }
    Ok(Stream {
        bytes: packets * f64::from(length),
        packets,
        seconds: number("/end/sum/seconds")?,
        cost,
    })
}

/// Waits until somebody listens at iperf3's port.
fn listening(namespace: &str) -> Result<()> {
    let start = now();
    while start.elapsed() < Duration::from_secs(20) {
        let shown = tool("ss").words(&format!("-Hltn sport = :{PORT}"));
        if !shown.inside(namespace).run()?.trim().is_empty() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("iperf3 does not listen in {namespace} after 20 s")
}

/// Processor seconds that the machine has spent since its start, on anything (proc(5), /proc/stat).
fn busy() -> Result<f64> {
    let all = std::fs::read_to_string("/proc/stat")?;
    let first = all.lines().next().context("/proc/stat")?;
    let ticks: Vec<f64> = (first.split_whitespace().skip(1))
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    // User, nice, system, idle, waiting for disks, interrupts (2), stolen; guests are in the first two.
    let used = [0, 1, 2, 5, 6].iter().filter_map(|at| ticks.get(*at));
    let per_second: f64 = tool("getconf").args(["CLK_TCK"]).run()?.trim().parse()?;
    Ok(used.sum::<f64>() / per_second)
}

/// What a frame on the underlay has beside the payload of a UDP packet between the pods, bytes; without the frame's checksum.
fn headers(way: &Way) -> Result<u64> {
    let filter = format!("udp and greater {PAYLOAD} and less {}", PAYLOAD + 300);
    let underlay = way.lab.namespace("underlay");
    let port = underlay_port(&way.to_node);
    let capture = Capture::start(&underlay, &port, &["-e"], &filter)?;
    inside(&way.from, || {
        let any = if way.address.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        let socket = UdpSocket::bind(any)?;
        for _ in 0..FRAMES {
            // To a port that answers with few bytes.
            socket.send_to(&[0; PAYLOAD as usize], (way.address, echo::PORT))?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    })?;
    let lines = capture.stop()?;
    let mut lengths: Vec<u64> = lines.lines().filter_map(frame_length).collect();
    lengths.sort_unstable();
    lengths.dedup();
    match lengths.as_slice() {
        [one] => Ok(one - u64::from(PAYLOAD)),
        _ => bail!("frames of lengths {lengths:?} on {port}, one length was expected:\n{lines}"),
    }
}

/// Length of a frame in a line of `tcpdump -e`, bytes.
fn frame_length(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(", length ")?;
    rest.split_once(':')?.0.parse().ok()
}

/// Of sorted times, in microseconds.
fn percentile(sorted: &[Duration], (part, of): (usize, usize)) -> f64 {
    let at = (sorted.len() * part / of).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or(0.0);
    if values.len() % 2 == 1 {
        return upper;
    }
    let lower = values.get((values.len() / 2).wrapping_sub(1)).copied();
    lower.map_or(upper, |lower| f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frames_length_is_read_from_tcpdumps_line() {
        let plain = "20:00:00.1 0a:58:ac:1e:00:01 > 0a:58:ac:1e:00:02, ethertype IPv4 (0x0800), length 1042: 10.128.0.5.4000 > 10.128.1.5.7007: UDP, length 1000";
        let tunnel = "20:00:00.1 0a:58:ac:1e:00:01 > 0a:58:ac:1e:00:02, ethertype IPv4 (0x0800), length 1100: 172.30.0.1.3 > 172.30.0.2.6081: Geneve, Flags [C], vni 0xff0003, options [8 bytes]: 10.128.0.5.4000 > 10.128.1.5.7007: UDP, length 1000";
        assert_eq!(frame_length(plain), Some(1042));
        assert_eq!(frame_length(tunnel), Some(1100));
        assert_eq!(frame_length("listening on up2"), None);
    }

    #[test]
    fn percentiles_and_medians_are_those_of_the_values() {
        let times: Vec<Duration> = (1..=1000).map(Duration::from_micros).collect();
        for (part, wanted) in [
            ((50, 100), "501"),
            ((99, 100), "991"),
            ((999, 1000), "1000"),
        ] {
            assert_eq!(format!("{:.0}", percentile(&times, part)), wanted);
        }
        assert_eq!(percentile(&[], (50, 100)), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
