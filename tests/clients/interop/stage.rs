//! A daemon for one test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use windlass_testkit::daemon::Daemon;

use crate::common::{daemon, namespaces};

/// A daemon and its directory.
pub struct Stage {
    dir: tempfile::TempDir,
    pub daemon: Daemon,
}

impl Stage {
    pub fn new() -> Self {
        Self::with("")
    }

    /// With these sections in the configuration.
    pub fn with(sections: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let daemon = daemon(dir.path()).set(sections).start();
        Self { dir, daemon }
    }

    /// With three namespaces.
    pub fn in_namespaces(sections: &str) -> Self {
        let listen = namespaces::listen_tcp();
        Self::with(&format!(
            "{}[gearman]\n{listen}{sections}",
            namespaces::SECTIONS
        ))
    }

    /// Its namespaces.
    pub fn places(&self) -> Vec<Place> {
        let of = |(name, address)| {
            let dir = self.dir().join(format!("of-{name}"));
            std::fs::create_dir(&dir).unwrap();
            Place { dir, address }
        };
        let places: Vec<_> = namespaces::NAMES
            .into_iter()
            .zip(self.daemon.addresses("gearman"))
            .map(of)
            .collect();
        assert_eq!(places.len(), namespaces::NAMES.len());
        places
    }

    /// The address for Gearman.
    pub fn address(&self) -> SocketAddr {
        self.daemon.address("gearman")
    }

    /// A directory for the test's files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// A namespace of a daemon.
pub struct Place {
    address: SocketAddr,
    dir: PathBuf,
}

impl Place {
    /// The address for Gearman.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}
