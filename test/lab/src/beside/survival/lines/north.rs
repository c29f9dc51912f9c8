//! Rows of routers, and values of OVN-Kubernetes' rows.

use super::{ALWAYS, BY_CHANCE, BY_IMPORT, BY_START, BY_SYNC, Line, Stands, thing};
use crate::beside::survival::scene::{CLUSTER, Scene};

/// A new row of a router.
fn row(
    (router, column, table): (&str, &str, &str),
    (what, columns): (&str, &str),
    stands: Stands,
) -> Line {
    let id = what.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let id = format!("{id}-{router}");
    let find = format!(
        "ovn-nbctl --bare --columns=_uuid find {table} {columns} external_ids:survival={id}"
    );
    let put = format!(
        "ovn-nbctl --id=@r create {table} {columns} external_ids:survival={id} -- add logical_router {router} {column} @r"
    );
    // A row that was rewritten does not stand.
    let there = format!("test -n \"$({find})\"");
    let away = format!(
        "for r in $({find}); do ovn-nbctl remove logical_router {router} {column} $r; done"
    );
    thing(
        &format!("{what} on {router}"),
        [&put, &there, &away],
        stands,
    )
}

#[expect(clippy::too_many_lines, reason = "a list of things")]
pub(super) fn routes(scene: &Scene) -> Vec<Line> {
    let to = |to: &str, hop: &str| format!("ip_prefix={to} nexthop={hop}");
    let by_source = |text: String| format!("{text} policy=src-ip");
    let imported = |text: String| {
        format!("{text} external_ids:\\\"k8s.ovn.org/owner-controller\\\"=RouteImport")
    };
    let (gateway, elsewhere) = (scene.gateway.as_str(), "203.0.113.0/24");
    let Scene {
        own,
        other,
        join,
        hop,
        ..
    } = scene;
    let all = [
        (
            gateway,
            "a route to another node's pods",
            to(other, hop),
            ALWAYS,
        ),
        (
            gateway,
            "a route marked as imported that the kernel does not have",
            imported(to(elsewhere, hop)),
            BY_IMPORT,
        ),
        (
            gateway,
            "a route of BGP once more",
            to(&scene.bgp.0, &scene.bgp.1),
            ALWAYS,
        ),
        (
            gateway,
            "a default route over another next hop",
            to("0.0.0.0/0", "198.18.0.1"),
            BY_SYNC,
        ),
        (
            gateway,
            "a route to the cluster's pods that discards",
            to(&scene.cluster, "discard"),
            BY_SYNC,
        ),
        (
            gateway,
            "a route to the node's own pods",
            to(own, join),
            BY_SYNC,
        ),
        (CLUSTER, "a route elsewhere", to(elsewhere, join), ALWAYS),
        (
            CLUSTER,
            "a route elsewhere by source",
            by_source(to(elsewhere, join)),
            ALWAYS,
        ),
        (
            CLUSTER,
            "a route to another node's pods",
            to(other, join),
            BY_START,
        ),
        (
            CLUSTER,
            "a route by the source of its own one",
            by_source(to(&scene.source, &scene.router)),
            BY_SYNC,
        ),
    ];
    let line = |(router, what, columns, stands): (&str, &str, String, Stands)| {
        let place = (router, "static_routes", "logical_router_static_route");
        row(place, (what, &columns), stands)
    };
    all.into_iter().map(line).collect()
}

pub(super) fn policies(scene: &Scene) -> Vec<Line> {
    let elsewhere = "ip4.dst == 203.0.113.9";
    let by_port = format!("inport == \"rtos-{}\" && {elsewhere}", scene.node);
    let all = [
        (
            "a policy 1004 by the node's port",
            1004,
            by_port.as_str(),
            BY_SYNC,
        ),
        ("a policy 1003 by the node's port", 1003, &by_port, ALWAYS),
        ("a policy 1005", 1005, elsewhere, ALWAYS),
        ("a policy 102", 102, elsewhere, ALWAYS),
    ];
    let line = |(what, priority, inside, stands): (&str, u32, &str, Stands)| {
        let columns = format!(
            "priority={priority} action=reroute nexthops={} match='{inside:?}'",
            scene.port
        );
        row(
            (CLUSTER, "policies", "logical_router_policy"),
            (what, &columns),
            stands,
        )
    };
    all.into_iter().map(line).collect()
}

pub(super) fn translations(scene: &Scene) -> Vec<Line> {
    let Scene {
        gateway,
        cluster,
        join,
        of_pods,
        ..
    } = scene;
    let of = |what: &str, logical: &str, stands| {
        let columns = format!("type=snat external_ip=203.0.113.1 logical_ip={logical}");
        row((gateway, "nat", "nat"), (what, &columns), stands)
    };
    let mut like_its_own = of("a translation of the cluster's pods", cluster, BY_START);
    // It was rewritten: nothing tells it from OVN-Kubernetes' own but its name.
    let find = format!("ovn-nbctl --bare --columns=_uuid find nat logical_ip=\\\"{cluster}\\\"");
    like_its_own.away = format!(
        "for r in $({find}); do test $r = {of_pods} || ovn-nbctl remove logical_router {gateway} nat $r; done"
    );
    vec![
        of("a translation of something else", "203.0.113.8", ALWAYS),
        like_its_own,
        of("a translation of the join address", join, BY_CHANCE),
    ]
}

