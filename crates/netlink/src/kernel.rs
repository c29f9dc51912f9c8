//! What the kernel holds of ours, decoded: VRF devices, management ports' addresses, our rules, our routes.
//! In: dumps. Out: entries by identity, each with the message that tells of it. Invariant: only wanted devices, our preference
//! with our table or our protocol, and our protocol in our table are ours; rules and routes of whatever network, wanted or not.
//! Not here: what is wanted (`plan_node::kernel`), changes (`write`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::kernel::{
    Entries, KernelEntry, KernelKey, LAST_METRIC, LinkFact, MAIN_METRIC, POD_RULE_PREFERENCE,
    POD_RULE_TABLE, PROTOCOL, RouteTarget, SERVICE_RULE_PREFERENCE, VRF_ALIAS, VRF_RULE_PREFERENCE,
};
use model::route::{MAIN_TABLE, TableId};

use crate::dump::{self, DumpError};
use crate::facts::{Address, Neighbor, Rule, TableRoute, TableRouteKind};
use crate::message::{AF_INET, AF_INET6, DEL_ROUTE, NEW_ADDRESS, NEW_LINK, NEW_NEIGHBOR, NEW_RULE};

/// The message that removes an entry: its type, and its payload. None for what is not ours to remove: a device of Open vSwitch,
/// a VRF device of somebody else.
pub(crate) type Removal = Option<(u16, Vec<u8>)>;

/// What the kernel holds.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) links: Vec<LinkFact>,
    /// Ours, duplicates too, in the order of the dump.
    pub(crate) owned: BTreeMap<KernelKey, Vec<(Removal, KernelEntry)>>,
}

/// Reads it. Of addresses those on wanted management ports are ours: another device may be anybody's, and one of a network that is
/// gone goes with its port. Routes of ours are looked for in main (those with a metric of ours), in the table of host-to-pod routes,
/// and in those of VRFs that are wanted or ours.
///
/// # Errors
/// When a dump did not end well.
pub(crate) fn read(wanted: &Entries) -> Result<Held, DumpError> {
    let mut held = Held {
        links: dump::links()?,
        ..Held::default()
    };
    let (mut devices, mut vrfs) = (BTreeSet::new(), BTreeSet::new());
    for key in wanted.keys() {
        match key {
            KernelKey::Link { device } => drop(devices.insert(device.as_str())),
            KernelKey::Vrf { device } => drop(vrfs.insert(device.as_str())),
            KernelKey::Address { .. }
            | KernelKey::Neighbor { .. }
            | KernelKey::Route { .. }
            | KernelKey::Rule { .. } => {}
        }
    }
    held.devices(&devices);
    let tables = held.vrfs(&vrfs);
    for address in dump::addresses()? {
        held.address(wanted, &devices, address);
    }
    for family in [AF_INET, AF_INET6] {
        for neighbor in dump::neighbors(family)? {
            held.neighbor(wanted, neighbor);
        }
        for rule in dump::rules(family)? {
            held.rule(rule);
        }
        for table in &tables {
            for route in dump::table_routes(family, *table, PROTOCOL)? {
                held.route(route);
            }
        }
    }
    Ok(held)
}

