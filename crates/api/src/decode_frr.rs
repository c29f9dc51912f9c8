//! FRRConfiguration into `model::frr`.
//! In: one object. Out: the plain value, or every problem of the object at once.
//! Invariant: every field is either carried over or named in a problem.
//! Not here: rules between objects (`frr::merge`).

use std::net::IpAddr;

use kube::core::DynamicObject;
use model::frr as m;
use model::selector::LabelSelector;
use model::{Asn, ObjectKey, Prefix, Problem};
use serde_json::Value;

use crate::frr_configuration as k;
use crate::frr_configuration::{AllowMode, FRRConfiguration};
use crate::{duration, selector};

/// What is said of a text with a control character in it.
const CONTROL: &str =
    "the text contains a control character (a line break, a tab, ...); none is allowed";

/// Collects problems of one object, each with the field's path.
struct Collector {
    subject: String,
    problems: Vec<Problem>,
}

impl Collector {
    fn add(&mut self, field: &str, message: impl std::fmt::Display) {
        let text = format!("{} field {field}: {message}", self.subject);
        self.problems
            .push(Problem::new(self.subject.clone(), "ConversionFailed", text));
    }

    fn evpn(&mut self, field: &str) {
        let text = format!(
            "{} field {field}: EVPN is not supported; remove the field, or run frr-k8s on this node",
            self.subject
        );
        let subject = self.subject.clone();
        self.problems
            .push(Problem::new(subject, m::EVPN_UNSUPPORTED, text));
    }

    fn take<T, E: std::fmt::Display>(&mut self, field: &str, result: Result<T, E>) -> Option<T> {
        result.map_err(|err| self.add(field, err)).ok()
    }

    /// A text that becomes part of a line: a control character would end the line, and what follows be one of its own.
    fn word(&mut self, field: &str, text: Option<&String>) -> Option<String> {
        let text = text.filter(|text| !text.is_empty())?;
        if text.chars().any(char::is_control) {
            // The text itself stays unsaid: it may be a password.
            self.add(field, CONTROL);
            return None;
        }
        Some(text.clone())
    }

    fn prefixes(&mut self, field: &str, list: Option<&Vec<String>>) -> Vec<Prefix> {
        list.into_iter()
            .flatten()
            .filter_map(|text| self.take(field, text.parse()))
            .collect()
    }

    fn asn(&mut self, field: &str, number: i64) -> Option<Asn> {
        self.take(field, Asn::try_from(number))
    }

    fn seconds(&mut self, field: &str, text: Option<&String>) -> Option<u64> {
        text.and_then(|text| self.take(field, duration::seconds(text)))
    }

    fn number(&mut self, field: &str, value: Option<i32>) -> Option<u32> {
        value.and_then(|n| {
            self.take(
                field,
                u32::try_from(n).map_err(|_| format!("{n} is negative")),
            )
        })
    }
}

impl TryFrom<&FRRConfiguration> for m::FrrConfiguration {
    type Error = Vec<Problem>;

    fn try_from(object: &FRRConfiguration) -> Result<Self, Self::Error> {
        let meta = &object.metadata;
        let key = ObjectKey::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        );
        let mut c = Collector {
            subject: format!("FRRConfiguration/{key}"),
            problems: Vec::new(),
        };
        let node_selector = match &object.spec.node_selector {
            None => LabelSelector::default(),
            Some(s) => c
                .take("spec.nodeSelector", selector::decode(s))
                .unwrap_or_default(),
        };
        let bgp = object.spec.bgp.clone().unwrap_or_default();
        let routers = (bgp.routers.iter().flatten().enumerate())
            .filter_map(|(at, r)| router(&mut c, &format!("spec.bgp.routers[{at}]"), r))
            .collect();
        let bfd_profiles = (bgp.bfd_profiles.iter().flatten().enumerate())
            .map(|(at, p)| bfd_profile(&mut c, &format!("spec.bgp.bfdProfiles[{at}]"), p))
            .collect();
        let raw = object.spec.raw.as_ref().and_then(|raw| {
            let config = raw.raw_config.clone().filter(|text| !text.is_empty())?;
            Some(m::Raw {
                priority: raw.priority.unwrap_or(0),
                config,
            })
        });
        if !c.problems.is_empty() {
            return Err(c.problems);
        }
        Ok(Self {
            key,
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
            node_selector,
            routers,
            bfd_profiles,
            raw,
        })
    }
}

