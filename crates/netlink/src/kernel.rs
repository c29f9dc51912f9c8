//! What the kernel holds of ours, decoded: management ports' addresses, our rules, our routes.
//! In: dumps. Out: entries by identity, each with the message that tells of it. Invariant: only wanted devices, our preference
//! with our table, and our protocol in our table are ours; rules and routes of whatever network, wanted or not.
//! Not here: what is wanted (`plan_node::kernel`), changes (`write`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::kernel::{
    KernelEntry, KernelKey, LinkFact, POD_RULE_PREFERENCE, POD_RULE_TABLE, PROTOCOL,
};

use crate::dump::{self, DumpError};
use crate::facts::{Address, Rule, TableRoute};
use crate::message::{AF_INET, AF_INET6, DEL_ROUTE, NEW_ADDRESS, NEW_RULE};

/// The message that removes an entry: its type, and the payload it was dumped with. None for a device: it is Open vSwitch's.
pub(crate) type Removal = Option<(u16, Vec<u8>)>;

/// What the kernel holds.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) links: Vec<LinkFact>,
    /// Ours, duplicates too, in the order of the dump.
    pub(crate) owned: BTreeMap<KernelKey, Vec<(Removal, KernelEntry)>>,
}

/// Reads it. Of addresses only those on `devices` are ours: another device may be anybody's, and one of a network that is gone
/// goes with its port.
///
/// # Errors
/// When a dump did not end well.
pub(crate) fn read(devices: &BTreeSet<String>) -> Result<Held, DumpError> {
    let mut held = Held {
        links: dump::links()?,
        ..Held::default()
    };
    held.links(devices);
    for address in dump::addresses()? {
        held.address(devices, address);
    }
    for family in [AF_INET, AF_INET6] {
        for rule in dump::rules(family)? {
            held.rule(rule);
        }
        for route in dump::table_routes(family, POD_RULE_TABLE)? {
            held.route(route);
        }
    }
    Ok(held)
}

impl Held {
    fn put(&mut self, key: KernelKey, removal: Removal, entry: KernelEntry) {
        self.owned.entry(key).or_default().push((removal, entry));
    }

    /// The name of a link.
    fn name(&self, index: u32) -> Option<&str> {
        let link = self.links.iter().find(|link| link.index == index)?;
        Some(&link.name)
    }

    fn links(&mut self, devices: &BTreeSet<String>) {
        let ours = self.links.iter().filter(|l| devices.contains(&l.name));
        let entries: Vec<(KernelKey, KernelEntry)> = ours
            .map(|link| {
                let device = link.name.clone();
                (
                    KernelKey::Link { device },
                    KernelEntry::Link { up: link.up },
                )
            })
            .collect();
        for (key, entry) in entries {
            self.put(key, None, entry);
        }
    }

    fn address(&mut self, devices: &BTreeSet<String>, found: Address) {
        let device = self.name(found.link).filter(|n| devices.contains(*n));
        let device = device.map(str::to_owned);
        if let (Some(device), Some(address)) = (device, found.address)
            && !is_link_local(address.ip)
        {
            let removal = Some((NEW_ADDRESS + 1, found.payload));
            let key = KernelKey::Address { device, address };
            self.put(key, removal, KernelEntry::Address);
        }
    }

    fn rule(&mut self, found: Rule) {
        let (preference, table) = (found.preference, found.table);
        if (preference, table) != (POD_RULE_PREFERENCE, POD_RULE_TABLE) {
            return;
        }
        if let Some(to) = found.to {
            let key = KernelKey::Rule {
                preference,
                to,
                table,
            };
            let entry = KernelEntry::Rule {
                local: found.is_local,
            };
            self.put(key, Some((NEW_RULE + 1, found.payload)), entry);
        }
    }

    fn route(&mut self, found: TableRoute) {
        let Some(to) = found.to.filter(|_| found.protocol == PROTOCOL) else {
            return;
        };
        let device = found.link.and_then(|link| self.name(link));
        let entry = KernelEntry::Route {
            via: found.via,
            device: device.map(str::to_owned),
            mtu: found.mtu,
        };
        let key = KernelKey::Route {
            table: found.table,
            to,
        };
        self.put(key, Some((DEL_ROUTE, found.payload)), entry);
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}
