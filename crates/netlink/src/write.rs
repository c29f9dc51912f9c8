//! What a network of ours needs in the kernel: its port's addresses, our rules, our routes.
//! In: `HostNetwork`. Out: the kernel changed where it differs, and what was changed, in words.
//! Invariant: only the given device, our preference with our table, and our table are touched; a second call changes nothing.
//! Not here: devices themselves (Open vSwitch makes them), BGP's routes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::address::Family;
use model::host::{HostNetwork, HostRoute, LinkFact, LocalRule, ManagementPort};
use model::{InterfaceAddr, Prefix};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};

use crate::dump::{self, DumpError};

/// Route protocol of our routes, the number that OVN-Kubernetes uses for its own.
pub const PROTOCOL: u8 = 85;

/// Why the kernel is not as wanted. All of them are tried again.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The device does not exist (yet).
    #[error("device {device} does not exist")]
    NoDevice {
        /// Its name.
        device: String,
    },
    /// The kernel could not be read.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// No netlink connection.
    #[error("cannot open a netlink connection")]
    Connect(#[source] std::io::Error),
    /// The kernel refused a change.
    #[error("cannot {change}")]
    Refused {
        /// The change.
        change: String,
        /// Why.
        source: Box<rtnetlink::Error>,
    },
    /// The reading thread ended badly.
    #[error("the reading thread ended badly")]
    Thread,
}

struct Standing {
    links: Vec<LinkFact>,
    addresses: Vec<AddressMessage>,
    rules: Vec<RuleMessage>,
    routes: Vec<RouteMessage>,
}

fn read(tables: &BTreeSet<u32>) -> Result<Standing, DumpError> {
    let mut standing = Standing {
        links: dump::links()?,
        addresses: dump::raw_addresses()?,
        rules: Vec::new(),
        routes: Vec::new(),
    };
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        standing.rules.extend(dump::raw_rules(family)?);
        for table in tables {
            standing
                .routes
                .extend(dump::raw_routes(family, Some(*table), 0)?);
        }
    }
    Ok(standing)
}

/// Brings the kernel to what is wanted; returns what was changed.
///
/// # Errors
/// When the device is missing, the kernel cannot be read, or refuses.
pub async fn apply(wanted: &HostNetwork) -> Result<Vec<String>, WriteError> {
    let tables: BTreeSet<u32> = wanted
        .routes
        .iter()
        .map(|r| r.table)
        .chain(wanted.rules.iter().map(|r| r.table))
        .collect();
    let (connection, handle, _) = rtnetlink::new_connection().map_err(WriteError::Connect)?;
    let task = tokio::spawn(connection);
    let mut writer = Writer {
        handle,
        done: Vec::new(),
    };
    let outcome = writer.all(wanted, &tables).await;
    task.abort();
    outcome.map(|()| writer.done)
}

async fn look(tables: &BTreeSet<u32>) -> Result<Standing, WriteError> {
    let tables = tables.clone();
    tokio::task::spawn_blocking(move || read(&tables))
        .await
        .map_err(|_| WriteError::Thread)?
        .map_err(WriteError::Dump)
}

struct Writer {
    handle: Handle,
    done: Vec<String>,
}

impl Writer {
    async fn all(
        &mut self,
        wanted: &HostNetwork,
        tables: &BTreeSet<u32>,
    ) -> Result<(), WriteError> {
        let mut standing = look(tables).await?;
        // The kernel removes more than it is told to: secondary addresses go with their primary, and routes with the
        // last address. So after a change it is read again, and once more what is missing is added.
        for _ in 0..2 {
            let before = self.done.len();
            self.port(&wanted.port, &standing).await?;
            if self.done.len() == before {
                break;
            }
            standing = look(tables).await?;
        }
        self.rules(&wanted.rules, &standing.rules).await?;
        self.routes(wanted, &standing.links, &standing.routes).await
    }

    async fn port(
        &mut self,
        wanted: &ManagementPort,
        standing: &Standing,
    ) -> Result<(), WriteError> {
        let link = standing
            .links
            .iter()
            .find(|l| l.name == wanted.device)
            .ok_or_else(|| WriteError::NoDevice {
                device: wanted.device.clone(),
            })?;
        if !link.up {
            let message = LinkUnspec::new_with_index(link.index).up().build();
            let done = self.handle.link().set(message).execute().await;
            self.note(format!("set {} up", link.name), done)?;
        }
        self.addresses(&wanted.addresses, link, &standing.addresses)
            .await
    }

    fn note(
        &mut self,
        change: String,
        done: Result<(), rtnetlink::Error>,
    ) -> Result<(), WriteError> {
        match done {
            Ok(()) => {
                self.done.push(change);
                Ok(())
            }
            Err(source) => Err(WriteError::Refused {
                change,
                source: Box::new(source),
            }),
        }
    }

    async fn addresses(
        &mut self,
        wanted: &[InterfaceAddr],
        link: &LinkFact,
        standing: &[AddressMessage],
    ) -> Result<(), WriteError> {
        for address in wanted.iter().filter(|a| !link.addresses.contains(a)) {
            let done = self
                .handle
                .address()
                .add(link.index, address.ip, address.len)
                .execute()
                .await;
            self.note(format!("add {address} to {}", link.name), done)?;
        }
        // From the last, as secondaries stand behind their primary.
        for message in standing
            .iter()
            .rev()
            .filter(|m| m.header.index == link.index)
        {
            let Some(address) = dump::interface_addr(message) else {
                continue;
            };
            if wanted.contains(&address) || is_link_local(address.ip) {
                continue;
            }
            let done = self.handle.address().del(message.clone()).execute().await;
            self.note(format!("remove {address} from {}", link.name), done)?;
        }
        Ok(())
    }

