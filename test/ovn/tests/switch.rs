//! Open vSwitch's database: a bridge's ports, and the one that is ours.
//!
//! In: a served conf.db, without a switch. Out: facts and rows.
//! Invariant: ports of others stay as they are. Not here: flows, devices.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::collections::BTreeMap;
use std::process::Command;

use model::ovs::InternalPort;
use ovn::{EncodeError, switch};
use ovsdb::{
    Client, ClientConfig, Condition, Datum, Endpoint, Mutation, Row, Transaction, Uuid, random_uuid,
};
use ovsdb_tests::{Server, absent, run, until_synced};

const TOOLS: &[&str] = &["ovsdb-server", "ovsdb-tool", "setpriv"];
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

struct Fixture {
    _server: Server,
    client: Client,
    root: Uuid,
}

fn tx() -> Transaction {
    Transaction::new(switch::DATABASE)
}

fn mk_port() -> InternalPort {
    InternalPort {
        bridge: "br-int".to_owned(),
        name: "ovn-k8s-mp0".to_owned(),
        mac: "0a:58:0a:80:01:02".parse().unwrap(),
        iface_id: "k8s-n1".to_owned(),
        mtu: 1500,
        owner: "default".to_owned(),
    }
}

impl Fixture {
    async fn start() -> Option<Self> {
        if absent(TOOLS) {
            return None;
        }
        let mut server = Server::prepared(&[]);
        let path = server.path("conf.db");
        run(Command::new("ovsdb-tool")
            .arg("create")
            .arg(&path)
            .arg(SCHEMA));
        server.add_arguments(&[path.display().to_string()]);
        server.up();
        let config = ClientConfig::new(Endpoint::Unix(server.socket()), switch::DATABASE);
        let client = Client::connect(
            switch::monitor()
                .into_iter()
                .fold(config, ClientConfig::table),
        );
        until_synced(&client).await;
        let root = random_uuid();
        let fixture = Self {
            _server: server,
            client,
            root,
        };
        assert_eq!(fixture.system_id(), None);
        let ids = Datum::map([("system-id", "n1")]);
        fixture
            .send(tx().insert("Open_vSwitch", root, Row::new().with("external_ids", ids)))
            .await;
        Some(fixture)
    }

    async fn send(&self, transaction: Transaction) {
        let reply = self.client.transact(&transaction).await.unwrap();
        reply.check_counts().unwrap();
    }

    async fn set(&self, table: &'static str, name: &str, row: Row) {
        self.send(tx().update(table, vec![Condition::equal("name", name)], row))
            .await;
    }

    async fn add_bridge(&self, name: &str) -> Uuid {
        let uuid = random_uuid();
        let insert = tx()
            .insert("Bridge", uuid, Row::new().with("name", name))
            .mutate(
                "Open_vSwitch",
                vec![Condition::uuid(self.root)],
                vec![Mutation::insert("bridges", uuid)],
            );
        self.send(insert).await;
        uuid
    }

    async fn add_port(&self, bridge: Uuid, name: &str, interface: &str, ofport: i64) {
        let (uuid, device) = (random_uuid(), random_uuid());
        let row = Row::new().with("name", interface).with("ofport", ofport);
        let insert = tx()
            .insert("Interface", device, row.with("type", "internal"))
            .insert(
                "Port",
                uuid,
                Row::new().with("name", name).with("interfaces", device),
            )
            .mutate(
                "Bridge",
                vec![Condition::uuid(bridge)],
                vec![Mutation::insert("ports", uuid)],
            );
        self.send(insert).await;
    }

    fn system_id(&self) -> Option<String> {
        self.client
            .with_replica(switch::system_id)
            .unwrap()
            .unwrap()
    }

    fn plan(&self, port: &InternalPort) -> Result<Option<Transaction>, EncodeError> {
        let made = self
            .client
            .with_replica(|r| switch::ensure_port(r, port, "noverlay test"));
        made.unwrap()
    }

    /// Makes the port right; whether there was something to do.
    async fn ensure(&self, port: &InternalPort) -> bool {
        let Some(transaction) = self.plan(port).unwrap() else {
            return false;
        };
        self.send(transaction).await;
        assert_eq!(self.plan(port).unwrap(), None);
        true
    }

    fn ports(&self, bridge: &str) -> Vec<(String, Option<u32>)> {
        let fact = self
            .client
            .with_replica(|r| switch::decode_bridge(r, bridge));
        let ports = fact.unwrap().unwrap().unwrap().ports;
        ports
            .into_iter()
            .map(|port| (port.name, port.ofport))
            .collect()
    }

