//! Signals, and clients' requests to stop: what the running daemon does about them.
//!
//! A graceful stop closes the listeners and waits until no connection works on a job or waits for the result of one
//! ([`windlass_engine::Engine::is_at_rest`]). It does not wait for queued background jobs: they are on the disk, and are there
//! when the daemon starts again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use windlass_session::Stop;

use crate::config::{Config, Queue};
use crate::describe;
use crate::failure::Failure;
use crate::hub::Hub;
use crate::listen::Acceptor;
use crate::logging;
use crate::protocols::Served;
use crate::reconcile::{Desired, Reconciliation};

/// How often the daemon checks whether a graceful stop is complete.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The origin of a request to stop, if it is not a signal.
const A_CLIENT: &str = "a client";

/// A request to the daemon, and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Stop now.
    Stop(&'static str),
    /// Stop when nothing would be interrupted.
    StopGracefully(&'static str),
    /// Read the files and the configuration again.
    Reload,
    /// Log a report.
    Describe,
}

/// The signals that the daemon handles.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    user: Signal,
    early: EarlySignals,
}

/// Signals that must not end or suspend the daemon from the first moment on. They are kept until it handles them.
#[derive(Debug)]
pub(crate) struct EarlySignals {
    hangup: Signal,
    /// SIGTTIN: the report.
    describe: Signal,
}

impl EarlySignals {
    /// Must be called within a runtime.
    pub(crate) fn new() -> Result<Self, Failure> {
        let describe = SignalKind::from_raw(rustix::process::Signal::TTIN.as_raw());
        Ok(Self { hangup: listen(SignalKind::hangup())?, describe: listen(describe)? })
    }
}

impl Signals {
    /// From here on the daemon handles the signals.
    pub(crate) fn new(early: EarlySignals) -> Result<Self, Failure> {
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            user: listen(SignalKind::user_defined1())?,
            early,
        })
    }

    /// Waits for the next one. Cancel-safe.
    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Told::Stop("SIGINT"),
            _ = self.user.recv() => Told::StopGracefully("SIGUSR1"),
            _ = self.early.hangup.recv() => Told::Reload,
            _ = self.early.describe.recv() => Told::Describe,
        }
    }
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::Runtime(format!("cannot handle signals: {error}")))
}

/// Clients' requests to stop the daemon.
#[derive(Debug)]
pub(crate) struct StopRequests(watch::Sender<Option<Stop>>);

impl Default for StopRequests {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl StopRequests {
    /// Records that a client has asked the daemon to stop.
    pub(crate) fn ask(&self, how: Stop) {
        self.0.send_if_modified(|asked| {
            let harder = *asked < Some(how);
            *asked = (*asked).max(Some(how));
            harder
        });
    }

    /// Notifies when a client asks the daemon to stop.
    fn subscribe(&self) -> watch::Receiver<Option<Stop>> {
        self.0.subscribe()
    }
}

/// Handles signals and requests until the daemon must stop. Returns the reason.
pub(crate) async fn heed(signals: &mut Signals, acceptor: &Arc<Acceptor>, reload: &dyn Fn()) -> &'static str {
    let mut asked = acceptor.stops().subscribe();
    // A client may have asked already.
    asked.mark_changed();
    let (mut graceful, mut describing) = (false, None::<JoinHandle<()>>);
    loop {
        let told = tokio::select! {
            told = signals.next() => told,
            Ok(()) = asked.changed() => match *asked.borrow_and_update() {
                None => continue,
                Some(Stop::Gracefully) if graceful => continue,
                Some(Stop::Gracefully) => Told::StopGracefully(A_CLIENT),
                Some(Stop::Now) => Told::Stop(A_CLIENT),
            },
            () = quiet(acceptor), if graceful => return "nothing is left to wait for",
        };
        match told {
            Told::Stop(by) => return by,
            // A second signal means that the operator does not want to wait.
            Told::StopGracefully(by) if graceful => return by,
            Told::StopGracefully(by) => {
                tracing::info!(by, "stopping gracefully: no more connections are accepted");
                graceful = true;
                acceptor.closed.cancel();
            }
            Told::Reload => reload(),
            // The report may take long: it runs on its own thread, so that no connection waits for it, and one at a time.
            Told::Describe if describing.as_ref().is_none_or(JoinHandle::is_finished) => {
                let acceptor = Arc::clone(acceptor);
                describing = Some(tokio::task::spawn_blocking(move || describe::log(&acceptor)));
            }
            Told::Describe => {}
        }
    }
}

/// Waits until a stop would interrupt nothing.
async fn quiet(acceptor: &Acceptor) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if acceptor.hub.with_journal(|engine, _| engine.is_at_rest()) {
            return;
        }
    }
}

/// Opens the log file again, and reads certificates and the configuration again. An operator who rotates logs or renews
/// certificates must not have to stop the daemon, and an error must not stop it either.
///
/// `config` is the configuration that the daemon started with.
pub(crate) fn reload(config: &Config, served: &[Served], hub: &Hub, reread: &dyn Fn() -> Result<Config, Failure>) {
    match logging::reopen() {
        Ok(()) => tracing::info!("SIGHUP"),
        Err(error) => tracing::error!("log.file: {error}: the old file stays in use"),
    }
    for Served { endpoint, tls } in served {
        let name = endpoint.name;
        match tls.as_ref().map(|tls| tls.reload()) {
            None => {}
            Some(Ok(())) => tracing::info!(protocol = name, "certificates read again"),
            Some(Err(error)) => tracing::error!("{name}.tls.{error}: the certificates in force stay in force"),
        }
    }
    match reread().and_then(|new| Ok((Desired::of(&new)?, changed_late(&config.queues, &new.queues)))) {
        Ok((wanted, late)) => {
            wanted.agree(hub).iter().for_each(Reconciliation::report);
            if !late.is_empty() {
                let queues = late.join(", ");
                tracing::warn!("queues {queues}: changed aliases and failure_values apply from the next start");
            }
        }
        Err(error) => tracing::error!("{error}: the configuration in force stays in force"),
    }
}

/// The queues with changed rules that only a start of the daemon applies.
fn changed_late(old: &BTreeMap<String, Queue>, new: &BTreeMap<String, Queue>) -> Vec<String> {
    let late = |queues: &BTreeMap<String, Queue>, queue| {
        queues.get(queue).map(|rules| (rules.aliases.clone(), rules.failure_values.clone())).unwrap_or_default()
    };
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    names.into_iter().filter(|queue| late(old, *queue) != late(new, *queue)).cloned().collect()
}
