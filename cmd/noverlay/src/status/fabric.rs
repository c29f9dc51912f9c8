//! `noverlay status`: what the managed fabric is.
//! In: Nodes and their label `noverlay.io/bgp-fabric`. Out: a line, or none where no node takes part.
//! Invariant: it says who reflects at this moment, also in the middle of a change of topology.
//! Not here: sessions (the nodes' lines), who should reflect (`plan_cluster::fabric::roles`).

use model::node::Node;
use plan_cluster::fabric::roles::Role;
use serde::Serialize;

/// The managed fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FabricLine {
    /// `full-mesh`, or `route-reflector` where a node reflects; as in `[bgp-managed] topology`.
    pub topology: &'static str,
    /// Nodes that take part, reflectors among them.
    pub members: usize,
    /// Nodes that reflect, by name.
    pub route_reflectors: Vec<String>,
    /// Nodes that take no part, by name.
    pub outside: Vec<String>,
}

/// What the Nodes' labels say.
pub(super) fn line(nodes: &[Node]) -> Option<FabricLine> {
    let names = |wanted: &dyn Fn(Option<Role>) -> bool| {
        let of = nodes.iter().filter(|node| wanted(Role::of(node)));
        let mut names: Vec<String> = of.map(|node| node.name.to_string()).collect();
        names.sort();
        names
    };
    let members = names(&|role| role.is_some()).len();
    let route_reflectors = names(&|role| role == Some(Role::Reflector));
    (members > 0).then(|| FabricLine {
        topology: if route_reflectors.is_empty() {
            "full-mesh"
        } else {
            "route-reflector"
        },
        members,
        route_reflectors,
        outside: names(&|role| role.is_none()),
    })
}
