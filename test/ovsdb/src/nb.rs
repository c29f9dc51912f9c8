//! The few rows of OVN_Northbound that the tests write: routers and their static routes.
//!
//! In: names and prefixes. Out: transactions and configurations.
//! Invariant: a route is inserted together with the reference that keeps it.
//! Not here: what OVN makes of them.

use std::path::Path;

use ovsdb::random_uuid;
use ovsdb::{
    Client, ClientConfig, Condition, Endpoint, MonitorTable, Mutation, Replica, Row, Transaction,
    Uuid,
};

/// The database.
pub const NB: &str = "OVN_Northbound";

/// A configuration that follows routers and static routes over a unix socket.
#[must_use]
pub fn mk_config(socket: &Path) -> ClientConfig {
    let routers = [
        "name",
        "static_routes",
        "external_ids",
        "enabled",
        "options",
    ];
    let routes = [
        "ip_prefix",
        "nexthop",
        "output_port",
        "policy",
        "external_ids",
    ];
    ClientConfig::new(Endpoint::Unix(socket.into()), NB)
        .table(MonitorTable::new("Logical_Router", &routers))
        .table(
            MonitorTable::new("Logical_Router_Static_Route", &routes).optional(&["no_such_column"]),
        )
}

/// A client over a unix socket.
#[must_use]
pub fn mk_client(socket: &Path) -> Client {
    Client::connect(mk_config(socket))
}

/// Adds a router.
#[must_use]
pub fn mk_router(name: &str) -> Transaction {
    Transaction::new(NB).insert(
        "Logical_Router",
        random_uuid(),
        Row::new().with("name", name),
    )
}

/// Adds routes with the prefixes 10.x.y.z/32, numbered from `first`, to a router.
#[must_use]
pub fn mk_route(router: &str, first: u32, count: u32) -> Transaction {
    let mut transaction = Transaction::new(NB).comment("routes");
    let mut references: Vec<Uuid> = Vec::new();
    for number in first..first + count {
        let uuid = random_uuid();
        references.push(uuid);
        let prefix = format!("{}/32", std::net::Ipv4Addr::from_bits(0x0a00_0000 + number));
        let ids = ovsdb::Datum::map([("owner", "test")]);
        let row = Row::new()
            .with("ip_prefix", prefix)
            .with("nexthop", "192.0.2.1")
            .with("external_ids", ids);
        transaction = transaction.insert("Logical_Router_Static_Route", uuid, row);
    }
    let router = Condition::equal("name", router);
    transaction.mutate(
        "Logical_Router",
        vec![router],
        vec![Mutation::insert("static_routes", references)],
    )
}

/// How many routes the replica holds.
#[must_use]
pub fn routes_of(replica: &Replica) -> usize {
    replica
        .table("Logical_Router_Static_Route")
        .expect("monitored")
        .len()
}
