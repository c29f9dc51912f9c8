//! Who looks at the Northbound database from outside, in a session of its own and without our client.
//! In: the socket. Out: the rows of routers after each transaction; prefixes that were without a row.
//! Invariant: every update that the server sends is evaluated; a session that is lost is made again.
//! Not here: what should be there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::testbed::ROUTER;

const ROUTES: &str = "Logical_Router_Static_Route";
const ROUTERS: &str = "Logical_Router";

/// A row of `Logical_Router_Static_Route` as it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteSeen {
    /// `ip_prefix`.
    pub prefix: String,
    /// `nexthop`.
    pub nexthop: String,
    /// Its identity.
    pub id: String,
    /// Whether it bears the owner markers of imports and of the network; with the first alone it is another importer's.
    pub marked: bool,
    /// Whether all its columns are as the import writes them.
    pub plain: bool,
}

/// The database at a moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// How many updates there were so far.
    pub updates: u64,
    /// Routes of each router, by its name.
    pub routers: BTreeMap<String, Vec<RouteSeen>>,
}

impl Snapshot {
    /// Routes of the gateway router.
    #[must_use]
    pub fn routes(&self) -> &[RouteSeen] {
        self.routers.get(ROUTER).map_or(&[], Vec::as_slice)
    }

    /// Prefix and next hop of the gateway router's imported rows, sorted; one in another form shows as such.
    #[must_use]
    pub fn imported(&self) -> Vec<(String, String)> {
        let marked = self.routes().iter().filter(|route| route.marked);
        let pair = |route: &RouteSeen| {
            let malformed = if route.plain { "" } else { "malformed " };
            (
                format!("{malformed}{}", route.prefix),
                route.nexthop.clone(),
            )
        };
        let mut all: Vec<_> = marked.map(pair).collect();
        all.sort();
        all
    }
}

#[derive(Debug, Default)]
struct Seen {
    live: bool,
    updates: u64,
    rows: BTreeMap<String, RouteSeen>,
    routers: BTreeMap<String, (String, Vec<String>)>,
    guarded: BTreeSet<String>,
    gaps: Vec<String>,
}

/// The observer; it ends with this value.
#[derive(Debug)]
pub struct Observer {
    seen: Arc<Mutex<Seen>>,
    ended: Arc<AtomicBool>,
}

impl Observer {
    /// Follows the database behind a socket.
    #[must_use]
    pub fn start(socket: &Path) -> Self {
        let observer = Self {
            seen: Arc::default(),
            ended: Arc::default(),
        };
        let (seen, ended) = (Arc::clone(&observer.seen), Arc::clone(&observer.ended));
        let socket: PathBuf = socket.to_owned();
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                if let Ok(stream) = UnixStream::connect(&socket) {
                    // A session that breaks is the database's death: it is made again.
                    let _ = follow(stream, &seen, &ended);
                }
                lock(&seen).live = false;
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        observer
    }

    /// Whether its session stands.
    #[must_use]
    pub fn is_live(&self) -> bool {
        lock(&self.seen).live
    }

    /// The database as it is now.
    #[must_use]
    pub fn observe(&self) -> Snapshot {
        let seen = lock(&self.seen);
        let mut snapshot = Snapshot {
            updates: seen.updates,
            ..Snapshot::default()
        };
        for (name, references) in seen.routers.values() {
            let routes = references.iter().filter_map(|id| seen.rows.get(id));
            let of = snapshot.routers.entry(name.clone()).or_default();
            of.extend(routes.cloned());
        }
        snapshot
    }

    /// From now on each of these prefixes must have an imported row on the gateway router after every transaction.
    pub fn guard(&self, prefixes: impl IntoIterator<Item = String>) {
        lock(&self.seen).guarded.extend(prefixes);
    }

    /// These need none any more.
    pub fn unguard(&self, prefixes: &[String]) {
        let guarded = &mut lock(&self.seen).guarded;
        for prefix in prefixes {
            guarded.remove(prefix);
        }
    }

    /// Fails where a guarded prefix was without a row.
    pub fn assert_no_gap(&self) {
        let seen = lock(&self.seen);
        assert!(seen.gaps.is_empty(), "without a row: {:#?}", seen.gaps);
    }

