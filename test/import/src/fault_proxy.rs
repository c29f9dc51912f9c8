//! Stands between client and database and cuts the connection where it is asked to, to the byte.
//! In: the database's socket, a [`Cut`]. Out: a socket of its own.
//! Invariant: up to the cut everything is relayed as it is; after it neither side gets another byte of that connection.
//! Not here: when to cut.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Where the connection is cut, counted in the client's requests from when this was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Right after so many requests were handed on whole: the last one's reply is lost, most likely.
    After(usize),
    /// After so many requests and so many bytes of the next. Without such a byte: when the next one begins, so that all
    /// replies before it have arrived.
    Inside(usize, usize),
}

#[derive(Debug, Default)]
struct Armed {
    cut: Option<Cut>,
    requests: usize,
    /// Bytes of the request that is on its way.
    bytes: usize,
    cuts: usize,
    depth: usize,
    quoted: bool,
    escaped: bool,
}

/// The proxy; it ends with this value, and so do the connections through it.
#[derive(Debug)]
pub struct FaultProxy {
    socket: PathBuf,
    armed: Arc<Mutex<Armed>>,
    now: watch::Sender<u64>,
    task: JoinHandle<()>,
}

impl FaultProxy {
    /// Listens at `socket` and relays to `server`.
    #[must_use]
    pub fn start(socket: PathBuf, server: PathBuf) -> Self {
        let listener = UnixListener::bind(&socket).expect("socket of the proxy");
        let armed: Arc<Mutex<Armed>> = Arc::default();
        let (now, watching) = watch::channel(0);
        let of_all = Arc::clone(&armed);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // What was counted of an earlier connection does not matter for this one's requests.
                lock(&of_all).begin();
                let (server, armed) = (server.clone(), Arc::clone(&of_all));
                let mut watching = watching.clone();
                watching.mark_unchanged();
                tokio::spawn(async move {
                    let Ok(server) = UnixStream::connect(server).await else {
                        return;
                    };
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::select! {
                        () = up(from_client, to_server, &armed) => {}
                        () = down(from_server, to_client) => {}
                        _ = watching.changed() => {}
                    }
                });
            }
        });
        Self {
            socket,
            armed,
            now,
            task,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Cuts all connections now.
    pub fn cut(&self) {
        self.now.send_modify(|count| *count += 1);
    }

    /// Cuts once where it is said; requests count from now.
    pub fn arm(&self, cut: Cut) {
        let mut armed = lock(&self.armed);
        armed.cut = Some(cut);
        armed.requests = 0;
    }

    /// Does not cut any more.
    pub fn disarm(&self) {
        lock(&self.armed).cut = None;
    }

    /// How often it has cut where it was asked to.
    #[must_use]
    pub fn cuts(&self) -> usize {
        lock(&self.armed).cuts
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.cut();
        self.task.abort();
    }
}

fn lock(armed: &Mutex<Armed>) -> MutexGuard<'_, Armed> {
    armed.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Armed {
    fn begin(&mut self) {
        (self.bytes, self.depth) = (0, 0);
        (self.quoted, self.escaped) = (false, false);
    }

    /// How many of these bytes are handed on, and whether the cut comes then.
    fn take(&mut self, bytes: &[u8]) -> (usize, bool) {
        for (at, byte) in bytes.iter().enumerate() {
            let cut = matches!(self.cut, Some(Cut::Inside(requests, bytes))
                if self.requests > requests || (self.requests == requests && self.bytes >= bytes));
            if cut {
                return self.cut_at(at);
            }
            self.bytes += 1;
            if self.ends(*byte) {
                self.bytes = 0;
                self.requests += 1;
                if matches!(self.cut, Some(Cut::After(requests)) if self.requests >= requests) {
                    return self.cut_at(at + 1);
                }
            }
        }
        (bytes.len(), false)
    }

    fn cut_at(&mut self, at: usize) -> (usize, bool) {
        self.cut = None;
        self.cuts += 1;
        (at, true)
    }

    /// Whether a request ends with this byte: all of them are JSON objects.
    fn ends(&mut self, byte: u8) -> bool {
        if self.quoted {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.quoted = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.quoted = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}

async fn up(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, armed: &Mutex<Armed>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let part = buffer.get(..count).unwrap_or_default();
        let (pass, cut) = lock(armed).take(part);
        let pass = part.get(..pass).unwrap_or_default();
        if to.write_all(pass).await.is_err() || cut {
            return;
        }
    }
}

async fn down(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let _ = tokio::io::copy(&mut from, &mut to).await;
}
