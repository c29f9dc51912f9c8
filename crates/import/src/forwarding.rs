//! What the kernel itself forwards to other nodes' pods: beside OVN-Kubernetes it is the kernel that routes, and the tunnel is the way
//! of whatever has no route.
//! In: the import. Out: whether a subnet has a usable route. Invariant: what the kernel has lost counts at once as lost: to retain it
//! would send packets where there is no way.
//! Not here: rows of a gateway router, of which there are none then.

use model::address::Prefix;

use crate::Importer;
use crate::coverage::covers;
use crate::place::Place;

impl<R: Copy + Ord> Importer<R> {
    /// Whether the kernel has learned routes inside of `network`, longer than it, that are not within one of `own`; whatever they
    /// do.
    #[must_use]
    pub fn has_routes_within(&self, network: &Prefix, own: &[Prefix]) -> bool {
        let inside = self.places.range(*network..);
        let mut inside = inside.take_while(|(prefix, _)| network.contains(prefix));
        inside.any(|(prefix, place)| {
            let is_own = own.iter().any(|own| own.contains(prefix));
            place.kernel.is_some() && prefix.bits() > network.bits() && !is_own
        })
    }

    /// Whether the kernel forwards all of `subnet` by learned routes that are imported (decided, and within the limit), of those that
    /// are longer than `above` bits: the longest that covers it counts, also where it is one that drops or cannot be used, and so
    /// does every one for a part of it.
    #[must_use]
    pub fn forwards(&self, subnet: &Prefix, above: u8) -> bool {
        let way = |prefix: &Prefix, place: &Place<R>| {
            let is_imported = place.wanted && self.budget.keeps(&self.rank(*prefix));
            // Without a route, and not imported: what rows there were is nothing to the kernel.
            (is_imported || place.kernel.is_some()).then_some(is_imported)
        };
        let inside = self.places.range(*subnet..);
        let mut inside = inside.take_while(|(prefix, _)| subnet.contains(prefix));
        let is_holed = inside.any(|(prefix, place)| way(prefix, place) == Some(false));
        !is_holed
            && covers(subnet, |prefix| {
                let place = self.places.get(prefix).filter(|_| prefix.bits() > above)?;
                way(prefix, place)
            })
    }
}
