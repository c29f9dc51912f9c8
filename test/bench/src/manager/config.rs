//! How large frr.conf becomes on the nodes.
//! In: the FRRConfigurations that the API server has. Out: KB and lines, of a route reflector and of a node that is none.
//! Invariant: the steps of frr-agent: select, merge, leave the node itself out, render.
//! Not here: loading it.

use std::collections::BTreeMap;

use frr::NodeInput;
use model::ObjectKey;
use model::frr::Source;
use model::node::Node;
use plan_cluster::fabric::roles::Role;

use super::cluster::{CONFIGURATIONS, Cluster};
use super::count;
use crate::report::Report;

pub(crate) async fn sizes(report: &mut Report, case: &str, cluster: &Cluster) {
    let sources: Vec<Source> = cluster
        .list(CONFIGURATIONS)
        .await
        .into_iter()
        .map(source)
        .collect();
    let nodes = cluster.nodes().await.into_iter().map(|object| {
        let object = serde_json::from_value(object).expect("a Node");
        api::decode_node(&object)
    });
    let nodes: Vec<Node> = nodes.collect();
    let roles = [
        (Role::Reflector, "a reflector"),
        (Role::Member, "a node that reflects nothing"),
    ];
    for (role, words) in roles {
        let Some(node) = nodes.iter().find(|node| Role::of(node) == Some(role)) else {
            continue;
        };
        let text = text(&sources, node);
        let name = format!("frr.conf of {words}");
        report.put(case, &name, "KB", count(text.len()) / 1000.0);
        report.put(
            case,
            &format!("{name}, lines"),
            "",
            count(text.lines().count()),
        );
    }
}

fn source(object: serde_json::Value) -> Source {
    let text = |path: &str| {
        let value = object.pointer(path).and_then(serde_json::Value::as_str);
        value.expect("a name").to_owned()
    };
    let key = ObjectKey::new(text("/metadata/namespace"), text("/metadata/name"));
    let read = serde_json::from_value(object).map_err(|error| error.to_string());
    api::decode_source(key, read)
}

fn text(sources: &[Source], node: &Node) -> String {
    let selected = frr::select(sources, &node.labels);
    let passwords = BTreeMap::new();
    let input = NodeInput {
        name: node.name.clone(),
        labels: &node.labels,
        hostname: node.hostname().to_owned(),
        objects: &selected.objects,
        passwords: &passwords,
    };
    let config = frr::merge(&input).expect("they merge");
    let config = frr::with_router_ids(config, node.is_ipv6_only());
    let (config, _) = frr::without_self(config, &node.own_addresses());
    frr::render(&config)
}
