//! Every cell of the session's state machine, with bytes and times made by hand.

use super::*;

const PROBE_INTERVAL: Duration = Duration::from_secs(5);

struct Fixture {
    session: Session<&'static str>,
    start: Instant,
    seen: Vec<String>,
}

impl Fixture {
    #[expect(
        clippy::disallowed_methods,
        reason = "any instant will do as the origin"
    )]
    fn new() -> Self {
        let start = Instant::now();
        let config = SessionConfig {
            probe_interval: PROBE_INTERVAL,
            max_frame: 1000,
        };
        Self {
            session: Session::new(config, start),
            start,
            seen: Vec::new(),
        }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    fn call(&mut self, seconds: u64, timeout: Option<u64>, token: &'static str) {
        let request = Request::new("m", &[token]).unwrap();
        self.session.call(
            self.at(seconds),
            request,
            timeout.map(Duration::from_secs),
            token,
        );
    }

    fn sent(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.session.next_outgoing())
            .map(|frame| String::from_utf8(frame).unwrap())
            .collect()
    }

    fn receive(&mut self, seconds: u64, text: &str) -> Result<Vec<String>, SessionError> {
        let now = self.at(seconds);
        let seen = &mut self.seen;
        self.session
            .receive(now, text.as_bytes(), |event| seen.push(show(&event)))?;
        Ok(std::mem::take(&mut self.seen))
    }

    fn tick(&mut self, seconds: u64) -> Result<Vec<String>, SessionError> {
        let now = self.at(seconds);
        let seen = &mut self.seen;
        self.session
            .on_timeout(now, |event| seen.push(show(&event)))?;
        Ok(std::mem::take(&mut self.seen))
    }

    fn deadline(&self) -> Option<u64> {
        Some((self.session.next_deadline()? - self.start).as_secs())
    }
}

fn show(event: &Event<'_, &'static str>) -> String {
    match event {
        Event::Reply {
            token,
            outcome: Ok(result),
        } => format!("{token} = {result}"),
        Event::Reply {
            token,
            outcome: Err(error),
        } => format!("{token} ! {error}"),
        Event::TimedOut { token } => format!("{token} late"),
        Event::Update { monitor, updates } => format!("{monitor} : {updates}"),
        Event::MonitorCanceled { monitor } => format!("{monitor} gone"),
    }
}

