//! Which networks are declared: those of users by their NetworkAttachmentDefinitions, and where pods of each are advertised.
//! In: the objects as they are read now, and what was made of them before. Out: [`Declared`].
//! Invariant: what is in force of a network stays while one of its objects says it, its id also while one may: objects that contradict each other never make
//! it flap, nor does the order in which they come; what has not been listed, or cannot be read, takes nothing away.
//! Not here: what an object says (`said`), reading (the node-agent), a node's share of a network (`facts`).

mod advertised;
mod layer2;
mod said;
mod taken;

use std::collections::{BTreeMap, BTreeSet};

use model::intent::{PodAdvertisement, TargetVrf};
use model::names::{NetworkName, ObjectKey};
use model::network::{Advertised, Network};
use model::problem::Problem;

use taken::Taken;

pub use said::{Said, Statement, read};

/// Reason of a problem: another network has the id, or the names of rows that are made of the network's name.
pub const NETWORK_TAKEN: &str = "NetworkTaken";
/// Reason of a problem: two objects of one network say different things.
pub const CONTRADICTION: &str = "AttachmentContradicts";
/// Reason of a problem: where a network is advertised is not known.
pub const NOT_LISTED: &str = "RouteAdvertisementsNotListed";

/// The objects as they are now; `None`: they have not been listed yet.
#[derive(Debug, Clone, Copy)]
pub struct Objects<'a> {
    /// What NetworkAttachmentDefinitions say that are of networks ([`read`]).
    pub attachments: Option<&'a BTreeMap<&'a ObjectKey, &'a Statement>>,
    /// RouteAdvertisements by name.
    pub advertisements: Option<&'a BTreeMap<&'a str, &'a PodAdvertisement>>,
}

/// What is declared, and what is to be remembered of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declared {
    /// The NetworkAttachmentDefinitions have been listed: what is nowhere here is not declared.
    pub listed: bool,
    /// The networks of users that are in force.
    pub networks: BTreeMap<NetworkName, Network>,
    /// What is wrong with a network of users: where it is in force it stays as it is.
    pub troubles: BTreeMap<NetworkName, Trouble>,
    /// What objects say and is not believed, though their network is in force.
    pub ignored: Vec<Problem>,
    /// Where pods of the default network are advertised; `None` until it is known.
    pub default_network: Option<Advertised>,
    /// Networks that were in force and wait, as they were: what stands for them has their ids and keys.
    held: BTreeMap<NetworkName, Network>,
    /// Of each network in force the ClusterUserDefinedNetworks (uid) whose it is.
    owners: BTreeMap<NetworkName, BTreeSet<String>>,
    /// The RouteAdvertisements that objects name, and what each of them does.
    advertising: BTreeMap<String, Option<TargetVrf>>,
}

/// Why a network is not built as its objects say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Nobody knows yet what it is: what stands for it stays.
    Waits(Problem),
    /// It is known, and nothing that is built here: nothing is to stand for it.
    Refused(Problem),
}

impl Trouble {
    /// What is wrong.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        match self {
            Self::Waits(problem) | Self::Refused(problem) => problem,
        }
    }
}

impl Declared {
    /// Networks that may be declared, of which nothing is known.
    pub fn waiting(&self) -> impl Iterator<Item = (&NetworkName, &Problem)> {
        let troubles = self.troubles.iter();
        troubles.filter_map(|(name, trouble)| match trouble {
            Trouble::Waits(problem) if !self.networks.contains_key(name) => Some((name, problem)),
            Trouble::Waits(_) | Trouble::Refused(_) => None,
        })
    }
}

