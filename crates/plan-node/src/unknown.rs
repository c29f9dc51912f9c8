//! The networks that nothing is planned for yet.
//! In: names, and whether networks have been listed. Out: which networks' things are left alone.
//! Invariant: before networks are listed, each that is not planned for is one of them, whoever asks and by whatever name.
//! Not here: why ([`crate::NotYet`]).

use std::collections::{BTreeSet, btree_set};

use model::names::NetworkName;

/// A set of networks; of those that have not been listed yet no name is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unknown {
    names: BTreeSet<NetworkName>,
    /// Where networks have not been listed: all but these.
    all_but: Option<BTreeSet<NetworkName>>,
}

impl Unknown {
    /// These; with `planned` also all others that are not among those.
    #[must_use]
    pub fn new(names: BTreeSet<NetworkName>, planned: Option<BTreeSet<NetworkName>>) -> Self {
        Self {
            names,
            all_but: planned,
        }
    }

    /// Whether what stands for a network is left alone.
    #[must_use]
    pub fn contains(&self, network: &NetworkName) -> bool {
        let others = self.all_but.as_ref();
        self.names.contains(network) || others.is_some_and(|planned| !planned.contains(network))
    }

    /// Whether there is none: what is not planned is not wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.all_but.is_none()
    }

    /// Those whose names are known.
    pub fn iter(&self) -> btree_set::Iter<'_, NetworkName> {
        self.names.iter()
    }
}

impl<'a> IntoIterator for &'a Unknown {
    type Item = &'a NetworkName;
    type IntoIter = btree_set::Iter<'a, NetworkName>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// These in the order of their names, and no others.
impl PartialEq<[NetworkName]> for Unknown {
    fn eq(&self, names: &[NetworkName]) -> bool {
        self.all_but.is_none() && self.names.iter().eq(names)
    }
}

impl<const N: usize> PartialEq<[NetworkName; N]> for Unknown {
    fn eq(&self, names: &[NetworkName; N]) -> bool {
        *self == *names.as_slice()
    }
}

impl PartialEq<&[NetworkName]> for Unknown {
    fn eq(&self, names: &&[NetworkName]) -> bool {
        *self == **names
    }
}
