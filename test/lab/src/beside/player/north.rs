//! Rows of OVN_Northbound that the imitation keeps.
//!
//! In: the rows of the handover, those of now, what happened. Out: one transaction. Invariant: a row that has to come back has the
//! name (`_uuid`) that it had; what no rule here names stays as it is. Not here: when it is written.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::look::{Row, entry, kernel_routes, members, rows, word};
use crate::run::tool;
use crate::state::{Lab, text};

const ROUTERS: &str = "Logical_Router";
const STATIC: &str = "Logical_Router_Static_Route";
const POLICIES: &str = "Logical_Router_Policy";
const PORTS: &str = "Logical_Router_Port";
const NAT: &str = "NAT";
const SWITCHES: &str = "Logical_Switch";
const SETS: &str = "Address_Set";
const TABLES: [&str; 7] = [ROUTERS, STATIC, POLICIES, PORTS, NAT, SWITCHES, SETS];
/// Columns that others may have added to a row, beside those that say what it does.
const BESIDES: [&str; 2] = ["external_ids", "options"];
/// What of a route says where it leads, and all of it.
const WAY: [&str; 4] = ["ip_prefix", "nexthop", "output_port", "policy"];
const ROUTE: [&str; 6] = [
    "ip_prefix",
    "nexthop",
    "output_port",
    "policy",
    "external_ids",
    "options",
];
/// Priority of the policies that lead to nodes' own addresses.
const TO_NODE: &str = "1004";

/// What makes OVN-Kubernetes write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// The node's addresses changed, or a RouteAdvertisements came or went.
    Sync,
    /// It started.
    Start,
    /// A route of BGP came or went.
    Import,
}

/// Rows by table.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    node: String,
    rows: BTreeMap<String, Vec<Row>>,
}

