//! OVN_Southbound: the chassis of other nodes, to which ovn-controller makes tunnels, and where ports of other nodes are.
//! In: a replica, the nodes that should be there. Out: one transaction, or one without operations.
//! Invariant: rows without our owner marker are never changed or deleted, the own chassis least of all; a chassis that changes is
//! made anew in the same transaction.
//! Not here: which nodes (`plan_node::south`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::names::NetworkName;
use model::nb::OWNER;
use model::sb::{RemoteChassis, RemoteChassisByName};
use ovsdb::{
    AccessError, Condition, Datum, MonitorTable, Operation, Record, Replica, Row, Transaction,
    Until, Uuid, random_uuid,
};

/// Name of the database.
pub const DATABASE: &str = "OVN_Southbound";

/// What to follow.
#[must_use]
pub fn monitor() -> Vec<MonitorTable> {
    vec![
        MonitorTable::new(
            "Chassis",
            &["name", "hostname", "encaps", "external_ids", "other_config"],
        ),
        MonitorTable::new("Encap", &["type", "ip"]),
        MonitorTable::new("Port_Binding", &["type", "chassis", "requested_chassis"]),
    ]
}

/// A Chassis row of ours.
struct Held {
    id: Uuid,
    /// `None` where it is not as we write such rows.
    chassis: Option<RemoteChassis>,
}

/// What a transaction does, and what it cannot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Chassis that it makes.
    pub made: usize,
    /// Chassis that it deletes.
    pub deleted: usize,
    /// Ports of other nodes that it binds.
    pub bound: usize,
    /// Nodes that are left out, and why; one sentence each.
    pub refused: Vec<String>,
}

impl Counts {
    /// Whether nothing is to be written.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        (self.made, self.deleted, self.bound) == (0, 0, 0)
    }
}

/// The transaction after which the other nodes are these. A name that somebody else's row has is left to that one. A port of
/// another node is where its `requested-chassis` says: northd sees to that itself in later versions than 23.03.
///
/// # Errors
/// When a table is not followed or a column holds what it cannot.
pub fn transaction(
    replica: &Replica,
    wanted: &RemoteChassisByName,
) -> Result<(Transaction, Counts), AccessError> {
    let Standing {
        ours,
        others,
        taken,
    } = held(replica)?;
    let (wanted, refused) = possible(wanted, &ours, &others, taken);
    let mut transaction = Transaction::new(DATABASE);
    let mut counts = Counts {
        refused,
        ..Counts::default()
    };
    let stays = |name: &str, held: &Held| held.chassis.as_ref() == wanted.get(name).copied();
    for (name, held) in &ours {
        // Twins of one name cannot be: the column is an index.
        if !stays(name, held) || held.chassis.is_none() {
            transaction = transaction.delete("Chassis", vec![Condition::uuid(held.id)]);
            counts.deleted += 1;
        }
    }
    for (name, chassis) in &wanted {
        let is_there = ours.get(*name).is_some_and(|held| stays(name, held));
        if !is_there {
            transaction = make(transaction, name, chassis);
            counts.made += 1;
        }
    }
    let staying = ours.iter().filter(|(name, held)| stays(name, held));
    let staying: BTreeSet<Uuid> = staying.map(|(_, held)| held.id).collect();
    for (id, record) in replica.table("Port_Binding")? {
        let at = |column: &str| record.get::<Vec<Uuid>>(column);
        let (now, requested) = (at("chassis")?, at("requested_chassis")?);
        let [chassis] = requested.as_slice() else {
            continue;
        };
        let is_remote = record.get::<String>("type")? == "remote";
        if is_remote && now != requested && staying.contains(chassis) {
            let row = Row::new().with("chassis", *chassis);
            transaction = transaction.update("Port_Binding", vec![Condition::uuid(*id)], row);
            counts.bound += 1;
        }
    }
    if !counts.is_nothing() {
        transaction = transaction.comment("noverlay node-agent chassis of other nodes");
    }
    Ok((transaction, counts))
}

