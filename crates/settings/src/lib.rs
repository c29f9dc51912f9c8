//! One configuration file into one immutable struct of model types.
//! In: a file in TOML (name ends in `.toml`) or in the gcfg form of ovnkube.conf (any other name). Out: [`Settings`] and warnings.
//! Invariant: a wrong value is an error that names file, section, key, value and what is allowed; an unknown key is a warning that names it.
//! Not here: following the file (`daemon`), flags (the binaries' own).

mod gcfg;
mod in_force;
mod limits;
mod operator;
mod read;
mod reader;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::address::ClusterSubnet;
use model::gateway::{BgpDefault, GatewayMode};
use model::network::{self, Transport};
use model::{Asn, Network, NetworkName, ObjectKey, Prefix};

pub use in_force::Kept;
pub use operator::{File, InForce};
pub use read::{load, parse, parse_for, parse_over};

/// A daemon that reads the file. All three run in a host's network, so each has its own address for metrics and probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Daemon {
    /// The cluster-manager: port 9160.
    ClusterManager,
    /// The node-agent: port 9161.
    NodeAgent,
    /// The frr-agent: port 9162.
    FrrAgent,
}

impl Daemon {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ClusterManager, Self::NodeAgent, Self::FrrAgent];

    /// Its key in section `[metrics]`.
    #[must_use]
    pub const fn metrics_key(self) -> &'static str {
        match self {
            Self::ClusterManager => "cluster-manager-bind-address",
            Self::NodeAgent => "node-agent-bind-address",
            Self::FrrAgent => "frr-agent-bind-address",
        }
    }

    /// Where it listens when nothing is said: all addresses of both families.
    #[must_use]
    pub fn metrics_default(self) -> SocketAddr {
        let port = match self {
            Self::ClusterManager => 9160,
            Self::NodeAgent => 9161,
            Self::FrrAgent => 9162,
        };
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))
    }
}

/// Why a configuration file cannot be used. One line, with file, section, key, value and what is allowed.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read configuration file {file}")]
    Read {
        /// Path of the file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file's form is wrong.
    #[error("{file}: {message}")]
    Syntax {
        /// Path of the file.
        file: String,
        /// Line and reason.
        message: String,
    },
    /// One value is wrong.
    #[error("{file}: [{section}] {key} = {value:?}: {message}")]
    Value {
        /// Path of the file.
        file: String,
        /// Section.
        section: String,
        /// Key.
        key: String,
        /// The value as it stands; empty where it is missing.
        value: String,
        /// What is wrong and what is allowed.
        message: String,
    },
}

/// Shape of the managed fabric. Source: `[bgp-managed] topology`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// `full-mesh`: every node peers with every other.
    FullMesh,
    /// `route-reflector`: every node peers with the reflectors only.
    RouteReflector,
    /// `auto`: a mesh or reflectors by the number of nodes, see [`AutoTopology`].
    Auto,
}

/// Where `topology = auto` changes between a mesh and reflectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoTopology {
    /// `auto-reflectors-above`, default 64: a mesh of more nodes gets reflectors.
    pub reflectors_above: usize,
    /// `auto-full-mesh-below`, default 48: reflectors of fewer nodes are given up. At most `reflectors_above`.
    pub full_mesh_below: usize,
}

impl Default for AutoTopology {
    fn default() -> Self {
        Self {
            reflectors_above: 64,
            full_mesh_below: 48,
        }
    }
}

/// Session profile of the managed fabric. Source: `[bgp-managed] profile`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// `resilient`: hold time 9 s, keepalive 3 s, connect 2 s (default).
    Resilient,
    /// `compat`: bare sessions, as the design documents show them.
    Compat,
}

/// `[bgp-managed]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Managed {
    /// `topology`; required where a managed network exists.
    pub topology: Option<Topology>,
    /// `auto-reflectors-above` and `auto-full-mesh-below`.
    pub auto: AutoTopology,
    /// `as-number`, default 64512.
    pub asn: Asn,
    /// `frr-namespace`, default `frr-k8s-system`.
    pub frr_namespace: String,
    /// `profile`.
    pub profile: Profile,
    /// `password-secret`: name of a Secret (type `kubernetes.io/basic-auth`) in `frr-namespace`; the sessions' password.
    pub password_secret: Option<String>,
}

