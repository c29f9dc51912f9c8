//! What answers mean.

use plan_node::paths::visit::*;

/// A way on which packets up to a size are answered.
struct Way {
    carries: u32,
    /// What a router says when it gets a larger one.
    says: Option<u32>,
    /// Requests that were sent.
    sent: Vec<u32>,
    /// Of these requests, by number from 0, none is answered.
    loses: Vec<usize>,
}

fn carrying(carries: u32) -> Way {
    Way {
        carries,
        says: None,
        sent: Vec::new(),
        loses: Vec::new(),
    }
}

impl Way {
    /// Visits it until the visit ends.
    fn visited(&mut self, size: u32, known: &mut Known) -> Verdict {
        let mut visit = Visit::new(size, known);
        while let Some(size) = visit.next() {
            assert!(self.sent.len() < 1000, "without an end");
            let is_lost = size > self.carries || self.loses.contains(&self.sent.len());
            self.sent.push(size);
            visit.heard(if is_lost {
                let hint = self.says.filter(|says| size > *says);
                Reply::Lost { hint }
            } else {
                Reply::Answered
            });
        }
        known.note(visit.verdict());
        known.verdict()
    }
}

fn visited(way: &mut Way, size: u32) -> Verdict {
    way.visited(size, &mut Known::default())
}

#[test]
fn a_way_that_carries_the_packet_costs_one_request() {
    let mut way = carrying(9000);
    assert_eq!(visited(&mut way, 9000), Verdict::Wide);
    assert_eq!(way.sent, [9000]);
}

#[test]
fn a_way_is_narrow_after_three_losses_while_small_packets_pass_and_what_passes_is_found_to_the_byte()
 {
    let mut way = carrying(1500);
    assert_eq!(visited(&mut way, 9000), Verdict::Narrow { passes: 1500 });
    let wanted = [
        9000, SMALL, 9000, SMALL, 9000, SMALL, 1500, 1501, 1501, 1500, 9000, 9000,
    ];
    assert_eq!(way.sent, wanted);
    for carries in [1280, 1281, 1400, 1499, 1501, 1502, 4470, 8998, 8999] {
        let mut way = carrying(carries);
        let wanted = Verdict::Narrow { passes: carries };
        assert_eq!(visited(&mut way, 9000), wanted);
        assert!(way.sent.len() < 40, "{carries}: {:?}", way.sent);
    }
    let largest = visited(&mut carrying(65_534), 65_535);
    assert_eq!(largest, Verdict::Narrow { passes: 65_534 });
}

#[test]
fn a_routers_word_is_tried_and_not_believed() {
    let mut way = carrying(1376);
    way.says = Some(1376);
    assert_eq!(visited(&mut way, 1500), Verdict::Narrow { passes: 1376 });
    assert_eq!(way.sent[6..], [1376, 1377, 1377, 1376, 1500, 1500]);
    for lie in [0, 1, 68, 1400, 1499, 4000, u32::MAX] {
        way.says = Some(lie);
        let found = visited(&mut way, 1500);
        assert_eq!(found, Verdict::Narrow { passes: 1376 }, "{lie}");
        way.sent.clear();
    }
}

#[test]
fn lost_packets_on_a_wide_way_are_no_narrow_way() {
    // Any two of the first requests, and a way that loses all for a while.
    for first in 0..8 {
        for second in 0..8 {
            let mut way = carrying(9000);
            way.loses = vec![first, second];
            let found = visited(&mut way, 9000);
            let fine = [Verdict::Wide, Verdict::Unanswered];
            assert!(fine.contains(&found), "{first} {second}: {found:?}");
        }
    }
    // Any three: those that are lost first need not be lost again.
    for first in 0..10 {
        for second in 0..10 {
            for third in 0..10 {
                let mut way = carrying(9000);
                way.loses = vec![first, second, third];
                let found = visited(&mut way, 9000);
                assert!(!matches!(found, Verdict::Narrow { .. }), "{:?}", way.loses);
            }
        }
    }
    // One that was narrow has been widened, and loses the first packet.
    let mut known = Known::default();
    known.note(Some(Verdict::Narrow { passes: 1500 }));
    let mut way = carrying(9000);
    way.loses = vec![0];
    assert_eq!(way.visited(9000, &mut known), Verdict::Wide);
    for until in 0..60 {
        let mut way = carrying(9000);
        way.loses = (0..until).collect();
        let found = visited(&mut way, 9000);
        assert!(!matches!(found, Verdict::Narrow { .. }), "{until}");
    }
}

#[test]
fn a_way_that_breaks_while_it_is_searched_is_not_narrow() {
    for from in 6..30 {
        let mut way = carrying(1400);
        way.loses = (from..1000).collect();
        let found = visited(&mut way, 9000);
        let narrow = Verdict::Narrow { passes: 1400 };
        assert!(found != Verdict::Wide, "{from}");
        if let Verdict::Narrow { .. } = found {
            assert_eq!(found, narrow, "{from}");
        }
    }
}

