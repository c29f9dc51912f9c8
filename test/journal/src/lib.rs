//! Every state that a node's Northbound database has ever been in, transaction by transaction, and whether one of them has pods of a
//! network without an overlay translated on the way to each other.
//!
//! In: its file, which has each transaction (ovsdb(5), ovsdb(7): RFC 7047 notation, with differences of sets and maps where a record
//! says `_is_diff`). Out: for each transaction after which a SNAT row of a router would translate a packet between two pods: which row,
//! which packet, and who made the transaction. Source: ovn-nb(5), table NAT. Invariant: nothing here comes from the product, neither
//! names of rows nor which are wanted.
//! Not here: what changes meanwhile, the host's packet filter (the tests of `netns`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what serves tests fails by panicking"
)]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use serde_json::{Map, Value, json};

type Row = BTreeMap<String, Value>;

/// A replayed file.
#[derive(Debug)]
pub struct Journal {
    schema: Value,
    tables: BTreeMap<String, BTreeMap<String, Row>>,
    /// How many transactions there were.
    pub transactions: usize,
    /// How many of them touched translation.
    pub of_nat: usize,
    /// What was found wrong, one for each transaction after which it was.
    pub wrong: Vec<String>,
}

impl Journal {
    /// Reads the whole file; judged is what packets between `pods`, all of one network, meet after each transaction.
    ///
    /// Panics where it cannot be read, or begins with a snapshot.
    #[must_use]
    pub fn of_file(file: &Path, pods: &[IpAddr]) -> Self {
        Self::replayed(&std::fs::read_to_string(file).unwrap(), pods)
    }

    /// The same of what the file holds.
    ///
    /// Panics where that is no such database, or begins with a snapshot.
    #[must_use]
    pub fn replayed(text: &str, pods: &[IpAddr]) -> Self {
        let mut records = text.lines().filter(|line| !line.starts_with("OVSDB "));
        let schema = serde_json::from_str(records.next().expect("a schema")).unwrap();
        let mut journal = Self::of(schema);
        for record in records {
            let record: Value = serde_json::from_str(record).unwrap();
            let comment = record
                .get("_comment")
                .and_then(Value::as_str)
                .unwrap_or_default();
            assert!(
                !comment.contains("compact"),
                "its history is lost: {comment}"
            );
            journal.apply(record.as_object().expect("a record"), pods);
        }
        journal
    }

    fn of(schema: Value) -> Self {
        Self {
            schema,
            tables: BTreeMap::new(),
            transactions: 0,
            of_nat: 0,
            wrong: Vec::new(),
        }
    }

    fn apply(&mut self, record: &Map<String, Value>, pods: &[IpAddr]) {
        let is_diff = record.get("_is_diff") == Some(&json!(true));
        for (table, rows) in record.iter().filter(|(table, _)| !table.starts_with('_')) {
            for (uuid, changed) in rows.as_object().expect("rows") {
                self.change(table, uuid, changed, is_diff);
            }
        }
        self.transactions += 1;
        let touches = |tables: &[&str]| tables.iter().any(|table| record.contains_key(*table));
        self.of_nat += usize::from(touches(&["NAT", "Address_Set"]));
        if !touches(&["NAT", "Address_Set", "Logical_Router"]) {
            return;
        }
        if let Some(found) = self.translates(pods) {
            let comment = record.get("_comment").and_then(Value::as_str);
            let who = comment.unwrap_or("without a comment").replace('\n', " ");
            self.wrong.push(format!("{found}, after: {who}"));
        }
    }

    fn change(&mut self, table: &str, uuid: &str, changed: &Value, is_diff: bool) {
        let rows = self.tables.entry(table.to_owned()).or_default();
        let Some(changed) = changed.as_object() else {
            assert!(changed.is_null(), "{table} {uuid}: {changed}");
            rows.remove(uuid);
            return;
        };
        let is_new = !rows.contains_key(uuid);
        let row = rows.entry(uuid.to_owned()).or_default();
        for (column, value) in changed {
            let kind = self
                .schema
                .pointer(&format!("/tables/{table}/columns/{column}/type"));
            let of_many = kind.and_then(|kind| kind.get("max")).is_some();
            let of_pairs = kind.and_then(|kind| kind.get("value")).is_some();
            let before = row.remove(column).filter(|_| is_diff && !is_new);
            let now = match before {
                Some(before) if of_pairs => mapped(&before, value),
                Some(before) if of_many => toggled(&before, value),
                // Of one value or none the whole is written.
                Some(_) | None => value.clone(),
            };
            row.insert(column.clone(), now);
        }
    }