    fn ids(&self, table: &str, name: &str) -> BTreeMap<String, String> {
        let read = |replica: &ovsdb::Replica| {
            let mut rows = replica.table(table).unwrap().values();
            let row = rows
                .find(|row| row.get::<&str>("name").unwrap() == name)
                .unwrap();
            row.get("external_ids").unwrap()
        };
        self.client.with_replica(read).unwrap()
    }
}

#[tokio::test]
async fn a_port_is_made_once() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let bridge = fixture.add_bridge("br-int").await;
    fixture.add_port(bridge, "pod", "pod", 7).await;
    fixture.add_port(bridge, "broken", "broken", -1).await;
    assert!(fixture.ensure(&mk_port()).await);
    assert!(!fixture.ensure(&mk_port()).await);
    let port = |name: &str, number| (name.to_owned(), number);
    let expected = [
        port("broken", None),
        port("ovn-k8s-mp0", None),
        port("pod", Some(7)),
    ];
    assert_eq!(fixture.ports("br-int"), expected);
    assert_eq!(fixture.system_id().as_deref(), Some("n1"));
}

#[tokio::test]
async fn a_network_that_gets_another_id_leaves_no_port_of_the_former_one() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let bridge = fixture.add_bridge("br-int").await;
    fixture.add_port(bridge, "pod", "pod", 7).await;
    let port = |name: &str, owner: &str| InternalPort {
        name: name.to_owned(),
        iface_id: format!("k8s-{owner}_n1"),
        owner: owner.to_owned(),
        ..mk_port()
    };
    fixture
        .ensure(&port("ovn-k8s-mp1", "cluster_udn_red"))
        .await;
    fixture
        .ensure(&port("ovn-k8s-mp2", "cluster_udn_blue"))
        .await;
    let names = || -> Vec<String> {
        let ports = fixture.ports("br-int").into_iter();
        ports.map(|(name, _)| name).collect()
    };
    // Red is gone, and blue was made anew with its id, before red's port was removed.
    let blue = port("ovn-k8s-mp1", "cluster_udn_blue");
    assert!(fixture.ensure(&blue).await);
    assert_eq!(names(), ["ovn-k8s-mp1", "pod"]);
    let owner = &fixture.ids("Port", "ovn-k8s-mp1")["noverlay.io/owner"];
    assert_eq!(owner, "cluster_udn_blue");
    assert!(!fixture.ensure(&blue).await);
    assert!(
        fixture
            .ensure(&port("ovn-k8s-mp3", "cluster_udn_blue"))
            .await
    );
    assert_eq!(names(), ["ovn-k8s-mp3", "pod"]);
}

/// Also one that was made before it bore the id.
#[tokio::test]
async fn an_interface_says_which_network_of_users_it_is_of() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    fixture.add_bridge("br-int").await;
    let key = "k8s.ovn.org/network";
    fixture.ensure(&mk_port()).await;
    assert!(!fixture.ids("Interface", "ovn-k8s-mp0").contains_key(key));
    let port = InternalPort {
        name: "ovn-k8s-mp1".to_owned(),
        iface_id: "k8s-cluster_udn_red_n1".to_owned(),
        owner: "cluster_udn_red".to_owned(),
        ..mk_port()
    };
    fixture.ensure(&port).await;
    assert_eq!(fixture.ids("Interface", &port.name)[key], "cluster_udn_red");
    let before = [
        ("iface-id", port.iface_id.as_str()),
        ("noverlay.io/owner", "cluster_udn_red"),
    ];
    let before = Row::new().with("external_ids", Datum::map(before));
    fixture.set("Interface", &port.name, before).await;
    assert!(fixture.ensure(&port).await);
    assert_eq!(fixture.ids("Interface", &port.name)[key], "cluster_udn_red");
}

#[tokio::test]
async fn an_edited_port_is_put_right() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    fixture.add_bridge("br-int").await;
    let port = mk_port();
    fixture.ensure(&port).await;
    let ids = |pairs: &[(&'static str, &'static str)]| {
        Row::new().with("external_ids", Datum::map(pairs.iter().copied()))
    };
    let owner = ("noverlay.io/owner", "default");
    let edits = [
        ("Interface", Row::new().with("mac", "0a:58:0a:80:01:99")),
        ("Interface", Row::new().with("mac", Datum::empty_set())),
        ("Interface", Row::new().with("mac", "nonsense")),
        ("Interface", Row::new().with("type", "")),
        ("Interface", Row::new().with("mtu_request", 1400_i64)),
        (
            "Interface",
            Row::new().with("mtu_request", Datum::empty_set()),
        ),
        ("Interface", ids(&[owner])),
        (
            "Interface",
            ids(&[owner, ("iface-id", "other"), ("theirs", "1")]),
        ),
        ("Interface", ids(&[("iface-id", "k8s-n1"), ("theirs", "1")])),
        ("Port", ids(&[("theirs", "1")])),
    ];
    for (table, edit) in edits {
        fixture.set(table, &port.name, edit.clone()).await;
        assert!(fixture.ensure(&port).await, "{table} {edit:?}");
    }
    for table in ["Interface", "Port"] {
        let held = fixture.ids(table, &port.name);
        assert_eq!(held["theirs"], "1", "{table}");
        assert_eq!(held["noverlay.io/owner"], "default", "{table}");
    }
    // Another spelling is no edit.
    fixture
        .set(
            "Interface",
            &port.name,
            Row::new().with("mac", "0A:58:0A:80:01:02"),
        )
        .await;
    assert!(!fixture.ensure(&port).await);
}

