//! VRF devices that the kernel refused to make.
//! In: what writing the kernel's side found. Out: a fact of the node, and a plan without them. Invariant: a refusal is forgotten
//! after a while, so that a kernel that has learned it (a module was loaded) is asked again.
//! Not here: what follows for the network (`plan_node::facts`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::world::FactsChanged;

/// For so long a refused device is not tried again.
const HOLDS: Duration = Duration::from_secs(300);

/// By device: why, and since when.
#[derive(Debug, Clone, Default)]
pub(crate) struct RefusedVrfs {
    refused: Arc<Mutex<BTreeMap<String, (String, Instant)>>>,
    facts: FactsChanged,
}

impl RefusedVrfs {
    /// None so far; changes are noted there.
    pub(crate) fn new(facts: FactsChanged) -> Self {
        Self {
            refused: Arc::default(),
            facts,
        }
    }

    /// The kernel does not make this device.
    pub(crate) fn note(&self, device: &str, why: String) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.insert(device.to_owned(), (why, Instant::now()));
        drop(refused);
        self.facts.note();
    }

    /// Those that are not worth trying now.
    pub(crate) fn now(&self) -> BTreeMap<String, String> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|_, (_, since)| since.elapsed() < HOLDS);
        let all = refused.iter();
        all.map(|(device, (why, _))| (device.clone(), why.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_forgotten_after_a_while() {
        let refused = RefusedVrfs::default();
        refused.note("blue", "not supported".to_owned());
        assert_eq!(refused.now().len(), 1);
        tokio::time::advance(HOLDS).await;
        assert!(refused.now().is_empty());
    }
}
