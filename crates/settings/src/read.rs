//! Which sections and keys there are, their defaults, and the rules between them.
//! In: text of a file and its name. Out: [`Settings`]. Invariant: the design documents' own configurations run as they stand.
//! Not here: how a value is read (`reader`), the gcfg grammar (`gcfg`).

use std::net::SocketAddr;
use std::path::Path;

use model::address::{ClusterSubnet, Family};
use model::gateway::{BgpDefault, GatewayMode};
use model::network::{MissingRoute, NoOverlay, Routing, Transport};
use model::{Asn, ObjectKey, Prefix};

use crate::limits::{limits, seconds};
use crate::reader::{Reader, one_line};
use crate::{
    Daemon, Gateway, Managed, OvnNetworks, OvnTopology, Profile, Settings, SettingsError, TlsPaths,
    Topology, gcfg,
};

const SWITCH: &[(&str, bool)] = &[("enabled", true), ("disabled", false)];
const BOOL: &[(&str, bool)] = &[("true", true), ("false", false)];

/// Reads a file for one of the daemons.
///
/// # Errors
/// When the file cannot be read, its form is wrong, or a value is wrong.
pub fn load(path: &Path, daemon: Daemon) -> Result<Settings, SettingsError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| SettingsError::Read {
        file: file.clone(),
        source,
    })?;
    parse_for(&file, &text, daemon)
}

/// Reads text for one of the daemons; the grammar is chosen by the file's name (`.toml`: TOML, otherwise ovnkube.conf (gcfg) syntax).
///
/// # Errors
/// When its form is wrong or a value is wrong.
pub fn parse_for(file: &str, text: &str, daemon: Daemon) -> Result<Settings, SettingsError> {
    settings(file, text, Some(daemon), daemon.metrics_default())
}

/// As [`parse_for`], for none of the daemons: `metrics` is where `[metrics] bind-address` says nothing.
///
/// # Errors
/// When its form is wrong or a value is wrong.
pub fn parse(file: &str, text: &str, metrics: SocketAddr) -> Result<Settings, SettingsError> {
    settings(file, text, None, metrics)
}

fn settings(
    file: &str,
    text: &str,
    daemon: Option<Daemon>,
    metrics: SocketAddr,
) -> Result<Settings, SettingsError> {
    let strict = Path::new(file)
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("toml"));
    let table = if strict {
        text.parse::<toml::Table>().map_err(|err| err.to_string())
    } else {
        gcfg::parse(text)
    }
    .map_err(|message| SettingsError::Syntax {
        file: file.to_owned(),
        message: one_line(&message.trim_end().replace('\n', " ")),
    })?;
    Keys(Reader::new(file, &table)).settings(daemon, metrics)
}

struct Keys<'a>(Reader<'a>);

