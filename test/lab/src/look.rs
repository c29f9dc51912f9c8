//! Looking at a running lab with foreign tools.
//!
//! In: a lab and a node. Out: sessions and routes as FRR tells them, routes as the
//! kernel tells them, rows as the Northbound DB holds them. No program of ours is
//! asked: this is what the proof stands on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Context, Result};
use ipnet::IpNet;
use serde_json::Value;

use crate::family::Family;
use crate::node::frr::vtysh;
use crate::node::ovs::nbctl;
use crate::run::tool;
use crate::state::Lab;

/// A route: where to, over which neighbor. A node's link-local address counts as its address on the underlay.
pub(crate) type Routes = BTreeSet<(IpNet, IpAddr)>;

/// One BGP neighbor of a node, as bgpd tells it.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// `Established`, or where it hangs.
    pub(crate) state: String,
    /// How long it has been so, in milliseconds.
    pub(crate) uptime: u64,
}

/// A node's BGP neighbors of all families of the lab; empty when bgpd has no configuration.
pub(crate) fn sessions(lab: &Lab, node: &str) -> Result<BTreeMap<String, Session>> {
    let mut found = BTreeMap::new();
    for family in lab.values.families() {
        found.extend(sessions_of(lab, node, family)?);
    }
    Ok(found)
}

fn sessions_of(lab: &Lab, node: &str, family: Family) -> Result<BTreeMap<String, Session>> {
    let command = format!("show bgp {} unicast summary json", family.afi());
    let shown = vtysh(lab, node, &[&command]).run()?;
    // Without configuration the answer is a sentence or an empty object.
    let parsed: Value = serde_json::from_str(shown.trim()).unwrap_or(Value::Null);
    let peers = parsed
        .get("peers")
        .or_else(|| parsed.pointer(&format!("/{}Unicast/peers", family.afi())));
    let peers = peers.and_then(Value::as_object);
    let session = |peer: &Value| Session {
        state: peer
            .get("state")
            .and_then(Value::as_str)
            .unwrap_or("unknown")
            .to_owned(),
        uptime: peer
            .get("peerUptimeMsec")
            .and_then(Value::as_u64)
            .unwrap_or(0),
    };
    Ok(peers
        .into_iter()
        .flatten()
        .map(|(name, peer)| (name.clone(), session(peer)))
        .collect())
}

/// Why a node's session with this peer ended the last time, in bgpd's words.
pub(crate) fn last_reset(lab: &Lab, node: &str, peer: IpAddr) -> Result<String> {
    let shown = vtysh(lab, node, &[&format!("show bgp neighbors {peer} json")]).run()?;
    let parsed: Value = serde_json::from_str(shown.trim()).context("bgpd's neighbor")?;
    let why = parsed.pointer(&format!("/{peer}/lastResetDueTo"));
    Ok(why.and_then(Value::as_str).unwrap_or("unknown").to_owned())
}

/// How often each of a node's BFD sessions has gone down since bfdd has it, by its peer's address.
///
/// bgpd's own reason for a reset is no such evidence: what ended a session that came back is overwritten by the tries to open it again.
pub(crate) fn bfd_downs(lab: &Lab, node: &str) -> Result<BTreeMap<IpAddr, u64>> {
    let shown = vtysh(lab, node, &["show bfd peers counters json"]).run()?;
    let parsed: Value = serde_json::from_str(shown.trim()).context("bfdd's counters")?;
    let downs = |peer: &Value| {
        let address = peer.get("peer")?.as_str()?.parse().ok()?;
        Some((address, peer.get("session-down")?.as_u64()?))
    };
    Ok(parsed
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(downs)
        .collect())
}

/// BFD sessions of a node that are not up; none where it has no such session.
///
/// A session that has not come up yet watches nothing: bgpd waits out its hold time then.
pub(crate) fn bfd_not_up(lab: &Lab, node: &str) -> Result<Vec<String>> {
    let shown = vtysh(lab, node, &["show bfd peers json"]).run()?;
    let parsed: Value = serde_json::from_str(shown.trim()).context("bfdd's peers")?;
    let word = |peer: &Value, name: &str| {
        let word = peer.get(name).and_then(Value::as_str);
        word.unwrap_or("unknown").to_owned()
    };
    Ok(parsed
        .as_array()
        .into_iter()
        .flatten()
        .filter(|peer| word(peer, "status") != "up")
        .map(|peer| format!("{} {}", word(peer, "peer"), word(peer, "status")))
        .collect())
}

/// Routes that bgpd learned from its neighbors and takes for the best.
pub(crate) fn frr_routes(lab: &Lab, node: &str) -> Result<Routes> {
    let mut found = Routes::new();
    for family in lab.values.families() {
        found.extend(frr_routes_of(lab, node, family)?);
    }
    Ok(found)
}

fn frr_routes_of(lab: &Lab, node: &str, family: Family) -> Result<Routes> {
    let command = format!("show bgp {} unicast json", family.afi());
    let shown = vtysh(lab, node, &[&command]).run()?;
    let parsed: Value = serde_json::from_str(shown.trim()).unwrap_or(Value::Null);
    let mut found = Routes::new();
    for (prefix, paths) in parsed
        .get("routes")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        for path in paths.as_array().into_iter().flatten() {
            let best = path
                .get("bestpath")
                .and_then(Value::as_bool)
                .unwrap_or(false)
                || path
                    .get("multipath")
                    .and_then(Value::as_bool)
                    .unwrap_or(false);
            let hops = path
                .get("nexthops")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            for hop in hops.filter_map(|hop| hop.get("ip")?.as_str()?.parse::<IpAddr>().ok()) {
                // 0.0.0.0 or :: is the node's own prefix.
                if best
                    && !hop.is_unspecified()
                    && let Ok(prefix) = prefix.parse()
                {
                    found.insert((prefix, lab.behind(hop)));
                }
            }
        }
    }
    Ok(found)
}

