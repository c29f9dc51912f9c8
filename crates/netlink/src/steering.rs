//! Rules and routes of ours beside OVN-Kubernetes: read, compared, written.
//! In: entries wanted. Out: the kernel changed where it differs, what was changed, in words, and preferences that somebody else uses.
//! Invariant: what does not bear our protocol number is not touched; rules come in the order of their preferences, after the routes
//! that they lead to, and go the other way round.
//! Not here: which entries (`plan_node::beside`), BGP's routes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::Prefix;
use model::kernel::{LinkFact, route_metric};
use model::route::TableId;
use model::steering::{Entries, PROTOCOL, Route, Rule, TABLE, preference};
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute};
use rtnetlink::{Handle, RouteMessageBuilder};

use crate::dump::{self, DumpError};
use crate::facts::{FoundRule, TableRoute, TableRouteKind};
use crate::message::{AF_INET, AF_INET6, DEL_ROUTE, NEW_RULE};
use crate::write::{DEADLINE, WriteError};

/// A dump with this protocol is of all of them (`RTPROT_UNSPEC`).
const ANY_PROTOCOL: u8 = 0;
/// Why the kernel is not as wanted; entries are named in words.
pub type SteeringError = WriteError<String>;

/// What was done.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Steered {
    /// One sentence for each change.
    pub done: Vec<String>,
    /// Preferences of ours at which rules of somebody else stand: theirs stay, and nothing of ours is added.
    pub taken: BTreeSet<u32>,
    /// Routes of somebody else stand in the table of ours; the same.
    pub is_table_taken: bool,
}

/// The messages that remove what stands of ours, by what it is; of duplicates all.
#[derive(Default)]
struct Held {
    links: Vec<LinkFact>,
    rules: BTreeMap<Rule, Vec<Vec<u8>>>,
    /// Of a form that is never wanted.
    odd: Vec<(u32, Vec<u8>)>,
    routes: BTreeMap<Route, Vec<Vec<u8>>>,
    odd_routes: Vec<Vec<u8>>,
    taken: BTreeSet<u32>,
    is_table_taken: bool,
}

/// So often what differs is looked for again: the kernel removes the first rule that has all that a message says, which may be a
/// stricter one than was meant.
const ROUNDS: usize = 4;

/// Brings the kernel to what is wanted. Where anything is wanted and somebody else uses a preference of ours, nothing is added. `is_all`:
/// what is not wanted goes; else it stays.
///
/// # Errors
/// The first thing that could not be read or written; what was written before it stands.
pub async fn apply(wanted: &Entries, is_all: bool) -> Result<Steered, SteeringError> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(SteeringError::Connect)?;
    let task = tokio::spawn(connection);
    let whole = tokio::time::timeout(DEADLINE, bring(&handle, wanted, is_all)).await;
    task.abort();
    whole.unwrap_or(Err(SteeringError::Deadline))
}

/// Where rules and routes of ours lead to.
///
/// # Errors
/// When the kernel cannot be read.
pub async fn destinations() -> Result<BTreeSet<Prefix>, SteeringError> {
    let read = tokio::task::spawn_blocking(read);
    let held = read.await.map_err(|_| SteeringError::Thread)??;
    let of_rules = held.rules.keys().map(|rule| rule.to);
    let of_routes = held.routes.keys().map(|route| route.to);
    Ok(of_rules.chain(of_routes).collect())
}

async fn bring(handle: &Handle, wanted: &Entries, is_all: bool) -> Result<Steered, SteeringError> {
    let mut steered = Steered::default();
    for _ in 0..ROUNDS {
        let held = tokio::task::spawn_blocking(read);
        let held = held.await.map_err(|_| SteeringError::Thread)??;
        let before = steered.done.len();
        // A route of ours in the place of another one goes before that comes; main leads to pods meanwhile.
        if is_all {
            routes_go(wanted, &held, &mut steered).await?;
        }
        add(handle, wanted, &held, &mut steered).await?;
        if is_all {
            rules_go(wanted, &held, &mut steered).await?;
        }
        (steered.taken, steered.is_table_taken) = (held.taken, held.is_table_taken);
        if steered.done.len() == before {
            break;
        }
    }
    Ok(steered)
}

/// Routes, then rules in the order of their preferences.
async fn add(
    handle: &Handle,
    wanted: &Entries,
    held: &Held,
    steered: &mut Steered,
) -> Result<(), SteeringError> {
    if !held.taken.is_empty() || held.is_table_taken {
        return Ok(());
    }
    for route in &wanted.routes {
        if !held.routes.contains_key(route) {
            add_route(handle, &held.links, route).await?;
            steered.done.push(format!("wrote the {route}"));
        }
    }
    for rule in &wanted.rules {
        if !held.rules.contains_key(rule) {
            add_rule(handle, rule).await?;
            steered.done.push(format!("wrote the {rule}"));
        }
    }
    Ok(())
}

/// Rules that are not wanted or stand twice, the last first.
async fn rules_go(
    wanted: &Entries,
    held: &Held,
    steered: &mut Steered,
) -> Result<(), SteeringError> {
    for (rule, messages) in held.rules.iter().rev() {
        let stay = usize::from(wanted.rules.contains(rule));
        for payload in messages.iter().skip(stay) {
            remove(NEW_RULE + 1, payload, rule.to_string(), steered).await?;
        }
    }
    for (preference, payload) in &held.odd {
        let entry = format!("rule {preference} that nobody wants");
        remove(NEW_RULE + 1, payload, entry, steered).await?;
    }
    Ok(())
}

