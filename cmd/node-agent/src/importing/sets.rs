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
    /// Of the subnets that may be in a set those that the kernel forwards.
    forwarded: BTreeSet<Prefix>,
    /// The same by set, as the database writes them.
    wanted: BTreeMap<String, BTreeSet<Box<str>>>,
    /// They are others than were told.
    is_news: bool,
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
            forwarded: BTreeSet::new(),
            wanted: BTreeMap::new(),
            is_news: false,
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
        let (mut wrote, mut is_whole) = ((0, 0), true);
        for name in sets.keys() {
            match self.fill(name).await? {
                Some((add, remove)) => wrote = (wrote.0 + add, wrote.1 + remove),
                // The other loop is about to make it, and its row brings the next pass.
                None => is_whole = false,
            }
        }
        if !is_whole {
            self.steered = Arc::default();
            self.is_news = true;
        } else if std::mem::take(&mut self.is_news) {
            self.steered = Arc::new(self.forwarded.clone());
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
        match touched {
            Touched::These(prefixes) if !was_over && !self.over => {
                for (name, subnet, above) in
                    prefixes.iter().flat_map(|prefix| overlapping(sets, prefix))
                {
                    let forwards = importer.forwards(&subnet, above);
                    let changed = if forwards {
                        self.forwarded.insert(subnet)
                    } else {
                        self.forwarded.remove(&subnet)
                    };
                    if !changed {
                        continue;
                    }
                    self.is_news = true;
                    let text = subnet.to_string().into_boxed_str();
                    let wanted = self.wanted.entry(name.to_owned()).or_default();
                    if forwards {
                        wanted.insert(text);
                    } else {
                        wanted.remove(&text);
                    }
                }
            }
            Touched::These(_) | Touched::Everything => {
                self.is_news = true;
                self.forwarded.clear();
                self.wanted.clear();
                for (name, subnets) in sets {
                    let forwarded = subnets.iter();
                    let forwarded =
                        forwarded.filter(|(subnet, above)| importer.forwards(subnet, **above));
                    let forwarded: Vec<Prefix> = forwarded.map(|(subnet, _)| *subnet).collect();
                    let texts = forwarded.iter().map(|f| f.to_string().into_boxed_str());
                    self.wanted.insert(name.clone(), texts.collect());
                    self.forwarded.extend(forwarded);
                }
            }
        }
    }

    /// Writes what a set lacks and has too much; how much, or `None` where there is no such set.
    async fn fill(&self, name: &str) -> Result<Option<(usize, usize)>, ImportError> {
        let (network, nothing) = (&self.network, BTreeSet::new());
        let wanted = self.wanted.get(name).unwrap_or(&nothing);
        let changes = self
            .north
            .with_replica(|replica| ovn::north::changes(replica, network, name, wanted));
        let Some(changes) = changes.transpose()?.flatten() else {
            return Ok(None);
        };
        let comment = format!("noverlay node-agent steering {network}");
        let Some(transaction) = ovn::encode::addresses(name, &changes, &comment) else {
            return Ok(Some((0, 0)));
        };
        transact(
            "north",
            &self.north,
            &transaction,
            &self.metrics.transactions,
        )
        .await?;
        Ok(Some((changes.missing.len(), changes.surplus.len())))
    }
}

/// The subnets of all sets that lie in a prefix, or that it lies in, with the set's name.
fn overlapping<'a>(
    sets: &'a BTreeMap<String, BTreeMap<Prefix, u8>>,
    prefix: &'a Prefix,
) -> impl Iterator<Item = (&'a str, Prefix, u8)> + 'a {
    sets.iter().flat_map(move |(name, subnets)| {
        let inside = subnets.range(*prefix..);
        let inside = inside.take_while(move |(subnet, _)| prefix.contains(subnet));
        let around = (0..prefix.bits()).filter_map(move |bits| {
            let around = Prefix::new(prefix.network(), bits).ok()?;
            subnets.get_key_value(&around)
        });
        inside
            .chain(around)
            .map(|(subnet, above)| (name.as_str(), *subnet, *above))
    })
}
