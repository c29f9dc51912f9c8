//! How far networks are led past the tunnels beside OVN-Kubernetes: the step that follows.
//! In: what loops saw, at the start what another process left behind. Out: steps for the plan, and in words why a network is not
//! where it is to be.
//! Invariant: before everything was looked at once, a network has no step, and nothing of it is touched.
//! Not here: the order of steps (`plan_node::beside::steps`), what stands at each (`plan_node::beside`).

mod given_way;
mod learned;
mod left_behind;
mod sight;
mod withdrawal;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use api::ReadySubnets;
use frr_edge::Frr;
use model::node::annotation;
use model::{Network, NetworkName, Problem};
use ovn::north::Signs;
use ovsdb::Client;
use plan_node::beside::signs::OVN_KUBERNETES_ROUTES;
use plan_node::beside::steps::{Progress, Seen, Step};
use plan_node::beside::{Asked, Routed, Steps, Translations, host, signs};
use plan_node::{NetworkView, Snapshot};
use telemetry::{Readiness, WarnOnce};
use tokio::time::Instant;

use self::given_way::GivenWay;
pub(crate) use self::given_way::LEFT;
use self::learned::Learned;
use self::left_behind::LeftBehind;
pub(crate) use self::left_behind::Reports;
pub(crate) use self::sight::{Applied, Dropped, HostPart, Sight};
use self::withdrawal::{Withdrawal, heard};
use self::words::{STILL_ROUTED, translated, why};
use crate::world::{NodeEntry, Unbuilt};

/// The host's boot; rules and tables do not outlive it.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Reason of a network of which it could not be told yet how far it is: it is where the last report says.
pub(crate) const NOT_LOOKED_AT: &str = "NotLookedAt";

/// So often FRR is asked whether it still announces what peers were told of.
const ASKED: Duration = Duration::from_secs(1);

/// For so long an annotation is waited for that may be somebody else's.
const UNPUBLISHED: Duration = Duration::from_secs(10);

/// What forbids it is looked for so often.
const SIGNS: Duration = Duration::from_secs(10);

