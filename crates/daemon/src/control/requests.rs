//! Requests from operators to the main thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};
use windlass_engine::{Protocol, Timestamp};

use windlass_hub::{Reasons, Role, View};

/// Operators' requests concerning the whole daemon, for use by operator ports.
#[derive(Clone, Debug)]
pub struct Control {
    asked: mpsc::UnboundedSender<Asked>,
    draining: Arc<Mutex<Option<Draining>>>,
    view: Arc<View>,
    /// The positions of queues' sections in the configuration.
    places: Arc<Mutex<BTreeMap<String, String>>>,
    yields: mpsc::UnboundedSender<()>,
}

/// The receivers of operators' requests: of the main thread, and of the part that leads.
pub(crate) type Requests = (mpsc::UnboundedReceiver<Asked>, mpsc::UnboundedReceiver<()>);

/// A drain in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draining {
    /// When it began (engine's time).
    pub since: Timestamp,
    /// When the daemon stops in any case (engine's time), or [`Timestamp::NEVER`].
    pub until: Timestamp,
    /// Jobs held by connected clients, by the clients' protocol, which the daemon waits for.
    pub held: BTreeMap<Option<Protocol>, u64>,
}

/// The changes made by a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Keys whose new values were applied.
    pub applied: BTreeSet<String>,
    /// Keys whose new values need a restart.
    pub restart: BTreeSet<String>,
    /// Descriptions of operators' policies and throttles that the configuration has overridden.
    pub taken_back: BTreeSet<String>,
}

/// A request of a port.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Start a drain. The reply is sent when it has begun; without a reply the daemon stops
    /// immediately.
    Drain(oneshot::Sender<()>),
    /// Reload the configuration.
    Reload(oneshot::Sender<Result<Changes, String>>),
}

impl Control {
    /// Creates it, with the receivers of its requests.
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

    /// This daemon's role in the cluster.
    pub fn role(&self) -> Role {
        self.view.read()
    }

    /// The versions of daemons, and the reasons why they cannot lead or connect.
    pub fn reasons(&self) -> Reasons {
        self.view.reasons()
    }

    /// Makes this daemon hand leadership over to another one, if it leads.
    pub fn yield_lead(&self) {
        // The daemon may be stopping.
        let _ = self.yields.send(());
    }

    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// Starts a drain. A second call stops the daemon immediately. Returns the drain.
    pub async fn drain(&self) -> Option<Draining> {
        let (answer, begun) = oneshot::channel();
        self.asked.send(Asked::Drain(answer)).ok()?;
        begun.await.ok()?;
        self.draining()
    }

    /// Reloads the configuration, and applies what can be applied without a restart.
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

    /// The drain in progress.
    pub fn draining(&self) -> Option<Draining> {
        self.draining
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The file and line of the configuration section for a queue or a pattern. `None` if this
    /// daemon's file has none.
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
