//! OVN_Southbound: other nodes' chassis.
//!
//! In: a served database with a chassis of somebody else's, without a controller. Out: rows.
//! Invariant: rows that are not ours stay as they are. Not here: tunnels (the lab).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::process::Command;

use model::sb::{RemoteChassis, RemoteChassisByName};
use ovn::south::{self, Counts};
use ovsdb::{Client, ClientConfig, Datum, Endpoint, Row, Transaction, random_uuid};
use ovsdb_tests::{Server, absent, run, until_synced};

const TOOLS: &[&str] = &["ovsdb-server", "ovsdb-tool", "ovn-sbctl", "setpriv"];
const SCHEMA: &str = "/usr/share/ovn/ovn-sb.ovsschema";

struct Fixture {
    server: Server,
    client: Client,
}

impl Fixture {
    async fn start() -> Option<Self> {
        if absent(TOOLS) {
            return None;
        }
        let mut server = Server::prepared(&[]);
        let path = server.path("sb.db");
        run(Command::new("ovsdb-tool")
            .arg("create")
            .arg(&path)
            .arg(SCHEMA));
        server.add_arguments(&[path.display().to_string()]);
        server.up();
        let config = ClientConfig::new(Endpoint::Unix(server.socket()), south::DATABASE);
        let tables = south::monitor().into_iter();
        let client = Client::connect(tables.fold(config, ClientConfig::table));
        until_synced(&client).await;
        Some(Self { server, client })
    }

    /// The own chassis, as ovn-controller makes it.
    async fn own(&self) {
        let (encap, id) = (random_uuid(), random_uuid());
        let own = Transaction::new(south::DATABASE)
            .insert(
                "Encap",
                encap,
                Row::new()
                    .with("chassis_name", "c1")
                    .with("type", "geneve")
                    .with("ip", "172.30.0.1"),
            )
            .insert(
                "Chassis",
                id,
                Row::new()
                    .with("name", "c1")
                    .with("hostname", "n1")
                    .with("encaps", encap)
                    .with("other_config", Datum::map([("is-remote", "false")])),
            );
        let mut status = self.client.watch();
        let before = status.borrow_and_update().generation;
        self.client
            .transact(&own)
            .await
            .unwrap()
            .check_counts()
            .unwrap();
        status
            .wait_for(|now| now.generation > before)
            .await
            .unwrap();
    }

    /// One pass; how many rows it made and deleted.
    async fn pass(&self, wanted: &RemoteChassisByName) -> (usize, usize) {
        let counts = self.counted(wanted).await;
        assert_eq!((counts.bound, counts.refused.len()), (0, 0));
        (counts.made, counts.deleted)
    }

    async fn counted(&self, wanted: &RemoteChassisByName) -> Counts {
        let made = self.client.with_replica(|r| south::transaction(r, wanted));
        let (transaction, counts) = made.unwrap().unwrap();
        assert_eq!(transaction.operations().is_empty(), counts.is_nothing());
        if !counts.is_nothing() {
            let mut status = self.client.watch();
            let before = status.borrow_and_update().generation;
            let reply = self.client.transact(&transaction).await.unwrap();
            reply.check_counts().unwrap();
            status
                .wait_for(|now| now.generation > before)
                .await
                .unwrap();
        }
        counts
    }

    /// What somebody changes is made right again.
    async fn repairs(&self, wanted: &RemoteChassisByName) {
        let now = self.shown();
        let db = format!("--db=unix:{}", self.server.socket().display());
        let mut status = self.client.watch();
        let before = status.borrow_and_update().generation;
        run(Command::new("ovn-sbctl").args([
            &db,
            "remove",
            "Chassis",
            "c2",
            "other_config",
            "is-remote",
        ]));
        status
            .wait_for(|now| now.generation > before)
            .await
            .unwrap();
        assert_eq!(self.pass(wanted).await, (1, 1));
        assert_eq!(self.shown(), now);
    }

