//! VRF devices that the kernel refused to make.
//! In: what writing the kernel's side found. Out: a fact of the node, and a plan without them. Invariant: a refusal holds until the
//! kernel has been seen to make the device, which it is asked to now and then (a module may have been loaded): no network counts
//! as built in between. Not here: what follows for the network (`plan_node::facts`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::world::FactsChanged;

/// For so long a refused device is not tried again.
const HOLDS: Duration = Duration::from_secs(60);

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
        let entry = (why, Instant::now());
        let before = self.lock().insert(device.to_owned(), entry.clone());
        if before.map(|(why, _)| why) != Some(entry.0) {
            self.facts.note();
        }
    }

    /// The kernel makes such devices now.
    pub(crate) fn clear(&self) {
        self.lock().clear();
        self.facts.note();
    }

    /// It does not yet.
    pub(crate) fn tried(&self) {
        for (_, since) in self.lock().values_mut() {
            *since = Instant::now();
        }
    }

    /// Others than these are of no network that is declared, or somebody has made them.
    pub(crate) fn retain(&self, devices: &BTreeSet<String>) {
        self.lock().retain(|device, _| devices.contains(device));
    }

    /// Those that have been refused.
    pub(crate) fn now(&self) -> BTreeMap<String, String> {
        let refused = self.lock();
        let all = refused.iter();
        all.map(|(device, (why, _))| (device.clone(), why.clone()))
            .collect()
    }

    /// Whether it is worth asking the kernel again.
    pub(crate) fn is_due(&self) -> bool {
        let refused = self.lock();
        let mut times = refused.values().map(|(_, since)| since.elapsed());
        times.any(|elapsed| elapsed >= HOLDS)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (String, Instant)>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_holds_until_the_device_can_be_made_and_is_tried_again_after_a_while() {
        let refused = RefusedVrfs::default();
        refused.note("blue", "not supported".to_owned());
        assert!(!refused.is_due());
        tokio::time::advance(HOLDS).await;
        assert!(refused.is_due());
        assert_eq!(refused.now().len(), 1, "it is refused still");
        refused.tried();
        assert!(!refused.is_due() && refused.now().len() == 1);
        refused.retain(&["blue".to_owned()].into());
        assert_eq!(refused.now().len(), 1);
        refused.clear();
        assert!(refused.now().is_empty());
        refused.note("red", "not supported".to_owned());
        refused.retain(&BTreeSet::new());
        assert!(refused.now().is_empty());
    }
}
