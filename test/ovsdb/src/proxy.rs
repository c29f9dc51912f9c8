//! Stands between client and server and misbehaves as a network does.
//!
//! In: a server's socket and a way to relay. Out: a socket of its own.
//! Invariant: what is relayed is complete and in order; only the cuts differ.
//! Not here: changes of content, but for the garbage that was asked for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// How the bytes of the server are handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relay {
    /// One at a time.
    Bytewise,
    /// Gathered for this long, then all at once.
    Gathered(Duration),
    /// So many at a time, with this pause after each, as over a slow path.
    Slowly(usize, Duration),
    /// The first connection gets these bytes and no server; later ones are relayed as they are.
    GarbageFirst(&'static [u8]),
}

/// A proxy on a unix socket; ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    socket: PathBuf,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Listens at `socket` and relays to `server`.
    #[must_use]
    pub fn start(socket: PathBuf, server: PathBuf, relay: Relay) -> Self {
        let listener = UnixListener::bind(&socket).expect("socket of the proxy");
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(client, server.clone(), relay, number));
            }
        });
        Self {
            socket,
            connections,
            task,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// How many connections were made to it.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut client: UnixStream, server: PathBuf, relay: Relay, number: usize) {
    if let (Relay::GarbageFirst(garbage), 0) = (relay, number) {
        let _ = client.write_all(garbage).await;
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest).await;
        return;
    }
    let Ok(server) = UnixStream::connect(server).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let none = Duration::ZERO;
    let (piece, hold, pause) = match relay {
        Relay::Bytewise => (1, none, none),
        Relay::Slowly(piece, pause) => (piece, none, pause),
        Relay::Gathered(hold) => (1 << 20, hold, none),
        Relay::GarbageFirst(_) => (1 << 20, none, none),
    };
    // Whichever side closes first ends both directions.
    tokio::select! {
        () = pump(from_client, to_server, piece, none, none) => {}
        () = pump(from_server, to_client, piece, hold, pause) => {}
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    piece: usize,
    hold: Duration,
    pause: Duration,
) {
    let mut held = Vec::with_capacity(1 << 16);
    while matches!(from.read_buf(&mut held).await, Ok(1..)) {
        if !hold.is_zero() {
            let gathering = async { while matches!(from.read_buf(&mut held).await, Ok(1..)) {} };
            let _ = tokio::time::timeout(hold, gathering).await;
        }
        for part in held.chunks(piece) {
            if to.write_all(part).await.is_err() {
                return;
            }
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            } else if piece == 1 {
                // Lets the reader see this byte alone.
                tokio::task::yield_now().await;
            }
        }
        held.clear();
    }
}
