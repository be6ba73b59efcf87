//! TLS to another program: an old broker, or the proxy in front of a daemon. Its certificate and
//! its name are always verified.

use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use windlass_config::{Failure, system};

/// Where systems keep their CA certificates.
const SYSTEM_FILES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Opens TLS connections.
#[derive(Clone)]
pub struct Tls(TlsConnector);

// Its settings never change, so unwinding cannot leave them inconsistent.
impl UnwindSafe for Tls {}
impl RefUnwindSafe for Tls {}

/// A client certificate and its key, both PEM, for a peer that requires one.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The certificate chain.
    pub certificate: &'a Path,
    /// Its key, not encrypted.
    pub key: &'a Path,
}

impl Tls {
    /// Trusts the CA certificates in this file, or the system's, and presents its identity to a
    /// peer that requests it.
    ///
    /// # Errors
    ///
    /// [`Failure::Source`] for a file without certificates, or without the matching key.
    pub fn new(ca: Option<&Path>, identity: Option<Identity<'_>>) -> Result<Self, Failure> {
        let of_system = || {
            SYSTEM_FILES
                .iter()
                .map(Path::new)
                .find(|path| path.is_file())
        };
        let no_file = || {
            Failure::unusable(
                Path::new("authorities"),
                "this system has no list of CA certificates: name a file",
            )
        };
        let file = ca.or_else(of_system).ok_or_else(no_file)?;
        let mut roots = RootCertStore::empty();
        for certificate in
            CertificateDer::pem_file_iter(file).map_err(|why| Failure::unusable(file, why))?
        {
            // A system's list may contain unusable certificates.
            let _ = roots.add(certificate.map_err(|why| Failure::unusable(file, why))?);
        }
        if roots.is_empty() {
            return Err(Failure::unusable(file, "contains no CA certificate"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = versions
            .map_err(|why| Failure::unusable(file, why))?
            .with_root_certificates(roots);
        let config = match identity {
            Some(Identity { certificate, key }) => {
                let chain: Result<Vec<_>, _> =
                    CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
                let chain = chain.map_err(|why| Failure::unusable(certificate, why))?;
                let secret =
                    PrivateKeyDer::from_pem_file(key).map_err(|why| Failure::unusable(key, why))?;
                config
                    .with_client_auth_cert(chain, secret)
                    .map_err(|why| Failure::unusable(key, why))?
            }
            None => config.with_no_client_auth(),
        };
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Performs a handshake with the host of this name or address.
    ///
    /// # Errors
    ///
    /// The peer cannot be reached, or is rejected: see [`is_refusal`].
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        self.0.connect(name, stream).await
    }
}

/// Whether an error is caused by TLS, so that a retry would fail too.
pub fn is_refusal(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|inner| inner.is::<rustls::Error>() || inner.is::<InvalidDnsNameError>())
}

/// Whether the peer has rejected our certificate, or requires one.
pub fn is_unwelcome(error: &io::Error) -> bool {
    use rustls::AlertDescription as Alert;
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::AlertReceived(alert)) = inner else {
        return false;
    };
    [
        Alert::CertificateRequired,
        Alert::BadCertificate,
        Alert::UnsupportedCertificate,
        Alert::CertificateRevoked,
        Alert::CertificateExpired,
        Alert::CertificateUnknown,
        Alert::UnknownCA,
        Alert::AccessDenied,
    ]
    .contains(alert)
}

/// Describes why a connection failed, without error numbers and library names.
pub(crate) fn plain(why: &io::Error) -> String {
    use rustls::CertificateError as Wrong;
    let inner = why
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let reason = match inner {
        Some(rustls::Error::InvalidMessage(_)) => "the server does not use TLS: use http://",
        Some(rustls::Error::InvalidCertificate(Wrong::UnknownIssuer | Wrong::BadSignature)) => {
            "its certificate is not signed by a trusted CA: name another one with --ca"
        }
        Some(rustls::Error::InvalidCertificate(Wrong::Expired | Wrong::ExpiredContext { .. })) => {
            "its certificate has expired"
        }
        Some(rustls::Error::InvalidCertificate(
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. },
        )) => "its certificate is for another name",
        Some(rustls::Error::InvalidCertificate(_)) => "its certificate is invalid",
        _ => return system(why),
    };
    reason.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_in_words() {
        let wrong = |why| rustls::Error::InvalidCertificate(why);
        let table = [
            (io::Error::from_raw_os_error(111), "connection refused"),
            (
                io::Error::other(rustls::Error::InvalidMessage(
                    rustls::InvalidMessage::InvalidContentType,
                )),
                "the server does not use TLS: use http://",
            ),
            (
                io::Error::other(wrong(rustls::CertificateError::Expired)),
                "its certificate has expired",
            ),
            (
                io::Error::other(wrong(rustls::CertificateError::Revoked)),
                "its certificate is invalid",
            ),
        ];
        for (why, expected) in table {
            assert_eq!(plain(&why), expected);
        }
    }

    #[test]
    fn files_must_have_an_authority_and_a_key_that_fits() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        assert!(Tls::new(Some(&file), None).is_err(), "no file");
        std::fs::write(&file, "").unwrap();
        assert!(
            Tls::new(Some(&file), None)
                .is_err_and(|why| why.to_string().contains("no CA certificate"))
        );
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pair = rcgen::KeyPair::generate().unwrap();
        let ca = params.self_signed(&pair).unwrap();
        std::fs::write(&file, ca.pem()).unwrap();
        assert!(Tls::new(Some(&file), None).is_ok());
        let (key, other) = (dir.path().join("key.pem"), dir.path().join("other.pem"));
        std::fs::write(&key, pair.serialize_pem()).unwrap();
        std::fs::write(&other, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        let with = |certificate, key| Tls::new(Some(&file), Some(Identity { certificate, key }));
        assert!(with(&file, &key).is_ok());
        assert!(with(&file, &other).is_err(), "of another certificate");
        assert!(
            with(&key, &key).is_err() && with(&file, &file).is_err(),
            "the wrong way round"
        );
    }
}
