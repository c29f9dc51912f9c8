//! What ovsdb-server alone needs: raw JSON, well batched, nobody watching.
//! In: a server, how many rows. Out: times. Invariant: one transaction is on its way at a time; its result is checked.
//! Not here: our client.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ovsdb_tests::Server;

use crate::kernel::{prefix, router};
use crate::process::Watched;
use crate::testbed::now;

const BATCH: u32 = 500;

/// Wall time and the server's processor time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Floor {
    pub(crate) wall: Duration,
    pub(crate) server: Duration,
}

/// The database of its own, with a router.
pub(crate) struct Raw {
    server: Server,
    stream: UnixStream,
    router: String,
    next: u64,
}

impl Raw {
    pub(crate) fn start() -> Self {
        let server = Server::start();
        let stream = UnixStream::connect(server.socket()).expect("it listens");
        let mut raw = Self {
            server,
            stream,
            router: String::new(),
            next: 0,
        };
        let made = raw.call(r#"{"op":"insert","table":"Logical_Router","row":{"name":"GR_n1"}}"#);
        let at = made.find(r#"["uuid",""#).expect("the router's uuid") + 9;
        made[at..at + 36].clone_into(&mut raw.router);
        raw
    }

    fn call(&mut self, operations: &str) -> String {
        let text =
            format!(r#"{{"id":0,"method":"transact","params":["OVN_Northbound",{operations}]}}"#);
        self.stream.write_all(text.as_bytes()).expect("it reads");
        let (mut reply, mut depth) = (Vec::new(), 0_i64);
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = self.stream.read(&mut buffer).expect("it answers");
            assert!(count > 0, "it hung up");
            let part = &buffer[..count];
            reply.extend_from_slice(part);
            // No string of these replies has a brace in it.
            for byte in part {
                depth += i64::from(*byte == b'{') - i64::from(*byte == b'}');
            }
            if depth == 0 {
                break;
            }
        }
        let reply = String::from_utf8(reply).expect("text");
        assert!(reply.contains(r#""error":null"#), "{reply}");
        reply
    }

    fn rows(&mut self, first: u32, count: u32, hops: u32) -> String {
        let (mut inserts, mut set) = (String::new(), String::new());
        for number in first..first + count {
            for hop in 1..=hops {
                self.next += 1;
                let id = self.next;
                write!(
                    inserts,
                    r#"{{"op":"insert","table":"Logical_Router_Static_Route","uuid-name":"r{id}","row":{{"ip_prefix":"{}/24","nexthop":"{}","output_port":"rtoe-GR_n1","external_ids":["map",[["k8s.ovn.org/owner-controller","RouteImport"],["noverlay.io/owner","default"]]]}}}},"#,
                    prefix(number),
                    router(hop)
                )
                .expect("text grows");
                write!(set, r#"["named-uuid","r{id}"],"#).expect("text grows");
            }
        }
        set.pop();
        format!(
            r#"{inserts}{{"op":"mutate","table":"Logical_Router","where":[["_uuid","==",["uuid","{}"]]],"mutations":[["static_routes","insert",["set",[{set}]]]]}}"#,
            self.router
        )
    }

    /// Adds rows for so many routes.
    pub(crate) fn add(&mut self, first: u32, count: u32, hops: u32) -> Floor {
        let batch = (BATCH / hops).max(1);
        // Made before the time begins.
        let mut texts = Vec::new();
        let mut at = first;
        while at < first + count {
            let size = batch.min(first + count - at);
            texts.push(self.rows(at, size, hops));
            at += size;
        }
        let server = Watched::new(self.server.id());
        let (cpu, start) = (server.cpu(), now());
        for text in &texts {
            self.call(text);
        }
        Floor {
            wall: start.elapsed(),
            server: server.cpu() - cpu,
        }
    }

    /// Takes all rows away.
    pub(crate) fn clear(&mut self) -> Floor {
        let server = Watched::new(self.server.id());
        let text = format!(
            r#"{{"op":"update","table":"Logical_Router","where":[["_uuid","==",["uuid","{}"]]],"row":{{"static_routes":["set",[]]}}}}"#,
            self.router
        );
        let (cpu, start) = (server.cpu(), now());
        self.call(&text);
        Floor {
            wall: start.elapsed(),
            server: server.cpu() - cpu,
        }
    }
}
