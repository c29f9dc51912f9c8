//! Which texts are endpoints.

use super::*;

#[test]
fn every_method_goes_there_and_back() {
    for text in [
        "unix:/run/ovn/ovnnb_db.sock",
        "unix:nb.sock",
        "tcp:127.0.0.1:6641",
        "ssl:[::1]:6641",
        "ssl:nb.example:1",
    ] {
        assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
    }
}

#[test]
fn refusals_name_the_reason_and_what_is_allowed() {
    for (text, reason) in [
        ("", "it has no method"),
        ("/run/nb.sock", "it has no method"),
        ("unix:", "the path is empty"),
        ("http:a:1", "its method is unknown"),
        ("ptcp:6641", "its method is unknown"),
        ("tcp:127.0.0.1", "it has no port"),
        ("tcp:::1:6641", "an IPv6 address needs brackets"),
        ("tcp:[x]:6641", "the brackets hold no IPv6 address"),
        ("tcp::6641", "the host is empty or has spaces"),
        ("ssl:a:0", "the port is not a number from 1 to 65535"),
        ("ssl:a:65536", "the port is not a number from 1 to 65535"),
    ] {
        let error = text.parse::<Endpoint>().unwrap_err();
        assert_eq!(error.reason, reason, "{text}");
        assert!(
            error
                .to_string()
                .contains("unix:PATH, tcp:HOST:PORT and ssl:HOST:PORT"),
            "{error}"
        );
    }
}