/// Whether a VRF device is ours to remove.
pub(crate) fn is_ours(link: &LinkFact) -> bool {
    link.vrf_table.is_some() && link.alias.starts_with(VRF_ALIAS)
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

    fn devices(&mut self, devices: &BTreeSet<&str>) {
        let wanted = |link: &&LinkFact| devices.contains(link.name.as_str());
        let ours: Vec<LinkFact> = self.links.iter().filter(wanted).cloned().collect();
        for link in ours {
            let master = self.links.iter().find(|l| Some(l.index) == link.master);
            let vrf = master.filter(|master| master.vrf_table.is_some());
            let entry = KernelEntry::Link {
                up: link.up,
                vrf: vrf.map(|vrf| vrf.name.clone()),
            };
            self.put(KernelKey::Link { device: link.name }, None, entry);
        }
    }

    /// Returns the tables in which routes of ours may be.
    fn vrfs(&mut self, wanted: &BTreeSet<&str>) -> BTreeSet<TableId> {
        let mut tables = BTreeSet::from([MAIN_TABLE, POD_RULE_TABLE]);
        for link in self.links.clone() {
            let Some(table) = link.vrf_table else {
                continue;
            };
            let ours = is_ours(&link);
            if ours || wanted.contains(link.name.as_str()) {
                tables.insert(table);
                let removal = ours.then(|| (NEW_LINK + 1, link_header(link.index)));
                let entry = KernelEntry::Vrf { table, up: link.up };
                self.put(KernelKey::Vrf { device: link.name }, removal, entry);
            }
        }
        tables
    }

    /// All of a management port, and those of other devices that are wanted: of these nobody knows whose they were.
    fn address(&mut self, wanted: &Entries, devices: &BTreeSet<&str>, found: Address) {
        let device = self.name(found.link).map(str::to_owned);
        let (Some(device), Some(address)) = (device, found.address) else {
            return;
        };
        let is_ours = devices.contains(device.as_str());
        let key = KernelKey::Address { device, address };
        let prefix_route = found.prefix_route;
        let entry = KernelEntry::Address { prefix_route };
        if is_ours && !is_link_local(address.ip) {
            self.put(key, Some((NEW_ADDRESS + 1, found.payload)), entry);
        } else if wanted.contains_key(&key) {
            self.put(key, None, entry);
        }
    }

    /// Those that are wanted, and those that bear our protocol.
    fn neighbor(&mut self, wanted: &Entries, found: Neighbor) {
        let Some(device) = self.name(found.link).map(str::to_owned) else {
            return;
        };
        let key = KernelKey::Neighbor {
            device,
            ip: found.ip,
        };
        if wanted.contains_key(&key) || found.protocol == PROTOCOL {
            let removal = Some((NEW_NEIGHBOR + 1, found.payload));
            self.put(key, removal, KernelEntry::Neighbor { mac: found.mac });
        }
    }

    fn rule(&mut self, found: Rule) {
        let (preference, table) = (found.preference, found.table);
        let to_pods = table == POD_RULE_TABLE && preference == POD_RULE_PREFERENCE;
        // Others may have rules of these preferences: those of ours bear our protocol.
        let by_protocol = [VRF_RULE_PREFERENCE, SERVICE_RULE_PREFERENCE];
        let is_marked = by_protocol.contains(&preference) && found.protocol == PROTOCOL;
        if !to_pods && !is_marked {
            return;
        }
        if let Some(selector) = found.selector {
            let key = KernelKey::Rule {
                preference,
                selector,
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
        // In main our protocol's number may be somebody else's too: the metric tells ours.
        let metric = match found.kind {
            Some(TableRouteKind::Unreachable) => LAST_METRIC,
            Some(TableRouteKind::Unicast) | None => MAIN_METRIC,
        };
        if found.table == MAIN_TABLE && found.metric != metric {
            return;
        }
        let target = match found.kind {
            None => return,
            Some(TableRouteKind::Unreachable) => RouteTarget::Unreachable,
            Some(TableRouteKind::Unicast) => RouteTarget::Device {
                device: found
                    .link
                    .and_then(|link| self.name(link))
                    .map(str::to_owned),
                via: found.via,
                source: found.source,
                mtu: found.mtu,
            },
        };
        let key = KernelKey::Route {
            table: found.table,
            to,
            metric: found.metric,
        };
        let removal = Some((DEL_ROUTE, found.payload));
        self.put(key, removal, KernelEntry::Route(target));
    }
}

/// `ifinfomsg` that names a link and nothing else (rtnetlink(7)).
fn link_header(index: u32) -> Vec<u8> {
    let mut payload = vec![0; 4];
    payload.extend(index.to_ne_bytes());
    payload.extend([0; 8]);
    payload
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}
