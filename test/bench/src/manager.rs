//! The cluster-manager on a real kube-apiserver with etcd: what a first start, a node, a network and a restart cost.
//! In: sizes. Out: seconds, processor time, memory, writes and their bytes, beside goals.
//! Invariant: the manager is the real binary, a process of its own with the rights it is shipped with; a phase is over only when
//! the objects are what they should be and nothing more is written.
//! Not here: kubelets; agents while the manager runs: nobody reports sessions to it.
//!
//! Writes and bytes are those in the API server's audit log, which has the body of each request; leases and events do not count.

mod agents;
mod bare;
mod cluster;
mod config;
mod daemon;
mod objects;
mod record;

use std::collections::BTreeMap;

use crate::report::Report;
use cluster::Cluster;
use daemon::Daemon;
use record::Write;

/// What is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct ManagerArguments {
    /// Writes one JSON object a line into this file: bench, case, metric, unit, value, floor, goal.
    #[arg(long)]
    json: Option<std::path::PathBuf>,
    /// Only cases whose name contains this text, for example `1000 nodes` or `mesh`.
    #[arg(long)]
    only: Option<String>,
    /// 24 nodes only, a minute.
    #[arg(long)]
    quick: bool,
}

const NODES: [u32; 5] = [24, 120, 250, 500, 1000];
const CUDNS: [u32; 2] = [0, 10];
/// With so many frr-agent is measured, too.
const SMALLEST: u32 = 24;
const LARGEST: u32 = 1000;
/// Larger meshes are measured where they are asked for by name only: route reflectors are for such clusters.
const LARGEST_MESH: u32 = 250;

/// How nodes peer with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topology {
    Mesh,
    Reflectors,
}

impl Topology {
    /// As in `[bgp-managed] topology`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Mesh => "full-mesh",
            Self::Reflectors => "route-reflector",
        }
    }
}

/// A cluster's size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) nodes: u32,
    pub(crate) cudns: u32,
    pub(crate) topology: Topology,
}

/// What a phase cost.
struct Phase {
    /// Until the last write's answer; where nothing is written, until the manager is ready.
    seconds: f64,
    cpu: f64,
    peak: f64,
    resident: f64,
    writes: Vec<Write>,
}

pub(crate) fn manager(arguments: &ManagerArguments) -> anyhow::Result<()> {
    let Some(tools) = kube_tests::tools() else {
        anyhow::bail!("no kube-apiserver: run hack/tools");
    };
    let mut report = Report::new("manager", arguments.json.as_deref());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    for topology in [Topology::Reflectors, Topology::Mesh] {
        for nodes in NODES {
            for cudns in CUDNS {
                let name = format!("{} {nodes} nodes x {cudns} CUDNs", topology.word());
                let wanted = arguments.only.as_ref();
                let large = topology == Topology::Mesh && nodes > LARGEST_MESH;
                let skipped = (large && wanted.is_none())
                    || (arguments.quick && nodes > 24)
                    || !wanted.is_none_or(|text| name.contains(text.as_str()));
                if skipped {
                    continue;
                }
                let size = Size {
                    nodes,
                    cudns,
                    topology,
                };
                runtime.block_on(case(&mut report, &name, size, tools.clone()));
            }
        }
    }
    Ok(())
}

async fn case(report: &mut Report, name: &str, size: Size, tools: std::path::PathBuf) {
    let mut cluster = Cluster::start(tools.clone(), size).await;
    let daemon = Daemon::start(&cluster, size.topology);
    let first = phase(&mut cluster, &daemon, size, async |_| {}).await;
    let bare = bare::apply_once(tools, size, &first.writes).await;
    put(report, name, "first start", &first, |metric| {
        Goal::first_start(size, metric)
    });
    report.put(name, "first start: a bare client", "s", bare);
    report.put(
        name,
        "first start: beyond the bare client",
        "s",
        first.seconds - bare,
    );
    config::sizes(report, name, &cluster).await;

    let more = Size {
        nodes: size.nodes + 1,
        ..size
    };
    let joined = phase(&mut cluster, &daemon, more, async |cluster| {
        cluster.add_node(size.nodes).await;
    });
    let joined = joined.await;
    put(report, name, "+1 node", &joined, |metric| {
        Goal::node_added(size, metric)
    });
    let left = phase(&mut cluster, &daemon, size, async |cluster| {
        cluster.delete_node(size.nodes).await;
    });
    put(report, name, "-1 node", &left.await, |_| None);

    cluster.add_namespace(size.cudns).await;
    let wider = Size {
        cudns: size.cudns + 1,
        ..size
    };
    let network = phase(&mut cluster, &daemon, wider, async |cluster| {
        cluster.add_cudn(size.cudns).await;
    });
    put(report, name, "+1 CUDN", &network.await, |_| None);

    daemon.stop();
    let daemon = Daemon::start(&cluster, size.topology);
    let again = phase(&mut cluster, &daemon, wider, async |_| {}).await;
    put(report, name, "restart", &again, |metric| {
        (metric == "writes").then(|| "0".to_owned())
    });
    daemon.stop();
    if size.nodes == LARGEST || size.nodes == SMALLEST {
        agents::cost(report, name, &cluster).await;
    }
}

