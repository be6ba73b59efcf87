//! Signals to the daemon.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::requests::Changes;
use windlass_config::Failure;

/// A request to the daemon, and its origin.
#[derive(Debug)]
pub(super) enum Told {
    /// Stop now.
    Stop(&'static str),
    /// Stop when nothing would be interrupted.
    StopGracefully(&'static str),
    /// Stop handing out jobs, and stop when no connected worker has one. The reply is sent once the
    /// drain has begun.
    Drain(&'static str, Option<oneshot::Sender<()>>),
    /// Reload files and configuration. The reply lists the changes.
    Reload(Option<oneshot::Sender<Result<Changes, String>>>),
    /// Log a report.
    Describe,
}

/// The signals that the daemon handles.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    user: Signal,
    /// SIGUSR2, which starts a drain.
    drain: Signal,
    early: EarlySignals,
}

/// Signals that must not terminate or suspend the daemon even before it handles them. They are
/// queued until then.
#[derive(Debug)]
pub(crate) struct EarlySignals {
    hangup: Signal,
    /// SIGTTIN, which requests the report.
    describe: Signal,
    /// SIGXFSZ: a file would exceed the process's limit (`ulimit -f`). With a handler the write
    /// returns an error instead, which is treated like a full disk.
    _file_too_large: Signal,
}

impl EarlySignals {
    /// Must be called within a runtime.
    pub(crate) fn new() -> Result<Self, Failure> {
        let of = |signal: rustix::process::Signal| listen(SignalKind::from_raw(signal.as_raw()));
        Ok(Self {
            hangup: listen(SignalKind::hangup())?,
            describe: of(rustix::process::Signal::TTIN)?,
            _file_too_large: of(rustix::process::Signal::XFSZ)?,
        })
    }
}

impl Signals {
    /// Starts handling the signals.
    pub(crate) fn new(early: EarlySignals) -> Result<Self, Failure> {
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            user: listen(SignalKind::user_defined1())?,
            drain: listen(SignalKind::user_defined2())?,
            early,
        })
    }

    /// Waits for the next signal. Cancel-safe.
    pub(super) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Told::Stop("SIGINT"),
            _ = self.user.recv() => Told::StopGracefully("SIGUSR1"),
            _ = self.drain.recv() => Told::Drain("SIGUSR2", None),
            _ = self.early.hangup.recv() => Told::Reload(None),
            _ = self.early.describe.recv() => Told::Describe,
        }
    }
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::Runtime(format!("cannot handle signals: {error}")))
}
