//! A client whose connections fall silent when this replica leads no longer.
//! In: the client's configuration, [`Leadership`]. Out: a client. Invariant: leadership is asked at each write to a socket: what
//! was handed over before, and waited while the process was frozen, never leaves.
//! Not here: whether a call may begin (`write`), when leadership ends (`leadership`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{ClientBuilder, ConfigExt};
use tower::{BoxError, ServiceBuilder, ServiceExt};

use crate::client::CONNECT_DEADLINE;
use crate::leadership::Leadership;

/// As `kube` builds its own, but for the connections; calls have deadlines of their own.
pub(crate) fn client(
    config: &kube::Config,
    leadership: Leadership,
) -> Result<kube::Client, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_DEADLINE));
    let gated = tcp.map_response(move |stream| Gated {
        stream,
        leadership: leadership.clone(),
    });
    let https = config.rustls_https_connector_with_connector(gated)?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(Client::builder(TokioExecutor::new()).build(https));
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// A connection, below its encryption.
struct Gated<S> {
    stream: S,
    leadership: Leadership,
}

impl<S> Gated<S> {
    fn allowed(&self) -> io::Result<()> {
        if self.leadership.leads() {
            return Ok(());
        }
        let why = "another replica leads";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }
}

impl<S: Connection> Connection for Gated<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl<S: Read + Unpin> Read for Gated<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: Write + Unpin> Write for Gated<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Err(refused) = self.allowed() {
            return Poll::Ready(Err(refused));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Err(refused) = self.allowed() {
            return Poll::Ready(Err(refused));
        }
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
