//! One connection's conversation as a state machine without a socket, a task or a clock.
//!
//! In: bytes that were read, the time, calls to make. Out: events for the caller and frames to write.
//! Invariant: every call ends exactly once: as a reply, timed out, or in the list that [`Session::close`] returns.
//! Not here: what the calls mean, and the replica.
//!
//! ```text
//!   call ---> queued --next_outgoing--> sent --reply--> Event::Reply
//!               |  deadline               |  deadline
//!               |  -> Event::TimedOut     |  -> Event::TimedOut, a late reply is dropped
//!               '- close -> Unsent        '- close -> MaybeApplied
//!
//!   heard -- probe_interval of silence --> echo sent -- another --> SessionError::Silent
//!     ^------------- any byte ---------------'
//! ```

mod message;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use self::message::{Message, Notice};
pub use self::message::{Request, RpcError};
use crate::frame::{FrameError, Framer};

/// What a session reports. `T` is what the caller gave with the call.
#[derive(Debug)]
pub enum Event<'a, T> {
    /// A call was answered.
    Reply {
        /// What came with the call.
        token: T,
        /// The `result`, or the RPC-level error.
        outcome: Result<&'a RawValue, RpcError>,
    },
    /// A call was not answered in time. If it had been sent, it may still be carried out.
    TimedOut {
        /// What came with the call.
        token: T,
    },
    /// Monitored rows changed (`update2`, `update3`).
    Update {
        /// The monitor's name as given when it was set up.
        monitor: &'a str,
        /// A `<table-updates2>`.
        updates: &'a RawValue,
    },
    /// The server gave a monitor up (`monitor_canceled`), as it does when the schema changes.
    MonitorCanceled {
        /// The monitor's name.
        monitor: &'a str,
    },
}

/// How a call ended that got neither a reply nor a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// It was never handed out for writing.
    Unsent,
    /// It was handed out: carried out, or not.
    MaybeApplied,
}

