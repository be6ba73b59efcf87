//! How the main thread handles signals and requests while the daemon runs.
//!
//! Two kinds of stop take time. Both close the listeners. A graceful stop continues to hand out
//! jobs, and waits until no connection works on a job or waits for a result
//! ([`WorkLeft::is_at_rest`]). A drain stops handing out jobs, and waits up to
//! `server.drain_timeout` for the jobs that connected clients hold ([`WorkLeft::jobs`]). Neither
//! waits for queued jobs, which are on disk and survive the restart. Only this daemon's clients
//! count, not those of other daemons in a cluster.
//!
//! Every stop ends with a short drain (`await_last_reports`).

mod reload;
pub(crate) mod requests;
mod signals;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use windlass_engine::{Command, Protocol, Query, Reply, Timestamp, WorkLeft, WorkerCommand};
use windlass_session::Stop;

pub(crate) use self::reload::{Reloader, Values};
pub(crate) use self::requests::Asked;
pub use self::requests::Changes;
pub use self::requests::{Control, Draining};
use self::signals::Told;
pub(crate) use self::signals::{EarlySignals, Signals};
use crate::describe;
use crate::notify;
use windlass_hub::clock;
use windlass_net::Acceptor;

/// How often the daemon checks whether a stop is complete.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long a stop waits for reports of workers that hold jobs.
const LAST_REPORTS: Duration = Duration::from_millis(200);

/// How often it checks for them.
const LAST_REPORTS_EVERY: Duration = Duration::from_millis(10);

/// The origin of a request to stop, if it is not a signal.
const A_CLIENT: &str = "a client";

/// The origin of a request of a port.
const AN_OPERATOR: &str = "an operator";

/// The current activity of the daemon.
#[derive(Debug)]
enum Course {
    Serving,
    StoppingGracefully,
    Draining(Draining),
}

/// Events for the main thread.
pub(crate) struct MainEvents<'a> {
    pub(crate) signals: Signals,
    pub(crate) control: Control,
    pub(crate) requests: UnboundedReceiver<Asked>,
    pub(crate) acceptor: &'a Arc<Acceptor>,
    pub(crate) reloader: Reloader<'a>,
}

impl MainEvents<'_> {
    /// Handles signals and requests until the daemon must stop. Returns the reason.
    pub(crate) async fn next_stop(&mut self) -> &'static str {
        let mut asked = self.acceptor.stops().subscribe();
        // A client may have sent a request already.
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
                // With a second request the operator asks not to wait.
                (Told::Stop(by), _)
                | (
                    Told::StopGracefully(by) | Told::Drain(by, _),
                    Course::StoppingGracefully | Course::Draining(_),
                ) => {
                    return by;
                }
                (Told::StopGracefully(by), Course::Serving) => {
                    tracing::info!(by, "graceful stop: not accepting connections");
                    self.acceptor.closed.cancel();
                    course = Course::StoppingGracefully;
                }
                (Told::Drain(by, answer), Course::Serving) => {
                    course = self.drain(by).await;
                    // The operator may have disconnected.
                    answer.map(|answer| answer.send(()));
                }
                (Told::Reload(answer), _) => {
                    let by = if answer.is_some() {
                        "an operator's request"
                    } else {
                        "SIGHUP"
                    };
                    notify::reloading();
                    let outcome = self
                        .reloader
                        .reload(by)
                        .await
                        .map_err(|error| error.to_string());
                    self.control.set_places(&self.reloader.config().places);
                    notify::reloaded();
                    answer.map(|answer| answer.send(outcome));
                }
                // The report may take long, so it runs on a separate thread to keep the main thread
                // responsive. Only one runs at a time.
                (Told::Describe, _) if describing.as_ref().is_none_or(JoinHandle::is_finished) => {
                    let acceptor = Arc::clone(self.acceptor);
                    describing = Some(tokio::task::spawn_blocking(move || {
                        describe::log(&acceptor)
                    }));
                }
                (Told::Describe, _) => {}
            }
        }
    }

    /// Closes the listeners and stops handing out jobs to this daemon's clients.
    async fn drain(&self, by: &'static str) -> Course {
        self.acceptor.closed.cancel();
        let since = clock::now();
        let limit = Some(self.reloader.config().server.drain_timeout.into())
            .filter(|limit: &Duration| !limit.is_zero());
        let until = limit.map_or(Timestamp::NEVER, |limit| clock::after(since, limit));
        let held = drain_clients(self.acceptor).await.unwrap_or_default();
        tracing::info!(
            by,
            "draining: not accepting connections or handing out jobs"
        );
        let draining = Draining { since, until, held };
        self.control.publish(draining.clone());
        notify::status("draining");
        Course::Draining(draining)
    }
}

impl Course {
    /// Returns the reason once the daemon may stop.
    async fn ends(&mut self, acceptor: &Acceptor, control: &Control) -> &'static str {
        loop {
            match self {
                Self::Serving => std::future::pending().await,
                Self::StoppingGracefully => {
                    if work_left(acceptor)
                        .await
                        .is_some_and(|left| left.is_at_rest)
                    {
                        return "no connection has a job or waits for a result";
                    }
                }
                Self::Draining(draining) => {
                    // A new leader does not know that this daemon is draining.
                    let left = drain_clients(acceptor).await;
                    let is_over = left.as_ref().is_some_and(BTreeMap::is_empty);
                    draining.held = left.unwrap_or_else(|| draining.held.clone());
                    control.publish(draining.clone());
                    if is_over {
                        return "no connected worker has a job";
                    }
                    if draining.until <= clock::now() {
                        return "connected workers still have jobs after server.drain_timeout";
                    }
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Called shortly before the stop: clients get no more jobs, and workers may report on those that
/// they hold.
pub(crate) async fn await_last_reports(acceptor: &Acceptor) {
    let reports = async {
        while drain_clients(acceptor)
            .await
            .is_some_and(|left| !left.is_empty())
        {
            tokio::time::sleep(LAST_REPORTS_EVERY).await;
        }
    };
    let _ = tokio::time::timeout(LAST_REPORTS, reports).await;
}

/// Stops handing out jobs to this daemon's clients. Returns the number that they hold; `None`: no
/// engine responded.
async fn drain_clients(acceptor: &Acceptor) -> Option<BTreeMap<Option<Protocol>, u64>> {
    let mut found = work_left(acceptor).await?;
    if !found.is_draining {
        ask(acceptor, WorkerCommand::Drain.into()).await?;
        found = work_left(acceptor).await?;
    }
    Some(found.jobs.into_iter().collect())
}

/// The work of this daemon's clients; `None`: no engine responded.
async fn work_left(acceptor: &Acceptor) -> Option<WorkLeft> {
    match ask(acceptor, Query::WorkLeft.into()).await {
        Some(Reply::WorkLeft(left)) => Some(*left),
        Some(_) | None => None,
    }
}

/// Sends a request to the engine, which may be in another daemon.
async fn ask(acceptor: &Acceptor, command: Command) -> Option<Reply> {
    let broker = Arc::clone(acceptor.broker());
    tokio::task::spawn_blocking(move || broker.ask(command))
        .await
        .ok()?
        .ok()
}