    /// What ovn-sbctl shows: each chassis with its host, whether it is remote, and its tunnels' ends.
    fn shown(&self) -> Vec<String> {
        let list = |table: &str, columns: &str| {
            let db = format!("--db=unix:{}", self.server.socket().display());
            let words = ["--format=csv", "--data=bare", "--no-headings"];
            let columns = format!("--columns={columns}");
            let sbctl = Command::new("ovn-sbctl")
                .arg(db)
                .args(words)
                .args([&columns, "list", table])
                .output();
            String::from_utf8(sbctl.unwrap().stdout).unwrap()
        };
        let chassis = list("Chassis", "name,hostname,other_config");
        let encaps = list("Encap", "chassis_name,type,ip");
        let mut lines: Vec<String> = chassis
            .lines()
            .chain(encaps.lines())
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    }
}

fn wanted(all: &[(&str, &str, &[&str])]) -> RemoteChassisByName {
    let one = |(name, host, ips): &(&str, &str, &[&str])| {
        let chassis = RemoteChassis {
            hostname: (*host).into(),
            encap_ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        };
        ((*name).to_owned(), chassis)
    };
    all.iter().map(one).collect()
}

#[tokio::test]
async fn other_nodes_come_change_and_go_and_the_own_chassis_stays() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    fixture.own().await;
    let alone = fixture.shown();
    assert_eq!(alone, ["c1,geneve,172.30.0.1", "c1,n1,is-remote=false"]);

    // One that bears the own name, as after a copied disk, is left to ovn-controller.
    let all = wanted(&[
        ("c1", "n9", &["172.30.0.9"]),
        ("c2", "n2", &["172.30.0.2"]),
        ("c3", "n3", &["172.30.0.3", "fd00:30::3"]),
    ]);
    let counts = fixture.counted(&all).await;
    assert_eq!((counts.made, counts.deleted), (2, 0));
    assert!(
        counts.refused[0].contains("node n9: there is a chassis c1 that noverlay has not made"),
        "{counts:?}"
    );
    let three = [
        "c1,geneve,172.30.0.1",
        "c1,n1,is-remote=false",
        "c2,geneve,172.30.0.2",
        "c2,n2,is-remote=true",
        "c3,geneve,172.30.0.3",
        "c3,geneve,fd00:30::3",
        "c3,n3,is-remote=true",
    ];
    assert_eq!(fixture.shown(), three);
    assert!(fixture.counted(&all).await.is_nothing());

    // Another address, and a node that was made anew: another chassis with the address of the old one.
    let other = wanted(&[
        ("c2", "n2", &["172.30.0.22"]),
        ("c4", "n3", &["172.30.0.3"]),
    ]);
    assert_eq!(fixture.pass(&other).await, (2, 2));
    let now = fixture.shown();
    assert!(now.contains(&"c2,geneve,172.30.0.22".to_owned()), "{now:?}");
    assert!(now.contains(&"c4,geneve,172.30.0.3".to_owned()), "{now:?}");
    assert!(!now.iter().any(|line| line.starts_with("c3")), "{now:?}");

    fixture.repairs(&other).await;
    assert_eq!(fixture.pass(&RemoteChassisByName::new()).await, (0, 2));
    assert_eq!(fixture.shown(), alone);
}

#[tokio::test]
async fn a_node_with_the_address_of_another_costs_itself_only() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    fixture.own().await;
    let all = wanted(&[
        ("c2", "n2", &["172.30.0.2"]),
        ("c3", "n3", &["172.30.0.2"]),
        ("c4", "n4", &["172.30.0.1"]),
        ("c5", "n5", &["172.30.0.5"]),
    ]);
    let counts = fixture.counted(&all).await;
    assert_eq!(counts.made, 2);
    let refused = counts.refused.join("; ");
    for words in [
        "node n3: 172.30.0.2 ends those to chassis c2 too",
        "node n4: 172.30.0.1 ends those to chassis c1 too",
    ] {
        assert!(refused.contains(words), "{refused}");
    }
    let shown = fixture.shown();
    assert!(
        shown.contains(&"c5,geneve,172.30.0.5".to_owned()),
        "{shown:?}"
    );
}

