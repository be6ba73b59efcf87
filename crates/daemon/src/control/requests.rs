//! Requests of operators to the main thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};
use windlass_engine::{Protocol, Timestamp};

use windlass_hub::{Reasons, Role, View};

/// What operators ask of the daemon as a whole. Operator ports have one.
#[derive(Clone, Debug)]
pub struct Control {
    asked: mpsc::UnboundedSender<Asked>,
    draining: Arc<Mutex<Option<Draining>>>,
    view: Arc<View>,
    /// Where the sections of queues stand in the configuration.
    places: Arc<Mutex<BTreeMap<String, String>>>,
    yields: mpsc::UnboundedSender<()>,
}

/// What arrives of an operator's requests: for the main thread, and for the part that leads.
pub(crate) type Requests = (mpsc::UnboundedReceiver<Asked>, mpsc::UnboundedReceiver<()>);

/// A drain under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draining {
    /// When it began (engine's time).
    pub since: Timestamp,
    /// When the daemon stops whatever there is (engine's time); never: [`Timestamp::NEVER`].
    pub until: Timestamp,
    /// Jobs that connected clients hold, by the clients' protocol. The daemon waits for these.
    pub held: BTreeMap<Option<Protocol>, u64>,
}

/// What a reload has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Keys whose new values apply.
    pub applied: BTreeSet<String>,
    /// Keys whose new values apply from the next start.
    pub restart: BTreeSet<String>,
    /// Policies and throttles of operators that the configuration has taken back, in words.
    pub taken_back: BTreeSet<String>,
}

/// A request of a port.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Drain. The answer comes when the drain has begun; without an answer the daemon stops now.
    Drain(oneshot::Sender<()>),
    /// Read the configuration again.
    Reload(oneshot::Sender<Result<Changes, String>>),
}

impl Control {
    /// Its requests arrive at the receivers.
    pub(crate) fn new() -> (Self, Requests) {
        let ((asked, requests), (yields, yielded)) =
            (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        (
            Self {
                asked,
                draining: Arc::default(),
                view: Arc::new(View::alone()),
                places: Arc::default(),
                yields,
            },
            (requests, yielded),
        )
    }

    /// What this daemon is among the others.
    pub fn role(&self) -> Role {
        self.view.read()
    }

    /// The versions of daemons, and why they do not lead or are not linked.
    pub fn reasons(&self) -> Reasons {
        self.view.reasons()
    }

    /// Has this daemon lead no more, if it is one of several and leads. Another one leads then.
    pub fn yield_lead(&self) {
        // The daemon may be stopping.
        let _ = self.yields.send(());
    }

    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// Hands out no more jobs, waits for those that connected workers have, and stops. A second call stops the daemon
    /// now. Returns the drain that has begun.
    pub async fn drain(&self) -> Option<Draining> {
        let (answer, begun) = oneshot::channel();
        self.asked.send(Asked::Drain(answer)).ok()?;
        begun.await.ok()?;
        self.draining()
    }

    /// Reads the configuration again, and applies what can be applied while the daemon runs.
    ///
    /// # Errors
    ///
    /// The configuration is invalid, and nothing has changed.
    pub async fn reload(&self) -> Result<Changes, String> {
        let (answer, done) = oneshot::channel();
        let gone = |_| "the daemon is stopping".to_owned();
        self.asked
            .send(Asked::Reload(answer))
            .map_err(|_| "the daemon is stopping".to_owned())?;
        done.await.map_err(gone)?
    }

    /// The drain under way.
    pub fn draining(&self) -> Option<Draining> {
        self.draining
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Where the section of the configuration for a queue, or a pattern of queues, stands: the file and the line. `None` if
    /// the file of this daemon has none.
    pub fn place_of(&self, section: &str) -> Option<String> {
        self.places
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(section)
            .cloned()
    }

    pub(crate) fn set_places(&self, places: &BTreeMap<String, String>) {
        self.places
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(places);
    }

    pub(super) fn publish(&self, draining: Draining) {
        *self.draining.lock().unwrap_or_else(PoisonError::into_inner) = Some(draining);
    }
}
