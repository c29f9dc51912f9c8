//! Which sections and keys there are, their defaults, and the rules between them.
//! In: text of a file and its name. Out: [`Settings`]. Invariant: the design documents' own configurations run as they stand.
//! Not here: how a value is read (`reader`), the gcfg grammar (`gcfg`).

mod gateway;
mod managed;
mod ovn;
mod services;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use model::ObjectKey;
use model::address::{ClusterSubnet, Family, Prefix};
use model::network::{MissingRoute, NoOverlay, Routing, Transport};

use crate::limits::{limits, seconds};
use crate::reader::{Reader, one_line};
use crate::{
    Daemon, DefaultNetwork, Features, Frr, Gateway, Logging, Settings, SettingsError, gcfg,
};

const SWITCH: &[(&str, bool)] = &[("enabled", true), ("disabled", false)];
const BOOL: &[(&str, bool)] = &[("true", true), ("false", false)];

/// Reads a file for one of the daemons.
///
/// # Errors
/// When the file cannot be read, its form is wrong, or a value is wrong.
pub fn load(path: &Path, daemon: Daemon) -> Result<Settings, SettingsError> {
    let file = path.display().to_string();
    let text = read(path)?;
    let settings = parse_for(&file, &text, daemon)?;
    match settings.operator_file(daemon) {
        Some(other) => {
            let (name, over) = (other.display().to_string(), read(other)?);
            parse_over(&file, &text, (&name, &over), daemon)
        }
        None => Ok(settings),
    }
}

fn read(path: &Path) -> Result<String, SettingsError> {
    std::fs::read_to_string(path).map_err(|source| SettingsError::Read {
        file: path.display().to_string(),
        source,
    })
}

/// Reads text of which another one, in TOML, replaces keys: that which OpenShift's operator object says. `over` is its name and
/// text. An error names both where it cannot be told which of them it comes from.
///
/// # Errors
/// When the form of one is wrong or a value is wrong.
pub fn parse_over(
    file: &str,
    text: &str,
    (name, over): (&str, &str),
    daemon: Daemon,
) -> Result<Settings, SettingsError> {
    let mut table = table(file, text)?;
    let over: toml::Table = over
        .parse()
        .map_err(|err: toml::de::Error| syntax(name, &err.to_string()))?;
    for (section, keys) in over {
        let toml::Value::Table(keys) = keys else {
            return Err(syntax(name, &format!("{section} is no section")));
        };
        let section = table
            .entry(section)
            .or_insert_with(|| toml::Table::new().into());
        if let Some(section) = section.as_table_mut() {
            section.extend(keys);
        }
    }
    let both = format!("{file} and {name}");
    Keys(Reader::new(&both, &table)).settings(Some(daemon), daemon.metrics_default())
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
    let table = table(file, text)?;
    Keys(Reader::new(file, &table)).settings(daemon, metrics)
}

fn table(file: &str, text: &str) -> Result<toml::Table, SettingsError> {
    let strict = Path::new(file)
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("toml"));
    if strict {
        text.parse::<toml::Table>().map_err(|err| err.to_string())
    } else {
        gcfg::parse(text)
    }
    .map_err(|message| syntax(file, &message))
}