    async fn rules(
        &mut self,
        wanted: &[LocalRule],
        standing: &[RuleMessage],
    ) -> Result<(), WriteError> {
        let mut seen: BTreeSet<&LocalRule> = BTreeSet::new();
        let ours = |rule: &LocalRule| {
            wanted
                .iter()
                .any(|w| (w.preference, w.table) == (rule.preference, rule.table))
        };
        for message in standing {
            let Some(rule) = lift_rule(message).filter(ours) else {
                continue;
            };
            let right = wanted
                .iter()
                .find(|w| **w == rule)
                .filter(|_| is_local(message));
            if right.is_some_and(|w| seen.insert(w)) {
                continue;
            }
            let done = self.handle.rule().del(message.clone()).execute().await;
            self.note(format!("remove the rule to {}", rule.to), done)?;
        }
        for rule in wanted.iter().filter(|w| !seen.contains(w)) {
            let add = self
                .handle
                .rule()
                .add()
                .table_id(rule.table)
                .priority(rule.preference)
                .input_interface("lo")
                .action(RuleAction::ToTable);
            let done = match rule.to.network() {
                IpAddr::V4(ip) => {
                    add.v4()
                        .destination_prefix(ip, rule.to.bits())
                        .execute()
                        .await
                }
                IpAddr::V6(ip) => {
                    add.v6()
                        .destination_prefix(ip, rule.to.bits())
                        .execute()
                        .await
                }
            };
            self.note(
                format!("add the rule to {} (table {})", rule.to, rule.table),
                done,
            )?;
        }
        Ok(())
    }

    async fn routes(
        &mut self,
        wanted: &HostNetwork,
        links: &[LinkFact],
        standing: &[RouteMessage],
    ) -> Result<(), WriteError> {
        let mut missing: Vec<&HostRoute> = wanted.routes.iter().collect();
        for message in standing
            .iter()
            .filter(|m| m.header.protocol == RouteProtocol::from(PROTOCOL))
        {
            let found = missing.iter().position(|w| same_route(w, message, links));
            if let Some(at) = found {
                missing.swap_remove(at);
                continue;
            }
            let done = self.handle.route().del(message.clone()).execute().await;
            self.note(
                format!("remove a route of table {}", message.header.table),
                done,
            )?;
        }
        for route in missing {
            let device = links
                .iter()
                .find(|l| l.name == route.device)
                .ok_or_else(|| WriteError::NoDevice {
                    device: route.device.clone(),
                })?;
            let builder = RouteMessageBuilder::<IpAddr>::new()
                .table_id(route.table)
                .protocol(RouteProtocol::from(PROTOCOL))
                .output_interface(device.index)
                .destination_prefix(route.to.network(), route.to.bits())
                .and_then(|b| b.gateway(route.via));
            // Both errors of the builder are about families, which a plan has right.
            let Ok(builder) = builder else { continue };
            let mut message = builder.build();
            message
                .attributes
                .push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(route.mtu)]));
            let done = self.handle.route().add(message).replace().execute().await;
            self.note(
                format!(
                    "add the route to {} via {} (table {})",
                    route.to, route.via, route.table
                ),
                done,
            )?;
        }
        Ok(())
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// A rule's preference, destination and table; `None` for one without destination.
fn lift_rule(message: &RuleMessage) -> Option<LocalRule> {
    let (mut preference, mut table, mut to) = (0, u32::from(message.header.table), None);
    for attribute in &message.attributes {
        if let RuleAttribute::Priority(n) = attribute {
            preference = *n;
        } else if let RuleAttribute::Table(n) = attribute {
            table = *n;
        } else if let RuleAttribute::Destination(ip) = attribute {
            to = Prefix::new(*ip, message.header.dst_len).ok();
        }
    }
    Some(LocalRule {
        preference,
        to: to?,
        table,
    })
}

fn is_local(message: &RuleMessage) -> bool {
    message
        .attributes
        .iter()
        .any(|a| matches!(a, RuleAttribute::Iifname(name) if name == "lo"))
        && message.header.action == RuleAction::ToTable
}

fn same_route(wanted: &HostRoute, message: &RouteMessage, links: &[LinkFact]) -> bool {
    let index = links
        .iter()
        .find(|l| l.name == wanted.device)
        .map(|l| l.index);
    let (mut to, mut via, mut oif, mut mtu) = (None, None, None, None);
    let mut table = u32::from(message.header.table);
    for attribute in &message.attributes {
        if let RouteAttribute::Destination(address) = attribute {
            to = ip_of(address);
        } else if let RouteAttribute::Gateway(address) = attribute {
            via = ip_of(address);
        } else if let RouteAttribute::Oif(n) = attribute {
            oif = Some(*n);
        } else if let RouteAttribute::Table(n) = attribute {
            table = *n;
        } else if let RouteAttribute::Metrics(metrics) = attribute {
            mtu = metrics.iter().find_map(|m| {
                if let RouteMetric::Mtu(n) = m {
                    Some(*n)
                } else {
                    None
                }
            });
        }
    }
    let to = to.and_then(|ip| Prefix::new(ip, message.header.destination_prefix_length).ok());
    let family = if message.header.address_family == AddressFamily::Inet6 {
        Family::V6
    } else {
        Family::V4
    };
    family == wanted.to.family()
        && to == Some(wanted.to)
        && via == Some(wanted.via)
        && oif == index
        && table == wanted.table
        && mtu == Some(wanted.mtu)
}

fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    if let RouteAddress::Inet(ip) = address {
        return Some(IpAddr::V4(*ip));
    }
    if let RouteAddress::Inet6(ip) = address {
        return Some(IpAddr::V6(*ip));
    }
    None
}
