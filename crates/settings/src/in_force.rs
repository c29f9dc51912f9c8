//! A file that changed, against what a daemon runs with; and what runs already, against a file.
//! In: two readings of the file, or the text of what is in force. Out: settings to go on with, and a sentence for each thing
//! that is not taken over.
//! Invariant: transport and routing of the default network never change under running nodes: they would change one by one, and
//! pods of those that have could not reach pods of those that have not.
//! Not here: when the file is read, where the text is kept.

use std::fmt::Write as _;

use model::network::{MissingRoute, Routing, Transport};

use crate::{AutoTopology, Daemon, Managed, Profile, Settings, SettingsError, Topology};

/// Settings to go on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The settings.
    pub settings: Settings,
    /// What the file says and they do not: one sentence each, with section, key and value.
    pub refused: Vec<String>,
}

impl Settings {
    /// Of a file that says `self` now, what this daemon takes over that runs with `running`: the cluster-manager `[no-overlay]`
    /// and `[bgp-managed]`, the node-agent `[no-overlay]` and `[limits]`, all of them `[logging] level`. What else the daemon
    /// reads is refused until its next start; what it does not read is not looked at. That the network's transport and routing
    /// stay is those daemons' own matter ([`Self::keeping_network`]): what is in force may be another one than what they were
    /// started with.
    #[must_use]
    pub fn replacing(self, running: &Self, daemon: Daemon) -> Kept {
        let new = self;
        let mut taken = running.clone();
        taken.logging.level.clone_from(&new.logging.level);
        taken.warnings.clone_from(&new.warnings);
        match daemon {
            Daemon::ClusterManager => {
                taken.network.transport = new.network.transport;
                taken.managed = new.managed.clone();
            }
            Daemon::NodeAgent => {
                taken.network.transport = new.network.transport;
                taken.limits = new.limits;
            }
            Daemon::FrrAgent => {}
        }
        let others = taken.differences(&new, daemon);
        let refused = others.map(|what| {
            format!("{what} is another one in the file: taken over at the next start only")
        });
        let refused = refused.collect();
        Kept {
            settings: taken,
            refused,
        }
    }

    /// These settings with transport and routing of the default network that are in force; with them goes what they need and
    /// the file does not say any more.
    #[must_use]
    pub fn keeping_network(self, in_force: &Self) -> Kept {
        let (new, old) = (self.network.transport, in_force.network.transport);
        let routing = |transport: Transport| transport.no_overlay().map(|options| options.routing);
        if routing(new) == routing(old) {
            return Kept {
                settings: self,
                refused: Vec::new(),
            };
        }
        let refused = format!(
            "the configuration says {}, the default network runs with {}: that stays in force; to change it, every node has to be changed at once",
            transport_words(new),
            transport_words(old)
        );
        let mut settings = self;
        settings.network.transport = options_of(new, old);
        let needs_fabric = routing(old) == Some(Routing::Managed);
        if needs_fabric && settings.managed.topology.is_none() {
            settings.managed = in_force.managed.clone();
        }
        Kept {
            settings,
            refused: vec![refused],
        }
    }

    /// What of these settings has to stay in force for the default network, as a configuration file in TOML.
    #[must_use]
    pub fn network_in_force(&self) -> String {
        let Some(options) = self.network.transport.no_overlay() else {
            return "[default]\ntransport = \"geneve\"\n".to_owned();
        };
        let routing = routing_word(options.routing);
        let snat = if options.outbound_snat {
            "enabled"
        } else {
            "disabled"
        };
        let missing = match options.missing_route {
            MissingRoute::Discard => "discard",
            MissingRoute::Forward => "forward",
        };
        let mut text = format!(
            "[default]\ntransport = \"no-overlay\"\n[no-overlay]\noutbound-snat = \"{snat}\"\nrouting = \"{routing}\"\nmissing-route = \"{missing}\"\n"
        );
        if options.routing == Routing::Managed {
            fabric(&self.managed, &mut text);
        }
        text
    }

    /// `[bgp-managed]` of these settings, in TOML.
    #[must_use]
    pub fn fabric_in_force(&self) -> String {
        let mut text = String::new();
        fabric(&self.managed, &mut text);
        text
    }

    /// Reads what [`Self::network_in_force`] wrote.
    ///
    /// # Errors
    /// When it is no such text; `what` names it.
    pub fn of_network_in_force(what: &str, text: &str) -> Result<Self, SettingsError> {
        let file = format!("{what}.toml");
        crate::parse(&file, text, Daemon::ClusterManager.metrics_default())
    }