/// What is declared now.
#[must_use]
pub fn declare(before: &Declared, objects: Objects<'_>) -> Declared {
    let Some(attachments) = objects.attachments else {
        return before.clone();
    };
    let mut of_networks: BTreeMap<&NetworkName, Vec<Object<'_>>> = BTreeMap::new();
    for (key, statement) in attachments {
        let list = of_networks.entry(&statement.network).or_default();
        list.push(Object { key, statement });
    }
    let mut now = Declared {
        listed: true,
        advertising: advertised::advertising(before, attachments, objects.advertisements),
        ..Declared::default()
    };
    let default = of_networks.remove(&NetworkName::default_network());
    now.default_network = default.map_or(Some(Advertised::default()), |of_default| {
        let names = advertised::names(&of_default);
        let known = advertised::of_network(&now.advertising, &names, None);
        objects
            .advertisements
            .map_or(before.default_network, |_| Some(known))
            .or(names.is_empty().then_some(known))
    });
    let mut chosen: Vec<Choice<'_>> = Vec::new();
    for (name, list) in &of_networks {
        let choice = choose(before, name, list, &mut now);
        chosen.extend(choice);
    }
    // Whoever has it keeps it, then the eldest.
    chosen.sort_by_key(|choice| (!choice.stays, choice.object.age()));
    let mut taken = Taken::default();
    taken.keep(before, &chosen);
    for choice in chosen {
        now.admit(before, &choice, &of_networks, &mut taken, objects);
    }
    now
}

/// One of a network's objects.
#[derive(Debug, Clone, Copy)]
struct Object<'a> {
    key: &'a ObjectKey,
    statement: &'a Statement,
}

impl<'a> Object<'a> {
    /// The elder is the smaller one; equally old ones by their names.
    fn age(&self) -> (i64, &'a ObjectKey) {
        (self.statement.created, self.key)
    }

    fn network(&self) -> Option<&'a Network> {
        match &self.statement.said {
            Said::Network(network) => Some(network),
            Said::Default | Said::Waits(_) | Said::Refused(_) => None,
        }
    }
}

/// What is to be in force of a network.
struct Choice<'a> {
    network: &'a Network,
    object: Object<'a>,
    /// It has been in force before, with this id.
    stays: bool,
}

/// Those of a network's objects that count: one that is being deleted is written by nobody any more, and counts only where all
/// are.
fn current<'a>(list: &[Object<'a>]) -> Vec<Object<'a>> {
    let staying = list.iter().filter(|object| !object.statement.deleting);
    let staying: Vec<Object<'a>> = staying.copied().collect();
    if staying.is_empty() {
        list.to_vec()
    } else {
        staying
    }
}

/// What of a network's objects is believed, and in `now` what is wrong with the others.
fn choose<'a>(
    before: &'a Declared,
    name: &NetworkName,
    list: &[Object<'a>],
    now: &mut Declared,
) -> Option<Choice<'a>> {
    let in_force = before.networks.get(name);
    let same = |object: &&Object<'a>| {
        let network = object.network();
        network.is_some_and(|n| in_force.is_some_and(|old| alike(n, old)))
    };
    let mut objects = current(list);
    objects.sort_by_key(Object::age);
    let good = || objects.iter().filter(|object| object.network().is_some());
    let Some(object) = good().find(same).or_else(|| good().next()).copied() else {
        return nothing_good(before, name, &objects, now);
    };
    let said = object.network()?;
    let kept =
        in_force.filter(|old| old.id != said.id && may_be_kept(before, name, &objects, object));
    let network = kept.unwrap_or(said);
    let believed = kept.is_none().then_some(object.key);
    for other in &objects {
        now.ignored.extend(said::contradiction(
            (believed, network),
            (other.key, &other.statement.said),
        ));
    }
    Some(Choice {
        network,
        object,
        stays: in_force.is_some_and(|old| old.id == network.id),
    })
}

