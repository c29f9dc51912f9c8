//! What the plan rests on beside OVN-Kubernetes, which builds all networks.
//! In: what is declared, what annotations ask for, what stands. Out: the networks to plan for and their next steps, the plan.
//! Invariant: of a network that nobody wants past the tunnels, and of which nothing stands, nothing is planned and nothing told.
//! Not here: steps (`crate::beside`), what stands at each (`plan_node::beside`).

use std::collections::{BTreeMap, BTreeSet};

use model::nb::RowKey;
use model::node::annotation;
use model::{Network, NetworkName, Problem};
use plan_node::{Declared, Plan, Snapshot, Undeclared};

use plan_node::beside::steps::Step;

use super::{Unbuilt, World};
use crate::beside::{Advanced, Beside};

/// Reason of a network whose annotation asks for what cannot be.
const ANNOTATION_INVALID: &str = "NoOverlayAnnotationInvalid";

impl World {
    /// The next step of each network beside OVN-Kubernetes; `None` where the topology is built here.
    pub(super) async fn advance(&mut self, snapshot: &Snapshot) -> Option<Advanced> {
        let own = self.own();
        let beside = self.beside.as_mut()?;
        let asked = self.networks.asked().unwrap_or_default();
        let mut advanced = beside.advance(snapshot, own.as_ref(), &asked).await;
        for (name, wish) in asked {
            if let Err(message) = wish.transport {
                let reason = ANNOTATION_INVALID;
                advanced.unbuilt.insert(name, Unbuilt { reason, message });
            }
        }
        Some(advanced)
    }

    pub(super) fn plan_beside(&self, snapshot: &Snapshot, advanced: &Advanced) -> Plan {
        let steps = &advanced.steps;
        let (routed, translations) = (&advanced.routed, &advanced.translations);
        let mut plan = plan_node::beside::plan(snapshot, steps, routed, translations);
        // What was told of a network stays told until it is known how far it is.
        let own = self.own();
        let told = own.and_then(|own| own.published.get(annotation::UNDERLAY_READY).cloned());
        let beside = self.beside.as_ref();
        let read = |text: String| beside.map(|beside| beside.told(&text));
        let mut told = told.and_then(read).unwrap_or_default();
        told.retain(|name, _| plan.unknown.contains(name));
        let ready = snapshot.here().filter(|(name, _)| {
            let step = steps.get(*name);
            step.is_some_and(|step| *step >= Step::Ready)
        });
        let ready = ready.map(|(name, view)| (name.clone(), view.share.host_subnets.clone()));
        told.extend(ready);
        let ready = beside.and_then(|beside| beside.annotation(&told));
        if self.beside.as_ref().is_some_and(Beside::is_leaving) {
            plan.annotations = plan.annotations.map(|_| BTreeMap::new());
        }
        if let (Some(all), Some(ready)) = (&mut plan.annotations, ready) {
            all.insert(annotation::UNDERLAY_READY.to_owned(), ready);
        }
        plan
    }

    /// The same beside OVN-Kubernetes: the default network as the configuration has it now, and those of users that are to be led past
    /// the tunnels, or are on their way back to them.
    pub(super) fn networks_beside(
        &self,
        beside: &Beside,
        declared: &Declared,
    ) -> (Vec<Network>, Undeclared, bool) {
        let default = Network {
            advertised: declared.default_network.unwrap_or_default(),
            ..self.configuration.now().settings.default_network()
        };
        let asked = self.networks.asked();
        let owners = self.north.with_replica(ovn::north::owners);
        let owners = owners.and_then(Result::ok);
        let has_begun = |name: &NetworkName| beside.has_begun(name);
        let of_users =
            plan_node::beside::networks(declared, asked.as_ref(), owners.as_ref(), has_begun);
        let (of_users, undeclared) = of_users;
        let all = std::iter::once(default).chain(of_users).collect();
        (all, undeclared, declared.default_network.is_some())
    }

    /// Beside OVN-Kubernetes: what is followed of its Northbound database hangs on the networks.
    pub(super) fn follow(&self, networks: &[Network], undeclared: &Undeclared) {
        if self.beside.is_none() {
            return;
        }
        // Also of those that wait, and are as they were.
        let names = networks.iter().map(|network| &network.name);
        let names: BTreeSet<&NetworkName> = names.chain(undeclared.waiting.keys()).collect();
        let keys = names.into_iter();
        let keys = keys.flat_map(|name| plan_node::beside::north::keys(name, &self.node));
        let keys: Vec<RowKey> = keys.collect();
        self.north
            .set_conditions(ovn::north::conditions_beside(&keys));
    }

    /// What objects say and is not believed; beside OVN-Kubernetes that is between it and them.
    pub(super) fn ignored<'a>(
        &self,
        declared: &'a Declared,
    ) -> impl Iterator<Item = &'a Problem> + use<'a> {
        let is_ours = self.beside.is_none();
        declared.ignored.iter().filter(move |_| is_ours)
    }

    /// Whether anybody wants to know of trouble with a network: beside OVN-Kubernetes, which builds them all, of those alone that are
    /// to be led past the tunnels, or are.
    pub(super) fn is_told_of(&self, name: &NetworkName, snapshot: &Snapshot) -> bool {
        let is_asked = || {
            let asked = self.networks.asked();
            asked.is_some_and(|asked| asked.contains_key(name))
        };
        self.beside.is_none() || snapshot.networks.contains_key(name) || is_asked()
    }
}
