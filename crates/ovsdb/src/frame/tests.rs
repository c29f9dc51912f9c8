//! Frames do not depend on how the stream was cut.

use proptest::prelude::*;

use super::*;

fn frames(pieces: &[&[u8]], max: usize) -> Result<Vec<String>, FrameError> {
    let mut framer = Framer::new(max);
    let mut found = Vec::new();
    for piece in pieces {
        framer.push(piece);
        while let Some(frame) = framer.next_frame()? {
            found.push(String::from_utf8_lossy(frame).into_owned());
        }
    }
    Ok(found)
}

#[test]
fn many_in_one_read_and_one_in_many() {
    let stream = br#"{"a":[1,{"b":"}"}]}{"c":"\"}{\\"} {}"#;
    let expected = [r#"{"a":[1,{"b":"}"}]}"#, r#"{"c":"\"}{\\"}"#, "{}"];
    assert_eq!(frames(&[stream], 100).unwrap(), expected);
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(frames(&bytes, 100).unwrap(), expected);
}

#[test]
fn half_a_frame_is_none() {
    assert!(frames(&[br#"{"a":"b"#], 100).unwrap().is_empty());
}

#[test]
fn other_beginnings_are_errors() {
    for (stream, byte) in [
        ("[1]", b'['),
        ("x{}", b'x'),
        ("{}}", b'}'),
        ("\"", b'"'),
        ("{}1", b'1'),
    ] {
        assert_eq!(
            frames(&[stream.as_bytes()], 100),
            Err(FrameError::NotAnObject { byte }),
            "{stream}"
        );
    }
}

#[test]
fn the_cap_holds_for_whole_and_for_growing_frames() {
    let frame = br#"{"a":"0123456789"}"#;
    assert!(frames(&[frame], frame.len()).is_ok());
    assert_eq!(
        frames(&[frame], frame.len() - 1),
        Err(FrameError::TooLarge {
            max: frame.len() - 1
        })
    );
    assert_eq!(
        frames(&[&frame[..10]], 9),
        Err(FrameError::TooLarge { max: 9 })
    );
    let many: Vec<u8> = frame.repeat(100);
    assert_eq!(frames(&[&many], frame.len()).unwrap().len(), 100);
}

#[test]
fn white_space_between_frames_is_part_of_none_and_never_kept() {
    let stream = [b"{}", &b" \r\n\t".repeat(100)[..], b"{\"a\":1}\n"].concat();
    let expected = ["{}", "{\"a\":1}"];
    assert_eq!(frames(&[&stream], 10).unwrap(), expected);
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(frames(&bytes, 10).unwrap(), expected);
    let mut framer = Framer::new(10);
    for _ in 0..1000 {
        framer.push(&b" ".repeat(1000));
        assert_eq!(framer.next_frame(), Ok(None));
        assert!(framer.buffer.len() <= 1000);
    }
}

#[test]
fn a_giant_buffer_is_given_back() {
    let mut framer = Framer::new(DEFAULT_MAX_FRAME);
    framer.push(format!("{{\"a\":\"{}\"}}", "x".repeat(4 << 20)).as_bytes());
    assert!(framer.next_frame().unwrap().is_some());
    framer.push(b"{}");
    assert!(framer.buffer.capacity() <= KEEP_CAPACITY);
    assert_eq!(framer.next_frame().unwrap(), Some(&b"{}"[..]));
}

#[test]
fn a_giant_buffer_does_not_wait_for_what_comes_next() {
    let mut framer = Framer::new(DEFAULT_MAX_FRAME);
    framer.push(format!("{{\"a\":\"{}\"}}", "x".repeat(4 << 20)).as_bytes());
    assert!(framer.next_frame().unwrap().is_some());
    assert_eq!(framer.next_frame(), Ok(None));
    assert!(framer.buffer.capacity() <= KEEP_CAPACITY);
    framer.push(b"{\"b\"");
    assert_eq!(framer.next_frame(), Ok(None));
    framer.push(b":1}");
    assert_eq!(framer.next_frame().unwrap(), Some(&b"{\"b\":1}"[..]));
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_frames(
        texts in proptest::collection::vec("[a-z\"\\\\{}\\[\\] é]{0,12}", 1..8),
        cuts in proptest::collection::vec(0_usize..400, 0..12),
    ) {
        let expected: Vec<String> = texts
            .iter()
            .map(|text| serde_json::to_string(&std::collections::BTreeMap::from([(text, vec![text, "x"])])).unwrap())
            .collect();
        let stream = expected.concat();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &stream.as_bytes()[pair[0]..pair[1]]).collect();
        prop_assert_eq!(frames(&pieces, 1000).unwrap(), expected);
    }
}