/// Routes of the same kind.
async fn routes_go(
    wanted: &Entries,
    held: &Held,
    steered: &mut Steered,
) -> Result<(), SteeringError> {
    for (route, messages) in &held.routes {
        let stay = usize::from(wanted.routes.contains(route));
        for payload in messages.iter().skip(stay) {
            remove(DEL_ROUTE, payload, route.to_string(), steered).await?;
        }
    }
    for payload in &held.odd_routes {
        let entry = "route that nobody wants".to_owned();
        remove(DEL_ROUTE, payload, entry, steered).await?;
    }
    Ok(())
}

/// Reads what stands. Blocking.
fn read() -> Result<Held, DumpError> {
    let mut held = Held {
        links: dump::links()?,
        ..Held::default()
    };
    for family in [AF_INET, AF_INET6] {
        for found in dump::found_rules(family)? {
            held.rule(found);
        }
        for found in dump::table_routes(family, TABLE, ANY_PROTOCOL)? {
            held.route(found);
        }
    }
    Ok(held)
}

impl Held {
    fn rule(&mut self, found: FoundRule) {
        if found.protocol != PROTOCOL {
            if preference::ALL.contains(&found.preference) {
                self.taken.insert(found.preference);
            }
            return;
        }
        match found.rule {
            Some(rule) => self.rules.entry(rule).or_default().push(found.payload),
            None => self.odd.push((found.preference, found.payload)),
        }
    }

    fn route(&mut self, found: TableRoute) {
        if found.protocol != PROTOCOL {
            self.is_table_taken = true;
            return;
        }
        let link = self.links.iter().find(|l| Some(l.index) == found.link);
        let is_metric = |to: Prefix| found.metric == route_metric(to.family(), 0);
        let is_plain =
            found.kind == Some(TableRouteKind::Unicast) && found.to.is_some_and(is_metric);
        match (found.to, found.via, link) {
            (Some(to), Some(via), Some(link)) if is_plain => {
                let route = Route {
                    table: found.table,
                    to,
                    via,
                    device: link.name.clone(),
                };
                self.routes.entry(route).or_default().push(found.payload);
            }
            _ => self.odd_routes.push(found.payload),
        }
    }
}

async fn add_rule(handle: &Handle, rule: &Rule) -> Result<(), SteeringError> {
    let mut add = handle.rule().add().priority(rule.preference);
    let attributes = &mut add.message_mut().attributes;
    attributes.push(RuleAttribute::Protocol(RouteProtocol::from(PROTOCOL)));
    let bits = rule.suppress;
    attributes.extend(bits.map(|bits| RuleAttribute::SuppressPrefixLen(bits.into())));
    let mut add = add.action(RuleAction::ToTable).table_id(rule.table);
    if let Some(device) = &rule.device {
        add = add.input_interface(device.clone());
    }
    let done = match rule.to.network() {
        IpAddr::V4(to) => {
            let mut add = add.v4().destination_prefix(to, rule.to.bits());
            if let Some((IpAddr::V4(from), bits)) = rule.from.map(|p| (p.network(), p.bits())) {
                add = add.source_prefix(from, bits);
            }
            add.execute().await
        }
        IpAddr::V6(to) => {
            let mut add = add.v6().destination_prefix(to, rule.to.bits());
            if let Some((IpAddr::V6(from), bits)) = rule.from.map(|p| (p.network(), p.bits())) {
                add = add.source_prefix(from, bits);
            }
            add.execute().await
        }
    };
    done.map_err(|source| refused(rule.to_string(), source))
}

async fn add_route(
    handle: &Handle,
    links: &[LinkFact],
    route: &Route,
) -> Result<(), SteeringError> {
    let device = &route.device;
    let link = links.iter().find(|link| link.name == *device);
    let link = link.ok_or_else(|| SteeringError::NoDevice {
        device: device.clone(),
    })?;
    let table: TableId = route.table;
    let builder = RouteMessageBuilder::<IpAddr>::new()
        .table_id(table)
        .protocol(RouteProtocol::from(PROTOCOL))
        .destination_prefix(route.to.network(), route.to.bits())
        .map(|builder| builder.output_interface(link.index))
        .and_then(|builder| builder.gateway(route.via));
    // Errors of the builder are about families, which a plan has right.
    let Ok(builder) = builder else { return Ok(()) };
    // Not in anybody's place.
    let add = handle.route().add(builder.build());
    add.execute()
        .await
        .map_err(|source| refused(route.to_string(), source))
}

fn refused(entry: String, source: rtnetlink::Error) -> SteeringError {
    let source = Box::new(source);
    SteeringError::Refused { key: entry, source }
}

/// Sends a dumped message back to have gone what it tells of.
async fn remove(
    kind: u16,
    payload: &[u8],
    entry: String,
    steered: &mut Steered,
) -> Result<(), SteeringError> {
    let payload = payload.to_vec();
    let done = tokio::task::spawn_blocking(move || dump::change(kind, &payload)).await;
    match done.map_err(|_| SteeringError::Thread)? {
        Ok(()) => steered.done.push(format!("removed the {entry}")),
        // Somebody else was faster.
        Err(error) if crate::write::is_gone(&error) => {}
        Err(source) => return Err(SteeringError::Stays { key: entry, source }),
    }
    Ok(())
}
