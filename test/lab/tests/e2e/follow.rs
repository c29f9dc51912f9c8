//! Whether a gateway router ever lacked a row, over a time.
//!
//! In: a node and prefixes. Out: each moment at which rows for some of them were missing, and which. `ovsdb-client monitor`
//! tells each change as it happens, so nothing is too short to be seen.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Standing, wait};

/// How soon the monitor tells what is there.
const FIRST: Duration = Duration::from_secs(10);

/// A monitor that runs.
pub(crate) struct Follow {
    child: Child,
    seen: Arc<Mutex<Seen>>,
}

struct Seen {
    begun: Instant,
    wanted: BTreeSet<String>,
    /// Prefix by row.
    rows: BTreeMap<String, String>,
    missing: BTreeSet<String>,
    /// What was missing from when on.
    reported: Vec<String>,
    unread: Option<String>,
}

impl Follow {
    /// Follows the gateway router of a node, which has rows for all of these.
    pub(crate) fn rows(lab: &Standing, node: &str, wanted: &[String]) -> Self {
        let socket = lab.dir(node).join("ovs/ovnnb_db.sock");
        let mut child = Command::new("ovsdb-client")
            .args(["--format=json", "monitor"])
            .arg(format!("unix:{}", socket.display()))
            .args(["OVN_Northbound", "Logical_Router_Static_Route"])
            .arg("ip_prefix,output_port")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("ovsdb-client");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let wanted: BTreeSet<String> = wanted.iter().cloned().collect();
        let seen = Arc::new(Mutex::new(Seen {
            begun: Instant::now(),
            missing: wanted.clone(),
            wanted,
            rows: BTreeMap::new(),
            reported: Vec::new(),
            unread: None,
        }));
        let port = format!("rtoe-GR_{node}");
        let tell = Arc::clone(&seen);
        std::thread::spawn(move || {
            for line in lines {
                let line = line.unwrap_or_else(|error| error.to_string());
                let mut seen = tell.lock().unwrap();
                if seen.read(&line, &port).is_none() {
                    seen.unread.get_or_insert(line);
                }
            }
        });
        let follow = Self { child, seen };
        let whole = wait(FIRST, || !follow.lacks());
        assert!(whole, "no rows to begin with: {:?}", follow.missing());
        let mut seen = follow.seen.lock().unwrap();
        seen.reported.clear();
        seen.begun = Instant::now();
        drop(seen);
        follow
    }

    /// Is one missing now?
    pub(crate) fn lacks(&self) -> bool {
        !self.missing().is_empty()
    }

    /// How often what is missing has changed.
    pub(crate) fn changes(&self) -> usize {
        self.seen.lock().unwrap().reported.len()
    }

    fn missing(&self) -> BTreeSet<String> {
        self.seen.lock().unwrap().missing.clone()
    }

    /// What was missing from when on, and nothing where all was back; empty where nothing ever was. The monitor runs to the end.
    pub(crate) fn stop(mut self) -> Vec<String> {
        let ended = self.child.try_wait().unwrap();
        let seen = self.seen.lock().unwrap();
        assert_eq!(ended, None, "the monitor has ended");
        assert_eq!(seen.unread, None, "a line that cannot be read");
        seen.reported.clone()
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Seen {
    /// A line of the monitor. The server may tell of two transactions in one: what is deleted and inserted in it counts as
    /// having been away.
    fn read(&mut self, line: &str, port: &str) -> Option<()> {
        let table: Value = serde_json::from_str(line).ok()?;
        let rows = table.get("data")?.as_array()?;
        let word = |row: &Value, column: usize| Some(row.get(column)?.as_str()?.to_owned());
        for row in rows {
            if word(row, 1)? == "delete" {
                self.rows.remove(&word(row, 0)?);
            }
        }
        self.settle();
        let mut changed = String::new();
        for row in rows {
            let action = word(row, 1)?;
            // What a row has become follows what it was, without its id.
            if action != "new" {
                changed = word(row, 0)?;
            }
            match action.as_str() {
                "delete" => {}
                "old" => drop(self.rows.remove(&changed)),
                "initial" | "insert" | "new" => {
                    if word(row, 3).as_deref() == Some(port) {
                        self.rows.insert(changed.clone(), word(row, 2)?);
                    }
                }
                _ => return None,
            }
        }
        self.settle();
        Some(())
    }

    fn settle(&mut self) {
        let there: BTreeSet<String> = self.rows.values().cloned().collect();
        let missing: BTreeSet<String> = self.wanted.difference(&there).cloned().collect();
        if missing != self.missing {
            let at = self.begun.elapsed().as_secs_f64();
            self.reported.push(format!("{at:.3} s: {missing:?}"));
            self.missing = missing;
        }
    }
}