/// Whether another id is doubted: one that a network has stays its own for life, and an object of it that cannot be read
/// may still say it. A ClusterUserDefinedNetwork that was made anew is another network.
fn may_be_kept(
    before: &Declared,
    name: &NetworkName,
    objects: &[Object<'_>],
    chosen: Object<'_>,
) -> bool {
    let unread = |object: &Object<'_>| matches!(object.statement.said, Said::Waits(_));
    objects.iter().any(unread) && !is_anothers(before, name, &chosen)
}

/// Whether an object is of another ClusterUserDefinedNetwork than those whose the network was.
fn is_anothers(before: &Declared, name: &NetworkName, object: &Object<'_>) -> bool {
    match (&object.statement.owner, before.owners.get(name)) {
        (Some(uid), Some(owners)) => !owners.contains(uid),
        (None, _) | (_, None) => false,
    }
}

/// Each of a network's objects has something wrong with it, the eldest's is told. What is in force of it stays, unless it is
/// another ClusterUserDefinedNetwork's now that cannot be built.
fn nothing_good<'a>(
    before: &'a Declared,
    name: &NetworkName,
    objects: &[Object<'a>],
    now: &mut Declared,
) -> Option<Choice<'a>> {
    let is_known = |object: &&Object<'_>| matches!(object.statement.said, Said::Refused(_));
    let told = objects.iter().find(is_known).or(objects.first()).copied()?;
    let trouble = match &told.statement.said {
        Said::Waits(problem) => Trouble::Waits(problem.clone()),
        Said::Refused(problem) => Trouble::Refused(problem.clone()),
        Said::Default | Said::Network(_) => return None,
    };
    let is_anothers = |object: &Object<'_>| is_anothers(before, name, object);
    let gone = matches!(trouble, Trouble::Refused(_)) && objects.iter().all(is_anothers);
    now.troubles.insert(name.clone(), trouble);
    let network = before.networks.get(name).filter(|_| !gone)?;
    Some(Choice {
        network,
        object: told,
        stays: true,
    })
}

/// Whether an object says what is in force; where it is advertised is not in it.
fn alike(said: &Network, in_force: &Network) -> bool {
    let advertised = in_force.advertised;
    Network {
        advertised,
        ..said.clone()
    } == *in_force
}

impl Declared {
    /// Takes a network into force, unless another one has what it needs or nobody knows where it is advertised.
    fn admit(
        &mut self,
        before: &Self,
        choice: &Choice<'_>,
        of_networks: &BTreeMap<&NetworkName, Vec<Object<'_>>>,
        taken: &mut Taken,
        objects: Objects<'_>,
    ) {
        let name = &choice.network.name;
        let subject = format!("NetworkAttachmentDefinition/{}", choice.object.key);
        if let Some((what, of)) = taken.holder(choice.network) {
            let text = format!(
                "network {name}: {what}, as of network {of}; allowed: what no other network has"
            );
            let problem = Problem::new(subject, NETWORK_TAKEN, text);
            self.troubles.insert(name.clone(), Trouble::Waits(problem));
            let stands = before.networks.get(name).or(before.held.get(name));
            self.held
                .extend(stands.map(|network| (name.clone(), network.clone())));
            return;
        }
        let list = of_networks.get(name).map(Vec::as_slice).unwrap_or_default();
        let names = advertised::names(list);
        let old = before.networks.get(name);
        let advertised = match (objects.advertisements, old) {
            (None, Some(old)) => old.advertised,
            (None, None) if !names.is_empty() => {
                let text = format!(
                    "network {name}: the RouteAdvertisements that annotation k8s.ovn.org/route-advertisements names have not been listed yet"
                );
                let problem = Problem::new(subject, NOT_LISTED, text);
                self.troubles.insert(name.clone(), Trouble::Waits(problem));
                return;
            }
            _ => advertised::of_network(&self.advertising, &names, Some(choice.network)),
        };
        taken.take(choice.network);
        let owners = list.iter().filter(|o| o.network().is_some());
        let owners: BTreeSet<String> = owners.filter_map(|o| o.statement.owner.clone()).collect();
        let remembered = before.owners.get(name).filter(|_| owners.is_empty());
        let owners = remembered.cloned().unwrap_or(owners);
        self.owners.insert(name.clone(), owners);
        let network = Network {
            advertised,
            ..choice.network.clone()
        };
        self.networks.insert(name.clone(), network);
    }
}