/// An object as it was read, or why it is not even of the type's shape. `remains` is empty; see [`remains`].
#[must_use]
pub fn decode_source(key: ObjectKey, read: Result<FRRConfiguration, String>) -> m::Source {
    match read {
        Ok(object) => m::Source {
            key,
            node_selector: node_selector(&object),
            object: m::FrrConfiguration::try_from(&object),
            remains: m::Remains::default(),
        },
        Err(why) => {
            let subject = format!("FRRConfiguration/{key}");
            let text = format!("{subject} cannot be read: {why}");
            m::Source {
                key,
                node_selector: None,
                object: Err(vec![Problem::new(subject, "ConversionFailed", text)]),
                remains: m::Remains::default(),
            }
        }
    }
}

fn node_selector(object: &FRRConfiguration) -> Option<LabelSelector> {
    match &object.spec.node_selector {
        None => Some(LabelSelector::default()),
        Some(s) => selector::decode(s).ok(),
    }
}

/// What can be read of an object whose fields may be of any shape.
#[must_use]
pub fn remains(object: &DynamicObject) -> m::Remains {
    let selector = object.data.pointer("/spec/nodeSelector");
    let routers = object.data.pointer("/spec/bgp/routers");
    let routers = routers.and_then(Value::as_array).into_iter().flatten();
    let default = |router: &&Value| {
        let vrf = router.get("vrf").and_then(Value::as_str);
        matches!(vrf, None | Some("" | "default"))
    };
    let prefixes = routers
        .filter(default)
        .filter_map(|router| router.get("prefixes")?.as_array())
        .flatten()
        .filter_map(|text| text.as_str()?.parse().ok());
    m::Remains {
        labels: object.metadata.labels.clone().unwrap_or_default(),
        annotations: object.metadata.annotations.clone().unwrap_or_default(),
        node_selector: match selector {
            None | Some(Value::Null) => Some(LabelSelector::default()),
            Some(value) => serde_json::from_value(value.clone())
                .ok()
                .and_then(|s| selector::decode(&s).ok()),
        },
        prefixes: prefixes.collect(),
    }
}

fn router(c: &mut Collector, path: &str, r: &k::Router) -> Option<m::Router> {
    if r.evpn.is_some() {
        c.evpn(&format!("{path}.evpn"));
    }
    let neighbors = (r.neighbors.iter().flatten().enumerate())
        .filter_map(|(at, n)| neighbor(c, &format!("{path}.neighbors[{at}]"), n))
        .collect();
    let prefixes = c.prefixes(&format!("{path}.prefixes"), r.prefixes.as_ref());
    Some(m::Router {
        asn: c.asn(&format!("{path}.asn"), r.asn)?,
        id: c.word(&format!("{path}.id"), r.id.as_ref()),
        vrf: c
            .word(&format!("{path}.vrf"), r.vrf.as_ref())
            .unwrap_or_default(),
        neighbors,
        prefixes,
        imports: r
            .imports
            .iter()
            .flatten()
            .map(|i| {
                c.word(&format!("{path}.imports.vrf"), i.vrf.as_ref())
                    .unwrap_or_default()
            })
            .collect(),
    })
}

fn peer(c: &mut Collector, path: &str, n: &k::Neighbor) -> Option<m::Peer> {
    let address = n.address.as_ref().filter(|t| !t.is_empty());
    let interface = n.interface.as_ref().filter(|t| !t.is_empty());
    match (address, interface) {
        (Some(text), None) => {
            c.take(
                &format!("{path}.address"),
                text.parse::<IpAddr>()
                    .map_err(|_| format!("{text:?} is not an IP address")),
            )?;
            Some(m::Peer::Address(text.clone()))
        }
        (None, Some(name)) => c
            .word(&format!("{path}.interface"), Some(name))
            .map(m::Peer::Interface),
        (Some(a), Some(i)) => {
            c.add(
                path,
                format!("address {a:?} and interface {i:?} are both set; exactly one is allowed"),
            );
            None
        }
        (None, None) => {
            c.add(
                path,
                "neither address nor interface is set; exactly one is needed",
            );
            None
        }
    }
}

fn remote_as(c: &mut Collector, path: &str, n: &k::Neighbor) -> Option<m::RemoteAs> {
    match (n.asn.filter(|a| *a != 0), n.dynamic_asn) {
        (Some(number), None) => c
            .asn(&format!("{path}.asn"), number)
            .map(m::RemoteAs::Number),
        (None, Some(k::DynamicAsn::Internal)) => Some(m::RemoteAs::Internal),
        (None, Some(k::DynamicAsn::External)) => Some(m::RemoteAs::External),
        (Some(number), Some(_)) => {
            c.add(
                path,
                format!("asn {number} and dynamicASN are both set; exactly one is allowed"),
            );
            None
        }
        (None, None) => {
            c.add(
                path,
                "neighbor without asn and without dynamicASN; exactly one is needed",
            );
            None
        }
    }
}