#[tokio::test]
async fn a_missing_bridge_is_an_error() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let error = fixture.plan(&mk_port()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no bridge br-int for port ovn-k8s-mp0"
    );
    let fact = fixture
        .client
        .with_replica(|r| switch::decode_bridge(r, "br-int"));
    assert_eq!(fact.unwrap().unwrap(), None);
    fixture.add_bridge("br-int").await;
    assert!(fixture.ensure(&mk_port()).await);
}

#[tokio::test]
async fn a_port_on_another_bridge_is_moved() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    fixture.add_bridge("br-int").await;
    let other = fixture.add_bridge("br-ex").await;
    fixture
        .add_port(other, "ovn-k8s-mp0", "ovn-k8s-mp0", 3)
        .await;
    fixture.add_port(other, "uplink", "uplink", 1).await;
    assert!(fixture.ensure(&mk_port()).await);
    assert_eq!(fixture.ports("br-ex"), [("uplink".to_owned(), Some(1))]);
    assert_eq!(
        fixture.ports("br-int"),
        [("ovn-k8s-mp0".to_owned(), Some(3))]
    );
}

#[tokio::test]
async fn an_interface_of_another_port_is_not_taken() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let bridge = fixture.add_bridge("br-int").await;
    fixture.add_port(bridge, "bond0", "ovn-k8s-mp0", 3).await;
    let error = fixture.plan(&mk_port()).unwrap_err().to_string();
    assert_eq!(
        error,
        "interface ovn-k8s-mp0 belongs to port bond0; remove it from there"
    );
}

#[tokio::test]
async fn bridge_mappings_name_the_physical_network_of_each_bridge() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let networks = || {
        let read = fixture.client.with_replica(switch::physical_networks);
        read.unwrap().unwrap()
    };
    assert!(networks().is_empty());
    let ids = Datum::map([("ovn-bridge-mappings", "a:br-a, physnet:br-ex,nonsense")]);
    let row = Row::new().with("external_ids", ids);
    let at = vec![Condition::uuid(fixture.root)];
    fixture.send(tx().update("Open_vSwitch", at, row)).await;
    let wanted = [("br-a", "a"), ("br-ex", "physnet")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(networks(), BTreeMap::from(wanted));
}

#[tokio::test]
async fn a_network_that_is_gone_takes_its_port_and_no_other() {
    let Some(fixture) = Fixture::start().await else {
        return;
    };
    let bridge = fixture.add_bridge("br-int").await;
    fixture.add_port(bridge, "veth1", "veth1", 7).await;
    let other = InternalPort {
        name: "ovn-k8s-mp5".to_owned(),
        owner: "cluster_udn_blue".to_owned(),
        ..mk_port()
    };
    let client = &fixture.client;
    for port in [mk_port(), other] {
        let made = client.with_replica(|r| switch::ensure_port(r, &port, "noverlay test"));
        fixture.send(made.unwrap().unwrap().unwrap()).await;
    }
    let owners = || {
        let found = client.with_replica(switch::port_owners).unwrap().unwrap();
        let names = found.values().map(ToString::to_string);
        names.collect::<Vec<String>>()
    };
    let ports = || {
        let fact = client.with_replica(|r| switch::decode_bridge(r, "br-int"));
        let ports = fact.unwrap().unwrap().unwrap().ports;
        let names = ports.into_iter().map(|port| port.name);
        names.collect::<Vec<String>>()
    };
    assert_eq!(owners(), ["default", "cluster_udn_blue"]);
    let blue = model::NetworkName::from("cluster_udn_blue");
    let remove = || client.with_replica(|r| switch::remove_ports(r, &blue, "noverlay test"));
    fixture.send(remove().unwrap().unwrap().unwrap()).await;
    assert_eq!(owners(), ["default"]);
    assert_eq!(ports(), ["ovn-k8s-mp0", "veth1"]);
    assert!(
        remove().unwrap().unwrap().is_none(),
        "nothing is left to do"
    );
}
