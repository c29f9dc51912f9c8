//! What others may leave, and what was recorded of OVN-Kubernetes to become of it.
//!
//! In: the node's rows. Out: for each thing scripts that put it, look for it and take it away, and whether it stands. Invariant: `there`
//! ends with 0 while the thing stands as it was put. Not here: when.

mod host;
mod north;
mod switch;

use super::scene::Scene;

/// Whether a thing stands when nothing happened, after a sync of the gateway, after a change of BGP's routes, after a start; `None`: it is
/// not looked at. Before each at which it is, it is put again.
type Stands = [Option<bool>; 4];

const ALWAYS: Stands = [Some(true); 4];
/// A sync of the gateway takes it, and a start.
const BY_SYNC: Stands = [Some(true), Some(false), Some(true), Some(false)];
/// A change of BGP's routes takes it, and a start.
const BY_IMPORT: Stands = [Some(true), Some(true), Some(false), Some(false)];
const BY_START: Stands = [Some(true), Some(true), Some(true), Some(false)];
/// It goes by itself, whatever happens.
const NEVER: Stands = [Some(false), None, None, Some(false)];
/// Of two like rows OVN-Kubernetes may take either for its own when it starts.
const BY_CHANCE: Stands = [Some(true), Some(true), Some(true), None];

/// One thing.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) what: String,
    pub(super) put: String,
    pub(super) there: String,
    pub(super) away: String,
    pub(super) stands: Stands,
}

/// Things that can be put together on one node.
pub(super) type Group = fn(&Scene) -> Vec<Line>;

/// What stands beside its own, what is changed of its own, what is taken away of its own.
pub(super) const GROUPS: [Group; 3] = [
    |scene| {
        let rows = [north::routes(scene), north::policies(scene)].concat();
        let rows = [rows, north::translations(scene)].concat();
        [rows, switch::things(scene), host::things(scene)].concat()
    },
    north::values,
    |scene| [north::missing(scene), host::missing()].concat(),
];

/// A thing by its scripts; that it cannot be taken away is no failure, it may have gone.
fn thing(what: &str, [put, there, away]: [&str; 3], stands: Stands) -> Line {
    Line {
        what: what.to_owned(),
        put: put.to_owned(),
        there: there.to_owned(),
        away: format!("{away} || true"),
        stands,
    }
}
