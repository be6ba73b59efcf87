//! A daemon for one test.

use std::net::SocketAddr;
use std::path::Path;

use windlass_testkit::daemon::Daemon;

use crate::common::daemon;

/// A daemon and the directory it lives in.
pub struct Stage {
    dir: tempfile::TempDir,
    pub daemon: Daemon,
}

impl Stage {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let daemon = daemon(dir.path()).start();
        Self { dir, daemon }
    }

    /// Where Gearman is served.
    pub fn address(&self) -> SocketAddr {
        self.daemon.address("gearman")
    }

    /// Where a test may leave files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}
