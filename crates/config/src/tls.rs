//! `[PROTOCOL.tls]`: the files of TLS listeners. Only their names: the server reads the files.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::credential;

/// The files of a protocol's TLS listeners. Without a certificate a listener does not use TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// A file with the certificate and its intermediate certificates (PEM); empty for none.
    #[serde(deserialize_with = "credential")]
    pub certificate: PathBuf,
    /// A file with the certificate's private key (PEM).
    #[serde(deserialize_with = "credential")]
    pub key: PathBuf,
    /// A file with authorities (PEM); one of them must have signed a peer's certificate. Empty if peers need no
    /// certificate.
    #[serde(deserialize_with = "credential")]
    pub client_ca: PathBuf,
}

impl Tls {
    /// Whether any key is set. The server checks whether they fit together.
    pub fn is_on(&self) -> bool {
        *self != Self::default()
    }

    /// Whether peers need a certificate.
    pub fn asks_for_certificates(&self) -> bool {
        !self.client_ca.as_os_str().is_empty()
    }
}
