//! The process under test: the node-agent's import, with a world that stands still.
//! In: a Northbound socket, the gateway's link. Out: rows; `agreed` on standard output after each pass that wrote, and after
//! the first. Invariant: the same loop, pace and code as in the node-agent.
//! Not here: the rest of the node-agent.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use model::route::MAIN_TABLE;
use model::{NetworkName, NodeName, Prefix};
use netlink::{Watcher, dump};
use node_agent::import::{Hearing, Import, ImportConfig, Inputs, Passed, TIMING};
use node_agent::metrics::ImportMetrics;
use ovsdb::{Client, ClientConfig, Endpoint};
use plan_node::breaker::Threshold;
use plan_node::imports::{self, BgpDefault, ImportWorld};
use plan_node::subnets::Subnets;
use reconcile::{Poker, Subjects, Verdict};

#[derive(Debug, clap::Args)]
pub(crate) struct AgentArguments {
    /// Socket of the Northbound database.
    #[arg(long)]
    north: PathBuf,
    /// Name of the gateway's link.
    #[arg(long)]
    link: String,
}

struct OneNetwork {
    import: Import,
    inputs: Arc<Inputs>,
    poker: Poker<()>,
    again: Option<tokio::task::JoinHandle<()>>,
    said: bool,
}

impl Subjects for OneNetwork {
    type Key = ();

    async fn universe(&mut self) -> Option<Vec<()>> {
        Some(vec![()])
    }

    async fn pass(&mut self, (): &()) -> Verdict {
        let passed = self.import.pass(&self.inputs).await;
        if let Some(before) = self.again.take() {
            before.abort();
        }
        if let Some(wait) = self.import.again() {
            let poker = self.poker.clone();
            self.again = Some(tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                poker.poke(());
            }));
        }
        match passed {
            Ok(Passed::NotReady) => Verdict::Blocked,
            Ok(Passed::Agreed { looked, .. }) => {
                if !std::mem::replace(&mut self.said, true) {
                    println!("agreed");
                }
                if looked {
                    Verdict::Settled
                } else {
                    Verdict::Idle
                }
            }
            Err(error) => {
                eprintln!("{}", telemetry::Chain(&error));
                Verdict::Retry
            }
        }
    }
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
    let world = ImportWorld {
        gateway_link: Some(link.index),
        cluster_subnets: vec![subnet("10.128.0.0/14")?],
        host_subnets: vec![subnet("10.128.0.0/24")?],
        join_subnets: vec![subnet("100.64.0.0/16")?],
        other_networks: Subnets::default(),
        own_addresses: link.addresses.iter().map(|a| a.ip).collect(),
        no_overlay: true,
        taken: BTreeSet::new(),
        bgp_default: BgpDefault::Ignore,
    };
    let endpoint = Endpoint::Unix(arguments.north.clone());
    let mut config = ClientConfig::new(endpoint, ovn::north::DATABASE);
    config.tables = ovn::north::monitor();
    let north = Client::connect(config);
    let hearing = Arc::new(Hearing::default());
    let poker = Poker::new();
    let import = Import::new(
        ImportConfig {
            target: imports::target(&NetworkName::default_network(), &NodeName::from("n1")),
            limit: 200_000,
            stale: Duration::from_secs(120),
            threshold: Threshold {
                share: 50,
                least: 10,
                window: Duration::from_secs(2),
                hold: Duration::from_secs(60),
            },
        },
        north.clone(),
        None,
        Arc::clone(&hearing),
        ImportMetrics::new(&prometheus::Registry::new())?,
    );
    let mut watcher = Watcher::open()?;
    let to = poker.clone();
    tokio::spawn(async move {
        while let Ok(change) = watcher.changed().await {
            if hearing.note(change) {
                to.poke(());
            }
        }
    });
    let to = poker.clone();
    let mut status = north.watch();
    tokio::spawn(async move {
        while status.changed().await.is_ok() {
            to.poke(());
        }
    });
    let subjects = OneNetwork {
        import,
        inputs: Arc::new(Inputs {
            table: Some(MAIN_TABLE),
            world,
            owners: Vec::new(),
            release: None,
        }),
        poker: poker.clone(),
        again: None,
        said: false,
    };
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    reconcile::run(subjects, poker, TIMING, stopped).await;
    Ok(())
}
