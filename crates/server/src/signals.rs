//! What the system's signals mean to the daemon.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// What the daemon has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Stop now, by the signal of this name.
    Stop(&'static str),
    /// Take up again what is in files: certificates.
    Reload,
}

/// The signals that are heeded.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// From here on signals are heeded.
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::Runtime(format!("cannot handle signals: {error}")));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one. Nothing is lost when the wait is given up.
    pub(crate) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Told::Stop("SIGINT"),
            _ = self.hangup.recv() => Told::Reload,
        }
    }
}
