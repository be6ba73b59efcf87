//! TLS between the daemons of a cluster. Each presents a certificate, and one CA has signed all of
//! them.

use std::io;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring;
use rustls::pki_types::{InvalidDnsNameError, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use windlass_config::TlsError;

use super::link::Socket;
use windlass_net::tls;

/// The TLS settings of both sides.
pub struct Tls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the files. Returns `None` if TLS is off.
    ///
    /// # Errors
    ///
    /// A file cannot be used, or the CA is missing.
    pub fn new(files: &windlass_config::Tls) -> Result<Option<Self>, TlsError> {
        if !files.is_on() {
            return Ok(None);
        }
        if !files.asks_for_certificates() {
            return Err(TlsError::Missing {
                key: "client_ca",
                with: "certificate",
            });
        }
        let server: ServerConfig = tls::load(files)?;
        let client = client(files)?;
        let (acceptor, connector) = (
            TlsAcceptor::from(Arc::new(server)),
            TlsConnector::from(Arc::new(client)),
        );
        Ok(Some(Self {
            acceptor,
            connector,
        }))
    }

    /// Accepts TLS on an incoming connection.
    pub async fn accept(&self, socket: TcpStream) -> io::Result<Box<dyn Socket>> {
        Ok(Box::new(self.acceptor.accept(socket).await?))
    }

    /// Starts TLS on an outgoing connection. The peer must have a certificate for the host of this
    /// address.
    pub async fn connect(&self, socket: TcpStream, address: &str) -> io::Result<Box<dyn Socket>> {
        let name = server_name(address).map_err(io::Error::other)?;
        Ok(Box::new(self.connector.connect(name, socket).await?))
    }
}

/// The host of an address.
fn server_name(address: &str) -> Result<ServerName<'static>, InvalidDnsNameError> {
    let (host, _) = address.rsplit_once(':').unwrap_or((address, ""));
    ServerName::try_from(
        host.trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned(),
    )
}

/// Checks that the files are usable, and that the certificate is valid for this daemon's own
/// address, because other daemons verify it when this one leads.
///
/// # Errors
///
/// A file is unusable, or the certificate is for another address.
pub fn check(files: &windlass_config::Tls, address: &str) -> Result<(), TlsError> {
    if Tls::new(files)?.is_none() {
        return Ok(());
    }
    let name = server_name(address).map_err(|why| refused_at(files, address, &why))?;
    let chain = tls::certificates("certificate", &files.certificate)?;
    let Some(own) = chain.first() else {
        return Ok(());
    };
    let own = ParsedCertificate::try_from(own).map_err(|why| refused_at(files, address, &why))?;
    rustls::client::verify_server_name(&own, &name).map_err(|why| refused_at(files, address, &why))
}

/// Checks that other daemons, which have the same CA, accept this daemon's certificate today: as a
/// server certificate when it leads, and as a client certificate when it follows.
///
/// # Errors
///
/// They would reject it.
pub fn check_today(files: &windlass_config::Tls, address: &str) -> Result<(), TlsError> {
    if !files.is_on() {
        return Ok(());
    }
    let at_address = |why: &dyn std::fmt::Display| refused_at(files, address, why);
    let name = server_name(address).map_err(|why| at_address(&why))?;
    let chain = tls::certificates("certificate", &files.certificate)?;
    let Some((own, others)) = chain.split_first() else {
        return Ok(());
    };
    let (roots, provider, now) = (
        Arc::new(tls::authorities(&files.client_ca)?),
        Arc::new(ring::default_provider()),
        UnixTime::now(),
    );
    let server =
        WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build();
    let server = server.map_err(|why| at_address(&why))?;
    server
        .verify_server_cert(own, others, &name, &[], now)
        .map_err(|why| at_address(&why))?;
    let as_client = |why: &dyn std::fmt::Display| {
        let reason = format!("leaders would reject it as an edge's certificate: {why}");
        tls::unusable("certificate", &files.certificate, reason)
    };
    let client = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
    let client = client.map_err(|why| as_client(&why))?;
    client
        .verify_client_cert(own, others, now)
        .map(drop)
        .map_err(|why| as_client(&why))
}

fn refused_at(
    files: &windlass_config::Tls,
    address: &str,
    why: &dyn std::fmt::Display,
) -> TlsError {
    let reason =
        format!("other daemons would reject it at this daemon's address, {address}: {why}");
    tls::unusable("certificate", &files.certificate, reason)
}

fn client(files: &windlass_config::Tls) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let roots = tls::authorities(&files.client_ca)?;
    let certified = Arc::new(tls::certified_key(files, &provider)?);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| tls::unusable("certificate", &files.certificate, error))?;
    Ok(builder
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified))))
}
