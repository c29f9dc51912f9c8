//! What keeps advertised networks apart: one ACL on a network's node switch.
//! In: `NetworkView`. Out: ACL rows. Invariant: what a network's own pods say to each other is never matched.
//! Not here: the set of all advertised networks' subnets (`shared`), what the host itself sends (`nft`), which routes each network
//! takes over (`import`, and FRR).
//!
//! ```text
//!  strict | from-lport, after load balancing: source and destination in advertised networks, and not both in this one: drop
//!  loose  | nothing: whether networks reach each other is the physical network's matter
//! ```
//! OVN-Kubernetes (`go-controller/pkg/ovn/udn_isolation.go`) has a rule that passes on the switch and one that drops in a port group;
//! passing needs tiers, which OVN 23.03 has not, and an `allow` in its place would overrule NetworkPolicies.

use std::collections::BTreeSet;

use model::address::Family;
use model::nb::{self, OWNER_TYPE, RowKey, Rows, Table, Value};

use super::rows_builder::{RowsBuilder, text};
use super::shared;
use super::snat::{CONTROLLER, ID, NAME};
use crate::snapshot::NetworkView;

/// Above those of NetworkPolicies (1000, 1001), below whatever an admin puts first (OVN-Kubernetes: 1050).
const PRIORITY: i64 = 1050;
const DIRECTION: &str = "from-lport";

/// The rows: one ACL where the network is advertised and isolation is strict.
#[must_use]
pub fn plan(view: NetworkView<'_>) -> Rows {
    let mut rows_builder = RowsBuilder::of(view);
    if view.node.strict_isolation && view.is_advertised() && !view.share.host_subnets.is_empty() {
        let families: BTreeSet<Family> = view.share.network.families();
        let matches: Vec<String> = families.iter().map(|f| foreign(view, *f)).collect();
        let matches = matches.join(" || ");
        let name = view.name().as_str();
        let controller = view.name().controller();
        let id = format!(
            "{controller}:AdvertisedNetwork:{name}:{}",
            view.share.network.id
        );
        let key = RowKey::child(
            Table::Acl,
            view.switch(),
            nb::acl_id(DIRECTION, PRIORITY, &matches),
        );
        let ids = [
            (CONTROLLER, controller),
            (OWNER_TYPE, "AdvertisedNetwork".to_owned()),
            (NAME, name.to_owned()),
            ("network", view.share.network.id.to_string()),
            (ID, id),
        ];
        rows_builder.put(
            key,
            [
                ("direction", text(DIRECTION)),
                ("priority", Value::Number(PRIORITY)),
                ("match", text(matches)),
                ("action", text("drop")),
                ("options", Value::entries([("apply-after-lb", "true")])),
                ("external_ids", Value::entries(ids)),
            ],
        );
    }
    rows_builder.into_rows()
}

/// Between two advertised networks.
fn foreign(view: NetworkView<'_>, family: Family) -> String {
    let ip = family.ovn_protocol();
    let set = shared::advertised_subnets(family).id;
    let own = view.share.network.prefixes();
    let own = own.filter(|subnet| subnet.family() == family);
    let own: Vec<String> = own.map(|subnet| subnet.to_string()).collect();
    let own = own.join(", ");
    format!(
        "({ip}.src == ${set} && {ip}.dst == ${set} && !({ip}.src == {{{own}}} && {ip}.dst == {{{own}}}))"
    )
}
