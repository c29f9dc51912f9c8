//! The kernel's side of all networks of ours: management ports' addresses, our rules, our routes.
//! In: entries wanted. Out: the kernel changed where it differs, and what was changed, in words.
//! Invariant: what is not ours (`kernel`) is not touched; an entry that the kernel refuses keeps no other from being written; a
//! second call changes nothing.
//! Not here: devices themselves (Open vSwitch makes them), BGP's routes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::diff::Diff;
use model::kernel::{Entries, KernelEntry, KernelKey, LinkFact, PROTOCOL};
use model::{InterfaceAddr, Prefix};
use netlink_packet_route::route::{RouteAttribute, RouteMetric, RouteProtocol};
use netlink_packet_route::rule::RuleAction;
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};

use crate::dump::{self, DumpError};
use crate::kernel::{self, Held, Removal};

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
    /// The kernel refused to write an entry.
    #[error("cannot write the {key}")]
    Refused {
        /// The entry.
        key: KernelKey,
        /// Why.
        source: Box<rtnetlink::Error>,
    },
    /// The kernel refused to remove an entry.
    #[error("cannot remove the {key}")]
    Stays {
        /// The entry.
        key: KernelKey,
        /// Its error code.
        source: std::io::Error,
    },
    /// The reading thread ended badly.
    #[error("the reading thread ended badly")]
    Thread,
}

/// What was done, and what could not be.
#[derive(Debug, Default)]
pub struct Written {
    /// One sentence for each change.
    pub done: Vec<String>,
    /// One for each entry that is not as wanted; all of them are tried again by the next call.
    pub failed: Vec<WriteError>,
}

/// So often what the kernel did beyond what it was asked to is made good: secondary addresses go with their primary, and
/// routes with the last address.
const ROUNDS: usize = 3;

/// Brings the kernel to what is wanted. Entries of ours that are not wanted go: rules and routes only while the wish is
/// `complete`.
///
/// # Errors
/// When the kernel cannot be read at all.
pub async fn apply(wanted: &Entries, complete: bool) -> Result<Written, WriteError> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(WriteError::Connect)?;
    let task = tokio::spawn(connection);
    let mut writer = Writer {
        handle,
        written: Written::default(),
    };
    let outcome = writer.rounds(wanted, complete).await;
    task.abort();
    outcome.map(|()| writer.written)
}

async fn read(wanted: &Entries) -> Result<Held, WriteError> {
    let devices = wanted.keys().filter_map(|key| match key {
        KernelKey::Link { device } | KernelKey::Address { device, .. } => Some(device.clone()),
        KernelKey::Route { .. } | KernelKey::Rule { .. } => None,
    });
    let devices: BTreeSet<String> = devices.collect();
    tokio::task::spawn_blocking(move || kernel::read(&devices))
        .await
        .map_err(|_| WriteError::Thread)?
        .map_err(WriteError::Dump)
}

struct Writer {
    handle: Handle,
    written: Written,
}

impl Writer {
    async fn rounds(&mut self, wanted: &Entries, complete: bool) -> Result<(), WriteError> {
        for _ in 0..ROUNDS {
            let held = read(wanted).await?;
            let mut diff = Diff::between(&held.owned, wanted, PartialEq::eq);
            // A device goes with its port, not here.
            diff.delete.retain(|(removal, key)| {
                removal.is_some() && (complete || wanted.contains_key(key))
            });
            if diff.is_empty() {
                break;
            }
            let before = self.written.done.len();
            self.written.failed.clear();
            self.round(&held.links, diff).await;
            if self.written.done.len() == before {
                break;
            }
        }
        Ok(())
    }

    /// What is wanted first: where one address takes the place of another, the device is never without.
    async fn round(&mut self, links: &[LinkFact], diff: Diff<KernelKey, KernelEntry, Removal>) {
        for (removal, key, entry) in diff.update {
            // A rule has no place of its own to be changed in.
            if matches!(key, KernelKey::Rule { .. }) {
                self.remove(&key, removal).await;
            }
            self.put(links, &key, &entry).await;
        }
        for (key, entry) in diff.create {
            self.put(links, &key, &entry).await;
        }
        for (removal, key) in diff.delete.into_iter().rev() {
            self.remove(&key, removal).await;
        }
    }