/// Routes of protocol bgp in the kernel's main table.
pub(crate) fn kernel_routes(lab: &Lab, node: &str) -> Result<Routes> {
    let mut found = Routes::new();
    for family in lab.values.families() {
        found.extend(kernel_routes_of(lab, node, family)?);
    }
    Ok(found)
}

fn kernel_routes_of(lab: &Lab, node: &str, family: Family) -> Result<Routes> {
    let namespace = lab.namespace(node);
    let shown = tool("ip")
        .args(["-n", &namespace, "-j", family.option()])
        .args(["route", "show", "proto", "bgp"])
        .run()?;
    let parsed: Value = serde_json::from_str(&shown).context("routes of the kernel")?;
    let mut found = Routes::new();
    for route in parsed.as_array().into_iter().flatten() {
        let word =
            |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let Some(prefix) = word(route, "dst").and_then(|dst| prefix(&dst)) else {
            continue;
        };
        let several = route
            .get("nexthops")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        for hop in several
            .chain([route])
            .filter_map(|hop| word(hop, "gateway")?.parse().ok())
        {
            found.insert((prefix, lab.behind(hop)));
        }
    }
    Ok(found)
}

/// A prefix, or an address as a prefix.
fn prefix(text: &str) -> Option<IpNet> {
    text.parse()
        .ok()
        .or_else(|| Some(IpNet::from(text.parse::<IpAddr>().ok()?)))
}

/// A row of the Northbound DB: its columns as JSON.
pub(crate) type Row = BTreeMap<String, Value>;

/// Rows of a table; `condition` is one of `ovn-nbctl find`, or empty for all.
pub(crate) fn rows(lab: &Lab, node: &str, table: &str, condition: &[&str]) -> Result<Vec<Row>> {
    let answer = nbctl(lab, node)
        .args(["--no-leader-only", "--format=json", "find", table])
        .args(condition)
        .run()?;
    let parsed: Value =
        serde_json::from_str(&answer).with_context(|| format!("rows of {table}"))?;
    let list = |key: &str| {
        parsed
            .get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let headings: Vec<String> = list("headings")
        .iter()
        .filter_map(|h| h.as_str().map(str::to_owned))
        .collect();
    let row = |cells: &Value| -> Row {
        let cells = cells.as_array().cloned().unwrap_or_default();
        headings.iter().cloned().zip(cells).collect()
    };
    Ok(list("data").iter().map(row).collect())
}

/// A column of text, or of a set that holds one text.
pub(crate) fn word(row: &Row, column: &str) -> String {
    members(row, column).into_iter().next().unwrap_or_default()
}

/// A set of texts or references, or a single one.
pub(crate) fn members(row: &Row, column: &str) -> Vec<String> {
    row.get(column).map(atoms).unwrap_or_default()
}

/// The value that a column of key and value pairs has for a key.
pub(crate) fn entry(row: &Row, column: &str, key: &str) -> Option<String> {
    let pairs = row.get(column)?.get(1)?.as_array()?;
    let hit = pairs
        .iter()
        .find(|pair| pair.get(0).and_then(Value::as_str) == Some(key))?;
    hit.get(1)?.as_str().map(str::to_owned)
}

/// OVSDB writes one value as it is and several as `["set", [...]]`, a reference as
/// `["uuid", "..."]`.
fn atoms(value: &Value) -> Vec<String> {
    if let Some(text) = value.as_str() {
        return vec![text.to_owned()];
    }
    match (value.get(0).and_then(Value::as_str), value.get(1)) {
        (Some("set"), Some(inner)) => inner
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(atoms)
            .collect(),
        (Some("uuid"), Some(uuid)) => uuid.as_str().map(str::to_owned).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// A node's gateway router.
pub(crate) fn gateway_router(node: &str) -> String {
    format!("GR_{node}")
}

/// Rows of a router's column (static routes, NAT) in full.
pub(crate) fn router_rows(
    lab: &Lab,
    node: &str,
    router: &str,
    column: &str,
    table: &str,
) -> Result<Vec<Row>> {
    let routers = rows(lab, node, "logical_router", &[&format!("name={router}")])?;
    let wanted: BTreeSet<String> = routers
        .iter()
        .flat_map(|row| members(row, column))
        .collect();
    let all = rows(lab, node, table, &[])?;
    Ok(all
        .into_iter()
        .filter(|row| wanted.contains(&word(row, "_uuid")))
        .collect())
}

/// The imported routes of a node's gateway router, each row by itself: a doubled row
/// is there twice.
pub(crate) fn imported(lab: &Lab, node: &str) -> Result<Vec<(IpNet, IpAddr)>> {
    let router = gateway_router(node);
    let all = router_rows(
        lab,
        node,
        &router,
        "static_routes",
        "logical_router_static_route",
    )?;
    let marked = all.iter().filter(|row| {
        entry(row, "external_ids", "k8s.ovn.org/owner-controller").as_deref() == Some("RouteImport")
            && word(row, "output_port") == format!("rtoe-{router}")
    });
    let route = |row: &Row| {
        Some((
            prefix(&word(row, "ip_prefix"))?,
            lab.behind(word(row, "nexthop").parse().ok()?),
        ))
    };
    Ok(marked.filter_map(route).collect())
}

#[cfg(test)]
mod tests;