/// Those whose rows can stand beside the others': the server takes each name, and each end of a tunnel, once, and a transaction
/// with one too many fails whole.
fn possible<'a>(
    wanted: &'a RemoteChassisByName,
    ours: &BTreeMap<String, Held>,
    others: &BTreeSet<String>,
    mut taken: BTreeMap<IpAddr, String>,
) -> (BTreeMap<&'a str, &'a RemoteChassis>, Vec<String>) {
    let (mut possible, mut refused) = (BTreeMap::new(), Vec::new());
    let stands = |name: &String, chassis: &RemoteChassis| {
        ours.get(name).and_then(|held| held.chassis.as_ref()) == Some(chassis)
    };
    // What stands comes first: whoever comes with an address that is another's does not cut that one off.
    let (first, then): (Vec<_>, Vec<_>) = wanted.iter().partition(|(n, c)| stands(n, c));
    for (name, chassis) in first.into_iter().chain(then) {
        let host = &chassis.hostname;
        if chassis.encap_ips.is_empty() {
            refused.push(format!(
                "no tunnels to node {host}: none ends there; allowed: one address or more"
            ));
            continue;
        }
        let used = chassis.encap_ips.iter().find_map(|ip| {
            let by = taken.get(ip)?;
            Some(format!(
                "no tunnels to node {host}: {ip} ends those to chassis {by} too; allowed: an address of its own"
            ))
        });
        if others.contains(name) {
            refused.push(format!(
                "no tunnels to node {host}: there is a chassis {name} that noverlay has not made: this node's own, or another writer's; allowed: a system-id of its own, and no other writer of remote chassis"
            ));
        } else if let Some(used) = used {
            refused.push(used);
        } else {
            taken.extend(chassis.encap_ips.iter().map(|ip| (*ip, name.clone())));
            possible.insert(name.as_str(), chassis);
        }
    }
    (possible, refused)
}

/// What stands.
#[derive(Default)]
struct Standing {
    /// Rows of ours by name.
    ours: BTreeMap<String, Held>,
    /// Names of others' rows.
    others: BTreeSet<String>,
    /// Where tunnels to those end.
    taken: BTreeMap<IpAddr, String>,
}

fn held(replica: &Replica) -> Result<Standing, AccessError> {
    let encaps = replica.table("Encap")?;
    let mut standing = Standing::default();
    for (id, record) in replica.table("Chassis")? {
        let name = record.get::<String>("name")?;
        let ids = record.get::<BTreeMap<String, String>>("external_ids")?;
        if ids.contains_key(OWNER) {
            let chassis = decode(record, encaps)?;
            standing.ours.insert(name, Held { id: *id, chassis });
        } else {
            for encap in record.get::<Vec<Uuid>>("encaps")? {
                let ip = encaps.get(&encap).map(|row| row.get::<String>("ip"));
                let ip = ip.transpose()?.and_then(|ip| ip.parse().ok());
                standing.taken.extend(ip.map(|ip| (ip, name.clone())));
            }
            standing.others.insert(name);
        }
    }
    Ok(standing)
}

fn decode(
    record: &Record,
    encaps: &BTreeMap<Uuid, Record>,
) -> Result<Option<RemoteChassis>, AccessError> {
    let config = record.get::<BTreeMap<String, String>>("other_config")?;
    let mut encap_ips = BTreeSet::new();
    for id in record.get::<Vec<Uuid>>("encaps")? {
        let encap = encaps.get(&id);
        let kind = encap.map(|encap| encap.get::<String>("type")).transpose()?;
        let ip = encap.map(|encap| encap.get::<String>("ip")).transpose()?;
        match (kind.as_deref(), ip.and_then(|ip| ip.parse::<IpAddr>().ok())) {
            (Some("geneve"), Some(ip)) => drop(encap_ips.insert(ip)),
            _ => return Ok(None),
        }
    }
    let is_remote = config.get("is-remote").is_some_and(|word| word == "true");
    Ok(is_remote.then_some(RemoteChassis {
        hostname: record.get::<String>("hostname")?.into(),
        encap_ips,
    }))
}

fn make(mut transaction: Transaction, name: &str, chassis: &RemoteChassis) -> Transaction {
    // A replica that lags behind must not lead to an index that breaks.
    transaction = transaction.push(Operation::Wait {
        table: "Chassis".into(),
        conditions: vec![Condition::equal("name", name)],
        columns: vec!["name".into()],
        until: Until::Equal,
        rows: Vec::new(),
        timeout: 0,
    });
    let mut encaps = Vec::new();
    for ip in &chassis.encap_ips {
        let id = random_uuid();
        encaps.push(id);
        let row = Row::new()
            .with("chassis_name", name)
            .with("type", "geneve")
            .with("ip", ip.to_string())
            .with("options", Datum::map([("csum", "true")]));
        transaction = transaction.insert("Encap", id, row);
    }
    let owner = NetworkName::default_network();
    let row = Row::new()
        .with("name", name)
        .with("hostname", chassis.hostname.as_str())
        .with("encaps", Datum::set(encaps))
        .with("external_ids", Datum::map([(OWNER, owner.as_str())]))
        .with("other_config", Datum::map([("is-remote", "true")]));
    transaction.insert("Chassis", random_uuid(), row)
}
