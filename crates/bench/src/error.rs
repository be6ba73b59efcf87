//! Errors: why a run has no figure. One enum for the whole generator, because one person reads all messages.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a run, or the whole call, has no figure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system returned an error.
    #[error("{doing}: {source}")]
    Io {
        /// The attempted action.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The options make no sense.
    #[error("{0}")]
    Usage(String),
    /// The program of a requested peer is missing.
    #[error("{program}: not found; {remedy}")]
    Missing {
        /// Its path.
        program: PathBuf,
        /// What to do.
        remedy: String,
    },
    /// The server did not start; carries the end of its log.
    #[error("the server did not accept on port {port} within {waited:?}: {log}")]
    NotReady {
        /// Where it should have listened.
        port: u16,
        /// For how long.
        waited: Duration,
        /// The end of its log.
        log: String,
    },
    /// The server violated the protocol.
    #[error("protocol: {0}")]
    Protocol(String),
    /// The server closed a connection in the middle of a run.
    #[error("the server closed connection {connection}")]
    Closed {
        /// Its index.
        connection: usize,
    },
    /// Jobs were lost, doubled or mixed up.
    #[error("count mismatch: {0}")]
    Mismatch(String),
    /// Nothing arrived for too long: a lost wake-up, for instance.
    #[error("stalled: nothing arrived for {waited:?} ({state})")]
    Stalled {
        /// For how long.
        waited: Duration,
        /// What is outstanding.
        state: String,
    },
    /// The user pressed ctrl-c.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Wraps an I/O error with the attempted action: `.map_err(Error::io("connect"))`.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let doing = doing.into();
        move |source| Error::Io { doing, source }
    }
}
