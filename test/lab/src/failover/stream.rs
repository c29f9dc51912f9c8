//! Whom a pod's peer sees, again and again, and one TCP connection that lasts.
//!
//! In: pairs of pods. Out: how many new UDP flows were seen with another address than the pod's own, how many were not
//! answered, and the longest time in which the lasting connection brought nothing. Each flow has a port that no other of its
//! way had in the last minutes: nothing that was tracked before decides about it. (Open vSwitch 3.1's userspace datapath was seen to
//! end with a failed assertion where ports came again within a minute.)

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::echo;
use crate::netns::inside;
use crate::networks::Members;
use crate::run::{now, slower, tell, tool};
use crate::state::Lab;

/// Where the lasting connections go.
const PORT: u16 = 7008;
/// Ports of flows.
const PORTS: Range<u16> = 10_000..60_000;
/// So many of them a way takes at once.
const EACH: u16 = 500;
/// Between two flows, and between two exchanges of a connection.
const PACE: Duration = Duration::from_millis(20);
/// A connection that brings nothing for so long is broken.
const PATIENCE: Duration = Duration::from_secs(30);

/// One way from a pod to another of its network.
#[derive(Debug, Clone)]
pub(super) struct Way {
    /// For people.
    pub(super) name: String,
    /// The namespace it begins in, and the one it ends in.
    pub(super) namespaces: (String, String),
    /// The pod's own address.
    pub(super) from: IpAddr,
    /// The other's.
    pub(super) to: IpAddr,
}

/// All ways between the pods of each network.
pub(super) fn ways(networks: &[Members]) -> Vec<Way> {
    let mut all = Vec::new();
    for network in networks {
        for (node, pod, namespace) in &network.pods {
            let others = network.pods.iter().filter(|(other, ..)| other != node);
            for (other, far, there) in others {
                let both = pod.addresses.iter().filter_map(|own| {
                    let to = far.in_family(own.family())?.address;
                    Some((own.address, to))
                });
                all.extend(both.map(|(from, to)| Way {
                    name: format!("{}: {} -> {} at {to}", network.name, node.name, other.name),
                    namespaces: (namespace.clone(), there.clone()),
                    from,
                    to,
                }));
            }
        }
    }
    all
}

/// What became of the flows of all ways.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Flows.
    pub(super) flows: u64,
    /// Those that were not answered: whom the other pod saw of them is not known.
    pub(super) unanswered: u64,
    /// Ways on which none was answered.
    pub(super) silent: usize,
    /// Those that the other pod saw with another address than the pod's own.
    pub(super) translated: u64,
    /// One of them.
    pub(super) example: Option<String>,
}

/// What became of the connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Exchanges {
    /// Messages that came back.
    pub(super) count: u64,
    /// Connections over which none did.
    pub(super) silent: usize,
    /// The longest time that one took.
    pub(super) longest: Duration,
    /// The longest time of one that leaves no pod: what this process and the machine take for themselves.
    pub(super) inside: Duration,
    /// Connections that broke, and how.
    pub(super) broken: Vec<String>,
}

/// Flows and connections under way; what is dropped ends too.
pub(super) struct Streams {
    over: Arc<AtomicBool>,
    flows: Vec<JoinHandle<Seen>>,
    connections: Vec<JoinHandle<Exchanges>>,
    inside: Option<JoinHandle<Exchanges>>,
}

/// Starts what answers them; it ends with this process.
pub(super) fn serve(ways: &[Way]) -> Result<()> {
    let all = ways.iter().map(|way| (way.namespaces.1.as_str(), way.to));
    for (namespace, address) in all.collect::<BTreeSet<_>>() {
        echo::serve(namespace, address)?;
        mirror(namespace, address)?;
    }
    Ok(())
}

impl Streams {
    /// Starts them on these ways, which are served.
    pub(super) fn start(lab: &Lab, ways: &[Way]) -> Result<Self> {
        let ports = Arc::new(Mutex::new(Ports::of(lab)));
        let mut streams = Self {
            over: Arc::default(),
            flows: Vec::new(),
            connections: Vec::new(),
            inside: None,
        };
        if let Some(way) = ways.first() {
            let there = way.namespaces.1.clone();
            let stays = Way {
                name: format!("{}, which stays there", way.name),
                namespaces: (there.clone(), there),
                from: way.to,
                to: way.to,
            };
            let (stream, over) = (connect(&stays)?, Arc::clone(&streams.over));
            let work = move || exchange(stream, &stays.name, &over);
            streams.inside = Some(std::thread::spawn(work));
        }
        for way in ways {
            let (over, of, ports) = (Arc::clone(&streams.over), way.clone(), Arc::clone(&ports));
            (streams.flows).push(std::thread::spawn(move || flows(&of, &ports, &over)));
            let stream = connect(way)?;
            let (over, name) = (Arc::clone(&streams.over), way.name.clone());
            (streams.connections).push(std::thread::spawn(move || exchange(stream, &name, &over)));
        }
        Ok(streams)
    }

