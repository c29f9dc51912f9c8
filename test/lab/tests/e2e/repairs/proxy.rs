//! A proxy on the way to an OVSDB server that remembers what the client said.
//!
//! In: the server's socket and one to listen at. Out: the methods of all requests, in
//! the order of their connections. Bytes go through unchanged, in both directions.
//! Invariant: a request is remembered before the server has it. What the server
//! answers is not looked at.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use serde_json::{Deserializer, Value};

/// What clients have sent, one entry a connection.
type Heard = Arc<Mutex<Vec<Vec<u8>>>>;

/// A listening proxy; it ends with the value, and with it its connections.
pub(super) struct Proxy {
    at: PathBuf,
    heard: Heard,
    over: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens at `at` and passes everything on to `server`.
    pub(super) fn start(at: &Path, server: &Path) -> Self {
        let socket = UnixListener::bind(at).unwrap();
        let (heard, over) = (Heard::default(), Arc::new(AtomicBool::new(false)));
        let (to, ended, server) = (Arc::clone(&heard), Arc::clone(&over), server.to_owned());
        let listener = std::thread::spawn(move || {
            let mut open: Vec<UnixStream> = Vec::new();
            for client in socket.incoming() {
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                let client = client.unwrap();
                let server = UnixStream::connect(&server).unwrap();
                open.push(client.try_clone().unwrap());
                pass_on(client, server, &to);
            }
            for client in open {
                // One that has gone is closed already.
                drop(client.shutdown(Shutdown::Both));
            }
        });
        let (at, listener) = (at.to_owned(), Some(listener));
        Self {
            at,
            heard,
            over,
            listener,
        }
    }

    /// Methods of all requests so far; a notification and an answer to an echo count too.
    pub(super) fn methods(&self) -> Vec<String> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        for connection in heard.iter() {
            let mut frames = Deserializer::from_slice(connection).into_iter::<Value>();
            for frame in frames.by_ref().map_while(Result::ok) {
                let method = frame.get("method").and_then(Value::as_str);
                found.push(method.unwrap_or("(answer)").to_owned());
            }
            // A half message could be a transaction.
            let rest = connection
                .get(frames.byte_offset()..)
                .unwrap_or_default()
                .trim_ascii();
            assert!(
                rest.is_empty(),
                "not a whole request: {}",
                String::from_utf8_lossy(rest)
            );
        }
        found
    }
}

fn pass_on(client: UnixStream, server: UnixStream, heard: &Heard) {
    let (answers, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let heard = Arc::clone(heard);
    let number = {
        let mut all = heard.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Vec::new());
        all.len() - 1
    };
    std::thread::spawn(move || {
        copy(client, server, |bytes| {
            let mut all = heard.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(connection) = all.get_mut(number) {
                connection.extend_from_slice(bytes);
            }
        });
    });
    std::thread::spawn(move || copy(answers, to_client, |_| {}));
}

/// Copies until one side has gone, and takes the other side with it.
fn copy(mut from: UnixStream, mut to: UnixStream, mut note: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = buffer.get(..count).unwrap_or_default();
        note(bytes);
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    // Closed by the other side, perhaps.
    drop(to.shutdown(Shutdown::Both));
    drop(from.shutdown(Shutdown::Both));
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the listener, which then sees that it is over.
        drop(UnixStream::connect(&self.at));
        if let Some(listener) = self.listener.take() {
            drop(listener.join());
        }
        drop(std::fs::remove_file(&self.at));
    }
}
