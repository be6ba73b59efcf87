//! A daemon for one test.

use std::net::SocketAddr;
use std::path::Path;

use windlass_testkit::daemon::Daemon;

use crate::common::daemon;

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

    /// The address for Gearman.
    pub fn address(&self) -> SocketAddr {
        self.daemon.address("gearman")
    }

    /// A directory for the test's files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}