#[test]
fn who_answers_nothing_is_unanswered_and_then_costs_one_request_a_visit() {
    let (mut way, mut known) = (carrying(0), Known::default());
    assert_eq!(way.visited(9000, &mut known), Verdict::Unanswered);
    assert_eq!(way.visited(9000, &mut known), Verdict::Unanswered);
    assert_eq!(way.sent, [9000, SMALL, SMALL]);
    way.carries = 9000;
    assert_eq!(way.visited(9000, &mut known), Verdict::Wide);
}

#[test]
fn who_answers_small_requests_alone_filters_the_others() {
    for carries in [SMALL, 500, 1024, 1279] {
        assert_eq!(visited(&mut carrying(carries), 1500), Verdict::Filtered);
    }
}

#[test]
fn a_narrow_way_is_asked_briefly_and_is_followed_when_it_changes() {
    let (mut way, mut known) = (carrying(1500), Known::default());
    way.visited(9000, &mut known);
    way.sent.clear();
    assert_eq!(
        way.visited(9000, &mut known),
        Verdict::Narrow { passes: 1500 }
    );
    assert_eq!(way.sent, [9000, 1500, 1501]);
    for carries in [4000, 1400, 8999, 1500] {
        way.carries = carries;
        let found = way.visited(9000, &mut known);
        assert_eq!(found, Verdict::Narrow { passes: carries });
    }
    way.carries = 9000;
    assert_eq!(way.visited(9000, &mut known), Verdict::Wide);
}

#[test]
fn a_narrow_way_that_is_silent_for_a_moment_stays_narrow_and_one_that_is_silent_for_long_is_unknown()
 {
    let (mut way, mut known) = (carrying(1500), Known::default());
    let narrow = Verdict::Narrow { passes: 1500 };
    way.visited(9000, &mut known);
    for _ in 0..5 {
        way.carries = 0;
        assert_eq!(way.visited(9000, &mut known), narrow);
        assert_eq!(way.visited(9000, &mut known), narrow);
        way.carries = 1500;
        assert_eq!(way.visited(9000, &mut known), narrow);
    }
    way.carries = 0;
    let last = [0; 3].map(|_| way.visited(9000, &mut known));
    assert_eq!(last, [narrow, narrow, Verdict::Unanswered]);
}

#[test]
fn an_error_of_our_own_changes_nothing_and_three_visits_that_could_not_be_made_leave_nothing_known()
{
    let (mut way, mut known) = (carrying(1500), Known::default());
    // The visit is over where the error comes, wherever that is.
    let failed_after = |answers: usize, known: &mut Known| {
        let mut visit = Visit::new(9000, known);
        for _ in 0..answers {
            let size = visit.next().unwrap();
            visit.heard(match size {
                0..=1500 => Reply::Answered,
                _ => Reply::Lost { hint: None },
            });
        }
        visit.heard(Reply::Failed);
        assert_eq!((visit.next(), visit.verdict()), (None, None));
        known.note(visit.verdict());
        known.verdict()
    };
    for carries in [1500, 9000] {
        way.carries = carries;
        let found = way.visited(9000, &mut known);
        for at in [0, 1] {
            assert_eq!(failed_after(at, &mut known), found);
        }
        way.visited(9000, &mut known);
        let last = [0, 1, 2].map(|at| failed_after(at, &mut known));
        assert_eq!(last, [found, found, Verdict::Unknown]);
    }
}

#[test]
fn visits_that_could_not_be_made_do_not_count_as_visits_that_nobody_answered() {
    let narrow = Verdict::Narrow { passes: 1500 };
    let after = |visits: &[Option<Verdict>]| {
        let mut known = Known::default();
        known.note(Some(narrow));
        visits.iter().for_each(|visit| known.note(*visit));
        known.verdict()
    };
    let (failed, silent) = (None, Some(Verdict::Unanswered));
    for (visits, wanted) in [
        ([failed, failed, silent].as_slice(), narrow),
        (&[failed, silent, failed, silent, failed], narrow),
        (
            &[silent, failed, silent, failed, silent],
            Verdict::Unanswered,
        ),
        (&[silent, silent, failed, failed], narrow),
        (&[silent, failed, failed, failed], Verdict::Unknown),
        (&[silent, silent, Some(narrow), silent, silent], narrow),
        (&[failed, failed, Some(narrow), failed, failed], narrow),
    ] {
        assert_eq!(after(visits), wanted, "{visits:?}");
    }
}

#[test]
fn packets_of_another_size_keep_what_is_known_where_it_still_says_something() {
    let (mut way, mut known) = (carrying(1500), Known::default());
    way.visited(9000, &mut known);
    known.resize(8900);
    assert_eq!(known.verdict(), Verdict::Narrow { passes: 1500 });
    known.resize(1500);
    assert_eq!(known.verdict(), Verdict::Unknown);
    // What is no larger than the small packet needs no question.
    assert_eq!(Visit::new(SMALL, &known).next(), None);
}