    /// Ends all of them and counts.
    pub(super) fn stop(mut self) -> (Seen, Exchanges) {
        self.over.store(true, Ordering::Relaxed);
        let (mut seen, mut exchanges) = (Seen::default(), Exchanges::default());
        for one in std::mem::take(&mut self.flows) {
            seen.add(one.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        for one in std::mem::take(&mut self.connections) {
            let one = one.join().unwrap_or_else(|panic| resume_unwind(panic));
            exchanges.silent += usize::from(one.count == 0);
            exchanges.count += one.count;
            exchanges.longest = exchanges.longest.max(one.longest);
            exchanges.broken.extend(one.broken);
        }
        if let Some(one) = self.inside.take() {
            let one = one.join().unwrap_or_else(|panic| resume_unwind(panic));
            exchanges.inside = one.longest;
        }
        (seen, exchanges)
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.flows += other.flows;
        self.unanswered += other.unanswered;
        self.silent += usize::from(other.flows <= other.unanswered);
        self.translated += other.translated;
        self.example = self.example.take().or(other.example);
    }

    /// One line.
    pub(super) fn shown(&self) -> String {
        let Self {
            flows,
            unanswered,
            translated,
            example,
            ..
        } = self;
        let example = example.as_deref().map(|text| format!(": {text}"));
        format!(
            "{translated} of {} new UDP flows that were answered seen with another address than the pod's{}; {unanswered} more not answered",
            flows - unanswered,
            example.unwrap_or_default()
        )
    }
}

impl Exchanges {
    /// One line.
    pub(super) fn shown(&self) -> String {
        let mut text = format!(
            "{} messages over lasting TCP connections, the longest took {} ms, and {} ms over one that leaves no pod",
            self.count,
            self.longest.as_millis(),
            self.inside.as_millis()
        );
        if !self.broken.is_empty() {
            text.push_str(&format!("; broken: {}", self.broken.join(", ")));
        }
        text
    }
}

/// Ports of flows, handed out in blocks.
struct Ports {
    next: u16,
    file: PathBuf,
}

impl Ports {
    /// The lab remembers the last ones: in a minute or two no port comes twice.
    fn of(lab: &Lab) -> Self {
        let file = lab.node_dir("underlay").join("flow-port");
        let last = std::fs::read_to_string(&file).ok();
        let last = last.and_then(|text| text.parse().ok());
        Self {
            next: last.unwrap_or(PORTS.start),
            file,
        }
    }

    fn block(&mut self) -> Range<u16> {
        if self.next > PORTS.end - EACH {
            self.next = PORTS.start;
        }
        let block = self.next..self.next + EACH;
        self.next = block.end;
        // One that is not remembered is only taken too early again.
        drop(std::fs::write(&self.file, self.next.to_string()));
        block
    }
}

fn flows(way: &Way, ports: &Mutex<Ports>, over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let block = || {
        let mut ports = ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.block()
    };
    for port in std::iter::repeat_with(block).flatten() {
        if over.load(Ordering::Relaxed) {
            break;
        }
        seen.flows += 1;
        match echo::udp_from(&way.namespaces.0, port, way.to) {
            Ok(by) if by.ip() != way.from => {
                seen.translated += 1;
                let text = format!("{} is seen as {}", way.name, by.ip());
                seen.example.get_or_insert(text);
            }
            Ok(_) => {}
            Err(_) => seen.unanswered += 1,
        }
        std::thread::sleep(PACE * slower());
    }
    seen
}

/// A server that sends back what it gets; it ends with this process.
fn mirror(namespace: &str, address: IpAddr) -> Result<()> {
    let listener = inside(namespace, || Ok(TcpListener::bind((address, PORT))?));
    let listener = listener.with_context(|| format!("listening in {namespace}"))?;
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    let said = buffer.get(..length).unwrap_or_default();
                    if stream.write_all(said).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(())
}

/// A connection by a way. Before anything is broken: what is refused once on a slow machine is tried again, and told.
fn connect(way: &Way) -> Result<TcpStream> {
    let begin = now();
    loop {
        let refused = match connect_once(way) {
            Ok(stream) => return Ok(stream),
            Err(error) => error.context(way.name.clone()),
        };
        if begin.elapsed() >= PATIENCE {
            return Err(refused);
        }
        tell(&format!("    once more: {refused:#}; {}", neighbors(way)));
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn connect_once(way: &Way) -> Result<TcpStream> {
    let to = SocketAddr::from((way.to, PORT));
    inside(&way.namespaces.0, || {
        let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    })
}

/// What the pod knows of its neighbors, on one line.
fn neighbors(way: &Way) -> String {
    let shown = tool("ip").words("neigh show").inside(&way.namespaces.0);
    let shown = shown.run().unwrap_or_default();
    shown.lines().collect::<Vec<_>>().join(", ")
}

fn exchange(mut stream: TcpStream, name: &str, over: &AtomicBool) -> Exchanges {
    let mut all = Exchanges::default();
    while !over.load(Ordering::Relaxed) {
        let (begun, message) = (now(), all.count.to_be_bytes());
        let mut back = [0; 8];
        let done = stream.write_all(&message);
        match done.and_then(|()| stream.read_exact(&mut back)) {
            Ok(()) if back == message => all.count += 1,
            Ok(()) => {
                all.broken
                    .push(format!("{name}: another message came back"));
                return all;
            }
            Err(error) => {
                let waited = error.kind() == ErrorKind::WouldBlock;
                let why = if waited {
                    "no answer".to_owned()
                } else {
                    error.to_string()
                };
                all.broken.push(format!("{name}: {why}"));
                return all;
            }
        }
        all.longest = all.longest.max(begun.elapsed());
        std::thread::sleep(PACE * slower());
    }
    all
}
