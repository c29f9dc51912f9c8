//! States over time.

use super::*;
use crate::samples::{mk_node, mk_world};

fn end(node: &str, peer: u8, state: &str) -> End {
    End {
        node: node.into(),
        peer: IpAddr::from([172, 30, 0, peer]),
        state: state.to_owned(),
    }
}

/// Both ends of n1 and n2.
fn both(a: &str, b: &str) -> Vec<End> {
    vec![end("n1", 2, a), end("n2", 1, b)]
}

fn down(pairs: &[(&str, &str)]) -> State {
    let pairs = pairs.iter().map(|(a, b)| ((*a).into(), (*b).into()));
    State::Down(pairs.collect())
}

fn unclear(pairs: &[(&str, &str)]) -> State {
    let pairs = pairs.iter().map(|(a, b)| ((*a).into(), (*b).into()));
    State::Unclear(pairs.collect())
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_pair_is_down_when_both_ends_have_tried_for_longer_than_30_seconds() {
    let world = mk_world();
    let n1_n2 = || down(&[("n1", "n2")]);
    // Each row: reports at second N, and the state then; one story a list.
    let stories: Vec<Vec<(u64, Vec<End>, State)>> = vec![
        vec![
            (0, both("Active", "Idle"), State::Pending),
            (20, both("Connect", "Active"), State::Pending),
            (30, both("Active", "Active"), State::Pending),
            (31, both("Active", "Connect"), n1_n2()),
            (90, both("Active", "Connect"), n1_n2()),
            (94, both("Established", "Connect"), State::Pending),
            (95, both("Established", "Established"), State::Up),
            (96, both("Active", "Active"), State::Pending),
            (120, both("Active", "Active"), State::Pending),
            (127, both("Active", "Active"), n1_n2()),
        ],
        vec![
            // An end that gets an answer begins again.
            (0, both("Active", "Active"), State::Pending),
            (25, both("OpenSent", "Active"), State::Pending),
            (40, both("Active", "Active"), State::Pending),
            (60, both("Active", "Active"), State::Pending),
            (71, both("Active", "Active"), n1_n2()),
        ],
        vec![
            // One end alone tells nothing: the other node may be gone.
            (0, vec![end("n1", 2, "Active")], State::Pending),
            (100, vec![end("n1", 2, "Active")], unclear(&[("n1", "n2")])),
        ],
        vec![
            (0, vec![], State::Unknown),
            // Neither a router outside nor a node that is gone is one of a pair.
            (
                9,
                vec![end("n1", 99, "Active"), end("gone", 1, "Active")],
                State::Unknown,
            ),
        ],
        vec![
            (
                0,
                [
                    both("Active", "Active"),
                    vec![end("n1", 3, "Established"), end("n3", 1, "Established")],
                ]
                .concat(),
                State::Pending,
            ),
            (
                40,
                [
                    both("Active", "Active"),
                    vec![end("n1", 3, "Established"), end("n3", 1, "Established")],
                ]
                .concat(),
                n1_n2(),
            ),
        ],
    ];
    for story in stories {
        let mut trying = Trying::new();
        for (second, ends, wanted) in story {
            let seen = evaluate(&world, &ends, &trying, Duration::from_secs(second));
            assert_eq!(seen.state, wanted, "at {second}: {ends:?}");
            trying = seen.trying;
        }
    }
}

#[test]
fn another_look_is_due_when_the_patience_ends() {
    let world = mk_world();
    let ends = both("Active", "Active");
    let first = evaluate(&world, &ends, &Trying::new(), Duration::from_secs(5));
    let at = first.again_at.unwrap();
    let second = evaluate(&world, &ends, &first.trying, at);
    assert_eq!(second.state, down(&[("n1", "n2")]));
    assert_eq!(second.again_at, None);
}

#[test]
fn the_condition_names_the_first_five_pairs_and_a_count_and_the_event_comes_once() {
    let mut world = mk_world();
    for n in 4..=5 {
        let node = mk_node(&format!("n{n}"), &format!("172.30.0.{n}"), None, None);
        world.nodes.insert(node.name.clone(), node);
    }
    let mut ends = Vec::new();
    for a in 1..=5_u8 {
        for b in (1..=5).filter(|b| *b != a) {
            ends.push(end(&format!("n{a}"), b, "Active"));
        }
    }
    let first = evaluate(&world, &ends, &Trying::new(), Duration::ZERO);
    assert_eq!(condition(&first.state, None), None, "nothing is said yet");
    let second = evaluate(&world, &ends, &first.trying, Duration::from_secs(31));
    let bad = condition(&second.state, None).unwrap();
    assert!(!bad.status);
    for words in [
        "10 pairs of nodes",
        "n1 and n2, n1 and n3, n1 and n4, n1 and n5, n2 and n3, and 5 more",
        "-p 0",
    ] {
        assert!(bad.message.contains(words), "{bad:?}");
    }
    let reported = event(None, Some(&bad)).unwrap();
    assert!(reported.warning && reported.reason == "SessionsDown");
    assert_eq!(event(Some(&bad), Some(&bad)), None);
    assert_eq!(
        condition(&State::Pending, Some(bad.clone())),
        Some(bad.clone())
    );
    let good = condition(&State::Up, Some(bad.clone())).unwrap();
    assert!(good.status);
    assert!(!event(Some(&bad), Some(&good)).unwrap().warning);
    assert_eq!(event(None, Some(&good)), None);
    assert_eq!(event(Some(&good), None), None);
}

#[test]
fn what_nodes_that_are_not_ready_report_is_not_known_at_once() {
    for ready in [Some(false), None] {
        let mut world = mk_world();
        world.nodes.get_mut(&NodeName::from("n2")).unwrap().ready = ready;
        let ends = both("Established", "Established");
        let seen = evaluate(&world, &ends, &Trying::new(), Duration::ZERO);
        assert_eq!(seen.state, unclear(&[("n1", "n2")]));
        let up = condition(&State::Up, None).unwrap();
        let now = condition(&seen.state, Some(up.clone())).unwrap();
        assert_eq!((now.word(), up.word()), ("Unknown", "True"));
        assert!(now.message.contains("n1 and n2"), "{now:?}");
        let reported = event(Some(&up), Some(&now)).unwrap();
        assert!(reported.warning && reported.reason == "ReportsMissing");
        assert_eq!(event(Some(&now), Some(&now)), None);
        let bad = condition(&down(&[("n1", "n2")]), None).unwrap();
        assert_eq!(
            event(Some(&now), Some(&bad)).unwrap().reason,
            "SessionsDown"
        );
    }
}

#[test]
fn one_established_end_alone_is_never_good() {
    let world = mk_world();
    for ends in [
        both("Established", "Active"),
        vec![end("n1", 2, "Established")],
    ] {
        let mut trying = Trying::new();
        for second in [0, 40, 100] {
            let seen = evaluate(&world, &ends, &trying, Duration::from_secs(second));
            assert_ne!(seen.state, State::Up, "at {second}: {ends:?}");
            trying = seen.trying;
        }
    }
}
