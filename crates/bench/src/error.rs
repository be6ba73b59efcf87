//! Errors: why a run has no figure. One enum for the whole generator, because one person reads all messages.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a run, or the whole call, has no figure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system returned an error; with the attempted action.
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
    /// The options make no sense.
    #[error("{0}")]
    Usage(String),
    /// The program of a requested peer is missing; the path, and what to do.
    #[error("{0}: not found; {1}")]
    Missing(PathBuf, String),
    /// The server did not start.
    #[error("the server did not accept on {0}")]
    NotReady(String),
    /// The server violated the protocol.
    #[error("protocol: {0}")]
    Protocol(String),
    /// The server closed the connection with this index in the middle of a run.
    #[error("the server closed connection {0}")]
    Closed(usize),
    /// Jobs were lost, doubled or mixed up.
    #[error("count mismatch: {0}")]
    Mismatch(String),
    /// Nothing arrived for this long: a lost wake-up, for instance. With what is outstanding.
    #[error("stalled: nothing arrived for {0:?} ({1})")]
    Stalled(Duration, String),
    /// The user pressed ctrl-c.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Wraps an I/O error with the attempted action: `.map_err(Error::io("connect"))`.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let doing = doing.into();
        move |source| Error::Io(doing, source)
    }
}
