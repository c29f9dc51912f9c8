//! How long an object takes until it is a route in other nodes' kernels.
//!
//! In: a running lab. Out: median and 90th percentile of the time from the creation of an
//! FRRConfiguration, which lets one node announce one more prefix over its existing
//! sessions, to the kernel route on every other node, and the shares of applier, reload,
//! and BGP with zebra. Foreign clocks only: the API server's audit log, the time of
//! frr.conf, bgpd's own table, `ip monitor`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use ipnet::Ipv4Net;
use serde_json::{Value, json};

use crate::apiserver::{audit_log, get, kubectl};
use crate::failover::load;
use crate::frr_k8s;
use crate::look::kernel_routes;
use crate::node::frr::vtysh;
use crate::objects::items;
use crate::run::{tell, tool, until, wall};
use crate::state::{Lab, Node};
use crate::status::aligned;

/// Path of the objects in the namespace that appliers read.
const PATH: &str = "/apis/frrk8s.metallb.io/v1beta1/namespaces/frr-k8s-system/frrconfigurations";
/// Name of the object that is created.
const NAME: &str = "lab-object-to-route";
/// How long one route may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Rest between two runs, so that no applier still counts the last one's changes together with the next.
const REST: Duration = Duration::from_secs(2);

/// The times of one run, in seconds.
struct Run {
    /// From the API server's receipt of the object to frr.conf: watch, debounce, merge.
    applier: f64,
    /// From frr.conf to bgpd's table: FRR's reload tool.
    reload: f64,
    /// From there to the kernel of the last other node: BGP and zebra.
    bgp: f64,
}

impl Run {
    fn whole(&self) -> f64 {
        self.applier + self.reload + self.bgp
    }
}

/// Measures this often and prints.
pub(crate) fn print(lab: &Lab, runs: usize) -> Result<bool> {
    let node = lab.nodes.first().context("the lab has no node")?;
    let others: Vec<&Node> = lab.nodes.iter().filter(|other| *other != node).collect();
    if others.is_empty() || runs == 0 {
        bail!("at least two nodes and one run are needed");
    }
    let begin = load();
    let monitors = Monitors::start(lab, &others)?;
    let mut done = Vec::new();
    for number in 0..runs {
        let prefix = unused(lab, number)?;
        let run = one(lab, node, &others, &monitors, prefix);
        // Taken away whether it went well or not.
        let removed = remove(lab);
        done.push(run.with_context(|| format!("run {} of {runs}", number + 1))?);
        removed?;
        gone(lab, &others, prefix)?;
        std::thread::sleep(REST);
        monitors.drain();
    }
    drop(monitors);
    tell(&format!(
        "from an object on {} to the kernel of {} other nodes, {runs} runs, load {begin} before and {} after, in seconds:",
        node.name,
        others.len(),
        load()
    ));
    let mut table = vec![["", "MEDIAN", "P90", "MOST"].map(str::to_owned).to_vec()];
    let mut row = |name: &str, part: &dyn Fn(&Run) -> f64| {
        let mut all: Vec<f64> = done.iter().map(part).collect();
        all.sort_by(f64::total_cmp);
        let at = |share: usize| all.get((all.len() * share / 100).min(all.len() - 1));
        let cells = [at(50), at(90), all.last()];
        let cells = cells.map(|cell| format!("{:.2}", cell.copied().unwrap_or(0.0)));
        table.push([vec![name.to_owned()], cells.to_vec()].concat());
    };
    row("object to kernel route", &Run::whole);
    row("  watch, debounce, merge (to frr.conf)", &|run| run.applier);
    row("  reload tool (to bgpd's table)", &|run| run.reload);
    row("  BGP and zebra (to the last kernel)", &|run| run.bgp);
    tell(aligned(&table).trim_end());
    Ok(true)
}

