//! The process under test: the node-agent's import, with a scope that stands still.
//! In: a Northbound socket, the gateway's link. Out: rows; `agreed` on standard output after the first pass that found rows
//! and routes in agreement. Invariant: the node-agent's own `Import`, in the same loop at the same pace.
//! Not here: the rest of the node-agent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use frr_edge::Frr;
use import_tests::{Agent, AgentConfig};
use model::gateway::BgpDefault;
use model::route::{MAIN_TABLE, TableId};
use model::subnets::Subnets;
use model::{NetworkName, Prefix, Scope};
use netlink::dump;
use node_agent::importing::Inputs;

use crate::kernel::prefix;
use crate::sets::SET;

#[derive(Debug, clap::Args)]
pub(crate) struct AgentArguments {
    /// Socket of the Northbound database.
    #[arg(long)]
    north: PathBuf,
    /// Name of the gateway's link.
    #[arg(long)]
    link: String,
    /// `[limits] max-imported-routes`.
    #[arg(long)]
    limit: u32,
    /// Folder of FRR's vty sockets.
    #[arg(long)]
    vty_socket: PathBuf,
    /// Networks of users beside the default one.
    #[arg(long, default_value_t = 0)]
    networks: u16,
    /// Instead of routes of a router: a set of so many subnets.
    #[arg(long, default_value_t = 0)]
    sets: u32,
}

/// The `number`-th network of users, from 1 on.
pub(crate) fn network(number: u16) -> NetworkName {
    NetworkName::from(format!("cluster_udn_n{number}"))
}

/// Its routing table.
pub(crate) fn table(number: u16) -> TableId {
    10_000 + TableId::from(number)
}

pub(crate) fn run(arguments: &AgentArguments) -> Result<()> {
    // As the node-agent's.
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(serve(arguments))
}

async fn serve(arguments: &AgentArguments) -> Result<()> {
    let links = dump::links()?;
    let link = links.iter().find(|link| link.name == arguments.link);
    let link = link.with_context(|| format!("there is no link {}", arguments.link))?;
    let subnet = |text: &str| text.parse::<Prefix>();
    let scope = Scope {
        gateway_link: Some(link.index),
        cluster_subnets: vec![subnet("10.128.0.0/14")?],
        host_subnets: vec![subnet("10.128.0.0/24")?],
        join_subnets: vec![subnet("100.64.0.0/16")?],
        other_networks: Subnets::default(),
        fallbacks: std::collections::BTreeMap::new(),
        fallbacks_known: true,
        own_addresses: link.addresses.iter().map(|a| a.ip).collect(),
        no_overlay: true,
        taken: BTreeSet::new(),
        bgp_default: BgpDefault::Ignore,
    };
    let more = 1..=arguments.networks;
    let networks: BTreeMap<NetworkName, Inputs> = more
        .map(|number| {
            let inputs = Inputs {
                learns: true,
                table: Some(table(number)),
                scope: scope.clone(),
                owners: Subnets::default(),
                release: None,
                sets: None,
            };
            (network(number), inputs)
        })
        .collect();
    // Subnets of a network whose own is a /8.
    let subnets = (0..arguments.sets).map(|at| Ok((subnet(&format!("{}/24", prefix(at)))?, 8)));
    let subnets: BTreeMap<Prefix, u8> = subnets.collect::<Result<_>>()?;
    let sets = (arguments.sets > 0).then(|| [(SET.to_owned(), subnets)].into());
    let agent = Agent::start(AgentConfig {
        networks,
        socket: arguments.north.clone(),
        inputs: Inputs {
            learns: true,
            table: Some(MAIN_TABLE),
            scope,
            owners: Subnets::default(),
            release: None,
            sets,
        },
        frr: Some(Frr::new(
            arguments.vty_socket.clone(),
            arguments.vty_socket.join("frr.conf"),
        )),
        limit: arguments.limit,
        hold: Duration::from_secs(60),
        buffer: None,
    });
    agent.until_agreed().await;
    println!("agreed");
    // Until it is killed.
    std::future::pending().await
}
