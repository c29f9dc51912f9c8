//! What an administrator reads while the topology changes.

use std::net::IpAddr;

use super::*;
use crate::fabric::roles::ROLE_LABEL;
use crate::samples::{mk_node, mk_world};

/// Members n1.. of the fabric, all Ready.
fn mk_members(count: u8) -> World {
    let mut world = mk_world();
    world.nodes.clear();
    for n in 1..=count {
        let mut node = mk_node(&format!("n{n}"), &format!("172.30.0.{n}"), None, None);
        let labels = &mut node.labels;
        labels.insert(ROLE_LABEL.to_owned(), "member".to_owned());
        world.nodes.insert(node.name.clone(), node);
    }
    world
}

/// Both ends of the sessions of these pairs.
fn established(pairs: &[(u8, u8)]) -> Vec<End> {
    let end = |node: u8, peer: u8| End {
        node: NodeName::from(format!("n{node}").as_str()),
        peer: IpAddr::from([172, 30, 0, peer]),
        state: "Established".to_owned(),
    };
    let ends = pairs.iter().flat_map(|(a, b)| [end(*a, *b), end(*b, *a)]);
    ends.collect()
}

fn names(names: &[&str]) -> BTreeSet<NodeName> {
    names.iter().map(|name| NodeName::from(*name)).collect()
}

fn says(states: &[(&str, Reported)]) -> BTreeMap<NodeName, Reported> {
    let states = states
        .iter()
        .map(|(name, state)| (NodeName::from(*name), *state));
    states.collect()
}

/// What is missing of n1 and n2, which are to reflect for these sessions and reports.
fn of_two(world: &World, pairs: &[(u8, u8)], states: &[(&str, Reported)]) -> String {
    let awaited = Awaited::Reflectors(names(&["n1", "n2"]));
    let waiting = waiting(world, &awaited, &established(pairs), &says(states));
    assert_eq!(waiting.reason, "RouteReflectorsAwaited");
    let beginning = "sessions and route reflectors of before stay until n1, n2 are reported to reflect the routes of the managed BGP fabric: ";
    let rest = waiting.message.strip_prefix(beginning);
    rest.unwrap_or_else(|| panic!("{}", waiting.message))
        .to_owned()
}

/// All sessions of four nodes with n1 and n2.
const ALL: [(u8, u8); 5] = [(1, 2), (1, 3), (1, 4), (2, 3), (2, 4)];

#[test]
fn each_reflector_is_named_with_what_it_lacks() {
    use Reported::{Empty, Missing, Reflects, ReflectsNot, Unread};
    let world = mk_members(4);
    let limit = " (frr-k8s stores no FRRNodeState that is larger than 1 MiB)";
    for (states, expected) in [
        (
            [("n1", Reflects), ("n2", Unread)],
            "FRRNodeState n2 cannot be read".to_owned(),
        ),
        (
            [("n1", Missing), ("n2", Reflects)],
            format!("there is no FRRNodeState n1{limit}"),
        ),
        (
            [("n1", Reflects), ("n2", Empty)],
            format!("FRRNodeState n2 has no runningConfig{limit}"),
        ),
        (
            [("n1", ReflectsNot), ("n2", Empty)],
            format!(
                "runningConfig of FRRNodeState n1 has no prefix list noverlay-announced with all pod subnets; FRRNodeState n2 has no runningConfig{limit}"
            ),
        ),
        (
            [("n1", Reflects), ("n2", Reflects)],
            "nothing is missing, the routes get some seconds to arrive".to_owned(),
        ),
    ] {
        assert_eq!(of_two(&world, &ALL, &states), expected);
    }
    // What was seen to reflect is not looked at again.
    assert_eq!(
        of_two(&world, &ALL, &[]),
        "nothing is missing, the routes get some seconds to arrive"
    );
}

