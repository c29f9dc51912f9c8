//! What a node held before our daemons came beside OVN-Kubernetes, and what of it is otherwise.
//!
//! In: a node's databases, links, addresses, rules, routes, sysctls, packet filter, and its Node's annotations. Out: the lines that are
//! there now and were not, and the other way round; which of them are not our daemons'.
//! Not here: counters, and what counts writes; OVN_Southbound, which ovn-northd and ovn-controller make of the rest; flows of bridges.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};

use crate::apiserver::get;
use crate::look;
use crate::node::ovs::{nbctl, vsctl};
use crate::run::tool;
use crate::state::{Lab, Node, text, write_whole};

const NORTH: &str = "OVN_Northbound";
const RULES: &str = "rules";
const ROUTES: &str = "routes";
const OWN_TABLE: &str = "table inet noverlay";
const NODE: &str = "annotations of the Node";

/// Tables that change by themselves: how often was written, who is connected; and routers, which are looked at by columns.
const APART: [&str; 3] = ["NB_Global", "Connection", "Logical_Router"];
/// Columns of a router but its policies, which are told one by one.
const OF_ROUTER: &str = "--columns=_uuid,name,enabled,ports,static_routes,nat,load_balancer,load_balancer_group,copp,options,external_ids";
/// What an agent that runs says of its host, whatever it leads where.
pub(super) const HOST_MTU: &str = "noverlay.io/host-mtu";

/// Lines of each part, and how often each is there.
type Lines = BTreeMap<String, BTreeMap<String, usize>>;

/// What is otherwise, by part: lines with `+` that were not there, with `-` that are there no more.
pub(crate) type Difference = BTreeMap<String, Vec<String>>;

/// Remembers what a node holds.
pub(super) fn remember(lab: &Lab, node: &Node) -> Result<()> {
    let found = serde_json::to_string(&look(lab, node)?)?;
    write_whole(&file(lab, node), &found)
}

/// What is otherwise than it was found.
pub(crate) fn difference(lab: &Lab, node: &Node) -> Result<Difference> {
    let file = file(lab, node);
    let before = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    let before: Lines = serde_json::from_str(&before)?;
    Ok(between(&before, &look(lab, node)?))
}

/// In one line: how much of which part.
pub(crate) fn counted(difference: &Difference) -> String {
    let parts = difference
        .iter()
        .map(|(part, lines)| format!("{part} {} lines", lines.len()));
    parts.collect::<Vec<_>>().join(", ")
}

/// The same where the node's agent runs.
pub(crate) fn but_for_running_agents(difference: Difference) -> Difference {
    let of_agent = |part: &str, line: &String| part == NODE && line.contains(HOST_MTU);
    let kept = difference.into_iter().map(|(part, lines)| {
        let lines = lines.into_iter().filter(|line| !of_agent(&part, line));
        let lines: Vec<String> = lines.collect();
        (part, lines)
    });
    kept.filter(|(_, lines)| !lines.is_empty()).collect()
}

/// What is otherwise and not by us: our rows bear our marker, our rules and routes our protocol, and BGP's routes are FRR's. Of others'
/// rows the cluster router's alone refers to ours, by more policies than it had.
pub(crate) fn strangers(difference: &Difference) -> Vec<String> {
    let is_ours = |part: &str, line: &str| match part {
        NORTH => {
            line.contains("noverlay.io/owner") || line.starts_with("+ policy of ovn_cluster_router")
        }
        RULES => line.starts_with("+ ") && line.contains("proto 78"),
        ROUTES => {
            let words = ["proto 78", "proto bgp", "nexthop via"];
            line.starts_with("+ ") && words.iter().any(|word| line.contains(word))
        }
        OWN_TABLE => line.starts_with("+ "),
        NODE => line.contains("noverlay.io/"),
        _ => false,
    };
    let all = difference.iter().flat_map(|(part, lines)| {
        let strange = lines.iter().filter(|line| !is_ours(part, line));
        strange.map(move |line| format!("{part}: {line}"))
    });
    all.collect()
}

fn file(lab: &Lab, node: &Node) -> std::path::PathBuf {
    lab.node_dir(&node.name).join("found.json")
}

