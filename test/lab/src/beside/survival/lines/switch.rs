//! Rows of their own that others may have, and what they may do to the switch.

use super::{ALWAYS, Line, NEVER, thing};
use crate::beside::survival::scene::Scene;

pub(super) fn things(scene: &Scene) -> Vec<Line> {
    let mut all = Vec::new();
    for table in [
        "address_set",
        "port_group",
        "logical_router",
        "logical_switch",
    ] {
        let put = format!("ovn-nbctl create {table} name=survival");
        let there = format!("ovn-nbctl get {table} survival name");
        let away = format!("ovn-nbctl destroy {table} survival");
        all.push(thing(
            &format!("a row of {table}"),
            [&put, &there, &away],
            ALWAYS,
        ));
    }
    let switch = &scene.node;
    for (what, name, switch) in [
        ("a port of the node's switch", "survival", switch.clone()),
        (
            "a port of the outer switch",
            "survival-ext",
            format!("ext_{switch}"),
        ),
    ] {
        let put = format!("ovn-nbctl lsp-add {switch} {name}");
        let there = format!("ovn-nbctl get logical_switch_port {name} name");
        all.push(thing(
            what,
            [&put, &there, &format!("ovn-nbctl lsp-del {name}")],
            ALWAYS,
        ));
    }
    for of in ["open_vswitch .", "bridge br-ex"] {
        let put = format!("ovs-vsctl set {of} external_ids:survival=yes");
        let there = format!("ovs-vsctl get {of} external_ids:survival");
        let away = format!("ovs-vsctl remove {of} external_ids survival");
        all.push(thing(
            &format!("external_ids of {of}"),
            [&put, &there, &away],
            ALWAYS,
        ));
    }
    all.extend(bridge());
    all
}

fn bridge() -> [Line; 2] {
    let bridge = |words: &str, rest: &str| {
        format!("ovs-ofctl -O OpenFlow15 {words} unix:$OVS_RUNDIR/br-ex.mgmt {rest}")
    };
    let put = bridge("add-flow", "'table=7,priority=7,cookie=0x7,actions=drop'");
    let there = bridge("dump-flows", "cookie=0x7/-1 | grep -q cookie");
    let flow = thing("a flow of the outer bridge", [&put, &there, "true"], NEVER);
    let put = bridge("add-group", "group_id=77,type=all,bucket=actions=drop");
    let there = bridge("dump-groups", "| grep -q group_id=77");
    let away = bridge("del-groups", "group_id=77");
    let group = thing("a group of the outer bridge", [&put, &there, &away], ALWAYS);
    [flow, group]
}
