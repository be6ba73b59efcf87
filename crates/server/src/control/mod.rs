//! What the main thread does about signals and requests while the daemon runs.
//!
//! Two stops take their time. Both close the listeners. A graceful stop goes on handing out jobs, and waits until no
//! connection works on a job or waits for the result of one ([`windlass_engine::Engine::is_at_rest`]). A drain hands
//! out no more jobs, and waits for those that connected clients hold ([`windlass_engine::Engine::held`]), up to
//! `server.drain_timeout`. Neither waits for queued jobs: they are on the disk, and are there when the daemon starts
//! again.

mod reload;
mod requests;
mod signals;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use windlass_engine::{Protocol, Timestamp, WorkerCommand};
use windlass_session::Stop;

pub use self::reload::Changes;
pub(crate) use self::reload::{Reloader, Values};
pub(crate) use self::requests::{Asked, StopRequests};
pub use self::requests::{Control, Draining};
use self::signals::Told;
pub(crate) use self::signals::{EarlySignals, Signals};
use crate::clock;
use crate::describe;
use crate::listen::Acceptor;
use crate::notify;

/// How often the daemon checks whether a stop is complete.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The origin of a request to stop, if it is not a signal.
const A_CLIENT: &str = "a client";

/// The origin of a request of a door.
const AN_OPERATOR: &str = "an operator";

/// How the daemon goes on.
#[derive(Debug)]
enum Course {
    Serving,
    StoppingGracefully,
    Draining(Draining),
}

/// What the main thread heeds.
pub(crate) struct Heeded<'a> {
    pub(crate) signals: Signals,
    pub(crate) control: Control,
    pub(crate) requests: UnboundedReceiver<Asked>,
    pub(crate) acceptor: &'a Arc<Acceptor>,
    pub(crate) reloader: Reloader<'a>,
}

impl Heeded<'_> {
    /// Handles signals and requests until the daemon must stop. Returns the reason.
    pub(crate) async fn heed(&mut self) -> &'static str {
        let mut asked = self.acceptor.stops().subscribe();
        // A client may have asked already.
        asked.mark_changed();
        let (mut course, mut describing) = (Course::Serving, None::<JoinHandle<()>>);
        loop {
            let told = tokio::select! {
                told = self.signals.next() => told,
                Some(asked) = self.requests.recv() => match asked {
                    Asked::Drain(answer) => Told::Drain(AN_OPERATOR, Some(answer)),
                    Asked::Reload(answer) => Told::Reload(Some(answer)),
                },
                Ok(()) = asked.changed() => match (*asked.borrow_and_update(), &course) {
                    (None, _) | (Some(Stop::Gracefully), Course::StoppingGracefully) => continue,
                    (Some(Stop::Gracefully), _) => Told::StopGracefully(A_CLIENT),
                    (Some(Stop::Now), _) => Told::Stop(A_CLIENT),
                },
                why = course.ends(self.acceptor, &self.control) => return why,
            };
            match (told, &course) {
                // A second request means that the operator does not want to wait.
                (Told::Stop(by), _)
                | (Told::StopGracefully(by) | Told::Drain(by, _), Course::StoppingGracefully | Course::Draining(_)) => {
                    return by;
                }
                (Told::StopGracefully(by), Course::Serving) => {
                    tracing::info!(by, "stopping gracefully: no more connections are accepted");
                    self.acceptor.closed.cancel();
                    course = Course::StoppingGracefully;
                }
                (Told::Drain(by, answer), Course::Serving) => {
                    course = self.drain(by);
                    // The operator may be gone.
                    answer.map(|answer| answer.send(()));
                }
                (Told::Reload(answer), _) => {
                    let by = if answer.is_some() { "an operator reloads" } else { "SIGHUP" };
                    notify::reloading();
                    let outcome = self.reloader.reload(by).map_err(|error| error.to_string());
                    notify::reloaded();
                    answer.map(|answer| answer.send(outcome));
                }
                // The report may take long: it runs on its own thread, so that no connection waits for it, and one at a
                // time.
                (Told::Describe, _) if describing.as_ref().is_none_or(JoinHandle::is_finished) => {
                    let acceptor = Arc::clone(self.acceptor);
                    describing = Some(tokio::task::spawn_blocking(move || describe::log(&acceptor)));
                }
                (Told::Describe, _) => {}
            }
        }
    }

    /// No connection is accepted any more, and no job handed out.
    fn drain(&self, by: &'static str) -> Course {
        tracing::info!(by, "draining: no more connections are accepted, and no more jobs are handed out");
        self.acceptor.closed.cancel();
        // It is never refused.
        let _ = self.acceptor.broker().ask(WorkerCommand::Drain.into());
        let since = clock::now();
        let limit =
            Some(self.reloader.config().server.drain_timeout.into()).filter(|limit: &Duration| !limit.is_zero());
        let until = limit.map_or(Timestamp::NEVER, |limit| clock::after(since, limit));
        let draining = Draining { since, until, held: held(self.acceptor) };
        self.control.publish(draining.clone());
        notify::status("draining");
        Course::Draining(draining)
    }
}

impl Course {
    /// Waits until the daemon may stop. Returns the reason.
    async fn ends(&mut self, acceptor: &Acceptor, control: &Control) -> &'static str {
        loop {
            match self {
                Self::Serving => std::future::pending().await,
                Self::StoppingGracefully if acceptor.broker().is_at_rest() => {
                    return "nothing is left to wait for";
                }
                Self::Draining(Draining { held, .. }) if held.is_empty() => return "no connected worker has a job",
                Self::Draining(Draining { until, .. }) if *until <= clock::now() => {
                    return "connected workers still have jobs after server.drain_timeout";
                }
                Self::StoppingGracefully | Self::Draining(_) => {}
            }
            tokio::time::sleep(LOOK_EVERY).await;
            if let Self::Draining(draining) = self {
                draining.held = held(acceptor);
                control.publish(draining.clone());
            }
        }
    }
}

/// What connected workers hold, as far as this daemon knows: without the engine, nothing.
fn held(acceptor: &Acceptor) -> BTreeMap<Option<Protocol>, u64> {
    acceptor.hub().map(|hub| hub.with_journal(|engine, _| engine.held())).unwrap_or_default()
}
