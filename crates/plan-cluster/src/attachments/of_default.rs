//! The default network's NetworkAttachmentDefinition.
//! In: the world, which RouteAdvertisements serve the network, what of the configuration is in force. Out: the annotations to have.
//! Invariant: what somebody else put on the object stays; the names of RouteAdvertisements stay as a list once they are there.
//! Not here: `spec.config` (`api`), the writing.

use std::collections::{BTreeMap, BTreeSet};

use model::network::IN_FORCE;
use model::user_network::Attachment;
use model::user_network::attachment::names_in;
use model::{NetworkName, ObjectKey};

use super::list;
use crate::world::World;
use crate::{MANAGED_BY, RA_KEY};

/// Annotation: what the configuration file says and is not in force, a sentence each, separated by line ends.
pub const REFUSED: &str = "noverlay.io/configuration-refused";

/// What of the configuration file is in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configured {
    /// Value of [`IN_FORCE`].
    pub in_force: String,
    /// Sentences of [`REFUSED`].
    pub refused: Vec<String>,
    /// One of them is of the network's transport or routing, which stay.
    pub network_stays: bool,
}

/// The object to have: annotations of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultWanted(pub BTreeMap<&'static str, String>);

impl DefaultWanted {
    /// Whether the object that stands there is as it should be, but for its configuration.
    #[must_use]
    pub fn describes(&self, existing: &Attachment) -> bool {
        let names = |text: &str| names_in(text).map(str::to_owned).collect::<BTreeSet<_>>();
        let same = |key: &str| match (existing.annotations.get(key), self.0.get(key)) {
            (Some(is), Some(wanted)) if key == RA_KEY => names(is) == names(wanted),
            (is, wanted) => is == wanted,
        };
        let labelled = existing.labels.get(MANAGED_BY.0).map(String::as_str);
        labelled == Some(MANAGED_BY.1) && [RA_KEY, IN_FORCE, REFUSED].into_iter().all(same)
    }
}

/// The object of the default network; `None` where it need not be there.
#[must_use]
pub fn of_default_network(
    world: &World,
    key: &ObjectKey,
    advertised: &BTreeMap<NetworkName, BTreeSet<String>>,
    configured: &Configured,
) -> Option<DefaultWanted> {
    let network = world.default_network()?;
    let existing = world.attachments.get(key);
    let mut readable = world.ras.values().filter_map(|ra| ra.as_ref().ok());
    // What is refused now has to be refused after a start too.
    let needed = existing.is_some()
        || configured.network_stays
        || network.transport.no_overlay().is_some()
        || readable.any(|ra| ra.selects(None));
    if !needed {
        return None;
    }
    let mut annotations = BTreeMap::from([(IN_FORCE, configured.in_force.clone())]);
    if !configured.refused.is_empty() {
        annotations.insert(REFUSED, configured.refused.join("\n"));
    }
    let names = advertised.get(&network.name);
    let names: Vec<&String> = names.into_iter().flatten().collect();
    if !names.is_empty() || existing.is_some_and(|e| e.annotations.contains_key(RA_KEY)) {
        let names = names.into_iter().map(|name| format!("{name:?}"));
        annotations.insert(RA_KEY, list(names));
    }
    Some(DefaultWanted(annotations))
}
