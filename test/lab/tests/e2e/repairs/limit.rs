//! A node that may import fewer routes than there are: it imports what fits and says so, and all of them when it may again.
//!
//! In: a lab in which all is well. Out: the same.

use std::time::Duration;

use serde_json::Value;

use super::PINGS;
use crate::cluster::kubectl;
use crate::harness::{Standing, wait};
use crate::test_node::{TestNode, readyz};

const SOON: Duration = Duration::from_secs(15);

/// The agent with a limit of one route, and without it again.
pub(super) fn of_routes(lab: &Standing) {
    let test_node = TestNode::of(lab, 0);
    let before = test_node.rows().unwrap();
    let routes = test_node.imported();
    assert_eq!(routes.len(), 2, "one for each other node: {routes:?}");
    let file = lab.config(&test_node.node, "node-agent");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        format!("{config}\n[limits]\nmax-imported-routes = 1\n"),
    )
    .unwrap();
    restart(lab, &test_node);
    let first: Vec<_> = routes.iter().take(1).cloned().collect();
    let fits = wait(SOON, || test_node.imported() == first);
    let reported = wait(SOON, || {
        within_limits(&test_node).as_deref() == Some("False")
    });
    // What was there goes back before anything can fail, so that the lab stays whole.
    std::fs::write(&file, config).unwrap();
    let seen = test_node.imported();
    let events = kubectl(&["get", "events", "-A", "-o", "json"]).to_string();
    restart(lab, &test_node);
    assert!(fits, "one route fits, the node has {seen:?}");
    assert!(
        reported,
        "NodeRoutes does not tell: {:?}",
        within_limits(&test_node)
    );
    assert!(
        events.contains("RouteLimitExceeded"),
        "no event tells of it"
    );
    let back = wait(SOON, || {
        test_node.rows().as_deref() == Some(before.as_str())
    });
    assert!(back, "not all routes are back: {:?}", test_node.imported());
    let passed = wait(SOON, || {
        within_limits(&test_node).as_deref() == Some("True")
    });
    assert!(passed, "NodeRoutes: {:?}", within_limits(&test_node));
    super::pods_ping(lab, PINGS);
}

fn restart(lab: &Standing, test_node: &TestNode<'_>) {
    lab.daemon("stop", &test_node.node, "node-agent");
    lab.daemon("start", &test_node.node, "node-agent");
    let ready = wait(SOON, || readyz(&test_node.node, 9101).0 == 200);
    assert!(ready, "{:?}", readyz(&test_node.node, 9101));
}

/// Status of the condition WithinLimits of the node's NodeRoutes.
fn within_limits(test_node: &TestNode<'_>) -> Option<String> {
    let object = kubectl(&["get", "noderoutes", &test_node.node, "-o", "json"]);
    let conditions = object
        .pointer("/status/networks/0/conditions")?
        .as_array()?
        .clone();
    let is = |c: &&Value| c.get("type").and_then(Value::as_str) == Some("WithinLimits");
    let found = conditions.iter().find(is)?;
    Some(found.get("status")?.as_str()?.to_owned())
}
