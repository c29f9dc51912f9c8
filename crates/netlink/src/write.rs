//! What a network of ours needs in the kernel: its port's addresses, our rules, our routes.
//! In: `HostNetwork`. Out: the kernel changed where it differs, and what was changed, in words.
//! Invariant: only the given device, our preference with our table, and our table are touched; a second call changes nothing.
//! Not here: devices themselves (Open vSwitch makes them), BGP's routes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::InterfaceAddr;
use model::host::{HostNetwork, HostRoute, LinkFact, LocalRule, ManagementPort};
use netlink_packet_route::route::{RouteAttribute, RouteMetric, RouteProtocol};
use netlink_packet_route::rule::RuleAction;
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};

use crate::dump::{self, DumpError};
use crate::facts::{Address, Rule, TableRoute};
use crate::message::{AF_INET, AF_INET6, DEL_ROUTE, NEW_ADDRESS, NEW_RULE};

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
    /// The kernel refused to remove something.
    #[error("cannot {change}")]
    Stays {
        /// The change.
        change: String,
        /// Its error code.
        source: std::io::Error,
    },
    /// The reading thread ended badly.
    #[error("the reading thread ended badly")]
    Thread,
}

struct Standing {
    links: Vec<LinkFact>,
    addresses: Vec<Address>,
    rules: Vec<Rule>,
    routes: Vec<TableRoute>,
}

fn read(tables: &BTreeSet<u32>) -> Result<Standing, DumpError> {
    let mut standing = Standing {
        links: dump::links()?,
        addresses: dump::addresses()?,
        rules: Vec::new(),
        routes: Vec::new(),
    };
    for family in [AF_INET, AF_INET6] {
        standing.rules.extend(dump::rules(family)?);
        for table in tables {
            standing.routes.extend(dump::table_routes(family, *table)?);
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
        // The kernel removes more than it is asked to: secondary addresses go with their primary, and routes with the
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

    /// Sends a dumped message back to have gone what it tells of.
    async fn remove(
        &mut self,
        change: String,
        kind: u16,
        payload: &[u8],
    ) -> Result<(), WriteError> {
        let payload = payload.to_vec();
        let done = tokio::task::spawn_blocking(move || dump::change(kind, &payload))
            .await
            .map_err(|_| WriteError::Thread)?;
        match done {
            Ok(()) => {
                self.done.push(change);
                Ok(())
            }
            Err(source) => Err(WriteError::Stays { change, source }),
        }
    }

    async fn addresses(
        &mut self,
        wanted: &[InterfaceAddr],
        link: &LinkFact,
        standing: &[Address],
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
        for one in standing.iter().rev().filter(|one| one.link == link.index) {
            let Some(address) = one.address else {
                continue;
            };
            if wanted.contains(&address) || is_link_local(address.ip) {
                continue;
            }
            let change = format!("remove {address} from {}", link.name);
            self.remove(change, NEW_ADDRESS + 1, &one.payload).await?;
        }
        Ok(())
    }

    async fn rules(&mut self, wanted: &[LocalRule], standing: &[Rule]) -> Result<(), WriteError> {
        let mut seen: BTreeSet<&LocalRule> = BTreeSet::new();
        for found in standing {
            let ours = |w: &&LocalRule| (w.preference, w.table) == (found.preference, found.table);
            let Some(to) = found.to.filter(|_| wanted.iter().any(|w| ours(&w))) else {
                continue;
            };
            let right = wanted
                .iter()
                .find(|w| ours(w) && w.to == to && found.is_local);
            if right.is_some_and(|w| seen.insert(w)) {
                continue;
            }
            let change = format!("remove the rule to {to}");
            self.remove(change, NEW_RULE + 1, &found.payload).await?;
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
        standing: &[TableRoute],
    ) -> Result<(), WriteError> {
        let mut missing: Vec<&HostRoute> = wanted.routes.iter().collect();
        for found in standing.iter().filter(|route| route.protocol == PROTOCOL) {
            if let Some(at) = missing.iter().position(|w| same_route(w, found, links)) {
                missing.swap_remove(at);
                continue;
            }
            let change = format!("remove a route of table {}", found.table);
            self.remove(change, DEL_ROUTE, &found.payload).await?;
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

fn same_route(wanted: &HostRoute, found: &TableRoute, links: &[LinkFact]) -> bool {
    let link = links.iter().find(|l| l.name == wanted.device);
    found.to == Some(wanted.to)
        && found.via == Some(wanted.via)
        && found.link == link.map(|l| l.index)
        && found.table == wanted.table
        && found.mtu == Some(wanted.mtu)
}
