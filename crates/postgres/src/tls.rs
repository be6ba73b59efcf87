//! TLS to the database: rustls under tokio-postgres. The server's certificate and its name are always verified.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// Where systems keep the certificates that they trust.
const SYSTEM_FILES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Trusts the authorities in this file, or the system's if it is empty. Fails with what is wrong with the file.
pub(crate) fn client_config(ca_file: &Path) -> Result<Arc<ClientConfig>, String> {
    let file = if ca_file.as_os_str().is_empty() {
        let found = SYSTEM_FILES
            .iter()
            .map(Path::new)
            .find(|path| path.is_file());
        found.ok_or("is empty, and this system has no list of authorities")?
    } else {
        ca_file
    };
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let certificates = CertificateDer::pem_file_iter(file).map_err(|why| failed(&why))?;
    let certificates = certificates
        .collect::<Result<Vec<_>, _>>()
        .map_err(|why| failed(&why))?;
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(failed(&"has no certificate"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions
        .map_err(|why| failed(&why))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Makes a connection of TLS for each host.
#[derive(Clone)]
pub(crate) struct MakeTls(pub(crate) Arc<ClientConfig>);

/// Makes a connection of TLS.
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// A connection of TLS.
pub(crate) struct Stream<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for MakeTls {
    type Stream = Stream<S>;
    type TlsConnect = Tls;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Tls, InvalidDnsNameError> {
        let name = ServerName::try_from(host)?.to_owned();
        Ok(Tls {
            connector: TlsConnector::from(Arc::clone(&self.0)),
            name,
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Tls {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let Self { connector, name } = self;
        Box::pin(async move { Ok(Stream(Box::new(connector.connect(name, stream).await?))) })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