#[test]
fn members_that_a_reflector_has_no_session_with_are_named_before_its_configuration_is_looked_at() {
    let world = mk_members(4);
    let some = [(1, 2), (1, 3), (1, 4), (2, 3)];
    assert_eq!(
        of_two(&world, &some, &[("n1", Reported::Reflects)]),
        "node n2 and n4 do not both report their BGP session as established"
    );
    // One end alone is not enough.
    let mut ends = established(&some);
    ends.extend(established(&[(2, 4)]).into_iter().take(1));
    let awaited = Awaited::Reflectors(names(&["n1", "n2"]));
    let one = waiting(&world, &awaited, &ends, &BTreeMap::new());
    assert!(
        one.message
            .ends_with("node n2 and n4 do not both report their BGP session as established"),
        "{one:?}"
    );
    assert_eq!(
        of_two(&world, &[(1, 3), (1, 4)], &[]),
        "node n2 is not Ready or reports no established BGP session"
    );
    assert_eq!(
        of_two(&world, &[], &[]),
        "no BGPSessionState of a node that is Ready says that a session is established"
    );
}

#[test]
fn five_members_are_named_and_no_number_of_the_rest() {
    let sessions = |world: &World, last: u8| {
        // All with n1, and among themselves; none with n2 but that of n1.
        let mut pairs = vec![(1, 2)];
        pairs.extend((3..=last).map(|n| (1, n)));
        of_two(world, &pairs, &[])
    };
    let seven = sessions(&mk_members(7), 7);
    assert_eq!(
        seven,
        "node n2 and n3, n4, n5, n6, n7 do not both report their BGP session as established"
    );
    let (eight, nine) = (sessions(&mk_members(8), 8), sessions(&mk_members(9), 9));
    assert_eq!(
        eight,
        "node n2 and n3, n4, n5, n6, n7 and more do not both report their BGP session as established"
    );
    assert_eq!(eight, nine);
}

#[test]
fn a_reflector_that_is_not_ready_is_waited_for_only_where_two_others_are_not_enough() {
    let mut world = mk_members(4);
    let n2 = NodeName::from("n2");
    world.nodes.get_mut(&n2).unwrap().ready = Some(false);
    let pairs = [(1, 3), (1, 4)];
    assert_eq!(
        of_two(&world, &pairs, &[("n1", Reported::Reflects)]),
        "node n2 is not Ready"
    );
    assert_eq!(
        of_two(&world, &pairs, &[("n1", Reported::Unread)]),
        "FRRNodeState n1 cannot be read"
    );
    let three = Awaited::Reflectors(names(&["n1", "n2", "n3"]));
    let pairs = established(&[(1, 3), (1, 4), (3, 4)]);
    let message = waiting(&world, &three, &pairs, &BTreeMap::new()).message;
    assert!(
        message.ends_with("nothing is missing, the routes get some seconds to arrive"),
        "{message}"
    );
}

#[test]
fn a_mesh_is_waited_for_by_the_pairs_that_have_no_session() {
    let world = mk_members(4);
    let of = |pairs: &[(u8, u8)]| {
        let waiting = waiting(
            &world,
            &Awaited::Mesh,
            &established(pairs),
            &BTreeMap::new(),
        );
        assert_eq!(waiting.reason, "FullMeshAwaited");
        let beginning = "the route reflectors of the managed BGP fabric stay until every two nodes are reported to have a session: ";
        let rest = waiting.message.strip_prefix(beginning).map(str::to_owned);
        rest.unwrap_or_else(|| panic!("{}", waiting.message))
    };
    assert_eq!(
        of(&ALL),
        "n3 and n4 do not both report theirs as established"
    );
    assert_eq!(
        of(&[(1, 2), (3, 4)]),
        "n1 and n3, n1 and n4, n2 and n3, n2 and n4 do not both report theirs as established"
    );
    let whole = [&ALL[..], &[(3, 4)]].concat();
    assert_eq!(
        of(&whole),
        "nothing is missing, the routes get some seconds to arrive"
    );
    assert_eq!(
        of(&[]),
        "no BGPSessionState of a node that is Ready says that a session is established"
    );
}

