//! What loops saw of the parts that lead networks past the tunnels.
//! In: the outcome of each loop's passes. Out: how much of each part stands, at a step.
//! Invariant: what was seen at a step that has other parts is not seen at this one. Not here: which step follows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use model::NetworkName;
use plan_node::Plan;
use plan_node::beside::Steps;
use plan_node::beside::steps::{Part, Seen, Step};

use crate::world::FactsChanged;

/// Parts of the host that one loop looks after for all networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostPart {
    /// The packet filter's table.
    Filter,
    /// Rules and routes.
    Rules,
}

/// What came of a loop's pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Applied {
    /// Its part is as planned.
    Stands,
    /// It may not stand, or somebody else's is in its way.
    Broken(String),
    /// It could not be looked at: what was seen of it is so still.
    Unknown(String),
}

/// What others' packet filter drops of networks, in words.
pub(crate) type Dropped = BTreeMap<NetworkName, String>;

#[derive(Debug, Default)]
struct Passes {
    /// Others drop what is for their pods.
    dropped: Dropped,
    /// With the steps that the pass was made for, and whether what is not wanted was taken away: all networks were known.
    host: BTreeMap<HostPart, (Steps, bool, bool)>,
    /// What keeps parts from being whole, in words.
    trouble: BTreeMap<HostPart, String>,
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

    /// A pass over a part of the host, for a plan.
    pub(crate) fn note_host(&self, part: HostPart, plan: &Plan, applied: Applied) {
        self.note_pass(part, (&plan.steps, plan.is_complete()), applied);
    }

    fn note_pass(&self, part: HostPart, (steps, is_whole): (&Steps, bool), applied: Applied) {
        let (stands, trouble) = match applied {
            Applied::Stands => (Some(true), None),
            Applied::Broken(why) => (Some(false), Some(why)),
            Applied::Unknown(why) => (None, Some(why)),
        };
        let is_news = self.with(|passes| {
            let now = stands.map(|stands| (steps.clone(), stands, is_whole));
            let is_seen = now.is_some() && passes.host.get(&part) != now.as_ref();
            passes.host.extend(now.map(|now| (part, now)));
            let is_said = passes.trouble.get(&part) != trouble.as_ref();
            match trouble {
                Some(why) => drop(passes.trouble.insert(part, why)),
                None => drop(passes.trouble.remove(&part)),
            }
            is_seen || is_said
        });
        if is_news {
            self.facts.note();
        }
    }

