//! `model::frr` into FRRConfiguration, lean: what is a default is left out.
//! In: the plain value. Out: an object for server-side apply. Invariant: decoding it gives the value again.
//! Not here: who owns the object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::Prefix;
use model::frr as m;

use crate::frr_configuration as k;
use crate::frr_configuration::{AllowMode, FRRConfiguration, FRRConfigurationSpec};
use crate::{duration, selector};

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn texts(list: &[Prefix]) -> Option<Vec<String>> {
    some(list.iter().map(ToString::to_string).collect())
}

impl From<&m::FrrConfiguration> for FRRConfiguration {
    fn from(value: &m::FrrConfiguration) -> Self {
        Self {
            metadata: ObjectMeta {
                name: Some(value.key.name.clone()),
                namespace: Some(value.key.namespace.clone()),
                labels: (!value.labels.is_empty()).then(|| value.labels.clone()),
                annotations: (!value.annotations.is_empty()).then(|| value.annotations.clone()),
                ..ObjectMeta::default()
            },
            spec: FRRConfigurationSpec {
                bgp: Some(k::Bgp {
                    routers: some(value.routers.iter().map(router).collect()),
                    bfd_profiles: some(value.bfd_profiles.iter().map(bfd_profile).collect()),
                }),
                raw: value.raw.as_ref().map(|raw| k::RawConfig {
                    priority: Some(raw.priority),
                    raw_config: Some(raw.config.clone()),
                }),
                node_selector: Some(selector::encode(&value.node_selector)),
            },
            status: None,
        }
    }
}

fn router(r: &m::Router) -> k::Router {
    k::Router {
        asn: r.asn.get().into(),
        id: r.id.clone(),
        vrf: (!r.vrf.is_empty()).then(|| r.vrf.clone()),
        neighbors: some(r.neighbors.iter().map(neighbor).collect()),
        prefixes: texts(&r.prefixes),
        imports: some(
            r.imports
                .iter()
                .map(|vrf| k::Import {
                    vrf: Some(vrf.clone()),
                })
                .collect(),
        ),
        evpn: r
            .evpn
            .as_ref()
            .and_then(|json| serde_json::from_str(json).ok()),
    }
}

fn neighbor(n: &m::Neighbor) -> k::Neighbor {
    let s = &n.session;
    let (asn, dynamic_asn) = match s.remote_as {
        m::RemoteAs::Number(asn) => (Some(asn.get().into()), None),
        m::RemoteAs::Internal => (None, Some(k::DynamicAsn::Internal)),
        m::RemoteAs::External => (None, Some(k::DynamicAsn::External)),
    };
    let (address, interface) = match &n.peer {
        m::Peer::Address(text) => (Some(text.clone()), None),
        m::Peer::Interface(text) => (None, Some(text.clone())),
    };
    k::Neighbor {
        asn,
        dynamic_asn,
        local_asn: s.local_as.map(|a| a.get().into()),
        source_address: s.source.clone(),
        address,
        interface,
        port: s.port.map(i32::from),
        password: s.password.clone(),
        password_secret: s.password_secret.clone().map(|name| k::SecretReference {
            name,
            namespace: String::new(),
        }),
        hold_time: s.hold_time.map(duration::text),
        keepalive_time: s.keepalive_time.map(duration::text),
        connect_time: s.connect_time.map(duration::text),
        ebgp_multi_hop: s.ebgp_multi_hop.then_some(true),
        bfd_profile: s.bfd_profile.clone(),
        enable_graceful_restart: s.graceful_restart.then_some(true),
        to_advertise: (n.advertise != m::Advertise::default()).then(|| advertise(&n.advertise)),
        to_receive: (n.receive != m::Receive::default()).then(|| receive(&n.receive)),
        disable_mp: n.disable_mp.then_some(true),
        dual_stack_address_family: s.dual_stack.then_some(true),
        address_families: (!n.address_families.is_empty()).then(|| {
            let unicast = std::iter::once("unicast".to_owned());
            unicast.chain(n.address_families.iter().cloned()).collect()
        }),
    }
}

fn mode(all: bool) -> AllowMode {
    if all {
        AllowMode::All
    } else {
        AllowMode::Filtered
    }
}

fn advertise(a: &m::Advertise) -> k::ToAdvertise {
    let hop = |v4: bool| {
        a.next_hops
            .iter()
            .find(|ip| ip.is_ipv4() == v4)
            .map(ToString::to_string)
    };
    let local_prefs = a
        .local_prefs
        .iter()
        .map(|(value, prefixes)| k::LocalPrefPrefixes {
            prefixes: texts(prefixes),
            local_pref: i32::try_from(*value).ok(),
        });
    let communities = a
        .communities
        .iter()
        .map(|(text, prefixes)| k::CommunityPrefixes {
            prefixes: texts(prefixes),
            community: Some(text.clone()),
        });
    k::ToAdvertise {
        allowed: (a.all || !a.prefixes.is_empty()).then(|| k::AllowedOut {
            mode: mode(a.all),
            prefixes: texts(&a.prefixes),
        }),
        next_hop: (!a.next_hops.is_empty()).then(|| k::NextHop {
            ipv4: hop(true),
            ipv6: hop(false),
        }),
        with_local_pref: some(local_prefs.collect()),
        with_community: some(communities.collect()),
    }
}

fn receive(r: &m::Receive) -> k::ToReceive {
    let prefixes = r.prefixes.iter().map(|p| k::PrefixSelector {
        prefix: Some(p.prefix.to_string()),
        le: p.le.map(i32::from),
        ge: p.ge.map(i32::from),
    });
    k::ToReceive {
        allowed: Some(k::AllowedIn {
            mode: mode(r.all),
            prefixes: some(prefixes.collect()),
        }),
    }
}

fn bfd_profile(p: &m::BfdProfile) -> k::BfdProfile {
    let number = |n: Option<u32>| n.and_then(|n| i32::try_from(n).ok());
    k::BfdProfile {
        name: p.name.clone(),
        receive_interval: number(p.receive_interval),
        transmit_interval: number(p.transmit_interval),
        detect_multiplier: number(p.detect_multiplier),
        echo_interval: number(p.echo_interval),
        echo_mode: p.echo_mode.then_some(true),
        passive_mode: p.passive_mode.then_some(true),
        minimum_ttl: number(p.minimum_ttl),
    }
}
