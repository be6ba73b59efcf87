//! What all connections share.

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
    /// Bytes read before the engine is visited.
    pub read_bytes_max: usize,
    /// Bytes that may wait for a peer that does not read.
    pub outbound_bytes_max: usize,
    /// Replies that may wait for the disk or the peer before reading stops.
    pub unacknowledged_max: usize,
    /// Silence after which a connection is closed; `None` = never.
    pub idle_max: Option<Duration>,
    /// How long a whole message may take to arrive.
    pub patience: Patience,
}

/// State that all connections share.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Where connections find the queue.
    pub broker: Arc<dyn Broker>,
    /// Memory for buffers.
    pub budget: Arc<Budget>,
    /// Where clients ask the daemon to stop.
    pub stops: Arc<StopRequests>,
    /// Counts of connections.
    pub traffic: Arc<Traffic>,
    /// Of this connection.
    pub(crate) bounds: Bounds,
    /// For new connections.
    new_bounds: Arc<ArcSwap<Bounds>>,
}

impl Shared {
    /// State of a daemon without connections.
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

    /// For a new connection.
    pub(crate) fn renewed(&self) -> Self {
        Self {
            bounds: **self.new_bounds.load(),
            ..self.clone()
        }
    }
}