    /// Imported rows of these prefixes on the gateway router, by prefix.
    #[must_use]
    pub fn rows_of(&self, prefixes: &BTreeSet<String>) -> BTreeSet<(String, String)> {
        let snapshot = self.observe();
        let routes = snapshot.routes().iter();
        routes
            .filter(|route| route.marked && prefixes.contains(&route.prefix))
            .map(|route| (route.prefix.clone(), route.id.clone()))
            .collect()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn follow(
    mut stream: UnixStream,
    seen: &Mutex<Seen>,
    ended: &AtomicBool,
) -> Result<(), Box<dyn std::error::Error>> {
    let what = json!({ROUTERS: {"columns": ["name", "static_routes"]}, ROUTES: {}});
    let asked = json!({"id": 0, "method": "monitor", "params": ["OVN_Northbound", null, what]});
    stream.write_all(asked.to_string().as_bytes())?;
    let reader = BufReader::new(stream.try_clone()?);
    for message in serde_json::Deserializer::from_reader(reader).into_iter::<Value>() {
        let message = message?;
        if ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        match message.get("method").and_then(Value::as_str) {
            Some("echo") => {
                let reply = json!({"id": message.get("id"), "error": null, "result": []});
                stream.write_all(reply.to_string().as_bytes())?;
            }
            Some("update") => lock(seen).take(message.pointer("/params/1")),
            _ => {
                let mut seen = lock(seen);
                seen.rows.clear();
                seen.routers.clear();
                seen.take(message.get("result"));
                seen.live = true;
            }
        }
    }
    Ok(())
}

impl Seen {
    fn take(&mut self, tables: Option<&Value>) {
        let rows = |table: &str| {
            let of = tables.and_then(|tables| tables.get(table));
            of.and_then(Value::as_object).into_iter().flatten()
        };
        for (id, change) in rows(ROUTES) {
            match change.get("new").and_then(Value::as_object) {
                Some(new) => drop(self.rows.insert(id.clone(), decode(id, new))),
                None => drop(self.rows.remove(id)),
            }
        }
        for (id, change) in rows(ROUTERS) {
            match change.get("new") {
                Some(new) => {
                    let name = text(new.get("name"));
                    let references = members(new.get("static_routes"));
                    let ids = references.iter().map(|pair| text(pair.get(1)));
                    self.routers.insert(id.clone(), (name, ids.collect()));
                }
                None => drop(self.routers.remove(id)),
            }
        }
        self.updates += 1;
        self.evaluate();
    }

    fn evaluate(&mut self) {
        let routers = self.routers.values();
        let covered: BTreeSet<&str> = routers
            .filter(|(name, _)| name == ROUTER)
            .flat_map(|(_, references)| references)
            .filter_map(|id| self.rows.get(id))
            .filter(|row| row.marked)
            .map(|row| row.prefix.as_str())
            .collect();
        let missing = self
            .guarded
            .iter()
            .filter(|p| !covered.contains(p.as_str()));
        let missing: Vec<&str> = missing.map(String::as_str).take(5).collect();
        if !missing.is_empty() {
            let gap = format!("update {}: {}", self.updates, missing.join(", "));
            self.gaps.push(gap);
        }
    }
}

/// A row as the import writes it has these columns, and nothing in any other.
fn decode(id: &str, row: &Map<String, Value>) -> RouteSeen {
    let ids = members(row.get("external_ids"));
    let has = |key: &str, value: &str| ids.iter().any(|pair| *pair == json!([key, value]));
    let marked =
        has("k8s.ovn.org/owner-controller", "RouteImport") && has("noverlay.io/owner", "default");
    let empty = |value: &Value| {
        *value == json!("") || *value == json!(["set", []]) || *value == json!(["map", []])
    };
    let known = ["ip_prefix", "nexthop", "output_port", "external_ids"];
    let others = row.iter().filter(|(name, _)| {
        !known.contains(&name.as_str()) && !name.starts_with('_') && *name != "selection_fields"
    });
    let plain = marked
        && ids.len() == 2
        && text(row.get("output_port")) == format!("rtoe-{ROUTER}")
        && others.into_iter().all(|(_, value)| empty(value));
    RouteSeen {
        prefix: text(row.get("ip_prefix")),
        nexthop: text(row.get("nexthop")),
        id: id.to_owned(),
        marked,
        plain,
    }
}

fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or("").to_owned()
}

/// Members of a set or a map: `["set", [..]]`, or the one member itself.
fn members(value: Option<&Value>) -> Vec<Value> {
    let Some(value) = value else {
        return Vec::new();
    };
    match (value.get(0).and_then(Value::as_str), value.get(1)) {
        (Some("set" | "map"), Some(Value::Array(all))) => all.clone(),
        _ => vec![value.clone()],
    }
}