    /// The first packet between two pods that the rows translate.
    fn translates(&self, pods: &[IpAddr]) -> Option<String> {
        let routers = self.tables.get("Logical_Router")?;
        let nats = self.tables.get("NAT")?;
        for router in routers.values() {
            let name = router.get("name").and_then(Value::as_str).unwrap_or("?");
            for nat in items(router.get("nat")) {
                let nat = nats.get(&nat).expect("a row that the router refers to");
                let kind = nat.get("type").and_then(Value::as_str).unwrap();
                if kind == "dnat" {
                    continue;
                }
                assert!(
                    ["snat", "dnat_and_snat"].contains(&kind),
                    "a row of type {kind}"
                );
                let logical = nat.get("logical_ip").and_then(Value::as_str).unwrap();
                let met =
                    pairs(pods).find(|(from, to)| holds(logical, *from) && self.is_met(nat, *to));
                if let Some((from, to)) = met {
                    return Some(format!("{name} translates {logical}: {from} -> {to}"));
                }
            }
        }
        None
    }

    /// Whether a row translates what is sent to an address.
    fn is_met(&self, nat: &Row, to: IpAddr) -> bool {
        let sets = self.tables.get("Address_Set");
        let set_holds = |row: &Row| {
            let mut all = items(row.get("addresses")).into_iter();
            all.any(|address| holds(&address, to))
        };
        let referred = |column: &str| {
            let uuid = items(nat.get(column)).into_iter().next()?;
            let row = sets
                .and_then(|sets| sets.get(&uuid))
                .expect("a set that a row refers to");
            Some(set_holds(row))
        };
        let matched = nat.get("match").and_then(Value::as_str).unwrap_or_default();
        // `ip4.dst == $set`; any other match counts as met.
        let set_of = |matched: &str| {
            let set = ["ip4.dst == $", "ip6.dst == $"].iter();
            let name = set.copied().find_map(|head| matched.strip_prefix(head))?;
            let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            is_name.then(|| name.to_owned())
        };
        let by_match = set_of(matched).map(|name| {
            let named = |row: &&Row| row.get("name").and_then(Value::as_str) == Some(&name);
            sets.and_then(|sets| sets.values().find(named))
                .is_some_and(set_holds)
        });
        referred("exempted_ext_ips") != Some(true)
            && referred("allowed_ext_ips") != Some(false)
            && by_match != Some(false)
    }
}

/// A subnet as rows and rules write it: `10.128.0.0/24`, or an address alone.
fn holds(prefix: &str, ip: IpAddr) -> bool {
    if let Ok(alone) = prefix.parse::<IpAddr>() {
        return alone == ip;
    }
    let network: ipnet::IpNet = prefix.parse().expect("a subnet or an address");
    network.contains(&ip)
}

/// Pairs of addresses of one family.
fn pairs(pods: &[IpAddr]) -> impl Iterator<Item = (IpAddr, IpAddr)> + '_ {
    let from = pods.iter().copied();
    from.flat_map(move |from| {
        let to = pods.iter().copied();
        let to = to.filter(move |to| *to != from && to.is_ipv4() == from.is_ipv4());
        to.map(move |to| (from, to))
    })
}

/// The items of a value: of a set, or the one that it is.
fn items(value: Option<&Value>) -> Vec<String> {
    let Some(value) = value else {
        return Vec::new();
    };
    // A reference is a pair of a word and the uuid.
    let text = |item: &Value| {
        let item = item.get(1).unwrap_or(item);
        item.as_str().unwrap().to_owned()
    };
    match value.as_array().map(Vec::as_slice) {
        Some([kind, Value::Array(all)]) if kind == "set" => all.iter().map(text).collect(),
        _ => vec![text(value)],
    }
}

/// A set without what it has in common with the difference, and with the rest of that.
fn toggled(before: &Value, difference: &Value) -> Value {
    let list = |value: &Value| -> Vec<Value> {
        match value.as_array().map(Vec::as_slice) {
            Some([kind, Value::Array(all)]) if kind == "set" => all.clone(),
            _ => vec![value.clone()],
        }
    };
    let (before, difference) = (list(before), list(difference));
    let stays = before.iter().filter(|item| !difference.contains(item));
    let comes = difference.iter().filter(|item| !before.contains(item));
    json!(["set", stays.chain(comes).collect::<Vec<_>>()])
}

