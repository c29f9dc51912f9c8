//! Whether others have had the time to learn the routes to this node's pods.
//! In: the step of each network, and the time. Out: for how long to wait yet.
//! Invariant: a network that is not steered has nothing to wait for. Not here: whether anybody has learned them, which nobody asks.

use std::collections::BTreeMap;
use std::time::Duration;

use model::NetworkName;
use plan_node::beside::steps::Step;
use tokio::time::Instant;

/// So long after peers were told that a node is ready others have learned the routes to its pods: cluster-manager, FRR, BGP.
const LEARNED: Duration = Duration::from_secs(15);

/// Since when networks are steered; nothing where another process did that.
#[derive(Debug, Default)]
pub(super) struct Learned(BTreeMap<NetworkName, Option<Instant>>);

impl Learned {
    /// Where another process left a network.
    pub(super) fn begin(&mut self, network: &NetworkName, step: Step) {
        if step == Step::Steering {
            self.0.insert(network.clone(), None);
        }
    }

    /// For how long others may not know the way yet; nothing where the network is not steered.
    pub(super) fn until(&mut self, network: &NetworkName, step: Step) -> Option<Duration> {
        if step < Step::Steering {
            self.0.remove(network);
            return None;
        }
        let since = self.0.entry(network.clone());
        let since = *since.or_insert_with(|| Some(Instant::now()));
        Some(since.map_or(Duration::ZERO, |since| {
            LEARNED.saturating_sub(since.elapsed())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_begins_with_steering_and_again_after_the_way_back() {
        let (mut learned, default) = (Learned::default(), NetworkName::default_network());
        learned.begin(&default, Step::Ready);
        for _ in 0..2 {
            assert_eq!(learned.until(&default, Step::Ready), None);
            assert_eq!(learned.until(&default, Step::Steering), Some(LEARNED));
            tokio::time::advance(LEARNED / 3).await;
            let left = learned.until(&default, Step::Steering);
            assert_eq!(left, Some(LEARNED * 2 / 3));
            tokio::time::advance(LEARNED).await;
            let left = learned.until(&default, Step::Steering);
            assert_eq!(left, Some(Duration::ZERO));
        }
    }

    #[test]
    fn what_another_process_steered_is_known() {
        let (mut learned, default) = (Learned::default(), NetworkName::default_network());
        learned.begin(&default, Step::Steering);
        let left = learned.until(&default, Step::Steering);
        assert_eq!(left, Some(Duration::ZERO));
    }
}