#[test]
fn the_condition_comes_with_the_first_wait_and_events_with_its_beginning_and_end() {
    assert_eq!(condition(None, None), None);
    let world = mk_members(4);
    let wait =
        |awaited: &Awaited, pairs| waiting(&world, awaited, &established(pairs), &BTreeMap::new());
    let awaited = Awaited::Reflectors(names(&["n1", "n2"]));
    let first = condition(Some(&wait(&awaited, &[])), None);
    let shown = first
        .as_ref()
        .map(|c| (c.kind, c.word(), c.reason.as_str()));
    assert_eq!(
        shown,
        Some(("TopologyInForce", "False", "RouteReflectorsAwaited"))
    );
    let begun = event(None, first.as_ref()).unwrap();
    assert_eq!(
        (begun.reason, begun.warning),
        ("RouteReflectorsAwaited", false)
    );
    assert_eq!(
        Some(begun.message),
        first.as_ref().map(|c| c.message.clone())
    );
    // Other words are no event; another reason is.
    let second = condition(Some(&wait(&awaited, &ALL)), first.clone());
    assert_ne!(second, first);
    assert_eq!(event(first.as_ref(), second.as_ref()), None);
    let mesh = condition(Some(&wait(&Awaited::Mesh, &ALL)), second.clone());
    assert_eq!(
        event(second.as_ref(), mesh.as_ref()).unwrap().reason,
        "FullMeshAwaited"
    );
    let done = condition(None, mesh.clone());
    let shown = done.as_ref().map(|c| (c.word(), c.reason.as_str()));
    assert_eq!(shown, Some(("True", "TopologyInForce")));
    assert_eq!(
        event(mesh.as_ref(), done.as_ref()).unwrap().reason,
        "TopologyInForce"
    );
    // It stays, and says nothing more.
    let still = condition(None, done.clone());
    assert_eq!(still, done);
    assert_eq!(event(done.as_ref(), still.as_ref()), None);
}

#[test]
fn hundreds_of_route_reflectors_make_no_text_that_the_api_refuses() {
    let mut world = mk_world();
    world.nodes.clear();
    let mut wanted = BTreeSet::new();
    for n in 0..600_u32 {
        let [_, _, high, low] = n.to_be_bytes();
        let name = format!("{}{n}", "n".repeat(240));
        let mut node = mk_node(&name, &format!("172.30.{high}.{low}"), None, None);
        let labels = &mut node.labels;
        labels.insert(ROLE_LABEL.to_owned(), "route-reflector".to_owned());
        wanted.insert(node.name.clone());
        world.nodes.insert(node.name.clone(), node);
    }
    let end = |peer: u8| End {
        node: wanted.iter().next().unwrap().clone(),
        peer: IpAddr::from([172, 30, 0, peer]),
        state: "Established".to_owned(),
    };
    let awaited = Awaited::Reflectors(wanted.clone());
    for ends in [vec![], vec![end(1)]] {
        for states in [Reported::Missing, Reported::ReflectsNot] {
            let reported = wanted.iter().map(|name| (name.clone(), states)).collect();
            let text = waiting(&world, &awaited, &ends, &reported).message;
            assert!((100..8000).contains(&text.len()), "{}: {text}", text.len());
        }
    }
    for node in world.nodes.values_mut().skip(1) {
        node.ready = Some(false);
    }
    let text = waiting(&world, &awaited, &[end(1)], &BTreeMap::new()).message;
    assert!((100..8000).contains(&text.len()), "{}: {text}", text.len());
}

#[test]
fn while_writes_are_refused_it_says_that_nothing_else_is_missing() {
    let mut world = mk_members(4);
    world.evidence.reflecting = names(&["n1", "n2"]);
    let text = "they are; FRRConfigurations or labels of Nodes are still to be written";
    assert_eq!(of_two(&world, &ALL, &[]), text);
    world.evidence.meshed = true;
    let mesh = waiting(&world, &Awaited::Mesh, &established(&ALL), &BTreeMap::new());
    assert!(mesh.message.ends_with(text), "{}", mesh.message);
}