/// Why a session is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The stream is not framed as OVSDB is.
    #[error("stream is not OVSDB")]
    Frame(#[source] FrameError),
    /// A frame is not a JSON-RPC message.
    #[error("message not understood")]
    Message(#[source] serde_json::Error),
    /// Neither data nor an echo for two probe intervals.
    #[error("server is silent for {0:?}")]
    Silent(Duration),
}

/// Settings of a session.
#[derive(Debug, Clone, Copy)]
pub struct SessionConfig {
    /// Silence before an echo is sent, and again before the session is given up. Zero switches probing off.
    pub probe_interval: Duration,
    /// The greatest size of a frame, bytes.
    pub max_frame: usize,
}

/// The conversation over one connection.
#[derive(Debug)]
pub struct Session<T> {
    config: SessionConfig,
    framer: Framer,
    heard: Instant,
    probed: Option<Instant>,
    next_id: u64,
    pending: HashMap<u64, Pending<T>>,
    deadlines: BTreeSet<(Instant, u64)>,
    outgoing: VecDeque<Outgoing>,
}

#[derive(Debug)]
struct Pending<T> {
    token: T,
    deadline: Option<Instant>,
    sent: bool,
}

#[derive(Debug)]
struct Outgoing {
    id: Option<u64>,
    frame: Vec<u8>,
}

impl<T> Session<T> {
    /// A session over a connection made at `now`.
    #[must_use]
    pub fn new(config: SessionConfig, now: Instant) -> Self {
        Self {
            config,
            framer: Framer::new(config.max_frame),
            heard: now,
            probed: None,
            next_id: 0,
            pending: HashMap::new(),
            deadlines: BTreeSet::new(),
            outgoing: VecDeque::new(),
        }
    }

    /// Queues a call. Without `timeout` it waits as long as the session lives.
    pub fn call(&mut self, now: Instant, request: Request, timeout: Option<Duration>, token: T) {
        let id = self.next_id;
        self.next_id += 1;
        let deadline = timeout.and_then(|timeout| now.checked_add(timeout));
        self.deadlines
            .extend(deadline.map(|deadline| (deadline, id)));
        self.pending.insert(
            id,
            Pending {
                token,
                deadline,
                sent: false,
            },
        );
        self.outgoing.push_back(Outgoing {
            id: Some(id),
            frame: request.into_frame(id),
        });
    }

    /// Takes in bytes that were read, and reports what they say. After an error only [`Self::close`] makes sense.
    pub fn receive(
        &mut self,
        now: Instant,
        bytes: &[u8],
        mut on: impl FnMut(Event<'_, T>),
    ) -> Result<(), SessionError> {
        self.heard = now;
        self.probed = None;
        self.framer.push(bytes);
        while let Some(frame) = self.framer.next_frame().map_err(SessionError::Frame)? {
            match Message::decode(frame).map_err(SessionError::Message)? {
                Message::Echo(reply) => self.outgoing.push_back(Outgoing {
                    id: None,
                    frame: reply,
                }),
                Message::Unknown(refusal) => self.outgoing.push_back(Outgoing {
                    id: None,
                    frame: refusal,
                }),
                Message::Reply { id, outcome } => {
                    // An unknown id is the late reply of a call that timed out, or the echo of our own probe.
                    if let Some(pending) =
                        id.and_then(|id| self.pending.remove(&id).map(|pending| (id, pending)))
                    {
                        let (
                            id,
                            Pending {
                                token, deadline, ..
                            },
                        ) = pending;
                        if let Some(deadline) = deadline {
                            self.deadlines.remove(&(deadline, id));
                        }
                        on(Event::Reply { token, outcome });
                    }
                }
                Message::Notice(Notice::Update { monitor, updates }) => {
                    on(Event::Update {
                        monitor: &monitor,
                        updates,
                    });
                }
                Message::Notice(Notice::Canceled { monitor }) => {
                    on(Event::MonitorCanceled { monitor: &monitor })
                }
                Message::Notice(Notice::Other) => {}
            }
        }
        Ok(())
    }

    /// When [`Self::on_timeout`] has to be called next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let call = self.deadlines.first().map(|(deadline, _)| *deadline);
        match (call, self.probe_deadline()) {
            (Some(call), Some(probe)) => Some(call.min(probe)),
            (call, probe) => call.or(probe),
        }
    }

    /// Ends calls whose time is over, sends a probe after silence, and errs after more silence.
    pub fn on_timeout(
        &mut self,
        now: Instant,
        mut on: impl FnMut(Event<'_, T>),
    ) -> Result<(), SessionError> {
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now
        {
            self.deadlines.pop_first();
            let Some(pending) = self.pending.remove(&id) else {
                continue;
            };
            if !pending.sent {
                self.outgoing.retain(|outgoing| outgoing.id != Some(id));
            }
            on(Event::TimedOut {
                token: pending.token,
            });
        }
        if self
            .probe_deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            if self.probed.is_some() {
                return Err(SessionError::Silent(
                    now.saturating_duration_since(self.heard),
                ));
            }
            self.probed = Some(now);
            self.outgoing.push_back(Outgoing {
                id: None,
                frame: message::PROBE.to_vec(),
            });
        }
        Ok(())
    }

    /// The next frame to write; its call counts as sent from here on.
    pub fn next_outgoing(&mut self) -> Option<Vec<u8>> {
        let Outgoing { id, frame } = self.outgoing.pop_front()?;
        if let Some(pending) = id.and_then(|id| self.pending.get_mut(&id)) {
            pending.sent = true;
        }
        Some(frame)
    }

    /// How many frames wait to be written.
    #[must_use]
    pub fn outgoing_len(&self) -> usize {
        self.outgoing.len()
    }

    /// Ends the session: what became of the calls still open, in the order in which they were made.
    #[must_use]
    pub fn close(self) -> Vec<(T, Loss)> {
        let mut open: Vec<(u64, Pending<T>)> = self.pending.into_iter().collect();
        open.sort_unstable_by_key(|(id, _)| *id);
        open.into_iter()
            .map(|(_, pending)| {
                (
                    pending.token,
                    if pending.sent {
                        Loss::MaybeApplied
                    } else {
                        Loss::Unsent
                    },
                )
            })
            .collect()
    }

    fn probe_deadline(&self) -> Option<Instant> {
        let interval = self.config.probe_interval;
        if interval.is_zero() {
            None
        } else {
            self.probed.unwrap_or(self.heard).checked_add(interval)
        }
    }
}

#[cfg(test)]
mod tests;