fn session(c: &mut Collector, path: &str, n: &k::Neighbor) -> Option<m::Session> {
    let remote_as = remote_as(c, path, n);
    let text = |t: &Option<String>| t.clone().filter(|t| !t.is_empty());
    let password_secret = n
        .password_secret
        .as_ref()
        .map(|s| s.name.clone())
        .filter(|s| !s.is_empty());
    if text(&n.password).is_some() && password_secret.is_some() {
        c.add(
            &format!("{path}.password"),
            "password and passwordSecret are both set; at most one is allowed",
        );
    }
    if n.address_families.iter().flatten().any(|f| f != "unicast") {
        c.evpn(&format!("{path}.addressFamilies"));
    }
    let local_as = n
        .local_asn
        .and_then(|number| c.asn(&format!("{path}.localASN"), number));
    let port = n.port.and_then(|p| {
        c.take(
            &format!("{path}.port"),
            u16::try_from(p).map_err(|_| format!("{p} is not a port (0 to 16384)")),
        )
    });
    let hold_time = c.seconds(&format!("{path}.holdTime"), n.hold_time.as_ref());
    let keepalive_time = c.seconds(&format!("{path}.keepaliveTime"), n.keepalive_time.as_ref());
    let connect_time = c.seconds(&format!("{path}.connectTime"), n.connect_time.as_ref());
    timers(c, path, n, hold_time, keepalive_time, connect_time);
    Some(m::Session {
        remote_as: remote_as?,
        local_as,
        source: c.word(&format!("{path}.sourceaddress"), n.source_address.as_ref()),
        port: port.filter(|p| *p != 0),
        password: c.word(&format!("{path}.password"), n.password.as_ref()),
        password_secret,
        hold_time,
        keepalive_time,
        connect_time,
        ebgp_multi_hop: n.ebgp_multi_hop.unwrap_or(false),
        bfd_profile: c.word(&format!("{path}.bfdProfile"), n.bfd_profile.as_ref()),
        graceful_restart: n.enable_graceful_restart.unwrap_or(false),
        dual_stack: n.dual_stack_address_family.unwrap_or(false),
    })
}

fn timers(
    c: &mut Collector,
    path: &str,
    n: &k::Neighbor,
    hold: Option<u64>,
    keepalive: Option<u64>,
    connect: Option<u64>,
) {
    match (&n.hold_time, &n.keepalive_time) {
        (Some(t), None) => c.add(
            &format!("{path}.holdTime"),
            format!("holdTime {t:?} is set without keepaliveTime; both or neither"),
        ),
        (None, Some(t)) => c.add(
            &format!("{path}.keepaliveTime"),
            format!("keepaliveTime {t:?} is set without holdTime; both or neither"),
        ),
        (None, None) | (Some(_), Some(_)) => {}
    }
    if let (Some(hold), Some(keepalive)) = (hold, keepalive) {
        if hold != 0 && hold < 3 {
            c.add(
                &format!("{path}.holdTime"),
                format!("{hold}s is too short; 0 or at least 3s is allowed"),
            );
        }
        if keepalive > hold {
            c.add(
                &format!("{path}.keepaliveTime"),
                format!(
                    "{keepalive}s is longer than holdTime {hold}s; at most the hold time is allowed"
                ),
            );
        }
    }
    if connect.is_some_and(|t| !(1..=65_535).contains(&t)) {
        c.add(
            &format!("{path}.connectTime"),
            "out of range; 1s to 65535s is allowed",
        );
    }
}

fn neighbor(c: &mut Collector, path: &str, n: &k::Neighbor) -> Option<m::Neighbor> {
    let peer = peer(c, path, n);
    let session = session(c, path, n);
    let advertise = advertise(c, &format!("{path}.toAdvertise"), n.to_advertise.as_ref());
    let receive = receive(c, &format!("{path}.toReceive"), n.to_receive.as_ref());
    Some(m::Neighbor {
        peer: peer?,
        session: session?,
        advertise,
        receive,
    })
}