fn syntax(file: &str, message: &str) -> SettingsError {
    SettingsError::Syntax {
        file: file.to_owned(),
        message: one_line(&message.trim_end().replace('\n', " ")),
    }
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
        let mtu_probe_interval = self.mtu_probe_interval()?;
        let nad = self.default_nad()?;
        let features = self.features(without_overlay)?;
        let (transport, ignored) = self.transport(without_overlay)?;
        let managed = self.managed(transport)?;
        let gateway = self.gateway()?;
        let ovn = self.ovn()?;
        let (ovn_north, idle) = self.ovn_north()?;
        let openshift = self.openshift()?;
        let (ovn_south, transit_subnets, unused) = self.overlay(transport)?;
        let overlap = self.no_overlaps(&cluster_subnets, &gateway, &transit_subnets, transport)?;
        let (service_cidrs, allowed_services) = self.services()?;
        let r = &mut self.0;
        let rundir = r.text("ovs", "rundir")?;
        let mut settings = Settings {
            network: DefaultNetwork {
                transport,
                cluster_subnets,
                mtu,
                nad,
            },
            features,
            openshift,
            managed,
            gateway,
            ovn,
            ovn_north,
            ovs_rundir: rundir.map_or_else(|| "/var/run/openvswitch".into(), Into::into),
            frr: frr(r)?,
            kubeconfig: r.text("kubernetes", "kubeconfig")?.map(Into::into),
            ovn_south,
            transit_subnets,
            service_cidrs,
            allowed_services,
            mtu_probe_interval,
            metrics_address: metrics_address(r, daemon)?.unwrap_or(metrics),
            limits: limits(r)?,
            logging: logging(r)?,
            warnings: Vec::new(),
        };
        settings.warnings = r.unknown();
        settings.warnings.extend(ignored.into_iter().chain(idle));
        settings.warnings.extend(unused.into_iter().chain(overlap));
        Ok(settings)
    }

    fn openshift(&mut self) -> Result<Option<PathBuf>, SettingsError> {
        let enabled = self.0.word("openshift", "enable", BOOL)? == Some(true);
        let path = self.0.text("openshift", "operator-file")?;
        let path = path.unwrap_or_else(|| "/etc/noverlay-operator/operator.toml".to_owned());
        Ok(enabled.then(|| path.into()))
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

    fn mtu_probe_interval(&mut self) -> Result<Duration, SettingsError> {
        let at = ("default", "mtu-probe-interval");
        let interval = seconds(&mut self.0, at, 60, 0..=3600)?;
        if (1..10).contains(&interval.as_secs()) {
            let why = "out of range; allowed: 0, or a whole number from 10 to 3600";
            let text = interval.as_secs().to_string();
            return Err(self.0.wrong(at.0, at.1, &text, why));
        }
        Ok(interval)
    }

    fn default_nad(&mut self) -> Result<ObjectKey, SettingsError> {
        // The namespace of OVN-Kubernetes.
        let default = match self.0.word("openshift", "enable", BOOL)? {
            Some(true) => "openshift-ovn-kubernetes/default",
            _ => "ovn-kubernetes/default",
        };
        let text = self
            .0
            .text("default", "cluster-default-nad")?
            .unwrap_or_else(|| default.to_owned());
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

    fn features(&mut self, without_overlay: bool) -> Result<Features, SettingsError> {
        const SECTION: &str = "ovnkubernetesfeature";
        let mut on = [true; 4];
        for (slot, key) in on.iter_mut().zip([
            "enable-multi-network",
            "enable-network-segmentation",
            "enable-route-advertisements",
            "enable-egress-ip",
        ]) {
            *slot = self.0.word(SECTION, key, BOOL)?.unwrap_or(true);
        }
        let loose = self.0.word(
            SECTION,
            "advertised-udn-isolation-mode",
            &[("strict", false), ("loose", true)],
        )?;
        let [multi, _, ra, egress_ip] = on;
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
        Ok(Features {
            route_advertisements: ra,
            egress_ip,
            loose_isolation: loose.unwrap_or(false),
        })
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
        let missing_route = missing.unwrap_or(MissingRoute::of(routing));
        Ok((
            Transport::NoOverlay(NoOverlay {
                outbound_snat,
                routing,
                missing_route,
            }),
            None,
        ))
    }

    /// What cannot be; of transit subnets a warning where the default network has no overlay: nothing has such an address then.
    fn no_overlaps(
        &self,
        clusters: &[ClusterSubnet],
        gateway: &Gateway,
        transit: &[Prefix],
        transport: Transport,
    ) -> Result<Option<String>, SettingsError> {
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
        for subnet in transit {
            let others = gateway
                .join_subnets
                .iter()
                .chain(&gateway.masquerade_subnets);
            let clusters = clusters.iter().map(|cluster| &cluster.cidr);
            if let Some(other) = others.chain(clusters).find(|other| other.overlaps(subnet)) {
                let key = match subnet.family() {
                    Family::V4 => "v4-transit-subnet",
                    Family::V6 => "v6-transit-subnet",
                };
                let why = format!(
                    "overlaps {other}, which [gateway] or [default] cluster-subnets have; allowed: a subnet that shares no address with them"
                );
                let wrong = self
                    .0
                    .wrong("clustermanager", key, &subnet.to_string(), &why);
                if transport == Transport::Geneve {
                    return Err(wrong);
                }
                let text = format!("{wrong}; networks of users with an overlay would need it");
                return Ok(Some(text));
            }
        }
        Ok(None)
    }
}

fn frr(r: &mut Reader<'_>) -> Result<Frr, SettingsError> {
    let path = |text: Option<String>, or: &str| text.unwrap_or_else(|| or.to_owned()).into();
    Ok(Frr {
        vty_socket: path(r.text("frr", "vty-socket")?, "/var/run/frr"),
        config_file: path(r.text("frr", "config-file")?, "/etc/frr/frr.conf"),
        reload_tool: path(r.text("frr", "reload-tool")?, "/usr/lib/frr/frr-reload.py"),
        reload_timeout: seconds(r, ("frr", "reload-timeout"), 60, 5..=600)?,
    })
}

fn logging(r: &mut Reader<'_>) -> Result<Logging, SettingsError> {
    const SECTION: &str = "logging";
    let levels = ["error", "warn", "info", "debug", "trace"].map(|level| (level, level));
    let level = r.word(SECTION, "level", &levels)?;
    let text = r.word(SECTION, "format", &[("json", false), ("text", true)])?;
    Ok(Logging {
        level: level.unwrap_or("info").to_owned(),
        text: text.unwrap_or(false),
    })
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

fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

fn is_dns_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.bytes().all(|c| inner(c) || c == b'-')
        && text.bytes().next().is_some_and(inner)
        && text.bytes().next_back().is_some_and(inner)
}
