//! Helpers for tests of this crate and of those that depend on it.
#![allow(clippy::unwrap_used, reason = "a test fails")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use windlass_config::Tls;
use windlass_hub::{Hub, ProtocolNames};

use crate::connection::{Bounds, Shared};
use crate::listen::Acceptor;
use crate::patience::Patience;
use crate::places::PlaceLimits;
use crate::polling::Polling;
use crate::serving::Threads;

/// Limits for one connection.
pub const BOUNDS: Bounds = Bounds {
    read_bytes_max: 1 << 20,
    outbound_bytes_max: 1 << 20,
    unacknowledged_max: 9,
    idle_max: None,
    patience: Patience {
        timeout_ms: 0,
        bytes_per_s: 0,
    },
};

/// The shared state of connections on this hub.
pub fn shared(hub: &Arc<Hub>) -> Shared {
    Shared::new(Arc::<Hub>::clone(hub), Arc::clone(&hub.budget), BOUNDS)
}
/// An acceptor without connections.
pub fn acceptor(hub: &Arc<Hub>) -> Arc<Acceptor> {
    let shared = shared(hub);
    let (_, thread_slots) = Threads::start(0, 0, &shared, Polling::Off).unwrap();
    let places = PlaceLimits {
        connections_limit: "connections_max",
        connections_max: 1,
        reserved: 0,
        per_address_max: 0,
        rate: None,
        failures: None,
        silence_min: Duration::ZERO,
    };
    Arc::new(Acceptor::new(
        ProtocolNames::default(),
        thread_slots,
        shared,
        places,
    ))
}

/// A certificate that expires in this year, and its key, both PEM, in a directory.
#[derive(Debug)]
pub struct Files {
    _dir: TempDir,
    /// Their paths.
    pub tls: Tls,
}

impl Files {
    /// A certificate for `localhost`.
    pub fn new(year: i32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let write = |name: &str, pem: String| {
            let path = dir.path().join(name);
            fs::write(&path, pem).unwrap();
            path
        };
        let (certificate, key) = (
            write("certificate", certificate.pem()),
            write("key", key.serialize_pem()),
        );
        Self {
            _dir: dir,
            tls: Tls {
                certificate,
                key,
                client_ca: PathBuf::new(),
            },
        }
    }

    /// The lines of a TLS section.
    pub fn toml(&self) -> String {
        let Tls {
            certificate, key, ..
        } = &self.tls;
        format!("certificate = {certificate:?}\nkey = {key:?}\n")
    }
}
