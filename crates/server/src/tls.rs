//! TLS for listeners: reads the files, shakes hands, and wraps a socket in a stream that connections use like a socket.
//! Independent of the protocol.

use std::fs;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use windlass_config::{Tls, TlsError};

use crate::clock;

/// Turns the sockets of a listener into TLS streams. Can read its files again at any time.
#[derive(Debug)]
pub(crate) struct Handshaker {
    files: Tls,
    current: RwLock<Arc<ServerConfig>>,
    handshake_max: Duration,
}

impl Handshaker {
    /// `None` if TLS is off.
    ///
    /// # Errors
    ///
    /// The files cannot be used.
    pub(crate) fn new(files: &Tls, handshake_max: Duration) -> Result<Option<Self>, TlsError> {
        if !files.is_on() {
            return Ok(None);
        }
        let current = RwLock::new(Arc::new(load(files)?));
        Ok(Some(Self { files: files.clone(), current, handshake_max }))
    }

    /// Reads the files again, for new connections. On an error everything stays as it was.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let new = Arc::new(load(&self.files)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Shakes hands, unless it takes too long or the daemon stops meanwhile.
    pub(crate) async fn accept(&self, socket: TcpStream, stop: CancellationToken) -> io::Result<TlsStream> {
        let current = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        let shaken = clock::timeout(self.handshake_max, TlsAcceptor::from(current).accept(socket));
        tokio::select! {
            shaken = shaken => {
                let inner = shaken.ok_or(io::ErrorKind::TimedOut)??;
                Ok(TlsStream { inner, unconfirmed: 0 })
            }
            () = stop.cancelled() => Err(io::Error::other("the daemon stops")),
        }
    }
}

// ---- files -----------------------------------------------------------------------------------------------------------

/// Checks that the files can be used.
///
/// # Errors
///
/// They cannot.
pub(crate) fn check(files: &Tls) -> Result<(), TlsError> {
    if files.is_on() { load(files).map(drop) } else { Ok(()) }
}

fn load(files: &Tls) -> Result<ServerConfig, TlsError> {
    let given = |path: &Path| !path.as_os_str().is_empty();
    match (given(&files.certificate), given(&files.key)) {
        (true, true) => {}
        (true, false) => return Err(TlsError::Missing { key: "key", with: "certificate" }),
        (false, true) => return Err(TlsError::Missing { key: "certificate", with: "key" }),
        (false, false) => return Err(TlsError::Missing { key: "certificate", with: "client_ca" }),
    }
    let provider = Arc::new(ring::default_provider());
    let certified = certified_key(files, &provider)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("certificate", &files.certificate, error))?;
    let builder = if given(&files.client_ca) {
        builder.with_client_cert_verifier(client_verifier(&files.client_ca, provider)?)
    } else {
        builder.with_no_client_auth()
    };
    Ok(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified))))
}

fn certified_key(files: &Tls, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let chain = certificates("certificate", &files.certificate)?;
    let bad_key = |reason: &dyn std::fmt::Display| unusable("key", &files.key, reason);
    let key = PrivateKeyDer::from_pem_slice(&read("key", &files.key)?)
        .map_err(|error| bad_key(&malformed(&error, "no private key in it (PEM, not encrypted)")))?;
    let key = provider.key_provider.load_private_key(key).map_err(|error| bad_key(&error))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // Unknown: rustls cannot derive the public key of this kind of key.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err(bad_key(&format_args!("not the key of the certificate in {}", files.certificate.display())))
        }
        Err(error) => Err(unusable("certificate", &files.certificate, error)),
    }
}

fn client_verifier(path: &Path, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("client_ca", path)? {
        roots.add(certificate).map_err(|error| unusable("client_ca", path, error))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| unusable("client_ca", path, error))
}

/// The certificates in a file; at least one.
fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(key, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => Err(unusable(key, path, "no certificate in it (PEM)")),
        found => found.map_err(|error| unusable(key, path, malformed(&error, "no certificate in it (PEM)"))),
    }
}

fn malformed(error: &pem::Error, nothing: &'static str) -> &'static str {
    if matches!(error, pem::Error::NoItemsFound) { nothing } else { "a section of it is cut off or malformed (PEM)" }
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|reason| TlsError::Unreadable { key, path: path.to_owned(), reason })
}

fn unusable(key: &'static str, path: &Path, reason: impl ToString) -> TlsError {
    TlsError::Unusable { key, path: path.to_owned(), reason: reason.to_string() }
}

// ---- the stream ------------------------------------------------------------------------------------------------------

/// A TLS connection.
///
/// A write is complete when its bytes are with the kernel, not when they are encrypted, so that there is nothing to flush and no
/// uncounted buffer. This requires something of the writer: while a write is pending, it must offer the same bytes again, and may
/// offer more behind them.
#[derive(Debug)]
pub(crate) struct TlsStream {
    inner: tokio_rustls::server::TlsStream<TcpStream>,
    /// Bytes that are encrypted but not yet all with the kernel: the first of the next bytes offered.
    unconfirmed: usize,
}

impl TlsStream {
    /// The socket below.
    pub(crate) fn socket(&self) -> &TcpStream {
        self.inner.get_ref().0
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.inner).poll_read(cx, buffer)) {
            // The peer closed its socket without `close_notify`, as many do. The protocol notices a truncation: its messages have
            // a length.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            done => Poll::Ready(done),
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.unconfirmed == 0 {
            self.unconfirmed = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        }
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        Poll::Ready(Ok(std::mem::take(&mut self.unconfirmed)))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Sends `close_notify`, as far as the kernel takes it without waiting.
impl Drop for TlsStream {
    fn drop(&mut self) {
        let (socket, session) = self.inner.get_mut();
        session.send_close_notify();
        let mut last = Vec::new();
        while session.wants_write() {
            if session.write_tls(&mut last).is_err() {
                return;
            }
        }
        let _ = socket.try_write(&last);
    }
}