fn between(before: &Lines, now: &Lines) -> Difference {
    let mut all = Difference::new();
    for part in before.keys().chain(now.keys()) {
        let of = |lines: &Lines| lines.get(part).cloned().unwrap_or_default();
        let (before, now) = (of(before), of(now));
        let more = |a: &BTreeMap<String, usize>, b: &BTreeMap<String, usize>, sign: char| {
            let count = |lines: &BTreeMap<String, usize>, line: &String| {
                lines.get(line).copied().unwrap_or_default()
            };
            let lines = a.keys().filter(|line| count(a, line) > count(b, line));
            lines
                .map(|line| format!("{sign} {line}"))
                .collect::<Vec<_>>()
        };
        let lines = [more(&now, &before, '+'), more(&before, &now, '-')].concat();
        if !lines.is_empty() {
            all.insert(part.clone(), lines);
        }
    }
    all
}

fn look(lab: &Lab, node: &Node) -> Result<Lines> {
    let inside = |words: [&str; 3]| {
        let tool = tool(words[0]).args(words.into_iter().skip(1).filter(|word| !word.is_empty()));
        tool.inside(&lab.namespace(&node.name)).run()
    };
    let shell = |text: &str| inside(["sh", "-c", text]);
    let sysctls = "grep -rs . /proc/sys/net/ipv4/conf /proc/sys/net/ipv6/conf || true";
    let filter = inside(["nft", "-s", "list ruleset"])?;
    let (own, others) = split_table(&filter);
    let parts = [
        (NORTH, databases(lab, node)?),
        ("Open_vSwitch", switches(lab, node)?),
        ("links and addresses", shell("ip -o link; ip -o address")?),
        (RULES, shell("ip rule show; ip -6 rule show")?),
        (
            ROUTES,
            shell("ip route show table all; ip -6 route show table all")?,
        ),
        ("sysctls", shell(sysctls)?),
        ("packet filter", others),
        (OWN_TABLE, own),
        (NODE, annotations(lab, node)?),
    ];
    let counted = |text: String| {
        let mut lines = BTreeMap::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            *lines.entry(line.to_owned()).or_default() += 1;
        }
        lines
    };
    let parts = parts.map(|(part, text)| (part.to_owned(), counted(text)));
    Ok(parts.into())
}

/// All rows of OVN_Northbound.
fn databases(lab: &Lab, node: &Node) -> Result<String> {
    let socket = text(&lab.ovs_dir(&node.name).join("ovnnb_db.sock"));
    let server = format!("unix:{socket}");
    let north = tool("ovsdb-client").args(["--format=csv", "dump", &server, NORTH]);
    let global = [
        "--bare",
        "--columns=name,options,external_ids",
        "list",
        "NB_Global",
    ];
    let global = nbctl(lab, &node.name).args(global).run()?;
    let router = [
        "--format=csv",
        "--no-headings",
        OF_ROUTER,
        "list",
        "logical_router",
    ];
    let router = nbctl(lab, &node.name).args(router).run()?;
    let mut policies = String::new();
    for router in look::rows(lab, &node.name, "logical_router", &[])? {
        let name = look::word(&router, "name");
        for policy in look::members(&router, "policies") {
            writeln!(policies, "policy of {name}: {policy}")?;
        }
    }
    Ok([rows(&north.run()?), router, policies, global].join("\n"))
}

/// Of the switch what does not count.
fn switches(lab: &Lab, node: &Node) -> Result<String> {
    let mut all = String::new();
    for table in ["Open_vSwitch", "Bridge", "Port", "Interface"] {
        let columns = match table {
            "Open_vSwitch" => "--columns=external_ids,other_config",
            // Without external_ids, where ovn-controller keeps its conntrack zones.
            "Bridge" => "--columns=name,ports,controller,fail_mode,other_config",
            "Port" => "--columns=name,interfaces,tag,external_ids,other_config",
            _ => "--columns=name,type,options,external_ids,other_config",
        };
        let words = ["--format=csv", "--no-headings", columns, "list", table];
        all.push_str(&vsctl(lab, &node.name).args(words).run()?);
    }
    Ok(all)
}

fn annotations(lab: &Lab, node: &Node) -> Result<String> {
    let object = get(lab, &format!("/api/v1/nodes/{}", node.name))?;
    let all = object.pointer("/metadata/annotations");
    let all = all.and_then(serde_json::Value::as_object).cloned();
    let all = all.unwrap_or_default().into_iter();
    let lines: Vec<String> = all.map(|(key, value)| format!("{key}={value}")).collect();
    Ok(lines.join("\n"))
}

/// Our table of the packet filter, and everything else.
pub(crate) fn split_table(ruleset: &str) -> (String, String) {
    let (mut own, mut others, mut is_own) = (String::new(), String::new(), false);
    for line in ruleset.lines() {
        if line.starts_with("table ") {
            is_own = line.starts_with("table inet noverlay ");
        }
        let text = if is_own { &mut own } else { &mut others };
        text.push_str(line);
        text.push('\n');
    }
    (own, others)
}

