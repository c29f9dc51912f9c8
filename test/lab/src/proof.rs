//! The proof: eight lines, each of which holds or says where it stops.
//!
//! In: a running lab. Out: a line of output per line of the proof, with its time; for
//! one that fails what was expected, what was seen, and at which layer the path from
//! object to packet is broken. Everything is read with foreign tools.

mod bulk;
mod capture;
pub(crate) mod diagnose;
mod join;
mod matrix;
mod networks;
mod paths;
mod pings;
mod quiet;
mod rows;
mod services;
mod withdraw;

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Result, bail};

pub(crate) use self::capture::Capture;
use crate::run::{now, tell};
use crate::state::{Lab, Node};
use crate::supervisor;

/// Where a path from object to packet is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    /// An API object is missing or wrong.
    Object,
    /// FRR has not what the objects say.
    Frr,
    /// The kernel has not what FRR has.
    Kernel,
    /// OVN has not what the kernel has.
    Ovn,
    /// All of these are right, but packets are not.
    Packets,
    /// The lab itself could not look.
    Lab,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object => "object",
            Self::Frr => "FRR",
            Self::Kernel => "kernel",
            Self::Ovn => "OVN",
            Self::Packets => "packets",
            Self::Lab => "lab",
        })
    }
}

/// Why a line does not hold.
#[derive(Debug, Clone)]
struct Failure {
    layer: Layer,
    expected: String,
    seen: String,
}

impl Failure {
    fn new(layer: Layer, expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Self {
            layer,
            expected: expected.into(),
            seen: seen.into(),
        }
    }
}

/// What a line gives: a remark (numbers, times), or why it does not hold.
type Verdict = std::result::Result<String, Failure>;

/// Which lines are asked for, and how long they may take.
pub(crate) struct Wanted {
    /// Numbers of lines; all, where it is empty.
    pub(crate) only: Vec<u8>,
    /// Length of line 7's quiet time in seconds.
    pub(crate) quiet: u64,
    /// How long line 6's node gets to join, and to be forgotten; by the number of nodes, where it is not given.
    pub(crate) patience: Option<Duration>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            only: Vec::new(),
            quiet: 60,
            patience: None,
        }
    }
}

/// What the lines share.
struct World<'a> {
    lab: &'a mut Lab,
    /// Lines 1 and 2 look at the same pings.
    pings: Option<pings::Pings>,
    wanted: &'a Wanted,
}

/// Why a claim about pairs of nodes says nothing here; `None` where there are two.
fn lonely(lab: &Lab) -> Option<Failure> {
    let nodes = lab.nodes.len();
    (nodes < 2).then(|| {
        let seen = format!("{nodes}: there is no pair to look at");
        Failure::new(Layer::Lab, "two nodes or more", seen)
    })
}

/// A phrase that names the families where the lab has several.
fn in_families(lab: &Lab) -> String {
    let families = lab.values.families();
    match families.len() {
        0 | 1 => String::new(),
        number => format!(" in {number} families"),
    }
}

/// Numbers of the lines.
pub(crate) const NUMBERS: RangeInclusive<i64> = 1..=9;

/// A line's number, what it claims, and how it is checked.
type Line = (u8, &'static str, fn(&mut World<'_>) -> Result<Verdict>);

const LINES: [Line; 9] = [
    (
        1,
        "every pod pings every other pod and is seen with its own address",
        pings::every_pair,
    ),
    (
        2,
        "the underlay carries these packets as they are, and no Geneve (with an overlay: as Geneve alone)",
        pings::underlay,
    ),
    (
        3,
        "every other path shows the right source address",
        paths::table,
    ),
    (4, "10 MB of TCP arrive whole, each way", bulk::whole),
    (
        ROWS,
        "OVN has one route per remote subnet, no transit switch, and the exempting SNAT row (beside OVN-Kubernetes: the policy, and the remote subnets in its sets)",
        rows::right,
    ),
    (
        6,
        "a further node joins, reaches all pods, leaves, and is gone everywhere",
        join::and_leave,
    ),
    (
        7,
        "no node is its own neighbor, FRR runs its configuration, and nobody writes",
        quiet::time,
    ),
    (
        8,
        "a withdrawn subnet is unreachable within 2 s, and back as it was",
        withdraw::and_restore,
    ),
    (
        NETWORKS,
        "pods of each network reach their own network, the outside host, and no other network",
        networks::apart,
    ),
];

