//! What a neighbor is sent and what is taken from it.
//! In: `toAdvertise`, `toReceive`. Out: model values. Invariant: a range or community that cannot be read is a problem.
//! Not here: the neighbor.

use std::net::IpAddr;

use model::Prefix;
use model::frr as m;

use super::collector::Collector;
use crate::frr_configuration as k;
use crate::frr_configuration::AllowMode;

pub(super) fn advertise(
    c: &mut Collector,
    path: &str,
    given: Option<&k::ToAdvertise>,
) -> m::Advertise {
    let Some(given) = given else {
        return m::Advertise::default();
    };
    let allowed = given.allowed.clone().unwrap_or_default();
    let next_hops = next_hops(c, path, given);
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

fn next_hops(c: &mut Collector, path: &str, given: &k::ToAdvertise) -> Vec<IpAddr> {
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
    next_hops
}

fn is_community(text: &str) -> bool {
    match text.strip_prefix("large:") {
        Some(rest) => {
            rest.split(':').count() == 3 && rest.split(':').all(|p| p.parse::<u32>().is_ok())
        }
        None => text.split(':').count() == 2 && text.split(':').all(|p| p.parse::<u16>().is_ok()),
    }
}

pub(super) fn receive(c: &mut Collector, path: &str, given: Option<&k::ToReceive>) -> m::Receive {
    let allowed = given.and_then(|g| g.allowed.clone()).unwrap_or_default();
    let prefixes = (allowed.prefixes.iter().flatten())
        .filter_map(|p| range(c, &format!("{path}.allowed.prefixes"), p))
        .collect();
    m::Receive {
        all: allowed.mode == AllowMode::All,
        prefixes,
    }
}

pub(super) fn range(
    c: &mut Collector,
    path: &str,
    p: &k::PrefixSelector,
) -> Option<m::PrefixRange> {
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
