//! The kernel's side of all networks of ours: VRF devices, management ports' addresses, our rules, our routes.
//! In: entries wanted. Out: the kernel changed where it differs, and what was changed, in words.
//! Invariant: what is not ours (`kernel`) is not touched; an entry that the kernel refuses keeps no other from being written; a
//! second call changes nothing.
//! Not here: management ports themselves (Open vSwitch makes them), BGP's routes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use model::diff::Diff;
use model::kernel::{
    Entries, KernelEntry, KernelKey, LinkFact, POD_RULE_PREFERENCE, PROTOCOL, RouteTarget,
    RuleSelector, VRF_ALIAS,
};
use model::names::TRIED_VRF;
use model::route::TableId;
use model::{Family, InterfaceAddr, Mac, Prefix};
use netlink_packet_route::address::{AddressAttribute, AddressFlags};
use netlink_packet_route::link::LinkAttribute;
use netlink_packet_route::neighbour::NeighbourAttribute;
use netlink_packet_route::route::{
    RouteAttribute, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute};
use rtnetlink::{Handle, LinkUnspec, LinkVrf, RouteMessageBuilder};

use crate::dump::{self, DumpError};
use crate::kernel::{self, Held, Removal};

/// Why the kernel is not as wanted, `K` being what names an entry. All of them are tried again.
#[derive(Debug, thiserror::Error)]
pub enum WriteError<K = KernelKey> {
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
        key: K,
        /// Why.
        source: Box<rtnetlink::Error>,
    },
    /// The kernel refused to remove an entry.
    #[error("cannot remove the {key}")]
    Stays {
        /// The entry.
        key: K,
        /// Its error code.
        source: std::io::Error,
    },
    /// The reading thread ended badly.
    #[error("the reading thread ended badly")]
    Thread,
    /// An answer was lost, or there is more to do than can be done in this time.
    #[error("the kernel was not as wanted after {DEADLINE:?}")]
    Deadline,
}

/// What was done, and what could not be.
#[derive(Debug, Default)]
pub struct Written {
    /// One sentence for each change.
    pub done: Vec<String>,
    /// One for each entry that is not as wanted; all of them are tried again by the next call.
    pub failed: Vec<WriteError>,
    /// Routes in VRFs of somebody else in whose places routes of theirs stand: those stay.
    pub kept: BTreeSet<KernelKey>,
}

/// Table of a device that is made only to see whether it can be.
const TRIED_TABLE: TableId = TableId::MAX - 1;
/// How long one call may take; what is done by then is done.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
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
        outside: BTreeSet::new(),
        absent: BTreeSet::new(),
    };
    let rounds = tokio::time::timeout(DEADLINE, writer.rounds(wanted, complete));
    let outcome = rounds.await.unwrap_or(Err(WriteError::Deadline));
    task.abort();
    outcome.map(|()| writer.written)
}

/// Whether the kernel makes VRF devices: one that no network has is made, and goes again at once.
///
/// # Errors
/// Why it does not.
pub async fn try_vrf() -> Result<(), WriteError> {
    let (connection, handle, _) = rtnetlink::new_connection().map_err(WriteError::Connect)?;
    let task = tokio::spawn(connection);
    let refused = |source| WriteError::Refused {
        key: KernelKey::Vrf {
            device: TRIED_VRF.to_owned(),
        },
        source: Box::new(source),
    };
    let tried = async {
        let message = LinkVrf::new(TRIED_VRF, TRIED_TABLE).build();
        match handle.link().add(message).execute().await {
            Ok(()) => {}
            // Left by a process that ended in between.
            Err(error) if is_taken(&error) => {}
            Err(error) => return Err(error),
        }
        let name = LinkUnspec::new_with_name(TRIED_VRF).build();
        handle.link().del_with_message(name).execute().await
    };
    let outcome = tokio::time::timeout(DEADLINE, tried).await;
    task.abort();
    outcome.map_err(|_| WriteError::Deadline)?.map_err(refused)
}

