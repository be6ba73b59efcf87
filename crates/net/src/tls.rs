//! TLS for listeners: reads the files, performs handshakes, and wraps a socket in a stream that
//! connections use like a socket. Independent of the protocol.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use mio::event::Source;
use mio::net::TcpStream;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig, ServerConnection};
use windlass_config::{Tls, TlsError};

use crate::stream::Stream;
use windlass_hub::clock;

mod certificate;
#[cfg(test)]
pub mod tests;

/// Maximum plain bytes of a record (RFC 8446, 5.1).
const RECORD_BYTES: usize = 16 << 10;

/// Turns the sockets of a listener into TLS streams.
#[derive(Debug)]
pub struct Handshaker(ArcSwap<Terms>);

/// Namespaces by the names of client certificates.
pub type CertificateNames = BTreeMap<String, Box<str>>;

/// The settings of handshakes.
#[derive(Debug)]
pub struct Terms {
    config: Arc<ServerConfig>,
    handshake_max: Duration,
    namespaces: CertificateNames,
    /// In seconds since 1970, if the certificate contains it.
    certificate_ends_at: Option<u64>,
}

impl Handshaker {
    /// Returns `None` if TLS is off.
    ///
    /// # Errors
    ///
    /// A file cannot be used.
    pub fn new(
        files: &Tls,
        handshake_max: Duration,
        namespaces: CertificateNames,
    ) -> Result<Option<Self>, TlsError> {
        if !files.is_on() {
            return Ok(None);
        }
        let terms = Terms::new(files, handshake_max, namespaces)?;
        Ok(Some(Self(ArcSwap::from_pointee(terms))))
    }

    /// Replaces the settings for new connections.
    pub fn set(&self, terms: Terms) {
        self.0.store(Arc::new(terms));
    }

    /// Wraps an accepted socket.
    ///
    /// # Errors
    ///
    /// The current certificates cannot be used.
    pub fn wrap(&self, socket: TcpStream) -> io::Result<TlsStream> {
        let terms = self.0.load_full();
        let session = ServerConnection::new(Arc::clone(&terms.config)).map_err(io::Error::other)?;
        Ok(TlsStream {
            socket,
            session,
            terms,
            is_silent: true,
            unconfirmed: 0,
        })
    }

    /// Earliest expiry in the certificate chain, in seconds since 1970.
    pub fn certificate_ends_at(&self) -> Option<u64> {
        self.0.load().certificate_ends_at
    }

    /// How long a peer may be silent in its handshake.
    pub fn handshake_max(&self) -> Duration {
        self.0.load().handshake_max
    }
}

impl Terms {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// A file cannot be used.
    pub fn new(
        files: &Tls,
        handshake_max: Duration,
        namespaces: CertificateNames,
    ) -> Result<Self, TlsError> {
        let chain = certificates("certificate", &files.certificate);
        let certificate_ends_at = chain.ok().and_then(|chain| first_end(&chain));
        warn_of_invalid(files);
        Ok(Self {
            config: Arc::new(load(files)?),
            handshake_max,
            namespaces,
            certificate_ends_at,
        })
    }
}

/// Warns of certificates that peers reject now, or that make all peers' certificates invalid. They
/// are used anyway, because the machine's clock may be wrong.
fn warn_of_invalid(files: &Tls) {
    let now = clock::wall().0 / 1_000;
    for (key, path) in [
        ("certificate", &files.certificate),
        ("client_ca", &files.client_ca),
    ] {
        let found = certificates(key, path).unwrap_or_default();
        if let Some(why) = found
            .iter()
            .find_map(|der| certificate::validity(der)?.objection(now))
        {
            let path = path.display();
            tracing::warn!(key, %path, "a certificate {why}: TLS handshakes will fail");
        }
    }
}

/// Earliest expiry of these certificates, in seconds since 1970.
fn first_end(chain: &[CertificateDer<'_>]) -> Option<u64> {
    chain
        .iter()
        .filter_map(|der| certificate::validity(der)?.not_after)
        .min()
}

// ---- files
// ------------------------------------------------------------------------------------------

/// Checks that the files can be used.
///
/// # Errors
///
/// A file cannot be used.
pub fn check(files: &Tls) -> Result<(), TlsError> {
    if files.is_on() {
        load(files).map(drop)
    } else {
        Ok(())
    }
}

/// Reads the files of a listener.
///
/// # Errors
///
/// A file cannot be used.
pub fn load(files: &Tls) -> Result<ServerConfig, TlsError> {
    let given = |path: &Path| !path.as_os_str().is_empty();
    match (given(&files.certificate), given(&files.key)) {
        (true, true) => {}
        (true, false) => {
            return Err(TlsError::Missing {
                key: "key",
                with: "certificate",
            });
        }
        (false, true) => {
            return Err(TlsError::Missing {
                key: "certificate",
                with: "key",
            });
        }
        (false, false) => {
            return Err(TlsError::Missing {
                key: "certificate",
                with: "client_ca",
            });
        }
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

/// The certificate with its key.
///
/// # Errors
///
/// They cannot be read, or do not match.
pub fn certified_key(files: &Tls, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let chain = certificates("certificate", &files.certificate)?;
    let bad_key = |reason: &dyn std::fmt::Display| unusable("key", &files.key, reason);
    let key = PrivateKeyDer::from_pem_slice(&read("key", &files.key)?)
        .map_err(|error| bad_key(&malformed(&error, "no unencrypted private key found (PEM)")))?;
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|error| bad_key(&error))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // Unknown: rustls cannot derive the public key from this kind of key.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(_)) => Err(bad_key(&format_args!(
            "does not match the certificate in {}",
            files.certificate.display()
        ))),
        Err(error) => Err(unusable("certificate", &files.certificate, error)),
    }
}

