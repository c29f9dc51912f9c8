//! One neighbor: who it is, its session, its filters.
//! In: its fields. Out: a model value, or `None` beside a problem. Invariant: exactly one of address and interface, of asn and
//! dynamicASN. Not here: what may be advertised and received (`filters`).

use std::net::IpAddr;

use model::frr as m;

use super::collector::Collector;
use super::filters::{advertise, receive};
use crate::frr_configuration as k;

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
            c.add(path, m::NAMELESS_NEIGHBOR);
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

pub(super) fn neighbor(c: &mut Collector, path: &str, n: &k::Neighbor) -> Option<m::Neighbor> {
    let peer = peer(c, path, n);
    let session = session(c, path, n);
    let advertise = advertise(c, &format!("{path}.toAdvertise"), n.to_advertise.as_ref());
    let receive = receive(c, &format!("{path}.toReceive"), n.to_receive.as_ref());
    let families = n.address_families.iter().flatten().map(String::as_str);
    let families = families.filter(|family| *family != "unicast");
    Some(m::Neighbor {
        peer: peer?,
        session: session?,
        advertise,
        receive,
        disable_mp: n.disable_mp == Some(true),
        address_families: families.map(|family| family.to_owned()).collect(),
    })
}
