//! What an operator can set about Gearman. Where the values come from is the server's business.
//!
//! Rules: the options of gearmand's command line that change what a peer sees; each default is gearmand's unless it says otherwise.

use crate::wire::{HandlePrefix, LINE_BYTES_MAX_DEFAULT, Limits};

/// One set of rules for all connections of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Largest packet taken, header included, in bytes. A larger one ends the connection.
    pub frame_bytes_max: usize,
    /// Longest text line taken, in bytes without its LF. A longer one ends the connection.
    pub line_bytes_max: usize,
    /// What every job handle of this daemon starts with. Handles of jobs already made change with it.
    pub handle_prefix: HandlePrefix,
    /// What `version` answers behind `OK`.
    pub version_text: String,
    /// What `verbose` answers behind `OK`: the name of the log level.
    pub verbosity_text: String,
    /// What `getpid` answers behind `OK`.
    pub pid: u32,
    /// How often a job may be handed out before a lost worker makes it fail for good; 0 = no limit (`--job-retries`).
    pub job_retries: u32,
    /// Background jobs that failed go to the dead set, where an operator finds them. gearmand forgets them.
    pub keep_failed: bool,
    /// What the end of CAN_DO_TIMEOUT means for a job.
    pub on_timeout: OnTimeout,
    /// What the number in CAN_DO_TIMEOUT counts.
    pub timeout_unit: TimeoutUnit,
    /// Among functions with jobs of equal priority each has its turn, instead of the oldest job (`--round-robin`).
    pub round_robin: bool,
    /// Connections hear WORK_EXCEPTION without asking for it (`--exceptions`).
    pub exceptions: bool,
    /// The text command `shutdown` stops the daemon. Otherwise it is no command, as in gearmand since 1.1.
    pub shutdown: bool,
}

/// What becomes of a job whose worker took longer than it said it would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// It has failed, and its clients are told: the specification's rule, and the default.
    Fail,
    /// It goes back to its place and nobody is told: what gearmand does.
    Requeue,
}

/// What the number in CAN_DO_TIMEOUT counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutUnit {
    /// Milliseconds: the specification, gearmand and libgearman; the default.
    Milliseconds,
    /// Seconds: Perl's `Gearman::Worker` and `Gearman::Server`.
    Seconds,
}

impl Settings {
    /// The defaults, for a daemon whose handles start with this.
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
        }
    }

    pub(super) const fn limits(&self) -> Limits {
        Limits { frame_bytes_max: self.frame_bytes_max, line_bytes_max: self.line_bytes_max }
    }
}
