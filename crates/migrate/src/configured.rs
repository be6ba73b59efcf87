//! What an import uses of the configuration.

use windlass_config::Error;
use windlass_daemon::config::Config;
use windlass_faktory::config::Faktory;
use windlass_gearman::config::Gearman;
use windlass_session::protocol;
use windlass_spiderq::config::Spiderq;

/// What an import uses of the configuration.
#[derive(Clone, Debug)]
pub struct Configured {
    /// The daemon's own part, with all protocols.
    pub server: Config,
    /// Faktory.
    pub faktory: Faktory,
    /// Gearman.
    pub gearman: Gearman,
    /// spiderq.
    pub spiderq: Spiderq,
}

impl Configured {
    /// What a protocol uses of the daemon.
    ///
    /// # Errors
    ///
    /// [`Error::Senseless`]: one alias names two queues.
    pub fn daemon(&self, protocol: &dyn protocol::Protocol) -> Result<protocol::Daemon, Error> {
        windlass_daemon::daemon(&self.server, protocol.name())
    }
}