/// The dump without tables that are looked at otherwise. Each begins with a line `NAME table` and ends with an empty one.
fn rows(dump: &str) -> String {
    let tables = dump.split("\n\n");
    let stays = |table: &&str| {
        let name = table.trim_start().split(' ').next().unwrap_or_default();
        !APART.contains(&name)
    };
    tables.filter(stays).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(words: &[&str]) -> Lines {
        let mut lines = BTreeMap::new();
        for word in words {
            *lines.entry((*word).to_owned()).or_default() += 1;
        }
        [("rules".to_owned(), lines)].into()
    }

    #[test]
    fn lines_that_came_and_went_are_told_and_how_often_a_line_is_there_counts() {
        let before = lines(&["a", "b", "b"]);
        assert_eq!(between(&before, &before), Difference::new());
        let difference = between(&before, &lines(&["b", "c"]));
        assert_eq!(difference.get("rules").unwrap(), &["+ c", "- a", "- b"]);
        assert_eq!(counted(&difference), "rules 3 lines");
        let difference = between(&Lines::new(), &lines(&["a"]));
        assert_eq!(difference.get("rules").unwrap(), &["+ a"]);
    }

    #[test]
    fn tables_that_are_looked_at_otherwise_are_left_out() {
        let dump = "ACL table\n_uuid,action\n1,allow\n\nLogical_Router table\n_uuid\n4\n\nNB_Global table\n_uuid,nb_cfg\n2,7\n\nNAT table\n_uuid\n3\n";
        assert_eq!(
            rows(dump),
            "ACL table\n_uuid,action\n1,allow\nNAT table\n_uuid\n3\n"
        );
    }

    #[test]
    fn what_is_otherwise_and_bears_no_mark_of_ours_is_a_strangers() {
        let mut difference = Difference::new();
        for (part, line) in [
            (NORTH, "+ 1,10,noverlay.io/owner=default"),
            (NORTH, "+ policy of ovn_cluster_router: 2"),
            (NORTH, "- policy of ovn_cluster_router: 4"),
            (NORTH, "+ policy of GR_n1: 5"),
            (NORTH, "- 3,ovn_cluster_router,8"),
            (RULES, "+ 2898: from all lookup main proto 78"),
            (RULES, "+ 100: from all lookup main"),
            (RULES, "- 200: from all lookup main proto 78"),
            (ROUTES, "+ 10.128.1.0/24 via 172.30.0.2 dev br-ex proto bgp"),
            (ROUTES, "+ 10.128.1.0/24 via 172.30.0.2 dev br-ex"),
            ("sysctls", "+ /proc/sys/net/ipv4/conf/br-ex/forwarding:1"),
            (OWN_TABLE, "+ chain raw {"),
            ("packet filter", "- table ip docker {"),
            (NODE, "+ noverlay.io/underlay-ready={}"),
            (NODE, "- k8s.ovn.org/node-id=2"),
        ] {
            let lines: &mut Vec<String> = difference.entry(part.to_owned()).or_default();
            lines.push(line.to_owned());
        }
        let strange = strangers(&difference);
        assert_eq!(strange.len(), 9, "{strange:#?}");
        let ours = ["noverlay", "+ policy of ovn_c", "2898", "bgp", "chain raw"];
        let is_ours = |line: &&String| ours.iter().any(|word| line.contains(word));
        assert_eq!(strange.iter().find(is_ours), None);
    }

    #[test]
    fn what_an_agent_that_runs_says_of_its_host_is_told_when_it_has_gone() {
        let line = |text: &str| vec![text.to_owned()];
        let mtu = || (NODE.to_owned(), line("+ noverlay.io/host-mtu=1500"));
        let rule = (RULES.to_owned(), line("+ 2898: proto 78"));
        let difference: Difference = [mtu(), rule.clone()].into();
        assert_eq!(but_for_running_agents(difference), [rule].into());
        assert!(but_for_running_agents([mtu()].into()).is_empty());
    }

    #[test]
    fn our_table_is_told_from_others() {
        let ruleset = "table ip nat {\n\tchain a {\n\t}\n}\ntable inet noverlay {\n\tset b {\n\t}\n}\ntable inet noverlay-lab {\n}\n";
        let (own, others) = split_table(ruleset);
        assert_eq!(own, "table inet noverlay {\n\tset b {\n\t}\n}\n");
        assert!(others.contains("ip nat") && others.contains("noverlay-lab"));
        assert!(!others.contains("set b"));
    }
}
