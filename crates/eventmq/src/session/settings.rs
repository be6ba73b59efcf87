//! What all connections of EventMQ share: the section of the configuration, and the state of this daemon.

use std::sync::Arc;

use bytes::Bytes;
use windlass_bridge::Bridge;
use windlass_engine::{LeaseTerms, OnExpiry, Patterns};
use windlass_zmtp::Role;

use super::directory::Directory;
use crate::config::Eventmq;
use crate::publish::Exchange;

/// The settings of a listener. The listeners of one daemon share [`Directory`] and [`Exchange`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// `[eventmq]`. [`Eventmq::disconnect`] is set for administrators only.
    pub section: Eventmq,
    /// By queue: patterns ([`windlass_engine::matches`]) of results that count as failures. On the wire an exception
    /// looks like any result.
    pub failure_values: Patterns<Vec<Bytes>>,
    /// The transport, in the role of a ROUTER, or of a PUB for subscribers.
    pub zmtp: Arc<windlass_zmtp::Settings>,
    /// Workers and schedulers of the daemon.
    pub directory: Arc<Directory>,
    /// The destination of published messages.
    pub exchange: Arc<Exchange>,
    /// All protocols, for jobs that cross.
    pub bridge: Arc<Bridge>,
}

impl Settings {
    /// The settings under this section, for a daemon's first listener.
    pub fn new(section: Eventmq) -> Self {
        Self {
            section,
            failure_values: Patterns::default(),
            zmtp: Arc::new(windlass_zmtp::Settings::new(Role::Router)),
            directory: Arc::default(),
            exchange: Arc::default(),
            bridge: Arc::default(),
        }
    }

    /// The terms of every lease.
    pub(super) fn lease(&self) -> LeaseTerms {
        LeaseTerms {
            lease_ms: Some(self.section.lease.as_ms()).filter(|ms| *ms > 0),
            wish: Some(OnExpiry::Fail),
            ..LeaseTerms::CONNECTION
        }
    }
}