/// A map without the pairs that the difference has, too, and with the others of those.
fn mapped(before: &Value, difference: &Value) -> Value {
    let list = |value: &Value| {
        value
            .pointer("/1")
            .and_then(Value::as_array)
            .cloned()
            .unwrap()
    };
    let mut pairs = list(before);
    for pair in list(difference) {
        let at = pairs.iter().position(|own| own == &pair);
        pairs.retain(|own| own.get(0) != pair.get(0));
        if at.is_none() {
            pairs.push(pair);
        }
    }
    json!(["map", pairs])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_without_the_exemption_is_found_and_one_with_it_is_not() {
        let uuid = |item: &str| json!(["uuid", item]);
        let set = |max: &str| json!({"type": {"key": "string", "min": 0, "max": max}});
        let one = || json!({"type": {"key": "string", "min": 0}});
        let schema = json!({"tables": {
            "Logical_Router": {"columns": {"name": {"type": "string"}, "nat": set("unlimited")}},
            "NAT": {"columns": {"type": {"type": "string"}, "logical_ip": {"type": "string"},
                "match": {"type": "string"}, "exempted_ext_ips": one(), "allowed_ext_ips": one()}},
            "Address_Set": {"columns": {"name": {"type": "string"}, "addresses": set("unlimited")}},
        }});
        let pods = ["10.128.0.5", "10.128.1.5"].map(|ip| ip.parse().unwrap());
        let mut journal = Journal::of(schema);
        let mut apply = |record: Value| {
            journal.apply(record.as_object().unwrap(), &pods);
            std::mem::take(&mut journal.wrong)
        };
        let whole = json!({
            "Logical_Router": {"r": {"name": "GR_n1", "nat": uuid("n")}},
            "NAT": {"n": {"type": "snat", "logical_ip": "10.128.0.0/24", "exempted_ext_ips": uuid("s")}},
            "Address_Set": {"s": {"name": "a", "addresses": ["set", ["10.128.0.0/16", "172.30.0.1"]]}},
            "_is_diff": true,
        });
        assert!(apply(whole).is_empty());
        let diff = |table: &str, row: &str, columns: Value| json!({table: {row: columns}, "_is_diff": true, "_comment": "by hand"});
        // A difference of a set: what is there goes, what is not comes.
        let toggle = || diff("Address_Set", "s", json!({"addresses": "10.128.0.0/16"}));
        assert_eq!(
            apply(toggle()),
            ["GR_n1 translates 10.128.0.0/24: 10.128.0.5 -> 10.128.1.5, after: by hand"]
        );
        assert!(apply(toggle()).is_empty());
        let nat = |columns: Value| diff("NAT", "n", columns);
        assert_eq!(
            apply(nat(json!({"exempted_ext_ips": ["set", []]}))).len(),
            1
        );
        // Only what is allowed is translated.
        let mut allowed = nat(json!({"allowed_ext_ips": uuid("t")}));
        allowed["Address_Set"] = json!({"t": {"name": "b", "addresses": "172.30.0.2"}});
        assert!(apply(allowed).is_empty());
        let add = diff(
            "Address_Set",
            "t",
            json!({"addresses": ["set", ["10.128.1.5"]]}),
        );
        assert_eq!(apply(add).len(), 1);
        // By a match, which names the set of what is translated; any other is met.
        let by_match = |text: &str| nat(json!({"allowed_ext_ips": ["set", []], "match": text}));
        assert!(apply(by_match("ip4.dst == $c")).is_empty());
        let add = json!({"Address_Set": {"u": {"name": "c", "addresses": "10.128.1.5"}}, "_is_diff": true});
        assert_eq!(apply(add).len(), 1);
        assert!(apply(by_match("ip4.dst == $d")).is_empty());
        assert_eq!(apply(by_match("ip4.dst == $d || ip4")).len(), 1);
        assert!(apply(json!({"Logical_Router": {"r": null}, "_comment": "gone"})).is_empty());
    }

    #[test]
    fn a_subnet_holds_its_addresses() {
        let ip = |text: &str| text.parse().unwrap();
        assert!(holds("10.128.0.0/16", ip("10.128.1.5")));
        assert!(!holds("10.128.0.0/24", ip("10.128.1.5")));
        assert!(!holds("10.128.0.0/16", ip("fd00::1")));
        assert!(holds("fd00::1", ip("fd00::1")) && !holds("fd00::1", ip("fd00::2")));
    }
}
