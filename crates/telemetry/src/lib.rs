//! What a daemon says of itself: structured logs, metrics, health and readiness.
//! In: events and numbers from the binaries. Out: lines on standard error, and an HTTP server with `/metrics`, `/healthz`, `/readyz`.
//! Invariant: `/readyz` is 200 only when every named condition is true; its body names the ones that are not.
//! Not here: what to measure; each binary registers its own metrics.

mod warn_once;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use nix::sys::socket::{setsockopt, sockopt};
use prometheus::{Registry, TextEncoder};
use tokio::net::{TcpListener, TcpSocket};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;

pub use self::warn_once::WarnOnce;

/// Changes the level of a log that runs.
type Level = Handle<EnvFilter, tracing_subscriber::Registry>;
static LEVEL: OnceLock<Level> = OnceLock::new();

/// Sets up logging: one JSON object a line on standard error, level from `RUST_LOG` or `level`.
/// `text` gives lines for people instead. A second call changes nothing.
pub fn init_logging(level: &str, text: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| filter(level));
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    // A second subscriber in one process is refused; the first stays, which is what a test wants.
    let first = if text {
        registry.with(lines).try_init()
    } else {
        registry.with(lines.json().flatten_event(true)).try_init()
    };
    if first.is_ok() {
        drop(LEVEL.set(handle));
    }
}

/// Of failed listings the watches' owners tell, once; the library does at each attempt.
fn filter(level: &str) -> EnvFilter {
    EnvFilter::new(format!("{level},kube_runtime::watcher=error"))
}

/// Another level from now on: `error`, `warn`, `info`, `debug` or `trace`. Where `RUST_LOG` says one, that stays.
pub fn set_level(level: &str) {
    let said = EnvFilter::try_from_default_env().is_ok();
    if let Some(handle) = LEVEL.get().filter(|_| !said) {
        // The subscriber lives as long as the process.
        drop(handle.reload(filter(level)));
    }
}

/// Shows an error with all its causes: `a: b: c`.
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            write!(f, ": {cause}")?;
            next = cause.source();
        }
        Ok(())
    }
}

/// The conditions of `/readyz`, by name. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, bool>>>);

impl Readiness {
    /// Sets one condition; a condition that was never set does not count, so set all to false at start.
    pub fn set(&self, name: &'static str, ready: bool) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name, ready);
    }

    /// Names of the conditions that are false; empty means ready (if there is a condition at all).
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if map.is_empty() {
            return vec!["start"];
        }
        map.iter()
            .filter(|(_, ready)| !**ready)
            .map(|(name, _)| *name)
            .collect()
    }
}

/// `EAFNOSUPPORT` and `EADDRNOTAVAIL`.
const NO_FAMILY: i32 = 97;
const NO_ADDRESS: i32 = 99;

/// Why the metrics server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address of `[metrics]` cannot be bound.
    #[error(
        "cannot listen on {address} ([metrics] bind-address, or the daemon's own NAME-bind-address)"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The server ended.
    #[error("metrics server ended")]
    Serve(#[source] std::io::Error),
}

/// Serves `/metrics`, `/healthz` (200 while the process answers) and `/readyz` until the task is dropped.
/// `[::]` means all addresses of both families; where the system has no IPv6, all of IPv4.
///
/// # Errors
/// When the address cannot be bound, or the listener fails later.
pub async fn serve(
    address: SocketAddr,
    registry: Registry,
    readiness: Readiness,
) -> Result<(), ServeError> {
    let listener = listen(address).map_err(|source| ServeError::Bind { address, source })?;
    let app = Router::new()
        .route("/metrics", get(metrics).with_state(registry))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz).with_state(readiness));
    axum::serve(listener, app).await.map_err(ServeError::Serve)
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let everywhere = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    match listen_on(address, everywhere) {
        // What a system says that was started without IPv6, or took it from the namespace.
        Err(error)
            if everywhere && matches!(error.raw_os_error(), Some(NO_FAMILY | NO_ADDRESS)) =>
        {
            listen_on((Ipv4Addr::UNSPECIFIED, address.port()).into(), false)
        }
        other => other,
    }
}

fn listen_on(address: SocketAddr, both: bool) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Of a daemon that has just ended, connections may still be there.
    socket.set_reuseaddr(true)?;
    if both {
        // Whatever net.ipv6.bindv6only says.
        setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    }
    socket.bind(address)?;
    socket.listen(128)
}

async fn metrics(State(registry): State<Registry>) -> impl IntoResponse {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(text) => (StatusCode::OK, text),
        Err(err) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{}\n", Chain(&err)),
        ),
    }
}

async fn readyz(State(readiness): State<Readiness>) -> impl IntoResponse {
    let missing = readiness.missing();
    if missing.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready: {}\n", missing.join(", ")),
        )
    }
}

/// Tells how a daemon ended: 0, or 1 after one line with every cause on standard error.
#[must_use]
pub fn exit_code<E: AsRef<dyn Error + Send + Sync>>(
    result: Result<(), E>,
) -> std::process::ExitCode {
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", Chain(error.as_ref()));
            std::process::ExitCode::FAILURE
        }
    }
}

/// Resolves when the process is asked to stop (SIGTERM or SIGINT).
///
/// # Errors
/// When signals cannot be listened to.
pub async fn ended() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