#[test]
fn replies_find_their_calls_in_any_order_and_cut() {
    let mut fixture = Fixture::new();
    fixture.call(0, None, "a");
    fixture.call(0, None, "b");
    assert_eq!(
        fixture.sent(),
        [
            r#"{"method":"m","params":["a"],"id":0}"#,
            r#"{"method":"m","params":["b"],"id":1}"#
        ]
    );
    let seen = fixture
        .receive(
            1,
            r#"{"id":1,"result":[1],"error":null}{"id":0,"result":{},"er"#,
        )
        .unwrap();
    assert_eq!(seen, ["b = [1]"]);
    assert_eq!(fixture.receive(1, r#"ror":null}"#).unwrap(), ["a = {}"]);
    assert!(fixture.session.close().is_empty());
}

#[test]
fn errors_come_as_objects_as_words_and_without_result() {
    let mut fixture = Fixture::new();
    for token in ["a", "b", "c", "d"] {
        fixture.call(0, None, token);
    }
    let seen = fixture
        .receive(
            0,
            r#"{"id":0,"error":{"error":"unknown database","details":"no X","syntax":"[]"}}
               {"id":1,"error":"unknown method","result":null}
               {"id":2,"error":[1],"result":null}
               {"id":3,"error":null,"result":null}"#,
        )
        .unwrap();
    assert_eq!(
        seen,
        [
            "a ! unknown database: no X",
            "b ! unknown method: ",
            "c ! error: [1]",
            "d = null"
        ]
    );
}

#[test]
fn an_echo_is_answered_and_another_request_is_refused() {
    let mut fixture = Fixture::new();
    let seen = fixture.receive(0, r#"{"method":"echo","id":"echo","params":[{"x":1}]}{"method":"steal","id":[7],"params":[]}"#);
    assert!(seen.unwrap().is_empty());
    assert_eq!(
        fixture.sent(),
        [
            r#"{"id":"echo","result":[{"x":1}],"error":null}"#,
            r#"{"id":[7],"result":null,"error":"unknown method"}"#
        ]
    );
}

#[test]
fn notifications_of_both_forms_and_unknown_ones_are_heard() {
    let mut fixture = Fixture::new();
    let text = r#"{"method":"update2","id":null,"params":["data",{"T":{}}]}
        {"method":"update3","id":null,"params":["d\u0061ta","0-0",{"U":{}}]}
        {"method":"monitor_canceled","id":null,"params":["data"]}
        {"method":"locked","id":null,"params":["l"]}"#;
    assert_eq!(
        fixture.receive(0, text).unwrap(),
        [r#"data : {"T":{}}"#, r#"data : {"U":{}}"#, "data gone"]
    );
}

#[test]
fn replies_to_nobody_are_dropped() {
    let mut fixture = Fixture::new();
    let text = r#"{"id":99,"result":[],"error":null}{"id":"probe","result":[],"error":null}{"id":null,"result":1,"error":null}"#;
    assert!(fixture.receive(0, text).unwrap().is_empty());
}

#[test]
fn what_is_no_message_ends_the_session() {
    for text in [
        "x",
        "[]",
        r#"{"id":1,"#,
        r#"{"id":}"#,
        r#"{"method":"update2","id":null,"params":[]}"#,
    ] {
        let outcome = Fixture::new().receive(0, text);
        assert_eq!(
            outcome.is_err(),
            text != r#"{"id":1,"#,
            "{text}: {outcome:?}"
        );
    }
    let long = format!(r#"{{"id":"{}""#, "x".repeat(1000));
    assert!(matches!(
        Fixture::new().receive(0, &long),
        Err(SessionError::Frame(FrameError::TooLarge { max: 1000 }))
    ));
}

#[test]
fn a_call_ends_at_its_deadline_and_its_late_reply_is_dropped() {
    let mut fixture = Fixture::new();
    fixture.call(0, Some(3), "a");
    fixture.call(0, Some(2), "b");
    assert_eq!(fixture.sent().len(), 2);
    assert_eq!(fixture.deadline(), Some(2));
    assert!(fixture.tick(1).unwrap().is_empty());
    assert_eq!(fixture.tick(2).unwrap(), ["b late"]);
    assert_eq!(fixture.deadline(), Some(3));
    let seen = fixture
        .receive(
            2,
            r#"{"id":1,"result":1,"error":null}{"id":0,"result":0,"error":null}"#,
        )
        .unwrap();
    assert_eq!(seen, ["a = 0"]);
    assert_eq!(fixture.deadline(), Some(7), "only the probe is left");
}

#[test]
fn a_call_that_times_out_before_it_was_written_is_never_written() {
    let mut fixture = Fixture::new();
    fixture.call(0, Some(1), "a");
    fixture.call(0, None, "b");
    assert_eq!(fixture.tick(1).unwrap(), ["a late"]);
    assert_eq!(fixture.sent(), [r#"{"method":"m","params":["b"],"id":1}"#]);
}

#[test]
fn closing_tells_what_was_sent_from_what_was_not() {
    let mut fixture = Fixture::new();
    fixture.call(0, None, "a");
    fixture.call(0, Some(9), "b");
    assert!(fixture.session.next_outgoing().is_some());
    assert_eq!(fixture.session.outgoing_len(), 1);
    assert_eq!(
        fixture.session.close(),
        [("a", Loss::MaybeApplied), ("b", Loss::Unsent)]
    );
}

#[test]
fn silence_is_probed_once_and_then_ends_the_session() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.deadline(), Some(5));
    fixture.tick(4).unwrap();
    assert!(fixture.sent().is_empty());
    fixture.tick(5).unwrap();
    assert_eq!(
        fixture.sent(),
        [r#"{"method":"echo","params":[],"id":"probe"}"#]
    );
    assert_eq!(fixture.deadline(), Some(10));
    fixture.receive(9, " ").unwrap();
    assert_eq!(fixture.deadline(), Some(14), "any byte is a sign of life");
    fixture.tick(14).unwrap();
    assert!(
        matches!(fixture.tick(19), Err(SessionError::Silent(silence)) if silence.as_secs() == 10)
    );
}

#[test]
fn a_pause_of_our_own_is_followed_by_a_probe_and_not_by_the_end() {
    let mut fixture = Fixture::new();
    assert!(fixture.tick(1000).is_ok());
    assert_eq!(fixture.sent().len(), 1);
    assert_eq!(fixture.deadline(), Some(1005));
}

#[test]
fn probing_can_be_switched_off() {
    let mut fixture = Fixture::new();
    fixture.session.config.probe_interval = Duration::ZERO;
    assert_eq!(fixture.deadline(), None);
    assert!(fixture.tick(1_000_000).unwrap().is_empty());
    assert!(fixture.sent().is_empty());
}
