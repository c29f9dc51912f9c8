//! The node-agent's imports, of one network or of several, with scopes that the test holds in its hand.
//! In: a Northbound socket, inputs. Out: rows; what the passes said. Invariant: import, loop and pace are the node-agent's own;
//! who enqueues its key and where inputs come from is wired here a second time (the lab runs the node-agent's).
//! Not here: the rest of the node-agent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frr_edge::Frr;
use model::nb::ImportTarget;
use model::{NetworkName, NodeName};
use netlink::Watcher;
use node_agent::importing::{
    FrrProbe, Import, ImportConfig, Inputs, Passed, SetImport, Sink, TIMING,
};
use node_agent::kernel_events::KernelEvents;
use node_agent::metrics::{ImportMetrics, transactions};
use ovsdb::{Client, ClientConfig, Endpoint};
use prometheus::Registry;
use reconcile::{Action, Reconciler, WorkQueue};
use settings::Limits;
use telemetry::Chain;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::testbed::LINK;

/// What an agent is made of.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The Northbound database.
    pub socket: PathBuf,
    /// What the default network may learn.
    pub inputs: Inputs,
    /// Networks of users beside it, and what each may learn.
    pub networks: BTreeMap<NetworkName, Inputs>,
    /// `None`: there is no FRR to ask.
    pub frr: Option<Frr>,
    /// How many destinations it imports at most.
    pub limit: u32,
    /// How long a mass withdrawal is retained.
    pub hold: Duration,
    /// Bytes of the buffer for the kernel's events; `None`: the usual one.
    pub buffer: Option<usize>,
}

/// A running import; it is killed with this value, wherever it is.
#[derive(Debug)]
pub struct Agent {
    tasks: Vec<JoinHandle<()>>,
    /// Of the default network.
    inputs: Arc<Mutex<Arc<Inputs>>>,
    queue: WorkQueue<NetworkName>,
    registry: Registry,
    errors: Arc<Mutex<Vec<String>>>,
    lost: Arc<AtomicUsize>,
    agreed: watch::Receiver<bool>,
    _stop: watch::Sender<bool>,
}

struct OneNetwork {
    import: Sink,
    inputs: Arc<Mutex<Arc<Inputs>>>,
    again: Option<JoinHandle<()>>,
    agreed: bool,
}

struct Networks {
    imports: BTreeMap<NetworkName, OneNetwork>,
    events: Arc<KernelEvents>,
    queue: WorkQueue<NetworkName>,
    errors: Arc<Mutex<Vec<String>>>,
    /// All of them have, once.
    agreed: watch::Sender<bool>,
}

impl Reconciler for Networks {
    type Key = NetworkName;

    async fn keys(&mut self) -> Option<Vec<NetworkName>> {
        Some(self.imports.keys().cloned().collect())
    }

    async fn reconcile(&mut self, name: &NetworkName) -> Action {
        let Some(one) = self.imports.get_mut(name) else {
            return Action::AwaitChange;
        };
        let inputs = Arc::clone(&lock(&one.inputs));
        self.events.set_table(name, inputs.table);
        let passed = one.import.pass(&inputs).await;
        if let Some(before) = one.again.take() {
            before.abort();
        }
        if let Some(wait) = one.import.again() {
            let (queue, name) = (self.queue.clone(), name.clone());
            one.again = Some(tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                queue.enqueue(name);
            }));
        }
        match passed {
            Ok(Passed::NotReady) => Action::AwaitChange,
            Ok(Passed::Unfinished(..)) => Action::Done,
            Ok(Passed::Agreed { looked, .. }) => {
                one.agreed = true;
                if self.imports.values().all(|one| one.agreed) {
                    self.agreed.send_replace(true);
                }
                if looked {
                    Action::Done
                } else {
                    Action::NoChange
                }
            }
            Err(error) => {
                lock(&self.errors).push(Chain(&error).to_string());
                Action::Requeue
            }
        }
    }
}