impl Keys<'_> {
    fn settings(
        mut self,
        daemon: Option<Daemon>,
        metrics: SocketAddr,
    ) -> Result<Settings, SettingsError> {
        let r = &mut self.0;
        let without_overlay = r
            .word(
                "default",
                "transport",
                &[("geneve", false), ("no-overlay", true)],
            )?
            .unwrap_or(false);
        let subnets = "cluster subnets such as 10.128.0.0/14/23, separated by commas";
        let cluster_subnets =
            match r.list::<ClusterSubnet>("default", "cluster-subnets", subnets)? {
                Some(list) => list,
                None => self.fixed("10.128.0.0/14/23")?,
            };
        let mtu = self.mtu()?;
        let default_nad = self.default_nad()?;
        self.features(without_overlay)?;
        let (transport, ignored) = self.transport(without_overlay)?;
        let managed = self.managed(transport)?;
        let gateway = self.gateway()?;
        self.no_overlaps(&cluster_subnets, &gateway)?;
        let (ovn_topology, ovn_networks) = self.ovn()?;
        let (ovn_north, ovn_north_tls, idle) = self.ovn_north()?;
        let r = &mut self.0;
        let path = |text: Option<String>, or: &str| text.unwrap_or_else(|| or.to_owned()).into();
        let mut settings = Settings {
            transport,
            cluster_subnets,
            mtu,
            default_nad,
            managed,
            gateway,
            ovn_topology,
            ovn_networks,
            ovn_north,
            ovn_north_tls,
            ovs_rundir: path(r.text("ovs", "rundir")?, "/var/run/openvswitch"),
            frr_vty_socket: path(r.text("frr", "vty-socket")?, "/var/run/frr"),
            frr_config_file: path(r.text("frr", "config-file")?, "/etc/frr/frr.conf"),
            frr_reload_tool: path(r.text("frr", "reload-tool")?, "/usr/lib/frr/frr-reload.py"),
            frr_reload_timeout: seconds(r, ("frr", "reload-timeout"), 60, 5..=600)?,
            kubeconfig: r.text("kubernetes", "kubeconfig")?.map(Into::into),
            metrics_address: metrics_address(r, daemon)?.unwrap_or(metrics),
            limits: limits(r)?,
            log_level: r
                .word(
                    "logging",
                    "level",
                    &["error", "warn", "info", "debug", "trace"].map(|l| (l, l)),
                )?
                .unwrap_or("info")
                .to_owned(),
            log_text: r
                .word("logging", "format", &[("json", false), ("text", true)])?
                .unwrap_or(false),
            warnings: Vec::new(),
        };
        settings.warnings = r.unknown();
        settings.warnings.extend(ignored.into_iter().chain(idle));
        Ok(settings)
    }

    fn fixed(&self, subnet: &str) -> Result<Vec<ClusterSubnet>, SettingsError> {
        subnet
            .parse()
            .map(|s| vec![s])
            .map_err(|err: model::address::AddressError| {
                self.0
                    .wrong("default", "cluster-subnets", subnet, &err.to_string())
            })
    }

    fn mtu(&mut self) -> Result<Option<u32>, SettingsError> {
        let mtu = self
            .0
            .value::<u32>("default", "mtu", "576 to 65535 bytes")?;
        match mtu {
            Some(n) if !(576..=65_535).contains(&n) => Err(self.0.wrong(
                "default",
                "mtu",
                &n.to_string(),
                "out of range; allowed: 576 to 65535 bytes",
            )),
            mtu => Ok(mtu),
        }
    }

    fn default_nad(&mut self) -> Result<ObjectKey, SettingsError> {
        let text = self
            .0
            .text("default", "cluster-default-nad")?
            .unwrap_or_else(|| "ovn-kubernetes/default".to_owned());
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(ObjectKey::new(namespace, name))
            }
            _ => Err(self.0.wrong(
                "default",
                "cluster-default-nad",
                &text,
                "allowed: namespace/name",
            )),
        }
    }

    fn features(&mut self, without_overlay: bool) -> Result<(), SettingsError> {
        const SECTION: &str = "ovnkubernetesfeature";
        let mut on = [true; 3];
        for (slot, key) in on.iter_mut().zip([
            "enable-multi-network",
            "enable-network-segmentation",
            "enable-route-advertisements",
        ]) {
            *slot = self.0.word(SECTION, key, BOOL)?.unwrap_or(true);
        }
        self.0.word(
            SECTION,
            "advertised-udn-isolation-mode",
            &[("strict", ()), ("loose", ())],
        )?;
        let [multi, _, ra] = on;
        let refuse = |this: &Self, key, why: &str| Err(this.0.wrong(SECTION, key, "false", why));
        if !ra && without_overlay {
            return refuse(
                self,
                "enable-route-advertisements",
                "enable-route-advertisements must be true when transport=\"no-overlay\"",
            );
        }
        if !multi && ra {
            return refuse(
                self,
                "enable-multi-network",
                "enable-multi-network must be true when route advertisements are enabled",
            );
        }
        Ok(())
    }

    /// The default network's transport, and a warning where `[no-overlay]` is without effect.
    fn transport(
        &mut self,
        without_overlay: bool,
    ) -> Result<(Transport, Option<String>), SettingsError> {
        const SECTION: &str = "no-overlay";
        let given = self.0.has_section(SECTION);
        let snat = self.0.word(SECTION, "outbound-snat", SWITCH)?;
        let routing = self.0.word(
            SECTION,
            "routing",
            &[
                ("managed", Routing::Managed),
                ("unmanaged", Routing::Unmanaged),
            ],
        )?;
        let missing = self.0.word(
            SECTION,
            "missing-route",
            &[
                ("discard", MissingRoute::Discard),
                ("forward", MissingRoute::Forward),
            ],
        )?;
        if !without_overlay {
            let text = "[no-overlay] configuration specified but transport is \"geneve\"; configuration will be ignored";
            return Ok((Transport::Geneve, given.then(|| text.to_owned())));
        }
        let need = |this: &Self, key: &'static str, allowed: &str| {
            this.0.wrong(
                SECTION,
                key,
                "",
                &format!("{key} is required when transport=no-overlay; allowed: {allowed}"),
            )
        };
        let outbound_snat =
            snat.ok_or_else(|| need(self, "outbound-snat", "\"enabled\" or \"disabled\""))?;
        let routing =
            routing.ok_or_else(|| need(self, "routing", "\"managed\" or \"unmanaged\""))?;
        let missing_route = missing.unwrap_or(match routing {
            Routing::Managed => MissingRoute::Discard,
            Routing::Unmanaged => MissingRoute::Forward,
        });
        Ok((
            Transport::NoOverlay(NoOverlay {
                outbound_snat,
                routing,
                missing_route,
            }),
            None,
        ))
    }

    fn managed(&mut self, transport: Transport) -> Result<Managed, SettingsError> {
        const SECTION: &str = "bgp-managed";
        let topology = self
            .0
            .word(SECTION, "topology", &[("full-mesh", Topology::FullMesh)])?;
        let number = self
            .0
            .value::<i64>(SECTION, "as-number", "1 to 4294967294")?
            .unwrap_or(64_512);
        let asn = Asn::try_from(number).map_err(|err| {
            self.0.wrong(
                SECTION,
                "as-number",
                &number.to_string(),
                &format!("invalid as-number: {err}"),
            )
        })?;
        let default_namespace = match self.0.word("openshift", "enable", BOOL)? {
            Some(true) => "openshift-frr-k8s",
            _ => "frr-k8s-system",
        };
        let frr_namespace = self
            .0
            .text(SECTION, "frr-namespace")?
            .unwrap_or_else(|| default_namespace.to_owned());
        if !is_dns_label(&frr_namespace) {
            let why = "invalid frr-namespace: allowed is a DNS label (lower-case letters, digits, dashes; at most 63)";
            return Err(self.0.wrong(SECTION, "frr-namespace", &frr_namespace, why));
        }
        let profile = self
            .0
            .word(
                SECTION,
                "profile",
                &[
                    ("resilient", Profile::Resilient),
                    ("compat", Profile::Compat),
                ],
            )?
            .unwrap_or(Profile::Resilient);
        let managed = |options: NoOverlay| options.routing == Routing::Managed;
        if topology.is_none() && transport.no_overlay().is_some_and(managed) {
            let why = "topology is required when routing=managed; allowed: \"full-mesh\"";
            return Err(self.0.wrong(SECTION, "topology", "", why));
        }
        Ok(Managed {
            topology,
            asn,
            frr_namespace,
            profile,
        })
    }

    fn gateway(&mut self) -> Result<Gateway, SettingsError> {
        const SECTION: &str = "gateway";
        let r = &mut self.0;
        let mode = r.word(
            SECTION,
            "mode",
            &[
                ("shared", GatewayMode::Shared),
                ("local", GatewayMode::Local),
            ],
        )?;
        let interface = r
            .text(SECTION, "interface")?
            .unwrap_or_else(|| "br-ex".to_owned());
        let next_hops = r
            .list(SECTION, "next-hop", "addresses separated by commas")?
            .unwrap_or_default();
        let mut subnets = |v4, v4_default: &str, v6, v6_default: &str| {
            let mut out = Vec::new();
            for (key, default, family) in
                [(v4, v4_default, Family::V4), (v6, v6_default, Family::V6)]
            {
                let text = r.text(SECTION, key)?.unwrap_or_else(|| default.to_owned());
                let prefix: Prefix =
                    text.parse().map_err(|err: model::address::AddressError| {
                        r.wrong(SECTION, key, &text, &err.to_string())
                    })?;
                if prefix.family() != family {
                    return Err(r.wrong(
                        SECTION,
                        key,
                        &text,
                        &format!("wrong family; allowed: a prefix such as {default}"),
                    ));
                }
                out.push(prefix);
            }
            Ok(out)
        };
        let join_subnets = subnets(
            "v4-join-subnet",
            "100.64.0.0/16",
            "v6-join-subnet",
            "fd98::/64",
        )?;
        let masquerade_subnets = subnets(
            "v4-masquerade-subnet",
            "169.254.169.0/29",
            "v6-masquerade-subnet",
            "fd69::/125",
        )?;
        Ok(Gateway {
            mode: mode.unwrap_or(GatewayMode::Shared),
            interface,
            next_hops,
            join_subnets,
            masquerade_subnets,
            ephemeral_port_range: self.port_range()?,
            bgp_default: self
                .0
                .word(
                    SECTION,
                    "bgp-default",
                    &[
                        ("ignore", BgpDefault::Ignore),
                        ("replace", BgpDefault::Replace),
                    ],
                )?
                .unwrap_or(BgpDefault::Ignore),
        })
    }

    fn port_range(&mut self) -> Result<(u16, u16), SettingsError> {
        let text = self
            .0
            .text("gateway", "ephemeral-port-range")?
            .unwrap_or_else(|| "32768-60999".to_owned());
        text.split_once('-')
            .and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)))
            .filter(|(a, b): &(u16, u16)| *a > 0 && a <= b)
            .ok_or_else(|| {
                let why = "allowed: first-last, both 1 to 65535, such as 32768-60999";
                self.0.wrong("gateway", "ephemeral-port-range", &text, why)
            })
    }

    /// The Northbound database's address, the files for TLS, and what to say of files that nothing needs.
    fn ovn_north(&mut self) -> Result<(String, Option<TlsPaths>, Option<String>), SettingsError> {
        const SECTION: &str = "ovnnorth";
        let address = self
            .0
            .text(SECTION, "address")?
            .unwrap_or_else(|| "unix:/var/run/ovn/ovnnb_db.sock".to_owned());
        let mut files = Vec::new();
        for key in ["client-privkey", "client-cert", "client-cacert"] {
            files.push((key, self.0.text(SECTION, key)?));
        }
        if !address.starts_with("ssl:") {
            let given = files.iter().any(|(_, file)| file.is_some());
            let idle = "[ovnnorth] client-privkey, client-cert and client-cacert have no effect: the address is not an ssl: one";
            return Ok((address, None, given.then(|| idle.to_owned())));
        }
        let mut paths = Vec::new();
        for (key, file) in files {
            let why =
                format!("{key} is required with address {address}; allowed: a file in PEM form");
            let file = file.ok_or_else(|| self.0.wrong(SECTION, key, "", &why))?;
            paths.push(std::path::PathBuf::from(file));
        }
        let tls =
            <[_; 3]>::try_from(paths)
                .ok()
                .map(|[private_key, certificate, ca_certificate]| TlsPaths {
                    private_key,
                    certificate,
                    ca_certificate,
                });
        Ok((address, tls, None))
    }

    fn ovn(&mut self) -> Result<(OvnTopology, OvnNetworks), SettingsError> {
        let topology = self
            .0
            .word(
                "ovn",
                "topology",
                &[("adopt", OvnTopology::Adopt), ("build", OvnTopology::Build)],
            )?
            .unwrap_or(OvnTopology::Adopt);
        let networks = self.0.word(
            "ovn",
            "networks",
            &[("observe", OvnNetworks::Observe), ("own", OvnNetworks::Own)],
        )?;
        match (topology, networks) {
            (OvnTopology::Adopt, None) => Ok((topology, OvnNetworks::Observe)),
            (OvnTopology::Build, None) => Ok((topology, OvnNetworks::Own)),
            (OvnTopology::Build, Some(OvnNetworks::Observe)) => {
                let why = "networks must be \"own\" when topology=build (nobody else allocates node ids and subnets there)";
                Err(self.0.wrong("ovn", "networks", "observe", why))
            }
            (_, Some(networks)) => Ok((topology, networks)),
        }
    }

    fn no_overlaps(
        &self,
        clusters: &[ClusterSubnet],
        gateway: &Gateway,
    ) -> Result<(), SettingsError> {
        for (at, subnet) in clusters.iter().enumerate() {
            let fail = |what: &str, other: &dyn std::fmt::Display| {
                let why =
                    format!("overlaps the {what} {other}; allowed: ranges that share no address");
                Err(self
                    .0
                    .wrong("default", "cluster-subnets", &subnet.to_string(), &why))
            };
            if let Some(join) = gateway
                .join_subnets
                .iter()
                .find(|j| j.overlaps(&subnet.cidr))
            {
                return fail("join subnet", join);
            }
            if let Some(masq) = gateway
                .masquerade_subnets
                .iter()
                .find(|m| m.overlaps(&subnet.cidr))
            {
                return fail("masquerade subnet", masq);
            }
            if let Some(other) = clusters
                .iter()
                .take(at)
                .find(|o| o.cidr.overlaps(&subnet.cidr))
            {
                return fail("cluster subnet", other);
            }
        }
        Ok(())
    }
}

/// The daemon's own address, else the one of all. Whoever reads the file, a wrong value of any of them is wrong.
fn metrics_address(
    r: &mut Reader<'_>,
    daemon: Option<Daemon>,
) -> Result<Option<SocketAddr>, SettingsError> {
    let mut found = r.value("metrics", "bind-address", "address:port")?;
    for one in Daemon::ALL {
        let own = r.value("metrics", one.metrics_key(), "address:port")?;
        if daemon == Some(one) {
            found = own.or(found);
        }
    }
    Ok(found)
}

fn is_dns_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.bytes().all(|c| inner(c) || c == b'-')
        && text.bytes().next().is_some_and(inner)
        && text.bytes().next_back().is_some_and(inner)
}
