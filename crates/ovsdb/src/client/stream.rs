//! Opens the connection that an endpoint names.
//!
//! In: an endpoint, a time limit, TLS files. Out: a stream of bytes.
//! Invariant: returns within the limit.
//! Not here: what travels over it.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::rustls::pki_types::ServerName;

use super::config::ClientConfig;
use super::endpoint::{Endpoint, HostPort};
use super::error::{LinkError, TlsError};
use super::tls;

/// Bytes both ways, over whatever transport.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Connects, TLS handshake included. May be cancelled at any point.
pub(super) async fn open(config: &ClientConfig) -> Result<Box<dyn Duplex>, LinkError> {
    match tokio::time::timeout(config.call_timeout, attempt(config)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(LinkError::ConnectTimeout {
            endpoint: config.endpoint.clone(),
            limit: config.call_timeout,
        }),
    }
}

async fn attempt(config: &ClientConfig) -> Result<Box<dyn Duplex>, LinkError> {
    let failed = |source| LinkError::Connect {
        endpoint: config.endpoint.clone(),
        source,
    };
    match &config.endpoint {
        Endpoint::Unix(path) => Ok(Box::new(UnixStream::connect(path).await.map_err(failed)?)),
        Endpoint::Tcp(address) => Ok(Box::new(tcp(address).await.map_err(failed)?)),
        Endpoint::Ssl(address) => {
            let files = config
                .tls
                .clone()
                .ok_or(LinkError::Tls(TlsError::NoFiles))?;
            let connector = tls::connector(&files).map_err(LinkError::Tls)?;
            let name = ServerName::try_from(address.host.to_string()).map_err(|_| {
                LinkError::Tls(TlsError::Name {
                    host: address.host.clone(),
                })
            })?;
            let plain = tcp(address).await.map_err(failed)?;
            Ok(Box::new(
                connector.connect(name, plain).await.map_err(failed)?,
            ))
        }
    }
}

async fn tcp(address: &HostPort) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((&*address.host, address.port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
