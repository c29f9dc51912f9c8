//! Lines of the monitors, as they write them.

use super::*;

const PREFIX: &str = "10.128.1.0/24";

fn gaps() -> Gaps {
    let mut gaps = Gaps {
        node: "n1".to_owned(),
        side: Side::Kernel,
        begun: now(),
        wanted: BTreeSet::from([PREFIX.to_owned()]),
        has: BTreeMap::new(),
        count: BTreeMap::new(),
        missing: 1,
        unread: None,
        spans: Vec::new(),
    };
    gaps.there(PREFIX, PREFIX);
    gaps
}

#[test]
fn a_deleted_bgp_route_opens_a_span_and_its_return_closes_it() {
    let mut gaps = gaps();
    let lines = [
        (
            "Deleted 10.9.0.0/24 dev eth0 proto kernel scope link",
            false,
        ),
        (
            "10.128.1.0/24 nhid 9 via 172.30.0.2 dev br-ex proto bgp metric 20",
            false,
        ),
        (
            "Deleted 10.128.1.0/24 nhid 9 via 172.30.0.2 dev br-ex proto bgp metric 20",
            true,
        ),
        (
            "10.128.1.0/24 nhid 10 via 172.30.0.2 dev br-ex proto bgp metric 20",
            false,
        ),
    ];
    for (line, short) in lines {
        assert_eq!(gaps.kernel(line), Some(()), "{line}");
        gaps.settle();
        assert_eq!(gaps.short(), short, "{line}");
    }
    assert_eq!(gaps.spans.len(), 1);
    assert_eq!(gaps.kernel("what dev br-ex proto bgp"), None);
}

/// As ovsdb-client 3.1 writes them.
fn line(rows: &str) -> String {
    format!(r#"{{"data":[{rows}],"headings":["row","action","ip_prefix","output_port"]}}"#)
}

#[test]
fn rows_of_the_routers_outer_port_count_and_others_do_not() {
    let mut gaps = gaps();
    gaps.gone(PREFIX);
    let row =
        |id: u8, action: &str, port: &str| format!(r#"["{id}","{action}","{PREFIX}","{port}"]"#);
    let (ours, other) = ("rtoe-GR_n1", "rtos-n1");
    for (rows, short) in [
        (row(1, "initial", ours), false),
        (row(2, "insert", other), false),
        (row(2, "delete", other), false),
        (row(1, "delete", ours), true),
        (row(3, "insert", ours), false),
        // Another one has taken its place, in either order.
        (
            row(4, "insert", ours) + "," + &row(3, "delete", ours),
            false,
        ),
        (
            row(4, "delete", ours) + "," + &row(5, "insert", ours),
            false,
        ),
        // The columns that stay are not reported.
        (
            r#"["5","old","10.128.1.0/24",null],["","new","10.9.0.0/24","rtoe-GR_n1"]"#.to_owned(),
            true,
        ),
        (
            r#"["5","old","10.9.0.0/24",null],["","new","10.128.1.0/24","rtoe-GR_n1"]"#.to_owned(),
            false,
        ),
        (
            r#"["5","old",null,"rtoe-GR_n1"],["","new","10.128.1.0/24","rtos-n1"]"#.to_owned(),
            true,
        ),
    ] {
        assert_eq!(gaps.database(&line(&rows), ours), Some(()), "{rows}");
        gaps.settle();
        assert_eq!(gaps.short(), short, "{rows}");
    }
}

#[test]
fn a_row_that_is_deleted_and_there_again_in_one_line_was_away() {
    for rows in [
        r#"["2","insert","10.128.1.0/24","p"],["1","delete","10.128.1.0/24","p"]"#,
        r#"["1","delete","10.128.1.0/24","p"],["2","insert","10.128.1.0/24","p"]"#,
    ] {
        let mut gaps = gaps();
        gaps.gone(PREFIX);
        gaps.there("1", PREFIX);
        assert_eq!(gaps.database(&line(rows), "p"), Some(()));
        gaps.settle();
        assert_eq!((gaps.times(), gaps.short()), (1, false), "{rows}");
    }
}

#[test]
fn what_is_no_table_of_rows_is_not_read() {
    for line in [
        "",
        "ovsdb-client: lost",
        "{}",
        &line(r#"["1","replaced","",""]"#),
    ] {
        assert_eq!(gaps().database(line, "rtoe-GR_n1"), None, "{line}");
    }
}

#[test]
fn a_complaint_is_kept_unless_it_is_about_another_namespace() {
    let kept = |text: &str| {
        let gaps = Arc::new(Mutex::new(gaps()));
        let read = complaints(std::io::Cursor::new(text.to_owned()), Arc::clone(&gaps));
        read.join().unwrap();
        locked(&gaps).unread.clone()
    };
    let other = "Error: Peer netns reference is invalid.\n";
    assert_eq!(kept(other), None);
    let lost = "netlink receive error No buffer space available (105)";
    assert_eq!(kept(&format!("{other}{lost}\n")).as_deref(), Some(lost));
}