fn advertise(c: &mut Collector, path: &str, given: Option<&k::ToAdvertise>) -> m::Advertise {
    let Some(given) = given else {
        return m::Advertise::default();
    };
    let allowed = given.allowed.clone().unwrap_or_default();
    let mut next_hops = Vec::new();
    for (field, text) in given
        .next_hop
        .iter()
        .flat_map(|n| [("ipv4", &n.ipv4), ("ipv6", &n.ipv6)])
    {
        let Some(text) = text.as_ref().filter(|t| !t.is_empty()) else {
            continue;
        };
        let right = match text.parse::<IpAddr>() {
            Ok(ip) if ip.is_ipv4() == (field == "ipv4") => Ok(ip),
            _ => Err(format!("{text:?} is not an {field} address")),
        };
        next_hops.extend(c.take(&format!("{path}.nextHop.{field}"), right));
    }
    let local_prefs = (given.with_local_pref.iter().flatten())
        .filter_map(|l| {
            let value = c.number(
                &format!("{path}.withLocalPref.localPref"),
                Some(l.local_pref.unwrap_or(0)),
            )?;
            Some((
                value,
                c.prefixes(
                    &format!("{path}.withLocalPref.prefixes"),
                    l.prefixes.as_ref(),
                ),
            ))
        })
        .collect();
    let communities = (given.with_community.iter().flatten())
        .filter_map(|w| {
            let text = w.community.clone().unwrap_or_default();
            if !is_community(&text) {
                c.add(
                    &format!("{path}.withCommunity.community"),
                    format!("{text:?} is neither a:b nor large:a:b:c"),
                );
                return None;
            }
            Some((
                text,
                c.prefixes(
                    &format!("{path}.withCommunity.prefixes"),
                    w.prefixes.as_ref(),
                ),
            ))
        })
        .collect();
    m::Advertise {
        all: allowed.mode == AllowMode::All,
        prefixes: c.prefixes(
            &format!("{path}.allowed.prefixes"),
            allowed.prefixes.as_ref(),
        ),
        next_hops,
        local_prefs,
        communities,
    }
}

fn is_community(text: &str) -> bool {
    match text.strip_prefix("large:") {
        Some(rest) => {
            rest.split(':').count() == 3 && rest.split(':').all(|p| p.parse::<u32>().is_ok())
        }
        None => text.split(':').count() == 2 && text.split(':').all(|p| p.parse::<u16>().is_ok()),
    }
}

fn receive(c: &mut Collector, path: &str, given: Option<&k::ToReceive>) -> m::Receive {
    let allowed = given.and_then(|g| g.allowed.clone()).unwrap_or_default();
    let prefixes = (allowed.prefixes.iter().flatten())
        .filter_map(|p| range(c, &format!("{path}.allowed.prefixes"), p))
        .collect();
    m::Receive {
        all: allowed.mode == AllowMode::All,
        prefixes,
    }
}

fn range(c: &mut Collector, path: &str, p: &k::PrefixSelector) -> Option<m::PrefixRange> {
    let text = p.prefix.clone().unwrap_or_default();
    let prefix: Prefix = c.take(&format!("{path}.prefix"), text.parse())?;
    let mut bound = |name: &str, value: Option<i32>| match value.filter(|v| *v != 0) {
        None => Some(None),
        Some(v) => {
            match u8::try_from(v)
                .ok()
                .filter(|v| *v >= prefix.bits() && *v <= 128)
            {
                Some(v) => Some(Some(v)),
                None => {
                    let from = prefix.bits();
                    c.add(&format!("{path}.{name}"), format!("{name} {v} of prefix {prefix} is out of range; {from} to 128 is allowed"));
                    None
                }
            }
        }
    };
    let (ge, le) = (bound("ge", p.ge)?, bound("le", p.le)?);
    if let (Some(ge), Some(le)) = (ge, le)
        && ge > le
    {
        c.add(
            path,
            format!("ge {ge} of prefix {prefix} is more than le {le}"),
        );
        return None;
    }
    Some(m::PrefixRange { prefix, ge, le })
}

fn bfd_profile(c: &mut Collector, path: &str, p: &k::BfdProfile) -> m::BfdProfile {
    m::BfdProfile {
        name: c
            .word(&format!("{path}.name"), Some(&p.name))
            .unwrap_or_default(),
        receive_interval: c.number(&format!("{path}.receiveInterval"), p.receive_interval),
        transmit_interval: c.number(&format!("{path}.transmitInterval"), p.transmit_interval),
        detect_multiplier: c.number(&format!("{path}.detectMultiplier"), p.detect_multiplier),
        echo_interval: c.number(&format!("{path}.echoInterval"), p.echo_interval),
        echo_mode: p.echo_mode.unwrap_or(false),
        passive_mode: p.passive_mode.unwrap_or(false),
        minimum_ttl: c.number(&format!("{path}.minimumTtl"), p.minimum_ttl),
    }
}

#[cfg(test)]
mod tests;
