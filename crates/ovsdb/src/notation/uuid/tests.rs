//! Text forms of uuids.

use super::*;

#[test]
fn text_goes_there_and_back() {
    let text = "36bef046-7da7-43a5-905a-c17899216fcb";
    let uuid: Uuid = text.parse().unwrap();
    assert_eq!(uuid.to_string(), text);
    assert_eq!(text.to_uppercase().parse::<Uuid>().unwrap(), uuid);
    assert_eq!(Uuid::from_bytes(uuid.to_bytes()), uuid);
}

#[test]
fn other_text_is_refused() {
    for text in [
        "",
        "36bef046-7da7-43a5-905a-c17899216fc",
        "36bef046-7da7-43a5-905a-c17899216fcbb",
        "36bef046_7da7-43a5-905a-c17899216fcb",
        "36bef04g-7da7-43a5-905a-c17899216fcb",
        "36bef04é-7da7-43a5-905a-c17899216fc",
    ] {
        assert!(text.parse::<Uuid>().is_err(), "{text}");
    }
}

#[test]
fn version_four_sets_version_and_variant_only() {
    assert_eq!(
        Uuid::version4([0xff; 16]).to_string(),
        "ffffffff-ffff-4fff-bfff-ffffffffffff"
    );
    assert_eq!(
        Uuid::version4([0; 16]).to_string(),
        "00000000-0000-4000-8000-000000000000"
    );
}