async fn read(wanted: &Entries) -> Result<Held, WriteError> {
    let wanted = wanted.clone();
    tokio::task::spawn_blocking(move || kernel::read(&wanted))
        .await
        .map_err(|_| WriteError::Thread)?
        .map_err(WriteError::Dump)
}

struct Writer {
    handle: Handle,
    written: Written,
    /// Devices that are not in their VRF, and tables whose VRF is not there: nothing is put there, or main would have it.
    outside: BTreeSet<String>,
    absent: BTreeSet<TableId>,
}

impl Writer {
    async fn rounds(&mut self, wanted: &Entries, complete: bool) -> Result<(), WriteError> {
        for _ in 0..ROUNDS {
            let held = read(wanted).await?;
            self.written.failed.clear();
            self.written.kept.clear();
            let mut diff = Diff::between(&held.owned, wanted, PartialEq::eq);
            // A device goes with its port, not here.
            diff.delete.retain(|(removal, key)| {
                removal.is_some() && (complete || wanted.contains_key(key))
            });
            if diff.is_empty() {
                break;
            }
            let before = self.written.done.len();
            self.outside.clear();
            self.absent.clear();
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
            // What has no place of its own to be changed in goes first.
            let exchanged = match (&key, &entry) {
                (KernelKey::Rule { .. } | KernelKey::Address { .. }, _) => true,
                (KernelKey::Vrf { device }, KernelEntry::Vrf { table, .. }) => {
                    find(links, device).is_ok_and(|link| link.vrf_table != Some(*table))
                }
                _ => false,
            };
            if exchanged {
                self.remove(&key, removal).await;
            }
            self.put(links, &key, &entry, !exchanged).await;
        }
        for (key, entry) in diff.create {
            self.put(links, &key, &entry, false).await;
        }
        for (removal, key) in diff.delete.into_iter().rev() {
            self.remove(&key, removal).await;
        }
    }

    /// Whether an entry hangs on a VRF that could not be made.
    fn is_without_vrf(&self, key: &KernelKey) -> bool {
        match key {
            KernelKey::Vrf { .. } | KernelKey::Link { .. } => false,
            KernelKey::Address { device, .. } | KernelKey::Neighbor { device, .. } => {
                self.outside.contains(device)
            }
            KernelKey::Route { table, .. } | KernelKey::Rule { table, .. } => {
                self.absent.contains(table)
            }
        }
    }

    /// Remembers what hangs on an entry that could not be written.
    fn note_failure(&mut self, key: &KernelKey, entry: &KernelEntry) {
        match (key, entry) {
            (KernelKey::Vrf { .. }, KernelEntry::Vrf { table, .. }) => {
                self.absent.insert(*table);
            }
            (KernelKey::Link { device }, KernelEntry::Link { vrf: Some(_), .. }) => {
                self.outside.insert(device.clone());
            }
            _ => {}
        }
    }

