//! What another process left beside OVN-Kubernetes, before this one begins.
//! In: OVN_Northbound, the packet filter, the kernel's rules, the last report. Out: how much of each network stands.
//! Invariant: it is looked at once for all networks that begin, and what cannot be read says nothing of any.
//! Not here: at which step that is (`plan_node::beside::steps`).

use std::collections::BTreeSet;
use std::time::Duration;

use ::host::nft::{self, Held};
use api::node_routes::NodeRoutes;
use model::nb::{Owner, Table};
use model::{Network, NodeName, Prefix, nft::Table as FilterTable};
use ovn::north::North;
use ovsdb::Client;
use plan_node::beside::host;
use plan_node::beside::steps::{Part, Seen};
use telemetry::Chain;

/// For so long an answer of the API server is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where this node's NodeRoutes is asked for.
pub(crate) struct Reports {
    pub(crate) kube: kube::Client,
    pub(crate) node: NodeName,
}

impl Reports {
    /// What was reported before this process, if anything; or why that cannot be told.
    async fn own(&self) -> Result<Option<NodeRoutes>, String> {
        let api: kube::Api<NodeRoutes> = kube::Api::all(self.kube.clone());
        let asked = tokio::time::timeout(PATIENCE, api.get_opt(self.node.as_str())).await;
        let asked =
            asked.map_err(|_| "the API server does not tell NodeRoutes in time".to_owned())?;
        asked.map_err(|error| Chain(&error).to_string())
    }
}

/// What another process may have left, looked at once for all networks that begin.
pub(super) struct LeftBehind {
    pub(super) report: Option<NodeRoutes>,
    north: North,
    filter: Held,
    /// Where rules and routes lead to.
    rules: BTreeSet<Prefix>,
}

impl LeftBehind {
    /// Looks; or why it cannot be told.
    pub(super) async fn look(north: &Client, reports: &Reports) -> Result<Self, String> {
        // What is not followed yet may stand.
        let in_step = north.has_conditions();
        let decoded = north.with_replica(ovn::north::decode);
        let decoded = decoded.filter(|_| in_step);
        let north = decoded.ok_or("OVN_Northbound is not in step yet")?;
        let filter = nft::read(FilterTable::Own).await;
        let rules = netlink::steering::destinations().await;
        Ok(Self {
            report: reports.own().await?,
            north: north.map_err(|error| Chain(&error).to_string())?,
            filter: filter.map_err(|error| Chain(&error).to_string())?,
            rules: rules.map_err(|error| Chain(&error).to_string())?,
        })
    }

    /// What stands of a network; or why nothing of it is to be touched.
    pub(super) fn of(&self, network: &Network) -> Result<Seen, String> {
        let rows = self.north.of(&Owner::Network(network.name.clone()));
        if rows
            .keys()
            .any(|key| matches!(key.table, Table::Router | Table::Switch))
        {
            return Err("OVN_Northbound holds routers or switches that noverlay built ([ovn] topology = build): nothing of it is touched".to_owned());
        }
        let part = |stands: bool| Some(if stands { Part::Partial } else { Part::Gone });
        let has = |table: Table| rows.keys().any(|key| key.table == table);
        let sets = host::sets_of(network.id);
        let leads = |to: &Prefix| network.holds(to);
        Ok(Seen {
            untracked: part(has(Table::PortGroup)),
            filter: part(sets.iter().any(|set| self.filter.has_set(set))),
            rules: part(self.rules.iter().any(leads)),
            announced: None,
            steering: part(has(Table::Policy)),
        })
    }
}
