//! The client's task: connect, talk until the session ends, wait, again.
//!
//! In: the configuration and transactions. Out: the shared status, and results.
//! Invariant: writing never keeps from reading. The server stops reading while it has replies to write, so a client
//! that waited for its own writes would wait for ever.
//! Not here: what is said; see `follow`.
//!
//! ```text
//!   commands --> Session --frames--> bounded queue --> writer task --> socket
//!   socket ----> Session --events--> Follower
//! ```

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::config::ClientConfig;
use super::error::LinkError;
use super::follow::{Follower, Token, abandon};
use super::stream::{self, Duplex};
use super::{Command, Conditions, Connection, Shared, clock};
use crate::notation::TransactError;
use crate::session::{Session, SessionConfig};
use reconcile::Backoff;

/// Frames between the session and the writer; more wait in the session, and then callers wait.
const WRITE_QUEUE: usize = 64;

/// How much is read at once, bytes.
const READ_SIZE: usize = 256 << 10;

/// Bytes in all, since the last progress. Less than this may be echoes: until the replica follows, they are no progress.
const PROGRESS: usize = 2048;

/// How long a connection that takes no more writes is listened to.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// From a lost connection to the first attempt; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// All handles are gone.
struct Stopped;

type Commands = mpsc::Receiver<Command>;

/// Runs until every handle is dropped.
pub(super) async fn run(config: ClientConfig, shared: Arc<Shared>, mut commands: Commands) {
    // Clients that lost one server do not come back together; a limit of zero does not spin.
    let most = config.max_backoff.max(Duration::from_millis(1));
    let mut backoff = Backoff::new(FIRST_PAUSE.min(most), most).with_jitter();
    loop {
        let sessions = shared.status.borrow().sessions;
        let error = match attempt(&config, &shared, &mut commands).await {
            Ok(error) => error,
            Err(Stopped) => return,
        };
        if shared.status.borrow().sessions > sessions {
            backoff.reset();
        }
        shared.status.send_modify(|status| {
            let since = match &status.connection {
                Connection::Disconnected { since, .. } => *since,
                Connection::Connecting | Connection::Synced => clock(),
            };
            status.connection = Connection::Disconnected {
                since,
                error: Some(Arc::new(error)),
            };
        });
        let delay = tokio::time::sleep(backoff.pause());
        if refuse_until(delay, &mut commands).await.is_err() {
            return;
        }
    }
}

/// One connection from its opening to its end.
async fn attempt(
    config: &ClientConfig,
    shared: &Shared,
    commands: &mut Commands,
) -> Result<LinkError, Stopped> {
    let stream = match refuse_until(stream::open(config), commands).await? {
        Ok(stream) => stream,
        Err(error) => return Ok(error),
    };
    shared
        .status
        .send_modify(|status| status.connection = Connection::Connecting);
    let settings = SessionConfig {
        probe_interval: config.probe_interval,
        max_frame: config.max_frame,
    };
    let mut session = Session::new(settings, clock());
    let mut follower = Follower::new(config, shared);
    let mut conditions = shared.conditions.subscribe();
    let parts = (&mut session, &mut follower);
    let outcome = converse(config, stream, (commands, &mut conditions), parts).await;
    for (token, loss) in session.close() {
        abandon(token, loss);
    }
    outcome
}

/// Waits for `what` and refuses transactions meanwhile.
async fn refuse_until<T>(
    what: impl Future<Output = T>,
    commands: &mut Commands,
) -> Result<T, Stopped> {
    tokio::pin!(what);
    loop {
        tokio::select! {
            done = &mut what => return Ok(done),
            command = commands.recv() => refuse(command.ok_or(Stopped)?),
        }
    }
}

fn refuse(command: Command) {
    // A caller that has gone does not need the result.
    let _ = command.call.reply.send(Err(TransactError::NotConnected));
}

