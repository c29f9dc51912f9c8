//! How far networks are led past the tunnels beside OVN-Kubernetes: what loops saw, and the step that follows.
//! In: the outcome of each loop's passes, at the start what another process left behind. Out: steps for the plan, and in words why
//! a network is not where it is to be.
//! Invariant: before everything was looked at once, a network has no step, and nothing of it is touched.
//! Not here: the order of steps (`plan_node::beside::steps`), what stands at each (`plan_node::beside`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use host::nft;
use model::nb::{Owner, Table};
use model::node::annotation;
use model::{NetworkName, Problem, nft::Table as FilterTable};
use ovn::north::Signs;
use ovsdb::Client;
use plan_node::beside::steps::{Part, Progress, Seen, Step};
use plan_node::beside::{Steps, signs};
use plan_node::{NetworkView, Snapshot};
use telemetry::{Chain, Readiness, WarnOnce};
use tokio::time::Instant;

use crate::world::{FactsChanged, NodeEntry, Unbuilt};

/// The host's boot; rules and tables do not outlive it.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// What forbids it is looked for so often.
const SIGNS: Duration = Duration::from_secs(10);

/// Parts of the host that one loop looks after for all networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostPart {
    /// The packet filter's table.
    Filter,
    /// Rules and routes.
    Rules,
}

/// What came of a loop's last pass; or why its part may not stand.
type Applied = Result<(), String>;

#[derive(Debug, Default)]
struct Passes {
    /// With the steps that the pass was made for.
    host: BTreeMap<HostPart, (Steps, Applied)>,
    /// Access lists of the management port, and the policy; with the step that the pass was made for.
    rows: BTreeMap<NetworkName, (Step, Part, Part)>,
    /// BGP's routes to pods of other nodes are in the kernel.
    routed: BTreeSet<NetworkName>,
}

/// What loops saw; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Sight {
    passes: Arc<Mutex<Passes>>,
    facts: FactsChanged,
}

