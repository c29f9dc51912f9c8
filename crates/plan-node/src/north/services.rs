//! Northbound rows by which networks of users use Services of the default network.
//! In: `NetworkView`. Out: rows of a network, and the set of those Services' addresses. Invariant: nothing where the node has no
//! network of users; no row for an address that a network of pods has.
//! Not here: load balancers (whoever runs Services writes them), translation (`snat`), flows between the routers (`bridge::services`).
//!
//! ```text
//!  pod of a network of users -- cluster router: ADDRESS via the management port (shared; local: everything goes there)
//!     -- its VRF: range of Services via .4 of the masquerade subnet -- bridge -- gateway router of the default network
//!     -- load balancer -- endpoint;  back: masquerade subnet via .4 -- bridge -- the management port's masquerade address
//! ```
//! Forms: OVN-Kubernetes `go-controller/pkg/ovn/gateway.go`, `udn_enabled_svc`.

use model::address::{Family, Mac, Prefix};
use model::gateway::GatewayMode;
use model::hash;
use model::nb::{
    self, ALLOWED_SERVICES_CONTROLLER, ALLOWED_SERVICES_TYPE, OWNER_TYPE, RowKey, Rows, Table,
    Value, allowed_services_id,
};

use super::rows_builder::{RowsBuilder, text, texts};
use super::snat::{CONTROLLER, ID, NAME, put_set};
use crate::snapshot::{NetworkView, NodeView, Reserved, of_family};

/// `external_ids` of the route to one of the Services: which.
const SERVICE: &str = "k8s.ovn.org/udn-enabled-default-service";
/// `external_ids` of the default network's route of the masquerade subnet.
const MASQUERADE: &str = "k8s.ovn.org/node-masquerade-subnet";

/// Key of the set of the Services' addresses of a family.
#[must_use]
pub fn allowed(family: Family) -> RowKey {
    let id = allowed_services_id(family);
    RowKey::root(Table::AddressSet, hash::row_name(&id))
}

/// That set.
pub(super) fn put_allowed(node: &NodeView, family: Family, rows_builder: &mut RowsBuilder) {
    let Some(services) = &node.services else {
        return;
    };
    let id = allowed_services_id(family);
    let ids = vec![
        (CONTROLLER, ALLOWED_SERVICES_CONTROLLER.to_owned()),
        (OWNER_TYPE, ALLOWED_SERVICES_TYPE.to_owned()),
        (NAME, "udn-enabled-svc-cluster-ips".to_owned()),
        ("ip-family", family.version().to_owned()),
        (ID, id.clone()),
    ];
    let addresses = services.addresses(family).map(|ip| ip.to_string());
    put_set(&id, addresses.collect(), ids, rows_builder);
}

/// The rows of one network.
#[must_use]
pub fn plan(view: NetworkView<'_>) -> Rows {
    let mut rows_builder = RowsBuilder::of(view);
    if view.node.services.is_some() && view.gateway_port().is_some() {
        for family in view.share.network.families() {
            way_back(view, family, &mut rows_builder);
        }
        if view.node.mode == GatewayMode::Shared && !view.name().is_default() {
            ways_there(view, &mut rows_builder);
        }
    }
    rows_builder.into_rows()
}

/// Gateway router: what answers masquerade addresses goes to the host, by a next hop that nobody has to be asked for.
fn way_back(view: NetworkView<'_>, family: Family, rows_builder: &mut RowsBuilder) {
    let node = view.node;
    let (Some(subnet), Some(next_hop), Some(port)) = (
        node.masquerade_subnet(family),
        node.reserved(Reserved::NextHop, family),
        view.gateway_port(),
    ) else {
        return;
    };
    let is_default = view.name().is_default();
    let ids = is_default.then_some((MASQUERADE, ""));
    put_route(
        rows_builder,
        (view.gateway_router().as_str(), ""),
        (subnet.to_string(), next_hop.ip.to_string(), &port),
        ids,
    );
    let host = node.reserved(Reserved::Host, family);
    let host = host.filter(|_| !is_default);
    for address in [Some(next_hop), host].into_iter().flatten() {
        rows_builder.put_unmarked(
            nb::mac_binding(&port, address.ip),
            [
                ("logical_port", text(&port)),
                ("ip", text(address.ip)),
                ("mac", text(Mac::of_ip(address.ip))),
                ("override_dynamic_mac", Value::Flag(true)),
            ],
        );
    }
}

/// Cluster router: to the kernel, which has the network's VRF lead to the default network's gateway router.
fn ways_there(view: NetworkView<'_>, rows_builder: &mut RowsBuilder) {
    let management = view.management();
    let services = view.node.services.iter().flat_map(|s| &s.allowed);
    for (name, addresses) in services {
        for address in addresses {
            let is_pod = view.share.network.holds(&Prefix::host(*address));
            let next_hop = of_family(&management, Family::of(*address));
            let Some(next_hop) = next_hop.filter(|_| !is_pod) else {
                continue;
            };
            put_route(
                rows_builder,
                (view.cluster_router().as_str(), "dst-ip"),
                (address.to_string(), next_hop.to_string(), ""),
                Some((SERVICE, name.as_str())),
            );
        }
    }
}

fn put_route(
    rows_builder: &mut RowsBuilder,
    (router, policy): (&str, &str),
    (prefix, next_hop, port): (String, String, &str),
    ids: Option<(&str, &str)>,
) {
    let optional = |value: &str| texts(Some(value).filter(|value| !value.is_empty()));
    let id = nb::route_id(policy, &prefix, &next_hop, port);
    rows_builder.put(
        RowKey::child(Table::StaticRoute, router, id),
        [
            ("policy", optional(policy)),
            ("ip_prefix", text(prefix)),
            ("nexthop", text(next_hop)),
            ("output_port", optional(port)),
            ("external_ids", Value::entries(ids)),
        ],
    );
}