/// What follows for the plan.
#[derive(Debug, Default)]
pub(crate) struct Advanced {
    pub(crate) steps: Steps,
    pub(crate) routed: Routed,
    pub(crate) translations: Translations,
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
    frr: Frr,
    boot: String,
    start: Instant,
    /// With the id of the network: another one of the same name begins anew.
    progress: BTreeMap<NetworkName, (u16, Progress)>,
    /// What OVN_Northbound last showed of each.
    signs: BTreeMap<NetworkName, Signs>,
    /// Networks that something of this node forbids to lead past the tunnels.
    kept: BTreeSet<NetworkName>,
    given_way: GivenWay,
    learned: Learned,
    /// Networks that peers are told of no more, and FRR may still announce.
    withdrawal: Withdrawal,
    /// Since when nothing but annotations is left.
    bare: Option<Instant>,
    reports: Reports,
    /// What OVN-Kubernetes translates on the way to the host.
    translated: Translations,
    /// Until when FRR may answer; what it has not said by then is asked again.
    frr_until: Instant,
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
        frr: Frr,
        (reports, left): (Reports, Option<Readiness>),
    ) -> std::io::Result<Self> {
        Ok(Self {
            sight,
            north,
            frr,
            boot: std::fs::read_to_string(BOOT)?.trim().to_owned(),
            start: Instant::now(),
            progress: BTreeMap::new(),
            signs: BTreeMap::new(),
            kept: BTreeSet::new(),
            given_way: GivenWay::default(),
            learned: Learned::default(),
            withdrawal: Withdrawal::default(),
            bare: None,
            reports,
            translated: Translations::new(),
            frr_until: Instant::now(),
            warned: WarnOnce::default(),
            left,
        })
    }

    /// What such an annotation told in this boot.
    pub(crate) fn told(&self, text: &str) -> ReadySubnets {
        api::ready_subnets(text, &self.boot)
    }

    /// The annotation that tells other nodes which networks this one takes packets for; `None` where that is none.
    pub(crate) fn annotation(&self, ready: &ReadySubnets) -> Option<String> {
        (!ready.is_empty()).then(|| api::underlay_ready(&self.boot, ready))
    }

    /// Whether anything of a network is to stand.
    pub(crate) fn has_begun(&self, network: &NetworkName) -> bool {
        self.step(network) > Step::Absent
    }

    fn step(&self, network: &NetworkName) -> Step {
        let progress = self.progress.get(network);
        progress.map_or(Step::Absent, |(_, progress)| progress.step)
    }

    /// All of ours is to go from this node.
    pub(crate) fn is_leaving(&self) -> bool {
        self.left.is_some()
    }

    /// Goes on by at most one step with each network; `own` is this node's object.
    pub(crate) async fn advance(
        &mut self,
        snapshot: &Snapshot,
        own: Option<&NodeEntry>,
        asked: &Asked,
    ) -> Advanced {
        let mut advanced = Advanced {
            translations: self.translations(snapshot),
            ..Advanced::default()
        };
        let mut nothing_left = true;
        let left_behind = self.left_behind(snapshot).await;
        self.frr_until = Instant::now() + ASKED;
        for (name, view) in snapshot.here() {
            let announced = own.map(|own| own.node.underlay_ready.contains_key(name));
            let network = &view.share.network;
            if let Err(message) = self.begin(network, announced, left_behind.as_ref()) {
                let text = format!("network {name} stays as it is: {message}");
                self.warned.warn((), text);
                let left = self.given_way.keeps_away(name, false, Some(&message));
                let why = left.unwrap_or(Unbuilt {
                    reason: NOT_LOOKED_AT,
                    message,
                });
                advanced.unbuilt.insert(name.clone(), why);
                advanced.again = Some(crate::world::RETRY);
                continue;
            }
            let wish = self.wish(snapshot, view, (own, asked));
            let announced = self.announced(view, announced, &wish).await;
            // Also while it is announced no more: a bgpd that has just started may not have read all of its configuration.
            if self.step(name) == Step::Host && !matches!(wish, Wish::Past) {
                advanced.again = advanced.again.into_iter().chain([ASKED]).min();
            }
            nothing_left &= self.advance_one(name, announced, wish, &mut advanced);
            if host::is_translated_all_the_same(view) {
                // What keeps it from the wire altogether says more.
                advanced
                    .unbuilt
                    .entry(name.clone())
                    .or_insert_with(|| translated(view));
            }
        }
        self.know_what_never_stood(snapshot, &mut advanced);
        if self.left.is_some() {
            nothing_left &= self.leave_behind_no_share(snapshot, own, &mut advanced);
            let owners = self.north.with_replica(ovn::north::owners);
            nothing_left &= matches!(owners, Some(Ok(owners)) if owners.is_empty());
        }
        if nothing_left {
            // What others may read of a node whose agent has gone is not true for long.
            let since = *self.bare.get_or_insert_with(Instant::now);
            let is_unpublished = own.is_none_or(|own| own.published.is_empty());
            nothing_left = is_unpublished || since.elapsed() >= UNPUBLISHED;
        } else {
            self.bare = None;
        }
        if let Some(left) = &self.left {
            left.set("nothing left", nothing_left && !advanced.steps.is_empty());
        }
        // Nobody tells of a sysctl, and of another writer's first row.
        advanced.again = advanced.again.into_iter().chain([SIGNS]).min();
        self.forget(snapshot);
        advanced
    }

    /// Drops what is known of networks that are not here.
    fn forget(&mut self, snapshot: &Snapshot) {
        let here: BTreeSet<&NetworkName> = snapshot.here().map(|(name, _)| name).collect();
        self.progress.retain(|name, _| here.contains(name));
        self.signs.retain(|name, _| here.contains(name));
        self.kept.retain(|name| here.contains(name));
        self.withdrawal.retain(|name| here.contains(name));
    }

    /// Begins with a network where another process left it; or why that cannot be told.
    fn begin(
        &mut self,
        network: &Network,
        announced: Option<bool>,
        left_behind: Result<&LeftBehind, &String>,
    ) -> Result<(), String> {
        let name = &network.name;
        if self.has_progress(network) {
            return Ok(());
        }
        let left_behind = left_behind.map_err(Clone::clone)?;
        self.given_way.remember(name, left_behind.report.as_ref());
        let seen = left_behind.of(network)?;
        let step = Seen { announced, ..seen }.step();
        tracing::info!(
            network = name.as_str(),
            ?step,
            "found beside OVN-Kubernetes"
        );
        self.warned.clear(&());
        self.learned.begin(name, step);
        let begun = (network.id, Progress::at(step));
        self.progress.insert(name.clone(), begun);
        Ok(())
    }

    fn has_progress(&self, network: &Network) -> bool {
        let progress = self.progress.get(&network.name);
        progress.is_some_and(|(id, _)| *id == network.id)
    }

    /// What another process left, where a network has not begun; or why that cannot be told.
    async fn left_behind(&self, snapshot: &Snapshot) -> Result<LeftBehind, String> {
        let mut here = snapshot.here();
        if here.all(|(_, view)| self.has_progress(&view.share.network)) {
            return Err("nobody has looked".to_owned());
        }
        LeftBehind::look(&self.north, &self.reports).await
    }

    /// What OVN-Kubernetes translates of each network on its way to the host; what cannot be read now is as it was.
    fn translations(&mut self, snapshot: &Snapshot) -> Translations {
        let read = self.north.with_replica(ovn::north::translations);
        if let Some(Ok(by_port)) = read.filter(|_| self.north.has_conditions()) {
            let here = snapshot.here();
            let of_networks = here.filter_map(|(name, view)| {
                let rows = by_port.get(&view.switch_router_port())?;
                Some((name.clone(), rows.clone()))
            });
            self.translated = of_networks.collect();
        }
        self.translated.clone()
    }

    /// Networks of users of which nothing can be planned, and nothing stands, keep nothing of others from being taken away.
    fn know_what_never_stood(&self, snapshot: &Snapshot, advanced: &mut Advanced) {
        let owners = self.north.with_replica(ovn::north::owners);
        let Some(Ok(owners)) = owners.filter(|_| self.north.has_conditions()) else {
            return;
        };
        let unknown = snapshot.unknown().map(|(name, _)| name);
        let unknown = unknown.filter(|name| !name.is_default() && !owners.contains(*name));
        let absent = unknown.map(|name| (name.clone(), Step::Absent));
        advanced.steps.extend(absent);
    }

    /// Whether peers are told, where the network is about to be no more past the tunnels: also by BGP, whatever the Node says, for as long
    /// as FRR announces the node's pods: without the host's part outsiders would come in to them. A FRR whose sockets cannot be asked is
    /// not waited for, one that does not answer for no longer than a minute, and neither is any where OVN-Kubernetes routes the network
    /// itself: it may announce its pods for good.
    async fn announced(
        &mut self,
        view: NetworkView<'_>,
        by_node: Option<bool>,
        wish: &Wish,
    ) -> Option<bool> {
        let is_next = self.step(view.name()) == Step::Host && !matches!(wish, Wish::Past);
        if !is_next || by_node != Some(false) {
            self.withdrawal.forget(view.name());
            return by_node;
        }
        let mut all = Vec::new();
        let vrf = view.share.vrf.as_ref().map(|vrf| vrf.device.as_str());
        for subnet in &view.share.host_subnets {
            // So long for all networks together.
            let left = self.frr_until.saturating_duration_since(Instant::now());
            // One that was not reached in that time may announce it, too.
            let answer = tokio::time::timeout(left, self.frr.originates(vrf, subnet)).await;
            all.push(heard(answer));
        }
        let is_its =
            matches!(wish, Wish::Kept(why) if [LEFT, OVN_KUBERNETES_ROUTES].contains(&why.reason));
        Some(self.withdrawal.waits(view.name(), &all, is_its))
    }

    /// Whether a network is to be led past the tunnels, and why not where it is declared so.
    fn wish(
        &mut self,
        snapshot: &Snapshot,
        view: NetworkView<'_>,
        (own, asked): (Option<&NodeEntry>, &Asked),
    ) -> Wish {
        if view.share.network.transport.no_overlay().is_none() {
            return Wish::Tunnels;
        }
        let forbidden = self.forbidden(snapshot, view);
        let sign = forbidden
            .as_ref()
            .filter(|problem| problem.reason == OVN_KUBERNETES_ROUTES);
        if sign.is_some() {
            self.given_way.note_sign(view.name());
        } else {
            let takeover = own.is_some_and(|own| own.node.takeover);
            self.given_way.note_no_sign(view.name(), takeover);
        }
        // Whatever else there is: the reason is what the next process knows it by.
        let other = forbidden.as_ref().map(|problem| problem.message.as_str());
        let left = (self.given_way).keeps_away(view.name(), sign.is_some(), other);
        if forbidden.is_some() || left.is_some() {
            self.kept.insert(view.name().clone());
        } else {
            self.kept.remove(view.name());
        }
        if let Some(why) = left {
            return Wish::Kept(why);
        }
        let step = |network: &NetworkName| self.step(network);
        let taken = || plan_node::beside::taken(snapshot, view, asked, &self.kept, step);
        if let Some(problem) = forbidden.or_else(taken) {
            return Wish::Kept(Unbuilt {
                reason: problem.reason,
                message: problem.message,
            });
        }
        let drained = own.is_some_and(|own| own.node.drain && own.node.cordoned);
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
        let Some((_, progress)) = self.progress.get_mut(name) else {
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
            Wish::Kept(mut kept) => {
                let on_its_way = why(step, wanted, seen, self.sight.trouble(name));
                let on_its_way = on_its_way.map(|way| format!("; {way}"));
                kept.message.push_str(&on_its_way.unwrap_or_default());
                Some(kept)
            }
            Wish::Past | Wish::Tunnels => {
                let reason = if wanted { "NotSteered" } else { "StillSteered" };
                let message = why(step, wanted, seen, self.sight.trouble(name));
                let message = message.or_else(|| {
                    let waits = self.left.is_some() && self.sight.is_routed(name);
                    waits.then(|| STILL_ROUTED.to_owned())
                });
                message.map(|message| Unbuilt { reason, message })
            }
        };
        let unbuilt = unbuilt.map(|why| (name.clone(), why));
        advanced.unbuilt.extend(unbuilt);
        advanced.steps.insert(name.clone(), step);
        // Nothing of a network of users has to stand where others announce it.
        let is_routed = name.is_default() && self.sight.is_routed(name);
        advanced
            .routed
            .others
            .extend(is_routed.then(|| name.clone()));
        match self.learned.until(name, step) {
            Some(Duration::ZERO) => drop(advanced.routed.own.insert(name.clone())),
            left => advanced.again = advanced.again.into_iter().chain(left).min(),
        }
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
        if snapshot.here().any(|(name, _)| *name == default) {
            return true;
        }
        let machine = &snapshot.machine;
        let Some(claims) = machine.claims.get(&default) else {
            return false;
        };
        if claims.owners.pairs().any(|(_, node)| *node == machine.name) {
            // It has one that is not known whole yet: back it goes step by step.
            return false;
        }
        advanced.steps.insert(default.clone(), Step::Absent);
        let announced = own.is_some_and(|own| own.node.underlay_ready.contains_key(&default));
        let seen = Seen {
            announced: Some(announced),
            ..self.sight.seen(&default, Step::Absent)
        };
        seen.is_gone()
    }

    /// What of the node forbids that a network is led past the tunnels.
    fn forbidden(&mut self, snapshot: &Snapshot, view: NetworkView<'_>) -> Option<Problem> {
        let (name, port) = (view.name(), view.name().management_lsp(&view.node.name));
        let (cluster_router, gateway_router) = (view.cluster_router(), view.gateway_router());
        let scene = ovn::north::Scene {
            network: name,
            cluster_router: cluster_router.as_str(),
            gateway_router: gateway_router.as_str(),
            port: &port,
            own: &signs::telling(view),
            whole: &view.share.network.prefixes().collect::<Vec<_>>(),
        };
        let read = |replica: &_| ovn::north::signs(replica, scene);
        let found = self.north.with_replica(read);
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
        let links = snapshot.machine.links.as_deref().unwrap_or_default();
        let table = plan_node::vrf::table(name, view.share.network.id, links);
        let found = signs::Found {
            vrf: table.is_some(),
            router: found.router,
            port: found.port,
            tunnels: found.tunnels,
            no_overlay_snat: found.no_overlay_snat,
            own_subnet_route: found.own_subnet_route,
            built: found.built,
            is_strict: strict.into_iter().max() == Some(1),
            not_forwarding: not_forwarding.map(|file| file.replace('/', ".")).collect(),
        };
        let others = signs::has_others(view, snapshot.machine.claims.get(name));
        signs::forbids(view, &found, others)
    }
}