fn one(
    lab: &Lab,
    node: &Node,
    others: &[&Node],
    monitors: &Monitors,
    prefix: Ipv4Net,
) -> Result<Run> {
    let object = object(lab, node, prefix)?;
    let file = match lab.frr_k8s {
        Some(_) => frr_k8s::folder(lab, &node.name).join("frr.conf"),
        None => lab.frr_dir(&node.name).join("frr.conf"),
    };
    let before = modified(&file);
    kubectl(lab)
        .args(["create", "--raw", PATH, "-f", "-"])
        .input(object.to_string())
        .run()?;
    let command = format!("show bgp ipv4 unicast {prefix} json");
    let mut in_table = None;
    let known = until(PATIENCE, Duration::from_millis(5), || {
        let shown = vtysh(lab, &node.name, &[&command]).run().ok()?;
        let parsed: Value = serde_json::from_str(shown.trim()).ok()?;
        in_table = Some(wall());
        parsed.get("paths").map(drop)
    });
    let in_table = known
        .and(in_table)
        .with_context(|| format!("bgpd of {} has no {prefix} after {PATIENCE:?}", node.name))?;
    let last = monitors.wait(others.len(), prefix)?;
    let created = created(lab)?;
    let written = modified(&file)
        .filter(|time| Some(*time) != before)
        .context("frr.conf was not written")?;
    let seconds = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64();
    // A peer may have the route before the look at bgpd's table has ended.
    let in_table = in_table.min(last);
    Ok(Run {
        applier: seconds(created, written),
        reload: seconds(written, in_table),
        bgp: seconds(in_table, last),
    })
}

/// A prefix of the nodes' length, from the end of the cluster subnet: what peers accept, and no node has.
fn unused(lab: &Lab, number: usize) -> Result<Ipv4Net> {
    let (subnet, host_prefix) = lab.values.default_network()?.ipv4_range()?;
    let subnets: Vec<Ipv4Net> = subnet.subnets(host_prefix)?.collect();
    let index = subnets.len().checked_sub(1 + number % 50);
    let prefix = index.and_then(|index| subnets.get(index).copied());
    prefix.context("the cluster subnet is too small")
}

/// What the node has already, with the prefix in place of its own.
fn object(lab: &Lab, node: &Node, prefix: Ipv4Net) -> Result<Value> {
    let list = get(lab, PATH)?;
    let selects = |object: &&Value| {
        let label = object.pointer("/spec/nodeSelector/matchLabels/kubernetes.io~1hostname");
        label.and_then(Value::as_str) == Some(&node.name)
    };
    let found = items(&list).iter().find(selects);
    let found = found.with_context(|| format!("no FRRConfiguration selects {}", node.name))?;
    let mut bgp = found.pointer("/spec/bgp").cloned().unwrap_or(Value::Null);
    let routers = bgp.get_mut("routers").and_then(Value::as_array_mut);
    for router in routers.into_iter().flatten() {
        let neighbors = router.get_mut("neighbors").and_then(Value::as_array_mut);
        for neighbor in neighbors
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            neighbor.remove("toReceive");
            let allowed = json!({"allowed": {"mode": "filtered", "prefixes": [prefix]}});
            neighbor.insert("toAdvertise".to_owned(), allowed);
        }
        if let Some(router) = router.as_object_mut() {
            router.insert("prefixes".to_owned(), json!([prefix]));
        }
    }
    Ok(json!({
        "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": "FRRConfiguration",
        "metadata": {"name": NAME, "namespace": "frr-k8s-system"},
        "spec": {"nodeSelector": found.pointer("/spec/nodeSelector"), "bgp": bgp},
    }))
}

fn remove(lab: &Lab) -> Result<()> {
    kubectl(lab)
        .args(["delete", "--raw", &format!("{PATH}/{NAME}")])
        .run()
        .map(drop)
}

fn gone(lab: &Lab, others: &[&Node], prefix: Ipv4Net) -> Result<()> {
    let clean = until(PATIENCE, Duration::from_millis(100), || {
        let has = |node: &&Node| {
            let routes = kernel_routes(lab, &node.name).unwrap_or_default();
            routes.iter().any(|(to, _)| *to == prefix.into())
        };
        (!others.iter().any(has)).then_some(())
    });
    clean.with_context(|| format!("{prefix} is still routed after its object was deleted"))
}

