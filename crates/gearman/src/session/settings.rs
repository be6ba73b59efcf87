//! What an operator can configure about Gearman. [`crate::config`] makes the settings.
//!
//! Rules: the options of gearmand's command line that change what a peer sees. Each default is gearmand's unless noted
//! otherwise.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass_bridge::Bridge;

use crate::wire::{HandlePrefix, LINE_BYTES_MAX_DEFAULT, Limits};

/// The settings that all connections of a listener share.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Largest packet accepted, header included, in bytes. A larger one ends the connection.
    pub frame_bytes_max: usize,
    /// Longest text line accepted, in bytes without its LF. A longer one ends the connection.
    pub line_bytes_max: usize,
    /// The prefix of this daemon's job handles. Changing it changes the handles of existing jobs.
    pub handle_prefix: HandlePrefix,
    /// The answer to `version`, after `OK`.
    pub version_text: String,
    /// The answer to `verbose`, after `OK`: the name of the log level.
    pub verbosity_text: String,
    /// The answer to `getpid`, after `OK`.
    pub pid: u32,
    /// How often a job is handed out before a lost worker makes it fail for good; 0 = the limit of all
    /// protocols, `limits.losses_max` (`--job-retries`).
    pub job_retries: u32,
    /// Failed background jobs go to the dead-letter queue, for an operator. gearmand forgets them.
    pub keep_failed: bool,
    /// What happens to a job when its CAN_DO_TIMEOUT ends.
    pub on_timeout: OnTimeout,
    /// The unit of CAN_DO_TIMEOUT.
    pub timeout_unit: TimeoutUnit,
    /// Functions with jobs of equal priority take turns; otherwise the oldest job comes first (`--round-robin`).
    pub round_robin: bool,
    /// Connections receive WORK_EXCEPTION without enabling the option (`--exceptions`).
    pub exceptions: bool,
    /// The text command `shutdown` stops the daemon. Otherwise it is an unknown command, as in gearmand since 1.1.
    pub shutdown: bool,
    /// All protocols, for jobs that cross.
    pub bridge: Arc<Bridge>,
}

/// What happens to a job that exceeds its worker's timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// The job fails and its clients are notified: the specification's rule, and the default.
    Fail,
    /// The job returns to its old position and no client is notified: gearmand's behaviour.
    Requeue,
}

/// The unit of CAN_DO_TIMEOUT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeoutUnit {
    /// Milliseconds: the specification, gearmand and libgearman; the default.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Seconds: Perl's `Gearman::Worker` and `Gearman::Server`.
    #[serde(rename = "s")]
    Seconds,
}

impl Settings {
    /// The default settings for a daemon with this prefix of handles.
    #[must_use]
    pub fn new(handle_prefix: HandlePrefix) -> Self {
        Self {
            frame_bytes_max: 64 << 20,
            line_bytes_max: LINE_BYTES_MAX_DEFAULT,
            handle_prefix,
            version_text: env!("CARGO_PKG_VERSION").to_owned(),
            verbosity_text: "INFO".to_owned(),
            pid: std::process::id(),
            job_retries: 0,
            keep_failed: true,
            on_timeout: OnTimeout::Fail,
            timeout_unit: TimeoutUnit::Milliseconds,
            round_robin: false,
            exceptions: false,
            shutdown: false,
            bridge: Arc::default(),
        }
    }

    pub(super) const fn limits(&self) -> Limits {
        Limits { frame_bytes_max: self.frame_bytes_max, line_bytes_max: self.line_bytes_max }
    }
}