/// One change.
#[derive(Debug, Clone, PartialEq)]
enum Change {
    /// These columns of a row.
    Set(&'static str, String, BTreeMap<String, Value>),
    /// A row that a router has in a column.
    Insert(&'static str, Row, Holder),
    /// A router gives a row up, which then is no more.
    Remove(String, Holder),
}

/// A router and its column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Holder(String, &'static str);

impl Kept {
    pub(super) fn read(lab: &Lab, node: &str) -> Result<Self> {
        let all = TABLES.iter().map(|table| {
            let rows = rows(lab, node, table, &[])?;
            Ok(((*table).to_owned(), rows))
        });
        Ok(Self {
            node: node.to_owned(),
            rows: all.collect::<Result<_>>()?,
        })
    }

    /// Writes what OVN-Kubernetes writes then; how much that was.
    pub(super) fn write(&self, lab: &Lab, node: &str, moment: Moment) -> Result<usize> {
        let now = Self::read(lab, node)?;
        let routes = kernel_routes(lab, node)?;
        let routes = routes.iter().map(|(to, _)| to.to_string()).collect();
        let changes = self.plan(&now, moment, &routes);
        transact(lab, node, &changes)?;
        Ok(changes.len())
    }

    /// Has the gateway of the default network lead to another prefix than to this one; how many routes that were.
    pub(super) fn lead(&mut self, from: &str, to: &str) -> usize {
        let name = format!("GR_{}", self.node);
        let mut routers = self.of(ROUTERS).iter();
        let gateway = routers.find(|router| word(router, "name") == name);
        let routes = gateway.map(|gateway| members(gateway, "static_routes"));
        let routes = routes.unwrap_or_default();
        let mut changed = 0;
        for row in self.rows.get_mut(STATIC).into_iter().flatten() {
            let is_of_it = routes.contains(&word(row, "_uuid")) && !is_by_source(row);
            if is_of_it && word(row, "ip_prefix") == from {
                row.insert("ip_prefix".to_owned(), json!(to));
                changed += 1;
            }
        }
        changed
    }

    /// Takes its rows of address translation away.
    pub(super) fn delete_translations(&self, lab: &Lab, node: &str) -> Result<()> {
        let holders = self.holders();
        let rows = self.of(NAT).iter().map(|row| word(row, "_uuid"));
        let changes = rows.filter_map(|uuid| {
            let holder = holders.get(&uuid)?.clone();
            Some(Change::Remove(uuid, holder))
        });
        transact(lab, node, &changes.collect::<Vec<_>>())
    }

    fn of(&self, table: &str) -> &[Row] {
        self.rows.get(table).map_or(&[], Vec::as_slice)
    }

    /// Which router has a row.
    fn holders(&self) -> BTreeMap<String, Holder> {
        let mut all = BTreeMap::new();
        for router in self.of(ROUTERS) {
            for column in ["static_routes", "policies", "nat"] {
                let holder = Holder(word(router, "_uuid"), column);
                let rows = members(router, column).into_iter();
                all.extend(rows.map(|row| (row, holder.clone())));
            }
        }
        all
    }

    /// Routers of networks' gateways.
    fn gateways(&self) -> BTreeSet<String> {
        let all = self.of(ROUTERS).iter();
        let gateways = all.filter(|router| is_gateway(router));
        gateways.map(|router| word(router, "_uuid")).collect()
    }

    fn plan(&self, now: &Self, moment: Moment, kernel: &BTreeSet<String>) -> Vec<Change> {
        let mut changes = Vec::new();
        if moment != Moment::Import {
            self.keep(now, moment, &mut changes);
            self.displace(now, moment, &mut changes);
        }
        if moment != Moment::Sync {
            let holders = now.holders();
            let is_gone = |row: &&Row| {
                let owner = entry(row, "external_ids", "k8s.ovn.org/owner-controller");
                owner.as_deref() == Some("RouteImport") && !kernel.contains(&word(row, "ip_prefix"))
            };
            let gone = now.of(STATIC).iter().filter(is_gone);
            let gone = gone.map(|row| word(row, "_uuid"));
            let gone = gone.filter_map(|uuid| Some((uuid.clone(), holders.get(&uuid)?.clone())));
            changes.extend(gone.map(|(uuid, holder)| Change::Remove(uuid, holder)));
        }
        changes
    }

    /// Its own rows: values that others changed, and rows that others took away.
    fn keep(&self, now: &Self, moment: Moment, changes: &mut Vec<Change>) {
        let (holders, gateways) = (self.holders(), self.gateways());
        for (table, row) in TABLES
            .iter()
            .flat_map(|t| self.of(t).iter().map(move |r| (*t, r)))
        {
            let uuid = word(row, "_uuid");
            let holder = holders.get(&uuid);
            let of_gateway = holder.is_some_and(|holder| gateways.contains(&holder.0));
            let Some(columns) = written(table, row, of_gateway, moment) else {
                continue;
            };
            let stands = now.of(table).iter().find(|now| word(now, "_uuid") == uuid);
            match (stands, holder) {
                (Some(stands), _) => {
                    let differ = columns.into_iter().filter_map(|column| {
                        let value = row.get(column)?;
                        (stands.get(column) != Some(value))
                            .then(|| (column.to_owned(), value.clone()))
                    });
                    let differ: BTreeMap<String, Value> = differ.collect();
                    if !differ.is_empty() {
                        changes.push(Change::Set(table, uuid, differ));
                    }
                }
                (None, Some(holder)) => {
                    changes.push(Change::Insert(table, row.clone(), holder.clone()));
                }
                (None, None) => {}
            }
        }
    }

    /// Others' rows that take the place of its own.
    fn displace(&self, now: &Self, moment: Moment, changes: &mut Vec<Change>) {
        let (holders, gateways) = (now.holders(), self.gateways());
        let own: BTreeSet<String> = self.holders().into_keys().collect();
        let others = |table: &'static str| {
            let all = now.of(table).iter().map(|row| (word(row, "_uuid"), row));
            let holders = &holders;
            let own = &own;
            all.filter(|(uuid, _)| !own.contains(uuid))
                .filter_map(move |(uuid, row)| Some((holders.get(&uuid)?.clone(), uuid, row)))
        };
        for (holder, uuid, row) in others(STATIC) {
            let in_gateway = gateways.contains(&holder.0);
            if self.displaces_route(row, &holder, in_gateway, moment) {
                changes.push(Change::Remove(uuid, holder));
            }
        }
        let to_node = format!("inport == \"rtos-{}\"", self.node);
        for (holder, uuid, row) in others(POLICIES) {
            let priority = row.get("priority").map(Value::to_string);
            let is_to_node = word(row, "match").starts_with(&to_node);
            if priority.as_deref() == Some(TO_NODE) && is_to_node {
                changes.push(Change::Remove(uuid, holder));
            }
        }
        for (holder, uuid, row) in others(NAT) {
            if moment == Moment::Start
                && let Some(of) = self.translation_of(row, &holder)
            {
                let columns = written(NAT, of, true, moment).unwrap_or_default();
                let values = columns
                    .into_iter()
                    .filter_map(|column| Some((column.to_owned(), of.get(column)?.clone())));
                changes.push(Change::Set(NAT, uuid, values.collect()));
            }
        }
    }

    fn displaces_route(
        &self,
        row: &Row,
        holder: &Holder,
        in_gateway: bool,
        moment: Moment,
    ) -> bool {
        let holders = self.holders();
        let of_router = |row: &&Row| holders.get(&word(row, "_uuid")) == Some(holder);
        let mut own = self.of(STATIC).iter().filter(of_router);
        let (to, by_source) = (word(row, "ip_prefix"), is_by_source(row));
        let is_same = |own: &Row| word(own, "ip_prefix") == to && is_by_source(own) == by_source;
        if in_gateway {
            // One of its own is no route that it imported.
            let is_import =
                |own: &Row| entry(own, "external_ids", "k8s.ovn.org/owner-controller").is_some();
            return own.any(|own| is_same(own) && !is_import(own)) || self.is_of_node(&to, holder);
        }
        let is_twin = own.any(is_same);
        is_twin && (by_source || moment == Moment::Start)
    }

    /// Whether a prefix is that of the node's switch, and the router that network's gateway.
    fn is_of_node(&self, to: &str, holder: &Holder) -> bool {
        let mut routers = self.of(ROUTERS).iter();
        let gateway = routers.find(|router| word(router, "_uuid") == holder.0);
        let name = gateway
            .map(|router| word(router, "name"))
            .unwrap_or_default();
        let switch = name.strip_prefix("GR_").unwrap_or_default();
        let port = format!("rtos-{switch}");
        let mut ports = self
            .of(PORTS)
            .iter()
            .filter(|row| word(row, "name") == port);
        ports.any(|row| {
            let networks = members(row, "networks");
            let networks = networks
                .iter()
                .filter_map(|text| text.parse::<ipnet::IpNet>().ok());
            networks
                .into_iter()
                .any(|net| net.trunc().to_string() == to)
        })
    }

    /// Its own row of the network's pods on the same gateway that another one is like.
    fn translation_of(&self, row: &Row, holder: &Holder) -> Option<&Row> {
        let holders = self.holders();
        let mut own = self.of(NAT).iter();
        own.find(|own| {
            let same = ["type", "logical_ip"]
                .iter()
                .all(|c| word(own, c) == word(row, c));
            // Of the join address it may be either of both.
            let is_range = word(own, "logical_ip").contains('/');
            same && is_range && holders.get(&word(own, "_uuid")) == Some(holder)
        })
    }
}

fn is_gateway(router: &Row) -> bool {
    word(router, "name").starts_with("GR_")
}

fn is_by_source(route: &Row) -> bool {
    word(route, "policy") == "src-ip"
}

/// Which columns of a row of its own OVN-Kubernetes writes then; `None` where it does not look at the row.
fn written(table: &str, row: &Row, of_gateway: bool, moment: Moment) -> Option<Vec<&'static str>> {
    let at_start = moment == Moment::Start;
    let columns: &[&'static str] = match table {
        ROUTERS if is_gateway(row) || at_start => &BESIDES,
        SWITCHES if at_start => &["external_ids", "other_config"],
        PORTS if word(row, "name").starts_with("rtoe-") => &["options"],
        STATIC if of_gateway => {
            let is_default = ["0.0.0.0/0", "::/0"].contains(&word(row, "ip_prefix").as_str());
            if is_default && !at_start {
                &WAY
            } else {
                &ROUTE
            }
        }
        STATIC if is_by_source(row) || at_start => &ROUTE,
        POLICIES if row.get("priority").map(Value::to_string).as_deref() == Some(TO_NODE) => {
            &["match", "action", "nexthop", "nexthops"]
        }
        NAT => &[
            "type",
            "external_ip",
            "logical_ip",
            "logical_port",
            "external_mac",
            "external_port_range",
            "allowed_ext_ips",
            "exempted_ext_ips",
            "gateway_port",
            "external_ids",
            "options",
            "match",
            "priority",
        ],
        SETS if entry(row, "external_ids", "k8s.ovn.org/name").as_deref() == Some("node-ips") => {
            &["addresses"]
        }
        _ => return None,
    };
    Some(columns.to_vec())
}

