//! The import of one network beside OVN-Kubernetes: which pod subnets of other nodes are led past the tunnels.
//! In: the kernel's routes, subnets of nodes that are ready. Out: guarded transactions on the network's Address_Sets.
//! Invariant: a subnet that the kernel has lost leaves at once, since the tunnel has it (`decisions/0013`); nothing is written before
//! all routes have been read; after each pass that ended the sets hold what the kernel forwards and nothing else.
//! Not here: the sets themselves and the policy that looks into them (`loops::north`), which subnets may be in them (`plan_node`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use import::{Importer, budget};
use model::{NetworkName, Prefix};
use ovsdb::{Client, Uuid};
use plan_node::Inputs;
use settings::Limits;

use super::event_buffer::EventBuffer;
use super::kernel_routes::{KernelRoutes, Touched};
use super::{ImportError, Passed};
use crate::metrics::ImportMetrics;
use crate::transact::transact;

/// The import of one network on this node.
pub struct SetImport {
    network: NetworkName,
    north: Client,
    limits: Limits,
    metrics: ImportMetrics,
    kernel: KernelRoutes,
    /// Of each subnet that may be in a set: whether the kernel forwards it.
    ways: BTreeMap<Prefix, bool>,
    /// Some destination was over the limit: each one that comes or goes lets another one in.
    over: bool,
    /// What the sets hold.
    steered: Arc<BTreeSet<Prefix>>,
}

impl SetImport {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(
        network: NetworkName,
        north: Client,
        limits: Limits,
        event_buffer: Arc<EventBuffer>,
        metrics: ImportMetrics,
    ) -> Self {
        Self {
            kernel: KernelRoutes::new(&limits, event_buffer, metrics.resyncs.clone()),
            network,
            north,
            limits,
            metrics,
            ways: BTreeMap::new(),
            over: false,
            steered: Arc::default(),
        }
    }

    /// What reports are made from.
    #[must_use]
    pub fn importer(&self) -> &Importer<Uuid> {
        &self.kernel.importer
    }

    /// The subnets that the sets hold.
    #[must_use]
    pub fn steered(&self) -> &Arc<BTreeSet<Prefix>> {
        &self.steered
    }

    /// Whether the kernel has BGP's routes to pods of other nodes.
    #[must_use]
    pub fn is_routed(&self, inputs: &Inputs) -> bool {
        let scope = &inputs.scope;
        let mut networks = scope.cluster_subnets.iter();
        networks.any(|network| {
            self.importer()
                .has_routes_within(network, &scope.host_subnets)
        })
    }

    /// Takes other limits; the next pass acts on them.
    pub fn set_limits(&mut self, limits: &Limits) {
        if self.limits != *limits {
            self.limits = *limits;
            self.kernel.set_limit(limits);
        }
    }

    /// How soon a pass has to follow although nothing enqueues it.
    #[must_use]
    pub fn again(&self) -> Option<Duration> {
        self.kernel.again()
    }

    /// Brings the sets to what the kernel forwards.
    ///
    /// # Errors
    /// When something could not be read or written; the next pass goes on from there.
    pub async fn pass(&mut self, inputs: &Arc<Inputs>) -> Result<Passed, ImportError> {
        let looked = self.kernel.hear(inputs).await?;
        let Some(sets) = &inputs.sets else {
            return Ok(Passed::NotReady);
        };
        let touched = self.kernel.touched();
        let is_news = touched != Touched::default();
        self.evaluate(sets, &touched);
        let (mut wrote, mut steered, mut is_whole) = ((0, 0), BTreeSet::new(), true);
        for (name, subnets) in sets {
            let wanted: BTreeSet<Prefix> = self.forwarded(subnets).collect();
            match self.fill(name, &wanted).await? {
                Some((add, remove)) => wrote = (wrote.0 + add, wrote.1 + remove),
                // The other loop is about to make it, and its row brings the next pass.
                None => is_whole = false,
            }
            steered.extend(wanted);
        }
        let steered = if is_whole { steered } else { BTreeSet::new() };
        if *self.steered != steered {
            self.steered = Arc::new(steered);
        }
        if let Some(took) = self.kernel.took().filter(|_| wrote != (0, 0)) {
            self.metrics.seconds.observe(took.as_secs_f64());
        }
        self.metrics.measure(&self.kernel.importer);
        let steered = i64::try_from(self.steered.len()).unwrap_or(i64::MAX);
        self.metrics.programmed.set(steered);
        Ok(Passed::Agreed {
            wrote,
            looked: looked || wrote != (0, 0),
            repaired: !looked && !is_news && wrote != (0, 0),
        })
    }

    /// Decides again about the subnets that may have another way now.
    fn evaluate(&mut self, sets: &BTreeMap<String, BTreeMap<Prefix, u8>>, touched: &Touched) {
        let importer = &self.kernel.importer;
        let was_over =
            std::mem::replace(&mut self.over, importer.skipped_for(budget::OVER_LIMIT) > 0);
        let all = || {
            sets.values()
                .flatten()
                .map(|(subnet, above)| (*subnet, *above))
        };
        match touched {
            Touched::These(prefixes) if !was_over && !self.over => {
                for (subnet, above) in prefixes.iter().flat_map(|prefix| overlapping(sets, prefix))
                {
                    self.ways.insert(subnet, importer.forwards(&subnet, above));
                }
            }
            Touched::These(_) | Touched::Everything => {
                let way =
                    |(subnet, above): (Prefix, u8)| (subnet, importer.forwards(&subnet, above));
                self.ways = all().map(way).collect();
            }
        }
    }

    fn forwarded(&self, subnets: &BTreeMap<Prefix, u8>) -> impl Iterator<Item = Prefix> {
        let all = subnets.keys().copied();
        all.filter(|subnet| self.ways.get(subnet) == Some(&true))
    }

    /// Writes what a set lacks and has too much; how much, or `None` where there is no such set.
    async fn fill(
        &self,
        name: &str,
        wanted: &BTreeSet<Prefix>,
    ) -> Result<Option<(usize, usize)>, ImportError> {
        let network = &self.network;
        let held = self
            .north
            .with_replica(|replica| ovn::north::addresses(replica, network, name));
        let Some((uuid, holds)) = held.transpose()?.flatten() else {
            return Ok(None);
        };
        let wanted: BTreeSet<String> = wanted.iter().map(ToString::to_string).collect();
        let comment = format!("noverlay node-agent steering {network}");
        let Some(transaction) = ovn::encode::addresses((uuid, name), &holds, &wanted, &comment)
        else {
            return Ok(Some((0, 0)));
        };
        let size = (
            wanted.difference(&holds).count(),
            holds.difference(&wanted).count(),
        );
        transact(
            "north",
            &self.north,
            &transaction,
            &self.metrics.transactions,
        )
        .await?;
        Ok(Some(size))
    }
}

/// The subnets of all sets that lie in a prefix, or that it lies in.
fn overlapping<'a>(
    sets: &'a BTreeMap<String, BTreeMap<Prefix, u8>>,
    prefix: &'a Prefix,
) -> impl Iterator<Item = (Prefix, u8)> + 'a {
    sets.values().flat_map(move |subnets| {
        let inside = subnets.range(*prefix..);
        let inside = inside.take_while(move |(subnet, _)| prefix.contains(subnet));
        let around = (0..prefix.bits()).filter_map(move |bits| {
            let around = Prefix::new(prefix.network(), bits).ok()?;
            subnets.get_key_value(&around)
        });
        inside
            .chain(around)
            .map(|(subnet, above)| (*subnet, *above))
    })
}
