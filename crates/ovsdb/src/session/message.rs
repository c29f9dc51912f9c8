//! JSON-RPC 1.0 messages as OVSDB uses them (RFC 7047 section 4).
//!
//! In: one frame. Out: what it is, with the bulk of it still text. And the frames we send.
//! Invariant: what we send has exactly the members of the RFC; the server ends the connection on any other.
//! Not here: ids and deadlines.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Our own probe. The id is no number, so no call of ours can have it.
pub(super) const PROBE: &[u8] = br#"{"method":"echo","params":[],"id":"probe"}"#;

/// A call ready for sending but for its id.
#[derive(Debug, Clone)]
pub struct Request(Vec<u8>);

impl Request {
    /// Encodes a call of `method`; `params` must be an array. Errs only where `params` has no JSON form.
    pub fn new(method: &str, params: &impl Serialize) -> Result<Self, serde_json::Error> {
        let mut text = Vec::with_capacity(256);
        text.extend_from_slice(b"{\"method\":");
        serde_json::to_writer(&mut text, method)?;
        text.extend_from_slice(b",\"params\":");
        serde_json::to_writer(&mut text, params)?;
        text.extend_from_slice(b",\"id\":");
        Ok(Self(text))
    }

    pub(super) fn into_frame(mut self, id: u64) -> Vec<u8> {
        self.0.extend_from_slice(id.to_string().as_bytes());
        self.0.push(b'}');
        self.0
    }
}

/// The server refused a call as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}: {details}")]
pub struct RpcError {
    /// The server's word for it.
    pub error: Box<str>,
    /// Its explanation, may be empty.
    pub details: Box<str>,
}

/// What a frame from the server is.
#[derive(Debug)]
pub(super) enum Message<'a> {
    /// The server's probe, with the reply to send.
    Echo(Vec<u8>),
    /// A request that we do not offer, with the refusal to send.
    Unknown(Vec<u8>),
    /// An answer; without an id where the id is not a number of ours.
    Reply {
        id: Option<u64>,
        outcome: Result<&'a RawValue, RpcError>,
    },
    /// Something that wants no answer.
    Notice(Notice<'a>),
}

/// A notification.
#[derive(Debug)]
pub(super) enum Notice<'a> {
    Update {
        monitor: Cow<'a, str>,
        updates: &'a RawValue,
    },
    Canceled {
        monitor: Cow<'a, str>,
    },
    Other,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WireError {
    Word(Box<str>),
    Full {
        error: Box<str>,
        #[serde(default)]
        details: Box<str>,
    },
}

impl<'a> Message<'a> {
    pub(super) fn decode(frame: &'a [u8]) -> Result<Self, serde_json::Error> {
        let wire: Wire<'a> = serde_json::from_slice(frame)?;
        match (wire.method, wire.id) {
            (Some(method), None) => decode_notice(&method, wire.params).map(Message::Notice),
            (Some(method), Some(id)) if method == "echo" => {
                let params = wire.params.map_or("[]", RawValue::get);
                Ok(Message::Echo(
                    format!("{{\"id\":{id},\"result\":{params},\"error\":null}}").into_bytes(),
                ))
            }
            (Some(_), Some(id)) => {
                let refusal =
                    format!("{{\"id\":{id},\"result\":null,\"error\":\"unknown method\"}}");
                Ok(Message::Unknown(refusal.into_bytes()))
            }
            (None, id) => {
                let outcome = match wire.error {
                    Some(error) => Err(decode_error(error)),
                    None => Ok(wire.result.unwrap_or(RawValue::NULL)),
                };
                Ok(Message::Reply {
                    id: id.and_then(|id| id.get().parse().ok()),
                    outcome,
                })
            }
        }
    }
}

fn decode_notice<'a>(
    method: &str,
    params: Option<&'a RawValue>,
) -> Result<Notice<'a>, serde_json::Error> {
    let params = params.map_or("[]", RawValue::get);
    match method {
        "update2" => {
            let (monitor, updates): (Text<'a>, &'a RawValue) = serde_json::from_str(params)?;
            Ok(Notice::Update {
                monitor: monitor.0,
                updates,
            })
        }
        "update3" => {
            let (monitor, _, updates): (Text<'a>, &'a RawValue, &'a RawValue) =
                serde_json::from_str(params)?;
            Ok(Notice::Update {
                monitor: monitor.0,
                updates,
            })
        }
        "monitor_canceled" => {
            let (monitor,): (Text<'a>,) = serde_json::from_str(params)?;
            Ok(Notice::Canceled { monitor: monitor.0 })
        }
        _ => Ok(Notice::Other),
    }
}

/// A string that is borrowed where it has no escapes; in a tuple, serde would copy a bare `Cow`.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn decode_error(error: &RawValue) -> RpcError {
    match serde_json::from_str(error.get()) {
        Ok(WireError::Word(error)) => RpcError {
            error,
            details: Box::default(),
        },
        Ok(WireError::Full { error, details }) => RpcError { error, details },
        // Neither a word nor an object of the known form: keep what it said.
        Err(_) => RpcError {
            error: "error".into(),
            details: error.get().into(),
        },
    }
}
