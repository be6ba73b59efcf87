//! What an operator can set about spiderq, and what the connections of a listener count together. Where the values come from
//! is the server's business.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use windlass_zmtp::Role;

use crate::wire::{Counts, Dialect};

/// One set of rules for all connections of a listener. Each listener has a `cycle` queue of its own.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The queue's name. It is made when a connection first needs it; nothing is served if a queue of the other kind has
    /// this name.
    pub queue: Bytes,
    /// What is spoken. `None`: each client's requests show it. In [`Dialect::V1_3`] a client that shows that it speaks 1.4 gets the
    /// ten counters of 1.4 from then on.
    pub dialect: Option<Dialect>,
    /// Clients may stop the daemon. Otherwise `Terminate` is no request, and is answered so.
    pub terminate: bool,
    /// What a connection has been lent goes back to its own place when the connection ends. Such leases do not outlast the
    /// daemon. Otherwise leases end with time only, and another connection may repay.
    pub release_on_disconnect: bool,
    /// The longest key or value of a bare request, in bytes. A longer one ends the connection. Over ZMTP its limits count.
    pub frame_bytes_max: usize,
    /// Blocking `Lend`s of one connection that may wait at once. One more ends the connection.
    pub lends_max: usize,
    /// For peers that greet as ZMTP does.
    pub zmtp: Arc<windlass_zmtp::Settings>,
    /// What its connections count together.
    pub counters: Arc<Counters>,
}

/// Requests that were answered since the listener is there: `Stats`. Errors are not counted. And the dialect that was seen last,
/// for clients that ask for `Stats` before they have shown theirs.
#[derive(Debug, Default)]
pub struct Counters {
    counts: [AtomicU64; 10],
    saw_1_3_last: AtomicBool,
}

/// What is counted, in the order of the counters of 1.4.
#[derive(Debug, Clone, Copy)]
pub(super) enum Counted {
    Ping,
    Count,
    Add,
    Update,
    Lookup,
    Remove,
    Lend,
    Repay,
    Heartbeat,
    Stats,
}

impl Settings {
    /// The defaults, for a listener with this queue.
    #[must_use]
    pub fn new(queue: Bytes) -> Self {
        Self {
            queue,
            dialect: None,
            terminate: false,
            release_on_disconnect: false,
            frame_bytes_max: 64 << 20,
            lends_max: 10_000,
            zmtp: Arc::new(windlass_zmtp::Settings::new(Role::Router)),
            counters: Arc::default(),
        }
    }
}

impl Counters {
    pub(super) fn count(&self, what: Counted) {
        if let Some(counter) = self.counts.get(what as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn saw(&self, dialect: Dialect) {
        self.saw_1_3_last.store(dialect == Dialect::V1_3, Ordering::Relaxed);
    }

    /// The dialect that was seen last; 1.4 before any was, since every public client speaks it.
    pub(super) fn seen_last(&self) -> Dialect {
        if self.saw_1_3_last.load(Ordering::Relaxed) { Dialect::V1_3 } else { Dialect::V1_4 }
    }

    pub(super) fn counts(&self) -> Counts {
        let [ping, count, add, update, lookup, remove, lend, repay, heartbeat, stats] =
            self.counts.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        Counts { ping, count, add, update, lookup, remove, lend, repay, heartbeat, stats }
    }
}
