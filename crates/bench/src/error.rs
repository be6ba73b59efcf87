//! Why a run has no figure. One enum for the whole generator, because one person reads all of it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a run, or the whole call, has no figure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused something.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, as a verb phrase.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// The call itself makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The program of a peer that was asked for is not there.
    #[error("{program}: not found; {remedy}")]
    Missing {
        /// Where it was looked for.
        program: PathBuf,
        /// What the reader can do about it.
        remedy: String,
    },
    /// The server did not come up, with the end of what it logged.
    #[error("the server did not accept on port {port} within {waited:?}: {log}")]
    NotReady {
        /// The loopback port it was told to listen on.
        port: u16,
        /// How long it was waited for.
        waited: Duration,
        /// The end of its log.
        log: String,
    },
    /// The server sent what the protocol does not allow here.
    #[error("protocol: {0}")]
    Protocol(String),
    /// The server hung up in the middle of a run.
    #[error("the server closed connection {connection}")]
    Closed {
        /// Index of the connection.
        connection: usize,
    },
    /// Jobs were lost, doubled or mixed up.
    #[error("count mismatch: {0}")]
    Mismatch(String),
    /// Nothing happened for too long, a lost wake-up for instance.
    #[error("stalled: nothing arrived for {waited:?} ({state})")]
    Stalled {
        /// How long nothing arrived.
        waited: Duration,
        /// What was outstanding.
        state: String,
    },
    /// The person at the keyboard had enough.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Wraps an I/O error with what was being done: `.map_err(Error::io("connect"))`.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let doing = doing.into();
        move |source| Error::Io { doing, source }
    }
}
