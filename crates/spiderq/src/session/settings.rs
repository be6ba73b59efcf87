//! What an operator can set about spiderq, and what the connections of a listener share. Where the values come from is the
//! server's business.

use std::sync::Arc;

use bytes::Bytes;
use windlass_zmtp::Role;

/// One set of rules for all connections of a listener. Each listener has a `cycle` queue of its own.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The queue's name. It is made when the first connection needs it; nothing is served if a queue of the other kind has
    /// this name.
    pub queue: Bytes,
    /// What is spoken, as far as it cannot be told from what comes.
    pub dialect: Dialect,
    /// Clients may stop the daemon. Otherwise `Terminate` is no request, and is answered so.
    pub terminate: bool,
    /// What a connection has been lent goes back to where it was when the connection ends. Such leases do not outlast the
    /// daemon. Otherwise leases end with time only, and another connection may repay.
    pub release_on_disconnect: bool,
    /// The longest key or value, in bytes, where no ZMTP limit judges it. A longer one ends the connection.
    pub frame_bytes_max: usize,
    /// Blocking `Lend`s of one connection that may wait at once. One more ends the connection.
    pub lends_max: usize,
    /// For peers that greet as ZMTP does.
    pub zmtp: Arc<windlass_zmtp::Settings>,
    /// What connections count together: `Stats`.
    pub counters: Arc<Counters>,
}

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// 1.3, and 1.4 from a client that shows that it speaks it: by the mode in an `Add`, or by a `Remove`.
    V1_3,
    /// 1.4 only: `Add` needs its mode, `Stats` has ten counters from the beginning.
    V1_4,
}

/// What the connections of a listener count together, since it is there.
#[derive(Debug, Default)]
pub struct Counters {}

impl Settings {
    /// The defaults, for a listener with this queue.
    #[must_use]
    pub fn new(queue: Bytes) -> Self {
        Self {
            queue,
            dialect: Dialect::V1_3,
            terminate: false,
            release_on_disconnect: false,
            frame_bytes_max: 64 << 20,
            lends_max: 10_000,
            zmtp: Arc::new(windlass_zmtp::Settings::new(Role::Router)),
            counters: Arc::default(),
        }
    }
}