    /// What others' packet filter drops now; each network is by itself.
    pub(crate) fn note_dropped(&self, dropped: Dropped) {
        let is_news = self.with(|passes| {
            let before = std::mem::replace(&mut passes.dropped, dropped);
            before != passes.dropped
        });
        if is_news {
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

    pub(super) fn is_routed(&self, network: &NetworkName) -> bool {
        self.with(|passes| passes.routed.contains(network))
    }

    /// What was seen of a network that is at `step` now; what was seen at another one, at which it has not the same parts, is not
    /// seen yet.
    pub(super) fn seen(&self, network: &NetworkName, step: Step) -> Seen {
        let same = |of: Step, first: Step| (of >= first) == (step >= first);
        self.with(|passes| {
            let rows = passes.rows.get(network);
            let part = |first: Step, part: Part, of: Step| same(of, first).then_some(part);
            let host = |which: HostPart, first: Step| {
                let (steps, stands, is_whole) = passes.host.get(&which)?;
                let of = steps.get(network).filter(|of| same(**of, first))?;
                match (*stands, *of >= first) {
                    (true, true) => Some(Part::Whole),
                    (true, false) => is_whole.then_some(Part::Gone),
                    (false, _) => Some(Part::Partial),
                }
            };
            Seen {
                untracked: rows.and_then(|(of, is, _)| part(Step::Untracked, *is, *of)),
                steering: rows.and_then(|(of, _, is)| part(Step::Steering, *is, *of)),
                filter: match host(HostPart::Filter, Step::Filtered) {
                    Some(Part::Whole) if passes.dropped.contains_key(network) => {
                        Some(Part::Partial)
                    }
                    seen => seen,
                },
                rules: host(HostPart::Rules, Step::Host),
                announced: None,
            }
        })
    }

    /// What keeps the host's part from being whole for a network, in words.
    pub(super) fn trouble(&self, network: &NetworkName) -> Option<String> {
        self.with(|passes| {
            let of_all = passes.trouble.values().next();
            of_all.or(passes.dropped.get(network)).cloned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(step: Step) -> Steps {
        [(NetworkName::default_network(), step)].into()
    }

    /// A pass for a plan in which all networks are known.
    fn note(sight: &Sight, part: HostPart, step: Step, applied: Applied) {
        sight.note_pass(part, (&steps(step), true), applied);
    }

    #[test]
    fn what_others_drop_of_one_network_is_no_others_trouble() {
        let sight = Sight::new(FactsChanged::default());
        let (default, red) = (NetworkName::default_network(), NetworkName::from("red"));
        let both = [(default.clone(), Step::Host), (red.clone(), Step::Host)].into();
        sight.note_pass(HostPart::Filter, (&both, true), Applied::Stands);
        sight.note_dropped([(red.clone(), "a chain drops".to_owned())].into());
        let filter = |network: &NetworkName| sight.seen(network, Step::Host).filter;
        assert_eq!(filter(&default), Some(Part::Whole));
        assert_eq!(sight.trouble(&default), None);
        assert_eq!(filter(&red), Some(Part::Partial));
        assert_eq!(sight.trouble(&red).as_deref(), Some("a chain drops"));
        sight.note_dropped(Dropped::new());
        assert_eq!(filter(&red), Some(Part::Whole));
    }

    #[test]
    fn what_is_not_wanted_is_not_seen_to_be_gone_while_some_network_is_not_known() {
        let sight = Sight::new(FactsChanged::default());
        let default = NetworkName::default_network();
        let rules = |step: Step| sight.seen(&default, step).rules;
        for (is_whole, gone) in [(false, None), (true, Some(Part::Gone))] {
            let pass = |step: Step| {
                sight.note_pass(HostPart::Rules, (&steps(step), is_whole), Applied::Stands);
            };
            pass(Step::Host);
            assert_eq!(rules(Step::Ready), Some(Part::Whole));
            pass(Step::Filtered);
            assert_eq!(rules(Step::Filtered), gone);
        }
    }

    #[test]
    fn what_was_seen_at_a_step_that_has_other_parts_is_not_seen_at_this_one() {
        let (sight, default) = (
            Sight::new(FactsChanged::default()),
            NetworkName::default_network(),
        );
        let seen = |step: Step| sight.seen(&default, step);
        assert_eq!(seen(Step::Absent), Seen::default(), "nobody has looked");
        note(&sight, HostPart::Filter, Step::Host, Applied::Stands);
        assert_eq!(seen(Step::Ready).filter, Some(Part::Whole));
        assert_eq!(seen(Step::Ready).rules, None, "one of two");
        note(&sight, HostPart::Rules, Step::Host, Applied::Stands);
        sight.note_rows(&default, Step::Host, Part::Whole, Part::Gone);
        for step in [Step::Host, Step::Ready, Step::Steering] {
            assert_eq!(seen(step).rules, Some(Part::Whole), "{step:?}");
            assert_eq!(seen(step).untracked, Some(Part::Whole), "{step:?}");
        }
        assert_eq!(seen(Step::Filtered).filter, Some(Part::Whole));
        assert_eq!(seen(Step::Ready).steering, Some(Part::Gone));
        assert_eq!(seen(Step::Steering).steering, None, "the policy is to come");
        // On the way back loops have not looked yet.
        assert_eq!(seen(Step::Filtered).rules, None);
        assert_eq!(seen(Step::Untracked).filter, None);
        assert_eq!(seen(Step::Absent).untracked, None);
        note(&sight, HostPart::Rules, Step::Filtered, Applied::Stands);
        assert_eq!(seen(Step::Filtered).rules, Some(Part::Gone));
        note(&sight, HostPart::Filter, Step::Untracked, Applied::Stands);
        assert_eq!(seen(Step::Untracked).filter, Some(Part::Gone));
        assert_eq!(sight.trouble(&default), None);
        let why = || "nft failed".to_owned();
        note(
            &sight,
            HostPart::Filter,
            Step::Untracked,
            Applied::Broken(why()),
        );
        assert_eq!(seen(Step::Untracked).filter, Some(Part::Partial));
        assert_eq!(sight.trouble(&default), Some(why()));
        let other = NetworkName::from("red");
        assert_eq!(sight.seen(&other, Step::Absent), Seen::default());
    }

    #[test]
    fn what_could_not_be_looked_at_is_as_it_was_and_said() {
        let (sight, default) = (
            Sight::new(FactsChanged::default()),
            NetworkName::default_network(),
        );
        let unknown = || Applied::Unknown("nft does not answer".to_owned());
        let filter = |step: Step| sight.seen(&default, step).filter;
        note(&sight, HostPart::Filter, Step::Filtered, unknown());
        assert_eq!(filter(Step::Filtered), None, "nobody has looked");
        note(&sight, HostPart::Filter, Step::Filtered, Applied::Stands);
        note(&sight, HostPart::Filter, Step::Steering, unknown());
        assert_eq!(filter(Step::Steering), Some(Part::Whole));
        assert_eq!(
            sight.trouble(&default).as_deref(),
            Some("nft does not answer")
        );
        note(&sight, HostPart::Filter, Step::Untracked, unknown());
        assert_eq!(
            filter(Step::Untracked),
            None,
            "it is to be gone, and nobody knows"
        );
        note(&sight, HostPart::Filter, Step::Untracked, Applied::Stands);
        assert_eq!(sight.trouble(&default), None);
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
}