    /// What of the daemon's settings is another than the other's: sections, or keys where a section has some that may change.
    fn differences(&self, other: &Self, daemon: Daemon) -> impl Iterator<Item = &'static str> {
        use Daemon::{ClusterManager, FrrAgent, NodeAgent};
        const PLANNERS: &[Daemon] = &[ClusterManager, NodeAgent];
        let namespace = |s: &Self| s.managed.frr_namespace.clone();
        let mut differs: Vec<(&'static str, &[Daemon])> = Vec::new();
        macro_rules! compare {
            ($($what:literal, $who:expr, $of:expr;)*) => {
                $(if $of(self) != $of(other) { differs.push(($what, $who)); })*
            };
        }
        compare! {
            "[default] cluster-subnets", PLANNERS, |s: &Self| s.network.cluster_subnets.clone();
            "[default] mtu", PLANNERS, |s: &Self| s.network.mtu;
            "[default] mtu-probe-interval", &[NodeAgent], |s: &Self| s.mtu_probe_interval;
            "[default] cluster-default-nad", PLANNERS, |s: &Self| s.network.nad.clone();
            "[ovnkubernetesfeature]", PLANNERS, |s: &Self| s.features;
            "[bgp-managed] frr-namespace", &[FrrAgent], namespace;
            "[openshift]", &Daemon::ALL, |s: &Self| s.openshift.clone();
            "[gateway]", PLANNERS, |s: &Self| s.gateway.clone();
            "[ovn]", PLANNERS, |s: &Self| s.ovn;
            "[ovnnorth]", &[NodeAgent], |s: &Self| s.ovn_north.clone();
            "[ovnsouth]", &[NodeAgent], |s: &Self| s.ovn_south.clone();
            "[ovs] rundir", &[NodeAgent], |s: &Self| s.ovs_rundir.clone();
            "[frr]", &[NodeAgent, FrrAgent], |s: &Self| s.frr.clone();
            "[kubernetes] kubeconfig", &Daemon::ALL, |s: &Self| s.kubeconfig.clone();
            "[kubernetes] service-cidrs", PLANNERS, |s: &Self| s.service_cidrs.clone();
            "[default] udn-allowed-default-services", &[NodeAgent], |s: &Self| s.allowed_services.clone();
            "[clustermanager]", &[NodeAgent], |s: &Self| s.transit_subnets.clone();
            "[metrics]", &Daemon::ALL, |s: &Self| s.metrics_address;
            "[logging] format", &Daemon::ALL, |s: &Self| s.logging.text;
        }
        let read = differs
            .into_iter()
            .filter(move |(_, who)| who.contains(&daemon));
        read.map(|(what, _)| what)
    }
}

/// The old transport with outbound SNAT and missing route of the new one, where both are without overlay. What the new one has
/// of missing routes because of its routing alone, which stays out of force, is nothing that anybody asked for.
fn options_of(new: Transport, old: Transport) -> Transport {
    match (new.no_overlay(), old) {
        (Some(new), Transport::NoOverlay(mut options)) => {
            options.outbound_snat = new.outbound_snat;
            if new.missing_route != MissingRoute::of(new.routing) {
                options.missing_route = new.missing_route;
            }
            Transport::NoOverlay(options)
        }
        _ => old,
    }
}

fn transport_words(transport: Transport) -> String {
    match transport.no_overlay() {
        None => "[default] transport = geneve".to_owned(),
        Some(options) => format!(
            "[default] transport = no-overlay with [no-overlay] routing = {}",
            routing_word(options.routing)
        ),
    }
}

fn routing_word(routing: Routing) -> &'static str {
    match routing {
        Routing::Managed => "managed",
        Routing::Unmanaged => "unmanaged",
    }
}

/// `[bgp-managed]` as text.
fn fabric(managed: &Managed, text: &mut String) {
    let topology = managed.topology.map(|topology| match topology {
        Topology::FullMesh => "full-mesh",
        Topology::RouteReflector => "route-reflector",
        Topology::Auto => "auto",
    });
    let profile = match managed.profile {
        Profile::Resilient => "resilient",
        Profile::Compat => "compat",
    };
    let topology = topology.map(|word| format!("topology = \"{word}\"\n"));
    // What is usual is left out: the text that is stored of an older version stays as it is.
    let auto = if managed.auto == AutoTopology::default() {
        String::new()
    } else {
        format!(
            "auto-reflectors-above = {}\nauto-full-mesh-below = {}\n",
            managed.auto.reflectors_above, managed.auto.full_mesh_below
        )
    };
    let secret = managed.password_secret.as_ref();
    let secret = secret.map(|name| format!("password-secret = \"{name}\"\n"));
    // A string takes no more than there is memory for.
    let _ = write!(
        text,
        "[bgp-managed]\n{}{auto}as-number = {}\nfrr-namespace = \"{}\"\nprofile = \"{profile}\"\n{}",
        topology.unwrap_or_default(),
        managed.asn,
        managed.frr_namespace,
        secret.unwrap_or_default()
    );
}

#[cfg(test)]
mod tests;
