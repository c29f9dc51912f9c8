//! What one NetworkAttachmentDefinition says of its network.
//! In: the object. Out: a network, or what is wrong with it. Invariant: only objects are heard that were made for a
//! ClusterUserDefinedNetwork, each of the network that is called as it is.
//! Not here: which of several objects is believed ([`super::declare`]).

use std::collections::BTreeSet;

use model::names::{NetworkName, ObjectKey};
use model::network::{Network, Topology};
use model::problem::Problem;
use model::user_network::attachment::{
    IDS, NETWORK_ID, NETWORK_NAME, ROUTING, routing_of, routing_word,
};
use model::user_network::{Attachment, CUDN_PREFIX, Undescribed, UserNetwork, UserTransport};

use super::{CONTRADICTION, layer2};

/// Reason of a problem: an object of a network cannot be read whole.
const MALFORMED: &str = "AttachmentMalformed";
/// Reason of a problem: an object has no id yet.
const NO_ID: &str = "NetworkIdMissing";
/// Reason of a problem: a transport, or a layout without an overlay, that is not built.
const UNSUPPORTED: &str = "TransportNotSupported";
/// Reason of a problem: a layer-2 network whose gateways or management ports are elsewhere than they are built.
const LAYOUT: &str = "LayoutNotSupported";

/// What a NetworkAttachmentDefinition says; all that is kept of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Of which network.
    pub network: NetworkName,
    /// `metadata.creationTimestamp`, seconds since 1970.
    pub created: i64,
    /// `metadata.deletionTimestamp` is set: pods may still use it.
    pub deleting: bool,
    /// uid of the ClusterUserDefinedNetwork that is its controller.
    pub owner: Option<String>,
    /// The RouteAdvertisements that serve the network.
    pub advertisements: BTreeSet<String>,
    /// What the network is.
    pub said: Said,
}

/// What a network is by one of its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The default network, which the configuration describes.
    Default,
    /// This one.
    Network(Network),
    /// It is not known yet.
    Waits(Problem),
    /// It is known, and not built here.
    Refused(Problem),
}

/// What the object of this name says; `None` where it is of no primary network of a ClusterUserDefinedNetwork. `default` is the
/// name of the default network's object.
#[must_use]
pub fn read(key: &ObjectKey, attachment: &Attachment, default: &ObjectKey) -> Option<Statement> {
    let (network, said) = if key == default {
        (NetworkName::default_network(), Said::Default)
    } else {
        let name = NetworkName::from(format!("{CUDN_PREFIX}{}", key.name));
        let said = of_users(key, &name, attachment)?;
        (name, said)
    };
    Some(Statement {
        network,
        created: attachment.created,
        deleting: attachment.deleting,
        owner: attachment.owner.clone(),
        advertisements: attachment.advertisements(),
        said,
    })
}

fn of_users(key: &ObjectKey, name: &NetworkName, attachment: &Attachment) -> Option<Said> {
    if attachment.owner.is_none() && !attachment.is_marked() {
        return None;
    }
    let is_secondary = attachment.network.as_ref().is_some_and(|(_, main)| !main);
    let stored = attachment.annotations.get(NETWORK_NAME);
    if is_secondary {
        return None;
    }
    let problem = |reason, why: String| {
        let subject = format!("NetworkAttachmentDefinition/{key}");
        Problem::new(subject, reason, format!("network {name}: {why}"))
    };
    let configured = attachment.network.as_ref().map(|(name, _)| name.as_str());
    let is_of_namespace = |name: &str| !name.starts_with(CUDN_PREFIX);
    if attachment.owner.is_none() && configured.is_some_and(is_of_namespace) {
        // OVN-Kubernetes marks those of UserDefinedNetworks in the same way.
        return None;
    }
    for (field, said) in [
        (
            "annotation k8s.ovn.org/network-name",
            stored.map(String::as_str),
        ),
        ("spec.config: name", configured),
    ] {
        if let Some(other) = said.filter(|said| *said != name.as_str()) {
            let why = format!("{field} is {other}; allowed: {name}");
            return Some(Said::Waits(problem(MALFORMED, why)));
        }
    }
    let described = match (&attachment.described, &attachment.undescribed) {
        (Some(network), _) => network.clone(),
        (None, Some(Undescribed::Transport(why))) => {
            return Some(Said::Refused(problem(UNSUPPORTED, why.clone())));
        }
        (None, Some(Undescribed::Config(why))) => {
            return Some(Said::Waits(problem(MALFORMED, why.clone())));
        }
        (None, None) => return Some(Said::Waits(problem(MALFORMED, "no spec.config".to_owned()))),
    };
    if let Some((reason, why)) = unsupported(&described) {
        return Some(Said::Refused(problem(reason, why)));
    }
    Some(match with_annotations(attachment, name, described) {
        Ok(network) => Said::Network(network),
        Err((reason, why)) => Said::Waits(problem(reason, why)),
    })
}