/// The CA certificates for verifying peers.
pub fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("client_ca", path)? {
        roots
            .add(certificate)
            .map_err(|error| unusable("client_ca", path, error))?;
    }
    Ok(roots)
}

fn client_verifier(
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(path)?), provider).build();
    verifier.map_err(|error| unusable("client_ca", path, error))
}

/// The certificates in a file, at least one.
pub fn certificates(
    key: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(key, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => Err(unusable(key, path, "no certificate found (PEM)")),
        found => found
            .map_err(|error| unusable(key, path, malformed(&error, "no certificate found (PEM)"))),
    }
}

fn malformed(error: &pem::Error, nothing: &'static str) -> &'static str {
    if matches!(error, pem::Error::NoItemsFound) {
        nothing
    } else {
        "truncated or malformed section (PEM)"
    }
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|reason| TlsError::Unreadable {
        key,
        path: path.to_owned(),
        reason,
    })
}

/// An error in the file of a key.
pub fn unusable(key: &'static str, path: &Path, reason: impl ToString) -> TlsError {
    TlsError::Unusable {
        key,
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

// ---- the stream
// -------------------------------------------------------------------------------------

/// A TLS connection.
///
/// A write is complete when the kernel has its bytes, not when they are encrypted, so that no
/// buffer is uncounted. Therefore, while a write is pending, the writer must offer the same bytes
/// again, and may append more.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    session: ServerConnection,
    /// The settings that held when it was accepted.
    terms: Arc<Terms>,
    /// Whether the peer has sent nothing.
    is_silent: bool,
    /// Bytes that are encrypted but not yet completely in the kernel: the first of the next bytes
    /// offered.
    unconfirmed: usize,
}

impl TlsStream {
    /// Writes all encrypted bytes to the kernel.
    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            if self.session.write_tls(&mut self.socket)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Decrypts received bytes. Returns `false` at the end of the stream.
    fn receive(&mut self) -> io::Result<bool> {
        if self.session.read_tls(&mut self.socket)? == 0 {
            return Ok(false);
        }
        self.is_silent = false;
        if let Err(error) = self.session.process_new_packets() {
            // The alert tells the peer the reason, but the peer may be gone.
            let _ = self.flush();
            let is_stranger = matches!(
                error,
                rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_)
            );
            let kind = if is_stranger {
                io::ErrorKind::PermissionDenied
            } else {
                io::ErrorKind::InvalidData
            };
            return Err(io::Error::new(kind, error));
        }
        Ok(true)
    }
}

impl Stream for TlsStream {
    fn shake_hands(&mut self) -> io::Result<bool> {
        loop {
            match self.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                flushed => flushed?,
            }
            if !self.session.is_handshaking() {
                return Ok(true);
            }
            match self.receive() {
                Ok(true) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Ok(false) | Err(_) if self.is_silent => {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                Ok(false) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "tls handshake eof",
                    ));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn namespace(&self) -> Option<Box<str>> {
        let namespaces = &self.terms.namespaces;
        if namespaces.is_empty() {
            return None;
        }
        let own = self.session.peer_certificates()?.first()?;
        let names = certificate::names(own);
        names.iter().find_map(|name| namespaces.get(name)).cloned()
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The peer closed its socket without `close_notify`, as many do. Truncation is
                // detected by the protocol, whose messages have a length.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if !self.receive()? {
                return Ok(self.session.reader().read(buffer).unwrap_or(0));
            }
        }
    }

    fn read_behind(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let held = buffer.len();
        buffer.resize((held + RECORD_BYTES).min(buffer.capacity()), 0);
        let read = self.read(buffer.get_mut(held..).unwrap_or_default());
        buffer.truncate(held + read.as_ref().map_or(0, |read| *read));
        read
    }

    fn is_drained_by_short_reads(&self) -> bool {
        false
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.unconfirmed == 0 {
            self.flush()?;
            self.unconfirmed = self.session.writer().write(bytes)?;
        }
        self.flush()?;
        Ok(std::mem::take(&mut self.unconfirmed))
    }

    fn acknowledge(&self) {
        self.socket.acknowledge();
    }

    fn has_unwritten(&self) -> bool {
        self.session.wants_write()
    }

    fn source(&mut self) -> &mut dyn Source {
        &mut self.socket
    }
}

/// Sends `close_notify` after a complete handshake, as far as the kernel accepts it without
/// blocking.
impl Drop for TlsStream {
    fn drop(&mut self) {
        if !self.session.is_handshaking() {
            self.session.send_close_notify();
            let _ = self.flush();
        }
    }
}