/// Does something, and waits until the manager has done what it means; `size` is what there is then.
async fn phase(
    cluster: &mut Cluster,
    daemon: &Daemon,
    size: Size,
    act: impl AsyncFnOnce(&Cluster),
) -> Phase {
    let fresh = daemon.is_fresh();
    let process = daemon.process();
    let cpu = if fresh {
        std::time::Duration::ZERO
    } else {
        process.forget_peak();
        process.cpu()
    };
    let begun = if fresh {
        daemon.started()
    } else {
        record::now()
    };
    act(cluster).await;
    let ready = daemon.until_ready().await;
    let writes = cluster.until_quiet(size).await;
    let last = writes.iter().map(|write| write.answered);
    let end = last.fold(ready.max(begun), f64::max);
    daemon.used();
    Phase {
        seconds: end - begun,
        cpu: (process.cpu() - cpu).as_secs_f64(),
        peak: process.peak(),
        resident: process.resident(),
        writes,
    }
}

/// What is hoped for, in words.
struct Goal;

impl Goal {
    fn first_start(size: Size, metric: &str) -> Option<String> {
        let applies = size.nodes == 250 && size.cudns == 10 && metric == "seconds";
        applies.then(|| "under 5 s beyond the bare client".to_owned())
    }

    fn node_added(size: Size, metric: &str) -> Option<String> {
        match size.topology {
            Topology::Reflectors if size.nodes == 1000 && size.cudns == 10 => {
                let goals = [
                    ("seconds", "under 1"),
                    ("peak memory", "under 150"),
                    ("writes", "at most 6"),
                    ("bytes", "at most 16 KB"),
                ];
                let goal = goals.iter().find(|(of, _)| *of == metric);
                goal.map(|(_, words)| (*words).to_owned())
            }
            Topology::Mesh if metric == "bytes" => {
                // What OVN-Kubernetes' cluster manager (commit 8871cd9cec9c) writes for a node more: KB.
                let peer = [
                    ((24, 0), 190.0),
                    ((24, 10), 720.0),
                    ((120, 0), 4_270.0),
                    ((120, 10), 15_920.0),
                    ((250, 0), 18_310.0),
                    ((250, 10), 68_530.0),
                ];
                let peer = peer.iter().find(|(of, _)| *of == (size.nodes, size.cudns));
                peer.map(|(_, kb)| format!("at most {:.0}, a third of OVN-Kubernetes'", kb / 3.0))
            }
            Topology::Reflectors | Topology::Mesh => None,
        }
    }
}

fn put(
    report: &mut Report,
    case: &str,
    phase: &str,
    cost: &Phase,
    goal: impl Fn(&str) -> Option<String>,
) {
    let mut one = |metric: &str, unit: &str, value: f64| {
        let name = format!("{phase}: {metric}");
        report.put_with_goal(case, &name, (unit, value), goal(metric).as_deref());
    };
    one("seconds", "s", cost.seconds);
    one("processor time", "s", cost.cpu);
    one("peak memory", "MiB", cost.peak);
    one("memory at rest", "MiB", cost.resident);
    one("writes", "", count(cost.writes.len()));
    let kb = |bytes: usize| count(bytes) / 1000.0;
    let all = cost.writes.iter().map(|write| write.bytes);
    one("bytes", "KB", kb(all.sum()));
    let largest = cost.writes.iter().map(|write| write.bytes).max();
    one("largest write", "KB", kb(largest.unwrap_or(0)));
    let mut kinds: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for write in &cost.writes {
        let of_kind = kinds.entry(write.kind()).or_default();
        *of_kind = (of_kind.0 + 1, of_kind.1 + write.bytes);
    }
    for (kind, (writes, bytes)) in kinds {
        one(&kind, "", count(writes));
        one(&format!("{kind}, bytes"), "KB", kb(bytes));
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn count(number: usize) -> f64 {
    number as f64
}
