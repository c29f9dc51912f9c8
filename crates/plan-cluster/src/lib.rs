//! What the cluster should hold: allocations, the managed fabric, per-node FRRConfigurations, conditions, events.
//! In: [`World`], a snapshot of the objects as model values. Out: plans, one module each.
//! Invariant: total and deterministic; a bad node, network or source costs only itself; nothing that forwards is withdrawn because something is not there *yet*.
//! Not here: objects' YAML (`api`), the API server (`kube-edge`), time.

pub mod advertise;
pub mod attachments;
pub mod check;
pub mod fabric;
pub mod generated;
pub mod networks;
pub mod others;
pub mod ranges;
pub mod refused;
#[cfg(test)]
mod samples;
pub mod sessions;
mod suitable;
pub mod transport;
pub mod unsupported;
pub mod user_networks;
pub mod world;

pub use world::World;

/// Label and its value that mark the base FRRConfiguration of the managed fabric (design document of the no-overlay mode).
pub const FABRIC_LABEL: (&str, &str) = ("k8s.ovn.org/managed-internal-fabric", "bgp");
/// Label and annotation of generated FRRConfigurations; RouteAdvertisements names on NADs.
pub const RA_KEY: &str = model::user_network::attachment::ROUTE_ADVERTISEMENTS;
/// Label that tells our objects from other writers'.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "noverlay");
/// Names of generated FRRConfigurations begin so.
pub const GENERATED_PREFIX: &str = "ovnk-generated-";
