//! Mutual TLS as OVS does it: who holds a certificate of the authority is trusted, whatever name it bears.
//!
//! In: PEM files. Out: a connector.
//! Invariant: the server's chain, validity and key usage are checked as ever; only a name that differs is passed over,
//! because `ovs-pki` writes names like `server id:UUID` that no host has.
//! Not here: revocation, and taking over certificates from the peer (bootstrap).

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, GetRandomFailed, ring};
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::config::TlsFiles;
use super::error::TlsError;

/// Fills `bytes` from the system's source of randomness.
pub(super) fn fill_random(bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
    ring::default_provider().secure_random.fill(bytes)
}

/// A connector from these files, read now. Blocks on the file system.
pub(super) fn connector(files: &TlsFiles) -> Result<TlsConnector, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates("certificate of the authorities", &files.ca_certificate)? {
        roots.add(certificate).map_err(TlsError::Client)?;
    }
    let chain = certificates("certificate", &files.certificate)?;
    let key =
        PrivateKeyDer::from_pem_file(&files.private_key).map_err(|source| TlsError::File {
            what: "private key",
            path: files.private_key.clone(),
            source,
        })?;
    let verifier = OvsVerifier::new(roots, &provider)?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Client)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(chain, key)
        .map_err(TlsError::Client)?;
    Ok(TlsConnector::from(Arc::new(config)))
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source: PemError| TlsError::File {
        what,
        path: path.to_owned(),
        source,
    };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(failed)?
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    if certificates.is_empty() {
        Err(failed(PemError::NoItemsFound))
    } else {
        Ok(certificates)
    }
}

/// The standard verifier, but for the name.
#[derive(Debug)]
struct OvsVerifier(Arc<WebPkiServerVerifier>);

impl OvsVerifier {
    fn new(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let builder =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        builder.build().map(Self).map_err(TlsError::Verifier)
    }
}

impl ServerCertVerifier for OvsVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self
            .0
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
        {
            // The name is looked at last, after chain, validity and usage.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
