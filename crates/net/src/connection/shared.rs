//! State shared by all connections.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use windlass_hub::{Broker, Budget};

use crate::patience::Patience;
use crate::stops::StopRequests;
use crate::traffic::Traffic;

/// Limits for one connection.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum bytes read before a visit to the engine.
    pub read_bytes_max: usize,
    /// Maximum bytes pending for a peer that does not read.
    pub outbound_bytes_max: usize,
    /// Maximum replies that wait for the disk or the peer before reading stops.
    pub unacknowledged_max: usize,
    /// How long a connection may be silent; `None`: forever.
    pub idle_max: Option<Duration>,
    /// How long a complete message may take to arrive.
    pub patience: Patience,
}

/// State that all connections share.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The broker that executes commands.
    pub broker: Arc<dyn Broker>,
    /// The memory budget of buffers.
    pub budget: Arc<Budget>,
    /// Clients' requests to stop the daemon.
    pub stops: Arc<StopRequests>,
    /// Counters of connections.
    pub traffic: Arc<Traffic>,
    /// The limits of this connection.
    pub(crate) bounds: Bounds,
    /// The limits of new connections.
    new_bounds: Arc<ArcSwap<Bounds>>,
}

impl Shared {
    /// The state of a daemon without connections.
    pub fn new(broker: Arc<dyn Broker>, budget: Arc<Budget>, bounds: Bounds) -> Self {
        let new_bounds = Arc::new(ArcSwap::from_pointee(bounds));
        Self {
            broker,
            budget,
            stops: Arc::default(),
            traffic: Arc::default(),
            bounds,
            new_bounds,
        }
    }

    /// Sets the limits for new connections.
    pub(crate) fn limit(&self, bounds: Bounds) {
        self.new_bounds.store(Arc::new(bounds));
    }

    /// A copy for a new connection.
    pub(crate) fn renewed(&self) -> Self {
        Self {
            bounds: **self.new_bounds.load(),
            ..self.clone()
        }
    }
}
