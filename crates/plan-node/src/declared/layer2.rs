//! What an object says of a layer-2 network beside what it says of any.
//! In: the object's annotations and configuration. Out: keys and subnets that nodes build of, or what is wrong with them.
//! Invariant: a layout that would make pods' addresses or gateways others than pods have is not built.
//! Not here: which addresses pods get (the CNI).

use std::net::IpAddr;

use model::address::Prefix;
use model::network::Layer2;
use model::user_network::attachment::TUNNEL_KEYS;
use model::user_network::{Attachment, TRANSIT_SUBNETS, UserNetwork};

/// Keys that a datapath can have (ovn-sb(5), `Datapath_Binding.tunnel_key`).
const KEYS: std::ops::Range<u32> = 1..1 << 24;

/// Keys and transit subnets, or why there are none, in one sentence.
pub(super) fn read(attachment: &Attachment, network: &UserNetwork) -> Result<Layer2, String> {
    let keys = attachment.stored_tunnel_keys();
    let (switch_key, router_key) = match keys.as_slice() {
        [switch, router]
            if switch != router && [switch, router].iter().all(|key| KEYS.contains(key)) =>
        {
            (*switch, *router)
        }
        _ => {
            let stored = attachment.annotations.get(TUNNEL_KEYS);
            let said = stored.map_or("absent".to_owned(), |said| format!("{said:?}"));
            let last = KEYS.end - 1;
            return Err(format!(
                "annotation {TUNNEL_KEYS} is {said}; allowed: two numbers of 1 to {last}, of switch and router"
            ));
        }
    };
    let said = &network.layer2.transit;
    let transit: Option<Vec<Prefix>> = if said.is_empty() {
        TRANSIT_SUBNETS
            .iter()
            .map(|text| text.parse().ok())
            .collect()
    } else {
        said.iter().map(|text| text.parse().ok()).collect()
    };
    let transit_subnets = transit.ok_or_else(|| {
        let said = said.join(",");
        format!("spec.config: transitSubnet is {said}; allowed: subnets with commas between them")
    })?;
    let of_a_family = |subnet: &Prefix| {
        let mut all = network.subnets.iter();
        all.any(|own| own.cidr.family() == subnet.family())
    };
    Ok(Layer2 {
        switch_key,
        router_key,
        transit_subnets: transit_subnets.into_iter().filter(of_a_family).collect(),
    })
}

/// Why a network's layout is not built: its gateways or management ports would have other addresses than the first and the
/// second of its subnets.
pub(super) fn unsupported(network: &UserNetwork) -> Option<String> {
    let nth = |offset| {
        let subnets = network.subnets.iter();
        subnets.filter_map(move |subnet| subnet.cidr.nth(offset))
    };
    let firsts: Vec<IpAddr> = nth(1).collect();
    let mut gateways = network.layer2.gateways.iter();
    if let Some(gateway) =
        gateways.find(|text| !text.parse().is_ok_and(|ip: IpAddr| firsts.contains(&ip)))
    {
        let allowed: Vec<String> = firsts.iter().map(ToString::to_string).collect();
        return Some(format!(
            "spec.config: defaultGatewayIPs has {gateway}; this node builds the first address of each subnet as gateway; allowed: absent, or {}",
            allowed.join(",")
        ));
    }
    let infrastructure = network.layer2.infrastructure.iter();
    let infrastructure: Vec<Prefix> = infrastructure.filter_map(|s| s.parse().ok()).collect();
    let mut needed = nth(1).chain(nth(2));
    let outside = needed.find(|ip| {
        let mut same = infrastructure
            .iter()
            .filter(|s| s.family() == Prefix::host(*ip).family())
            .peekable();
        same.peek().is_some() && !same.any(|subnet| subnet.contains_ip(*ip))
    });
    outside.map(|ip| {
        format!(
            "spec.config: infrastructureSubnets is {} without {ip}; this node builds gateway and management port at the first and the second address of each subnet; allowed: absent, or subnets with them",
            network.layer2.infrastructure.join(",")
        )
    })
}