/// A key more in a column, in the notation `TABLE ROW COLUMN`.
fn key(what: &str, place: &str, stands: Stands) -> Line {
    let put = format!("ovn-nbctl set {place}:survival=yes");
    let there = format!("ovn-nbctl get {place} | grep -qF survival=yes");
    let away = format!("ovn-nbctl remove {place} survival");
    thing(what, [&put, &there, &away], stands)
}

/// Another value of a column.
fn value(what: &str, place: &str, value: &str) -> Line {
    let put = format!("ovn-nbctl set {place}={value}");
    let there = format!("ovn-nbctl get {place} | grep -qF -- '{value}'");
    thing(what, [&put, &there, "true"], BY_SYNC)
}

#[expect(clippy::too_many_lines, reason = "a list of things")]
pub(super) fn values(scene: &Scene) -> Vec<Line> {
    let Scene {
        gateway,
        node,
        of_pods,
        of_join,
        default,
        by_source,
        policy,
        node_ips,
        ..
    } = scene;
    let route = |uuid: &str, column: &str| format!("logical_router_static_route {uuid} {column}");
    let keys = [
        (
            "external_ids of its translation of pods",
            format!("nat {of_pods} external_ids"),
            BY_SYNC,
        ),
        (
            "external_ids of the gateway router",
            format!("logical_router {gateway} external_ids"),
            BY_SYNC,
        ),
        (
            "an option of the gateway router",
            format!("logical_router {gateway} options"),
            BY_SYNC,
        ),
        (
            "an option of the gateway's outer port",
            format!("logical_router_port rtoe-{gateway} options"),
            BY_SYNC,
        ),
        (
            "external_ids of the cluster router",
            format!("logical_router {CLUSTER} external_ids"),
            BY_START,
        ),
        (
            "an option of the cluster router",
            format!("logical_router {CLUSTER} options"),
            BY_START,
        ),
        (
            "external_ids of the node's switch",
            format!("logical_switch {node} external_ids"),
            BY_START,
        ),
        (
            "other_config of the node's switch",
            format!("logical_switch {node} other_config"),
            BY_START,
        ),
        (
            "external_ids of its default route",
            route(default, "external_ids"),
            BY_START,
        ),
        (
            "an option of its default route",
            route(default, "options"),
            BY_START,
        ),
        (
            "external_ids of its policy 1004",
            format!("logical_router_policy {policy} external_ids"),
            ALWAYS,
        ),
        (
            "external_ids of NB_Global",
            "nb_global . external_ids".to_owned(),
            ALWAYS,
        ),
        (
            "an option of NB_Global",
            "nb_global . options".to_owned(),
            ALWAYS,
        ),
    ];
    let port_range = format!("nat {of_pods} external_port_range");
    let exempted = format!("nat {of_join} exempted_ext_ips");
    let hops = format!("logical_router_policy {policy} nexthops");
    let set = format!("address_set {node_ips} addresses");
    let put = format!("ovn-nbctl add {set} 203.0.113.7");
    let there = format!("ovn-nbctl get {set} | grep -qF 203.0.113.7");
    let keys = keys
        .iter()
        .map(|(what, place, stands)| key(what, place, *stands));
    keys.chain([
        value(
            "external_port_range of its translation of pods",
            &port_range,
            "1024-2048",
        ),
        value(
            "exempted_ext_ips of its translation of the join address",
            &exempted,
            node_ips,
        ),
        value(
            "another next hop of its route by source",
            &route(by_source, "nexthop"),
            "198.18.0.1",
        ),
        value("another next hop of its policy 1004", &hops, "198.18.0.1"),
        thing(
            "an address more in the set of nodes' addresses",
            [&put, &there, "true"],
            BY_SYNC,
        ),
    ])
    .collect()
}

/// Its rows that others take away.
pub(super) fn missing(scene: &Scene) -> Vec<Line> {
    let gateway = scene.gateway.as_str();
    let all = [
        (
            "its translation of pods",
            gateway,
            "nat",
            &scene.of_pods,
            BY_SYNC,
        ),
        (
            "its route to the cluster's pods",
            gateway,
            "static_routes",
            &scene.to_cluster,
            BY_SYNC,
        ),
        (
            "its route by source",
            CLUSTER,
            "static_routes",
            &scene.by_source,
            BY_SYNC,
        ),
        (
            "its policy 1004",
            CLUSTER,
            "policies",
            &scene.policy,
            BY_SYNC,
        ),
        (
            "its route to another node",
            CLUSTER,
            "static_routes",
            &scene.to_other,
            BY_START,
        ),
    ];
    let line = |(what, router, column, uuid, stands): (&str, &str, &str, &String, Stands)| {
        let put = format!("ovn-nbctl remove logical_router {router} {column} {uuid}");
        let there = format!("! ovn-nbctl get logical_router {router} {column} | grep -q {uuid}");
        thing(
            &format!("{what} taken away"),
            [&put, &there, "true"],
            stands,
        )
    };
    all.into_iter().map(line).collect()
}