    /// Writes an entry; `stands`: one of ours with its key does.
    async fn put(
        &mut self,
        links: &[LinkFact],
        key: &KernelKey,
        entry: &KernelEntry,
        stands: bool,
    ) {
        if self.is_without_vrf(key) {
            return;
        }
        let done = match (key, entry) {
            (KernelKey::Vrf { device }, KernelEntry::Vrf { table, .. }) => {
                self.vrf(links, device, *table).await
            }
            (KernelKey::Link { device }, KernelEntry::Link { vrf, .. }) => {
                self.link(links, device, vrf.as_deref()).await
            }
            (KernelKey::Address { device, address }, KernelEntry::Address { prefix_route }) => {
                self.address(links, device, *address, *prefix_route).await
            }
            (KernelKey::Neighbor { device, ip }, KernelEntry::Neighbor { mac }) => {
                self.neighbor(links, device, *ip, *mac).await
            }
            (KernelKey::Route { table, to, metric }, KernelEntry::Route(target)) => {
                let place = (*table, *to, *metric);
                match self.route(links, place, target, stands).await {
                    Err(PutError::Refused(error)) if is_taken(&error) => {
                        self.written.kept.insert(key.clone());
                        return;
                    }
                    done => done,
                }
            }
            (
                KernelKey::Rule {
                    preference,
                    selector,
                    table,
                },
                KernelEntry::Rule { local },
            ) => self.rule(*preference, *selector, *table, *local).await,
            // An entry of another kind than its key's is in no plan.
            _ => return,
        };
        if done.is_err() {
            self.note_failure(key, entry);
        }
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

    /// Makes the device, down; its alias comes together with `up`, so that one that stands up without an alias is somebody
    /// else's.
    async fn vrf(&self, links: &[LinkFact], device: &str, table: TableId) -> Result<(), PutError> {
        let existing = links.iter().find(|link| link.name == device);
        let index = match existing {
            Some(link) if link.vrf_table == Some(table) => link.index,
            Some(_) | None => {
                let message = LinkVrf::new(device, table).build();
                self.handle.link().add(message).execute().await?;
                self.index(device).await?
            }
        };
        let message = LinkUnspec::new_with_index(index).up();
        let message = if existing.is_none_or(|link| is_half_made(links, link)) {
            let alias = LinkAttribute::IfAlias(format!("{VRF_ALIAS}{device}"));
            message.append_extra_attribute(alias)
        } else {
            message
        };
        Ok(self.handle.link().set(message.build()).execute().await?)
    }

    /// Up, and in the VRF or in none.
    async fn link(
        &self,
        links: &[LinkFact],
        device: &str,
        vrf: Option<&str>,
    ) -> Result<(), PutError> {
        let link = find(links, device)?;
        let master = match vrf {
            None => 0,
            // It may have been made a moment ago.
            Some(vrf) => self.index(vrf).await?,
        };
        let message = LinkUnspec::new_with_index(link.index);
        let message = if link.master.unwrap_or(0) == master {
            message
        } else {
            message.controller(master)
        };
        Ok(self
            .handle
            .link()
            .set(message.up().build())
            .execute()
            .await?)
    }

    /// Index of a device as it is now.
    async fn index(&self, device: &str) -> Result<u32, PutError> {
        let name = device.to_owned();
        let links = tokio::task::spawn_blocking(dump::links).await;
        let links = links.ok().and_then(Result::ok).unwrap_or_default();
        let found = links.iter().find(|link| link.name == name);
        let found = found.ok_or(PutError::NoDevice(name.clone()))?;
        Ok(found.index)
    }

    async fn address(
        &self,
        links: &[LinkFact],
        device: &str,
        address: InterfaceAddr,
        prefix_route: bool,
    ) -> Result<(), PutError> {
        let link = find(links, device)?;
        let mut add = self
            .handle
            .address()
            .add(link.index, address.ip, address.len);
        let mut flags = AddressFlags::empty();
        if !prefix_route {
            flags |= AddressFlags::Noprefixroute;
        }
        // Every node has the same one towards OVN; those of management ports the plan gives out once.
        if address.ip.is_ipv6() {
            flags |= AddressFlags::Nodad;
        }
        if !flags.is_empty() {
            let flags = AddressAttribute::Flags(flags);
            add.message_mut().attributes.push(flags);
        }
        Ok(add.execute().await?)
    }

    /// Permanent, whatever it was before.
    async fn neighbor(
        &self,
        links: &[LinkFact],
        device: &str,
        ip: IpAddr,
        mac: Mac,
    ) -> Result<(), PutError> {
        let link = find(links, device)?;
        let add = self.handle.neighbours().add(link.index, ip);
        let mut add = add.link_layer_address(&mac.0).replace();
        let protocol = NeighbourAttribute::Protocol(RouteProtocol::from(PROTOCOL));
        add.message_mut().attributes.push(protocol);
        Ok(add.execute().await?)
    }

    async fn rule(
        &self,
        preference: u32,
        selector: RuleSelector,
        table: TableId,
        local: bool,
    ) -> Result<(), PutError> {
        let mut add = self
            .handle
            .rule()
            .add()
            .table_id(table)
            .priority(preference)
            .action(RuleAction::ToTable);
        // Rule 31 is told by its table, as OVN-Kubernetes' own.
        if preference != POD_RULE_PREFERENCE {
            let protocol = RuleAttribute::Protocol(RouteProtocol::from(PROTOCOL));
            add.message_mut().attributes.push(protocol);
        }
        if local {
            add = add.input_interface("lo");
        }
        Ok(match selector {
            RuleSelector::To(to) => match to.network() {
                IpAddr::V4(ip) => add.v4().destination_prefix(ip, to.bits()).execute().await,
                IpAddr::V6(ip) => add.v6().destination_prefix(ip, to.bits()).execute().await,
            },
            RuleSelector::Mark(Family::V4, mark) => add.fw_mark(mark).v4().execute().await,
            RuleSelector::Mark(Family::V6, mark) => add.fw_mark(mark).v6().execute().await,
        }?)
    }

    async fn route(
        &self,
        links: &[LinkFact],
        (table, to, metric): (TableId, Prefix, u32),
        target: &RouteTarget,
        stands: bool,
    ) -> Result<(), PutError> {
        let mut builder = RouteMessageBuilder::<IpAddr>::new()
            .table_id(table)
            .protocol(RouteProtocol::from(PROTOCOL));
        if metric > 0 {
            builder = builder.priority(metric);
        }
        let builder = builder.destination_prefix(to.network(), to.bits());
        let (builder, metrics) = match target {
            RouteTarget::Unreachable => (builder.map(|b| b.kind(RouteType::Unreachable)), None),
            RouteTarget::Device {
                device,
                via,
                source,
                mtu,
            } => {
                let device = find(links, device.as_deref().unwrap_or_default())?;
                let builder = builder.map(|b| b.output_interface(device.index));
                let builder = builder.and_then(|b| match via {
                    Some(via) => b.gateway(*via),
                    None => Ok(b.scope(RouteScope::Link)),
                });
                let builder = builder.and_then(|b| match source {
                    Some(source) => b.pref_source(*source),
                    None => Ok(b),
                });
                (builder, *mtu)
            }
        };
        // Errors of the builder are about families, which a plan has right.
        let Ok(builder) = builder else { return Ok(()) };
        let mut message = builder.build();
        if let Some(mtu) = metrics {
            let metrics = vec![RouteMetric::Mtu(mtu)];
            message.attributes.push(RouteAttribute::Metrics(metrics));
        }
        let add = self.handle.route().add(message);
        // What an administrator put into a VRF of his own is not replaced.
        let is_shared = links.iter().any(|link| {
            link.vrf_table == Some(table) && !kernel::is_ours(link) && !is_half_made(links, link)
        });
        let add = if stands || !is_shared {
            add.replace()
        } else {
            add
        };
        Ok(add.execute().await?)
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

/// Whether a VRF device may be one of ours whose alias did not come yet: an administrator's is up, or has ports or an alias.
fn is_half_made(links: &[LinkFact], vrf: &LinkFact) -> bool {
    let mut ports = links.iter().filter(|link| link.master == Some(vrf.index));
    !vrf.up && vrf.alias.is_empty() && ports.next().is_none()
}

/// Whether something of that name or in that place stands already (`EEXIST`).
#[must_use]
pub fn is_taken(error: &rtnetlink::Error) -> bool {
    const EXISTS: i32 = 17;
    matches!(error, rtnetlink::Error::NetlinkError(message) if message.raw_code() == -EXISTS)
}

/// `ENOENT`, `ESRCH`, `ENODEV` and `EADDRNOTAVAIL`: what the kernel says of rules, routes, devices and addresses that are gone.
pub(crate) fn is_gone(error: &std::io::Error) -> bool {
    const GONE: [i32; 4] = [2, 3, 19, 99];
    error
        .raw_os_error()
        .is_some_and(|code| GONE.contains(&code))
}
