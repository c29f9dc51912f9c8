//! What the cluster-manager's loop reconciles.
//! In and out: keys. Invariant: their order is the order in which due passes of one moment make sense.
//! Not here: state.

/// What can be looked at; in this order, so that what others are made from comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// What OpenShift's operator object asks for, for the other daemons.
    Operator,
    /// Node ids and node subnets.
    Networks,
    /// The managed fabric's base object and RouteAdvertisements.
    Fabric,
    /// Whether the fabric's sessions come up.
    Sessions,
    /// NetworkAttachmentDefinitions, finalizers and conditions of ClusterUserDefinedNetworks.
    UserNetworks,
    /// One RouteAdvertisements by name, or the objects it left behind.
    Advertisement(String),
    /// The default network's NetworkAttachmentDefinition and its events.
    Attachment,
    /// Features that have no effect on networks without overlay.
    Features,
    /// Reports of nodes that are gone.
    Leftovers,
}

impl Key {
    /// The word for logs and metrics.
    pub(crate) fn reconciler(&self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Networks => "networks",
            Self::Fabric => "fabric",
            Self::Sessions => "sessions",
            Self::UserNetworks => "user_networks",
            Self::Advertisement(_) => "advertisement",
            Self::Attachment => "attachment",
            Self::Features => "features",
            Self::Leftovers => "leftovers",
        }
    }
}