impl Sight {
    pub(crate) fn new(facts: FactsChanged) -> Self {
        Self {
            passes: Arc::default(),
            facts,
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Passes) -> T) -> T {
        f(&mut self.passes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A pass over a part of the host, for a plan of these steps.
    pub(crate) fn note_host(&self, part: HostPart, steps: &Steps, applied: Applied) {
        let now = (steps.clone(), applied);
        let before = self.with(|passes| passes.host.insert(part, now.clone()));
        if before != Some(now) {
            self.facts.note();
        }
    }

    /// A pass over a network's rows, for a plan with this step.
    pub(crate) fn note_rows(
        &self,
        network: &NetworkName,
        step: Step,
        untracked: Part,
        steering: Part,
    ) {
        let now = (step, untracked, steering);
        let before = self.with(|passes| passes.rows.insert(network.clone(), now));
        if before != Some(now) {
            self.facts.note();
        }
    }

    /// Whether the kernel has BGP's routes to other nodes' pods of a network.
    pub(crate) fn note_routes(&self, network: &NetworkName, are_there: bool) {
        let is_news = self.with(|passes| {
            if are_there {
                passes.routed.insert(network.clone())
            } else {
                passes.routed.remove(network)
            }
        });
        if is_news {
            self.facts.note();
        }
    }

    fn is_routed(&self, network: &NetworkName) -> bool {
        self.with(|passes| passes.routed.contains(network))
    }

    /// What was seen of a network that is at `step` now; what was seen at another one, at which it has not the same parts, is not
    /// seen yet.
    fn seen(&self, network: &NetworkName, step: Step) -> Seen {
        let same = |of: Step, first: Step| (of >= first) == (step >= first);
        self.with(|passes| {
            let rows = passes.rows.get(network);
            let part = |first: Step, part: Part, of: Step| same(of, first).then_some(part);
            let host = |which: HostPart| {
                let (steps, applied) = passes.host.get(&which)?;
                let of = steps.get(network).filter(|of| same(**of, Step::Host))?;
                Some(match applied {
                    Ok(()) if *of >= Step::Host => Part::Whole,
                    Ok(()) => Part::Gone,
                    Err(_) => Part::Partial,
                })
            };
            let both = host(HostPart::Filter).zip(host(HostPart::Rules));
            Seen {
                untracked: rows.and_then(|(of, is, _)| part(Step::Untracked, *is, *of)),
                steering: rows.and_then(|(of, _, is)| part(Step::Steering, *is, *of)),
                host: both.map(|(a, b)| if a == b { a } else { Part::Partial }),
                announced: None,
            }
        })
    }

    /// What keeps the host's part from being whole, in words.
    fn trouble(&self) -> Option<String> {
        self.with(|passes| {
            let mut all = passes.host.values();
            all.find_map(|(_, applied)| applied.clone().err())
        })
    }
}

/// What follows for the plan.
#[derive(Debug, Default)]
pub(crate) struct Advanced {
    pub(crate) steps: Steps,
    /// Networks to whose pods on other nodes the kernel has BGP's routes.
    pub(crate) routed: BTreeSet<NetworkName>,
    /// Networks that are not where they are to be: why.
    pub(crate) unbuilt: BTreeMap<NetworkName, Unbuilt>,
    /// After which time to look again although nothing is seen.
    pub(crate) again: Option<Duration>,
}

/// What is to become of a network.
enum Wish {
    /// It is to be led past the tunnels.
    Past,
    /// It is to go by them.
    Tunnels,
    /// The same, although it is declared otherwise.
    Kept(Unbuilt),
}

/// How far each network is.
pub(crate) struct Beside {
    sight: Sight,
    north: Client,
    boot: String,
    start: Instant,
    progress: BTreeMap<NetworkName, Progress>,
    /// What OVN_Northbound last showed of each.
    signs: BTreeMap<NetworkName, Signs>,
    warned: WarnOnce<()>,
    /// All of it is to go: who wants to know when nothing is left.
    left: Option<Readiness>,
}

impl Beside {
    /// # Errors
    /// When the kernel does not tell which boot this is.
    pub(crate) fn new(
        sight: Sight,
        north: Client,
        left: Option<Readiness>,
    ) -> std::io::Result<Self> {
        Ok(Self {
            sight,
            north,
            boot: std::fs::read_to_string(BOOT)?.trim().to_owned(),
            start: Instant::now(),
            progress: BTreeMap::new(),
            signs: BTreeMap::new(),
            warned: WarnOnce::default(),
            left,
        })
    }

    /// The annotation that tells other nodes; `None` where no network is so far.
    pub(crate) fn annotation(&self, steps: &Steps) -> Option<String> {
        let ready = steps.iter().filter(|(_, step)| **step >= Step::Ready);
        let ready: Vec<&NetworkName> = ready.map(|(name, _)| name).collect();
        (!ready.is_empty()).then(|| api::underlay_ready(&self.boot, ready))
    }

    /// Goes on by at most one step with each network; `own` is this node's object.
    pub(crate) async fn advance(
        &mut self,
        snapshot: &Snapshot,
        own: Option<&NodeEntry>,
    ) -> Advanced {
        let mut advanced = Advanced::default();
        let mut nothing_left = true;
        for (name, view) in snapshot.here() {
            let announced = own.map(|own| own.node.underlay_ready.contains(name));
            if let Err(message) = self.begin(name, announced).await {
                let text = format!("network {name} stays as it is: {message}");
                self.warned.warn((), text);
                let reason = "NotLookedAt";
                let why = Unbuilt { reason, message };
                advanced.unbuilt.insert(name.clone(), why);
                advanced.again = Some(crate::world::RETRY);
                continue;
            }
            let drained = own.is_some_and(|own| own.node.drain && own.node.cordoned);
            let wish = self.wish(snapshot, view, drained);
            nothing_left &= self.advance_one(name, announced, wish, &mut advanced);
        }
        if self.left.is_some() {
            nothing_left &= self.leave_behind_no_share(snapshot, own, &mut advanced);
        }
        if let Some(left) = &self.left {
            left.set("nothing left", nothing_left && !advanced.steps.is_empty());
        }
        // Nobody tells of a sysctl, and of another writer's first row.
        advanced.again = advanced.again.into_iter().chain([SIGNS]).min();
        let here: BTreeSet<&NetworkName> = snapshot.here().map(|(name, _)| name).collect();
        self.progress.retain(|name, _| here.contains(name));
        advanced
    }

    /// Begins with a network where another process left it; or why that cannot be told.
    async fn begin(&mut self, name: &NetworkName, announced: Option<bool>) -> Result<(), String> {
        if self.progress.contains_key(name) {
            return Ok(());
        }
        let seen = self.left_behind(name).await?;
        let step = Seen { announced, ..seen }.step();
        let network = name.as_str();
        tracing::info!(network, ?step, "found beside OVN-Kubernetes");
        self.warned.clear(&());
        self.progress.insert(name.clone(), Progress::at(step));
        Ok(())
    }

    /// Whether a network is to be led past the tunnels, and why not where it is declared so.
    fn wish(&mut self, snapshot: &Snapshot, view: NetworkView<'_>, drained: bool) -> Wish {
        if view.share.network.transport.no_overlay().is_none() {
            return Wish::Tunnels;
        }
        if let Some(problem) = self.forbidden(snapshot, view) {
            return Wish::Kept(Unbuilt {
                reason: problem.reason,
                message: problem.message,
            });
        }
        if drained {
            return Wish::Kept(Unbuilt {
                reason: "Drained",
                message: format!(
                    "the Node is cordoned and has annotation {}: pods' packets take the tunnels",
                    annotation::DRAIN
                ),
            });
        }
        if self.left.is_some() {
            Wish::Tunnels
        } else {
            Wish::Past
        }
    }

    /// One step of one network; whether nothing of it is left.
    fn advance_one(
        &mut self,
        name: &NetworkName,
        announced: Option<bool>,
        wish: Wish,
        advanced: &mut Advanced,
    ) -> bool {
        let Some(progress) = self.progress.get_mut(name) else {
            return false;
        };
        let (before, wanted) = (progress.step, matches!(wish, Wish::Past));
        let seen = Seen {
            announced,
            ..self.sight.seen(name, before)
        };
        let again = progress.advance(self.start.elapsed(), wanted, seen);
        let step = progress.step;
        if step != before {
            let network = name.as_str();
            tracing::info!(network, ?before, ?step, "next step beside OVN-Kubernetes");
        }
        advanced.again = advanced.again.into_iter().chain(again).min();
        let unbuilt = match wish {
            Wish::Kept(why) => Some(why),
            Wish::Past | Wish::Tunnels => {
                let reason = if wanted { "NotSteered" } else { "StillSteered" };
                let message = why(step, wanted, seen, self.sight.trouble());
                message.map(|message| Unbuilt { reason, message })
            }
        };
        let unbuilt = unbuilt.map(|why| (name.clone(), why));
        advanced.unbuilt.extend(unbuilt);
        advanced.steps.insert(name.clone(), step);
        let is_routed = self.sight.is_routed(name);
        advanced.routed.extend(is_routed.then(|| name.clone()));
        step == Step::Absent && seen.is_gone() && !is_routed
    }

    /// Where the node has no share of the network any more, or is no Node any more, all that stands of it goes at once; whether it has.
    fn leave_behind_no_share(
        &self,
        snapshot: &Snapshot,
        own: Option<&NodeEntry>,
        advanced: &mut Advanced,
    ) -> bool {
        let default = NetworkName::default_network();
        if snapshot.here().any(|(name, _)| *name == default) || snapshot.machine.claims.is_empty() {
            return true;
        }
        advanced.steps.insert(default.clone(), Step::Absent);
        let announced = own.is_some_and(|own| own.node.underlay_ready.contains(&default));
        let seen = Seen {
            announced: Some(announced),
            ..self.sight.seen(&default, Step::Absent)
        };
        seen.is_gone()
    }

    /// What of the node forbids that a network is led past the tunnels.
    fn forbidden(&mut self, snapshot: &Snapshot, view: NetworkView<'_>) -> Option<Problem> {
        let (name, router) = (view.name(), view.cluster_router());
        let port = name.management_lsp(&view.node.name);
        let found = self
            .north
            .with_replica(|replica| ovn::north::signs(replica, name, router.as_str(), &port));
        // What cannot be read now is as it was.
        if let Some(Ok(found)) = found {
            self.signs.insert(name.clone(), found);
        }
        let found = *self.signs.get(name)?;
        let is_off = |file: &String| {
            let path = Path::new("/proc/sys").join(file);
            // A device that is not there yet is no reason of its own.
            std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "0")
        };
        // The larger of both is in force.
        let strict = ["all", view.node.gateway.bridge.as_str()].map(|device| {
            let file = format!("/proc/sys/net/ipv4/conf/{device}/rp_filter");
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.trim().parse::<u8>().unwrap_or_default()
        });
        let not_forwarding = signs::sysctls(view).into_iter().filter(is_off);
        let found = signs::Found {
            router: found.router,
            port: found.port,
            tunnels: found.tunnels,
            no_overlay_snat: found.no_overlay_snat,
            built: found.built,
            is_strict: strict.into_iter().max() == Some(1),
            not_forwarding: not_forwarding.map(|file| file.replace('/', ".")).collect(),
        };
        let others = signs::has_others(view, snapshot.machine.claims.get(name));
        signs::forbids(view, &found, others)
    }

    /// What stands of a network, whoever left it; or why that cannot be told.
    async fn left_behind(&self, network: &NetworkName) -> Result<Seen, String> {
        let decoded = self.north.with_replica(ovn::north::decode);
        let north = decoded.ok_or("OVN_Northbound is not in step yet")?;
        let north = north.map_err(|error| Chain(&error).to_string())?;
        let rows = north.of(&Owner::Network(network.clone()));
        if rows
            .keys()
            .any(|key| matches!(key.table, Table::Router | Table::Switch))
        {
            return Err("OVN_Northbound holds routers or switches that noverlay built ([ovn] topology = build): nothing of it is touched".to_owned());
        }
        let part = |stands: bool| Some(if stands { Part::Partial } else { Part::Gone });
        let has = |table: Table| rows.keys().any(|key| key.table == table);
        let filter = nft::read(FilterTable::Own).await;
        let filter = filter.map_err(|error| Chain(&error).to_string())?;
        let rules = netlink::steering::stands().await;
        let rules = rules.map_err(|error| Chain(&error).to_string())?;
        Ok(Seen {
            untracked: part(has(Table::PortGroup)),
            host: part(filter.stands() || rules),
            announced: None,
            steering: part(has(Table::Policy)),
        })
    }
}

/// Why a network is not where it is to be, in words; `None`: it is.
fn why(step: Step, wanted: bool, seen: Seen, trouble: Option<String>) -> Option<String> {
    let waits = match (step, wanted) {
        (Step::Steering, true) | (Step::Absent, false) => return None,
        (Step::Absent | Step::Untracked, true) => match seen.untracked {
            Some(Part::Whole) => "the next step is about to follow".to_owned(),
            _ => "flows of the management port's access lists are not in force yet (NB_Global hv_cfg)".to_owned(),
        },
        (Step::Host | Step::Ready, true) => match (trouble, seen.untracked) {
            (Some(trouble), _) => trouble,
            (None, Some(Part::Whole)) if seen.host == Some(Part::Whole) => {
                "the next step is about to follow".to_owned()
            }
            (None, Some(Part::Whole)) => "the host's rules and packet filter are not whole yet".to_owned(),
            (None, _) => "the management port's access lists are not in force".to_owned(),
        },
        (_, false) => return Some(format!("it is on its way back to the tunnels, at step {step:?}")),
    };
    Some(format!("pods' packets take the tunnels: {waits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(step: Step) -> Steps {
        [(NetworkName::default_network(), step)].into()
    }

    #[test]
    fn what_was_seen_at_a_step_that_has_other_parts_is_not_seen_at_this_one() {
        let (sight, default) = (
            Sight::new(FactsChanged::default()),
            NetworkName::default_network(),
        );
        let seen = |step: Step| sight.seen(&default, step);
        assert_eq!(seen(Step::Absent), Seen::default(), "nobody has looked");
        for part in [HostPart::Filter, HostPart::Rules] {
            assert_eq!(seen(Step::Ready).host, None, "one of two");
            sight.note_host(part, &steps(Step::Host), Ok(()));
        }
        sight.note_rows(&default, Step::Host, Part::Whole, Part::Gone);
        for step in [Step::Host, Step::Ready, Step::Steering] {
            assert_eq!(seen(step).host, Some(Part::Whole), "{step:?}");
            assert_eq!(seen(step).untracked, Some(Part::Whole), "{step:?}");
        }
        assert_eq!(seen(Step::Ready).steering, Some(Part::Gone));
        assert_eq!(seen(Step::Steering).steering, None, "the policy is to come");
        // On the way back loops have not looked yet.
        assert_eq!(seen(Step::Untracked).host, None);
        assert_eq!(seen(Step::Absent).untracked, None);
        sight.note_host(HostPart::Filter, &steps(Step::Untracked), Ok(()));
        assert_eq!(seen(Step::Untracked).host, None, "rules may stand");
        sight.note_host(HostPart::Rules, &steps(Step::Untracked), Ok(()));
        assert_eq!(seen(Step::Untracked).host, Some(Part::Gone));
        let trouble = || Err("nft failed".to_owned());
        sight.note_host(HostPart::Filter, &steps(Step::Untracked), trouble());
        assert_eq!(seen(Step::Untracked).host, Some(Part::Partial));
        assert_eq!(sight.trouble().as_deref(), Some("nft failed"));
        let other = NetworkName::from("red");
        assert_eq!(sight.seen(&other, Step::Absent), Seen::default());
    }

    #[test]
    fn routes_come_and_go_by_network() {
        let sight = Sight::new(FactsChanged::default());
        let (default, red) = (NetworkName::default_network(), NetworkName::from("red"));
        sight.note_routes(&default, true);
        assert!(sight.is_routed(&default) && !sight.is_routed(&red));
        sight.note_routes(&default, false);
        assert!(!sight.is_routed(&default));
    }

    #[test]
    fn a_network_that_is_where_it_is_to_be_has_nothing_said_of_it() {
        let whole = Seen {
            untracked: Some(Part::Whole),
            host: Some(Part::Whole),
            ..Seen::default()
        };
        assert_eq!(why(Step::Steering, true, whole, None), None);
        assert_eq!(why(Step::Absent, false, whole, None), None);
        let said = |step, wanted, seen, trouble: Option<&str>| {
            why(step, wanted, seen, trouble.map(str::to_owned)).unwrap()
        };
        for (text, word) in [
            (said(Step::Untracked, true, Seen::default(), None), "hv_cfg"),
            (
                said(Step::Host, true, whole, Some("nft failed")),
                "nft failed",
            ),
            (said(Step::Ready, false, whole, None), "step Ready"),
        ] {
            assert!(text.contains(word), "{text}");
        }
    }
}
