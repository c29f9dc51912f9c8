//! What the API server and FRR say, read with kubectl and vtysh.
//! In: words, a lab. Out: JSON, counts. Not here: what is expected of it.

use serde_json::Value;

use crate::harness::{Standing, command};

/// What kubectl prints as JSON; null where it fails.
pub(crate) fn kubectl(words: &[&str]) -> Value {
    let output = command(&[&["kubectl"], words].concat()).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Status and message of a condition of the only RouteAdvertisements.
pub(crate) fn condition(kind: &str) -> Option<(String, String)> {
    let list = kubectl(&["get", "routeadvertisements", "-o", "json"]);
    let conditions = list.pointer("/items/0/status/conditions")?.as_array()?;
    let word = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let found = conditions
        .iter()
        .find(|c| word(c, "type").as_deref() == Some(kind))?;
    Some((word(found, "status")?, word(found, "message")?))
}

/// BGP sessions of a node that are established; none where bgpd does not answer.
pub(crate) fn sessions(lab: &Standing, node: &str) -> usize {
    let sockets = lab.dir(node).join("frr").to_string_lossy().into_owned();
    let words = [
        "vtysh",
        "--vty_socket",
        &sockets,
        "-c",
        "show bgp ipv4 unicast summary json",
    ];
    let said = lab.try_exec(node, &words);
    said.text.matches("\"state\":\"Established\"").count()
}

/// Status, reason and message of a condition of a network in a node's NodeRoutes.
pub(crate) fn of_network(
    node: &str,
    network: &str,
    kind: &str,
) -> Option<(String, String, String)> {
    let routes = kubectl(&["get", "noderoutes", node, "-o", "json"]);
    let word = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let has = |value: &Value, key: &str, wanted: &str| word(value, key).as_deref() == Some(wanted);
    let networks = routes.pointer("/status/networks")?.as_array()?;
    let of_it = networks.iter().find(|one| has(one, "name", network))?;
    let conditions = of_it.get("conditions")?.as_array()?;
    let found = conditions.iter().find(|one| has(one, "type", kind))?;
    let (status, reason) = (word(found, "status")?, word(found, "reason")?);
    Some((status, reason, word(found, "message")?))
}
