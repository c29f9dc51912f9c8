//! What can be broken, and what it may cost.
//! In: a settled cluster. Out: the same with one fault. Invariant: each fault is one that people or other programs can make.
//! Not here: the comparison (`blast_radius`).

use offline::Objects;
use offline::kind::{CUDN, FRR, NAD, NODE, RA};
use serde_json::{Value, json};

use crate::cluster::{ID, SUBNETS};

mod advertisements;
mod frr;
mod networks;
mod nodes;

pub(crate) use advertisements::OF_ADVERTISEMENTS;
pub(crate) use frr::OF_FRR;
pub(crate) use networks::OF_NETWORKS;
pub(crate) use nodes::OF_NODES;

pub(crate) struct Fault {
    pub(crate) what: &'static str,
    pub(crate) make: fn(&mut Objects),
    /// How people mend it; `None` where they change back what was changed.
    pub(crate) mend: Option<fn(&mut Objects)>,
    /// Whoever is named by everything that is said, but for what is said of itself.
    pub(crate) culprit: &'static str,
    /// All nodes, networks and objects that what is said names.
    pub(crate) names: &'static [&'static str],
    /// All that is said and was not before.
    pub(crate) says: &'static [Said],
    /// The nodes that FRR is told less on.
    pub(crate) costs: &'static [&'static str],
    /// What is written because of it: kind and beginning of the name; of generated objects RA, source and node.
    pub(crate) writes: &'static [&'static str],
    /// What names one of these may differ from a cluster that grew without the fault.
    pub(crate) touches: &'static [&'static str],
    /// It is every node's: which nodes are named is not listed.
    pub(crate) of_all: bool,
    /// How the planners fall short of this: words of what is found wrong, all of which must be found.
    pub(crate) except: &'static [&'static str],
}

/// Of whom something is said (`KIND NAME` with conditions, `Node/NAME` with events), type, status and reason of each condition
/// or the reason of each event, and words that each has.
#[derive(Clone, Copy)]
pub(crate) struct Said(
    pub(crate) &'static str,
    pub(crate) &'static [&'static str],
    pub(crate) &'static str,
);

/// A fault that costs nobody what it has, and that nothing is written for.
const NO_FAULT: Fault = Fault {
    what: "",
    make: |_| {},
    mend: None,
    culprit: "",
    names: &[],
    says: &[],
    costs: &[],
    writes: &[],
    touches: &[],
    of_all: false,
    except: &[],
};

/// What names the node that is broken.
const N25_AND_ITS_ADDRESS: &[&str] = &["n25", "172.30.0.25"];

fn node<'a>(objects: &'a mut Objects, name: &str) -> &'a mut Value {
    objects.get_mut(NODE, name).unwrap()
}

fn annotate(objects: &mut Objects, key: &str, value: &str) {
    node(objects, "n25")["metadata"]["annotations"][key] = value.into();
}

/// What the event about it advises; the id that the node had may be another's by then.
fn without_id(objects: &mut Objects) {
    let annotations = &mut node(objects, "n25")["metadata"]["annotations"];
    let gone = annotations.as_object_mut().unwrap().remove(ID);
    assert!(gone.is_some());
}

/// The subnets of n25, that of the default network another one.
fn default_subnet(objects: &mut Objects, subnet: &str) {
    let others = r#""cluster_udn_green":["10.61.24.0/24"],"cluster_udn_blue":["10.62.24.0/24"],"cluster_udn_grey":["10.63.24.0/24"]"#;
    annotate(
        objects,
        SUBNETS,
        &format!(r#"{{"default":["{subnet}"],{others}}}"#),
    );
}

fn internal_ip(objects: &mut Objects, address: &str) {
    let addresses = json!([{"type": "InternalIP", "address": address}]);
    node(objects, "n25")["status"]["addresses"] = addresses;
}

/// An FRRConfiguration of somebody, for all nodes or one.
fn foreign(objects: &mut Objects, name: &str, host: Option<&str>, routers: &Value) {
    let mut spec = json!({"bgp": {"routers": routers}});
    if let Some(host) = host {
        spec["nodeSelector"] = json!({"matchLabels": {"kubernetes.io/hostname": host}});
    }
    let object = json!({
        "apiVersion": "frrk8s.metallb.io/v1beta1", "kind": FRR,
        "metadata": {"name": name, "namespace": "frr-k8s-system"}, "spec": spec,
    });
    objects.put(object).unwrap();
}

/// A RouteAdvertisements of pods by the source of `pods`, with this field another one.
fn advertisement(objects: &mut Objects, name: &str, field: &str, value: Value) {
    let mut object = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": RA,
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:01:00Z"},
        "spec": {
            "nodeSelector": {}, "frrConfigurationSelector": {"matchLabels": {"use": "pods"}},
            "networkSelectors": [{"networkSelectionType": "DefaultNetwork"}],
            "advertisements": ["PodNetwork"],
        },
    });
    object["spec"][field] = value;
    objects.put(object).unwrap();
}

/// A managed network of users, of namespace `shop`, with this `network` instead.
fn pink(objects: &mut Objects, network: Option<Value>) {
    let managed = json!({
        "topology": "Layer3",
        "layer3": {"role": "Primary", "subnets": [{"cidr": "10.60.0.0/15", "hostSubnet": 24}]},
        "transport": "NoOverlay", "noOverlay": {"outboundSNAT": "Enabled", "routing": "Managed"},
    });
    let network = network.unwrap_or(managed);
    let mut object = testkit::objects::network("pink", "2026-01-01T00:01:00Z", &network);
    object["spec"]["namespaceSelector"]["matchLabels"]["tenant"] = "shop".into();
    objects.put(object).unwrap();
    let shop = objects.get_mut("Namespace", "shop").unwrap();
    shop["metadata"]["labels"]["k8s.ovn.org/primary-user-defined-network"] = "".into();
}

fn egress_ip(objects: &mut Objects, node: &str, selector: Value) {
    let object = json!({
        "apiVersion": "k8s.ovn.org/v1", "kind": "EgressIP", "metadata": {"name": "astray"},
        "spec": {"egressIPs": ["172.30.9.2"], "namespaceSelector": selector},
        "status": {"items": [{"node": node, "egressIP": "172.30.9.2"}]},
    });
    objects.put(object).unwrap();
}

fn bad_selector() -> Value {
    json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})
}

fn spec<'a>(objects: &'a mut Objects, kind: &str, name: &str) -> &'a mut Value {
    &mut objects.get_mut(kind, name).unwrap()["spec"]
}

pub(crate) const FABRIC: &str = "RouteAdvertisements fabric:default";
pub(crate) const GREEN: &str = "RouteAdvertisements fabric:cluster_udn_green";
pub(crate) const TEAL: &str = "RouteAdvertisements fabric:cluster_udn_teal";
const PODS: &str = "RouteAdvertisements pods";
pub(crate) const BLUE: &str = "RouteAdvertisements blue";
const N25: &str = "Node/n25";
const EGRESS: &str = "RouteAdvertisements egress";
const ASTRAY: &str = "RouteAdvertisements astray";

/// A RouteAdvertisements serves all but what is named.
const LEFT_OUT: &[&str] = &["Accepted True Accepted", "Complete False LeftOut"];
/// It serves nobody anything new.
const REFUSED: &[&str] = &[
    "Accepted False ConfigurationError",
    "Complete False ConfigurationError",
];
const PENDING: &[&str] = &[
    "Accepted False ConfigurationPending",
    "Complete False ConfigurationPending",
];
const NOT_CREATED: &[&str] = &["NetworkCreated False NetworkNotSupported"];