/// The line that only a lab with networks of users has.
const NETWORKS: u8 = 9;

/// The line of rows; beside OVN-Kubernetes it speaks of others.
const ROWS: u8 = 5;

/// The line of a quiet time.
const QUIET: u8 = 7;

/// The lines that speak of a default network whose pods are routed.
const ROUTED: [u8; 3] = [5, 6, 8];

/// Checks the lines; `true` when every one holds. That no line was checked is an error.
pub(crate) fn prove(lab: &mut Lab, wanted: &Wanted) -> Result<bool> {
    let start = now();
    let name = lab.name.clone();
    let mut world = World {
        lab,
        pings: None,
        wanted,
    };
    let note = world.lab.applier_note();
    let (mut held, mut failed) = (0, 0);
    for (number, claim, check) in LINES {
        if !wanted.only.is_empty() && !wanted.only.contains(&number) {
            continue;
        }
        if number == NETWORKS && world.lab.networks.is_empty() {
            continue;
        }
        if let Some(why) = left_out(world.lab, number) {
            tell(&format!("line {number}  --  {why}"));
            continue;
        }
        let begin = now();
        let state = check(&mut world).unwrap_or_else(|error| {
            Err(Failure::new(
                Layer::Lab,
                "the line can be checked",
                format!("{error:#}"),
            ))
        });
        let seconds = begin.elapsed().as_secs_f64();
        match state {
            Ok(remark) => {
                held += 1;
                tell(&format!(
                    "line {number}  ok    {seconds:5.1} s  {claim} ({remark})"
                ));
            }
            Err(failure) => {
                failed += 1;
                tell(&format!("line {number}  FAIL  {seconds:5.1} s  {claim}"));
                print_failure(&failure);
            }
        }
    }
    if held + failed == 0 {
        bail!(
            "no line was checked: {:?} names none of {} to {}",
            wanted.only,
            NUMBERS.start(),
            NUMBERS.end()
        );
    }
    failed += of_the_supervisor(&name);
    let seconds = start.elapsed().as_secs_f64();
    tell(&format!(
        "proof: {held} ok, {failed} failed, {seconds:.1} s{note}"
    ));
    Ok(failed == 0)
}

/// Why a line says nothing of this lab.
fn left_out(lab: &Lab, number: u8) -> Option<&'static str> {
    let is_beside = number == ROWS && lab.is_steered();
    if ROUTED.contains(&number) && lab.outward.is_overlay() && !is_beside {
        return Some("of networks without an overlay");
    }
    let writes = number == QUIET && lab.ovn_kubernetes.is_some();
    writes.then_some("OVN-Kubernetes writes by itself")
}

/// What the supervisor has to tell; returns how many more lines that makes.
fn of_the_supervisor(name: &str) -> usize {
    let early = supervisor::early(name);
    if !early.is_empty() {
        tell(&format!("note: {}", early.trim_end()));
    }
    let deaths = supervisor::deaths(name);
    if deaths.is_empty() {
        return 0;
    }
    tell(&format!(
        "deaths  FAIL  daemons that died since the lab came up:\n{deaths}"
    ));
    1
}

/// Whether what translates on a node is what the lab's configuration asks for.
pub(crate) fn translates_as_asked(lab: &Lab, node: &Node) -> bool {
    matches!(diagnose::exemption(lab, node), Ok(None))
}

fn print_failure(failure: &Failure) {
    tell(&format!("        expected: {}", failure.expected));
    tell(&format!("        seen:     {}", failure.seen));
    tell(&format!("        layer:    {}", failure.layer));
}

/// So many complaints are printed.
const SHOWN: usize = 8;

/// Several complaints as one text: the first few, and how many more.
fn listed(complaints: &[String]) -> String {
    let mut text = complaints
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    if complaints.len() > SHOWN {
        text.push_str(&format!("; and {} more", complaints.len() - SHOWN));
    }
    text
}