/// When the API server got the object, by the last record of its creation.
fn created(lab: &Lab) -> Result<Duration> {
    let log = std::fs::read_to_string(audit_log(lab))?;
    let event = log
        .lines()
        .rev()
        .filter(|line| line.contains(NAME))
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|event| event.get("verb").and_then(Value::as_str) == Some("create"));
    let event = event.context("the audit log does not tell of the object")?;
    let time = event
        .get("requestReceivedTimestamp")
        .and_then(Value::as_str);
    time.and_then(since_epoch)
        .context("requestReceivedTimestamp of the audit log")
}

/// `2026-11-21T15:22:03.123456Z` as the time since 1970.
fn since_epoch(text: &str) -> Option<Duration> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-').map(str::parse::<u64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let mut time = time.split(':');
    let (hour, minute) = (time.next()?, time.next()?);
    let (hour, minute): (u64, u64) = (hour.parse().ok()?, minute.parse().ok()?);
    let second: f64 = time.next()?.parse().ok()?;
    // Days of the Gregorian calendar, the year beginning with March.
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + of_year - 719_468;
    let whole = Duration::from_secs(days * 86_400 + hour * 3600 + minute * 60);
    Some(whole + Duration::try_from_secs_f64(second).ok()?)
}

fn modified(file: &std::path::Path) -> Option<Duration> {
    let time = std::fs::metadata(file).ok()?.modified().ok()?;
    time.duration_since(UNIX_EPOCH).ok()
}

/// `ip monitor` on several nodes.
struct Monitors {
    children: Vec<Child>,
    reported: Receiver<(usize, String, Duration)>,
}

impl Monitors {
    fn start(lab: &Lab, nodes: &[&Node]) -> Result<Self> {
        let (tell, reported) = channel();
        let mut children = Vec::new();
        for (number, node) in nodes.iter().enumerate() {
            let mut child = tool("ip")
                .args(["-n", &lab.namespace(&node.name), "-o", "monitor", "route"])
                .with(|c| {
                    c.stdin(Stdio::null())
                        .stdout(Stdio::piped())
                        .stderr(Stdio::null());
                })
                .spawn()?;
            let lines = BufReader::new(child.stdout.take().context("ip's output")?).lines();
            children.push(child);
            let tell = tell.clone();
            std::thread::spawn(move || {
                for line in lines.map_while(std::result::Result::ok) {
                    // Nobody listens any more once the command has ended.
                    drop(tell.send((number, line, wall())));
                }
            });
        }
        Ok(Self { children, reported })
    }

    /// When the last of `count` nodes got a route to the prefix.
    fn wait(&self, count: usize, prefix: Ipv4Net) -> Result<Duration> {
        let head = format!("{prefix} ");
        let mut seen = std::collections::BTreeMap::new();
        while seen.len() < count {
            let Ok((node, line, at)) = self.reported.recv_timeout(PATIENCE) else {
                bail!(
                    "only {} of {count} nodes got a route to {prefix}",
                    seen.len()
                );
            };
            if line.starts_with(&head) {
                seen.entry(node).or_insert(at);
            }
        }
        seen.into_values().max().context("no node")
    }

    fn drain(&self) {
        while self.reported.try_recv().is_ok() {}
    }
}

impl Drop for Monitors {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended by itself; there is nothing to do then.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_logs_time_is_read() {
        let seen = |text| since_epoch(text).map(|time| time.as_micros());
        assert_eq!(seen("1970-01-01T00:00:00.000000Z"), Some(0));
        assert_eq!(
            seen("2026-11-21T15:22:03.123456Z"),
            Some(1_795_274_523_123_456)
        );
        assert_eq!(seen("2024-02-29T23:59:59.5Z"), Some(1_709_251_199_500_000));
        assert_eq!(seen("yesterday"), None);
    }
}
