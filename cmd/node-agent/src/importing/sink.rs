//! What an import fills: a gateway router, or beside OVN-Kubernetes Address_Sets.
//! In: inputs. Out: passes. Invariant: which of both it is does not change. Not here: either of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use import::Importer;
use model::Prefix;
use ovsdb::Uuid;
use plan_node::Inputs;
use settings::Limits;

use super::{Import, ImportError, Passed, SetImport};

/// What an import fills.
pub enum Sink {
    /// The network's gateway router.
    Router(Box<Import>),
    /// Beside OVN-Kubernetes: the network's Address_Sets.
    Sets(Box<SetImport>),
}

impl Sink {
    /// What reports are made from.
    #[must_use]
    pub fn importer(&self) -> &Importer<Uuid> {
        match self {
            Self::Router(import) => import.importer(),
            Self::Sets(import) => import.importer(),
        }
    }

    /// The subnets that sets hold; `None` of a gateway router.
    #[must_use]
    pub fn steered(&self) -> Option<&Arc<BTreeSet<Prefix>>> {
        match self {
            Self::Router(_) => None,
            Self::Sets(import) => Some(import.steered()),
        }
    }

    /// Beside OVN-Kubernetes: whether the kernel has BGP's routes to pods of other nodes.
    #[must_use]
    pub fn is_routed(&self, inputs: &Inputs) -> bool {
        match self {
            Self::Router(_) => false,
            Self::Sets(import) => import.is_routed(inputs),
        }
    }

    /// Takes other limits; the next pass acts on them.
    pub fn set_limits(&mut self, limits: &Limits) {
        match self {
            Self::Router(import) => import.set_limits(limits),
            Self::Sets(import) => import.set_limits(limits),
        }
    }

    /// How soon a pass has to follow although nothing enqueues it.
    #[must_use]
    pub fn again(&self) -> Option<Duration> {
        match self {
            Self::Router(import) => import.again(),
            Self::Sets(import) => import.again(),
        }
    }

    /// Brings what it fills to where routes and inputs want it.
    ///
    /// # Errors
    /// When something could not be read or written; the next pass goes on from there.
    pub async fn pass(&mut self, inputs: &Arc<Inputs>) -> Result<Passed, ImportError> {
        match self {
            Self::Router(import) => import.pass(inputs).await,
            Self::Sets(import) => import.pass(inputs).await,
        }
    }
}