impl Agent {
    /// Starts imports that know nothing yet.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "one sequence of events")]
    pub fn start(config: AgentConfig) -> Self {
        let mut client = ClientConfig::new(Endpoint::Unix(config.socket), ovn::north::DATABASE);
        client.tables = ovn::north::monitor();
        client.max_backoff = Duration::from_millis(500);
        let north = Client::connect(client);
        let (events, queue) = (Arc::<KernelEvents>::default(), WorkQueue::new());
        let registry = Registry::new();
        let probe = config.frr.map(|frr| {
            let queue = queue.clone();
            FrrProbe::start(frr, move || queue.resync())
        });
        let limits = Limits {
            max_imported_routes: config.limit,
            stale_time: Duration::from_secs(120),
            mass_withdraw_share: 50,
            mass_withdraw_routes: 10,
            mass_withdraw_window: Duration::from_secs(2),
            mass_withdraw_hold: config.hold,
        };
        let transactions = transactions(&registry).expect("fresh metrics");
        let start = |name: &NetworkName, inputs: Arc<Mutex<Arc<Inputs>>>| {
            let metrics =
                ImportMetrics::new(&registry, name, transactions.clone()).expect("fresh metrics");
            let (north, events) = (north.clone(), events.subscribe(name));
            let fills_sets = lock(&inputs).sets.is_some();
            let import = if fills_sets {
                let import = SetImport::new(name.clone(), north, limits, events, metrics);
                Sink::Sets(Box::new(import))
            } else {
                let config = ImportConfig {
                    target: ImportTarget::of(name, &NodeName::from("n1")),
                    limits,
                    interface: LINK.to_owned(),
                };
                let probe = probe.as_ref().map(FrrProbe::share);
                Sink::Router(Box::new(Import::new(config, north, probe, events, metrics)))
            };
            OneNetwork {
                import,
                inputs,
                again: None,
                agreed: false,
            }
        };
        let inputs = Arc::new(Mutex::new(Arc::new(config.inputs)));
        let (errors, lost) = (Arc::default(), Arc::default());
        let (agree, agreed) = watch::channel(false);
        let default = NetworkName::default_network();
        let more = config.networks.into_iter().map(|(name, inputs)| {
            let one = start(&name, Arc::new(Mutex::new(Arc::new(inputs))));
            (name, one)
        });
        let mut imports: BTreeMap<NetworkName, OneNetwork> = more.collect();
        imports.insert(default.clone(), start(&default, Arc::clone(&inputs)));
        let networks = Networks {
            imports,
            events: Arc::clone(&events),
            queue: queue.clone(),
            errors: Arc::clone(&errors),
            agreed: agree,
        };
        let (stop, stopped) = watch::channel(false);
        let tasks = vec![
            tokio::spawn(kernel(
                config.buffer,
                events,
                queue.clone(),
                Arc::clone(&lost),
            )),
            tokio::spawn(database(north, queue.clone())),
            tokio::spawn(reconcile::run(networks, queue.clone(), TIMING, stopped)),
        ];
        Self {
            tasks,
            inputs,
            queue,
            registry,
            errors,
            lost,
            agreed,
            _stop: stop,
        }
    }

    /// Changes the inputs and says so.
    pub fn change(&self, change: impl FnOnce(&mut Inputs)) {
        let mut inputs = lock(&self.inputs);
        // Other inputs are known by being other ones.
        let mut changed = Inputs::clone(&inputs);
        change(&mut changed);
        *inputs = Arc::new(changed);
        drop(inputs);
        self.queue.enqueue(NetworkName::default_network());
    }

    /// Waits until a pass of each network found rows and routes in agreement.
    pub async fn until_agreed(&self) {
        let mut agreed = self.agreed.clone();
        let _runs = agreed.wait_for(|agreed| *agreed).await;
    }

    /// What failed so far.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        lock(&self.errors).clone()
    }

    /// How often events of the kernel were lost.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.lost.load(Ordering::Relaxed)
    }

    /// A metric without labels; of a histogram, the sum of what it saw.
    #[must_use]
    pub fn metric(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|f| f.name() == name);
        let metric = family.and_then(|f| f.get_metric().first());
        let metric = metric.unwrap_or_else(|| panic!("there is no metric {name}"));
        metric.get_gauge().get_value()
            + metric.get_counter().get_value()
            + metric.get_histogram().get_sample_sum()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn kernel(
    buffer: Option<usize>,
    events: Arc<KernelEvents>,
    queue: WorkQueue<NetworkName>,
    lost: Arc<AtomicUsize>,
) {
    let bytes = buffer.unwrap_or(netlink::watch::BUFFER);
    let mut watcher = Watcher::open_with(bytes).expect("a subscription");
    events.note_everything();
    queue.resync();
    loop {
        let change = watcher.changed().await.expect("the subscription stands");
        lost.fetch_add(usize::from(change.lost), Ordering::Relaxed);
        for name in events.note(&change) {
            queue.enqueue(name);
        }
        if change.links || change.addresses || change.rules || change.lost {
            queue.resync();
        }
    }
}

async fn database(north: Client, queue: WorkQueue<NetworkName>) {
    let mut status = north.watch();
    while status.changed().await.is_ok() {
        queue.resync();
    }
}
