//! Commands and their arguments.
//!
//! In: the command line and three variables that `hack/lab` sets (where daemons, tools
//! and manifests are). Out: what the command gives; `false` ends with status 1.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use nix::sys::signal::Signal;

use crate::daemons::{AutoTopology, Outward};
use crate::example::Example;
use crate::family::Families;
use crate::networks::{self, UserNetwork};
use crate::objects::kubeconfig_of;
use crate::process::{self, tail};
use crate::run::tell;
use crate::state::{Lab, Places, text};
use crate::up::{Steps, Wanted, own_folder, up};
use crate::values::Values;
use crate::{
    beside, daemons, dataplane, down, failover, frr_k8s, measure, membership, object_to_route,
    ovn_kubernetes, proof, status, supervisor,
};

#[derive(Parser)]
#[command(
    name = "lab",
    about = "A cluster of real parts on one machine, and the proof that it works"
)]
struct Arguments {
    /// Keeps two labs apart.
    #[arg(long, global = true, default_value = "lab")]
    name: String,
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one of them, once")]
enum Cmd {
    /// Set everything up and prove that it works; a running lab is kept.
    Up {
        /// Number of nodes, 1 to 24.
        #[arg(long, default_value_t = 3)]
        nodes: u32,
        /// Draw other addresses, names and numbers from this.
        #[arg(long)]
        seed: Option<u64>,
        /// Only set up.
        #[arg(long)]
        no_prove: bool,
        /// Leave out one of our daemons.
        #[arg(long, value_parser = crate::daemons::PROGRAMS)]
        without: Option<String>,
        /// `[bgp-managed] profile` of the daemons' configuration.
        #[arg(long, value_parser = crate::daemons::PROFILES, default_value = "resilient")]
        profile: String,
        /// `[bgp-managed] topology` of the daemons' configuration.
        #[arg(long, value_parser = crate::daemons::TOPOLOGIES, default_value = "full-mesh")]
        topology: String,
        #[command(flatten)]
        auto: AutoTopology,
        #[command(flatten)]
        outward: Outward,
        /// Networks of users, several by commas: NAME=SUBNET/HOST without an overlay, with managed routing (the kernel must have VRFs); NAME=vrf:SUBNET/HOST the same in a VRF of its own, over links of its own, where subnets may be another one's, too (local gateway mode); NAME=geneve:SUBNET/HOST over tunnels, not advertised; NAME=layer2:SUBNET of layer 2, over tunnels, advertised. Of both families: SUBNET/HOST+SUBNET/HOST, SUBNET+SUBNET.
        #[arg(
            long,
            value_name = "NETWORKS",
            value_delimiter = ',',
            conflicts_with = "example"
        )]
        network: Vec<UserNetwork>,
        /// Run this controller of frr-k8s on each node, in place of frr-agent.
        #[arg(long, value_name = "BINARY")]
        frr_k8s: Option<PathBuf>,
        /// Run real OVN-Kubernetes, and our daemons beside it (`topology = adopt` of `[ovn]`): a folder with `ovnkube`, `ovn-k8s-cni-overlay`, its definitions in `crds`, and OVN 26.03 with its Open vSwitch installed in `ovn`.
        #[arg(long, value_name = "FOLDER", conflicts_with_all = ["adopt", "example", "transport"])]
        ovn_kubernetes: Option<PathBuf>,
        /// Another physical network: a folder like those in docs/examples/routing.
        #[arg(long, value_name = "FOLDER", conflicts_with_all = ["seed", "profile", "topology"])]
        example: Option<PathBuf>,
        /// Which addresses nodes, pods and the API server have.
        #[arg(long, value_enum, default_value = "ipv4", conflicts_with = "example")]
        families: Families,
        /// Seconds to wait for the pods.
        #[arg(long, default_value_t = 120)]
        wait: u64,
    },
    /// Nodes, sessions, routes and pods as a table.
    Status,
    /// Prove the lines, all or some.
    Prove {
        /// Numbers of lines, for example 1,5.
        #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(proof::NUMBERS))]
        only: Vec<u8>,
        /// Length of line 7's quiet time in seconds.
        #[arg(long, default_value_t = 60)]
        quiet: u64,
        /// Seconds that line 6's node gets to join, and to be forgotten (default: by the number of nodes).
        #[arg(long)]
        patience: Option<u64>,
    },
    /// Memory and processor time of the daemons, writes to the API and databases.
    Measure {
        /// Length of the measurement.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Instead: how long an object takes until it is a route on the other nodes.
        #[arg(long)]
        object_to_route: bool,
        /// How often that is measured.
        #[arg(long, default_value_t = 20)]
        runs: usize,
    },
    /// Throughput, cost, round trips and headers of packets between pods on two nodes, of one lab or of several in turn.
    Dataplane {
        #[command(flatten)]
        wanted: dataplane::Measure,
    },
    /// Break something under pings between all pods and tell what it cost: bgpd dies and
    /// comes back, an uplink is cut, zebra and bgpd are ended in good order, the fabric gets
    /// route reflectors and becomes a mesh again, with topology `auto` nodes join and leave until
    /// both have happened, the link of a router is cut, a route reflector dies, is cut off and
    /// is drained, outbound SNAT is switched, agents and ovn-controllers start again, networks come and go; beside an imitation of OVN-Kubernetes the way past its tunnels comes, goes and is broken (--only).
    Failover {
        /// Only one of them.
        #[arg(long, value_parser = failover::NAMES)]
        only: Option<String>,
        /// The node (router: the router) to break (default: the first).
        #[arg(long)]
        node: Option<String>,
        /// frr-stop: how often each stop is repeated.
        #[arg(long, default_value_t = 20)]
        rounds: u32,
        /// frr-stop: how many routes from outside stand beside those to the other nodes.
        #[arg(long, default_value_t = 1)]
        routes: u16,
    },
    /// A node joins or leaves.
    Node {
        #[command(subcommand)]
        change: Change,
    },
    /// Lead pods past the tunnels of OVN-Kubernetes or its imitation or back (a lab that came up with --ovn-kubernetes or --adopt),
    /// and wait until every node has followed.
    Transport {
        #[arg(value_parser = ["no-overlay", "geneve"])]
        transport: String,
    },
    /// Adds foreign rows, rules and routes beside those of the imitation of OVN-Kubernetes, changes and deletes some of its own, and
    /// compares what becomes of each with what was recorded of OVN-Kubernetes.
    CheckImitation,
    /// kubectl as the cluster's admin.
    Kubectl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// `noverlay`, with the rights of the read-only account of the manifests and nothing else.
    Noverlay {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run a command in a node's namespace (also: underlay, outside, NODE-pod).
    Exec {
        node: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// Logs of a node (or of underlay): the end of each, or one whole.
    Logs {
        node: String,
        daemon: Option<String>,
    },
    /// Stop (SIGKILL), end (SIGTERM), start, freeze or thaw one daemon: no death, but a
    /// failure to play with.
    Daemon {
        #[arg(value_parser = ["stop", "end", "start", "freeze", "thaw"])]
        action: String,
        node: String,
        daemon: String,
    },
    /// Take everything away.
    Down,
    #[command(hide = true)]
    Supervise,
    #[command(hide = true)]
    Container { file: PathBuf },
    #[command(hide = true)]
    Reloader { node: String },
    #[command(hide = true)]
    FrrK8s { node: String },
    #[command(hide = true)]
    OvnkubeImitation { node: String },
    #[command(hide = true)]
    AsOvnKubernetes {
        node: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    #[command(hide = true)]
    SystemdStandIn,
}

#[derive(Subcommand)]
enum Change {
    /// Add a node and wait until its pod reaches all others.
    Add { node: String },
    /// Delete the Node object and switch the node off.
    Remove { node: String },
}

/// Runs the command of the command line.
#[expect(clippy::too_many_lines, reason = "a list of commands")]
pub(crate) fn run() -> Result<bool> {
    let Arguments { name, command } = Arguments::parse();
    let steps = Steps::begin();
    match command {
        Cmd::Up {
            nodes,
            seed,
            no_prove,
            without,
            profile,
            topology,
            auto,
            outward,
            network,
            frr_k8s,
            ovn_kubernetes,
            example,
            families,
            wait,
        } => {
            let _lock = lock(&name)?;
            let values = match seed {
                Some(seed) => Values::drawn(seed, families),
                None => Values::demonstration(families),
            };
            let mut outward = outward;
            outward.adopt |= ovn_kubernetes.is_some();
            networks::check(&network, &values, outward.adopt)?;
            let example = example.map(|folder| Example::read(&folder, &values));
            let example = example.transpose()?;
            if outward.adopt {
                // What it is adopted from.
                "geneve".clone_into(&mut outward.transport);
            }
            if let Some(example) = &example {
                example.apply_to(&mut outward)?;
            }
            let wait = Duration::from_secs(wait);
            let wanted = Wanted {
                name,
                values,
                nodes,
                without,
                profile,
                topology,
                auto,
                outward,
                networks: network,
                frr_k8s: frr_k8s.map(std::path::absolute).transpose()?,
                ovn_kubernetes: ovn_kubernetes.map(std::path::absolute).transpose()?,
                example,
                places: places()?,
                wait,
            };
            let mut lab = up(&wanted, steps)?;
            if no_prove {
                return status::print(&lab);
            }
            proof::prove(&mut lab, &proof::Wanted::default())
        }
        Cmd::Status => status::print(&Lab::running(&name)?),
        Cmd::Prove {
            only,
            quiet,
            patience,
        } => {
            let _lock = lock(&name)?;
            let wanted = proof::Wanted {
                only,
                quiet,
                patience: patience.map(Duration::from_secs),
            };
            proof::prove(&mut Lab::running(&name)?, &wanted)
        }
        Cmd::Measure {
            object_to_route: true,
            runs,
            ..
        } => {
            let _lock = lock(&name)?;
            object_to_route::print(&Lab::running(&name)?, runs)
        }
        Cmd::Measure { seconds, .. } => measure::print(&Lab::running(&name)?, seconds),
        Cmd::Dataplane { wanted } => dataplane::print(&name, &wanted),
        Cmd::Failover {
            only,
            node,
            rounds,
            routes,
        } => {
            let _lock = lock(&name)?;
            let stops = failover::Stops { rounds, routes };
            let lab = Lab::running(&name)?;
            failover::demonstrate(&lab, only.as_deref(), node.as_deref(), stops)
        }
        Cmd::Node { change } => {
            let _lock = lock(&name)?;
            node(&mut Lab::running(&name)?, &change, steps)
        }
        Cmd::Transport { transport } => {
            let _lock = lock(&name)?;
            beside::switch(&mut Lab::running(&name)?, &transport, steps)?;
            steps.say(&format!("every node has followed: transport {transport}"));
            Ok(true)
        }
        Cmd::CheckImitation => {
            let _lock = lock(&name)?;
            beside::survival::demonstrate(&Lab::running(&name)?)
        }
        Cmd::Kubectl { arguments } => kubectl(&Lab::running(&name)?, &arguments),
        Cmd::Noverlay { arguments } => noverlay(&Lab::running(&name)?, &arguments),
        Cmd::Exec { node, command } => exec(&Lab::running(&name)?, &node, &command),
        Cmd::Logs { node, daemon } => logs(&name, &node, daemon.as_deref()),
        Cmd::Daemon {
            action,
            node,
            daemon,
        } => tend(&Lab::running(&name)?, &action, &node, &daemon).map(|()| true),
        Cmd::Down => {
            let _lock = lock(&name)?;
            down::down(&name)?;
            steps.say(&format!("lab {name} is gone"));
            Ok(true)
        }
        Cmd::Container { file } => daemons::become_container(&file).map(|()| true),
        Cmd::Reloader { node } => frr_k8s::reload_for_ever(&record(&name)?, &node).map(|()| true),
        Cmd::OvnkubeImitation { node } => {
            beside::player::play(&record(&name)?, &node).map(|()| true)
        }
        Cmd::AsOvnKubernetes { node, command } => {
            ovn_kubernetes::become_program(&record(&name)?, &node, &command).map(|()| true)
        }
        Cmd::SystemdStandIn => {
            let socket = ovn_kubernetes::systemd_socket(&record(&name)?)?;
            ovn_kubernetes::systemd::answer(&socket).map(|()| true)
        }
        Cmd::FrrK8s { node } => frr_k8s::become_controller(&record(&name)?, &node).map(|()| true),
        Cmd::Supervise => supervisor::watch(&name).map(|()| true),
    }
}

/// The record of a lab, also of one that is only coming up.
fn record(name: &str) -> Result<Lab> {
    Lab::load(name).with_context(|| format!("no lab {name}"))
}

/// Held while a lab is changed; gone with the process, however it ends.
fn lock(name: &str) -> Result<UnixListener> {
    let address = SocketAddr::from_abstract_name(format!("noverlay-lab-{name}"))?;
    UnixListener::bind_addr(&address)
        .with_context(|| format!("another command is at work on lab {name}"))
}

fn places() -> Result<Places> {
    let variable = |key: &str| {
        std::env::var_os(key)
            .map(PathBuf::from)
            .with_context(|| format!("{key} is not set: call hack/lab"))
    };
    let daemons = match std::env::var_os("NOVERLAY_BIN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => own_folder()?,
    };
    Ok(Places {
        daemons,
        tools: variable("NOVERLAY_TOOLS_DIR")?,
        manifests: variable("NOVERLAY_MANIFESTS")?,
    })
}

fn node(lab: &mut Lab, change: &Change, steps: Steps) -> Result<bool> {
    match change {
        Change::Add { node } => membership::add(lab, node, None, steps).map(|_| true),
        Change::Remove { node } => membership::remove(lab, node, steps).map(|()| true),
    }
}

fn kubectl(lab: &Lab, arguments: &[String]) -> Result<bool> {
    let underlay = lab.node_dir("underlay");
    let program = text(&lab.places.tools.join("kubectl"));
    let error = Command::new("ip")
        .args(["netns", "exec", &lab.namespace("underlay"), &program])
        .args(arguments)
        .env("KUBECONFIG", underlay.join("admin.kubeconfig"))
        .env("KUBECACHEDIR", underlay.join("kubectl-cache"))
        .exec();
    Err(error).context("kubectl")
}

/// The admin's command, as somebody who may only look.
fn noverlay(lab: &Lab, arguments: &[String]) -> Result<bool> {
    let program = lab.places.daemons.join("noverlay");
    let error = Command::new("ip")
        .args(["netns", "exec", &lab.namespace("underlay"), &text(&program)])
        .args(arguments)
        .env("KUBECONFIG", kubeconfig_of(lab, "noverlay-view"))
        .exec();
    Err(error).with_context(|| text(&program))
}

fn exec(lab: &Lab, node: &str, command: &[String]) -> Result<bool> {
    let rundir = lab.ovs_dir(node);
    let error = Command::new("ip")
        .args(["netns", "exec", &lab.namespace(node)])
        .args(command)
        .env("OVS_RUNDIR", &rundir)
        .env("OVN_RUNDIR", &rundir)
        .exec();
    Err(error).context("ip netns exec")
}

fn logs(name: &str, node: &str, daemon: Option<&str>) -> Result<bool> {
    let on_node = process::records(&Lab::folder(name))
        .into_iter()
        .filter(|r| r.start.node == node);
    let wanted: Vec<_> = on_node
        .filter(|r| daemon.is_none_or(|d| d == r.start.name))
        .collect();
    if wanted.is_empty() {
        bail!("no such daemon on {node}");
    }
    for record in wanted {
        if daemon.is_some() {
            tell(std::fs::read_to_string(&record.start.log)?.trim_end());
        } else {
            tell(&format!(
                "{}:\n{}",
                record.start.log.display(),
                tail(&record.start.log, 15)
            ));
        }
    }
    Ok(true)
}

fn tend(lab: &Lab, action: &str, node: &str, daemon: &str) -> Result<()> {
    let record = process::record(lab, node, daemon)?;
    match action {
        "stop" => process::stop(lab, node, daemon, Signal::SIGKILL),
        "end" => process::stop(lab, node, daemon, Signal::SIGTERM),
        "freeze" => process::send(&record, Signal::SIGSTOP),
        "thaw" => process::send(&record, Signal::SIGCONT),
        _ if record.alive() => bail!("{daemon} of {node} is running"),
        _ => process::start(lab, record.start, record.restarts).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(words: &str) -> std::result::Result<(), String> {
        let words = ["lab", "prove", "--only", words];
        Arguments::try_parse_from(words)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_proof_takes_the_numbers_of_its_lines_and_no_others() {
        for good in ["1", "9", "1,5,8"] {
            assert_eq!(only(good), Ok(()), "{good}");
        }
        for bad in ["0", "10", "1,10", "", ","] {
            assert!(only(bad).is_err(), "--only {bad:?}");
        }
        let said = only("10").unwrap_err();
        assert!(said.contains("'10'") && said.contains("1..=9"), "{said}");
    }
}