    async fn put(&mut self, links: &[LinkFact], key: &KernelKey, entry: &KernelEntry) {
        let done = match (key, entry) {
            (KernelKey::Link { device }, _) => self.up(links, device).await,
            (KernelKey::Address { device, address }, _) => {
                self.address(links, device, *address).await
            }
            (KernelKey::Route { table, to }, KernelEntry::Route { via, device, mtu }) => {
                let device = device.as_deref().unwrap_or_default();
                self.route(links, (*table, *to), (*via, device, *mtu)).await
            }
            (
                KernelKey::Rule {
                    preference,
                    to,
                    table,
                },
                _,
            ) => self.rule(*preference, *to, *table).await,
            // No entry of another kind has a route's key.
            (KernelKey::Route { .. }, _) => return,
        };
        match done {
            Ok(()) => self.written.done.push(format!("wrote the {key}")),
            Err(PutError::NoDevice(device)) => {
                self.written.failed.push(WriteError::NoDevice { device });
            }
            Err(PutError::Refused(source)) => {
                let key = key.clone();
                self.written
                    .failed
                    .push(WriteError::Refused { key, source });
            }
        }
    }

    /// Sends a dumped message back to have gone what it tells of.
    async fn remove(&mut self, key: &KernelKey, removal: Removal) {
        let Some((kind, payload)) = removal else {
            return;
        };
        let done = tokio::task::spawn_blocking(move || dump::change(kind, &payload)).await;
        match done {
            Ok(Ok(())) => self.written.done.push(format!("removed the {key}")),
            // It went with another one.
            Ok(Err(error)) if is_gone(&error) => {}
            Ok(Err(source)) => {
                let key = key.clone();
                self.written.failed.push(WriteError::Stays { key, source });
            }
            Err(_) => self.written.failed.push(WriteError::Thread),
        }
    }

    async fn up(&self, links: &[LinkFact], device: &str) -> Result<(), PutError> {
        let link = find(links, device)?;
        let message = LinkUnspec::new_with_index(link.index).up().build();
        Ok(self.handle.link().set(message).execute().await?)
    }

    async fn address(
        &self,
        links: &[LinkFact],
        device: &str,
        address: InterfaceAddr,
    ) -> Result<(), PutError> {
        let link = find(links, device)?;
        let add = self
            .handle
            .address()
            .add(link.index, address.ip, address.len);
        Ok(add.execute().await?)
    }

    async fn rule(&self, preference: u32, to: Prefix, table: u32) -> Result<(), PutError> {
        let add = self
            .handle
            .rule()
            .add()
            .table_id(table)
            .priority(preference)
            .input_interface("lo")
            .action(RuleAction::ToTable);
        Ok(match to.network() {
            IpAddr::V4(ip) => add.v4().destination_prefix(ip, to.bits()).execute().await,
            IpAddr::V6(ip) => add.v6().destination_prefix(ip, to.bits()).execute().await,
        }?)
    }

    async fn route(
        &self,
        links: &[LinkFact],
        (table, to): (u32, Prefix),
        (via, device, mtu): (Option<IpAddr>, &str, Option<u32>),
    ) -> Result<(), PutError> {
        let device = find(links, device)?;
        let builder = RouteMessageBuilder::<IpAddr>::new()
            .table_id(table)
            .protocol(RouteProtocol::from(PROTOCOL))
            .output_interface(device.index)
            .destination_prefix(to.network(), to.bits())
            .and_then(|builder| match via {
                Some(via) => builder.gateway(via),
                None => Ok(builder),
            });
        // Both errors of the builder are about families, which a plan has right.
        let Ok(builder) = builder else { return Ok(()) };
        let mut message = builder.build();
        let metrics = mtu.map(RouteMetric::Mtu).into_iter().collect();
        message.attributes.push(RouteAttribute::Metrics(metrics));
        Ok(self.handle.route().add(message).replace().execute().await?)
    }
}

/// Why an entry cannot be written.
enum PutError {
    NoDevice(String),
    Refused(Box<rtnetlink::Error>),
}

impl From<rtnetlink::Error> for PutError {
    fn from(error: rtnetlink::Error) -> Self {
        Self::Refused(Box::new(error))
    }
}

fn find<'a>(links: &'a [LinkFact], device: &str) -> Result<&'a LinkFact, PutError> {
    let found = links.iter().find(|link| link.name == device);
    found.ok_or_else(|| PutError::NoDevice(device.to_owned()))
}

/// `ENOENT`, `ESRCH`, `ENODEV` and `EADDRNOTAVAIL`: what the kernel says of rules, routes, devices and addresses that are gone.
fn is_gone(error: &std::io::Error) -> bool {
    const GONE: [i32; 4] = [2, 3, 19, 99];
    error
        .raw_os_error()
        .is_some_and(|code| GONE.contains(&code))
}