#[tokio::test]
async fn who_comes_with_the_address_of_one_that_stands_is_left_out_whatever_its_name() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    fixture.own().await;
    let one = wanted(&[("c9", "n2", &["172.30.0.2"])]);
    assert_eq!(fixture.pass(&one).await, (1, 0));
    let stands = fixture.shown();
    // One whose name comes first, and one without any end: the server takes no chassis without, nor anything beside it.
    let all = wanted(&[
        ("c2", "n7", &["172.30.0.2"]),
        ("c3", "n8", &[]),
        ("c9", "n2", &["172.30.0.2"]),
    ]);
    let counts = fixture.counted(&all).await;
    assert_eq!((counts.made, counts.deleted), (0, 0));
    assert_eq!(fixture.shown(), stands);
    let refused = counts.refused.join("; ");
    for words in [
        "node n7: 172.30.0.2 ends those to chassis c9",
        "node n8: none ends there",
    ] {
        assert!(refused.contains(words), "{refused}");
    }
}

impl Fixture {
    /// A port of a switch, as northd writes it.
    async fn port(&self, name: &str, kind: &str, key: i64, requested: &str) {
        let datapath = random_uuid();
        let chassis = self.list("Chassis", "_uuid", &format!("name={requested}"));
        let row = Row::new()
            .with("logical_port", name)
            .with("type", kind)
            .with("tunnel_key", key)
            .with("datapath", datapath)
            .with("requested_chassis", chassis.parse::<ovsdb::Uuid>().unwrap());
        let port = Transaction::new(south::DATABASE)
            .insert(
                "Datapath_Binding",
                datapath,
                Row::new().with("tunnel_key", key),
            )
            .insert("Port_Binding", random_uuid(), row);
        let mut status = self.client.watch();
        let before = status.borrow_and_update().generation;
        let reply = self.client.transact(&port).await.unwrap();
        reply.check_counts().unwrap();
        status
            .wait_for(|now| now.generation > before)
            .await
            .unwrap();
    }

    /// A column of the rows that fit, as ovn-sbctl shows it.
    fn list(&self, table: &str, column: &str, condition: &str) -> String {
        let db = format!("--db=unix:{}", self.server.socket().display());
        let columns = format!("--columns={column}");
        let shown = Command::new("ovn-sbctl")
            .args([&db, "--bare", &columns, "find", table, condition])
            .output();
        let text = String::from_utf8(shown.unwrap().stdout).unwrap();
        text.trim().to_owned()
    }
}

#[tokio::test]
async fn ports_of_other_nodes_are_bound_where_northd_has_not_and_no_others() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    fixture.own().await;
    let one = wanted(&[("c2", "n2", &["172.30.0.2"])]);
    assert_eq!(fixture.pass(&one).await, (1, 0));
    fixture.port("tstor-n2", "remote", 3, "c2").await;
    fixture.port("local", "", 4, "c2").await;
    fixture.port("of-the-own", "remote", 5, "c1").await;
    assert_eq!(fixture.counted(&one).await.bound, 1);
    let bound = |port: &str| {
        let chassis = fixture.list("Port_Binding", "chassis", &format!("logical_port={port}"));
        (!chassis.is_empty()).then_some(chassis)
    };
    let of_n2 = fixture.list("Chassis", "_uuid", "name=c2");
    assert_eq!(bound("tstor-n2"), Some(of_n2));
    assert_eq!((bound("local"), bound("of-the-own")), (None, None));
    // Nothing more to do.
    assert!(fixture.counted(&one).await.is_nothing());
}
