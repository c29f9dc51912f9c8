//! Builders for the tests of this crate.
//! In: the few values a test is about. Out: objects and merged configurations around them.
//! Invariant: everything that a test does not name is at its default. Not here: YAML.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::address::Prefix;
use model::asn::Asn;
use model::frr::{FrrConfiguration, Neighbor, Peer, Raw, RemoteAs, Router, Session};
use model::names::{NodeName, ObjectKey};
use model::problem::Problem;
use model::selector::{LabelSelector, Labels};

use crate::config::{NodeConfig, NodeInput};

pub(crate) const PEER: &str = "172.31.9.2";

pub(crate) fn mk_asn(number: i64) -> Asn {
    Asn::try_from(number).unwrap()
}

pub(crate) fn mk_prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

pub(crate) fn mk_prefixes(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().map(|text| mk_prefix(text)).collect()
}

pub(crate) fn mk_neighbor(address: &str) -> Neighbor {
    let session = Session::new(RemoteAs::Number(mk_asn(64512)));
    Neighbor::new(Peer::Address(address.to_owned()), session)
}

pub(crate) fn mk_router(vrf: &str, prefixes: &[&str], neighbors: Vec<Neighbor>) -> Router {
    Router {
        vrf: vrf.to_owned(),
        neighbors,
        prefixes: mk_prefixes(prefixes),
        ..Router::new(mk_asn(64512))
    }
}

pub(crate) fn mk_object(name: &str, routers: Vec<Router>) -> FrrConfiguration {
    FrrConfiguration {
        key: ObjectKey::new("frr-k8s-system", name),
        labels: Labels::new(),
        annotations: BTreeMap::new(),
        node_selector: LabelSelector::default(),
        routers,
        bfd_profiles: Vec::new(),
        raw: None,
    }
}

/// An object with one default-VRF router that has this one neighbor.
pub(crate) fn mk_peering(name: &str, prefixes: &[&str], neighbor: Neighbor) -> FrrConfiguration {
    mk_object(name, vec![mk_router("", prefixes, vec![neighbor])])
}

pub(crate) fn mk_raw(name: &str, priority: i64, config: &str) -> FrrConfiguration {
    let mut object = mk_object(name, Vec::new());
    object.raw = Some(Raw {
        priority,
        config: config.to_owned(),
    });
    object
}

/// Merges for node `node1`, whose only Secret is `peering` with the password `s3cret`.
pub(crate) fn merged(objects: &[FrrConfiguration]) -> Result<NodeConfig, Vec<Problem>> {
    let passwords = BTreeMap::from([("peering".to_owned(), Ok("s3cret".to_owned()))]);
    let labels = Labels::from([("kubernetes.io/hostname".to_owned(), "node1".to_owned())]);
    crate::merge::merge(&NodeInput {
        name: NodeName::from("node1"),
        labels: &labels,
        hostname: "node1".to_owned(),
        objects: &objects.iter().cloned().map(Arc::new).collect::<Vec<_>>(),
        passwords: &passwords,
    })
}
