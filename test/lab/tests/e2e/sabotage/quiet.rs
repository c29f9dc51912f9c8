//! Ways to break line 7: writes of somebody, at each layer, while all should be quiet.

use super::bgp;
use crate::harness::{Standing, call};

/// Seconds of quiet in which something is done: far more than a few commands take, also on a machine with other jobs.
const QUIET: u64 = 20;

/// FRR refuses a neighbor that is itself, but not one that becomes itself.
pub(super) fn self_neighbor(lab: &Standing) {
    let node = lab.node(0);
    let underlay = lab.record("/values/underlays/0");
    let itself = format!("{}.77", underlay.rsplit_once('.').unwrap().0);
    let address = format!("{itself}/32");
    let as_number = lab.record("/values/as_number");
    for agent in ["node-agent", "frr-agent"] {
        lab.daemon("freeze", &node, agent);
    }
    bgp(lab, &[&format!("neighbor {itself} remote-as {as_number}")]);
    lab.exec(&node, &["ip", "address", "add", &address, "dev", "lo"]);
    let said = lab.prove(&["--only", "7", "--quiet", "1"]);
    lab.exec(&node, &["ip", "address", "del", &address, "dev", "lo"]);
    bgp(lab, &[&format!("no neighbor {itself}")]);
    for agent in ["node-agent", "frr-agent"] {
        lab.daemon("thaw", &node, agent);
    }
    said.assert_fails(7, "FRR");
    // frr.conf has no such neighbor either, which is another complaint of the same layer.
    let own = format!("bgpd of {node} has the neighbor {itself}, its own address");
    assert!(said.text.contains(&own), "no {own:?} in\n{}", said.text);
}

/// Not one of our accounts, and nothing that anybody of ours looks at.
pub(super) fn object_written_by_somebody(lab: &Standing) {
    let node = lab.node(1);
    let said = lab.disturb(QUIET, || {
        let said = call(&["kubectl", "annotate", "node", &node, "example.com/x=y"]);
        assert!(said.good, "{}", said.text);
    });
    said.assert_fails(7, "object");
    assert!(
        said.text.contains("lab-admin: patch nodes"),
        "{}",
        said.text
    );
    call(&["kubectl", "annotate", "node", &node, "example.com/x-"]);
}