/// Talks until the session ends.
async fn converse(
    config: &ClientConfig,
    stream: Box<dyn Duplex>,
    (commands, conditions): (&mut Commands, &mut watch::Receiver<Arc<Conditions>>),
    (session, follower): (&mut Session<Token>, &mut Follower<'_>),
) -> Result<LinkError, Stopped> {
    let (mut reader, writer) = tokio::io::split(stream);
    let (frames, queue) = mpsc::channel(WRITE_QUEUE);
    let _writer = Writer(tokio::spawn(write(writer, queue)));
    let mut buffer = Vec::with_capacity(READ_SIZE);
    let (mut silent_since, mut quiet) = (clock(), 0_usize);
    loop {
        if let Some(error) = follower.take_failure() {
            return Ok(error);
        }
        let sync_due = silent_since.checked_add(config.call_timeout);
        let sync_due = sync_due.filter(|_| !follower.is_synced());
        follower.renew_conditions();
        for (request, token) in follower.take_calls() {
            session.call(clock(), request, None, token);
        }
        let outcome = tokio::select! {
            slot = frames.reserve(), if session.outgoing_len() > 0 => match (slot, session.next_outgoing()) {
                (Ok(slot), Some(frame)) => {
                    slot.send(frame);
                    Ok(())
                }
                (Ok(_), None) => Ok(()),
                (Err(_), _) => return Ok(last_words(&mut reader, &mut buffer, session, follower).await),
            },
            read = read_some(&mut reader, &mut buffer) => {
                quiet += read.as_ref().map_or(0, |count| *count);
                if quiet >= PROGRESS {
                    (silent_since, quiet) = (clock(), 0);
                }
                take_in(read, &mut buffer, session, follower)
            }
            () = sleep_until(sync_due) => {
                let (endpoint, limit) = (config.endpoint.clone(), config.call_timeout);
                return Ok(LinkError::SyncTimeout { endpoint, limit });
            }
            // The shared state outlives the session. What changed is looked at with the next turn.
            _ = conditions.changed() => Ok(()),
            command = commands.recv(), if session.outgoing_len() < WRITE_QUEUE => {
                let Command { request, call } = command.ok_or(Stopped)?;
                if follower.is_synced() {
                    session.call(clock(), request, Some(config.call_timeout), Token::Transact(call));
                } else {
                    refuse(Command { request, call });
                }
                Ok(())
            }
            () = sleep_until(session.next_deadline()) => {
                // After a pause of the whole process both are due: hear what arrived before calling the server silent.
                match tokio::time::timeout(Duration::ZERO, read_some(&mut reader, &mut buffer)).await {
                    Ok(read) => take_in(read, &mut buffer, session, follower),
                    Err(_) => session.on_timeout(clock(), |event| follower.on_event(event)).map_err(LinkError::Session),
                }
            }
        };
        if let Err(error) = outcome {
            return Ok(error);
        }
    }
}

/// After writing has failed: hears what the server still said, be it replies or why it hung up.
async fn last_words(
    reader: &mut ReadHalf<Box<dyn Duplex>>,
    buffer: &mut Vec<u8>,
    session: &mut Session<Token>,
    follower: &mut Follower<'_>,
) -> LinkError {
    let listening = async {
        loop {
            let read = read_some(reader, buffer).await;
            if let Err(error) = take_in(read, buffer, session, follower) {
                return error;
            }
        }
    };
    tokio::time::timeout(LAST_WORDS, listening)
        .await
        .unwrap_or(LinkError::Write)
}

async fn read_some(
    reader: &mut ReadHalf<Box<dyn Duplex>>,
    buffer: &mut Vec<u8>,
) -> std::io::Result<usize> {
    buffer.reserve(READ_SIZE.saturating_sub(buffer.len()));
    reader.read_buf(buffer).await
}

fn take_in(
    read: std::io::Result<usize>,
    buffer: &mut Vec<u8>,
    session: &mut Session<Token>,
    follower: &mut Follower<'_>,
) -> Result<(), LinkError> {
    if read.map_err(LinkError::Read)? == 0 {
        return Err(LinkError::Closed);
    }
    let outcome = session.receive(clock(), buffer, |event| follower.on_event(event));
    buffer.clear();
    outcome.map_err(LinkError::Session)
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => pending().await,
    }
}

/// The writer's task; it ends with the session.
struct Writer(JoinHandle<()>);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Writes frames until the queue closes or writing fails; the reader hears of the failure too, or finds the queue shut.
async fn write(mut writer: WriteHalf<Box<dyn Duplex>>, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = queue.recv().await {
        if writer.write_all(&frame).await.is_err() {
            return;
        }
        // TLS keeps records back until flushed; more frames at hand go out together.
        if queue.is_empty() && writer.flush().await.is_err() {
            return;
        }
    }
}