/// `[gateway]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// `mode`.
    pub mode: GatewayMode,
    /// `interface`: the external bridge, default `br-ex`.
    pub interface: String,
    /// `next-hop`, a comma-separated list of addresses; may be empty.
    pub next_hops: Vec<IpAddr>,
    /// `v4-join-subnet` and `v6-join-subnet`, defaults 100.64.0.0/16 and fd98::/64.
    pub join_subnets: Vec<Prefix>,
    /// `v4-masquerade-subnet` and `v6-masquerade-subnet`, defaults 169.254.169.0/29 and fd69::/125.
    pub masquerade_subnets: Vec<Prefix>,
    /// `ephemeral-port-range` of SNAT rows, default 32768-60999.
    pub ephemeral_port_range: (u16, u16),
    /// `bgp-default`.
    pub bgp_default: BgpDefault,
}

/// Who builds the OVN topology. Source: `[ovn] topology`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OvnTopology {
    /// `adopt` (default): OVN-Kubernetes made the routers and switches.
    Adopt,
    /// `build`: the agent makes the whole layer-3 topology.
    Build,
}

/// Who allocates networks, node ids and node subnets. Source: `[ovn] networks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OvnNetworks {
    /// `observe` (default with adopt): they are only read.
    Observe,
    /// `own` (default with build): the cluster-manager allocates them.
    Own,
}

/// `[limits]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `max-imported-routes` for each network, default 20000.
    pub max_imported_routes: u32,
    /// `stale-time`, default 120 s.
    pub stale_time: Duration,
    /// `mass-withdraw-share` in percent, 0 to 100, default 50; 0 holds nothing.
    pub mass_withdraw_share: u8,
    /// `mass-withdraw-routes`, default 10: of fewer destinations nothing is retained.
    pub mass_withdraw_routes: u32,
    /// `mass-withdraw-window`, default 2 s.
    pub mass_withdraw_window: Duration,
    /// `mass-withdraw-hold`, default 60 s.
    pub mass_withdraw_hold: Duration,
}

/// Files in PEM form for a database that is reached over TLS. Source: `[ovnnorth] client-privkey, client-cert, client-cacert`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsPaths {
    /// `client-privkey`: the client's private key.
    pub private_key: PathBuf,
    /// `client-cert`: its certificate, with intermediate ones after it.
    pub certificate: PathBuf,
    /// `client-cacert`: certificates of the authorities that may have signed the server's.
    pub ca_certificate: PathBuf,
}

/// The cluster default network. Source: `[default]`, `[no-overlay]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultNetwork {
    /// `transport`, with what `[no-overlay]` says where it is that.
    pub transport: Transport,
    /// `cluster-subnets`, default 10.128.0.0/14/23.
    pub cluster_subnets: Vec<ClusterSubnet>,
    /// `mtu` in bytes; unset with no-overlay: the smallest host MTU among the nodes.
    pub mtu: Option<u32>,
    /// `cluster-default-nad`, default ovn-kubernetes/default, on OpenShift openshift-ovn-kubernetes/default.
    pub nad: ObjectKey,
}

/// Who makes what in OVN. Source: `[ovn]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ovn {
    /// `topology`.
    pub topology: OvnTopology,
    /// `networks`.
    pub networks: OvnNetworks,
}

/// The Northbound database. Source: `[ovnnorth]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OvnNorth {
    /// `address`, default unix:/var/run/ovn/ovnnb_db.sock.
    pub address: String,
    /// `client-privkey, client-cert, client-cacert`; there where the address is an `ssl:` one.
    pub tls: Option<TlsPaths>,
}

/// The node's FRR. Source: `[frr]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frr {
    /// `vty-socket`: folder of FRR's vty sockets, default /var/run/frr.
    pub vty_socket: PathBuf,
    /// `config-file`, default /etc/frr/frr.conf.
    pub config_file: PathBuf,
    /// `reload-tool`: FRR's reload tool, default /usr/lib/frr/frr-reload.py.
    pub reload_tool: PathBuf,
    /// `reload-timeout`, 5 to 600 s, default 60 s: a reload that takes longer is ended and tried again later.
    pub reload_timeout: Duration,
}