fn transact(lab: &Lab, node: &str, changes: &[Change]) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut all = vec![json!("OVN_Northbound")];
    for change in changes {
        all.extend(operations(change));
    }
    let socket = text(&lab.ovs_dir(node).join("ovnnb_db.sock"));
    let request = Value::Array(all).to_string();
    let answer = tool("ovsdb-client")
        .args(["transact", &format!("unix:{socket}"), &request])
        .run()?;
    let answer: Value = serde_json::from_str(&answer).context("answer of ovsdb-server")?;
    let each = answer.as_array().into_iter().flatten();
    let refused: Vec<String> = each
        .filter(|one| one.get("error").is_some())
        .map(Value::to_string)
        .collect();
    if !refused.is_empty() {
        bail!("{request}: {}", refused.join(", "));
    }
    Ok(())
}

fn operations(change: &Change) -> Vec<Value> {
    let row = |uuid: &str| json!([["_uuid", "==", ["uuid", uuid]]]);
    let mutate = |holder: &Holder, how: &str, uuid: &str| {
        json!({"op": "mutate", "table": ROUTERS, "where": row(&holder.0),
               "mutations": [[holder.1, how, ["set", [["uuid", uuid]]]]]})
    };
    match change {
        Change::Set(table, uuid, values) => {
            vec![json!({"op": "update", "table": table, "where": row(uuid), "row": values})]
        }
        Change::Insert(table, columns, holder) => {
            let uuid = word(columns, "_uuid");
            let columns = columns
                .iter()
                .filter(|(column, _)| !column.starts_with('_'));
            let columns: BTreeMap<&String, &Value> = columns.collect();
            vec![
                json!({"op": "insert", "table": table, "uuid": uuid, "row": columns}),
                mutate(holder, "insert", &uuid),
            ]
        }
        Change::Remove(uuid, holder) => vec![mutate(holder, "delete", uuid)],
    }
}
