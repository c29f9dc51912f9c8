//! The configuration file, in both grammars.
//!
//! In: one byte that chooses the grammar, then the file. Out: nothing.
//! Invariant: reading ends; the same text gives the same settings; an error is one line that names the file, a warning is one line.
//! Not here: what the keys mean.

use std::net::{Ipv4Addr, SocketAddr};

/// Reads the text as a file of one of the grammars.
///
/// # Panics
/// Where an error does not name the file, or an error or a warning has a control character.
pub fn check(bytes: &[u8]) {
    let [grammar, text @ ..] = bytes else { return };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let file = if grammar % 2 == 0 {
        "noverlay.toml"
    } else {
        "noverlay.conf"
    };
    let metrics = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9160));
    let read = || settings::parse(file, text, metrics);
    match (read(), read()) {
        (Ok(one), Ok(two)) => {
            assert_eq!(format!("{one:?}"), format!("{two:?}"));
            for warning in &one.warnings {
                assert!(!warning.contains(char::is_control), "{warning:?}");
            }
        }
        (Err(one), Err(two)) => {
            let one = one.to_string();
            assert_eq!(one, two.to_string());
            assert!(one.contains(file), "{one:?} does not name the file");
            assert!(
                !one.contains(char::is_control),
                "{one:?} has a control character"
            );
        }
        (one, two) => panic!("{one:?} and {two:?} from one text"),
    }
}