/// Kernel, databases, bridge and FRR, by foreign tools and without a comment of ours.
#[expect(clippy::too_many_lines, reason = "one sequence of events")]
pub(super) fn written_below_the_api(lab: &Standing) {
    let node = lab.node(0);
    for agent in ["node-agent", "frr-agent"] {
        lab.daemon("freeze", &node, agent);
    }
    let flow = "table=9,priority=1,in_port=77";
    let add = format!("{flow} actions=drop");
    let said = lab.disturb(QUIET, || {
        lab.exec(
            &node,
            &["ip", "route", "add", "198.51.100.0/24", "dev", "lo"],
        );
        lab.exec(
            &node,
            &["ip", "route", "del", "198.51.100.0/24", "dev", "lo"],
        );
        // Through the server's own protocol: no tool's comment, and gone again before anybody compares.
        for operation in [
            r#"{"op":"insert","table":"Address_Set","row":{"name":"sabotage"}}"#,
            r#"{"op":"delete","table":"Address_Set","where":[["name","==","sabotage"]]}"#,
        ] {
            let transaction = format!(r#"["OVN_Northbound",{operation}]"#);
            let server = format!(
                "unix:{}/ovnnb_db.sock",
                lab.dir(&node).join("ovs").display()
            );
            lab.exec(&node, &["ovsdb-client", "transact", &server, &transaction]);
        }
        lab.exec(
            &node,
            &["ovs-vsctl", "set", "open", ".", "external_ids:sabotage=1"],
        );
        lab.exec(
            &node,
            &[
                "ovn-sbctl",
                "set",
                "SB_Global",
                ".",
                "external_ids:sabotage=1",
            ],
        );
        lab.exec(
            &node,
            &["ovs-ofctl", "-O", "OpenFlow15", "add-flow", "br-ex", &add],
        );
        lab.exec(
            &node,
            &[
                "ovs-ofctl",
                "-O",
                "OpenFlow15",
                "--strict",
                "del-flows",
                "br-ex",
                flow,
            ],
        );
        bgp(lab, &["bgp log-neighbor-changes"]);
    });
    bgp(lab, &["no bgp log-neighbor-changes"]);
    lab.exec(
        &node,
        &[
            "ovs-vsctl",
            "remove",
            "open",
            ".",
            "external_ids",
            "sabotage",
        ],
    );
    lab.exec(
        &node,
        &[
            "ovn-sbctl",
            "remove",
            "SB_Global",
            ".",
            "external_ids",
            "sabotage",
        ],
    );
    for agent in ["node-agent", "frr-agent"] {
        lab.daemon("thaw", &node, agent);
    }
    said.assert_fails(7, "FRR");
    for written in [
        format!("FRR: configuration of FRR on {node} changed: `bgp log-neighbor-changes`"),
        format!("kernel: kernel of {node}: 2 changes"),
        format!("OVN: database ovnnb of {node}: 2 records"),
        format!("OVN: database conf of {node}: "),
        format!("OVN: database ovnsb of {node}: 1 records"),
        format!("packets: flows of br-ex on {node}: 2 changes"),
    ] {
        assert!(
            said.text.contains(&written),
            "no {written:?} in\n{}",
            said.text
        );
    }
}

/// Sessions that are ended, and up again when somebody looks.
pub(super) fn sessions_cleared(lab: &Standing) {
    // What they write when a session goes is of other layers.
    let agents = || {
        let nodes = (0..3).map(|number| lab.node(number));
        nodes.flat_map(|node| ["node-agent", "frr-agent"].map(|agent| (node.clone(), agent)))
    };
    for (node, agent) in agents() {
        lab.daemon("freeze", &node, agent);
    }
    let node = lab.node(0);
    let folder = lab.dir(&node).join("frr").to_string_lossy().into_owned();
    let clear = ["vtysh", "--vty_socket", &folder, "-c", "clear bgp *"];
    let said = lab.disturb(QUIET, || drop(lab.exec(&node, &clear)));
    for (node, agent) in agents() {
        lab.daemon("thaw", &node, agent);
    }
    said.assert_fails(7, "FRR");
    for number in [1, 2] {
        let young = format!("FRR: {node} with {}: Established for ", lab.address(number));
        assert!(said.text.contains(&young), "no {young:?} in\n{}", said.text);
    }
    lab.recovers("1,5");
}

/// FRR is given what it runs already: nothing changes, but it was written.
pub(super) fn reload_of_the_same(lab: &Standing) {
    let node = lab.node(0);
    let folder = lab.dir(&node).join("frr").to_string_lossy().into_owned();
    let file = format!("{folder}/frr.conf");
    let again = lab
        .dir(&node)
        .join("again.conf")
        .to_string_lossy()
        .into_owned();
    std::fs::write(&again, "ip nht resolve-via-default\n").unwrap();
    let said = lab.disturb(QUIET, || {
        lab.exec(&node, &["vtysh", "--vty_socket", &folder, "-f", &again]);
        lab.exec(&node, &["touch", &file]);
    });
    said.assert_fails(7, "FRR");
    for written in [
        format!("frr.conf of {node} was written"),
        format!("bgpd of {node} logs that it read a configuration"),
    ] {
        assert!(
            said.text.contains(&written),
            "no {written:?} in\n{}",
            said.text
        );
    }
}

/// Nothing else is wrong.
pub(super) fn a_daemon_tells_of_a_panic(lab: &Standing) {
    let log = lab.dir(&lab.node(0)).join("node-agent.log");
    let before = std::fs::metadata(&log).unwrap().len();
    let file = || std::fs::File::options().append(true).open(&log).unwrap();
    std::io::Write::write_all(&mut file(), b"thread 'main' panicked at nothing\n").unwrap();
    let said = lab.prove(&["--only", "7", "--quiet", "1"]);
    file().set_len(before).unwrap();
    said.assert_fails(7, "lab");
}
