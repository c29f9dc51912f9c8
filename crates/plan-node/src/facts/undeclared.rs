//! Networks that may be declared, of which no more than a name is known, or not even that.
//! In: names. Out: shares that nothing is planned for. Invariant: what stands for such a network stays.
//! Not here: what is declared (`declared`).

use std::collections::{BTreeMap, BTreeSet};

use model::names::NetworkName;
use model::network::Network;
use model::problem::Problem;

use super::NotYet;
use crate::snapshot::{NetworkShare, Share, UnknownShare};

/// What is not known of networks that may be declared beside those that are known to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Undeclared {
    /// They have not been listed yet: any may be declared.
    pub unlisted: bool,
    /// Networks that are declared, and nobody knows yet what they are: why.
    pub waiting: BTreeMap<NetworkName, Problem>,
    /// Networks that management ports stand for.
    pub standing: BTreeSet<NetworkName>,
}

impl Undeclared {
    /// Those that were built on before go on as they were: they count as declared.
    pub(super) fn remember(
        &self,
        declared: &mut Vec<Network>,
        shares: &BTreeMap<NetworkName, NetworkShare>,
    ) {
        for (name, share) in shares {
            let may_be = self.unlisted || self.waiting.contains_key(name);
            if may_be && !declared.iter().any(|n| n.name == *name) {
                declared.push(share.network.clone());
            }
        }
    }

    /// Adds the others to the networks of a snapshot, and why nothing is known of them.
    pub(super) fn add_to(
        &self,
        networks: &mut BTreeMap<NetworkName, Share>,
        stale: &mut BTreeMap<NetworkName, NotYet>,
    ) {
        let standing = self.standing.iter().filter(|_| self.unlisted);
        for name in self.waiting.keys().chain(standing) {
            networks.entry(name.clone()).or_insert_with(|| {
                Share::Unknown(UnknownShare {
                    network: None,
                    host_subnets: Vec::new(),
                })
            });
        }
        for (name, why) in &self.waiting {
            let why = || NotYet::Unsound(why.clone());
            stale.entry(name.clone()).or_insert_with(why);
        }
    }
}
