//! Rows of a node that things are put beside and into.
//!
//! In: its OVN_Northbound, the kernel's routes, the lab's subnets. Out: names of rows, addresses. Not here: what is put.

use anyhow::{Context, Result};

use crate::look::{Row, router_rows, rows, word};
use crate::state::{Lab, Node};

/// Rows of the node that things are put beside or into.
pub(super) struct Scene {
    pub(super) node: String,
    pub(super) gateway: String,
    /// Prefix of the cluster's pods, of this node's and of another node's.
    pub(super) cluster: String,
    pub(super) own: String,
    pub(super) other: String,
    /// Address of the management port, of the cluster router on the node's switch, of the gateway on the join switch.
    pub(super) port: String,
    pub(super) router: String,
    pub(super) join: String,
    /// A next hop outside.
    pub(super) hop: String,
    pub(super) of_pods: String,
    pub(super) of_join: String,
    pub(super) default: String,
    pub(super) to_cluster: String,
    pub(super) by_source: String,
    /// What packets of the node's pods are routed by.
    pub(super) source: String,
    pub(super) to_other: String,
    pub(super) policy: String,
    pub(super) node_ips: String,
    /// A route of BGP: prefix and next hop.
    pub(super) bgp: (String, String),
}

/// The cluster router.
pub(super) const CLUSTER: &str = "ovn_cluster_router";

impl Scene {
    pub(super) fn of(lab: &Lab, node: &Node) -> Result<Self> {
        let name = node.name.clone();
        let gateway = format!("GR_{name}");
        let of = |router: &str, column: &str, table: &str| {
            router_rows(lab, &name, router, column, table)
        };
        let routes = of(&gateway, "static_routes", "logical_router_static_route")?;
        let cluster = of(CLUSTER, "static_routes", "logical_router_static_route")?;
        let nat = of(&gateway, "nat", "nat")?;
        let is_pod = |row: &&Row| word(row, "logical_ip").contains('/');
        let of_pods = find(&nat, "a row of pods' translation", is_pod)?;
        let of_join = find(&nat, "a row of the join address", |row| !is_pod(row))?;
        let whole = word(of_pods, "logical_ip");
        let to = |to: &str, routes: &[Row]| -> Result<Row> {
            let is_it =
                |row: &&Row| word(row, "ip_prefix") == to && word(row, "policy") != "src-ip";
            Ok(find(routes, &format!("a route to {to}"), is_it)?.clone())
        };
        let default = to("0.0.0.0/0", &routes)?;
        let is_by_source = |row: &&Row| word(row, "policy") == "src-ip";
        let by_source = find(&cluster, "a route by source", is_by_source)?;
        let other = lab.nodes.iter().find(|other| other.name != name);
        let other = subnet(lab, &other.context("one node alone")?.name)?;
        let policies = rows(lab, &name, "logical_router_policy", &["priority=1004"])?;
        let node_ips = "external_ids:\"k8s.ovn.org/name\"=node-ips";
        let sets = rows(lab, &name, "address_set", &[node_ips])?;
        let pod = lab.pod(&name).context("a node without a pod")?;
        let address = pod.addresses.first().context("a pod without address")?;
        let bgp = crate::look::kernel_routes(lab, &name)?;
        let bgp = bgp.first().context("no route of BGP")?;
        let uuid = |row: &Row| word(row, "_uuid");
        Ok(Self {
            own: subnet(lab, &name)?,
            port: address.management().to_string(),
            router: address.gateway().to_string(),
            join: word(of_join, "logical_ip"),
            hop: word(&default, "nexthop"),
            of_pods: uuid(of_pods),
            of_join: uuid(of_join),
            default: uuid(&default),
            to_cluster: uuid(&to(&whole, &routes)?),
            by_source: uuid(by_source),
            source: word(by_source, "ip_prefix"),
            to_other: uuid(&to(&other, &cluster)?),
            policy: uuid(policies.first().context("no policy 1004")?),
            node_ips: uuid(sets.first().context("no address set node-ips")?),
            bgp: (bgp.0.to_string(), bgp.1.to_string()),
            cluster: whole,
            other,
            gateway,
            node: name,
        })
    }
}

fn subnet(lab: &Lab, node: &str) -> Result<String> {
    let subnets = crate::objects::subnets(lab)?;
    let subnets = subnets.get(node).context("a Node without subnets")?;
    Ok(subnets.first().context("no subnet")?.to_string())
}

fn find<'a>(rows: &'a [Row], what: &str, is_it: impl Fn(&&Row) -> bool) -> Result<&'a Row> {
    rows.iter()
        .find(is_it)
        .with_context(|| format!("no row is {what}"))
}
