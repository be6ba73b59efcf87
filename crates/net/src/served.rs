//! A bound endpoint of a protocol, as listeners serve it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use windlass_session::protocol::{Endpoint, SessionFactory};

use crate::tls::Handshaker;

/// An endpoint with its TLS.
#[derive(Clone)]
pub struct Served {
    /// As at the start.
    pub endpoint: Endpoint,
    /// Makes the sessions of new connections.
    pub sessions: Arc<ArcSwap<SessionFactory>>,
    /// For TCP sockets; Unix sockets are never encrypted.
    pub tls: Option<Arc<Handshaker>>,
}