/// The network with what only annotations say: its id, and who routes it.
fn with_annotations(
    attachment: &Attachment,
    name: &NetworkName,
    mut described: UserNetwork,
) -> Result<Network, (&'static str, String)> {
    if let UserTransport::NoOverlay { routing, .. } = &mut described.transport
        && let Some(word) = attachment.annotations.get(ROUTING)
    {
        *routing = routing_of(word).ok_or_else(|| {
            let why = format!("annotation {ROUTING} is {word:?}; allowed: managed, unmanaged");
            (MALFORMED, why)
        })?;
    }
    if described.subnets.is_empty() {
        let why = "spec.config: subnets is absent; allowed: at least one".to_owned();
        return Err((MALFORMED, why));
    }
    let last = IDS - 1;
    let id = attachment.stored_id().ok_or_else(|| {
        let said = attachment.annotations.get(NETWORK_ID);
        match said {
            None => {
                let why = format!("annotation {NETWORK_ID} is not there yet");
                (NO_ID, why)
            }
            Some(said) => {
                let why = format!("annotation {NETWORK_ID} is {said:?}; allowed: 1 to {last}");
                (MALFORMED, why)
            }
        }
    })?;
    let layer2 = match described.topology {
        Topology::Layer3 => None,
        Topology::Layer2 => {
            let read = layer2::read(attachment, &described);
            Some(read.map_err(|why| (MALFORMED, why))?)
        }
    };
    let network = described.network(name.clone(), id);
    Ok(Network { layer2, ..network })
}

/// Why a network is not built, with the reason of the problem.
fn unsupported(network: &UserNetwork) -> Option<(&'static str, String)> {
    match (network.transport, network.topology) {
        (_, Topology::Layer3) => None,
        (UserTransport::NoOverlay { .. }, Topology::Layer2) => {
            let why =
                "spec.config: topology is layer2, transport noOverlay; allowed with it: layer3";
            Some((UNSUPPORTED, why.to_owned()))
        }
        (UserTransport::Unset | UserTransport::Geneve, Topology::Layer2) => {
            layer2::unsupported(network).map(|why| (LAYOUT, why))
        }
    }
}

/// What an object says otherwise than the one that is believed; without one, than what was in force before.
pub(super) fn contradiction(
    (believed, network): (Option<&ObjectKey>, &Network),
    (key, said): (&ObjectKey, &Said),
) -> Option<Problem> {
    let name = &network.name;
    let differs = match said {
        Said::Default => return None,
        Said::Waits(problem) | Said::Refused(problem) => {
            let mut problem = problem.clone();
            problem.message.push_str(&match believed {
                Some(believed) => format!("; what {believed} says is in force"),
                None => "; what was in force before stays".to_owned(),
            });
            return Some(problem);
        }
        Said::Network(other) => difference(network, other)?,
    };
    let (field, value, in_force) = differs;
    let whose = believed.map_or("what was before".to_owned(), |key| format!("that of {key}"));
    Some(Problem::new(
        format!("NetworkAttachmentDefinition/{key}"),
        CONTRADICTION,
        format!("network {name}: {field} is {value}; in force is {whose}: {in_force}"),
    ))
}

/// The first field that differs: its name, what another object says, what is in force.
fn difference(in_force: &Network, other: &Network) -> Option<(&'static str, String, String)> {
    let list = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(",");
    let fields = |network: &Network| {
        let options = network.transport.no_overlay();
        let layer2 = network.layer2.as_ref();
        let transit = layer2.map_or(&[][..], |layer2| layer2.transit_subnets.as_slice());
        let number = |mtu: Option<u32>| mtu.map_or("absent".to_owned(), |mtu| mtu.to_string());
        [
            ("annotation k8s.ovn.org/network-id", network.id.to_string()),
            (
                "spec.config: topology",
                format!("{:?}", network.topology).to_lowercase(),
            ),
            (
                "spec.config: subnets",
                list(&mut network.subnets.iter().map(ToString::to_string)),
            ),
            (
                "spec.config: joinSubnet",
                list(&mut network.join_subnets.iter().map(ToString::to_string)),
            ),
            (
                "annotation k8s.ovn.org/tunnel-keys",
                network
                    .layer2
                    .as_ref()
                    .map_or("absent".to_owned(), |layer2| {
                        format!("[{},{}]", layer2.switch_key, layer2.router_key)
                    }),
            ),
            (
                "spec.config: transitSubnet",
                list(&mut transit.iter().map(ToString::to_string)),
            ),
            ("spec.config: mtu", number(network.mtu)),
            (
                "spec.config: outboundSNAT",
                match options.map(|options| options.outbound_snat) {
                    Some(true) => "enabled".to_owned(),
                    Some(false) => "disabled".to_owned(),
                    None => "absent".to_owned(),
                },
            ),
            (
                "annotation noverlay.io/routing",
                options
                    .map_or("absent", |o| routing_word(o.routing))
                    .to_owned(),
            ),
        ]
    };
    let pairs = fields(in_force).into_iter().zip(fields(other));
    let mut differing = pairs.filter(|((_, own), (_, theirs))| own != theirs);
    let ((field, own), (_, theirs)) = differing.next()?;
    Some((field, theirs, own))
}
