//! A bound endpoint of a protocol.

use std::sync::Arc;

use arc_swap::ArcSwap;
use windlass_session::protocol::{Endpoint, SessionFactory};

use crate::tls::Handshaker;

/// An endpoint with its TLS.
#[derive(Clone)]
pub struct Served {
    /// The endpoint as configured at startup.
    pub endpoint: Endpoint,
    /// Creates the sessions of new connections.
    pub sessions: Arc<ArcSwap<SessionFactory>>,
    /// TLS for TCP sockets; Unix sockets are never encrypted.
    pub tls: Option<Arc<Handshaker>>,
}
