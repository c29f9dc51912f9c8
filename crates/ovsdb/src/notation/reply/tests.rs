//! Every shape of a reply.

use super::*;

const UUID: &str = "11111111-1111-1111-1111-111111111111";

#[test]
fn each_kind_has_its_result() {
    let kinds = [
        OpKind::Insert,
        OpKind::Update,
        OpKind::Mutate,
        OpKind::Delete,
        OpKind::Select,
        OpKind::Other,
    ];
    let text = format!(
        r#"[{{"uuid":["uuid","{UUID}"]}},{{"count":1}},{{"count":1}},{{"count":7}},{{"rows":[{{"a":1}}]}},{{}}]"#
    );
    let reply = decode_reply(&text, &kinds).unwrap();
    assert_eq!(
        reply.results,
        [
            OpResult::Inserted(UUID.parse().unwrap()),
            OpResult::Updated(1),
            OpResult::Mutated(1),
            OpResult::Deleted(7),
            OpResult::Selected(vec![Row::new().with("a", 1_i64)]),
            OpResult::Done,
        ]
    );
    assert_eq!(reply.check_counts(), Ok(()));
}

#[test]
fn a_count_other_than_one_is_reported_for_updates_and_mutations() {
    for (text, count) in [(r#"[{},{"count":0}]"#, 0), (r#"[{},{"count":2}]"#, 2)] {
        for kind in [OpKind::Update, OpKind::Mutate] {
            let reply = decode_reply(text, &[OpKind::Other, kind]).unwrap();
            assert_eq!(reply.check_counts(), Err(CountError { index: 1, count }));
        }
    }
}

#[test]
fn a_failed_operation_is_reported_with_its_index() {
    let text = r#"[{},{"error":"timed out","details":"d"},null]"#;
    match decode_reply(text, &[OpKind::Other, OpKind::Other, OpKind::Insert]) {
        Err(TransactError::Operation {
            index: 1,
            error: OperationError::TimedOut,
            details,
        }) => assert_eq!(&*details, "d"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_error_after_the_last_operation_is_one_of_the_commit() {
    let text = r#"[{"count":1},{"error":"referential integrity violation"}]"#;
    let outcome = decode_reply(text, &[OpKind::Delete]);
    let Err(TransactError::Commit {
        error: OperationError::ReferentialIntegrity,
        ..
    }) = outcome
    else {
        panic!("{outcome:?}")
    };
}

#[test]
fn replies_of_another_shape_are_no_success() {
    for text in [
        "null",
        "{}",
        "[]",
        "[{}]",
        "[null]",
        r#"[{"uuid":"x"}]"#,
        r#"[{"count":1},{"count":1}]"#,
        r#"[{"count":-1}]"#,
    ] {
        let outcome = decode_reply(text, &[OpKind::Mutate]);
        assert!(
            matches!(outcome, Err(TransactError::Reply(_))),
            "{text}: {outcome:?}"
        );
    }
    assert!(decode_reply(r#"[{"count":1}]"#, &[OpKind::Insert]).is_err());
}

#[test]
fn every_error_string_prints_as_it_was_read() {
    for text in [
        "constraint violation",
        "referential integrity violation",
        "duplicate uuid-name",
        "duplicate uuid",
        "domain error",
        "range error",
        "timed out",
        "not owner",
        "aborted",
        "resources exhausted",
        "I/O error",
        "not supported",
        "syntax error",
        "permission error",
    ] {
        let error = OperationError::from(text);
        assert!(!matches!(error, OperationError::Other(_)), "{text}");
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(
        OperationError::from("new one"),
        OperationError::Other("new one".into())
    );
}

#[test]
fn what_the_system_said_is_among_the_details() {
    for (members, expected) in [
        (
            r#""details":"nb.db: write failed","io-error":"No space left""#,
            "nb.db: write failed: No space left",
        ),
        (r#""io-error":"No space left""#, "No space left"),
        (r#""details":null,"io-error":null"#, ""),
    ] {
        let text = format!(r#"[{{}},{{"error":"I/O error",{members}}}]"#);
        match decode_reply(&text, &[OpKind::Other]) {
            Err(TransactError::Commit {
                error: OperationError::Io,
                details,
            }) => assert_eq!(&*details, expected),
            other => panic!("{other:?}"),
        }
    }
}
