//! Certificates of a test's own authority.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// A certificate and its key, as PEM.
#[derive(Debug)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// An authority that signs.
#[derive(Debug)]
pub struct Authority {
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "an authority");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for a host.
    pub fn sign(&self, name: &str) -> Identity {
        self.sign_with(name, |_| {})
    }

    /// The same, with other terms.
    pub fn sign_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity {
            certificate,
            key: key.serialize_pem(),
        }
    }
}