/// What is switched on. Source: `[ovnkubernetesfeature]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// `enable-route-advertisements`, default true.
    pub route_advertisements: bool,
    /// `enable-egress-ip`, default true: EgressIPs can be advertised.
    pub egress_ip: bool,
    /// `advertised-udn-isolation-mode = loose`; default is strict.
    pub loose_isolation: bool,
}

/// The daemon's log. Source: `[logging]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logging {
    /// `level`, default info.
    pub level: String,
    /// `format = text`; default is json.
    pub text: bool,
}

/// Everything that a daemon reads from its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `[default]`, and `[no-overlay]` where the transport is that.
    pub network: DefaultNetwork,
    /// `[ovnkubernetesfeature]`.
    pub features: Features,
    /// `[openshift] operator-file`, default /etc/noverlay-operator/operator.toml, where `[openshift] enable` is true: what the
    /// cluster-manager makes of OpenShift's operator object, read by the other daemons over this file.
    pub openshift: Option<PathBuf>,
    /// `[bgp-managed]`.
    pub managed: Managed,
    /// `[gateway]`.
    pub gateway: Gateway,
    /// `[ovn]`.
    pub ovn: Ovn,
    /// `[ovnnorth]`.
    pub ovn_north: OvnNorth,
    /// `[ovs] rundir`, default /var/run/openvswitch.
    pub ovs_rundir: PathBuf,
    /// `[frr]`.
    pub frr: Frr,
    /// `[kubernetes] kubeconfig`; absent: in-cluster.
    pub kubeconfig: Option<PathBuf>,
    /// `[ovnsouth] address`, default `unix:/var/run/ovn/ovnsb_db.sock`.
    pub ovn_south: String,
    /// `[clustermanager] v4-transit-subnet` and `v6-transit-subnet`: addresses of cluster routers where networks have an
    /// overlay, defaults 100.88.0.0/16 and fd97::/64.
    pub transit_subnets: Vec<Prefix>,
    /// `[kubernetes] service-cidrs`: ranges of the cluster's Services, which no network of users may overlap; default none.
    pub service_cidrs: Vec<Prefix>,
    /// `[default] udn-allowed-default-services`: Services of the default network that networks of users may use, default
    /// `default/kubernetes` and `kube-system/kube-dns`.
    pub allowed_services: BTreeSet<ObjectKey>,
    /// `[default] mtu-probe-interval`, 10 to 3600 s, default 60 s; zero: never. How often each way to another node is asked
    /// whether packets as large as pods send pass.
    pub mtu_probe_interval: Duration,
    /// `[metrics]`: the daemon's own key ([`Daemon::metrics_key`]), else `bind-address`, else its default.
    pub metrics_address: SocketAddr,
    /// `[limits]`.
    pub limits: Limits,
    /// `[logging]`.
    pub logging: Logging,
    /// Unknown sections and keys, and settings without effect: one sentence each.
    pub warnings: Vec<String>,
}

impl Settings {
    /// The file whose keys replace this one's for a daemon: the cluster-manager writes it and reads the object itself.
    #[must_use]
    pub fn operator_file(&self, daemon: Daemon) -> Option<&Path> {
        let reads = daemon != Daemon::ClusterManager;
        self.openshift.as_deref().filter(|_| reads)
    }

    /// These settings with what OpenShift's operator object speaks of as `other` has it: transport, options of networks
    /// without overlay, RouteAdvertisements, the managed fabric.
    #[must_use]
    pub fn with_operator_of(mut self, other: &Self) -> Self {
        self.network.transport = other.network.transport;
        self.features.route_advertisements = other.features.route_advertisements;
        self.managed = other.managed.clone();
        self
    }

    /// The cluster default network, as the file declares it.
    #[must_use]
    pub fn default_network(&self) -> Network {
        let network = Network {
            name: NetworkName::default_network(),
            topology: network::Topology::Layer3,
            layer2: None,
            id: 0,
            subnets: self.network.cluster_subnets.clone(),
            join_subnets: Vec::new(),
            transport: self.network.transport,
            mtu: self.network.mtu,
            advertised: network::Advertised::default(),
        };
        let families = network.families();
        let joins = self.gateway.join_subnets.iter().copied();
        Network {
            join_subnets: joins.filter(|p| families.contains(&p.family())).collect(),
            ..network
        }
    }
}

#[cfg(test)]
mod tests;
