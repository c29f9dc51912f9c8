//! Stands between client and server and fails on command: holds back, slows down, cuts after so many bytes.
//!
//! In: a server's socket, and orders at any time. Out: a socket of its own, and how much went through.
//! Invariant: what is relayed is what was sent, in order; after a cut the reader has got exactly the bytes allowed.
//! Not here: cuts of the stream into pieces; see `proxy`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// How bytes are let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// As they come.
    Free,
    /// At most so many at once, and a pause after them.
    Slow(usize, Duration),
    /// Not at all; the sender is held up when the sockets are full.
    Held,
}

/// One of each way.
#[derive(Debug, Clone, Copy, Default)]
struct Both<T> {
    up: T,
    down: T,
}

impl<T> Both<T> {
    const fn of(&self, way: Way) -> &T {
        match way {
            Way::Up => &self.up,
            Way::Down => &self.down,
        }
    }

    const fn of_mut(&mut self, way: Way) -> &mut T {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Orders {
    flow: Both<Flow>,
    /// Of each connection so many bytes this way, then its end.
    cut: Option<(Way, usize)>,
    /// Connections with lower numbers end.
    first: usize,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicUsize,
    cuts: AtomicUsize,
    /// Of the newest connection.
    relayed: Both<AtomicUsize>,
}

/// A proxy on a unix socket that takes orders; ends when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    socket: PathBuf,
    orders: watch::Sender<Orders>,
    counts: Arc<Counts>,
    task: JoinHandle<()>,
}

impl FaultProxy {
    /// Listens at `socket` and relays to `server`, freely.
    #[must_use]
    pub fn start(socket: PathBuf, server: PathBuf) -> Self {
        let listener = UnixListener::bind(&socket).expect("socket of the proxy");
        let (orders, _) = watch::channel(Orders {
            flow: Both {
                up: Flow::Free,
                down: Flow::Free,
            },
            cut: None,
            first: 0,
        });
        let counts = Arc::new(Counts::default());
        let (reported, count) = (orders.subscribe(), Arc::clone(&counts));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = count.connections.fetch_add(1, Ordering::SeqCst);
                for way in [Way::Up, Way::Down] {
                    count.relayed.of(way).store(0, Ordering::SeqCst);
                }
                let (server, reported, count) =
                    (server.clone(), reported.clone(), Arc::clone(&count));
                tokio::spawn(async move {
                    if let Ok(server) = UnixStream::connect(server).await {
                        serve(client, server, number, reported, count).await;
                    }
                });
            }
        });
        Self {
            socket,
            orders,
            counts,
            task,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// From now on, bytes of every connection go like this.
    pub fn flow(&self, way: Way, flow: Flow) {
        self.orders
            .send_modify(|orders| *orders.flow.of_mut(way) = flow);
    }

    /// Ends every connection, present and future ones, once `bytes` of it went this way; `None`: no more.
    pub fn cut_after(&self, cut: Option<(Way, usize)>) {
        self.orders.send_modify(|orders| orders.cut = cut);
    }

    /// Ends the connections that there are.
    pub fn cut_now(&self) {
        let first = self.connections();
        self.orders.send_modify(|orders| orders.first = first);
    }

    /// How many connections were made to it.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::SeqCst)
    }

    /// How many connections it ended because they had their bytes.
    #[must_use]
    pub fn cuts(&self) -> usize {
        self.counts.cuts.load(Ordering::SeqCst)
    }

    /// How many bytes of the newest connection went this way.
    #[must_use]
    pub fn relayed(&self, way: Way) -> usize {
        self.counts.relayed.of(way).load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        // Connections end with the orders they listen to.
        self.task.abort();
    }
}

async fn serve(
    client: UnixStream,
    server: UnixStream,
    number: usize,
    mut reported: watch::Receiver<Orders>,
    counts: Arc<Counts>,
) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (up, down) = (reported.clone(), reported.clone());
    tokio::select! {
        () = pump(from_client, to_server, Way::Up, up, &counts) => {}
        () = pump(from_server, to_client, Way::Down, down, &counts) => {}
        _ = reported.wait_for(|orders| number < orders.first) => {}
    }
}

/// Relays one way until an end, or until the bytes allowed have gone.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: Way,
    mut reported: watch::Receiver<Orders>,
    counts: &Counts,
) {
    let mut buffer = vec![0; 1 << 16];
    let mut gone = 0;
    loop {
        let open = |orders: &Orders| *orders.flow.of(way) != Flow::Held;
        let Ok(orders) = reported.wait_for(open).await.map(|orders| *orders) else {
            return;
        };
        let (mut most, mut pause) = (buffer.len(), Duration::ZERO);
        if let Flow::Slow(bytes, rest) = *orders.flow.of(way) {
            (most, pause) = (bytes.min(most), rest);
        }
        if let Some((cut, bytes)) = orders.cut
            && cut == way
        {
            most = most.min(bytes.saturating_sub(gone));
            if most == 0 {
                counts.cuts.fetch_add(1, Ordering::SeqCst);
                return;
            }
        }
        let part = buffer.get_mut(..most).unwrap_or_default();
        let read = tokio::select! {
            read = from.read(part) => read,
            // New orders hold for bytes that have not been read yet.
            changed = reported.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        let Ok(read @ 1..) = read else {
            return;
        };
        gone += read;
        // Counted first: who has heard an answer finds it counted.
        counts.relayed.of(way).fetch_add(read, Ordering::SeqCst);
        let piece = buffer.get(..read).unwrap_or_default();
        if to.write_all(piece).await.is_err() {
            return;
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}
